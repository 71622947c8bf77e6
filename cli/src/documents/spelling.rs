//! Spellings of amounts from before `cpu`, `memory` and `storage`, which documents may still have.

use serde_json::{Map, Value};
use sluice_common::amount::parse_memory;
use sluice_common::quantity;

/// Tables of amounts in documents.
const TABLES: [&str; 3] = ["capacity", "reserved", "limit"];

/// Keys of hosts that count 10^6 bytes, with those that name a unit.
const IN_MEGABYTES: [(&str, &str); 3] = [
    ("memory_mb", "memory"),
    ("storage_mb", "storage"),
    ("gpu_memory_mb", "gpu_memory"),
];

/// Writes the amounts of a host with their units.
pub(super) fn host(fields: &mut Map<String, Value>) -> Result<(), String> {
    if let Some(thousandths) = fields.remove("mcpu").as_ref().and_then(Value::as_u64) {
        if !thousandths.is_multiple_of(1000) {
            return Err(format!(
                "mcpu: {thousandths} is not a number of whole cores: write `cpu` with a number of cores"
            ));
        }
        rename(fields, ("mcpu", "cpu"), (thousandths / 1000).into())?;
    }
    for (old, new) in IN_MEGABYTES {
        if let Some(count) = fields.remove(old).as_ref().and_then(Value::as_u64) {
            rename(fields, (old, new), format!("{count}MB").into())?;
        }
    }
    Ok(())
}

fn rename(
    fields: &mut Map<String, Value>,
    (old, new): (&str, &str),
    value: Value,
) -> Result<(), String> {
    match fields.insert(new.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(format!("{old}: it is there as `{new}` too: write it once")),
    }
}

/// Says how much a document means that counts megabytes, if that is not what ZenML means by the same words.
pub(super) fn note(fields: &Map<String, Value>) -> Option<String> {
    let tables = TABLES.iter().filter_map(|table| {
        let keys = fields.get(*table)?.as_object()?;
        Some((*table, keys))
    });
    let mut counts = tables.flat_map(|(table, keys)| {
        let keys = IN_MEGABYTES
            .iter()
            .map(move |(old, new)| (table, *old, *new, keys.get(*old)));
        keys.filter_map(|(table, old, new, count)| Some((table, old, new, count?.as_u64()?)))
    });
    let (table, old, new, count) = counts.find(|(.., count)| *count > 0)?;
    let here = quantity::megabytes(count, 2);
    let there = parse_memory(&format!("{count}MiB")).ok()?;
    let there = sluice_common::amount::format_memory(there);
    Some(format!(
        "{table}.{old}: {count} times 10^6 bytes are {here}; ZenML means {there}: write `{new}: {there}` for that, or \
         `{new}: {count}MB`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(json: Value) -> Map<String, Value> {
        json.as_object().cloned().unwrap()
    }

    #[test]
    fn hosts_in_old_spellings_are_the_same_hosts() {
        let mut old = fields(json!({"mcpu": 96000, "memory_mb": 1024, "gpu_memory_mb": 24000}));
        host(&mut old).unwrap();
        let new = json!({"cpu": 96, "memory": "1024MB", "gpu_memory": "24000MB"});
        assert_eq!(old, fields(new));
        let twice = host(&mut fields(json!({"mcpu": 1000, "cpu": 1}))).unwrap_err();
        assert!(twice.contains("write it once"), "{twice}");
        let odd = host(&mut fields(json!({"mcpu": 1500}))).unwrap_err();
        assert!(odd.contains("1500 is not a number of whole cores"), "{odd}");
    }

    #[test]
    fn megabytes_are_told_from_those_of_zenml() {
        let told = note(&fields(json!({"capacity": {"memory_mb": 20480}}))).unwrap();
        assert_eq!(
            told,
            "capacity.memory_mb: 20480 times 10^6 bytes are 19.07GiB; ZenML means 20GiB: write `memory: 20GiB` for that, or \
             `memory: 20480MB`"
        );
        assert_eq!(
            note(&fields(json!({"capacity": {"memory": "20GiB"}}))),
            None
        );
    }
}

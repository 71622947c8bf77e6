//! Amounts as ZenML's commands write them: JSON or YAML with whole numbers by key.

use serde_json::{Map, Value, json};
use sluice_common::amount::cores_of;

use super::fields::ForeignFields;
use crate::failure::Failure;
use crate::render::safe;

/// Reads the amounts of a flag as those of a policy: `mcpu` counts thousandths of a core and `memory_mb` MiB, as in ZenML;
/// keys of policies are taken too.
pub(crate) fn amounts(flag: &str, value: &Value) -> Result<Map<String, Value>, Failure> {
    let Value::Object(fields) = value else {
        let value = safe(&value.to_string());
        return Err(Failure::Usage(format!(
            "{flag}: `{value}`: write units by key, such as `{{\"gpu\": 8, \"step_run\": 32}}`"
        )));
    };
    translate(fields).map_err(|mistake| Failure::Usage(format!("{flag}: {mistake}")))
}

fn translate(fields: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    let about = ForeignFields::new("ZenML", fields.clone());
    let mut amounts = Map::new();
    for (key, value) in fields {
        let (ours, amount) = amount(&about, key, value)?;
        if amounts.insert(ours.to_owned(), amount).is_some() {
            return Err(format!(
                "{}: it is there as `{ours}` too: write it once",
                safe(key)
            ));
        }
    }
    Ok(amounts)
}

/// Returns the key of a policy and its amount.
fn amount<'a>(
    about: &ForeignFields,
    key: &'a str,
    value: &Value,
) -> Result<(&'a str, Value), String> {
    let whole = || {
        let count = value.as_u64();
        count.ok_or_else(|| about.wrong(key, value, "write a whole number from 0"))
    };
    Ok(match key {
        "mcpu" => ("cpu", json!(cores_of(whole()?))),
        "memory_mb" => ("memory", format!("{}MiB", whole()?).into()),
        "storage_mb" => ("storage", format!("{}MiB", whole()?).into()),
        "GPU" => ("gpu", whole()?.into()),
        "CPU" => ("cpu", whole()?.into()),
        "step run" => ("step_run", whole()?.into()),
        "memory" | "storage" if value.is_number() => {
            let way = format!("write `{key}_mb` for MiB, or a text with a unit such as `64GiB`");
            return Err(about.wrong(key, value, &way));
        }
        "cpu" | "memory" | "storage" => (key, value.clone()),
        key => (key, whole()?.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_zenml_are_those_of_policies() {
        for (theirs, ours) in [
            (
                json!({"gpu": 8, "step_run": 32}),
                json!({"gpu": 8, "step_run": 32}),
            ),
            (json!({"mcpu": 1500}), json!({"cpu": 1.5})),
            (json!({"memory_mb": 20480}), json!({"memory": "20480MiB"})),
            (
                json!({"memory": "64GiB", "tpu": 2}),
                json!({"memory": "64GiB", "tpu": 2}),
            ),
            (
                json!({"GPU": 4, "CPU": 8, "step run": 2}),
                json!({"gpu": 4, "cpu": 8, "step_run": 2}),
            ),
        ] {
            let made = amounts("--capacity", &theirs).unwrap();
            assert_eq!(Value::Object(made), ours, "{theirs}");
        }
    }

    #[test]
    fn what_is_no_amount_is_told_with_key_and_value() {
        for (value, told) in [
            (json!(8), "--capacity: `8`: write units by key"),
            (
                json!({"gpu": -1}),
                "--capacity: gpu: `-1`: write a whole number from 0",
            ),
            (
                json!({"gpu": 1.5}),
                "--capacity: gpu: `1.5`: write a whole number from 0",
            ),
            (
                json!({"memory": 64}),
                "--capacity: memory: `64`: write `memory_mb` for MiB",
            ),
            (
                json!({"mcpu": 1000, "cpu": 1}),
                "it is there as `cpu` too: write it once",
            ),
        ] {
            let error = amounts("--capacity", &value).unwrap_err().to_string();
            assert!(error.contains(told), "{value}: {error}");
        }
    }
}

//! Renders events. Every version adds event types, so events are read by their common fields (`seq`, `at`, `type`,
//! `step` or `attempt`, `node`), and other fields are shown as they are.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_common::gpu_state::{GpuFault, PidList};

use super::age::age;
use super::listed::Listed;
use super::step::rounded;
use super::table::{Cell, Column};
use super::{or_dash, safe};

/// Fields that have a column of their own, or are too large for one.
const NOT_DETAILS: [&str; 12] = [
    "hash",
    "key",
    "seq",
    "at",
    "type",
    "step",
    "attempt",
    "node",
    "spec",
    "warrant",
    "inventory",
    "deadline",
];

/// An event of the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Event(pub(crate) Value);

impl Event {
    /// Returns its position in the log; 0 if it has none.
    pub(crate) fn seq(&self) -> u64 {
        self.0.get("seq").and_then(Value::as_u64).unwrap_or(0)
    }

    /// Returns the step that it is about, directly or by an attempt.
    pub(crate) fn step(&self) -> Option<&str> {
        let text = |name: &str| self.0.get(name).and_then(Value::as_str);
        text("step").or_else(|| Some(text("attempt")?.rsplit_once('.')?.0))
    }
}

impl Listed for Event {
    const KIND: &'static str = "event";
    const COLUMNS: &'static [Column] = &[
        Column::new("SEQ", 7).room(6),
        Column::new("AGE", 6).room(6),
        Column::new("TYPE", 20).room(16),
        Column::new("STEP", 8).text().room(14),
        Column::new("NODE", 5).text().room(12),
        Column::new("DETAIL", 4).text(),
    ];

    fn name(&self) -> String {
        self.seq().to_string()
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        row(&self.0, now).into_iter().map(Cell::from).collect()
    }
}

fn row(event: &Value, now: Timestamp) -> Vec<String> {
    let text = |name: &str| event.get(name).and_then(Value::as_str);
    let step = text("step").or_else(|| text("attempt"));
    vec![
        Event(event.clone()).seq().to_string(),
        at(event).map_or("-".to_owned(), |at| age(at, now)),
        or_dash(text("type")),
        or_dash(step),
        or_dash(text("node").or_else(|| first_node(event))),
        details(event),
    ]
}

fn at(event: &Value) -> Option<Timestamp> {
    time(event.get("at")?)
}

/// Parses a time in RFC 3339 or milliseconds since 1970.
fn time(value: &Value) -> Option<Timestamp> {
    match value {
        Value::String(text) => text.parse().ok(),
        number => Timestamp::from_millisecond(number.as_i64()?).ok(),
    }
}

fn first_node(event: &Value) -> Option<&str> {
    event.get("placements")?.get(0)?.get("node")?.as_str()
}

fn details(event: &Value) -> String {
    let Some(fields) = event.as_object() else {
        return "-".to_owned();
    };
    let sentence = fields
        .get("reason")
        .and_then(|reason| reason.get("message"))
        .and_then(Value::as_str);
    let mut words = Vec::new();
    words.extend(name(fields));
    words.extend(
        fields
            .iter()
            .filter_map(|(name, value)| detail(name, value)),
    );
    words.extend(deadline(fields));
    words.extend(labels(fields));
    words.extend(exit(fields));
    words.extend(gpus(fields));
    words.extend(others(fields));
    words.extend(audit(fields));
    words.extend(access(fields));
    words.extend(sentence.map(safe));
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(" ")
    }
}

/// Returns the step's display name, if the event contains the whole step.
fn name(fields: &Map<String, Value>) -> Option<String> {
    let name = fields.get("spec")?.get("name")?.as_str()?;
    Some(format!("name={}", safe(name)))
}

fn detail(name: &str, value: &Value) -> Option<String> {
    if NOT_DETAILS.contains(&name) {
        return None;
    }
    match value {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(format!("{}={}", safe(name), safe(text))),
        Value::Number(number) => Some(format!("{}={number}", safe(name))),
        Value::Bool(truth) => Some(format!("{}={truth}", safe(name))),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Formats a deadline as the API formats `at`.
fn deadline(fields: &Map<String, Value>) -> Option<String> {
    let at = time(fields.get("deadline")?)?;
    Some(format!("deadline={}", rounded(at)))
}

/// Formats changed labels: `zone=a` if set, `rack-` if removed.
fn labels(fields: &Map<String, Value>) -> Vec<String> {
    let set = fields.get("set").and_then(Value::as_object).into_iter();
    let set = set.flatten().filter_map(|(key, value)| {
        let value = value.as_str()?;
        Some(format!("{}={}", safe(key), safe(value)))
    });
    let removed = fields.get("removed").and_then(Value::as_array).into_iter();
    let removed = removed.flatten().filter_map(Value::as_str);
    set.chain(removed.map(|key| format!("{}-", safe(key))))
        .collect()
}

/// Names other steps in the event: those that a nomination awaits, or around which resources were granted.
fn others(fields: &Map<String, Value>) -> Vec<String> {
    let promise = fields.get("nomination").and_then(Value::as_object);
    let lists = [
        ("hosts", promise.and_then(|promise| promise.get("hosts"))),
        ("awaits", promise.and_then(|promise| promise.get("awaits"))),
        ("backfill", fields.get("backfill")),
    ];
    let list = |(name, list): (&str, Option<&Value>)| {
        let names = list?.as_array()?.iter().filter_map(Value::as_str);
        let names: Vec<String> = names.map(safe).collect();
        (!names.is_empty()).then(|| format!("{name}={}", names.join(",")))
    };
    lists.into_iter().filter_map(list).collect()
}

/// Formats an audit entry, such as `token/ci refused: drain nodes gpu-1 from 10.0.0.1:4711`.
fn audit(fields: &Map<String, Value>) -> Option<String> {
    let entry = fields.get("entry")?;
    let word = |name: &str| entry.get(name).and_then(Value::as_str).map(safe);
    let outcome = match entry.get("allowed")?.as_bool()? {
        true => "allowed",
        false => "refused",
    };
    let what = [word("verb"), word("resource"), word("name")];
    let what: Vec<String> = what.into_iter().flatten().collect();
    let (who, from) = (word("who")?, word("from")?);
    Some(format!("{who} {outcome}: {} from {from}", what.join(" ")))
}

/// Formats a change of access rules, such as `api_token_created ci`.
fn access(fields: &Map<String, Value>) -> Option<String> {
    let change = fields.get("change")?;
    let word = |name: &str| change.get(name).and_then(Value::as_str).map(safe);
    let of = ["role", "binding", "token"].into_iter().find_map(word);
    Some(format!("{} {}", word("what")?, of?))
}

/// Formats cordoned GPUs, and problems of GPUs, such as `GPU-a=lost`.
fn gpus(fields: &Map<String, Value>) -> Vec<String> {
    let states = fields.get("states");
    let faults = states.and_then(|states| states.get("faults")?.as_object());
    let faults = faults.into_iter().flatten();
    let faults = faults.map(|(gpu, fault)| format!("{}={}", safe(gpu), fault_of(fault)));
    let drain = states.and_then(|states| states.get("drain")?.as_str());
    let drain = drain.map(|why| format!("drain={}", safe(why)));
    let named = fields.get("gpus").and_then(Value::as_array);
    let named = named.into_iter().flatten().filter_map(Value::as_str);
    faults.chain(drain).chain(named.map(safe)).collect()
}

fn fault_of(fault: &Value) -> String {
    let known: Result<GpuFault, _> = serde_json::from_value(fault.clone());
    known.map_or("?".to_owned(), |fault| match &fault {
        GpuFault::Quarantined { why, .. } => format!("quarantined ({})", safe(why)),
        GpuFault::Foreign { pids } => format!("foreign ({})", PidList(pids)),
        GpuFault::Lost => fault.as_str().to_owned(),
    })
}

/// Formats an exit, such as `code=7`.
fn exit(fields: &Map<String, Value>) -> Option<String> {
    match fields.get("end")?.get("exit")? {
        Value::String(word) => Some(safe(word)),
        Value::Object(how) => {
            let (name, value) = how.iter().next()?;
            let value = value.as_str().map_or_else(|| value.to_string(), safe);
            Some(format!("{}={value}", safe(name)))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::listed::{rows, table};
    use super::super::step::tests::now;
    use super::super::table::Table;
    use super::*;
    use crate::out::Out;
    use serde_json::json;

    /// Returns one event of each shape.
    pub(crate) fn events() -> Vec<Event> {
        let events = [
            json!({"seq": 1, "at": 1_795_168_860_000u64, "type": "step_queued", "step": "k3v9",
                   "spec": {"name": "train", "command": ["a"]}}),
            json!({"seq": 2, "at": "2026-11-20T10:02:30Z", "type": "allocated", "attempt": "k3v9.1",
                   "pool": "default", "placements": [{"node": "gpu-1", "gpus": []}]}),
            json!({"seq": 3, "at": "2026-11-20T10:02:59Z", "type": "ended", "attempt": "k3v9.1", "node": "gpu-1",
                   "end": {"exit": {"code": 7}}}),
            json!({"seq": 4, "at": "2026-11-20T10:03:00Z", "type": "step_ended", "step": "k3v9", "state": "failed",
                   "reason": {"code": "non_zero_exit", "message": "it exited\nwith code 7"}}),
        ];
        events.map(Event).into()
    }

    #[test]
    fn events_are_listed_with_what_matters_of_each() {
        assert_eq!(
            table(&events(), now(), Out::plain()),
            "SEQ  AGE  TYPE         STEP    NODE   DETAIL\n\
             1    2m   step_queued  k3v9    -      name=train\n\
             2    30s  allocated    k3v9.1  gpu-1  pool=default\n\
             3    1s   ended        k3v9.1  gpu-1  code=7\n\
             4    0s   step_ended   k3v9    -      state=failed it exited\\nwith code 7\n"
        );
    }

    #[test]
    fn lines_stand_below_each_other() {
        let mut table = Table::new(Event::COLUMNS, Out::plain());
        table.make_room();
        assert_eq!(
            table.header(),
            "SEQ     AGE     TYPE              STEP            NODE          DETAIL\n"
        );
        assert_eq!(
            table.rows(&rows(&events()[2..3], now())),
            "3       1s      ended             k3v9.1          gpu-1         code=7\n"
        );
    }

    #[test]
    fn what_admins_did_is_told_in_their_words() {
        for (event, expected) in [
            (
                json!({"type": "node_draining", "node": "n", "reason": "new fans", "deadline": 1_795_168_860_000u64}),
                "reason=new fans deadline=2026-11-20T10:01:00Z",
            ),
            (
                json!({"type": "node_cordoned", "node": "n", "reason": ""}),
                "-",
            ),
            (
                json!({"type": "node_labelled", "node": "n", "set": {"zone": "a"}, "removed": ["rack"]}),
                "zone=a rack-",
            ),
        ] {
            assert_eq!(details(&event), expected);
        }
    }

    #[test]
    fn whoever_acts_is_told_with_whom_it_acts_on() {
        for (event, expected) in [
            (
                json!({"type": "nominated", "step": "b", "nomination": {"pool": "p", "hosts": ["n"], "awaits": ["a.1", "c.2"], "firm": true}}),
                "hosts=n awaits=a.1,c.2",
            ),
            (
                json!({"type": "stopping", "attempt": "a.1", "why": "preempted", "by": "b"}),
                "by=b why=preempted",
            ),
            (
                json!({"type": "allocated", "attempt": "d.1", "pool": "p", "placements": [], "backfill": ["b"]}),
                "pool=p backfill=b",
            ),
        ] {
            assert_eq!(details(&event), expected);
        }
    }

    #[test]
    fn an_event_knows_its_step() {
        let step = |event: Value| Event(event).step().map(str::to_owned);
        assert_eq!(step(json!({"step": "a"})).as_deref(), Some("a"));
        assert_eq!(step(json!({"attempt": "a.b.2"})).as_deref(), Some("a.b"));
        assert_eq!(step(json!({"node": "n"})), None);
    }

    #[test]
    fn an_event_of_another_shape_is_still_a_row() {
        assert_eq!(row(&json!({}), now()), ["0", "-", "-", "-", "-", "-"]);
        assert_eq!(row(&json!([1]), now()), ["0", "-", "-", "-", "-", "-"]);
    }
}

//! Every format of every kind, over fixed views, and over views in which every text is hostile.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;
use crate::render::event::tests::events;
use crate::render::explain::tests::{borrowing, waiting};
use crate::render::node::tests::node;
use crate::render::policy::tests::policy;
use crate::render::pool::tests::pool;
use crate::render::step::tests::{now, running};
use crate::render::{self, is_harmful};

const FORMATS: [(Format, &str); 5] = [
    (Format::Table, "table"),
    (Format::Wide, "wide"),
    (Format::Json, "json"),
    (Format::Yaml, "yaml"),
    (Format::Name, "name"),
];

/// Texts with control characters, line breaks, and characters that change or hide the direction of text.
const HOSTILE: [&str; 4] = [
    "\u{1b}[2J\u{1b}]0;x\u{7}",
    "a\nb\tc\rd\u{8}",
    "\u{9b}31m\u{7f}",
    "\u{202e}x\u{200b}\u{2028}\u{feff}",
];

fn snapshots<T: Listed>(items: &[T]) {
    for (format, name) in FORMATS {
        let out = Out::plain().with_format(format);
        let name = format!("{}_{name}", T::KIND);
        insta::assert_snapshot!(name, list_text(items, now(), out).unwrap());
    }
}

#[test]
fn every_format_of_every_kind() {
    snapshots(&[running()]);
    snapshots(&[node()]);
    snapshots(&[pool(2, 1)]);
    snapshots(&[policy()]);
    snapshots(&events());
}

#[test]
fn a_single_thing_is_itself_and_yaml_says_what_json_says() {
    let json = Out::plain().with_format(Format::Json);
    let yaml = Out::plain().with_format(Format::Yaml);
    let text = one_text(&running(), json, |_| String::new()).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["id"], "k3v9");
    let text = one_text(&running(), yaml, |_| String::new()).unwrap();
    assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), value);
    // Items have their kind, by which they can be applied.
    let mut value = value;
    value["kind"] = "step".into();
    let line = next_text(&running(), json).unwrap();
    assert_eq!(line.lines().count(), 1);
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    let document = next_text(&running(), yaml).unwrap();
    assert!(document.starts_with("---\n"), "{document}");
}

/// Replaces every free text of a view; states, times and codes stay.
fn poisoned<T: Serialize + DeserializeOwned>(view: &T, poison: &str) -> T {
    let mut value = serde_json::to_value(view).unwrap();
    for path in leaves(&value, String::new()) {
        let leaf = value.pointer_mut(&path).unwrap();
        let before = std::mem::replace(leaf, Value::String(poison.to_owned()));
        if T::deserialize(&value).is_err() {
            *value.pointer_mut(&path).unwrap() = before;
        }
    }
    for place in ["/labels", "/inventory/labels", "/env", "/platforms"] {
        if let Some(Value::Object(map)) = value.pointer_mut(place) {
            let values: Vec<Value> = map.values().cloned().collect();
            map.clear();
            map.extend(values.into_iter().map(|value| (poison.to_owned(), value)));
        }
    }
    T::deserialize(&value).unwrap()
}

fn leaves(value: &Value, path: String) -> Vec<String> {
    match value {
        Value::String(_) | Value::Null => vec![path],
        Value::Array(items) => (0..items.len())
            .flat_map(|i| leaves(&items[i], format!("{path}/{i}")))
            .collect(),
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| {
                let key = key.replace('~', "~0").replace('/', "~1");
                leaves(value, format!("{path}/{key}"))
            })
            .collect(),
        Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn harmless(text: &str) {
    let harmful = text.chars().find(|c| *c != '\n' && is_harmful(*c));
    assert!(harmful.is_none(), "{harmful:?} in {text:?}");
}

fn lists_are_harmless<T: Listed + DeserializeOwned>(view: &T) {
    for poison in HOSTILE {
        let view = poisoned(view, poison);
        for (format, name) in FORMATS {
            for out in [Out::plain(), Out::sized(60)] {
                let text =
                    list_text(std::slice::from_ref(&view), now(), out.with_format(format)).unwrap();
                harmless(&text);
                let lines = text.lines().count();
                match format {
                    Format::Table | Format::Wide => assert_eq!(lines, 2, "{name}: {text}"),
                    Format::Name => assert_eq!(lines, 1, "{name}: {text}"),
                    Format::Json | Format::Yaml => {}
                }
            }
        }
        harmless(&next_text(&view, Out::plain().with_format(Format::Json)).unwrap());
    }
}

#[test]
fn hostile_texts_are_harmless_in_every_list() {
    lists_are_harmless(&running());
    lists_are_harmless(&node());
    lists_are_harmless(&pool(2, 1));
    for event in events() {
        lists_are_harmless(&event);
    }
}

#[test]
fn hostile_texts_are_harmless_in_every_description() {
    for poison in HOSTILE {
        let out = Out::plain();
        let step = poisoned(&running(), poison);
        assert!(step.name == poison && step.env.contains_key(poison));
        harmless(&render::step::describe(&step, now(), out));
        let node = poisoned(&node(), poison);
        let steps = [step];
        harmless(&render::node::describe(&node, &steps, now(), out));
        for view in [waiting(), borrowing()] {
            harmless(&render::explain::explain(
                &poisoned(&view, poison),
                now(),
                out,
            ));
        }
        let pool = poisoned(&pool(2, 1), poison);
        let nodes = [node];
        harmless(&render::pool::describe(
            &pool,
            &nodes,
            &[poisoned(&policy(), poison)],
            (&steps, &steps),
            now(),
            out,
        ));
    }
}

//! `docs/reference/documents.md`: every kind of document and every key, made of the types that documents are read into and
//! of the examples in `packaging/examples/every-key`. `SLUICE_PAGES=write` writes the page.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, schema_for};
use serde_json::{Map, Value};
use sluice_common::access::{BindingSpec, RoleSpec};
use sluice_common::cluster::ClusterSpec;
use sluice_common::document::{ClusterObjectId, PolicyId, PoolObjectId, SpecDocument};
use sluice_common::platform::spec::PlatformSpec;
use sluice_common::pool::{PolicySpec, PoolSpec};
use sluice_common::topology::TopologySpec;

use super::*;
use crate::context::ContextFile;

const INTRO: &str = "# YAML documents

Every kind of document and every key of it, for whoever writes files for `sluice apply`, `sluice submit` and `sluice dev`. This page is made of the code; the examples are files below `packaging/examples/every-key`, and tests apply them. A key that is not listed is rejected by name.

A file has one document or several with `---` between them. Lengths of time are written as `90s`, `10m`, `2h`, `1d` or `1h30m`; memory and storage as `64GiB` (powers of 1024) or `64GB` (powers of 1000).

";

/// A kind: its name, what is done with it, its keys, and the file of its example.
struct Kind {
    name: &'static str,
    about: &'static str,
    schema: Value,
    file: &'static str,
}

fn kind<T: JsonSchema>(name: &'static str, file: &'static str, about: &'static str) -> Kind {
    let schema = schema_for!(T).to_value();
    Kind {
        name,
        about,
        schema,
        file,
    }
}

fn kinds() -> Vec<Kind> {
    let terms = "terms.yaml";
    vec![
        kind::<StepRequest>(
            "step",
            "step.yaml",
            "A command with what it needs: `sluice submit -f`. `kind: training`, `inference`, `notebook` and `compute` are steps with that `work` ([short forms](../cli.md#short-forms)).",
        ),
        kind::<SpecDocument<ClusterObjectId, PoolSpec>>(
            "pool",
            terms,
            "Hosts that are shared by one set of rules: `sluice apply -f`.",
        ),
        kind::<SpecDocument<PolicyId, PolicySpec>>(
            "policy",
            terms,
            "What a subject may use of a pool: `sluice apply -f`. [Policies](../policies.md) has an example for each rule.",
        ),
        kind::<SpecDocument<PoolObjectId, PlatformSpec>>(
            "platform",
            terms,
            "Hardware of a pool by name: `sluice apply -f`. [Templates](../templates.md#platforms) says what `override` does.",
        ),
        kind::<SpecDocument<ClusterObjectId, Template>>(
            "template",
            terms,
            "What is laid under the steps of the pools that name it: `sluice apply -f`. See [templates](../templates.md).",
        ),
        kind::<SpecDocument<ClusterObjectId, ValidationSpec>>(
            "validation",
            terms,
            "What a step must keep to be let into the pools that name it: `sluice apply -f`. See [validation](../validation.md).",
        ),
        kind::<ClusterSpec>(
            "cluster",
            terms,
            "Where steps go that name no pool: `sluice apply -f`. There is one such document.",
        ),
        kind::<TopologySpec>(
            "topology",
            terms,
            "Levels such as zone and rack, within which steps on several hosts may ask to run: `sluice apply -f`. There is one such document; [policies](../policies.md#hosts-that-are-near-to-each-other) has an example.",
        ),
        kind::<SpecDocument<ClusterObjectId, RoleSpec>>(
            "role",
            terms,
            "What its holders may do: `sluice apply -f`. [Access](../access.md) lists verbs and resources.",
        ),
        kind::<SpecDocument<ClusterObjectId, BindingSpec>>(
            "binding",
            terms,
            "Who has which roles: `sluice apply -f`. See [access](../access.md).",
        ),
        kind::<HostDocument>(
            "host",
            "host.yaml",
            "A host that is declared for a trial: `sluice dev --file`, `sluice simulate --hosts`. Steps on it are real processes. A key that is left out is not bounded.",
        ),
    ]
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The example of a kind, as it is written and as it is read: its first document, and others with keys that none before
/// them has.
fn example(kind: &Kind) -> (String, Value) {
    let path = root().join("packaging/examples/every-key").join(kind.file);
    let text = fs::read_to_string(path).unwrap();
    let documents = text.split("---\n");
    let begin = format!("kind: {}\n", kind.name);
    let documents = documents.filter_map(|it| Some(&it[it.find(&begin)?..]));
    let mut texts = Vec::new();
    let mut keys = Map::new();
    for text in documents {
        let read = values::<Value>(text, kind.file).unwrap_or_else(|e| panic!("{e:?}"));
        let Some(Value::Object(read)) = read.into_iter().next() else {
            panic!("{text} is no document")
        };
        if read.keys().any(|key| !keys.contains_key(key)) {
            texts.push(text);
            for (key, value) in read {
                keys.entry(key).or_insert(value);
            }
        }
    }
    assert!(!texts.is_empty(), "no example of kind {}", kind.name);
    (texts.join("---\n"), Value::Object(keys))
}

/// The keys of one kind or part, and the examples of them that were seen.
struct Page {
    text: String,
    /// Parts that are to be shown yet, and those that were.
    parts: Vec<(String, Value)>,
    seen: BTreeSet<String>,
    /// Keys without an example.
    bare: Vec<String>,
}

/// A schema without the layer that makes it optional.
fn present(schema: &Value) -> &Value {
    let choices = schema["anyOf"].as_array().or(schema["allOf"].as_array());
    let null = |it: &&Value| it["type"] != "null";
    match choices.map(|all| all.iter().filter(null).collect::<Vec<_>>()) {
        Some(all) if all.len() == 1 => present(all[0]),
        _ => schema,
    }
}

/// The type of a value, in words. A part that has keys of its own is named.
fn type_of(schema: &Value, defs: &Value, parts: &mut Vec<String>) -> String {
    let schema = present(schema);
    if schema["$ref"] == "#" {
        return "the same keys".to_owned();
    }
    if let Some(name) = schema["$ref"].as_str().and_then(|it| it.rsplit('/').next()) {
        let part = &defs[name];
        if part["properties"].is_object() {
            parts.push(name.to_owned());
            return format!("[{name}](#{})", name.to_ascii_lowercase());
        }
        return type_of(part, defs, parts);
    }
    let choices = ["oneOf", "anyOf"]
        .iter()
        .find_map(|it| schema[it].as_array());
    let consts = choices.map(|all| all.iter().filter_map(|it| it["const"].as_str()).collect());
    let consts: Vec<&str> = consts.unwrap_or_default();
    let words = schema["enum"].as_array();
    let words = words.map(|all| all.iter().filter_map(Value::as_str).collect::<Vec<_>>());
    let words = [words.unwrap_or_default(), consts].concat();
    if !words.is_empty() {
        return format!("`{}`", words.join("`, `"));
    }
    if let Some(choices) = choices {
        let each: Vec<String> = choices.iter().map(|it| type_of(it, defs, parts)).collect();
        return each.join(" or ");
    }
    let types = schema["type"].as_array().cloned();
    let mut types = types.unwrap_or_else(|| vec![schema["type"].clone()]);
    types.retain(|it| it != "null");
    match types.first().and_then(Value::as_str) {
        Some("string") => "text".to_owned(),
        Some("integer") => "whole number".to_owned(),
        Some("number") => "number".to_owned(),
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("array") => format!("list of {}", type_of(&schema["items"], defs, parts)),
        Some("object") if schema["properties"].is_object() => {
            let keys = schema["properties"].as_object().unwrap().iter();
            let each = keys.map(|(key, of)| format!("`{key}`: {}", type_of(of, defs, parts)));
            each.collect::<Vec<_>>().join(", ")
        }
        Some("object") => {
            let inner = type_of(&schema["additionalProperties"], defs, parts);
            format!("map of {inner}")
        }
        _ => "text".to_owned(),
    }
}

impl Page {
    /// The table of the keys of an object.
    fn keys(&mut self, schema: &Value, defs: &Value) {
        self.text
            .push_str("| key | type | meaning |\n|---|---|---|\n");
        for (key, value) in schema["properties"].as_object().unwrap() {
            let mut parts = Vec::new();
            let of = type_of(value, defs, &mut parts);
            let about = value["description"].as_str().unwrap_or_default();
            let about = about.replace('\n', " ").replace('|', "\\|");
            let needed = schema["required"].as_array();
            let needed = needed.is_some_and(|all| all.iter().any(|it| it == key));
            let needed = if needed { "Required. " } else { "" };
            writeln!(self.text, "| `{key}` | {of} | {needed}{about} |").unwrap();
            for part in parts {
                if self.seen.insert(part.clone()) {
                    let schema = defs[&part].clone();
                    self.parts.push((part, schema));
                }
            }
        }
        self.text.push('\n');
    }

    /// Notes the keys of which the example has none.
    fn covered(&mut self, name: &str, schema: &Value, example: &Value) {
        for key in schema["properties"].as_object().unwrap().keys() {
            // These are for callers of the API, for what does not exist yet, or another form of a key that is there.
            let apart = [
                "version",
                "prefer_workdir",
                "within",
                "replicas",
                "rollout",
                "placement",
                "min_replicas",
                "max_replicas",
                "max_concurrency",
            ];
            let apart = apart.contains(&key.as_str()) || key.starts_with("autoscaling");
            if example.get(key).is_none() && !apart {
                self.bare.push(format!("{name}.{key}"));
            }
        }
    }
}

fn page() -> String {
    let mut page = Page {
        text: INTRO.to_owned(),
        parts: Vec::new(),
        // Its keys are those of the kind.
        seen: BTreeSet::from(["Template".to_owned()]),
        bare: Vec::new(),
    };
    for kind in kinds() {
        let (text, example) = example(&kind);
        writeln!(page.text, "## {}\n\n{}\n", kind.name, kind.about).unwrap();
        let defs = kind.schema["$defs"].clone();
        page.keys(&kind.schema, &defs);
        page.covered(kind.name, &kind.schema, &example);
        writeln!(page.text, "```yaml\n{text}```\n").unwrap();
    }
    page.text
        .push_str("## Parts\n\nKeys of what is written inside of the documents above.\n\n");
    let schemas: Vec<Value> = kinds()
        .into_iter()
        .map(|it| it.schema["$defs"].clone())
        .collect();
    while !page.parts.is_empty() {
        let (name, schema) = page.parts.remove(0);
        let defs = schemas
            .iter()
            .find(|defs| defs.get(&name).is_some())
            .unwrap();
        writeln!(page.text, "### {name}\n").unwrap();
        if let Some(about) = schema["description"].as_str() {
            writeln!(page.text, "{}\n", about.replace('\n', " ")).unwrap();
        }
        page.keys(&schema, defs);
    }
    page.text.push_str(
        "## The context file\n\nHow the command line finds a cluster: by the context of `--context` or `SLUICE_CONTEXT`, or the one in use ([cli.md](../cli.md#choose-a-cluster)). It is JSON; `sluice login` writes it.\n\n",
    );
    let context = schema_for!(ContextFile).to_value();
    page.keys(&context, &context["$defs"]);
    assert_eq!(page.bare, Vec::<String>::new(), "keys without an example");
    page.text.trim_end().to_owned() + "\n"
}

#[test]
fn the_reference_of_documents_is_what_the_code_says() {
    let path = root().join("docs/reference/documents.md");
    let made = page();
    if std::env::var("SLUICE_PAGES").is_ok_and(|word| word == "write") {
        fs::write(path, made).unwrap();
        return;
    }
    let written = fs::read_to_string(path).unwrap();
    let first = written.lines().zip(made.lines()).find(|(a, b)| a != b);
    assert!(
        written == made,
        "docs/reference/documents.md is old: renew it by SLUICE_PAGES=write cargo test -p sluice reference ({first:?})"
    );
}

#[test]
fn the_examples_with_every_key_are_read() {
    for kind in kinds() {
        let (text, _) = example(&kind);
        let read = read(&text, kind.file).unwrap_or_else(|e| panic!("{e:?}"));
        assert!(!read.is_empty());
    }
}

#[test]
fn the_documents_of_the_pages_are_read() {
    let pages = fs::read_dir(root().join("docs")).unwrap();
    let pages = pages.map(|entry| entry.unwrap().path());
    let mut found = 0;
    for page in pages.filter(|path| path.is_file()) {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("```yaml").skip(1) {
            let block = block.split("```").next().unwrap();
            let (_, block) = block.split_once('\n').unwrap();
            if let Err(error) = read(block, "block") {
                panic!("{}: {error:?}", page.display());
            }
            found += 1;
        }
    }
    assert!(found > 10, "{found}");
}

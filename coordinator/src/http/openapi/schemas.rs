//! Schemas of all bodies, derived from their types and reshaped for client generators: a closed list of words is one
//! `enum`, and each kind of event or document has a schema of its own.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use coordinator_core::LogEntry;
use sluice_common::allocation::RenewalRequest;
use sluice_common::api::{
    ApiTokenCreated, ApiTokenRequest, ApiTokenView, ApplyRequest, ApplyView, BatchRequest,
    BatchView, BindingView, CanIView, ClusterView, CordonRequest, DrainRequest, EndpointView,
    ErrorBody, ExplainView, InputView, JoinTokenRequest, JoinTokenView, LabelsRequest, LoadReport,
    MoveRequest, MoveStepRequest, MovedStepView, NewJoinTokenView, NodeView, Page, PlatformView,
    PolicyView, PoolView, PreviewView, RecoveryView, RoleView, RollbackRequest, ScaleRequest,
    ServicePreviewView, ServiceView, StepView, StepsActionRequest, StepsActionView, TargetGroup,
    TemplateView, TopologyView, UncordonRequest, ValidationView, WhoAmIView,
};
use sluice_common::cluster::ClusterSpec;
use sluice_common::platform::spec::PlatformSpec;
use sluice_common::pool::{PolicySpec, PoolSpec};
use sluice_common::template::Template;
use sluice_common::topology::TopologySpec;
use sluice_common::validation::ValidationSpec;
use sluice_common::websocket::{CallerMessage, ServerMessage};

use super::object;

/// Returns every schema by its name.
pub(super) fn all() -> Map<String, Value> {
    let mut answers = DerivedSchemas::new(SchemaSettings::for_serialize);
    answers.add::<Page<StepView>>();
    answers.add::<Page<NodeView>>();
    answers.add::<Page<PoolView>>();
    answers.add::<Page<PolicyView>>();
    answers.add::<Page<ValidationView>>();
    answers.add::<Page<PlatformView>>();
    answers.add::<Page<TemplateView>>();
    answers.add::<Page<ServiceView>>();
    answers.add::<ServicePreviewView>();
    answers.add::<Page<EndpointView>>();
    answers.add::<TargetGroup>();
    answers.add::<Page<LogEntry>>();
    answers.add::<Page<ApiTokenView>>();
    answers.add::<ApiTokenCreated>();
    answers.add::<Page<RoleView>>();
    answers.add::<Page<BindingView>>();
    answers.add::<WhoAmIView>();
    answers.add::<CanIView>();
    answers.add::<Page<JoinTokenView>>();
    answers.add::<NewJoinTokenView>();
    answers.add::<BatchView>();
    answers.add::<MovedStepView>();
    answers.add::<StepsActionView>();
    answers.add::<InputView>();
    answers.add::<PreviewView>();
    answers.add::<ApplyView>();
    answers.add::<ClusterView>();
    answers.add::<TopologyView>();
    answers.add::<RecoveryView>();
    answers.add::<ExplainView>();
    answers.add::<ErrorBody>();
    answers.add::<ServerMessage>();
    let mut requests = DerivedSchemas::new(SchemaSettings::for_deserialize);
    requests.add::<BatchRequest>();
    requests.add::<ApiTokenRequest>();
    requests.add::<CallerMessage>();
    requests.add::<CordonRequest>();
    requests.add::<UncordonRequest>();
    requests.add::<DrainRequest>();
    requests.add::<MoveRequest>();
    requests.add::<MoveStepRequest>();
    requests.add::<StepsActionRequest>();
    requests.add::<RenewalRequest>();
    requests.add::<ScaleRequest>();
    requests.add::<LoadReport>();
    requests.add::<RollbackRequest>();
    requests.add::<LabelsRequest>();
    requests.add::<JoinTokenRequest>();
    requests.add::<ApplyRequest>();
    requests.add::<PoolSpec>();
    requests.add::<ClusterSpec>();
    requests.add::<TopologySpec>();
    requests.add::<PolicySpec>();
    requests.add::<ValidationSpec>();
    requests.add::<PlatformSpec>();
    requests.add::<Template>();
    let mut all = answers.taken();
    // Only events have it, and their times are written as text.
    all["Time"] = json!({ "type": "string", "format": "date-time" });
    // A record has every field that a request may leave out.
    rename(&mut all, "PolicyRequest", "PolicyTerms");
    all.extend(requests.taken());
    all.values_mut().for_each(tidy);
    // The one required field of a step. It has a default because its absence has an error message of its own.
    let request = &mut all["StepRequest"];
    request["required"] = json!(["command"]);
    request["properties"]["command"]["minItems"] = json!(1);
    split(&mut all, "Event", "type");
    split(&mut all, "PutDocument", "kind");
    split(&mut all, "DeleteDocument", "kind");
    name_platforms(&mut all);
    forbid_others(&mut all, "PutDocument");
    join_alternatives(&mut all, "Terms");
    name_alternatives(&mut all, "GpuFault");
    name_alternatives(&mut all, "Member");
    all
}

struct DerivedSchemas(schemars::SchemaGenerator);

impl DerivedSchemas {
    fn new(contract: fn(SchemaSettings) -> SchemaSettings) -> Self {
        let mut settings = contract(SchemaSettings::draft2020_12());
        settings.definitions_path = "/components/schemas".into();
        Self(settings.into_generator())
    }

    fn add<T: JsonSchema>(&mut self) {
        // Only the definitions that it adds are needed.
        let _reference = self.0.subschema_for::<T>();
    }

    fn taken(mut self) -> Map<String, Value> {
        self.0.take_definitions(true)
    }
}

/// Reshapes a schema and everything below it.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(tidy),
        Value::Object(map) => {
            for (key, value) in &mut *map {
                match value {
                    // The keys below are field names, such as `default`, not schema keywords.
                    Value::Object(fields) if key == "properties" => {
                        fields.values_mut().for_each(tidy)
                    }
                    value => tidy(value),
                }
            }
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = in_json_s_words(text);
            }
            // The default of an answer is what an older coordinator left out; callers do not need it.
            map.remove("default");
            list_words(map);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Converts a doc comment for readers of JSON: joins lines, and turns links into names.
fn in_json_s_words(comment: &str) -> String {
    let paragraphs = comment.split("\n\n").map(|text| text.replace('\n', " "));
    let text = paragraphs.collect::<Vec<_>>().join("\n\n");
    text.replace("[`", "`")
        .replace("`]", "`")
        .replace("`None`", "`null`")
}

/// Makes one `enum` of single-word alternatives, and describes each in its description.
fn list_words(map: &mut Map<String, Value>) {
    let Some(Value::Array(alternatives)) = map.get("oneOf") else {
        return;
    };
    let word = |one: &Value| Some((one.get("const")?.as_str()?.to_owned(), meaning(one)));
    let Some(words) = alternatives.iter().map(word).collect::<Option<Vec<_>>>() else {
        return;
    };
    let mut text = map["description"].as_str().unwrap_or_default().to_owned();
    text.push('\n');
    for (word, meaning) in &words {
        text.push_str(&format!("\n- `{word}`: {meaning}"));
    }
    let words: Vec<String> = words.into_iter().map(|(word, _)| word).collect();
    map.remove("oneOf");
    map.insert("type".to_owned(), json!("string"));
    map.insert("enum".to_owned(), json!(words));
    map.insert("description".to_owned(), json!(text));
}

fn meaning(schema: &Value) -> String {
    let text = schema.get("description").and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Gives each kind of `whole`, distinguished by the property `tag`, a schema of its own.
fn split(all: &mut Map<String, Value>, whole: &str, tag: &str) {
    let union = all[whole].take();
    let kinds = union["oneOf"].as_array().into_iter().flatten();
    let named = |kind: &Value| {
        let word = kind["properties"][tag]["const"].as_str();
        let word = word.expect("each kind has its word").to_owned();
        (
            format!("{whole}{}", camel(&word)),
            word,
            with_common(&union, kind),
        )
    };
    let kinds: Vec<(String, String, Value)> = kinds.map(named).collect();
    let reference = |name: &String| format!("#/components/schemas/{name}");
    let mapping: Map<String, Value> = kinds
        .iter()
        .map(|(name, word, _)| (word.clone(), json!(reference(name))))
        .collect();
    let one_of: Vec<Value> = mapping.values().map(|to| json!({ "$ref": to })).collect();
    all[whole] = json!({
        "description": union["description"],
        "oneOf": one_of,
        "discriminator": { "propertyName": tag, "mapping": mapping },
    });
    all.extend(kinds.into_iter().map(|(name, _, schema)| (name, schema)));
}

/// Names the schema of each alternative of `whole` that is an object with one property, and of that property: client
/// generators need names.
fn name_alternatives(all: &mut Map<String, Value>, whole: &str) {
    let mut union = all[whole].take();
    let alternatives = union["oneOf"].as_array_mut().into_iter().flatten();
    for alternative in alternatives {
        let properties = alternative.get_mut("properties");
        let properties = properties.and_then(Value::as_object_mut);
        let Some((word, body)) = properties.and_then(|all| all.iter_mut().next()) else {
            continue;
        };
        let name = format!("{whole}{}", camel(word));
        let body_name = format!("{name}Body");
        let reference = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        let body = std::mem::replace(body, reference(&body_name));
        all.insert(body_name, body);
        let schema = std::mem::replace(alternative, reference(&name));
        all.insert(name, schema);
    }
    all[whole] = union;
}

/// Renames a schema everywhere.
fn rename(all: &mut Map<String, Value>, from: &str, to: &str) {
    let named = |name: &str| format!("\"#/components/schemas/{name}\"");
    let text = Value::Object(std::mem::take(all)).to_string();
    let text = text.replace(&named(from), &named(to));
    *all = object(&text);
    if let Some(schema) = all.remove(from) {
        all.insert(to.to_owned(), schema);
    }
}

/// Names the schema of the platforms in a pool.
fn name_platforms(all: &mut Map<String, Value>) {
    const NAME: &str = "NamedPlatform";
    for (whole, field) in [
        ("Pool", "declared_platforms"),
        ("PoolRequest", "platforms"),
        ("PutDocumentPool", "platforms"),
    ] {
        let items = &mut all[whole]["properties"][field]["items"];
        let reference = json!({ "$ref": format!("#/components/schemas/{NAME}") });
        let mut item = std::mem::replace(items, reference);
        item["description"] = json!("A platform in the list of its pool.");
        if let Some(fields) = item["properties"].as_object_mut() {
            fields.remove("version");
        }
        all.insert(NAME.to_owned(), item);
    }
    forbid_others(all, NAME);
}

/// Adds `additionalProperties: false` to every schema whose name begins with `whole`, because the parser rejects
/// unknown fields.
fn forbid_others(all: &mut Map<String, Value>, whole: &str) {
    let its = all.iter_mut().filter(|(name, _)| name.starts_with(whole));
    for (_, schema) in its.filter(|(_, schema)| schema["properties"].is_object()) {
        schema["additionalProperties"] = json!(false);
    }
}

/// Makes one object of alternatives without a distinguishing property.
fn join_alternatives(all: &mut Map<String, Value>, whole: &str) {
    let union = all[whole].take();
    let mut fields = Map::new();
    for alternative in union["anyOf"].as_array().into_iter().flatten() {
        let name = alternative["$ref"].as_str();
        let name = name.and_then(|reference| reference.rsplit('/').next());
        let schema = name.map_or(alternative, |name| &all[name]);
        fields.extend(
            schema["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), schema.clone())),
        );
    }
    all[whole] = json!({
        "description": union["description"],
        "type": "object",
        "properties": fields,
    });
}

/// Converts `step_queued` to `StepQueued`.
fn camel(word: &str) -> String {
    let parts = word.split('_').map(|part| {
        let (first, rest) = part.split_at(1);
        first.to_uppercase() + rest
    });
    parts.collect()
}

/// Adds the common properties of all kinds to the schema of a kind.
fn with_common(union: &Value, kind: &Value) -> Value {
    let mut schema = kind.clone();
    for place in ["properties", "required"] {
        schema[place] = joined(&union[place], &kind[place]);
    }
    schema
}

fn joined(first: &Value, second: &Value) -> Value {
    match (first, second) {
        (Value::Object(a), Value::Object(b)) => a.clone().into_iter().chain(b.clone()).collect(),
        (Value::Array(a), Value::Array(b)) => a.iter().chain(b).cloned().collect(),
        _ => second.clone(),
    }
}

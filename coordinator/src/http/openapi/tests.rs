//! Compares the document with the router and with the lists of codes, in both directions.

use std::collections::{BTreeMap, BTreeSet};

use sluice_common::reason::ReasonCode;
use sluice_common::state::StepState;

use super::super::verbs::{NODES, STEPS};
use super::*;
use crate::fixture::{Harness, answer};

/// Returns the routes from the router's source.
fn routes() -> BTreeSet<String> {
    let source = include_str!("../../http.rs");
    let routes = source.split(".route(").skip(1);
    let routes = routes.map(|rest| rest.trim_start().strip_prefix('"').unwrap());
    let routes: BTreeSet<String> = routes
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect();
    assert!(
        routes.len() > 10,
        "the search for routes is broken: {routes:?}"
    );
    routes
}

/// Returns the route of a path, without a verb after its last parameter.
fn route_of(path: &str) -> String {
    match path.rsplit_once("}:") {
        Some((before, _)) => format!("{before}}}"),
        None => path.to_owned(),
    }
}

fn methods(item: &Value) -> BTreeSet<String> {
    let keys = item.as_object().unwrap().keys();
    let methods = keys.filter(|key| *key != "parameters");
    methods.map(|key| key.to_uppercase()).collect()
}

/// Fills in every parameter of a path.
fn filled(path: &str) -> String {
    let mut parts = path.split(['{', '}']);
    let first = parts.next().unwrap().to_owned();
    let rest: Vec<&str> = parts.collect();
    rest.chunks(2)
        .fold(first, |text, pair| text + "x" + pair[1])
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let described: BTreeSet<String> = paths().keys().map(|path| route_of(path)).collect();
    assert_eq!(described, routes());
}

#[test]
fn every_verb_is_described_and_nothing_else() {
    let paths = paths();
    for (thing, known) in [("/v1/steps/{step}:", STEPS), ("/v1/nodes/{node}:", NODES)] {
        let described = paths.keys().filter_map(|path| path.strip_prefix(thing));
        let known: BTreeSet<&str> = known.verbs.iter().map(|(verb, _)| *verb).collect();
        assert_eq!(described.collect::<BTreeSet<_>>(), known);
    }
}

#[test]
fn every_path_takes_the_methods_that_are_described() {
    let harness = Harness::start();
    for (path, item) in &paths() {
        let refused = harness.call("OPTIONS", &filled(path), &[]);
        assert_eq!(refused.status(), 405, "{path}");
        let allow = refused.headers()["allow"].to_str().unwrap();
        let taken = allow.split(',').map(str::trim).map(str::to_owned);
        let taken: BTreeSet<String> = taken.filter(|method| method != "HEAD").collect();
        assert_eq!(taken, methods(item), "{path}");
    }
}

/// Returns the query parameters of the calls of each route.
fn described_parameters() -> BTreeMap<String, BTreeSet<String>> {
    let document = document();
    let mut described: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let known = described.entry(route_of(path)).or_default();
        for parameter in item["get"]["parameters"].as_array().into_iter().flatten() {
            let parameter = match parameter["$ref"].as_str() {
                Some(to) => document.pointer(&to[1..]).unwrap(),
                None => parameter,
            };
            if parameter["in"] == "query" {
                known.insert(parameter["name"].as_str().unwrap().to_owned());
            }
        }
    }
    described
}

#[test]
fn every_call_takes_the_parameters_that_are_described() {
    let harness = Harness::start();
    let paths = paths();
    for (route, described) in described_parameters() {
        if !paths
            .get(&route)
            .is_some_and(|item| item["get"].is_object())
        {
            assert!(described.is_empty(), "{route}");
            continue;
        }
        let (_, answer) = harness.get(&format!("{}?qqqqqqqqq=1", filled(&route)));
        let error = &answer["error"];
        // The message lists the known parameters between backticks.
        let words = match error["code"] == "unknown_parameter" {
            true => error["message"].as_str().unwrap(),
            false => "",
        };
        let known = words.split('`').skip(3).step_by(2);
        let known: BTreeSet<String> = known.map(str::to_owned).collect();
        assert_eq!(known, described, "{route}: {words}");
    }
}

fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(all) => all.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_error_is_referred_to() {
    let document = document();
    let mut found = BTreeSet::new();
    references(&document["paths"], &mut found);
    // Wrong methods and unknown paths belong to no described call.
    let errors = document["components"]["responses"].as_object().unwrap();
    for name in errors.keys().filter(|name| **name != self::name(405)) {
        let wanted = format!("#/components/responses/{name}");
        assert!(found.contains(wanted.as_str()), "no call answers {name}");
    }
    references(&document["components"], &mut found);
    for to in found {
        assert!(document.pointer(&to[1..]).is_some(), "{to}");
    }
}

#[test]
fn closed_lists_are_enums_with_every_word() {
    let schemas = schemas::all();
    let words = |name: &str| -> Vec<&str> {
        let words = schemas[name]["enum"].as_array().unwrap();
        words.iter().map(|word| word.as_str().unwrap()).collect()
    };
    let codes: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(words("ErrorCode"), codes);
    let codes: Vec<_> = ReasonCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(words("ReasonCode"), codes);
    assert_eq!(words("StepState"), StepState::ALL.map(StepState::as_str));
    let about = schemas["ReasonCode"]["description"].as_str().unwrap();
    let code = ReasonCode::HostLost;
    let line = format!("- `{code}`: {}", code.meaning());
    assert!(about.lines().any(|found| found == line), "{about}");
}

#[test]
fn each_kind_of_event_is_told_by_its_type() {
    let schemas = schemas::all();
    let event = &schemas["Event"];
    let mapping = event["discriminator"]["mapping"].as_object().unwrap();
    assert_eq!(mapping.len(), event["oneOf"].as_array().unwrap().len());
    assert_eq!(
        mapping["step_queued"],
        "#/components/schemas/EventStepQueued"
    );
    let queued = &schemas["EventStepQueued"];
    assert_eq!(queued["properties"]["type"]["const"], "step_queued");
    assert_eq!(
        queued["required"],
        json!(["seq", "at", "type", "step", "spec"])
    );
}

#[test]
fn it_is_served_as_json_and_is_this_document() {
    let harness = Harness::start();
    let response = harness.call("GET", "/openapi.json", &[]);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(answer(response), (200, document()));
}

//! Every way in which rules of pools, templates, validations, platforms and the cluster reject a step or a document, by
//! its code, its numbers and its message: `tests/rejections/steps.json` has steps that are stored as rejected,
//! `calls.json` calls that are refused. All run against one cluster, `cluster.yaml`. `rules` and the tests of the API
//! cover what depends on the caller.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_common::reason::ReasonCode;
use sluice_tests::{Dev, DevOptions};

/// Padding that takes the template below to the limit of a process, together with [`LARGE_BYTES`].
const PADDING_BYTES: usize = 30_000;
const LARGE_BYTES: usize = 1_030_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rejections")
}

fn cases(file: &str) -> Vec<Value> {
    serde_json::from_slice(&fs::read(root().join(file)).unwrap()).unwrap()
}

fn dev() -> (tempfile::TempDir, Dev) {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(root().join("cluster.yaml")).unwrap();
    let file = folder.path().join("cluster.yaml");
    fs::write(&file, text.replace("PADDING", &"x".repeat(PADDING_BYTES))).unwrap();
    let files = vec![file];
    let dev = Dev::with(DevOptions {
        files,
        ..DevOptions::default()
    });
    (folder, dev)
}

/// Submits a step of the subject `s`, unless the case names another.
fn submit(dev: &Dev, fields: &Value) -> Value {
    let mut step = json!({ "command": ["true"], "subject": "s", "labels": { "team": "t" } });
    let fields = fields.as_object().unwrap().clone();
    step.as_object_mut().unwrap().extend(fields);
    let (status, step) = dev.call("POST", "/v1/steps", Some(&step.to_string()));
    assert_eq!(
        (status, &step["state"]),
        (201, &json!("rejected")),
        "{step}"
    );
    step["reason"].clone()
}

#[test]
fn steps_that_rules_turn_down_are_told_the_code_the_numbers_and_the_way_out() {
    let (_folder, dev) = dev();
    let mut seen = BTreeSet::new();
    for case in cases("steps.json") {
        let reason = submit(&dev, &case["step"]);
        for field in ["code", "message", "detail"] {
            assert_eq!(reason[field], case[field], "{}: {field}", case["step"]);
        }
        seen.insert(reason["code"].as_str().unwrap().to_owned());
    }
    let large = json!({ "pool": "padded", "env": { "OWN": "y".repeat(LARGE_BYTES) } });
    let reason = submit(&dev, &large);
    assert_eq!(
        (&reason["code"], &reason["message"]),
        (
            &json!("merge_too_large"),
            &json!(
                "pool `padded`: with what templates add, its command and environment take 1060010 bytes, and the maximum is \
                 1048576"
            )
        )
    );
    seen.insert("merge_too_large".to_owned());
    let all = [
        ReasonCode::UnknownPool,
        ReasonCode::NoPolicy,
        ReasonCode::ExceedsLimit,
        ReasonCode::ExceedsPoolCapacity,
        ReasonCode::ExceedsReserved,
        ReasonCode::ExceedsEntitlement,
        ReasonCode::UnknownResource,
        ReasonCode::NoHostFits,
        ReasonCode::ExceedsMaximum,
        ReasonCode::OnPreemptNotAllowed,
        ReasonCode::CpuModeNotAllowed,
        ReasonCode::PoolWithoutHosts,
        ReasonCode::PrivilegedNotAllowed,
        ReasonCode::HostNetworkNotAllowed,
        ReasonCode::MountNotAllowed,
        ReasonCode::ImageNotAllowed,
        ReasonCode::MergeTooLarge,
        ReasonCode::ValidationFailed,
    ];
    let all: BTreeSet<String> = all.map(|code| code.as_str().to_owned()).into();
    assert_eq!(seen, all, "a case for each code, and no other");
}

#[test]
fn calls_that_cannot_be_meant_are_refused_with_field_and_way_out() {
    let (_folder, dev) = dev();
    for case in cases("calls.json") {
        let call = case["call"].as_str().unwrap();
        let (method, path) = call.split_once(' ').unwrap();
        let body = case.get("body").map(Value::to_string);
        let (status, answer) = dev.call(method, path, body.as_deref());
        let error = &answer["error"];
        assert_eq!(
            (&json!(status), &error["code"], &error["message"]),
            (&case["status"], &case["code"], &case["message"]),
            "{call} {body:?}"
        );
    }
}

//! Calls on many steps reach only those that the caller may see and change.

use super::*;

#[test]
fn a_call_on_many_steps_passes_over_those_of_others() {
    let guarded = SecuredHarness::with_steps();
    let ours = guarded.token("ours", "submitter", &["train"], &["ours"]);
    let views = guarded.token("views", "viewer", &[], &[]);
    let everything = r#"{"all":true}"#;
    let refused = guarded.call(&views, "POST", "/v1/steps:cancel", everything);
    assert_eq!((refused.0, code(&refused)), (403, "forbidden"));
    // What is hidden cannot be found by its id or its name.
    let named = r#"{"filter":{"name":"theirs-*"}}"#;
    let (_, answer) = guarded.call(&ours, "POST", "/v1/steps:cancel", named);
    assert_eq!(answer["matched"], 0, "{answer}");
    for (call, body) in [("cancel?dry_run=true", everything), ("cancel", everything)] {
        let (status, answer) = guarded.call(&ours, "POST", &format!("/v1/steps:{call}"), body);
        assert_eq!((status, &answer["matched"]), (200, &json!(1)), "{answer}");
        assert_eq!(answer["steps"][0]["id"], "ours-train", "{answer}");
    }
    let (_, left) = guarded.get(OWN, "/v1/steps?state=queued");
    let left: Vec<&str> = left["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["id"].as_str().unwrap())
        .collect();
    assert_eq!(left, ["theirs-train", "ours-serve", "theirs-serve"]);
    let (_, events) = guarded.get(OWN, "/v1/events?limit=1000");
    let noted = events["items"].as_array().unwrap().iter();
    let noted = noted.map(|event| &event["entry"]);
    let noted = noted.filter(|entry| entry["who"] == "token/ours" && entry["verb"] == "cancel");
    let names: Vec<&Value> = noted.map(|entry| &entry["name"]).collect();
    assert_eq!(names, [&json!("name=theirs-*"), &Value::Null], "{events}");
}

//! Moves of steps need rights on the step and in the new pool, and are refused as a submit there would be rejected.

use super::*;

#[test]
fn a_step_moves_only_for_whoever_may_change_it_and_submit_it_there() {
    let guarded = SecuredHarness::with_steps();
    let here = guarded.token("here", "submitter", &["train"], &["ours"]);
    let both = guarded.token("both", "submitter", &["train", "serve"], &["ours"]);
    let views = guarded.token("views", "viewer", &[], &[]);
    let other = guarded.token("other", "submitter", &["train", "serve"], &["theirs"]);
    let to = |token: &str, step: &str, pool: &str| {
        let body = json!({ "pool": pool }).to_string();
        guarded.call(token, "POST", &format!("/v1/steps/{step}:move"), &body)
    };
    for (token, why) in [
        (&here, "may not `create` `steps` in pool `serve`"),
        (&views, "may not `move` `steps`"),
        (&other, "may not `move` `steps`"),
    ] {
        let answer = to(token, "ours-train", "serve");
        assert_eq!(code(&answer), "forbidden");
        let message = answer.1["error"]["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
    }
    // The refusal is the same, whether there is such a pool or step.
    assert_eq!(to(&here, "ours-train", "nowhere").0, 403);
    let (hidden, missing) = (
        to(&here, "theirs-train", "train"),
        to(&here, "nothing", "train"),
    );
    let text = |answer: &Answer| answer.1["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        text(&hidden).replace("theirs-train", "X"),
        text(&missing).replace("nothing", "X")
    );
    let (status, moved) = to(&both, "ours-train", "serve");
    assert_eq!((status, &moved["moved"]), (200, &json!(true)), "{moved}");
    let step = &moved["step"];
    assert_eq!(
        (&step["pool"], &step["moved_to"]),
        (&json!("serve"), &json!("serve"))
    );
    assert_eq!(step["requested_pool"], "train");
    assert_eq!(to(&both, "ours-train", "serve").1["moved"], false);
    // It is in the other pool for access too.
    assert_eq!(guarded.get(&here, "/v1/steps/ours-train").0, 403);
    assert_eq!(code(&to(OWN, "ours-train", "nowhere")), "unknown_pool");
    assert_eq!(code(&to(OWN, "nothing", "serve")), "unknown_step");
    let answer = guarded.call(OWN, "POST", "/v1/steps/ours-train:move", r#"{"to":"x"}"#);
    assert_eq!(code(&answer), "unknown_field");
    let answer = guarded.call(OWN, "POST", "/v1/steps/ours-train:cancel?dry_run=true", "");
    assert_eq!(code(&answer), "invalid_parameter");
}

#[test]
fn a_move_that_the_pool_rejects_has_the_code_and_the_numbers_of_a_submit() {
    let guarded = SecuredHarness::with_steps();
    guarded.done(
        "PUT",
        "/v1/pools/serve/policies/ours",
        &json!({ "limit": { "gpu": 1 } }),
    );
    let body = json!({ "id": "two", "subject": "ours", "pool": "train", "command": ["true"], "resources": { "gpu_count": 2 } });
    guarded.done("POST", "/v1/steps", &body);
    let to = |more: &str| {
        let path = format!("/v1/steps/two:move{more}");
        guarded.call(OWN, "POST", &path, r#"{"pool":"serve"}"#)
    };
    let answer = to("");
    assert_eq!((answer.0, code(&answer)), (409, "move_rejected"));
    let detail = &answer.1["error"]["detail"];
    assert_eq!(
        (&detail["reason"], &detail["limit"]),
        (&json!("exceeds_limit"), &json!(1)),
        "{detail}"
    );
    let (status, preview) = to("?dry_run=true");
    assert_eq!(
        (status, &preview["outcome"]),
        (200, &json!("refused")),
        "{preview}"
    );
    assert_eq!(guarded.get(OWN, "/v1/steps/two").1["pool"], "train");
    guarded.done(
        "PUT",
        "/v1/pools/serve/policies/ours",
        &json!({ "limit": { "gpu": 2 } }),
    );
    let (_, preview) = to("?dry_run=true");
    assert_eq!(preview["outcome"], "waits", "{preview}");
    assert_eq!(preview["step"]["pool"], "serve", "{preview}");
    assert_eq!(guarded.get(OWN, "/v1/steps/two").1["moved_to"], Value::Null);
}

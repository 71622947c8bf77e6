//! Maintenance of a pool rejects submits of users, but not of those who could end it.

use serde_json::{Value, json};

use super::{SecuredHarness, code};

const WORDS: &str = "racks until noon";

/// Puts the pool `train` in maintenance; returns a user's token and one of an admin of that pool.
fn closed() -> (SecuredHarness, String, String) {
    let guarded = SecuredHarness::with_steps();
    let pool = guarded.done("PUT", "/v1/pools/train", &json!({ "maintenance": WORDS }));
    assert_eq!(
        (&pool["status"], &pool["maintenance"]),
        (&json!("maintenance"), &json!(WORDS))
    );
    let user = guarded.token("user", "submitter", &[], &["ours"]);
    let admin = guarded.token("lead", "pool-train-admin", &[], &[]);
    (guarded, user, admin)
}

fn body(id: &str, pool: Option<&str>) -> String {
    let mut body = json!({ "id": id, "subject": "ours", "command": ["true"] });
    if let Some(pool) = pool {
        body["pool"] = json!(pool);
    }
    body.to_string()
}

#[test]
fn users_are_refused_with_the_admin_s_words() {
    let (guarded, user, _) = closed();
    let refused = guarded.call(&user, "POST", "/v1/steps", &body("a", Some("train")));
    assert_eq!(refused.0, 409, "{refused:?}");
    let error = &refused.1["error"];
    assert_eq!(
        (&error["code"], &error["detail"]["pool"], &error["message"]),
        (
            &json!("pool_in_maintenance"),
            &json!("train"),
            &json!(
                "pool `train` is in maintenance and takes no new steps: racks until noon; try again when that is \
                 over, or leave out `pool`, so that it may run in another"
            )
        )
    );
    assert_eq!(guarded.get(super::OWN, "/v1/steps/a").0, 404);
    let batch = json!({ "steps": [{ "subject": "ours", "pool": "train", "command": ["true"] }] });
    let (status, batch) = guarded.call(&user, "POST", "/v1/steps:batch", &batch.to_string());
    assert_eq!(status, 200);
    assert_eq!(batch["results"][0]["error"]["code"], "pool_in_maintenance");
    // A step that names no pool goes to another one.
    let (status, step) = guarded.call(&user, "POST", "/v1/steps", &body("b", None));
    assert_eq!((status, &step["pool"]), (201, &json!("serve")), "{step}");
    let seen = guarded.done("PUT", "/v1/pools/serve", &json!({ "maintenance": "too" }));
    assert_eq!(seen["status"], "maintenance");
    let refused = guarded.call(&user, "POST", "/v1/steps", &body("c", None));
    assert_eq!(code(&refused), "pool_in_maintenance", "{refused:?}");
    let (status, answer) = guarded.call(&user, "POST", "/v1/steps?dry_run=true", &body("d", None));
    assert_eq!(
        (status, &answer["outcome"], &answer["step"]),
        (200, &json!("refused"), &json!(null)),
        "{answer}"
    );
}

#[test]
fn whoever_could_end_it_submits_as_if_there_were_none() {
    let (guarded, _, admin) = closed();
    let (status, step) = guarded.call(&admin, "POST", "/v1/steps", &body("a", Some("train")));
    assert_eq!((status, &step["pool"]), (201, &json!("train")), "{step}");
    let (_, answer) = guarded.call(
        &admin,
        "POST",
        "/v1/steps?dry_run=true",
        &body("b", Some("train")),
    );
    assert_ne!(answer["outcome"], "refused", "{answer}");
    let checks = answer["stages"][0]["checks"].as_array().unwrap();
    let about: Vec<&Value> = checks.iter().map(|it| &it["message"]).collect();
    let expected = json!("it takes new steps from its admins only: racks until noon");
    assert!(about.contains(&&expected), "{about:?}");
    // An admin of one pool has no rights in another.
    guarded.done("PUT", "/v1/pools/serve", &json!({ "maintenance": "too" }));
    let refused = guarded.call(&admin, "POST", "/v1/steps", &body("c", Some("serve")));
    assert_eq!(code(&refused), "forbidden");
    let own = guarded.call(super::OWN, "POST", "/v1/steps", &body("d", None));
    assert_eq!(own.0, 201, "{own:?}");
}

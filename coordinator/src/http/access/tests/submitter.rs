//! The submitter of a step is the authenticated user, never one that a caller names.

use super::*;

/// Creates a token by which `user` submits; returns its secret.
fn token_of(guarded: &SecuredHarness, name: &str, user: Option<&str>) -> String {
    let body = json!({ "name": name, "roles": ["submitter"], "subjects": ["ours"], "user": user });
    let made = guarded.done("POST", "/v1/api-tokens", &body);
    assert_eq!(made["token"]["user"], json!(user), "{made}");
    made["secret"].as_str().unwrap().to_owned()
}

fn step(id: &str) -> Value {
    json!({ "id": id, "subject": "ours", "pool": "train", "command": ["true"] })
}

fn submitted(guarded: &SecuredHarness, token: &str, body: &Value) -> Answer {
    guarded.call(token, "POST", "/v1/steps", &body.to_string())
}

#[test]
fn a_step_keeps_the_user_who_submitted_it_and_who_is_none_has_no_name() {
    let guarded = SecuredHarness::with_steps();
    let alice = token_of(&guarded, "laptop", Some("alice"));
    let program = token_of(&guarded, "alice", None);
    for (token, id, user) in [
        (alice.as_str(), "a", json!("alice")),
        (program.as_str(), "b", Value::Null),
        (OWN, "c", Value::Null),
    ] {
        let (status, made) = submitted(&guarded, token, &step(id));
        assert_eq!((status, &made["submitted_by"]), (201, &user), "{made}");
        let shown = guarded.get(OWN, &format!("/v1/steps/{id}")).1;
        assert_eq!(shown["submitted_by"], user, "{shown}");
    }
    assert_eq!(guarded.get(&alice, "/v1/whoami").1["user"], "alice");
    assert_eq!(guarded.get(OWN, "/v1/whoami").1["user"], Value::Null);
    let batch = json!({ "steps": [step("d"), step("e")] }).to_string();
    let results = guarded.call(&alice, "POST", "/v1/steps:batch", &batch).1;
    for result in results["results"].as_array().unwrap() {
        assert_eq!(result["submitted_by"], "alice", "{result}");
    }
    let dry = guarded.call(
        &alice,
        "POST",
        "/v1/steps?dry_run=true",
        &step("f").to_string(),
    );
    assert_eq!(dry.1["step"]["submitted_by"], "alice", "{}", dry.1);
}

#[test]
fn no_caller_says_by_whom_a_step_was_submitted() {
    let guarded = SecuredHarness::with_steps();
    let bob = token_of(&guarded, "bob", Some("bob"));
    for field in ["submitted_by", "submitter", "user"] {
        let mut body = step("a");
        body[field] = json!("alice");
        for token in [OWN, bob.as_str()] {
            let answer = submitted(&guarded, token, &body);
            assert_eq!(code(&answer), "unknown_field", "{field}: {}", answer.1);
        }
    }
    // An existing step keeps its submitter, and nobody else can submit it again.
    let alice = token_of(&guarded, "alice", Some("alice"));
    assert_eq!(submitted(&guarded, &alice, &step("a")).0, 201);
    assert_eq!(submitted(&guarded, &alice, &step("a")).0, 200);
    let answer = submitted(&guarded, &bob, &step("a"));
    let differs = &answer.1["error"]["detail"]["differs"];
    assert_eq!((answer.0, differs), (409, &json!("submitted_by")));
}

#[test]
fn nobody_makes_a_token_in_the_name_of_another_user() {
    let guarded = SecuredHarness::with_steps();
    let role = json!({ "put": [
        { "kind": "role", "name": "giver", "rules": [
            { "effect": "allow", "verbs": ["create"], "resources": ["api-tokens"] },
        ] },
        { "kind": "binding", "name": "leads", "roles": ["giver"], "members": [{ "token": "lead" }, { "token": "bob" }] },
    ]});
    guarded.done("POST", "/v1/apply", &role);
    let lead = token_of(&guarded, "lead", None);
    let bob = token_of(&guarded, "bob", Some("bob"));
    let make = |token: &str, name: &str, user: Value| {
        let body =
            json!({ "name": name, "roles": ["submitter"], "subjects": ["ours"], "user": user });
        guarded.call(token, "POST", "/v1/api-tokens", &body.to_string())
    };
    for token in [&lead, &bob] {
        let answer = make(token, "stolen", json!("alice"));
        assert_eq!((answer.0, code(&answer)), (403, "forbidden"));
        let message = answer.1["error"]["message"].as_str().unwrap();
        assert!(message.contains("user `alice`"), "{message}");
    }
    assert_eq!(
        make(&lead, "a", json!("lead")).0,
        403,
        "a token's name is no user"
    );
    assert_eq!(make(&lead, "b", Value::Null).0, 201);
    assert_eq!(make(&bob, "c", json!("bob")).0, 201, "his own");
    let long = "a".repeat(129);
    for wrong in [
        "",
        "../root",
        "a b",
        "a\0",
        "-r",
        "*",
        "$(id)",
        long.as_str(),
    ] {
        let answer = make(OWN, "d", json!(wrong));
        assert_eq!(
            (answer.0, code(&answer)),
            (400, "invalid_access"),
            "{wrong:?}"
        );
    }
}

#[test]
fn a_name_that_no_user_can_have_is_no_user_s_and_never_cut_to_one() {
    let named = |name: &str| {
        let found = TokenIdentity {
            name: name.to_owned(),
            claims: Default::default(),
            not_texts: Default::default(),
            expires_at: Time::from_unix_millis(0),
        };
        Identity::Claims(found).user().map(String::from)
    };
    for name in ["alice", "alice@example.org", "auth0|5f7c8ec7", "_a.b-c+d"] {
        assert_eq!(named(name).as_deref(), Some(name));
    }
    let (longest, long) = ("a".repeat(128), "a".repeat(300));
    assert_eq!(named(&longest), Some(longest));
    for name in [
        "",
        "/etc",
        "a/b",
        "root\0",
        "a\nb",
        "älice",
        " root",
        ".",
        "-x",
        long.as_str(),
    ] {
        assert_eq!(named(name), None, "{name:?}");
    }
}

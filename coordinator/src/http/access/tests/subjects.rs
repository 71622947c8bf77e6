//! Subjects of bindings that are filled in with names of the caller: claims of an issuer's token, and user names.

use super::*;
use crate::http::access::rights::CallerAccess;

/// A user of an issuer with these claims; a claim `odd` is no text.
fn claims(name: &str, claims: &[(&str, &[&str])]) -> Identity {
    let values = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    let claims = claims
        .iter()
        .map(|(name, all)| ((*name).to_owned(), values(all)));
    Identity::Claims(TokenIdentity {
        name: name.to_owned(),
        claims: claims.collect(),
        not_texts: ["odd".to_owned()].into(),
        expires_at: Time::from_unix_millis(u64::MAX),
    })
}

fn token_identity(name: &str, user: Option<&str>) -> Identity {
    Identity::Token {
        name: name.parse().unwrap(),
        digest: sluice_common::access::TokenDigest::hidden(),
        user: user.map(|user| user.parse().unwrap()),
        expires_at: None,
    }
}

fn bound(binding: Value) -> AccessSnapshot {
    let terms: BindingSpec = serde_json::from_value(binding).unwrap();
    let mut snapshot = AccessSnapshot::default();
    let written = Versioned { terms, version: 1 };
    let name = "b".parse().unwrap();
    snapshot.access.bindings.insert(name, written);
    snapshot
}

/// The subjects that a binding of the submitter's role gives to a caller; `None` if it gives no role.
fn subjects(who: &Identity, subjects: &[&str]) -> Option<Vec<String>> {
    let snapshot = bound(json!({
        "roles": ["submitter"], "subjects": subjects,
        "members": [{ "user": "*" }, { "token": "ci" }]
    }));
    let rights = CallerAccess::of(who, &snapshot).unwrap();
    let (grant, _) = rights.granted.first()?;
    Some(grant.subjects.iter().map(ToString::to_string).collect())
}

#[test]
fn claims_are_filled_in_and_what_is_no_name_gives_nothing() {
    let alice = claims(
        "alice",
        &[
            ("team", &["ml"]),
            ("groups", &["ml", "*", "web", "a b", ""]),
            ("star", &["*"]),
            ("pattern", &["prod-*"]),
            ("default", &["default"]),
            ("realm_access.roles", &["gpu"]),
            ("odd", &["7"]),
        ],
    );
    let all = |names: &[&str]| Some(names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    for (template, filled) in [
        ("{team}", all(&["ml"])),
        ("ml-{team}", all(&["ml-ml"])),
        ("{team}-*", all(&["ml-*"])),
        ("{groups}", all(&["ml", "web"])),
        ("{realm_access.roles}", all(&["gpu"])),
        ("{user}", all(&["alice"])),
        ("u-{user}", all(&["u-alice"])),
        ("{absent}", None),
        ("{star}", None),
        ("{pattern}", None),
        ("{default}", None),
        ("{odd}", None),
    ] {
        assert_eq!(subjects(&alice, &[template]), filled, "{template}");
    }
    assert_eq!(subjects(&alice, &["{absent}", "web"]), all(&["web"]));
    assert_eq!(subjects(&claims("a/b", &[]), &["{user}"]), None);
    assert_eq!(subjects(&claims("alice@lab", &[]), &["{user}"]), None);
}

#[test]
fn api_tokens_and_certificates_have_no_claims_and_a_token_is_not_its_user() {
    let token = token_identity("ci", Some("alice"));
    assert_eq!(subjects(&token, &["{team}"]), None);
    assert_eq!(
        subjects(&token, &["{user}"]),
        Some(vec!["alice".to_owned()])
    );
    assert_eq!(subjects(&token_identity("ci", None), &["{user}"]), None);
    let other = token_identity("laptop", Some("alice"));
    assert_eq!(
        subjects(&other, &["{user}"]),
        None,
        "`user: *` are no tokens"
    );
}

#[test]
fn a_rule_that_denies_is_filled_in_too() {
    let mut snapshot = bound(json!({
        "roles": ["submitter"], "members": [{ "user": "alice" }]
    }));
    let role =
        json!({ "rules": [{ "effect": "deny", "verbs": ["create"], "resources": ["steps"] }] });
    let terms = serde_json::from_value(role).unwrap();
    let written = Versioned { terms, version: 1 };
    snapshot
        .access
        .roles
        .insert("frozen".parse().unwrap(), written);
    let deny = json!({ "roles": ["frozen"], "subjects": ["{team}"], "members": [{ "user": "*" }] });
    let terms = serde_json::from_value(deny).unwrap();
    let written = Versioned { terms, version: 1 };
    snapshot
        .access
        .bindings
        .insert("frozen".parse().unwrap(), written);
    let alice = claims("alice", &[("team", &["ml"])]);
    let caller = Caller::new(alice, String::new(), &snapshot);
    let may = |subject| caller.may_step(Verb::Create, Resource::Steps, subject, None);
    assert!(may("web") && !may("ml"));
}

#[test]
fn whoever_may_submit_for_one_subject_is_told_which() {
    let one = |who: Identity, binding: Value| {
        let caller = Caller::new(who, String::new(), &bound(binding));
        caller.submits_for().map(|it| it.to_string())
    };
    let binding = |subjects: &[&str], roles: &[&str]| json!({ "roles": roles, "subjects": subjects, "members": [{ "user": "*" }] });
    let alice = || claims("alice", &[("team", &["ml", "web"])]);
    let own = |subjects: &[&str]| one(alice(), binding(subjects, &["submitter"]));
    assert_eq!(own(&["{user}"]).as_deref(), Some("alice"));
    assert_eq!(own(&["ml"]).as_deref(), Some("ml"));
    for several in [
        &["{team}"][..],
        &["{user}", "ml"],
        &["{user}-*"],
        &["*"],
        &[],
        &["{absent}"],
    ] {
        assert_eq!(own(several), None, "{several:?}");
    }
    assert_eq!(one(alice(), binding(&["{user}"], &["viewer"])), None);
}

/// Creates an API token without a role, for a user; returns its secret.
fn user_token(guarded: &SecuredHarness, name: &str, user: &str) -> String {
    let body = json!({ "name": name, "roles": ["nothing"], "user": user });
    let made = guarded.done("POST", "/v1/api-tokens", &body);
    made["secret"].as_str().unwrap().to_owned()
}

fn put(guarded: &SecuredHarness, documents: Value) {
    guarded.done("POST", "/v1/apply", &json!({ "put": documents }));
}

#[test]
fn each_user_of_one_binding_submits_for_a_subject_of_his_own_name() {
    let guarded = SecuredHarness::with_steps();
    put(
        &guarded,
        json!([
            { "kind": "role", "name": "nothing" },
            { "kind": "policy", "pool": "train", "subject": "*" },
            { "kind": "binding", "name": "own", "roles": ["pool-train-submitter"], "subjects": ["{user}"],
              "members": [{ "token": "a" }, { "token": "b" }, { "token": "c" }] },
        ]),
    );
    let (alice, bob) = (
        user_token(&guarded, "a", "alice"),
        user_token(&guarded, "b", "bob"),
    );
    let submit = |token: &str, id: &str, subject: &str, pool: &str| {
        let body = json!({ "id": id, "subject": subject, "pool": pool, "command": ["true"] });
        guarded.call(token, "POST", "/v1/steps", &body.to_string())
    };
    for (token, name) in [(&alice, "alice"), (&bob, "bob")] {
        let (status, made) = submit(token, name, name, "train");
        assert_eq!(
            (status, &made["subject"], &made["submitted_by"]),
            (201, &json!(name), &json!(name))
        );
        let who = guarded.get(token, "/v1/whoami").1;
        assert_eq!(who["grants"][1]["subjects"], json!([name]), "{who}");
        assert_eq!(who["submits_for"], name);
    }
    assert_eq!(submit(&alice, "x", "bob", "train").0, 403);
    assert_eq!(submit(&alice, "x", "alice", "serve").0, 403);
    assert_eq!(guarded.get(&alice, "/v1/steps/bob").0, 403);
    let can = guarded
        .get(
            &alice,
            "/v1/can-i?verb=create&resource=steps&pool=train&subject=alice",
        )
        .1;
    assert_eq!(can["allowed"], true);
    // A name that is no subject gives nothing, and the refusal says so.
    let carol = user_token(&guarded, "c", "carol@lab");
    let refused = submit(&carol, "x", "carol", "train");
    let message = refused.1["error"]["message"].as_str().unwrap();
    assert_eq!(refused.0, 403);
    assert!(
        message.contains("for the subject `{user}`, but `carol@lab` is not a valid subject"),
        "{message}"
    );
    let who = guarded.get(&carol, "/v1/whoami").1;
    assert_eq!(who["unfilled"][0]["subject"], "{user}", "{who}");
    // The right ends with the binding.
    guarded.done(
        "POST",
        "/v1/apply",
        &json!({ "delete": [{ "kind": "binding", "name": "own" }] }),
    );
    assert_eq!(submit(&alice, "y", "alice", "train").0, 403);
}

#[test]
fn a_binding_with_other_braces_is_refused_with_the_way_out() {
    let guarded = SecuredHarness::start();
    for (subject, hint) in [
        ("{team", "write `}` after the name"),
        ("{org}-{team}", "one name in braces"),
        ("{}", "{realm_access.roles}"),
        ("{user}*", "such as `{user}-*`"),
    ] {
        let body = json!({ "put": [{ "kind": "binding", "name": "b", "subjects": [subject] }] });
        let answer = guarded.call(OWN, "POST", "/v1/apply", &body.to_string());
        let message = answer.1["error"]["message"].as_str().unwrap();
        assert_eq!(answer.0, 400, "{message}");
        assert!(message.contains(hint), "{subject}: {message}");
    }
}

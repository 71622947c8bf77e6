//! The table against the described calls, and authorisation by real calls.

mod maintenance;
mod many_steps;
mod step_moves;
mod subjects;
mod submitter;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use coordinator_core::{AccessSnapshot, Versioned};
use serde_json::{Value, json};
use sluice_common::access::{BindingSpec, Resource, Verb};
use sluice_common::id::PoolName;
use sluice_common::time::Time;

use super::super::oidc::TokenIdentity;
use super::table::{CALLS, ScopeKind, find};
use super::{Caller, Identity};
use crate::fixture::{Answer, Harness, answer};
use crate::http::openapi::described;

const OWN: &str = "correct-horse-battery";

/// A coordinator that requires tokens.
struct SecuredHarness(Harness);

impl SecuredHarness {
    fn start() -> Self {
        Self(Harness::start_guarded("", OWN))
    }

    fn call(&self, token: &str, method: &str, path: &str, body: &str) -> Answer {
        let header = format!("Bearer {token}");
        let headers = [("authorization", header.as_str())];
        answer(self.0.call_with(method, path, &headers, body))
    }

    fn get(&self, token: &str, path: &str) -> Answer {
        self.call(token, "GET", path, "")
    }

    fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, body) = self.call(OWN, method, path, &body.to_string());
        assert!(status < 300, "{method} {path}: {body}");
        body
    }

    /// Creates a token with this role; returns its secret.
    fn token(&self, name: &str, role: &str, pools: &[&str], subjects: &[&str]) -> String {
        let body = json!({ "name": name, "roles": [role], "pools": pools, "subjects": subjects });
        let made = self.done("POST", "/v1/api-tokens", &body);
        made["secret"].as_str().unwrap().to_owned()
    }

    fn submit(&self, id: &str, subject: &str, pool: &str) {
        let body = json!({ "id": id, "subject": subject, "pool": pool, "command": ["true"], "env": { "KEY": "planted" } });
        self.done("POST", "/v1/steps", &body);
    }

    /// Starts with two pools, two subjects in each, and a step of each.
    fn with_steps() -> Self {
        let guarded = Self::start();
        for pool in ["train", "serve"] {
            guarded.done("PUT", &format!("/v1/pools/{pool}"), &json!({}));
            for subject in ["ours", "theirs"] {
                let path = format!("/v1/pools/{pool}/policies/{subject}");
                guarded.done("PUT", &path, &json!({}));
                guarded.submit(&format!("{subject}-{pool}"), subject, pool);
            }
        }
        guarded
    }
}

fn code(answer: &Answer) -> &str {
    answer.1["error"]["code"].as_str().unwrap_or("")
}

fn ids(answer: &Answer) -> Vec<&str> {
    let items = answer.1["items"].as_array().expect("a page");
    let id = |item: &'_ Value| item.get("id").or(item.get("name")).cloned();
    let mut ids: Vec<&str> = items
        .iter()
        .filter(|item| id(item).is_some())
        .map(|item| {
            item.get("id")
                .or(item.get("name"))
                .unwrap()
                .as_str()
                .unwrap()
        })
        .collect();
    ids.sort_unstable();
    ids
}

#[test]
fn every_call_has_a_line_and_every_line_is_a_call() {
    let lines: BTreeSet<(String, String)> = CALLS
        .iter()
        .map(|row| (row.method.to_owned(), row.path.to_owned()))
        .collect();
    assert_eq!(lines.len(), CALLS.len(), "a call has two lines");
    let calls: BTreeSet<_> = described()
        .into_iter()
        .filter(|(_, path)| path.starts_with("/v1/"))
        .collect();
    assert_eq!(lines, calls, "left: access/table.rs, right: the router");
}

#[test]
fn a_verb_behind_a_colon_is_found_however_it_is_written() {
    let row = find("POST", "/v1/steps/{step}", Some("a:cancel")).unwrap();
    assert_eq!(row.path, "/v1/steps/{step}:cancel");
    assert!(find("POST", "/v1/steps/{step}", Some("a")).is_none());
    assert!(find("POST", "/v1/steps/{step}", Some("a:b:cancel")).is_some());
    assert!(find("POST", "/v1/steps/{step}", Some("a:cancle")).is_none());
    let row = find("HEAD", "/v1/pools/{pool}", Some("a:b")).unwrap();
    assert_eq!((row.path, row.scope), ("/v1/pools/{pool}", ScopeKind::Pool));
}

#[test]
fn whoever_has_no_role_is_let_in_nowhere_but_to_ask_who_he_is() {
    let guarded = SecuredHarness::with_steps();
    guarded.done(
        "POST",
        "/v1/apply",
        &json!({ "put": [{ "kind": "role", "name": "nothing" }] }),
    );
    let token = guarded.token("bare", "nothing", &[], &[]);
    for row in CALLS {
        let path = row
            .path
            .replace("{step}", "ours-train")
            .replace("{pool}", "train");
        let path = path.replace("{subject}", "ours").replace("{node}", "x");
        let path = path.replace("{api_token}", "bare");
        let answer = guarded.call(&token, row.method, &path, "{}");
        let refused = code(&answer) == "forbidden";
        // A body is authorised by its content; an empty one changes nothing.
        let empty = row.scope == ScopeKind::Known;
        assert_eq!(refused, !empty, "{} {path}: {}", row.method, answer.1);
    }
}

#[test]
fn a_submitter_sees_and_steers_its_own_alone_and_cannot_tell_what_there_is() {
    let guarded = SecuredHarness::with_steps();
    let token = guarded.token("ci", "submitter", &["train"], &["ours"]);
    assert_eq!(ids(&guarded.get(&token, "/v1/steps")), ["ours-train"]);
    assert_eq!(ids(&guarded.get(&token, "/v1/pools")), ["train"]);
    let queue = guarded.get(&token, "/v1/pools/train/queue");
    assert_eq!(ids(&queue), ["ours-train"]);
    let policies = guarded.get(&token, "/v1/pools/train/policies");
    assert_eq!(
        policies.1["items"].as_array().unwrap().len(),
        1,
        "{}",
        policies.1
    );
    let own = guarded.get(&token, "/v1/steps/ours-train");
    assert_eq!(own.0, 200, "{}", own.1);
    assert_eq!(own.1["env"]["KEY"], "***");
    let all = guarded.get(OWN, "/v1/steps/ours-train");
    assert_eq!(all.1["env"]["KEY"], "planted");
    for (method, rest) in [
        ("GET", ""),
        ("GET", ":wait"),
        ("GET", "/explain"),
        ("GET", "/logs"),
        ("GET", "/exec"),
        ("POST", ":cancel"),
        ("POST", "%3Acancel"),
        ("POST", ":suspend"),
    ] {
        let answer_to = |step: &str| {
            let body = r#"{"command":["true"]}"#;
            let answer = guarded.call(&token, method, &format!("/v1/steps/{step}{rest}"), body);
            assert_eq!(code(&answer), "forbidden", "{step}{rest}: {}", answer.1);
            answer.1.to_string().replace(step, "STEP")
        };
        let foreign = answer_to("theirs-train");
        assert_eq!(foreign, answer_to("ours-serve"), "{rest}");
        assert_eq!(foreign, answer_to("nothing-here"), "{rest}");
    }
    let state = guarded.get(OWN, "/v1/steps/theirs-train").1;
    assert_eq!(state["state"], "queued", "nothing was cancelled");
    let (status, gone) = guarded.call(&token, "POST", "/v1/steps/ours-train:cancel", "");
    assert_eq!((status, &gone["state"]), (200, &json!("cancelled")));
}

#[test]
fn a_step_can_be_after_those_alone_that_its_submitter_may_list() {
    let guarded = SecuredHarness::with_steps();
    let token = guarded.token("ci", "submitter", &["train"], &["ours"]);
    let submit = |id: &str, after: &str, dry_run: &str| {
        let body = json!({ "id": id, "subject": "ours", "pool": "train", "command": ["true"], "after": [after] });
        let path = format!("/v1/steps{dry_run}");
        guarded.call(&token, "POST", &path, &body.to_string())
    };
    let own = submit("next", "ours-train", "");
    assert_eq!((own.0, &own.1["after"]), (201, &json!(["ours-train"])));
    assert_eq!(own.1["waits_for"], json!(["ours-train"]));
    let of_foreign = |name: &str, dry_run: &str| {
        let (status, answer) = submit("x", name, dry_run);
        (status, answer.to_string().replace(name, "STEP"))
    };
    let foreign = of_foreign("theirs-train", "");
    assert_eq!(foreign.0, 409, "{}", foreign.1);
    assert!(foreign.1.contains("unknown_dependency"), "{}", foreign.1);
    assert_eq!(foreign, of_foreign("nothing-here", ""));
    let (status, foreseen) = submit("x", "theirs-train", "?dry_run=true");
    assert_eq!(
        (status, code(&(status, foreseen))),
        (409, "unknown_dependency")
    );
    let batch = json!({ "steps": [
        { "id": "b1", "subject": "ours", "pool": "train", "command": ["true"], "after": ["theirs-train"] },
        { "id": "b2", "subject": "ours", "pool": "train", "command": ["true"], "after": ["b3"] },
        { "id": "b3", "subject": "ours", "pool": "train", "command": ["true"] },
    ]});
    let (_, results) = guarded.call(&token, "POST", "/v1/steps:batch", &batch.to_string());
    let results = &results["results"];
    assert_eq!(
        results[0]["error"]["code"], "unknown_dependency",
        "{results}"
    );
    assert_eq!(results[1]["waits_for"], json!(["b3"]), "{results}");
    assert_eq!(results[2]["id"], "b3", "{results}");
}

#[test]
fn a_submitter_submits_for_its_subjects_into_its_pools_alone() {
    let guarded = SecuredHarness::with_steps();
    let token = guarded.token("ci", "submitter", &["train"], &["ours"]);
    let submit = |subject: &str, pool: Value| {
        let body = json!({ "subject": subject, "pool": pool, "command": ["true"] });
        guarded
            .call(&token, "POST", "/v1/steps", &body.to_string())
            .0
    };
    assert_eq!(submit("ours", json!("train")), 201);
    assert_eq!(submit("theirs", json!("train")), 403);
    assert_eq!(submit("ours", json!("serve")), 403);
    assert_eq!(submit("ours", Value::Null), 201, "it goes to the only pool");
    let both = guarded.token("two", "submitter", &["train", "serve"], &["ours"]);
    let anywhere = json!({ "subject": "ours", "command": ["true"] }).to_string();
    let submit = |token: &str| guarded.call(token, "POST", "/v1/steps", &anywhere);
    assert_eq!(submit(&token).1["pool"], "train");
    assert_eq!(submit(&both).0, 403, "it could run anywhere");
    let pattern = guarded.token("three", "submitter", &["trai*"], &["ours"]);
    assert_eq!(submit(&pattern).0, 403, "a pattern is no pool");
    let own = guarded.token("four", "pool-train-submitter", &[], &["ours"]);
    assert_eq!(submit(&own).1["pool"], "train");
    let anywhere = guarded.token("five", "submitter", &[], &["ours"]);
    assert_eq!(submit(&anywhere).0, 201);
    let batch = json!({ "steps": [
        { "id": "b1", "subject": "ours", "pool": "train", "command": ["true"] },
        { "id": "b2", "subject": "theirs", "pool": "train", "command": ["true"] },
        { "id": "theirs-train", "subject": "ours", "pool": "train", "command": ["true"] },
    ]});
    let (_, results) = guarded.call(&token, "POST", "/v1/steps:batch", &batch.to_string());
    let results = &results["results"];
    assert_eq!(results[0]["id"], "b1", "{results}");
    assert_eq!(results[1]["error"]["code"], "forbidden", "{results}");
    // The id is taken, and the error does not reveal by whom.
    assert_eq!(
        results[2]["error"]["detail"]["differs"], "subject",
        "{results}"
    );
    let apply = json!({ "put": [{ "kind": "pool", "name": "train", "description": "mine" }] });
    let answer = guarded.call(&token, "POST", "/v1/apply", &apply.to_string());
    assert_eq!(code(&answer), "forbidden");
    let answer = guarded.call(&token, "PUT", "/v1/pools/train", "{}");
    let message = answer.1["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("token/ci may not `update` `pools`"),
        "{message}"
    );
    assert!(message.contains("`admin`, `pool-train-admin`"), "{message}");
}

#[test]
fn nobody_comes_upon_another_s_step_by_a_key() {
    let guarded = SecuredHarness::with_steps();
    let one = guarded.token("one", "submitter", &["train"], &["ours"]);
    let two = guarded.token("two", "submitter", &["train"], &["ours"]);
    let submit = |token: &str, key: &str| {
        let header = format!("Bearer {token}");
        let headers = [("authorization", header.as_str()), ("Idempotency-Key", key)];
        let body = r#"{"subject":"ours","pool":"train","command":["true"]}"#;
        let (status, step) = answer(guarded.0.call_with("POST", "/v1/steps", &headers, body));
        (status, step["id"].as_str().unwrap().to_owned())
    };
    let (created, own) = submit(&one, "k");
    assert_eq!((created, submit(&one, "k")), (201, (200, own)));
    // Also if one key spells what the other's was derived from.
    for (token, key) in [
        (two.as_str(), "k"),
        (OWN, "k"),
        (OWN, "token/one:k"),
        (OWN, "token/two:k"),
        (two.as_str(), "token/one:k"),
    ] {
        assert_eq!(submit(token, key).0, 201, "{key}");
    }
}

#[test]
fn events_are_those_of_what_one_may_see() {
    let guarded = SecuredHarness::with_steps();
    let token = guarded.token("ci", "submitter", &["train"], &["ours"]);
    let events = guarded.get(&token, "/v1/events?limit=1000").1;
    let text = events.to_string();
    assert!(text.contains("ours-train"), "{text}");
    for foreign in ["theirs", "\"serve\"", "audited", "api_token", "planted"] {
        assert!(!text.contains(foreign), "{foreign}: {text}");
    }
    let all = guarded.get(OWN, "/v1/events?limit=1000").1.to_string();
    assert!(
        all.contains("theirs-train") && all.contains("\"audited\""),
        "{all}"
    );
    assert!(!all.contains("planted"), "{all}");
}

#[test]
fn a_token_is_shown_once_kept_as_a_hash_and_worth_nothing_when_it_is_revoked() {
    let mut guarded = SecuredHarness::with_steps();
    let secret = guarded.token("ci", "viewer", &[], &[]);
    assert_eq!(guarded.get(&secret, "/v1/whoami").1["who"], "token/ci");
    let shown = guarded.get(OWN, "/v1/api-tokens/ci").1.to_string();
    let listed = guarded.get(OWN, "/v1/api-tokens").1.to_string();
    let answer_to = guarded.get(OWN, "/v1/events?limit=1000").1.to_string();
    for text in [&shown, &listed, &answer_to] {
        assert!(!text.contains(&secret), "{text}");
        assert!(
            !text.contains("digest\":\"") || text.contains("digest\":\"***"),
            "{text}"
        );
    }
    let twice = json!({ "name": "ci", "roles": ["viewer"] }).to_string();
    let answer = guarded.call(OWN, "POST", "/v1/api-tokens", &twice);
    assert_eq!(code(&answer), "api_token_exists");
    let answer = guarded.call(&secret, "POST", "/v1/api-tokens", &twice);
    assert_eq!(code(&answer), "forbidden");
    guarded.0.stop();
    let store = std::fs::read(guarded.0.data.join("store.redb"));
    let stored = store.unwrap_or_default();
    let found = stored
        .windows(secret.len())
        .any(|at| at == secret.as_bytes());
    assert!(!found, "the secret is in the store");
}

#[test]
fn a_revoked_token_opens_nothing() {
    let guarded = SecuredHarness::with_steps();
    let secret = guarded.token("ci", "viewer", &[], &[]);
    assert_eq!(guarded.get(&secret, "/v1/steps").0, 200);
    assert_eq!(guarded.call(OWN, "DELETE", "/v1/api-tokens/ci", "").0, 204);
    assert_eq!(code(&guarded.get(&secret, "/v1/steps")), "unauthorized");
    let answer = guarded.call(OWN, "DELETE", "/v1/api-tokens/ci", "");
    assert_eq!(code(&answer), "unknown_api_token");
    let other = guarded.token("ci", "viewer", &[], &[]);
    assert_eq!(code(&guarded.get(&secret, "/v1/steps")), "unauthorized");
    assert_eq!(guarded.get(&other, "/v1/steps").0, 200);
}

#[test]
fn nobody_gives_more_than_he_has() {
    let guarded = SecuredHarness::with_steps();
    let role = json!({ "put": [
        { "kind": "role", "name": "giver", "rules": [
            { "effect": "allow", "verbs": ["create"], "resources": ["api-tokens"] },
            { "effect": "allow", "verbs": ["update"], "resources": ["roles", "bindings"] },
        ] },
        { "kind": "binding", "name": "lead", "roles": ["giver"], "members": [{ "token": "lead" }] },
    ]});
    guarded.done("POST", "/v1/apply", &role);
    let lead = guarded.token("lead", "submitter", &["train"], &["ours"]);
    let give = |role: &str, pools: &[&str], subjects: &[&str]| {
        let name = format!("t{}{}{}", role, pools.len(), subjects.len());
        let body = json!({ "name": name, "roles": [role], "pools": pools, "subjects": subjects });
        guarded
            .call(&lead, "POST", "/v1/api-tokens", &body.to_string())
            .0
    };
    assert_eq!(give("admin", &[], &[]), 403);
    assert_eq!(give("submitter", &[], &["ours"]), 403);
    assert_eq!(give("submitter", &["train"], &["*"]), 403);
    assert_eq!(give("submitter", &["train"], &["ours"]), 201);
    let careful = json!({ "put": [
        { "kind": "role", "name": "careful", "rules": [{ "effect": "deny", "verbs": ["cancel"], "resources": ["*"] }] },
        { "kind": "binding", "name": "careful", "roles": ["careful"], "members": [{ "token": "lead" }] },
    ]});
    guarded.done("POST", "/v1/apply", &careful);
    let without =
        json!({ "name": "t1", "roles": ["submitter"], "pools": ["train"], "subjects": ["ours"] });
    let answer = guarded.call(&lead, "POST", "/v1/api-tokens", &without.to_string());
    assert_eq!(code(&answer), "forbidden", "what denies him is not shed");
    let with = json!({ "name": "t2", "roles": ["submitter", "careful"], "pools": ["train"], "subjects": ["ours"] });
    let answer = guarded.call(&lead, "POST", "/v1/api-tokens", &with.to_string());
    assert_eq!(answer.0, 201, "{}", answer.1);
    let itself = json!({ "put": [{ "kind": "binding", "name": "mine", "roles": ["admin"], "members": [{ "token": "lead" }] }] });
    let answer = guarded.call(&lead, "POST", "/v1/apply", &itself.to_string());
    assert_eq!(code(&answer), "forbidden");
}

#[test]
fn a_node_is_moved_by_whoever_may_in_both_pools() {
    let guarded = SecuredHarness::with_steps();
    let _agent = guarded.0.agent("n", 1);
    let moves = |token: &str| {
        let answer = guarded.call(token, "POST", "/v1/nodes/n:move", r#"{"pool":"serve"}"#);
        (answer.0, answer.1.to_string())
    };
    for (name, pools) in [("from", &["default"][..]), ("to", &["serve"])] {
        let token = guarded.token(name, "operator", pools, &[]);
        let (status, why) = moves(&token);
        assert_eq!(status, 403, "{name}: {why}");
    }
    let both = guarded.token("both", "operator", &["default", "serve"], &[]);
    let (status, why) = moves(&both);
    assert_eq!(status, 200, "{why}");
}

#[test]
fn roles_and_bindings_are_kept_and_what_denies_wins() {
    let mut guarded = SecuredHarness::with_steps();
    let apply = json!({ "put": [
        { "kind": "role", "name": "careful", "rules": [
            { "effect": "deny", "verbs": ["cancel"], "resources": ["*"], "subjects": ["theirs"] },
        ] },
        { "kind": "binding", "name": "night", "roles": ["pool-train-admin", "careful"], "members": [{ "token": "night" }] },
    ]});
    let made = guarded.done("POST", "/v1/apply", &apply);
    assert_eq!(made["changes"][0]["kind"], "role", "{made}");
    let night = guarded.token("night", "viewer", &[], &[]);
    let cancel = |guarded: &SecuredHarness, step: &str| {
        guarded
            .call(&night, "POST", &format!("/v1/steps/{step}:cancel"), "")
            .0
    };
    assert_eq!(cancel(&guarded, "theirs-train"), 403);
    assert_eq!(cancel(&guarded, "ours-serve"), 403);
    assert_eq!(cancel(&guarded, "ours-train"), 200);
    let unknown = json!({ "put": [{ "kind": "binding", "name": "x", "roles": ["nowhere"] }] });
    let answer = guarded.call(OWN, "POST", "/v1/apply", &unknown.to_string());
    assert_eq!(code(&answer), "unknown_role");
    let built_in = json!({ "put": [{ "kind": "role", "name": "admin" }] });
    let answer = guarded.call(OWN, "POST", "/v1/apply", &built_in.to_string());
    assert_eq!(code(&answer), "reserved_role");
    let gone = json!({ "delete": [{ "kind": "role", "name": "careful" }] });
    let answer = guarded.call(OWN, "POST", "/v1/apply", &gone.to_string());
    assert_eq!(code(&answer), "role_in_use");
    guarded.0.restart();
    assert_eq!(
        guarded.0.get("/v1/whoami").1["who"],
        "local",
        "no token is configured now"
    );
    assert_eq!(
        cancel(&guarded, "theirs-train"),
        403,
        "and what is known counts"
    );
}

/// Lists every audit entry as text.
fn noted(guarded: &SecuredHarness) -> Vec<String> {
    let events = guarded.get(OWN, "/v1/events?limit=1000").1;
    let events = events["items"].as_array().unwrap().clone().into_iter();
    let notes = events.filter(|event| event["type"] == "audited");
    notes
        .map(|event| {
            let entry = &event["entry"];
            let from = entry["from"].as_str().unwrap();
            assert!(from.starts_with("127.0.0.1:"), "{entry}");
            let word = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
            let outcome = match entry["allowed"] == true {
                true => "allowed",
                false => "refused",
            };
            let words = ["who", "verb", "resource", "name"].map(word);
            format!("{} {outcome}", words.join(" "))
        })
        .collect()
}

#[test]
fn what_is_done_and_what_is_refused_is_noted() {
    let guarded = SecuredHarness::with_steps();
    let token = guarded.token("ci", "submitter", &["train"], &["ours"]);
    guarded.call(&token, "POST", "/v1/steps/ours-train:cancel", "");
    guarded.call(&token, "GET", "/v1/steps/ours-train/exec", "");
    guarded.call(&token, "POST", "/v1/nodes/n%1b%5b2J:drain", "");
    guarded.call(&token, "GET", "/v1/nodes/n1", "");
    guarded.call("guessed", "GET", "/v1/steps", "");
    // Refusals are recorded asynchronously.
    let deadline = Instant::now() + Duration::from_secs(20);
    let noted = loop {
        let noted = noted(&guarded);
        let all = noted.last().is_some_and(|last| last.starts_with("nobody"));
        if all || Instant::now() > deadline {
            break noted;
        }
    };
    let last = &noted[noted.len() - 5..];
    assert_eq!(
        last,
        [
            "token/ci cancel steps ours-train allowed",
            "token/ci create steps/exec ours-train allowed",
            "token/ci drain nodes n\\u{1b}[2J refused",
            "token/ci get nodes n1 refused",
            "nobody list steps - refused",
        ]
    );
    assert!(
        noted.contains(&"admin create api-tokens - allowed".to_owned()),
        "{noted:?}"
    );
}

#[test]
fn can_i_says_what_a_call_would() {
    let guarded = SecuredHarness::with_steps();
    let token = guarded.token("ci", "submitter", &["train"], &["ours"]);
    let can = |query: &str| guarded.get(&token, &format!("/v1/can-i?{query}")).1;
    assert_eq!(
        can("verb=create&resource=steps&pool=train&subject=ours")["allowed"],
        true
    );
    let no = can("verb=create&resource=steps&pool=serve&subject=ours");
    assert_eq!(no["allowed"], false, "{no}");
    assert!(
        no["why"]
            .as_str()
            .unwrap()
            .contains("`pool-serve-submitter`"),
        "{no}"
    );
    let answer = guarded.get(&token, "/v1/can-i?verb=gett&resource=steps");
    assert_eq!(code(&answer), "invalid_parameter");
}

#[test]
fn claims_of_an_issuer_have_the_roles_that_bindings_give_them() {
    let terms: BindingSpec = serde_json::from_value(json!({
        "roles": ["viewer"], "pools": ["train"], "members": [{ "claims": { "groups": "ml", "org": "lab" } }]
    }))
    .unwrap();
    let mut snapshot = AccessSnapshot::default();
    let written = Versioned { terms, version: 1 };
    snapshot
        .access
        .bindings
        .insert("ml".parse().unwrap(), written);
    let roles = |groups: &[&str], org: &str| {
        let values = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        let found = TokenIdentity {
            name: "alice".into(),
            claims: [
                ("groups".into(), values(groups)),
                ("org".into(), values(&[org])),
            ]
            .into(),
            not_texts: Default::default(),
            expires_at: Time::from_unix_millis(u64::MAX),
        };
        let caller = Caller::new(Identity::Claims(found), String::new(), &snapshot);
        assert_eq!(caller.who().to_string(), "claims/alice");
        let pool = PoolName::new("train").unwrap();
        caller.may_list_in(Resource::Nodes, &pool)
    };
    assert!(roles(&["ops", "ml"], "lab"));
    assert!(!roles(&["ops"], "lab") && !roles(&["ml"], "other"));
}

#[test]
fn who_looks_after_one_pool_lets_hosts_into_that_one() {
    let guarded = SecuredHarness::with_steps();
    let own = guarded.token("t", "operator", &["train"], &[]);
    let path = "/v1/join-tokens";
    let make = |who: &str, body: &str| guarded.call(who, "POST", path, body).0;
    assert_eq!(make(&own, r#"{"pool":"train"}"#), 201);
    assert_eq!(make(&own, r#"{"pool":"serve"}"#), 403);
    assert_eq!(make(&own, "{}"), 403, "the default pool is another");
    let takes_a_name = r#"{"pool":"train","node":"n"}"#;
    assert_eq!(make(&own, takes_a_name), 403);
    assert_eq!(make(OWN, takes_a_name), 201);
    assert_eq!(make(OWN, r#"{"pool":"serve"}"#), 201);
    let pools = |who: &str| {
        let items = guarded.get(who, path).1["items"].clone();
        let tokens = items.as_array().unwrap().clone();
        let of = |token: &Value| {
            (
                token["pool"].clone(),
                token["id"].as_str().unwrap().to_owned(),
            )
        };
        tokens.iter().map(of).collect::<Vec<_>>()
    };
    assert!(pools(&own).iter().all(|(pool, _)| pool == "train"));
    for (pool, id) in pools(OWN) {
        let status = guarded.call(&own, "DELETE", &format!("{path}/{id}"), "").0;
        assert_eq!(status, if pool == "train" { 204 } else { 403 }, "{pool}");
    }
    assert_eq!(
        guarded.call(&own, "DELETE", &format!("{path}/none"), "").0,
        403
    );
    let viewer = guarded.token("v", "viewer", &[], &[]);
    assert_eq!(guarded.get(&viewer, path).0, 403);
}

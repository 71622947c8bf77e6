//! Secrets of every kind are planted wherever the API, the daemons and the commands take one, also in wrong places;
//! then everything that is printed or stored is searched for them. `logging.rs` covers the coordinator's own token and
//! keys in a process that logs at `trace`.

pub(crate) mod site;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::issuer::Issuer;
use serde_json::{Value, json};
use site::{ADMIN, SecretsCluster, bearer};

/// Texts that are searched for, and what each is.
type Secrets = Vec<(String, String)>;

/// Makes a unique value of a variable.
fn value(secrets: &mut Secrets, what: &str) -> String {
    let value = format!("planted-{what}-7Yw3");
    secrets.push((what.to_owned(), value.clone()));
    value
}

/// Tokens of callers.
struct CallerTokens {
    viewer: String,
    submitter: String,
}

fn api_token(site: &SecretsCluster, secrets: &mut Secrets, name: &str, flags: &[&str]) -> String {
    let secret = site.shown_once(&[&["api-token", "create", name, "--role"], flags].concat());
    // A part of it is too much.
    let part = secret["sluice-api-".len()..][..24].to_owned();
    secrets.push((format!("API token {name}"), part));
    secret
}

fn callers(site: &SecretsCluster, secrets: &mut Secrets) -> CallerTokens {
    site.caller("admin", ADMIN);
    let viewer = api_token(site, secrets, "viewer", &["viewer"]);
    let submitter = api_token(
        site,
        secrets,
        "submitter",
        &["submitter", "--subject", "team"],
    );
    site.caller("viewer", &viewer);
    site.caller("submitter", &submitter);
    CallerTokens { viewer, submitter }
}

/// One host joins, another is refused.
fn hosts(site: &mut SecretsCluster, secrets: &mut Secrets) {
    let lines = ["used", "revoked"].map(|what| {
        let made = site.shown_once(&["token", "create", "--pool", "default", "-o", "json"]);
        let made: Value = serde_json::from_str(&made).unwrap();
        let line = made["line"].as_str().unwrap().to_owned();
        // Its first half is addresses and a fingerprint.
        secrets.push((
            format!("join token {what}"),
            line[line.len() / 2..].to_owned(),
        ));
        (made["token"]["id"].as_str().unwrap().to_owned(), line)
    });
    let [(_, used), (id, revoked)] = lines;
    let file = site.path("join-token");
    fs::write(&file, &used).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    site.supervisor();
    site.agent();
    site.host_is_ready();
    site.sluice("admin", &["token", "revoke", &id]);
    let other = site.text("other");
    for line in [&revoked, &used, &revoked[..revoked.len() - 9]] {
        let args = ["--node", "late", "--state-dir", &other, "join"];
        assert!(!site.tool("sluice-agent", &args, line).status.success());
    }
    // A secret instead of the id.
    for caller in ["admin", "viewer"] {
        site.sluice(caller, &["token", "revoke", &used]);
    }
}

/// Submits steps whose variables are secrets, in every way of submitting, with every kind of end.
fn steps(site: &mut SecretsCluster, secrets: &mut Secrets, callers: &CallerTokens) {
    let submitter = bearer(&callers.submitter);
    let mut plant = |what: &str| json!({"TOKEN": value(secrets, what)});
    let sleep = json!(["sleep", "1000"]);
    let single = json!({"id": "call", "subject": "team", "command": sleep, "env": plant("by-call"),
        "defaults": {"env": {"OTHER": plant("by-default")["TOKEN"]}}});
    let dry = json!({"id": "dry", "subject": "team", "command": sleep, "env": plant("dry-run")});
    let batch = json!({"defaults": {"subject": "team", "env": {"OTHER": plant("by-batch-default")["TOKEN"]}}, "steps": [
        {"id": "batch", "command": ["true"], "env": plant("by-batch")},
        {"id": "huge", "command": ["true"], "env": plant("rejected"), "resources": {"gpu_count": 4000}},
        {"id": "unmade", "command": ["/no/such/program"], "env": plant("not-started")},
        {"id": "bad id", "command": ["true"], "env": plant("refused")},
    ]});
    let file = json!({"kind": "step", "id": "file", "command": ["false"], "env": plant("by-file")});
    let flag = format!("TOKEN={}", plant("by-flag")["TOKEN"].as_str().unwrap());
    for (path, body, status) in [
        ("/v1/steps", &single, 201),
        ("/v1/steps", &single, 200),
        ("/v1/steps?dry_run=true", &dry, 200),
        ("/v1/steps:batch", &batch, 200),
    ] {
        let (was, said) = site.call(&submitter, "POST", path, &body.to_string());
        assert_eq!(was, status, "{said}");
        assert!(said.contains("***") || dry_run(path), "{said}");
    }
    fs::write(site.path("steps.yaml"), file.to_string()).unwrap();
    let file = site.text("steps.yaml");
    site.sluice("submitter", &["submit", "-f", &file]);
    site.sluice("submitter", &["submit", "-f", &file, "--dry-run"]);
    site.sluice(
        "submitter",
        &["submit", "--id", "flag", "--env", &flag, "--", "true"],
    );
    site.step_is("call", "running");
    site.step_is("unmade", "failed");
    site.step_is("file", "failed");
    site.step_is("flag", "succeeded");
    // Another body under an existing id.
    let mut other = single;
    other["env"] = plant("other-body");
    assert_eq!(
        site.call(&submitter, "POST", "/v1/steps", &other.to_string())
            .0,
        409
    );
}

fn dry_run(path: &str) -> bool {
    path.contains("dry_run")
}

/// Sends invalid bodies with a secret in or near a variable: the answer must not repeat it.
fn bad_bodies(site: &mut SecretsCluster, secrets: &mut Secrets, callers: &CallerTokens) {
    let submitter = bearer(&callers.submitter);
    let text = value(secrets, "in-a-bad-body");
    secrets.push(("a number".into(), "918273645546372819".into()));
    let environments = [
        json!(format!("TOKEN={text}")),
        json!([format!("TOKEN={text}")]),
        json!([{"name": "TOKEN", "value": text}]),
        json!({"PIN": 918_273_645_546_372_819_u64}),
        json!({"PIN": -918_273_645_546_372_819_i64}),
        json!(918_273_645_546_372_819_u64),
        json!({"TOKEN": {"value": text}}),
        json!({"TOKEN": [text]}),
        json!({format!("TOKEN={text}"): "x"}),
        json!({"SLUICE_TOKEN": text}),
        json!({"TOKEN": format!("{text}\0")}),
        json!({"": text}),
    ];
    for env in environments {
        let whole = json!({"command": ["true"], "subject": "team", "env": env});
        let below = json!({"command": ["true"], "subject": "team", "defaults": {"env": env}});
        let batch = json!({"steps": [whole]});
        let defaults =
            json!({"steps": [{"command": ["true"]}], "defaults": {"subject": "team", "env": env}});
        for (path, body) in [
            ("/v1/steps", &whole),
            ("/v1/steps", &below),
            ("/v1/steps?dry_run=true", &whole),
            ("/v1/steps:batch", &batch),
            ("/v1/steps:batch", &defaults),
        ] {
            let (status, said) = site.call(&submitter, "POST", path, &body.to_string());
            let refused =
                status == 400 || (path == "/v1/steps:batch" && said.contains("\"error\""));
            let refused = refused || said.contains("\"refused\"");
            assert!(refused, "{body}: {status} {said}");
        }
        fs::write(
            site.path("bad.yaml"),
            format!("kind: step\ncommand: [\"true\"]\nenv: {env}\n"),
        )
        .unwrap();
        let file = site.text("bad.yaml");
        site.sluice("submitter", &["submit", "-f", &file]);
    }
    let cut = format!(r#"{{"command": ["true"], "env": {{"TOKEN": "{text}""#);
    let other = format!(r#"{{"command": ["true"], "environment": {{"TOKEN": "{text}"}}}}"#);
    for body in [cut, other] {
        assert_eq!(site.call(&submitter, "POST", "/v1/steps", &body).0, 400);
    }
}

/// Writes secrets into unlikely fields: only their writer may read them again.
fn wrong_places(site: &SecretsCluster, secrets: &mut Secrets, callers: &CallerTokens) {
    let submitter = bearer(&callers.submitter);
    let text = value(secrets, "in a wrong field");
    for field in [
        "id",
        "timeout",
        "on_preempt",
        "workdir",
        "subject",
        "platform",
    ] {
        let body = json!({"command": ["true"], field: text}).to_string();
        let (status, said) = site.unheard(&submitter, "POST", "/v1/steps", &body);
        assert!((400..500).contains(&status), "{field}: {status} {said}");
    }
}

/// Shows invalid credentials, and valid ones in wrong places.
fn headers(
    site: &mut SecretsCluster,
    secrets: &mut Secrets,
    callers: &CallerTokens,
    issuer: &Issuer,
) {
    let wrong = value(secrets, "wrong-token");
    let expired = issuer.token("late", -3600);
    let good = issuer.token("alice", 3600);
    let forged = Issuer::new().token("mallory", 3600);
    for (what, token) in [("expired", &expired), ("good", &good), ("forged", &forged)] {
        let [_, claims, signature] = token.split('.').collect::<Vec<_>>()[..] else {
            panic!("{token}");
        };
        secrets.push((format!("{what} token of the issuer"), signature.to_owned()));
        secrets.push((format!("{what} token's claims"), claims.to_owned()));
    }
    let refused = [&wrong, &expired, &forged, &format!("{good}x")].map(|token| bearer(token));
    for shown in refused.iter().chain([&format!("Basic {wrong}"), &wrong]) {
        assert_eq!(site.call(shown, "GET", "/v1/steps", "").0, 401);
        assert_eq!(site.call(shown, "POST", "/v1/steps:batch", "{}").0, 401);
    }
    let (status, said) = site.call(&bearer(&good), "GET", "/v1/whoami", "");
    assert!(
        status == 200 && said.contains("claims/alice"),
        "{status} {said}"
    );
    site.call(&bearer(&good), "GET", "/v1/steps", "");
    for path in [
        "/v1/steps?token=",
        "/v1/events?since=0&access_token=",
        "/metrics?token=",
    ] {
        site.call(
            &bearer(&callers.viewer),
            "GET",
            &format!("{path}{wrong}"),
            "",
        );
    }
    // In place of a token's name, by a caller who may do that and by one who may not.
    for shown in [ADMIN, &callers.viewer, &wrong] {
        for (method, path) in [
            ("GET", "/v1/api-tokens/"),
            ("DELETE", "/v1/api-tokens/"),
            ("DELETE", "/v1/join-tokens/"),
        ] {
            let path = format!("{path}{}", callers.submitter);
            let (status, _) = site.unheard(&bearer(shown), method, &path, "");
            assert!((400..500).contains(&status), "{method} {path}: {status}");
        }
    }
}

/// Reads everything that callers without the right to secrets can read, and what is public.
fn ask(site: &mut SecretsCluster, callers: &CallerTokens) {
    for caller in ["viewer", "submitter"] {
        for step in ["call", "batch", "huge", "unmade", "file", "flag"] {
            for form in ["table", "json", "yaml"] {
                for verb in [&["get", "step"][..], &["describe", "step"], &["explain"]] {
                    site.sluice(caller, &[verb, &[step, "-o", form]].concat());
                }
            }
            site.sluice(caller, &["logs", step]);
        }
        for what in ["steps", "nodes", "pools", "policies", "events"] {
            site.sluice(caller, &["get", what, "-o", "json"]);
        }
        site.sluice(caller, &["auth", "whoami"]);
        site.sluice(caller, &["auth", "can-i", "get", "steps/env"]);
        site.sluice(caller, &["auth", "can-i", "drain", "nodes"]);
    }
    for args in [
        &["get", "events"][..],
        &["get", "events", "-o", "json"],
        &["api-token", "list", "-o", "json"],
        &["token", "list", "-o", "json"],
        &["auth", "whoami"],
    ] {
        site.sluice("admin", args);
    }
    let mut since = 0;
    loop {
        let path = format!("/v1/events?since={since}&limit=1000");
        let (_, page) = site.call(&bearer(ADMIN), "GET", &path, "");
        let page: Value = serde_json::from_str(&page).unwrap();
        match page["items"].as_array().and_then(|items| items.last()) {
            Some(last) => since = last["seq"].as_u64().unwrap(),
            None => break,
        }
    }
    site.sluice("submitter", &["submit", "--id", "the-last", "--", "true"]);
    site.followed(&callers.viewer, "the-last");
    for path in [
        "/metrics",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/v1/whoami",
        "/v1/bindings",
        "/v1/recovery",
    ] {
        site.call(&bearer(&callers.viewer), "GET", path, "");
    }
}

/// Reads what every user of the machine sees of a process, and what its own user sees.
fn processes(site: &mut SecretsCluster) {
    for (name, pid) in site.daemons() {
        for file in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{pid}/{file}")).unwrap();
            let text = String::from_utf8_lossy(&text).into_owned();
            site.told.push((format!("{file} of {name}"), text));
        }
    }
}

/// Kills every daemon, so that it reads again what it has stored.
fn deaths(site: &mut SecretsCluster) {
    for daemon in ["sluice-supervisor", "sluice-agent", "sluice-coordinator"] {
        site.kill(daemon);
        match daemon {
            "sluice-supervisor" => site.supervisor(),
            "sluice-agent" => site.agent(),
            _ => site.coordinator(),
        }
        site.host_is_ready();
        site.step_is("call", "running");
    }
    // One that cannot start says why.
    let bad = format!("api_token = {ADMIN:?}\n");
    let open = format!("api_token_file = [{ADMIN:?}, \n");
    for (text, program) in [
        (&bad, "sluice-coordinator"),
        (&open, "sluice-coordinator"),
        (&bad, "sluice-agent"),
        (&open, "sluice-agent"),
    ] {
        let path = site.text("bad.toml");
        fs::write(&path, text).unwrap();
        let args = ["--check-config", "--config", &path];
        assert!(!site.tool(program, &args, "").status.success());
    }
}

/// Runs commands that read the disk.
fn disk(site: &mut SecretsCluster) {
    let (data, backup) = (site.text("coordinator"), site.text("backup"));
    let said = site.tool(
        "sluice-coordinator",
        &["backup", &backup, "--data-dir", &data],
        "",
    );
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("for you alone"), "{said}");
    site.tool("sluice-coordinator", &["check", &data], "");
    site.tool("sluice-coordinator", &["check", &backup], "");
    site.stop();
    for form in ["table", "json"] {
        let said = site.tool("sluice", &["replay", &data, "-o", form], "");
        assert!(said.status.success(), "{said:?}");
    }
    let last = site.tool("sluice-coordinator", &["replay", &data], "");
    assert!(last.status.success(), "{last:?}");
    let diff = site.tool(
        "sluice-coordinator",
        &["replay", &data, "--diff", "1", "20"],
        "",
    );
    assert!(diff.status.success(), "{diff:?}");
}

/// Lists files below a folder.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        let kind = fs::symlink_metadata(&entry).unwrap();
        match (kind.is_dir(), kind.is_file()) {
            (true, _) => files(&entry, found),
            (_, true) => found.push(entry),
            _ => {}
        }
    }
}

/// Collects the first line of each private key.
fn keys(site: &SecretsCluster, secrets: &mut Secrets) {
    let mut found = Vec::new();
    files(&site.path("coordinator"), &mut found);
    files(&site.path("agent"), &mut found);
    let before = secrets.len();
    for path in found {
        let bytes = fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        let is_pem = lines.any(|line| line.contains("PRIVATE KEY"));
        if let (true, Some(line)) = (is_pem, lines.next()) {
            secrets.push((path.display().to_string(), line.to_owned()));
        } else if path.ends_with("warrants.key") {
            secrets.push((path.display().to_string(), text.trim().to_owned()));
        }
    }
    assert!(secrets.len() >= before + 4, "{:?}", &secrets[before..]);
}

/// Checks that files with a secret are readable by their user alone, and that each value of a running step is in one.
fn kept(site: &SecretsCluster, secrets: &Secrets) {
    let mut found = Vec::new();
    for dir in ["coordinator", "agent", "supervisor"] {
        files(&site.path(dir), &mut found);
    }
    found.push(site.path("backup"));
    let mut holders = Vec::new();
    for path in found {
        let bytes = fs::read(&path).unwrap();
        let holds = |secret: &str| {
            bytes
                .windows(secret.len())
                .any(|it| it == secret.as_bytes())
        };
        if !secrets.iter().any(|(_, secret)| holds(secret)) {
            continue;
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
        holders.push(path);
    }
    for holder in ["store.redb", "ca.key", "backup"] {
        let is_there = holders.iter().any(|path| path.ends_with(holder));
        assert!(is_there, "{holder} is not searched: {holders:?}");
    }
    // A warrant is encrypted.
    let warrants = holders
        .iter()
        .filter(|path| path.ends_with("warrants/call.1"));
    assert_eq!(warrants.count(), 0);
}

/// Returns the places that contain a secret.
fn leaks(told: &[(String, String)], secrets: &Secrets) -> Vec<String> {
    let mut found = Vec::new();
    for (place, text) in told {
        for (what, secret) in secrets {
            if let Some(at) = text.find(secret.as_str()) {
                let (before, after) = (
                    text.floor_char_boundary(at.saturating_sub(160)),
                    at + secret.len(),
                );
                found.push(format!("{what} in {place}: ...{}", &text[before..after]));
            }
        }
    }
    found
}

/// Applies rights of the issuer's users, and a pool for the submitter's steps.
fn terms(site: &mut SecretsCluster) {
    let file = site.text("terms.yaml");
    let role = "{kind: binding, name: ml, roles: [viewer], members: [{claims: {groups: ml}}]}";
    let policy = "{kind: policy, pool: default, subject: team, priority: 1}";
    fs::write(&file, format!("{role}\n---\n{policy}\n")).unwrap();
    let said = site.sluice("admin", &["apply", "-f", &file]);
    assert!(said.contains("ml") && said.contains("team"), "{said}");
}

#[test]
fn no_planted_secret_is_told_to_anybody() {
    let issuer = Issuer::new();
    let mut site = SecretsCluster::new(&issuer.jwks());
    let mut secrets = vec![("the admin's token".to_owned(), ADMIN.to_owned())];
    let callers = callers(&site, &mut secrets);
    hosts(&mut site, &mut secrets);
    terms(&mut site);
    steps(&mut site, &mut secrets, &callers);
    bad_bodies(&mut site, &mut secrets, &callers);
    wrong_places(&site, &mut secrets, &callers);
    headers(&mut site, &mut secrets, &callers, &issuer);
    keys(&site, &mut secrets);
    deaths(&mut site);
    ask(&mut site, &callers);
    processes(&mut site);
    disk(&mut site);
    site.told.extend(site.logs());

    let everything: usize = site.told.iter().map(|(_, text)| text.len()).sum();
    assert!(
        site.told.len() > 300 && everything > 100_000,
        "{}, {everything}",
        site.told.len()
    );
    for (what, needle) in [
        ("the call that runs", "TOKEN"),
        ("a refusal", "forbidden"),
        ("a log", "call answered"),
    ] {
        let is_told = site.told.iter().any(|(_, text)| text.contains(needle));
        assert!(is_told, "{what} is not searched");
    }
    let leaks = leaks(&site.told, &secrets);
    assert!(
        leaks.is_empty(),
        "{} leaks:\n{}",
        leaks.len(),
        leaks.join("\n")
    );
    kept(&site, &secrets);
}

//! Control sequences and invisible characters in every text that the API takes, and paths in place of names: the
//! command line prints none of them, except in a step's own output.

use serde_json::json;
use sluice_tests::Dev;

use super::cli::on_terminal;

/// Clears the screen, sets a title, makes a link, deletes backwards, turns the line, hides.
const PLANTED: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{8}\u{202e}\u{200b}\r";

/// Whether a character controls a terminal or deceives the eye. Line ends are ours.
fn steers(c: char) -> bool {
    (c.is_control() && c != '\n')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Puts the text into every field of the API; returns the fields that accept it.
fn plant(dev: &Dev) -> Vec<&'static str> {
    let text = format!("x{PLANTED}y");
    let mut taken = Vec::new();
    let mut put = |what: &'static str, method: &str, path: &str, body: serde_json::Value| {
        let (status, answer) = dev.call(method, path, Some(&body.to_string()));
        assert!(status < 500, "{what}: {answer}");
        if status < 300 {
            taken.push(what);
        }
    };
    put(
        "pool",
        "PUT",
        "/v1/pools/p",
        json!({"description": text, "maintenance": text}),
    );
    put(
        "policy",
        "PUT",
        "/v1/pools/default/policies/planted",
        json!({}),
    );
    put(
        "platform",
        "PUT",
        "/v1/pools/p/platforms/k",
        json!({"description": text, "selector": {"gpu_model": text}}),
    );
    put(
        "template",
        "PUT",
        "/v1/templates/t",
        json!({"env": {"A": text}, "wrapper": ["nice", text], "workdir": format!("/{text}")}),
    );
    put(
        "validation",
        "PUT",
        "/v1/validations/v",
        json!({"description": text, "assertions": [{"assert": "nodes <= 2", "message": text}]}),
    );
    put(
        "step",
        "POST",
        "/v1/steps",
        json!({"id": "planted", "name": text, "command": ["sh", "-c", "printf '\\033[2J\\a'; exit 3", text], "env": {"A": text}, "platform": "h100"}),
    );
    put(
        "running step",
        "POST",
        "/v1/steps",
        json!({"id": "ran", "name": text, "command": ["sh", "-c", "printf '\\033[2J\\007'; exit 3", text]}),
    );
    put(
        "refused",
        "POST",
        "/v1/steps",
        json!({"id": "refused", "name": text, "command": ["true"], "nodes": 3}),
    );
    put(
        "no program",
        "POST",
        "/v1/steps",
        json!({"id": "none", "command": [text]}),
    );
    put(
        "no directory",
        "POST",
        "/v1/steps",
        json!({"id": "nowhere", "command": ["true"], "workdir": format!("/{text}")}),
    );
    put("api token", "POST", "/v1/api-tokens", json!({"name": text}));
    put(
        "subject",
        "POST",
        "/v1/steps",
        json!({"command": ["true"], "subject": text}),
    );
    put(
        "label",
        "POST",
        "/v1/steps",
        json!({"command": ["true"], "labels": {"a": text}}),
    );
    taken
}

/// Closes the host with the planted text as the reason.
fn close_the_host(dev: &Dev) {
    let (_, nodes) = dev.call("GET", "/v1/nodes", None);
    let path = format!(
        "/v1/nodes/{}:cordon",
        nodes["items"][0]["name"].as_str().unwrap()
    );
    let body = json!({"reason": format!("x{PLANTED}y")});
    assert_eq!(dev.call("POST", &path, Some(&body.to_string())).0, 200);
}

const KINDS: &[&str] = &[
    "steps",
    "nodes",
    "pools",
    "policies",
    "platforms",
    "templates",
    "cluster",
    "validations",
    "roles",
    "bindings",
    "api-tokens",
    "tokens",
    "events",
];

#[test]
fn nothing_that_anybody_wrote_steers_a_terminal() {
    let dev = Dev::start();
    dev.ok(&["submit", "--id", "before", "--", "true"]);
    let taken = plant(&dev);
    for wanted in ["pool", "running step", "no program"] {
        assert!(taken.contains(&wanted), "{wanted} was not taken: {taken:?}");
    }
    dev.step_in("ran", &["failed"]);
    dev.step_in("none", &["failed", "rejected"]);
    close_the_host(&dev);
    let mut commands: Vec<Vec<&str>> = Vec::new();
    for format in ["table", "wide", "json", "yaml", "name"] {
        commands.extend(KINDS.iter().map(|kind| vec!["get", kind, "-o", format]));
        for id in ["ran", "planted", "refused", "none", "nowhere"] {
            commands.push(vec!["describe", "step", id, "-o", format]);
            commands.push(vec!["explain", id, "-o", format]);
        }
        for thing in [
            ["pool", "p"],
            ["platform", "p/k"],
            ["template", "t"],
            ["validation", "v"],
        ] {
            commands.push(vec!["describe", thing[0], thing[1], "-o", format]);
        }
    }
    commands.push(vec!["wait", "ran"]);
    commands.push(vec!["cancel", "none"]);
    commands.push(vec![
        "submit",
        "--dry-run",
        "--nodes",
        "3",
        "--",
        "true",
        PLANTED,
    ]);
    commands.push(vec![
        "submit",
        "--name",
        PLANTED,
        "--platform",
        PLANTED,
        "--",
        "true",
    ]);
    commands.push(vec!["get", PLANTED]);
    commands.push(vec!["describe", "step", PLANTED]);
    commands.push(vec!["replay", "--data-dir", PLANTED]);
    let mut shown = 0;
    for args in &commands {
        let ran = dev.sluice(args);
        for said in [&ran.stdout, &ran.stderr] {
            let found = said.lines().find(|line| line.chars().any(steers));
            assert!(found.is_none(), "{args:?}: {found:?}");
            shown += usize::from(said.contains("[2J"));
        }
    }
    assert!(
        shown > 20,
        "what was planted is shown, as escapes, {shown} times"
    );
    let raw = dev.sluice(&["logs", "ran"]);
    assert_eq!(raw.stdout, "\u{1b}[2J\u{7}", "a step's output is its own");
    nothing_on_a_terminal(&dev);
}

/// Checks output fitted to a terminal, including a step's output there.
fn nothing_on_a_terminal(dev: &Dev) {
    let mut commands: Vec<Vec<&str>> = KINDS.iter().map(|kind| vec!["get", kind]).collect();
    commands.push(vec!["describe", "step", "ran"]);
    commands.push(vec!["describe", "pool", "p"]);
    commands.push(vec!["explain", "ran"]);
    commands.push(vec!["logs", "ran"]);
    commands.push(vec!["logs", "--follow", "--tail", "1", "ran"]);
    for args in &commands {
        let said = on_terminal(dev, 80, &[("NO_COLOR", "1")], args);
        assert!(!said.chars().any(steers), "{args:?}: {said:?}");
    }
    let logs = on_terminal(dev, 80, &[], &["logs", "ran"]);
    assert_eq!(logs, r"\u{1b}[2J\u{7}");
}

#[test]
fn paths_in_the_place_of_names_lead_nowhere() {
    let dev = Dev::start();
    let outside = dev.folder().join("outside");
    std::fs::write(&outside, "secret").unwrap();
    for trick in [
        "..",
        ".",
        "../outside",
        "..%2foutside",
        "%2e%2e%2foutside",
        "a%00b",
        "a%2fb",
        "%2fetc%2fpasswd",
        "..%5c..",
        "a%0ab",
        "%c0%ae%c0%ae",
        "~root",
        "%2e%2e/%2e%2e",
    ] {
        for path in [
            format!("/v1/steps/{trick}"),
            format!("/v1/steps/{trick}/logs"),
            format!("/v1/nodes/{trick}"),
            format!("/v1/pools/{trick}/queue"),
            format!("/v1/templates/{trick}"),
        ] {
            let (status, answer) = dev.call("GET", &path, None);
            assert!(
                (300..500).contains(&status) || path.ends_with("/."),
                "{path}: {status} {answer}"
            );
            assert!(!answer.to_string().contains("secret"), "{path}: {answer}");
        }
    }
    for id in [
        "../../outside",
        "a/b",
        "..",
        ".",
        "a\0b",
        "/etc",
        "a b",
        "-a",
        "a.",
        "\u{202e}",
    ] {
        for body in [
            json!({"id": id, "command": ["true"]}),
            json!({"command": ["true"], "subject": id}),
            json!({"command": ["true"], "pool": id}),
        ] {
            let (status, answer) = dev.call("POST", "/v1/steps", Some(&body.to_string()));
            assert!(
                (400..500).contains(&status) || id == "a.",
                "{body}: {status} {answer}"
            );
        }
    }
    for workdir in ["../..", "a", "", "/a\0b"] {
        let body = json!({"command": ["true"], "workdir": workdir});
        let (status, answer) = dev.call("POST", "/v1/steps", Some(&body.to_string()));
        assert!(status < 500, "{body}: {answer}");
    }
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "secret");
    assert_eq!(dev.ok(&["run", "--", "echo", "fine"]), "fine\n");
}

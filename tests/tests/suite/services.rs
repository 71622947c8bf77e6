//! Services of a running cluster: replicas that end are replaced, a change of version leaves no gap, and a deleted service
//! leaves nothing behind.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{Daemon, Dev, eventually, kill};

fn service(dev: &Dev) -> Value {
    let (status, service) = dev.call("GET", "/v1/services/web", None);
    assert_eq!(status, 200, "{service}");
    service
}

/// The replicas that are ready, in the order of their numbers.
fn ready(dev: &Dev) -> Vec<String> {
    let (status, found) = dev.call("GET", "/v1/endpoints?service=web", None);
    assert_eq!(status, 200, "{found}");
    let items = found["items"].as_array().unwrap().iter();
    items
        .map(|it| it["replica"].as_str().unwrap().to_owned())
        .collect()
}

fn until_ready(dev: &Dev, expected: &[&str]) {
    eventually(&format!("{expected:?} to be ready"), || {
        (ready(dev) == expected).then_some(())
    });
}

fn apply(dev: &Dev, document: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yaml");
    fs::write(&file, document).unwrap();
    dev.ok(&["apply", "-f", file.to_str().unwrap()])
}

fn web(more: &str) -> String {
    format!(
        "kind: service\nname: web\nreplicas: 2\ngrace_period: 1s\nresources: {{cpu_count: 0.1}}\n\
         rollout: {{drain_timeout: 0s, progress_deadline: 5s}}\n{more}"
    )
}

const SERVER: &str =
    "command: [python3, -m, http.server, --bind, 127.0.0.1, \"0\"]\nenv: {TOKEN: secret}\n";

#[test]
fn replicas_are_replaced_and_a_change_leaves_no_gap() {
    let dev = Dev::start();
    assert_eq!(apply(&dev, &web(SERVER)), "service/web created\n");
    until_ready(&dev, &["web-1", "web-2"]);
    let pids = dev.processes("web-1");
    pids.iter().for_each(|pid| kill(*pid, Signal::SIGKILL));
    until_ready(&dev, &["web-2", "web-3"]);
    let failure = &service(&dev)["last_failure"];
    assert_eq!(failure["id"], "web-1", "{failure}");
    // The variables of its version outlive a crash of the coordinator.
    dev.kill(Daemon::Coordinator);
    eventually("the coordinator", || {
        let found = dev.try_call("GET", "/v1/services/web", None);
        found.filter(|(status, _)| *status == 200)
    });
    until_ready(&dev, &["web-2", "web-3"]);
    dev.ok(&["scale", "service", "web", "3"]);
    until_ready(&dev, &["web-2", "web-3", "web-4"]);
    let (_, step) = dev.call("GET", "/v1/steps/web-4", None);
    assert_eq!(step["env"]["TOKEN"], "secret", "{step}");
    assert_eq!(step["service"], "web");
    let next = web(&format!("{SERVER}labels: {{v: two}}\n"));
    assert_eq!(apply(&dev, &next), "service/web changed\n");
    let told = dev.ok(&["rollout", "status", "web", "--timeout", "50s"]);
    assert!(
        told.contains("version 2 is complete, 2 of 2 ready"),
        "{told}"
    );
    assert_eq!(ready(&dev).len(), 2);
    assert_eq!(
        dev.ok(&["delete", "service", "web"]),
        "service/web deleted\n"
    );
    eventually("the service to be gone", || {
        let (status, _) = dev.call("GET", "/v1/services/web", None);
        (status == 404).then_some(())
    });
    let (_, steps) = dev.call("GET", "/v1/steps?state=running", None);
    assert_eq!(steps["items"].as_array().unwrap().len(), 0, "{steps}");
}

#[test]
fn the_number_follows_what_gateways_report() {
    let dev = Dev::start();
    let document = "kind: service\nname: web\ngrace_period: 1s\nrollout: {drain_timeout: 0s}\n\
                    resources: {cpu_count: 0.1, min_replicas: 0, max_replicas: 3, autoscaling_metric: rps, \
                    autoscaling_target: 5}\nautoscaling: {down_after: 2s}\n";
    assert_eq!(
        apply(&dev, &format!("{document}{SERVER}")),
        "service/web created\n"
    );
    until_ready(&dev, &["web-1"]);
    let report = |body: &str| dev.call("POST", "/v1/services/web:report", Some(body));
    let (status, _) = report(r#"{"reporter":"g1","concurrency":1,"rps":9}"#);
    assert_eq!(status, 204);
    until_ready(&dev, &["web-1", "web-2"]);
    report(r#"{"reporter":"g2","concurrency":0,"rps":400}"#);
    until_ready(&dev, &["web-1", "web-2", "web-3"]);
    let told = dev.ok(&["describe", "service", "web"]);
    assert!(
        told.contains("`rps` is 409, with a target of 5 for each replica: 3 are enough"),
        "{told}"
    );
    eventually("the service to sleep", || {
        for gateway in ["g1", "g2"] {
            report(&format!(
                r#"{{"reporter":"{gateway}","concurrency":0,"rps":0}}"#
            ));
        }
        ready(&dev).is_empty().then_some(())
    });
    assert_eq!(service(&dev)["state"], "sleeping");
    report(r#"{"reporter":"g1","concurrency":1,"rps":0}"#);
    until_ready(&dev, &["web-4"]);
    for (body, expected) in [
        (
            r#"{"reporter":"g1","concurrency":-1,"rps":0}"#,
            "concurrency: -1 cannot be",
        ),
        (
            r#"{"reporter":"g1","concurrency":0,"rps":1e18}"#,
            "report a number from 0 to 1000000000",
        ),
        (r#"{"reporter":"g 1","concurrency":0,"rps":0}"#, "reporter"),
    ] {
        let (status, answer) = report(body);
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(expected), "{answer}");
    }
    dev.ok(&["delete", "service", "web"]);
}

#[test]
fn a_version_that_fails_is_rolled_back_and_a_step_may_not_have_its_fields() {
    let dev = Dev::start();
    apply(&dev, &web(SERVER));
    until_ready(&dev, &["web-1", "web-2"]);
    dev.ok(&["rollout", "status", "web", "--timeout", "50s"]);
    apply(&dev, &web("command: [sh, -c, \"exit 7\"]\n"));
    let told = dev.sluice(&["rollout", "status", "web", "--timeout", "50s"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(
        told.stdout.contains("version 2 was rolled back"),
        "{told:?}"
    );
    assert!(told.stdout.contains("code 7"), "{told:?}");
    assert_eq!(ready(&dev).len(), 2);
    let refused = dev.call(
        "POST",
        "/v1/steps",
        Some(r#"{"command":["true"],"replicas":2}"#),
    );
    assert_eq!(refused.0, 400);
    let message = refused.1["error"]["message"].as_str().unwrap();
    assert!(message.contains("belongs to a service"), "{message}");
    let refused = dev.sluice(&["scale", "service", "nothing", "2"]);
    assert!(
        refused.stderr.contains("there is no service `nothing`"),
        "{refused:?}"
    );
}

#[test]
fn the_number_follows_the_cores_that_replicas_use() {
    let dev = Dev::start();
    let document = "kind: service\nname: web\ngrace_period: 1s\nrollout: {drain_timeout: 0s}\n\
                    resources: {cpu_count: 0.1, min_replicas: 1, max_replicas: 3, autoscaling_metric: cpu, \
                    autoscaling_target: 60}\n\
                    command: [sh, -c, \"while :; do :; done\"]\n";
    apply(&dev, document);
    until_ready(&dev, &["web-1"]);
    let measured = eventually("a measurement", || {
        let load = service(&dev)["autoscaling"]["total"].clone();
        load.as_f64().filter(|total| *total > 0.0)
    });
    // A whole core, if it is not limited, is ten times what it asks for.
    until_ready(&dev, &["web-1", "web-2", "web-3"]);
    let told = dev.ok(&["describe", "service", "web"]);
    assert!(measured > 60.0 && told.contains("`cpu` is "), "{told}");
    dev.ok(&["delete", "service", "web"]);
}

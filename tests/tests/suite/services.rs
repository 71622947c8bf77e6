//! Services of a running cluster: replicas that end are replaced, a change of version leaves no gap, and a deleted service
//! leaves nothing behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;

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
    dev.ok(&["apply", "-f", &file(dev, document)])
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
        told.contains("`rps` is 409, with a target of 5 for each replica, which needs 3"),
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

#[test]
fn the_number_follows_a_metric_that_replicas_serve() {
    let dev = Dev::start();
    let document = "kind: service\nname: web\ngrace_period: 1s\nrollout: {drain_timeout: 0s}\nports: [http]\n\
                    probes: {readiness: {http: {path: /, port: http}, period: 1s}}\n\
                    resources: {cpu_count: 0.1, min_replicas: 1, max_replicas: 2}\n\
                    autoscaling: {metric: \"app:queue\", port: http, target: 4}\n\
                    command: [sh, -c, 'echo app:queue 1 > metrics; exec python3 -m http.server $SLUICE_PORT']\n";
    apply(&dev, document);
    until_ready(&dev, &["web-1"]);
    let scaling = || service(&dev)["autoscaling"].clone();
    let serve = |text: &str| {
        let write = format!("printf '{text}' > metrics");
        dev.ok(&["exec", "web-1", "--", "sh", "-c", &write]);
    };
    eventually("a value", || (scaling()["total"] == 1.0).then_some(()));
    serve(r#"# TYPE app:queue gauge\napp:queue{a="1"} 5\napp:queue{a="2"} 2.5\nother 9\n"#);
    until_ready(&dev, &["web-1", "web-2"]);
    serve(r"app:queue NaN\n");
    let message = eventually("the reason", || {
        let message = scaling()["message"].as_str().unwrap().to_owned();
        message
            .contains("of web-1 it is unknown")
            .then_some(message)
    });
    assert!(message.contains("a series of it is NaN"), "{message}");
    // The second serves 1, and the first counts as much as the target.
    assert_eq!(scaling()["total"], 5.0, "{message}");
    let told = dev.ok(&["describe", "service", "web"]);
    assert!(told.contains("a series of it is NaN"), "{told}");
    assert_eq!(service(&dev)["replicas"], 2);
    dev.ok(&["delete", "service", "web"]);
}

/// Writes documents into a file of the cluster's folder; returns its path.
fn file(dev: &Dev, documents: &str) -> String {
    let file = dev.folder().join("documents.yaml");
    fs::write(&file, documents).unwrap();
    file.display().to_string()
}

fn sleeper(name: &str, more: &str) -> String {
    format!(
        "kind: service\nname: {name}\ncommand: [sleep, infinity]\nreplicas: 1\nresources: {{cpu_count: 0.1}}\n{more}"
    )
}

#[test]
fn a_caller_of_one_subject_applies_a_service_and_learns_the_outcome() {
    let dev = Dev::start();
    dev.ok(&["resource-pool", "attach-policy", "default", "alice"]);
    let secret = dev.ok(&[
        "api-token",
        "create",
        "laptop",
        "--role",
        "submitter",
        "--subject",
        "alice",
        "--pool",
        "default",
    ]);
    let context = fs::read(&dev.context).unwrap();
    let mut context: Value = serde_json::from_slice(&context).unwrap();
    context["token"] = secret.trim().into();
    context["subject"] = Value::Null;
    let own = dev.folder().join("laptop.json");
    fs::write(&own, context.to_string()).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o600)).unwrap();
    let path = file(&dev, &sleeper("web", "pool: default\n"));
    let apply = ["--context", own.to_str().unwrap(), "apply", "-f", &path];
    let ran = dev.sluice(&apply);
    assert_eq!(ran.stdout, "service/web created\n", "{ran:?}");
    let ran = dev.sluice(&apply);
    assert_eq!(ran.stdout, "service/web unchanged\n", "{ran:?}");
    file(&dev, &sleeper("web", "pool: default\nenv: {A: b}\n"));
    let ran = dev.sluice(&[&apply[..], &["-o", "json"]].concat());
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let changed = serde_json::json!([{"name": "web", "outcome": "changed"}]);
    assert_eq!(told["services"], changed, "{told}");
    assert_eq!(service(&dev)["subject"], "alice");
}

#[test]
fn services_of_a_file_are_applied_and_deleted_one_by_one_and_each_is_told() {
    let dev = Dev::start();
    let pool = "kind: pool\nname: night\n";
    let wrong = sleeper("wrong", "grace_period: never\n");
    let good = sleeper("web", "");
    let path = file(&dev, &format!("{pool}---\n{wrong}---\n{good}"));
    let ran = dev.sluice(&["apply", "-f", &path, "-o", "json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let refused = "service/wrong was not applied: ";
    assert!(ran.stderr.contains(refused), "{ran:?}");
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(told["changes"][0]["outcome"], "created", "{told}");
    let made = serde_json::json!([{"name": "web", "outcome": "created"}]);
    assert_eq!(told["services"], made, "{told}");
    let path = file(&dev, &format!("{pool}---\n{good}"));
    let delete = ["delete", "-f", path.as_str()];
    let dry = dev.ok(&[&delete[..], &["--dry-run"]].concat());
    assert!(dry.starts_with("service/web deleted (dry run)\n"), "{dry}");
    assert!(dry.contains("pool/night deleted (dry run)"), "{dry}");
    assert_eq!(service(&dev)["name"], "web");
    // One that is not there keeps the rest of the file.
    file(&dev, &format!("{pool}---\n{}", sleeper("absent", "")));
    let ran = dev.sluice(&delete);
    assert_eq!(ran.code, 1, "{ran:?}");
    let kept = "nothing else of the file was deleted";
    assert!(
        ran.stderr.contains("service/absent was not deleted: "),
        "{ran:?}"
    );
    assert!(ran.stderr.contains(kept), "{ran:?}");
    dev.ok(&["get", "pool", "night"]);
    // The services that were deleted are told even if the rest is refused.
    file(&dev, &format!("{good}---\nkind: pool\nname: nowhere\n"));
    let ran = dev.sluice(&delete);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(ran.stdout, "service/web deleted\n", "{ran:?}");
    let told = "of the file only service/web was deleted";
    assert!(ran.stderr.contains(told), "{ran:?}");
}

#[test]
fn explain_says_what_the_replicas_of_a_service_wait_for() {
    let dev = Dev::start();
    apply(
        &dev,
        "{kind: policy, pool: default, subject: dev, limit: {cpu: 0.1}}\n",
    );
    apply(&dev, &web(SERVER));
    until_ready(&dev, &["web-1"]);
    for name in ["web", "service/web"] {
        let told = dev.ok(&["explain", name]);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(
            lines[0],
            "service/web is starting: 1 of 2 replicas are ready"
        );
        assert!(
            lines[1].starts_with("  web-2 is queued (waiting_for_limit): "),
            "{told}"
        );
        assert!(!told.contains("web-1 is "), "it is ready: {told}");
    }
    let told = dev.ok(&["explain", "web", "-o", "json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["service"]["ready"], 1);
    assert_eq!(told["replicas"][0]["id"], "web-2");
    assert_eq!(dev.ok(&["explain", "web", "-o", "name"]), "service/web\n");
    let ran = dev.sluice(&["explain", "service/wed"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("did you mean `web`"), "{ran:?}");
    let told = dev.ok(&["explain", "web-1"]);
    assert!(told.starts_with("web-1 is running"), "{told}");
}

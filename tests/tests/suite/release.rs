//! From the end of a step to the next grant of its GPU, on a host whose driver frees memory late, or never: through a
//! stand-in for NVIDIA's library.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_common::api::parse_timestamp;
use sluice_tests::{Dev, DevOptions, binaries, eventually, host_of_l40s};

const TERMS: &str = "\
kind: policy
pool: default
subject: low
---
kind: policy
pool: default
subject: vip
priority: 10
";

/// A cluster on a host with so many GPUs, whose file can be changed.
struct GpuHost {
    dev: Dev,
    folder: tempfile::TempDir,
    file: Value,
}

impl GpuHost {
    /// The process that writes its pid to [`GpuHost::pid_file`] uses the first GPU, and its memory lingers.
    fn with(gpus: usize, linger: &Value, variables: &[(&'static str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut hold = json!({"pid_file": folder.path().join("pid"), "used_mib": 20_000});
        let linger = linger.as_object().unwrap().clone();
        hold.as_object_mut().unwrap().extend(linger);
        let file = host_of_l40s(folder.path(), gpus, &hold);
        let path = folder.path().join("host.json");
        let terms = folder.path().join("terms.yaml");
        fs::write(&terms, TERMS).unwrap();
        let variables = variables.iter();
        let dev = Dev::with(DevOptions {
            gpus: Some((binaries().join("libsluice_nvml_standin.so"), path)),
            files: vec![terms],
            variables: variables
                .map(|(name, value)| (*name, (*value).to_owned()))
                .collect(),
            ..DevOptions::default()
        });
        Self { dev, folder, file }
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.path().join("pid")
    }

    /// Frees the held memory.
    fn let_go(&mut self) {
        self.file["gpus"][0]["holds"] = json!([]);
        self.rewrite();
    }

    fn rewrite(&self) {
        let path = self.folder.path().join("host.json");
        let beside = path.with_extension("new");
        fs::write(&beside, self.file.to_string()).unwrap();
        fs::rename(&beside, path).unwrap();
    }

    fn gpu(&self, index: usize) -> &str {
        self.file["gpus"][index]["uuid"].as_str().unwrap()
    }

    /// Submits a step of one GPU that runs until it is stopped; the first such step is seen on the GPU.
    fn submit(&self, id: &str, subject: &str) {
        let script = format!(
            "test -e {0} || echo $$ > {0}; exec sleep 1000",
            self.pid_file().display()
        );
        self.dev.ok(&[
            "submit",
            "--id",
            id,
            "--subject",
            subject,
            "--gpus",
            "1",
            "--",
            "sh",
            "-c",
            &script,
        ]);
    }

    fn node(&self) -> Value {
        self.dev.call("GET", "/v1/nodes", None).1["items"][0].clone()
    }

    /// Returns the reason why its first GPU is not granted.
    fn unfit(&self) -> Option<Value> {
        self.node()["unfit_gpus"].get(0).cloned()
    }

    fn events(&self) -> Vec<Value> {
        let (_, page) = self.dev.call("GET", "/v1/events?limit=1000", None);
        page["items"].as_array().unwrap().clone()
    }

    /// Returns the time of the first event of a kind about this attempt, in milliseconds.
    fn at(&self, kind: &str, attempt: &str) -> u64 {
        let events = self.events();
        let mut events = events.iter();
        let event = events
            .find(|event| event["type"] == kind && event["attempt"] == attempt)
            .unwrap();
        let at = event["at"].as_str().unwrap();
        parse_timestamp(at).unwrap().unix_millis()
    }
}

fn placed(step: &Value) -> &Value {
    &step["placements"][0]["gpus"][0]
}

#[test]
fn a_waiter_starts_when_the_gpu_was_seen_free_and_not_before() {
    let host = GpuHost::with(1, &json!({"linger_ms": 3000}), &[]);
    host.submit("first", "low");
    host.dev.step_in("first", &["running"]);
    eventually("its number", || fs::read_to_string(host.pid_file()).ok());
    host.submit("second", "vip");
    let second = host.dev.step_in("second", &["running"]);
    assert_eq!(placed(&second), host.gpu(0));
    let busy = host.at("released", "first.1") - host.at("ended", "first.1");
    assert!(busy >= 2900, "released after {busy} ms");
    assert!(host.at("allocated", "second.1") >= host.at("released", "first.1"));
    assert_eq!(host.unfit(), None, "it came free in time");
}

#[test]
fn inside_an_allocation_too_a_gpu_is_seen_free_before_the_next_step_has_it() {
    let variables = [("SLUICE_AGENT_GPU_RELEASE_TIMEOUT", "2s")];
    let mut host = GpuHost::with(1, &json!({"lingers_as": 4711}), &variables);
    let ask = [
        "allocate",
        "--gpus",
        "1",
        "--id",
        "held",
        "--subject",
        "low",
    ];
    host.dev.ok(&ask);
    host.dev.step_in("held", &["running"]);
    let script = format!("echo $$ > {}; exec sleep 1000", host.pid_file().display());
    let submit = |host: &GpuHost, id: &str, script: &str| {
        let of = ["submit", "--in", "held", "--subject", "low"];
        let flags = [&of[..], &["--id", id, "--gpus", "1", "--"]].concat();
        host.dev.ok(&[&flags[..], &["sh", "-c", script]].concat());
    };
    submit(&host, "first", &script);
    host.dev.step_in("first", &["running"]);
    eventually("its number", || fs::read_to_string(host.pid_file()).ok());
    submit(&host, "second", "true");
    host.dev.ok(&["cancel", "first", "--grace", "0s"]);
    let unfit = eventually("the quarantine", || host.unfit());
    assert_eq!(
        unfit["message"],
        "quarantined: it is still held by pid 4711"
    );
    let waits = host.dev.step_in("second", &["queued"]);
    let message = waits["reason"]["message"].as_str().unwrap();
    assert!(message.contains("1 of its GPUs is unusable"), "{message}");
    host.let_go();
    host.dev.step_in("second", &["succeeded"]);
    assert_eq!(host.unfit(), None);
    host.dev.step_in("held", &["running"]);
}

#[test]
fn a_gpu_that_does_not_come_free_is_quarantined_and_its_waiter_goes_elsewhere() {
    let variables = [("SLUICE_AGENT_GPU_RELEASE_TIMEOUT", "2s")];
    let mut host = GpuHost::with(2, &json!({"lingers_as": 4711}), &variables);
    host.submit("first", "low");
    let first = host.dev.step_in("first", &["running"]);
    assert_eq!(placed(&first), host.gpu(0));
    eventually("its number", || fs::read_to_string(host.pid_file()).ok());
    host.submit("other", "vip");
    host.dev.step_in("other", &["running"]);
    host.submit("second", "vip");
    let unfit = eventually("the quarantine", || host.unfit());
    assert_eq!(unfit["uuid"], host.gpu(0));
    assert_eq!(
        unfit["message"],
        "quarantined: it is still held by pid 4711"
    );
    assert_eq!(unfit["fault"]["quarantined"]["pids"], json!([4711]));

    // The resources are released in the accounts and granted to no step.
    eventually("its end", || {
        let events = host.events();
        let is_end = |event: &&Value| event["type"] == "released" && event["attempt"] == "first.1";
        events.iter().find(is_end).map(|_| ())
    });
    let second = host.dev.step_in("second", &["queued"]);
    let why = second["reason"]["message"].as_str().unwrap();
    assert!(
        why.contains("unusable") && why.contains("pid 4711"),
        "{why}"
    );
    let explained = host.dev.ok(&["explain", "second"]);
    assert!(
        explained.contains("unusable") && explained.contains("pid 4711"),
        "{explained}"
    );
    let told = host
        .dev
        .ok(&["describe", "node", host.node()["name"].as_str().unwrap()]);
    assert!(told.contains("held by pid 4711"), "{told}");
    assert!(host.dev.ok(&["get", "nodes"]).contains("1 unfit"));
    let events = host.dev.ok(&["get", "events"]);
    assert!(
        events.contains("quarantined (it is still held by pid 4711)"),
        "{events}"
    );

    host.dev.ok(&["cancel", "other"]);
    let second = host.dev.step_in("second", &["running"]);
    assert_eq!(placed(&second), host.gpu(1));
    host.let_go();
    let first = host.dev.step_in("first", &["running"]);
    assert_eq!(placed(&first), host.gpu(0), "it is free, and granted again");
    assert_eq!(host.unfit(), None);
}

#[test]
fn a_step_whose_gpu_falls_off_the_bus_fails_at_once() {
    let mut host = GpuHost::with(2, &json!({"linger_ms": 0}), &[]);
    host.submit("first", "low");
    let first = host.dev.step_in("first", &["running"]);
    assert_eq!(placed(&first), host.gpu(0));
    host.file["gpus"][0]["lost"] = true.into();
    host.rewrite();
    let first = host.dev.step_in("first", &["failed"]);
    assert_eq!(first["reason"]["code"], "gpu_lost");
    assert_eq!(host.unfit().unwrap()["fault"], "lost");
    assert_eq!(
        host.dev.ok(&[
            "run",
            "--subject",
            "low",
            "--gpus",
            "1",
            "--",
            "echo",
            "goes on"
        ]),
        "goes on\n"
    );
    host.file["gpus"][0]["lost"] = false.into();
    host.rewrite();
    eventually("it is back", || host.unfit().is_none().then_some(()));
}

#[test]
fn a_gpu_that_others_use_is_shown_and_not_granted() {
    let mut host = GpuHost::with(2, &json!({"linger_ms": 0}), &[]);
    host.file["gpus"][0]["processes"] = json!([{"pid": 4711, "used_bytes": 1 << 30}]);
    host.let_go();
    let unfit = eventually("the stranger", || host.unfit());
    assert_eq!(
        unfit["message"],
        "foreign: used by pid 4711, which no step started"
    );
    let (_, platforms) = host.dev.call("GET", "/v1/pools/default/platforms", None);
    let kind = &platforms["items"][0];
    assert_eq!(
        (&kind["gpus"], &kind["used"], &kind["free"]),
        (&json!(2), &json!(0), &json!(1)),
        "what others use is neither used by steps nor free: {kind}"
    );
    host.submit("first", "low");
    let first = host.dev.step_in("first", &["running"]);
    assert_eq!(placed(&first), host.gpu(1));
    host.file["gpus"][0]["processes"] = json!([]);
    host.rewrite();
    host.submit("second", "low");
    let second = host.dev.step_in("second", &["running"]);
    assert_eq!(placed(&second), host.gpu(0));
}

#[test]
fn a_gpu_that_fails_is_quarantined_and_a_host_that_fails_is_drained() {
    let mut host = GpuHost::with(2, &json!({"linger_ms": 0}), &[]);
    let raise = |host: &mut GpuHost, xids: Value| {
        host.file["gpus"][0]["xids"] = xids;
        host.rewrite();
    };
    // Errors before the agent listened count as reported.
    eventually("the first reading", || {
        let node = host.node();
        node["inventory"]["gpus"][0]["reading"]
            .is_object()
            .then_some(())
    });
    raise(&mut host, json!([31, 48]));
    let unfit = eventually("the quarantine", || host.unfit());
    assert_eq!(
        unfit["message"],
        "quarantined: XID 48, double bit ECC error"
    );
    assert_eq!(host.node()["cordon"], Value::Null);
    raise(&mut host, json!([31, 48, 79]));
    let why = eventually("the drain", || {
        host.node()["cordon"]["reason"].as_str().map(str::to_owned)
    });
    let expected = format!(
        "closed by itself: GPU {}: XID 79, GPU has fallen off the bus",
        host.gpu(0)
    );
    assert_eq!(why, expected);
    // Another cause on a GPU that does not tell its UUID, after an admin opened the host.
    let name = host.node()["name"].as_str().unwrap().to_owned();
    host.dev.ok(&["uncordon", &name]);
    host.file["gpus"][1]["errors"] = json!({"nvmlDeviceGetUUID": "UNKNOWN"});
    host.file["gpus"][1]["xids"] = json!([119]);
    host.rewrite();
    let why = eventually("the next drain", || {
        host.node()["cordon"]["reason"].as_str().map(str::to_owned)
    });
    assert!(
        why.contains(host.gpu(1)) && why.contains("XID 119"),
        "{why}"
    );
}

#[test]
fn an_admin_closes_one_gpu_and_opens_it() {
    let host = GpuHost::with(2, &json!({"linger_ms": 0}), &[]);
    let node = host.node()["name"].as_str().unwrap().to_owned();
    let said = host
        .dev
        .ok(&["cordon", &node, "--gpu", "0", "--reason", "a loud fan"]);
    assert!(said.contains("1 of its GPUs unfit"), "{said}");
    assert_eq!(host.unfit().unwrap()["message"], "cordoned: a loud fan");
    host.submit("first", "low");
    assert_eq!(
        placed(&host.dev.step_in("first", &["running"])),
        host.gpu(1)
    );
    let refused = host.dev.sluice(&["cordon", &node, "--gpu", "7"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("has no GPU `7`"), "{refused:?}");
    host.dev.ok(&["uncordon", &node, "--gpu", host.gpu(0)]);
    host.submit("second", "low");
    assert_eq!(
        placed(&host.dev.step_in("second", &["running"])),
        host.gpu(0)
    );
}

#[test]
fn a_gpu_that_failed_comes_back_when_an_admin_wants_it_and_it_answers() {
    let mut host = GpuHost::with(1, &json!({"linger_ms": 0}), &[]);
    let node = host.node()["name"].as_str().unwrap().to_owned();
    eventually("the first reading", || {
        let node = host.node();
        node["inventory"]["gpus"][0]["reading"]
            .is_object()
            .then_some(())
    });
    let fail = |host: &mut GpuHost, xids: Value| {
        host.file["gpus"][0]["xids"] = xids;
        host.rewrite();
        let unfit = eventually("the quarantine", || host.unfit());
        assert_eq!(
            unfit["message"],
            "quarantined: XID 48, double bit ECC error"
        );
    };
    fail(&mut host, json!([48]));
    host.submit("first", "low");
    host.dev.step_in("first", &["queued"]);
    host.dev.ok(&["uncordon", &node, "--gpu", "0"]);
    host.dev.step_in("first", &["running"]);
    assert_eq!(host.unfit(), None);
    let said = host.dev.ok(&["get", "events"]);
    assert!(said.contains("uncordoned"), "{said}");

    fail(&mut host, json!([48, 48]));
    host.file["gpus"][0]["lost"] = true.into();
    host.rewrite();
    host.dev.ok(&["uncordon", &node, "--gpu", host.gpu(0)]);
    eventually("it is lost", || {
        (host.unfit()?["fault"] == "lost").then_some(())
    });
    host.file["gpus"][0]["lost"] = false.into();
    host.rewrite();
    let unfit = eventually("its answer", || {
        host.unfit().filter(|unfit| unfit["fault"] != "lost")
    });
    assert_eq!(
        unfit["message"], "quarantined: XID 48, double bit ECC error",
        "one that did not answer is forgiven nothing"
    );
}

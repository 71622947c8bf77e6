//! Plays a scenario in a running `sluice dev`: its hosts are declared, its documents go over HTTP, and running steps
//! are processes that end on command. The scheduler on paper plays the same cases in `coordinator-core`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_simulator::scenario::{
    Capacity, Case, End, Event, NodePut, PolicyPut, PoolPut, SubmitEvent,
};
use sluice_tests::{Dev, DevOptions, children_of, eventually, eventually_within, kill};

/// Longest simulated time that is waited for.
const MAX_ADVANCE_SECS: u64 = 5;
/// Most GPUs of a declared host.
const MAX_GPUS: u64 = 256;
/// Longer than everything that a case does at once takes on a busy machine; only a case that hangs reaches it.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
/// Timeouts under which a host is lost as soon as possible, for cases that lose one.
const SHORT_TERMS: [(&str, &str); 5] = [
    ("SLUICE_LEASE", "2s"),
    ("SLUICE_STOP_LIMIT", "1s"),
    ("SLUICE_HEARTBEAT", "300ms"),
    ("SLUICE_UNREACHABLE_AFTER", "2s"),
    ("SLUICE_LOST_AFTER", "23s"),
];

/// Returns why a case cannot be played with declared hosts in real time, if it cannot.
pub(super) fn obstacle(case: &Case) -> Option<String> {
    let hosts = hosts(case);
    if hosts.is_empty() {
        return Some("it has no host, and this machine would be one".to_owned());
    }
    if let Some(host) = hosts.iter().find(|host| host.gpus > MAX_GPUS) {
        return Some(format!(
            "host `{}` has more than {MAX_GPUS} GPUs",
            host.name
        ));
    }
    let uneven = |host: &&NodePut| host.mcpu.is_some_and(|mcpu| !mcpu.is_multiple_of(1000));
    if let Some(host) = hosts.iter().find(uneven) {
        return Some(format!("host `{}` has a part of a core", host.name));
    }
    case.events.iter().find_map(|event| match event {
        Event::Advance { seconds } if *seconds > MAX_ADVANCE_SECS => {
            Some(format!("{seconds} s would have to pass"))
        }
        Event::Submit(submit) if submit.user.is_some() => {
            Some("callers without a login are no users".to_owned())
        }
        _ => None,
    })
}

/// Returns the hosts of a case: the named ones, or one for each pool with all that the pool declares.
fn hosts(case: &Case) -> Vec<NodePut> {
    let one_each = || {
        let declared = case.pools.iter().filter_map(|pool| match &pool.capacity {
            Capacity::Declared(table) => Some((pool, table)),
            Capacity::Detected => None,
        });
        let host = declared.map(|(pool, table)| {
            let of = |key: &str| table.get(key).copied();
            NodePut {
                name: pool.name.as_str().parse().unwrap(),
                pool: pool.name.clone(),
                gpus: of("mgpu").unwrap_or(0) / 1000,
                mig: BTreeMap::new(),
                gpu_model: None,
                mcpu: of("mcpu"),
                memory_mb: of("memory_mb"),
                storage_mb: of("storage_mb"),
                labels: BTreeMap::new(),
            }
        });
        host.collect()
    };
    case.nodes.clone().unwrap_or_else(one_each)
}

/// Whether a host is lost in it, which takes as long as a lease may last.
pub(super) fn loses_a_host(case: &Case) -> bool {
    let mut events = case.events.iter();
    events.any(|event| matches!(event, Event::NodeLost { .. }))
}

/// Plays a case to its end; returns the duration of its events without the time that was to pass.
pub(super) fn play(case: &Case) -> (End, Duration) {
    let mut live = LiveCase::start(case);
    live.put_topology(case);
    for pool in &case.pools {
        live.put_pool(pool);
    }
    live.unbind_the_command_line(case);
    for policy in &case.policies {
        live.put_policy(policy);
    }
    let begun = Instant::now();
    for (n, event) in (1..).zip(&case.events) {
        live.on_event(event);
        live.settle(&format!("event {n} of {} to settle", case.id));
    }
    let took = begun.elapsed().saturating_sub(advanced(case));
    (live.end(), took)
}

/// Returns how much time is to pass in a case.
fn advanced(case: &Case) -> Duration {
    let spans = case.events.iter().filter_map(|event| match event {
        Event::Advance { seconds } => Some(Duration::from_secs(*seconds)),
        _ => None,
    });
    spans.sum()
}

/// A case that is being played.
struct LiveCase {
    dev: Dev,
    folder: tempfile::TempDir,
    end: End,
    /// Events up to here were read.
    read: u64,
    /// Agents that were stopped, by host.
    frozen: BTreeMap<String, u32>,
}

impl LiveCase {
    fn start(case: &Case) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts.yaml");
        let documents: Vec<String> = hosts(case).iter().map(document).collect();
        fs::write(&file, documents.join("\n---\n")).unwrap();
        let terms = SHORT_TERMS.map(|(name, value)| (name, value.to_owned()));
        let dev = Dev::with(DevOptions {
            files: vec![file],
            variables: match loses_a_host(case) {
                true => terms.to_vec(),
                false => Vec::new(),
            },
            ..DevOptions::default()
        });
        Self {
            dev,
            folder,
            end: End::default(),
            read: 0,
            frozen: BTreeMap::new(),
        }
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.dev.call("GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.dev.call("POST", path, Some(&body.to_string()))
    }

    /// Removes the default policies that `dev` makes for its command line, which the scenario does not have.
    fn unbind_the_command_line(&self, case: &Case) {
        let pools: BTreeSet<String> = hosts(case).iter().map(|h| h.pool.to_string()).collect();
        for pool in pools {
            let path = format!("/v1/pools/{pool}/policies/dev");
            let (status, body) = self.dev.call("DELETE", &path, None);
            assert_eq!(status, 204, "{body}");
        }
    }

    /// Applies a document; returns the error if it was refused.
    fn apply(&self, document: &Value) -> Result<(), Value> {
        let (status, body) = self.post("/v1/apply?force=true", &json!({ "put": [document] }));
        match status {
            200 => Ok(()),
            _ => Err(body["error"].clone()),
        }
    }

    fn put_topology(&self, case: &Case) {
        if !case.topology.is_empty() {
            let levels = &case.topology.levels;
            let document = json!({ "kind": "topology", "levels": levels });
            self.apply(&document).unwrap();
        }
    }

    fn put_pool(&self, pool: &PoolPut) {
        let capacity = match &pool.capacity {
            Capacity::Detected => json!({}),
            Capacity::Declared(table) => json!(table),
        };
        let min_runtime = format!("{}s", pool.min_runtime);
        let document = json!({
            "kind": "pool", "name": pool.name, "capacity": capacity, "min_runtime": min_runtime,
            "fair_share": pool.fair_share.map(|it| json!({"half_life": it.half_life.to_string()})),
            "fair_users": pool.fair_users,
            "defaults": {"cpu": 0, "memory": "0B"},
            "priority_preemption": pool.priority_preemption, "placement": pool.placement,
        });
        self.apply(&document).unwrap();
    }

    fn put_policy(&mut self, policy: &PolicyPut) {
        let document = json!({
            "kind": "policy", "pool": policy.pool, "subject": policy.subject, "priority": policy.priority,
            "reserved": policy.reserved.clone().unwrap_or_default(),
            "limit": policy.limit.clone().unwrap_or_default(), "weight": policy.weight,
        });
        let subject = policy.subject.to_string();
        match self.apply(&document) {
            Ok(()) => {
                self.end.policy_accepted.insert(subject);
            }
            Err(error) => {
                let why = error["message"].as_str().unwrap().to_owned();
                self.end.reasons.insert(subject.clone(), why);
                self.end.policy_refused.insert(subject);
            }
        }
    }

    fn on_event(&mut self, event: &Event) {
        match event {
            Event::Submit(submit) => self.submit(submit),
            Event::Finish { request } => self.finish(request.as_str()),
            Event::NodeLost { node } => self.lose(node.as_str()),
            Event::NodeBack { node } => self.bring_back(node.as_str()),
            Event::Drain { node } => {
                let (status, body) = self.post(&format!("/v1/nodes/{node}:drain"), &json!({}));
                assert_eq!(status, 200, "{body}");
            }
            Event::Advance { seconds } => {
                let (begun, span) = (Instant::now(), Duration::from_secs(*seconds));
                eventually("time to pass", || (begun.elapsed() >= span).then_some(()));
            }
            Event::PutPolicy(policy) => self.put_policy(policy),
            Event::PutPool(pool) => self.put_pool(pool),
        }
    }

    /// Returns the file whose appearance ends a request.
    fn go(&self, request: &str) -> PathBuf {
        self.folder.path().join(format!("{request}.go"))
    }

    fn submit(&self, submit: &SubmitEvent) {
        let go = self.go(submit.request.as_str());
        let script = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
        let body = json!({
            "id": submit.request, "subject": submit.subject, "pool": submit.pool, "platform": submit.platform,
            "command": ["sh", "-c", script], "resources": resources(submit), "nodes": submit.nodes,
            "priority": submit.priority, "retries": submit.retries, "on_preempt": submit.on_preempt,
            "free_preemptions": submit.free_preemptions, "grace_period": "2s",
            "timeout": submit.timeout.map(|it| it.to_string()),
            "within": submit.within, "prefer_within": submit.prefer_within,
        });
        let (status, body) = self.post("/v1/steps", &body);
        assert_eq!(status, 201, "{body}");
    }

    fn finish(&self, request: &str) {
        let step = self.get(&format!("/v1/steps/{request}"));
        if step["state"] == "running" {
            fs::write(self.go(request), "").unwrap();
            self.dev.step_in(request, &["succeeded"]);
        } else {
            let (status, body) = self.post(&format!("/v1/steps/{request}:cancel"), &json!({}));
            assert!([200, 202].contains(&status), "{status} {body}");
        }
    }

    /// Stops a host's agent, and waits until the host is lost.
    fn lose(&mut self, node: &str) {
        let config = format!("/hosts/{node}/");
        let agents = children_of(self.dev.pid()).into_iter();
        let mut agents = agents.filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            line.contains("sluice-agent") && line.contains(&config)
        });
        let agent = agents.next().expect("each host has an agent");
        kill(agent, Signal::SIGSTOP);
        self.frozen.insert(node.to_owned(), agent);
        self.await_node(node, "lost");
    }

    fn bring_back(&mut self, node: &str) {
        if let Some(agent) = self.frozen.remove(node) {
            kill(agent, Signal::SIGCONT);
        }
        self.await_node(node, "ready");
        // "A host takes work again", also one that was drained.
        let (status, body) = self.post(&format!("/v1/nodes/{node}:uncordon"), &json!({}));
        assert_eq!(status, 200, "{body}");
    }

    fn await_node(&self, node: &str, state: &str) {
        eventually(&format!("node {node} to be {state}"), || {
            let node = self.get(&format!("/v1/nodes/{node}"));
            (node["state"] == state).then_some(())
        });
    }

    /// Waits until the last event has had all its effects: nothing is on its way to or from a host, and nothing has
    /// happened since that was seen.
    fn settle(&mut self, what: &str) {
        eventually_within(SETTLE_LIMIT, what, || {
            let before = self.last_event();
            let steps = self.steps();
            let stands = steps.iter().all(|step| self.stands(step));
            (stands && self.last_event() == before).then_some(())
        });
    }

    fn steps(&self) -> Vec<Value> {
        let page = self.get("/v1/steps?limit=1000");
        assert!(page["next_cursor"].is_null(), "no case has so many steps");
        page["items"].as_array().unwrap().clone()
    }

    /// Whether a step waits, runs or is over, with its resources accordingly.
    fn stands(&self, step: &Value) -> bool {
        let state = step["state"].as_str().unwrap();
        if !["queued", "running", "suspended", "rejected"].contains(&state)
            && step["finished_at"].is_null()
        {
            return false;
        }
        let attempts = step["attempts"].as_array().unwrap();
        let holds = usize::from(["running", "suspended"].contains(&state));
        attempts.iter().rev().skip(holds).all(|attempt| {
            let mut placements = attempt["placements"].as_array().unwrap().iter();
            let is_lost = |node: &Value| self.frozen.contains_key(node.as_str().unwrap());
            !attempt["released_at"].is_null() || placements.any(|place| is_lost(&place["node"]))
        })
    }

    /// Returns the number of the last event.
    fn last_event(&mut self) -> u64 {
        loop {
            let page = self.get(&format!("/v1/events?since={}", self.read));
            let items = page["items"].as_array().unwrap();
            let Some(last) = items.last() else {
                return self.read;
            };
            self.read = last["seq"].as_u64().unwrap();
        }
    }

    fn end(mut self) -> End {
        for step in self.steps() {
            self.note(&step);
        }
        std::mem::take(&mut self.end)
    }

    fn note(&mut self, step: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let id = text(&step["id"]);
        let list = match step["state"].as_str().unwrap() {
            "running" => Some(&mut self.end.allocated),
            "queued" => Some(&mut self.end.queued),
            "suspended" => Some(&mut self.end.suspended),
            "rejected" => {
                let why = text(&step["reason"]["code"]);
                self.end.reasons.insert(id.clone(), why);
                Some(&mut self.end.rejected)
            }
            "failed" if step["reason"]["code"] == "host_lost" => Some(&mut self.end.failed),
            _ => None,
        };
        if let Some(list) = list {
            list.insert(id.clone());
        }
        if !step["preempted_by"].is_null() {
            self.end.preempted.insert(id.clone());
        }
        let placements = step["placements"].as_array().unwrap();
        if !placements.is_empty() {
            let nodes = placements.iter().map(|place| text(&place["node"]));
            self.end.placed.insert(id, nodes.collect());
        }
    }
}

impl Drop for LiveCase {
    fn drop(&mut self) {
        // A stopped process would not see that its `dev` has gone.
        for agent in self.frozen.values() {
            kill(*agent, Signal::SIGCONT);
        }
    }
}

/// Returns a host as a document for `dev`.
fn document(host: &NodePut) -> String {
    let mut document = json!({
        "kind": "host", "name": host.name, "pool": host.pool, "gpus": host.gpus, "mig": host.mig, "labels": host.labels,
        "gpu_model": host.gpu_model.as_deref().unwrap_or("H100"),
    });
    let bounded = [
        ("mcpu", host.mcpu),
        ("memory_mb", host.memory_mb),
        ("storage_mb", host.storage_mb),
    ];
    for (key, amount) in bounded {
        if let Some(amount) = amount {
            document[key] = amount.into();
        }
    }
    document.to_string()
}

/// Returns the resources of a request, in the fields of the API.
fn resources(submit: &SubmitEvent) -> Value {
    let mut settings = json!({ "preemptible": submit.preemptible, "mig": submit.mig });
    let mut custom = BTreeMap::new();
    for (key, amount) in &submit.resources {
        match key.as_str() {
            "mgpu" => settings["gpu_count"] = (*amount / 1000).into(),
            "mcpu" => {
                let cores = u32::try_from(*amount).expect("no host has millions of cores");
                settings["cpu_count"] = (f64::from(cores) / 1000.0).into();
            }
            "memory_mb" => settings["memory"] = format!("{amount}MB").into(),
            other => {
                custom.insert(other.to_owned(), *amount);
            }
        }
    }
    settings["pool_resources"] = json!(custom);
    settings
}

//! A scenario, played on a market alone: victims are released and waiters settle in the same instant.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::Value;
use sluice_common::amount::{Amounts, GPU, Key, MCPU, MEMORY_MB, STEP_RUN, STORAGE_MB};
use sluice_common::id::{AttemptId, NodeName, PoolName, StepId, Subject};
use sluice_common::time::{Span, Time};

use crate::market::request::demand;
use crate::market::{Market, Move, Policy, PoolTerms, Request, Run, Table};
use crate::state::HostUnits;

const UNLIMITED: u64 = 1 << 50;

#[derive(Default)]
pub(super) struct Play {
    market: Market,
    now: Time,
    place: u64,
    retries: BTreeMap<StepId, u64>,
    numbers: BTreeMap<StepId, u32>,
    preempted: BTreeSet<String>,
    rejected: BTreeSet<String>,
    failed: BTreeSet<String>,
    accepted: Vec<String>,
    refused: Vec<String>,
    placed: BTreeMap<String, Vec<String>>,
    capacity: BTreeMap<NodeName, (PoolName, HostUnits)>,
}

fn text(value: &Value, key: &str) -> String {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} in {value}"))
        .to_string()
}

fn pool_name(value: &Value, key: &str) -> PoolName {
    PoolName::new(text(value, key)).unwrap()
}

fn table(value: &Value) -> Table {
    let map = value.as_object().into_iter().flatten();
    map.filter_map(|(key, n)| Some((Key::new(key.as_str()).unwrap(), n.as_u64()?)))
        .collect()
}

fn amounts(value: &Value) -> Amounts {
    table(value).into_iter().collect()
}

impl Play {
    pub(super) fn set_up(case: &Value) -> Self {
        let mut play = Self {
            now: Time::from_unix_millis(1_000_000_000),
            ..Self::default()
        };
        for pool in case["pools"].as_array().unwrap() {
            play.put_pool(pool);
            if case.get("nodes").is_none() {
                let capacity = amounts(&pool["capacity"]);
                play.put_host(&text(pool, "name"), &pool_name(pool, "name"), &capacity);
            }
        }
        for node in case["nodes"].as_array().into_iter().flatten() {
            let mut capacity = amounts(node);
            capacity.set(Key::new(GPU).unwrap(), node["gpus"].as_u64().unwrap_or(0));
            play.put_host(&text(node, "name"), &pool_name(node, "pool"), &capacity);
        }
        for policy in case["policies"].as_array().into_iter().flatten() {
            play.put_policy(policy);
        }
        play
    }

    fn put_pool(&mut self, pool: &Value) {
        let terms = PoolTerms {
            declared: table(&pool["capacity"]),
            min_runtime: Span::from_secs(pool["min_runtime"].as_u64().unwrap_or(0)),
        };
        self.market.put_pool(&pool_name(pool, "name"), terms);
    }

    fn put_host(&mut self, name: &str, pool: &PoolName, capacity: &Amounts) {
        let mut units = capacity.clone();
        for key in [MCPU, MEMORY_MB, STORAGE_MB] {
            if units.get(key) == 0 {
                units.set(Key::new(key).unwrap(), UNLIMITED);
            }
        }
        let node = NodeName::new(name).unwrap();
        let units = HostUnits::of(&units).with_steps(UNLIMITED);
        self.market
            .put_host(&node, pool, units, HostUnits::default(), true);
        self.capacity.insert(node, (pool.clone(), units));
    }

    fn open(&mut self, name: &str, open: bool) {
        let node = NodeName::new(name).unwrap();
        let (pool, units) = self.capacity[&node].clone();
        self.market
            .put_host(&node, &pool, units, HostUnits::default(), open);
    }

    fn put_policy(&mut self, policy: &Value) {
        let pool = pool_name(policy, "pool");
        let subject = Subject::new(text(policy, "subject")).unwrap();
        let terms = Policy {
            priority: policy["priority"].as_u64().unwrap_or(0),
            reserved: table(&policy["reserved"]),
            limit: table(&policy["limit"]),
        };
        match self.market.pool(&pool).unwrap().vet(&subject, &terms) {
            Ok(()) => {
                self.market.put_policy(&pool, &subject, terms);
                self.accepted.push(subject.to_string());
            }
            Err(_) => self.refused.push(subject.to_string()),
        }
    }

    pub(super) fn play(&mut self, event: &Value) {
        match text(event, "op").as_str() {
            "submit" => self.submit(event),
            "finish" => self.finish(&text(event, "request")),
            "node_lost" => self.lose(&text(event, "node")),
            "node_back" => self.open(&text(event, "node"), true),
            "drain" => self.open(&text(event, "node"), false),
            "advance" => self.now = self.now + Span::from_secs(event["seconds"].as_u64().unwrap()),
            "put_policy" => self.put_policy(event),
            "put_pool" => self.put_pool(event),
            op => panic!("no such op: {op}"),
        }
        self.settle();
    }

    fn submit(&mut self, event: &Value) {
        self.place += 1;
        let mut each = amounts(&event["resources"]);
        if each.get(STEP_RUN) == 0 {
            each = each.with(STEP_RUN, 1);
        }
        let hosts = u32::try_from(event["nodes"].as_u64().unwrap_or(1)).unwrap();
        let step = StepId::new(text(event, "request")).unwrap();
        let request = Request {
            step: step.clone(),
            subject: Subject::new(text(event, "subject")).unwrap(),
            place: self.place,
            priority: event["priority"].as_i64().unwrap_or(0),
            preemptible: event["preemptible"].as_bool().unwrap_or(true),
            hosts,
            each: HostUnits::of(&each),
            demand: demand(&each, hosts),
            pool: event["pool"]
                .as_str()
                .map(|name| PoolName::new(name).unwrap()),
        };
        self.retries
            .insert(step, event["retries"].as_u64().unwrap_or(0));
        match self.market.admit(&request, false) {
            Ok(()) => self.market.enqueue(request),
            Err(_) => {
                self.rejected.insert(request.step.to_string());
            }
        }
    }

    fn finish(&mut self, name: &str) {
        let step = StepId::new(name).unwrap();
        self.market.dequeue(&step);
        let run = self.market.runs.keys().find(|id| id.step == step).cloned();
        if let Some(run) = run {
            self.release(&run);
        }
    }

    fn release(&mut self, id: &AttemptId) {
        let holding = self.market.run(id).unwrap().holding.clone();
        for node in &holding {
            self.market.release(id, node);
        }
    }

    fn lose(&mut self, name: &str) {
        self.open(name, false);
        let node = NodeName::new(name).unwrap();
        let runs = self
            .market
            .runs
            .iter()
            .filter(|(_, run)| run.holding.contains(&node));
        let runs: Vec<AttemptId> = runs.map(|(id, _)| id.clone()).collect();
        for id in runs {
            if !self.again(&id) {
                self.failed.insert(id.step.to_string());
            }
        }
    }

    /// Releases a run and lets its step wait again, if it has a retry left.
    fn again(&mut self, id: &AttemptId) -> bool {
        let request = self.market.run(id).unwrap().request.clone();
        self.release(id);
        let left = self.retries.get_mut(&id.step).unwrap();
        if *left == 0 {
            return false;
        }
        *left -= 1;
        self.market.enqueue(request);
        true
    }

    fn settle(&mut self) {
        let pools: Vec<PoolName> = self.market.pools.keys().cloned().collect();
        for _ in 0..10_000 {
            let now = self.now;
            let market = &self.market;
            let Some(next) = pools.iter().find_map(|pool| market.next_move(pool, now)) else {
                return self.check();
            };
            self.make(next);
            self.check();
        }
        panic!("it thrashes");
    }

    fn make(&mut self, next: Move) {
        match next {
            Move::Grant {
                step,
                pool,
                hosts,
                backfill,
            } => {
                let request = self.market.request(&step).unwrap().clone();
                self.market.dequeue(&step);
                let number = self.numbers.entry(step.clone()).or_default();
                *number += 1;
                let id = AttemptId {
                    step: step.clone(),
                    number: *number,
                };
                self.placed.insert(
                    step.to_string(),
                    hosts.iter().map(ToString::to_string).collect(),
                );
                let run = Run {
                    request,
                    pool,
                    holding: hosts.into_iter().collect(),
                    granted: self.now,
                    started: Some(self.now),
                    stopping: false,
                    backfill,
                };
                self.market.hold(&id, run);
            }
            Move::Nominate {
                step,
                nomination,
                victims,
            } => {
                self.market.nominate(&step, nomination);
                for id in victims {
                    self.market.stop(&id);
                    self.preempted.insert(id.step.to_string());
                    self.again(&id);
                }
            }
            Move::Withdraw { step } => self.market.withdraw(&step),
        }
    }

    /// Nothing is granted that is not there, and what is promised in share is kept.
    fn check(&self) {
        for (name, pool) in &self.market.pools {
            for (node, host) in pool.hosts() {
                let held = host
                    .runs
                    .iter()
                    .map(|id| self.market.run(id).unwrap().request.each);
                let held = held.fold(HostUnits::default(), HostUnits::plus);
                assert!(host.capacity.cover(held), "{node} holds {held:?}");
            }
            for (key, used) in pool.used().iter() {
                let declared = pool.declared(key.as_str());
                assert!(declared.is_none_or(|d| used <= d), "{name}: {used} {key}");
            }
            for (subject, policy) in pool.policies() {
                let (used, firm) = pool.used_by(subject).unwrap();
                for (key, limit) in &policy.limit {
                    assert!(
                        used.get(key.as_str()) <= *limit,
                        "{subject} over its limit of {key}"
                    );
                }
                for (key, reserved) in &policy.reserved {
                    assert!(
                        firm.get(key.as_str()) <= *reserved,
                        "{subject}: firm above reserved {key}"
                    );
                }
            }
        }
    }

    /// What must hold once nothing more can be done: nobody was stopped in vain.
    pub(super) fn check_settled(&self) {
        for (step, nomination) in &self.market.nominations {
            assert!(!nomination.firm, "{step} waits for nobody: {nomination:?}");
        }
        for (name, pool) in &self.market.pools {
            assert!(pool.firm.is_empty() && pool.leaving.is_empty(), "{name}");
            let promised = pool
                .soft
                .as_ref()
                .is_none_or(|step| self.market.nomination(step).is_some());
            assert!(promised, "{name}: {:?}", pool.soft);
        }
    }

    /// One of those that run.
    pub(super) fn nth_running(&self, nth: u64) -> Option<StepId> {
        let ids: Vec<&AttemptId> = self.market.runs.keys().collect();
        let at = usize::try_from(nth).unwrap().checked_rem(ids.len())?;
        Some(ids[at].step.clone())
    }

    fn found(&self, what: &str) -> BTreeSet<String> {
        match what {
            "allocated" => self
                .market
                .runs
                .keys()
                .map(|id| id.step.to_string())
                .collect(),
            "queued" => self
                .market
                .requests
                .keys()
                .map(ToString::to_string)
                .collect(),
            "preempted" => self.preempted.clone(),
            "rejected" => self.rejected.clone(),
            "suspended" => BTreeSet::new(),
            "policy_accepted" => self.accepted.iter().cloned().collect(),
            "policy_refused" => self.refused.iter().cloned().collect(),
            what => panic!("no such expectation: {what}"),
        }
    }

    fn differs(&self, expected: &Value) -> Option<String> {
        let expected = expected.as_object().unwrap();
        expected.iter().find_map(|(what, wanted)| {
            if what == "placed" {
                let wanted = wanted.as_object().unwrap().iter();
                return wanted
                    .map(|(step, node)| (step, node.as_str().unwrap()))
                    .find_map(|(step, node)| {
                        let at = &self.placed[step];
                        (at[..] != [node]).then(|| format!("{step} is on {at:?}, not {node}"))
                    });
            }
            let wanted: BTreeSet<String> = wanted
                .as_array()
                .unwrap()
                .iter()
                .map(|v| v.as_str().unwrap().to_string())
                .collect();
            let found = self.found(what);
            (found != wanted).then(|| format!("{what}: {found:?}, not {wanted:?}"))
        })
    }
}

#[test]
fn every_published_case_is_decided_as_written() {
    let cases: Vec<Value> = serde_json::from_str(include_str!(
        "../../../../../tests/scenarios/published.json"
    ))
    .unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let mut play = Play::set_up(case);
        for event in case["events"].as_array().into_iter().flatten() {
            play.play(event);
        }
        let options = case
            .get("expected_any_of")
            .and_then(Value::as_array)
            .cloned();
        let options = options.unwrap_or_else(|| [case["expected"].clone()].into());
        let differences: Vec<String> = options
            .iter()
            .filter_map(|option| play.differs(option))
            .collect();
        if differences.len() == options.len() {
            wrong.push(format!(
                "{}: {}",
                text(case, "id"),
                differences.join(" or ")
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

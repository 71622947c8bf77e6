//! Tests that a run behaves like a cluster: rules of pools, platforms, timeouts, freezing.

use coordinator_core::record;
use coordinator_core::{NodeChange, check};
use sluice_common::api::PutDocument;
use sluice_common::inventory::Gpu;
use sluice_common::pool::{PolicySpec, PoolSpec};
use sluice_common::pool_rules::{StepDefaults, StepMaxima};
use sluice_common::request::{ResourceSettings, StepRequest};
use sluice_common::shared::Shared;
use sluice_common::state::StepState;
use sluice_common::step::OnPreempt;

use super::*;

const HOUR: Span = Span::from_secs(3600);

/// A run and its records.
struct TestRun {
    run: TraceRun,
    records: Vec<LogEntry>,
}

impl TestRun {
    /// Makes one host of two GPUs of a model in a pool with these terms, in which `a` has the higher priority than
    /// `b`.
    fn new(pool: PoolSpec) -> Self {
        let mut cluster = Self {
            run: TraceRun::new(Time::default()),
            records: vec![],
        };
        cluster.put(vec![PutDocument::pool("p", PoolSpec::default())]);
        cluster.join("n");
        let of = |subject: &str, priority: u64| {
            let priority = PolicySpec {
                priority,
                ..PolicySpec::default()
            };
            PutDocument::policy("p", subject, priority)
        };
        cluster.put(vec![PutDocument::pool("p", pool), of("a", 1), of("b", 0)]);
        cluster
    }

    fn join(&mut self, node: &str) {
        let gpu = |index: u32| Gpu {
            index,
            uuid: index.to_string(),
            model: "H100".into(),
            platform: "h100".into(),
            ..Gpu::default()
        };
        let inventory = Inventory {
            cpus: 8,
            memory_bytes: 8_000_000_000,
            gpus: vec![gpu(0), gpu(1)],
            ..Inventory::default()
        };
        let (node, pool) = (NodeName::new(node).unwrap(), PoolName::new("p").unwrap());
        let joined = self.run.join(node, pool, BTreeMap::new(), inventory);
        assert_eq!(joined, Ok(()));
    }

    fn put(&mut self, documents: Vec<PutDocument>) {
        assert_eq!(self.run.put(documents), Ok(()));
    }

    fn submit(&mut self, id: &str, request: StepRequest, lasts: Span) -> Result<bool, Refusal> {
        let step = NewStep::new(StepId::new(id).unwrap(), request.check().unwrap());
        let submitted = self.run.submit(step, Some(lasts));
        self.look();
        submitted
    }

    fn pass(&mut self, span: Span) {
        let until = self.run.now() + span;
        while self.run.pass(until) {
            self.look();
        }
    }

    fn look(&mut self) {
        check(&self.run.core).unwrap();
        self.records.extend(self.run.records());
    }

    /// The end of a step: state, reason and time.
    fn ended(&self, id: &str) -> Option<(StepState, &str, Span)> {
        self.records.iter().find_map(|stamped| {
            let Record::StepEnded(record::StepEnded {
                step,
                state,
                reason,
            }) = &stamped.record
            else {
                return None;
            };
            let at = stamped.at.since(Time::default());
            (step.as_str() == id).then(|| (*state, reason.code().as_str(), at))
        })
    }

    fn rejected(&self, id: &str) -> Option<&str> {
        self.records.iter().find_map(|stamped| {
            let Record::StepRejected(record::StepRejected { step, reason, .. }) = &stamped.record
            else {
                return None;
            };
            (step.as_str() == id).then(|| reason.code().as_str())
        })
    }
}

fn asking(subject: &str, gpus: u64) -> StepRequest {
    StepRequest {
        subject: Some(subject.into()),
        command: vec!["job".into()],
        resources: Shared::from(ResourceSettings {
            gpu_count: Some(gpus),
            ..ResourceSettings::default()
        }),
        ..StepRequest::default()
    }
}

#[test]
fn what_is_done_ends_well_and_gives_way_to_the_next() {
    let mut cluster = TestRun::new(PoolSpec::default());
    assert_eq!(cluster.submit("x", asking("b", 2), HOUR), Ok(false));
    cluster.submit("y", asking("b", 2), HOUR).unwrap();
    cluster.pass(Span::from_secs(7200));
    let fine = |at: u64| Some((StepState::Succeeded, "completed", Span::from_secs(at)));
    assert_eq!(
        (cluster.ended("x"), cluster.ended("y")),
        (fine(3600), fine(7200))
    );
    assert_eq!(cluster.run.next_at(), None);
}

#[test]
fn who_gives_way_starts_over_and_who_is_frozen_works_on() {
    for (mode, end) in [
        (OnPreempt::Requeue, 7200 + 1800),
        (OnPreempt::Suspend, 7200),
    ] {
        let mut cluster = TestRun::new(PoolSpec::default());
        let victim = StepRequest {
            on_preempt: Some(mode),
            ..asking("b", 2)
        };
        cluster.submit("victim", victim, HOUR).unwrap();
        cluster.pass(Span::from_secs(1800));
        // This step outranks the borrower, and works for an hour: from 1800 s to 5400 s.
        cluster.submit("urgent", asking("a", 1), HOUR).unwrap();
        cluster.pass(Span::from_secs(20_000));
        let fine = |at: u64| Some((StepState::Succeeded, "completed", Span::from_secs(at)));
        assert_eq!(cluster.ended("urgent"), fine(5400));
        assert_eq!(cluster.ended("victim"), fine(end), "{mode:?}");
    }
}

#[test]
fn what_runs_or_waits_longer_than_its_pool_lets_it_fails() {
    let mut cluster = TestRun::new(PoolSpec {
        defaults: StepDefaults {
            timeout: Some(Span::from_secs(1800)),
            queue_timeout: Some(Span::from_secs(600)),
            ..StepDefaults::default()
        },
        max: StepMaxima {
            timeout: Some(HOUR),
            ..StepMaxima::default()
        },
        ..PoolSpec::default()
    });
    cluster.submit("long", asking("a", 2), HOUR).unwrap();
    cluster
        .submit("short", asking("a", 2), Span::from_secs(60))
        .unwrap();
    let greedy = StepRequest {
        timeout: Some("2h".into()),
        ..asking("a", 1)
    };
    cluster.submit("greedy", greedy, HOUR).unwrap();
    cluster.pass(Span::from_secs(7200));
    let failed = |code, at| Some((StepState::Failed, code, Span::from_secs(at)));
    assert_eq!(cluster.ended("long"), failed("timed_out", 1800));
    assert_eq!(cluster.ended("short"), failed("queue_timeout", 600));
    assert_eq!(cluster.rejected("greedy"), Some("exceeds_maximum"));
}

#[test]
fn platforms_and_maintenance_are_those_of_the_documents() {
    let mut cluster = TestRun::new(PoolSpec {
        default_platform: Some(sluice_common::id::PlatformName::new("h100").unwrap()),
        ..PoolSpec::default()
    });
    let other = StepRequest {
        platform: Some("l40s".into()),
        ..asking("a", 1)
    };
    cluster.submit("other", other, HOUR).unwrap();
    cluster.submit("any", asking("a", 1), HOUR).unwrap();
    cluster.put(vec![PutDocument::pool(
        "p",
        PoolSpec {
            maintenance: Some("fans".into()),
            ..PoolSpec::default()
        },
    )]);
    let refused = cluster.submit("late", asking("a", 1), HOUR);
    assert!(
        matches!(refused, Err(Refusal::PoolInMaintenance { .. })),
        "{refused:?}"
    );
    cluster.pass(HOUR);
    assert_eq!(cluster.rejected("other"), Some("no_host_fits"));
    assert!(cluster.ended("any").is_some());
}

#[test]
fn what_is_inside_a_reserved_share_is_told_so() {
    let mut cluster = TestRun::new(PoolSpec::default());
    let reserved = [(
        sluice_common::amount::ResourceKey::new("mgpu").unwrap(),
        1000,
    )]
    .into();
    let policy = PolicySpec {
        reserved,
        ..PolicySpec::default()
    };
    cluster.put(vec![PutDocument::policy("p", "a", policy)]);
    assert_eq!(cluster.submit("inside", asking("a", 1), HOUR), Ok(true));
    assert_eq!(cluster.submit("beyond", asking("a", 1), HOUR), Ok(false));
}

#[test]
fn one_share_is_promised_once() {
    let mut cluster = TestRun::new(PoolSpec::default());
    let reserved = |gpus: u64| PolicySpec {
        reserved: [(
            sluice_common::amount::ResourceKey::new("mgpu").unwrap(),
            gpus * 1000,
        )]
        .into(),
        ..PolicySpec::default()
    };
    cluster.put(vec![PutDocument::policy("p", "a", reserved(2))]);
    let never = StepRequest {
        resources: Shared::from(ResourceSettings {
            preemptible: Some(false),
            ..asking("a", 1).resources.into_inner()
        }),
        ..asking("a", 1)
    };
    cluster.submit("holds", never, HOUR).unwrap();
    // If nothing may be preempted, the rest of the share is nominated for the first step that waits for it.
    cluster.run.core.handle(
        Time::default(),
        Input::ChangeNode {
            reply: REPLY,
            node: NodeName::new("n").unwrap(),
            change: NodeChange::Cordon { reason: None },
        },
    );
    assert_eq!(cluster.submit("first", asking("a", 1), HOUR), Ok(true));
    assert_eq!(cluster.submit("second", asking("a", 1), HOUR), Ok(false));
    // The step is kept waiting for as long as its share has space for it.
    assert_eq!(cluster.run.kept_waiting(), [StepId::new("first").unwrap()]);
    cluster.put(vec![PutDocument::policy("p", "a", reserved(1))]);
    assert_eq!(cluster.run.kept_waiting(), []);
}

#[test]
fn a_gang_that_waits_for_another_has_its_hosts_as_soon_as_they_are_free() {
    let mut cluster = TestRun::new(PoolSpec::default());
    cluster.join("m");
    cluster.join("o");
    let gang = || StepRequest {
        nodes: Some(2),
        ..asking("a", 2)
    };
    cluster.submit("ends", gang(), HOUR).unwrap();
    cluster
        .submit("stays", asking("a", 2), HOUR + HOUR + HOUR)
        .unwrap();
    cluster.submit("waits", gang(), HOUR).unwrap();
    cluster.submit("behind", asking("a", 2), HOUR).unwrap();
    cluster.pass(HOUR + HOUR);
    let stopped = |stamped: &LogEntry| matches!(stamped.record, Record::Stopping(_));
    assert!(!cluster.records.iter().any(stopped));
    let fine = Some((StepState::Succeeded, "completed", HOUR + HOUR));
    assert_eq!(cluster.ended("waits"), fine);
}

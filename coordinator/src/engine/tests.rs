//! Tests of the loop: nothing is sent before the commit, a batch is one commit, heartbeats are heard before silence is
//! judged.

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_common::host_health::SupervisorState;
use sluice_common::id::{BootId, PoolName, StepId};
use sluice_common::inventory::Inventory;
use sluice_common::request::StepRequest;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::BootMillis;
use sluice_common::time::{Span, Time};
use sluice_common::wire::{PROTOCOL_VERSION, ToNode};
use tokio::time::timeout;

use super::*;
use crate::clock;
use crate::fixture::{FakeDisk, beat, settings, step};
use crate::store::DEFAULT_RETENTION;

const SOON: Duration = Duration::from_secs(20);

fn begin(dir: &std::path::Path, settings: Settings) -> (EngineHandle, EngineThread) {
    let (store, recovered) = Store::open(dir, DEFAULT_RETENTION).unwrap();
    let clock = Clock::start_over(dir, recovered.last_at);
    start(settings, store, recovered, clock).unwrap()
}

fn hello(name: &str, cpus: u32) -> Hello {
    Hello {
        protocol: PROTOCOL_VERSION,
        version: "test".to_owned(),
        node: NodeName::new(name).unwrap(),
        pool: PoolName::new("default").unwrap(),
        labels: BTreeMap::new(),
        address: String::new(),
        boot_id: BootId::new("b1").unwrap(),
        state_dir: String::new(),
        highest_epoch: None,
        inventory: Inventory {
            cpus,
            ..Inventory::default()
        },
        attempts: Vec::new(),
        gpu_states: Default::default(),
        sent_at: BootMillis(1),
        supervisor: SupervisorState::Responding,
        challenge: None,
    }
}

fn created(results: Vec<Result<coordinator_core::Submitted, coordinator_core::Refusal>>) -> bool {
    results
        .into_iter()
        .all(|result| result.is_ok_and(|step| step.created))
}

async fn submit(engine: &EngineHandle, id: &str) -> Result<bool, EngineStopped> {
    engine
        .submit(vec![step(id)], |_, results| created(results))
        .await
}

async fn node_state(engine: &EngineHandle, name: &str) -> Option<NodeState> {
    let name = NodeName::new(name).unwrap();
    let look = move |core: &Core| core.state().node(&name).map(|node| node.state);
    engine.read(look).await.unwrap()
}

/// Waits until a node is in `state`; each look follows a commit.
async fn until_node(engine: &EngineHandle, name: &str, state: NodeState) {
    let mut committed = engine.committed();
    let there = async {
        while node_state(engine, name).await != Some(state) {
            committed.changed().await.unwrap();
        }
    };
    timeout(SOON, there)
        .await
        .expect("the node comes to the state");
}

#[tokio::test]
async fn a_caller_is_answered_after_the_commit_and_never_without_one() {
    for syncs in 8..40 {
        let disk = FakeDisk::dying_after(syncs, Vec::new());
        let Ok((store, recovered)) = Store::on_backend(disk.clone()) else {
            continue;
        };
        let Ok((engine, mut thread)) =
            start(settings(), store, recovered, Clock::start(Time::default()))
        else {
            continue;
        };
        let mut answered = BTreeSet::new();
        for number in 0.. {
            let id = format!("s{number}");
            match submit(&engine, &id).await {
                Ok(created) => assert!(created && answered.insert(id)),
                Err(EngineStopped) => break,
            }
        }
        let end = thread.ended().await.unwrap_err();
        assert!(
            matches!(end, EngineError::Store(StoreError::Commit { .. })),
            "{end}"
        );
        assert_eq!(engine.read(|_| ()).await, Err(EngineStopped.into()));
        let (_, recovered) =
            Store::on_backend(FakeDisk::dying_after(9999, disk.remains(|_| false))).unwrap();
        for id in answered {
            let id = StepId::new(id).unwrap();
            assert!(
                recovered.state.step(&id).is_some(),
                "{id} was answered, {syncs} syncs"
            );
        }
    }
}

#[tokio::test]
async fn callers_at_once_share_a_commit_and_each_gets_its_own_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, mut thread) = begin(dir.path(), settings());
    let before = engine.meter().commits().count();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..500 {
        let engine = engine.clone();
        calls.spawn(async move { submit(&engine, &format!("s{}", number % 250)).await });
    }
    let answers = calls.join_all().await;
    assert_eq!(
        answers.iter().filter(|answer| **answer == Ok(true)).count(),
        250
    );
    assert_eq!(
        answers
            .iter()
            .filter(|answer| **answer == Ok(false))
            .count(),
        250
    );
    let commits = engine.meter().commits().count() - before;
    assert!(commits < 250, "{commits} commits for 250 steps");
    engine.stop().await;
    thread.ended().await.unwrap();
    let (_, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    assert_eq!(recovered.state.steps().len(), 250);
}

#[tokio::test]
async fn what_a_view_or_a_read_shows_is_durable_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, mut thread) = begin(dir.path(), settings());
    let seq = engine
        .submit(vec![step("a")], |core, _| core.state().seq())
        .await
        .unwrap();
    assert!(*engine.committed().borrow() >= seq);
    let read = engine.read(|core| core.state().seq()).await.unwrap();
    assert!(*engine.committed().borrow() >= read);
    assert!(engine.meter().records() >= seq && engine.meter().decisions().count() == 1);
    engine.stop().await;
    thread.ended().await.unwrap();
    assert_eq!(submit(&engine, "b").await, Err(EngineStopped));
}

#[tokio::test]
async fn what_nobody_waits_for_is_durable_soon_and_before_anyone_sees_it() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, mut thread) = begin(dir.path(), settings());
    let node = NodeName::new("n").unwrap();
    let mut committed = engine.committed();
    let mut gone = Vec::new();
    for _ in 0..3 {
        let (sender, _orders) = SessionSender::new(16);
        let hello = engine.hello(hello("n", 1), Default::default(), sender);
        let session = hello.await.unwrap();
        let welcomed = engine.read(|core| core.state().seq()).await.unwrap();
        engine.disconnected(session, node.clone()).await.unwrap();
        gone.push(welcomed + 1);
        match gone.len() {
            // Nothing follows.
            1 => {
                let waited = committed.wait_for(|seq| *seq == gone[0]);
                timeout(SOON, waited).await.unwrap().unwrap();
            }
            // A reader follows.
            2 => {
                let seen = engine.read(|core| core.state().seq()).await.unwrap();
                assert_eq!((seen, *committed.borrow()), (gone[1], gone[1]));
            }
            // The end follows.
            _ => engine.stop().await,
        }
    }
    thread.ended().await.unwrap();
    let (_, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    assert_eq!(recovered.last_seq, gone[2]);
}

#[tokio::test]
async fn whoever_waits_for_a_step_is_woken_by_its_records_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _thread) = begin(dir.path(), settings());
    submit(&engine, "a").await.unwrap();
    let a = StepId::new("a").unwrap();
    let mut interest = engine.watch_step(a.clone());
    submit(&engine, "b").await.unwrap();
    assert!(
        timeout(Duration::from_millis(50), interest.changed())
            .await
            .is_err()
    );
    let cancelled = engine.cancel(a.clone(), None, |core, result| {
        let step = result.unwrap();
        core.state().step(&step).unwrap().state
    });
    assert_eq!(cancelled.await.unwrap(), StepState::Cancelled);
    timeout(SOON, interest.changed()).await.unwrap();
    drop(interest);
    let unknown = engine.cancel(StepId::new("x").unwrap(), None, |_, result| result.is_err());
    assert!(unknown.await.unwrap());
}

#[tokio::test]
async fn a_node_that_falls_silent_becomes_unreachable_and_one_that_speaks_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let terms = Settings {
        unreachable_after: Span::from_millis(300),
        ..settings()
    };
    let (engine, _thread) = begin(dir.path(), terms);
    let (sender, _quiet) = SessionSender::new(16);
    engine
        .hello(hello("quiet", 1), Default::default(), sender)
        .await
        .unwrap();
    let (sender, _loud) = SessionSender::new(16);
    let session = engine
        .hello(hello("loud", 1), Default::default(), sender)
        .await
        .unwrap();
    let loud = NodeName::new("loud").unwrap();
    let beat = async {
        loop {
            engine
                .heartbeat(session, loud.clone(), beat(1))
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = beat => unreachable!("it beats for ever"),
        () = until_node(&engine, "quiet", NodeState::Unreachable) => {}
    }
    assert_eq!(node_state(&engine, "loud").await, Some(NodeState::Ready));
}

#[tokio::test]
async fn orders_reach_the_session_of_the_node_after_its_welcome() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _thread) = begin(dir.path(), settings());
    let (sender, mut receiver) = SessionSender::new(16);
    let session = engine
        .hello(hello("n", 4), Default::default(), sender)
        .await
        .unwrap();
    submit(&engine, "a").await.unwrap();
    let first = timeout(SOON, receiver.orders.recv())
        .await
        .unwrap()
        .unwrap();
    assert!(
        matches!(*first, ToSession::HelloReply(HelloReply::Welcome(_))),
        "{first:?}"
    );
    let second = timeout(SOON, receiver.orders.recv())
        .await
        .unwrap()
        .unwrap();
    let ToSession::Command(Command {
        order: ToNode::Assign(assignment),
        ..
    }) = *second
    else {
        panic!("{second:?}");
    };
    assert_eq!(assignment.attempt.to_string(), "a.1");
    engine
        .disconnected(session, NodeName::new("n").unwrap())
        .await
        .unwrap();
    until_node(&engine, "n", NodeState::Unreachable).await;
    assert!(
        timeout(SOON, receiver.orders.recv())
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn a_session_that_is_replaced_or_overflows_is_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _thread) = begin(dir.path(), settings());
    let (sender, replaced) = SessionSender::new(16);
    engine
        .hello(hello("n", 64), Default::default(), sender)
        .await
        .unwrap();
    let (sender, slow) = SessionSender::new(2);
    engine
        .hello(hello("n", 64), Default::default(), sender)
        .await
        .unwrap();
    assert!(timeout(SOON, replaced.let_go).await.unwrap().is_err());
    for id in ["a", "b", "c"] {
        submit(&engine, id).await.unwrap();
    }
    assert!(timeout(SOON, slow.let_go).await.unwrap().is_err());
}

/// Starts a coordinator on the store of a step that was submitted an hour ago with a queue timeout of ten minutes.
/// Returns the step's state, and whether the clock jumped. `known` is the time now by the machine's boot clock.
async fn waited(known: Option<Span>) -> (StepState, bool) {
    let dir = tempfile::tempdir().unwrap();
    let (store, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    let hour_ago = Time::from_unix_millis(clock::wall().unix_millis() - 3_600_000);
    let clock = Clock::showing(hour_ago);
    let (engine, mut thread) = start(settings(), store, recovered, clock).unwrap();
    submit_with_queue_timeout(&engine, "s", 600).await;
    engine.stop().await;
    thread.ended().await.unwrap();
    if let Some(known) = known {
        let _noted = clock::evidence::jump(dir.path(), hour_ago, hour_ago + known);
    }
    let (store, recovered) = Store::open(dir.path(), DEFAULT_RETENTION).unwrap();
    let log = store.reader();
    let clock = Clock::start_over(dir.path(), recovered.last_at);
    let (engine, mut thread) = start(settings(), store, recovered, clock).unwrap();
    // This query is answered after everything that was due at the start.
    submit_with_queue_timeout(&engine, "later", 0).await;
    until_step(&engine, "later", StepState::Failed).await;
    let state = step_state(&engine, "s").await;
    let events = log.read(0, 1000, |_| true).unwrap().events;
    drop(log);
    engine.stop().await;
    thread.ended().await.unwrap();
    let jumps = events.iter().filter_map(|event| match event.record.record {
        coordinator_core::Record::ClockJumped(jump) => Some(jump.by),
        _ => None,
    });
    let jumps: Vec<Span> = jumps.collect();
    assert!(
        jumps
            .iter()
            .all(|by| by.millis().abs_diff(3_600_000) < 60_000)
    );
    (state, !jumps.is_empty())
}

async fn submit_with_queue_timeout(engine: &EngineHandle, id: &str, secs: u64) {
    let json = format!(r#"{{"command":["true"],"queue_timeout":"{secs}s"}}"#);
    let request: StepRequest = serde_json::from_str(&json).unwrap();
    let step = NewStep::new(StepId::new(id).unwrap(), request.check().unwrap());
    let is_new = engine.submit(vec![step], |_, results| created(results));
    assert_eq!(is_new.await, Ok(true));
}

async fn step_state(engine: &EngineHandle, id: &str) -> StepState {
    let id = StepId::new(id).unwrap();
    let look = move |core: &Core| core.state().step(&id).unwrap().state;
    engine.read(look).await.unwrap()
}

async fn until_step(engine: &EngineHandle, id: &str, state: StepState) {
    let mut committed = engine.committed();
    let there = async {
        while step_state(engine, id).await != state {
            committed.changed().await.unwrap();
        }
    };
    timeout(SOON, there)
        .await
        .expect("the step comes to the state");
}

#[tokio::test]
async fn a_clock_an_hour_ahead_at_a_start_fails_nothing_that_waits_and_is_an_event() {
    let set_ahead = Some(Span::ZERO);
    assert_eq!(waited(set_ahead).await, (StepState::Queued, true));
}

#[tokio::test]
async fn an_outage_of_an_hour_counts_for_what_waits() {
    let passed = Some(Span::from_secs(3600));
    assert_eq!(waited(passed).await, (StepState::Failed, false));
}

#[tokio::test]
async fn an_hour_that_nothing_shows_to_have_passed_does_not_count() {
    let synchronized = std::path::Path::new("/run/systemd/timesync/synchronized").exists();
    let expected = match synchronized {
        true => (StepState::Failed, false),
        false => (StepState::Queued, true),
    };
    assert_eq!(waited(None).await, expected);
}

/// Each of many queries takes a while, and a change arrives while the first of them is answered.
#[tokio::test]
async fn dear_questions_hold_up_nobody_who_comes_to_change_something() {
    const QUESTIONS: usize = 100;
    let dir = tempfile::tempdir().unwrap();
    let (engine, _thread) = begin(dir.path(), settings());
    let answered = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = || answered.load(std::sync::atomic::Ordering::SeqCst);
    let (begun, has_begun) = oneshot::channel();
    let mut begun = Some(begun);
    // Blocks the engine until all the others are in the inbox.
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let held = engine.read(move |_| gone.recv());
    let ask = |_| {
        let (answered, begun) = (std::sync::Arc::clone(&answered), begun.take());
        engine.read(move |_| {
            begun.map(|begun| begun.send(()));
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(5) {
                std::hint::spin_loop();
            }
            answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        })
    };
    let queries = futures_util::future::join_all((0..QUESTIONS).map(ask));
    let submitted = async {
        has_begun.await.unwrap();
        (submit(&engine, "a").await.unwrap(), count())
    };
    let release = async { go.send(()).unwrap() };
    let (_, answers, (created, before), ()) = tokio::join!(held, queries, submitted, release);
    assert!(created);
    assert!(before < QUESTIONS / 2, "{before} were answered before it");
    assert_eq!((answers.len(), count()), (QUESTIONS, QUESTIONS));
}

/// Blocks the engine until `others` have asked as often as they say. Returns who was answered, in order, then whose
/// queries were not.
async fn answered(others: &[(&'static str, usize)]) -> Vec<Result<&'static str, QueryError>> {
    let dir = tempfile::tempdir().unwrap();
    let (engine, _thread) = begin(dir.path(), settings());
    let order = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let held = engine.read(move |_| {
        begun.send(()).unwrap();
        gone.recv()
    });
    let asks = others.iter().copied().flat_map(|(who, often)| {
        let (engine, order) = (&engine, &order);
        (0..often).map(move |_| async move {
            let noted = std::sync::Arc::clone(order);
            let read = engine.read(move |_| {
                noted.lock().unwrap().push(who);
            });
            asked_by(who, read).await
        })
    });
    let asks = futures_util::future::join_all(asks);
    let release = async { go.send(()).unwrap() };
    let ask = async {
        has_begun.await.unwrap();
        tokio::join!(asks, release)
    };
    let (_, (answers, ())) = tokio::join!(held, ask);
    let order = std::mem::take(&mut *order.lock().unwrap());
    let refused = answers.into_iter().filter_map(Result::err).map(Err);
    order.into_iter().map(Ok).chain(refused).collect()
}

#[tokio::test]
async fn whoever_asks_much_waits_for_himself_and_nobody_for_him() {
    let order = answered(&[("greedy", 100), ("other", 3), ("third", 1)]).await;
    assert_eq!(order.len(), 104);
    for (who, most) in [("other", 10), ("third", 5)] {
        let place = order.iter().rposition(|it| *it == Ok(who)).unwrap();
        assert!(place < most, "{who} came at {place}");
    }
}

#[tokio::test]
async fn of_one_who_asks_a_bounded_number_waits() {
    let order = answered(&[("greedy", 300), ("other", 3)]).await;
    let refused = Err(QueryError::TooMany { most: 256 });
    let count = |wanted| order.iter().filter(|it| **it == wanted).count();
    assert_eq!((count(Ok("greedy")), count(refused)), (256, 44));
    assert_eq!(count(Ok("other")), 3);
}

//! Real links with well-behaved and misbehaving agents.

mod fuzz;
mod join;

use sluice_common::epoch::SealedEpoch;
use sluice_common::id::Epoch;
use sluice_common::inventory::{Gpu, Inventory};
use sluice_common::state::NodeState;
use sluice_common::wire::{HeartbeatAck, ToNode};

use crate::fixture::{Agent, Harness, beat, dial, open, try_dial, words};
use crate::seal::Seal;

use super::*;

const SOON: Duration = Duration::from_secs(20);

fn address(harness: &Harness) -> String {
    let running = harness.running.as_ref().unwrap();
    running.listener.local_addr().to_string()
}

/// Waits until a node is in `state`; each look follows a commit.
async fn until_node(engine: &EngineHandle, name: &str, state: NodeState) {
    let mut committed = engine.committed();
    let there = async {
        loop {
            let name = NodeName::new(name).unwrap();
            let look = engine.read(move |core| core.state().node(&name).map(|node| node.state));
            if look.await.unwrap() == Some(state) {
                return;
            }
            committed.changed().await.unwrap();
        }
    };
    timeout(SOON, there)
        .await
        .expect("the node comes to the state");
}

#[test]
fn an_agent_is_let_in_heard_told_and_missed() {
    let harness = Harness::start();
    let mut agent = harness.agent("n1", 4);
    let engine = harness.running.as_ref().unwrap().engine.clone();
    harness.submit("a");
    harness.runtime.block_on(async {
        until_node(&engine, "n1", NodeState::Ready).await;
        let order = agent.order().await.order;
        assert!(
            matches!(&order, ToNode::Assign(a) if a.attempt.to_string() == "a.1"),
            "{order:?}"
        );
        for number in [7, 8] {
            agent.heartbeat.0.send(&beat(number)).await.unwrap();
            let ack: HeartbeatAck = agent.heartbeat.1.next().await.unwrap().unwrap();
            assert_eq!(ack.number, number);
        }
        let found = Inventory {
            cpus: 64,
            ..Inventory::default()
        };
        agent
            .control
            .0
            .send(&FromNode::Inventory(Box::new(found)))
            .await
            .unwrap();
        agent.ran("a.1", Some(0)).await;
        let order = agent.order().await.order;
        assert!(matches!(order, ToNode::Forget { .. }), "{order:?}");
    });
    let (_, node) = harness.get("/v1/nodes/n1");
    assert_eq!(node["capacity"]["cpu"], 64);
    drop(agent);
    harness
        .runtime
        .block_on(until_node(&engine, "n1", NodeState::Unreachable));
}

#[test]
fn a_name_that_is_not_the_certificate_s_and_a_pool_that_is_not_are_refused_with_words() {
    let harness = Harness::start();
    harness.runtime.block_on(async {
        for (pool, expected) in [
            ("default", "certificate is of node `n1`"),
            ("defalt", "did you mean"),
        ] {
            let name = if pool == "default" { "other" } else { "n1" };
            let mut hello = words(name, 1);
            hello.pool = pool.parse().unwrap();
            let mut agent = Agent::link(&harness.data, "n1", &address(&harness), &hello).await;
            let greeting: HelloReply = agent.receive().await;
            let HelloReply::Refused { message } = greeting else {
                panic!("{greeting:?}");
            };
            assert!(message.contains(expected), "{message}");
            let why = timeout(SOON, agent.connection.closed()).await.unwrap();
            assert!(why.contains(expected), "{why}");
        }
    });
    assert_eq!(
        harness.get("/v1/nodes").1["items"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn a_host_that_dials_and_says_nothing_takes_a_few_places_and_no_other_s() {
    let harness = Harness::start();
    let address = address(&harness);
    harness.runtime.block_on(async {
        let mut links = JoinSet::new();
        for _ in 0..permits::MAX_LINKS_PER_NODE + 20 {
            match try_dial(&harness.data, "liar", &address).await {
                Ok((dialer, link)) => links.spawn(async move {
                    let why = link.closed().await;
                    drop(dialer);
                    why
                }),
                Err(refused) => links.spawn(async move { refused.to_string() }),
            };
        }
        for _ in 0..20 {
            let why = timeout(SOON, links.join_next()).await.unwrap();
            let why = why.unwrap().unwrap();
            assert!(why.contains("already has 8 links"), "{why}");
        }
        let mut good = Agent::link(&harness.data, "good", &address, &words("good", 1)).await;
        good.welcomed().await;
    });
}

/// Returns the epoch in a greeting, or the refusal.
async fn greeted(
    harness: &Harness,
    name: &str,
    shown: Option<SealedEpoch>,
) -> Result<SealedEpoch, String> {
    let mut hello = words(name, 1);
    hello.highest_epoch = shown;
    let mut agent = Agent::link(&harness.data, name, &address(harness), &hello).await;
    match agent.receive().await {
        HelloReply::Welcome(welcome) => Ok(welcome.epoch),
        HelloReply::Refused { message } => Err(message),
    }
}

#[test]
fn a_host_that_makes_up_epochs_keeps_itself_out_and_moves_nothing() {
    let harness = Harness::start();
    let mut good = harness.agent("good", 4);
    let elsewhere = Seal::drawn().unwrap();
    harness.runtime.block_on(async {
        let ours = greeted(&harness, "liar", None).await.unwrap();
        let others = greeted(&harness, "friend", None).await.unwrap();
        let liar = NodeName::new("liar").unwrap();
        for counter in [2, 3, 900, 1 << 39, 1 << 53, u64::MAX] {
            let cluster = ours.epoch.cluster.clone();
            let epoch = Epoch { cluster, counter };
            let foreign = elsewhere.seal_epoch(&liar, &epoch);
            for seal in [None, ours.seal, others.seal, Some(foreign)] {
                let epoch = epoch.clone();
                let shown = Some(SealedEpoch { epoch, seal });
                let why = greeted(&harness, "liar", shown).await.unwrap_err();
                assert!(why.contains(&format!("epoch {counter}")), "{why}");
            }
        }
        // A node may show the epoch that it was told, by this or an earlier coordinator.
        assert_eq!(
            greeted(&harness, "liar", Some(ours.clone())).await,
            Ok(ours)
        );
        good.heartbeat.0.send(&beat(1)).await.unwrap();
        let ack: HeartbeatAck = good.heartbeat.1.next().await.unwrap().unwrap();
        assert_eq!(ack.number, 1);
    });
    let (_, events) = harness.get("/v1/events");
    let types = events["items"].as_array().unwrap().iter();
    let types: Vec<&str> = types.map(|it| it["type"].as_str().unwrap()).collect();
    let count = |wanted| types.iter().filter(|it| **it == wanted).count();
    assert_eq!(
        (count("coordinator_started"), count("recovery_began")),
        (1, 0)
    );
    assert_eq!(count("node_refused"), 1, "{types:?}");
}

#[test]
fn whoever_breaks_the_protocol_loses_the_link_and_nothing_else() {
    let harness = Harness::start();
    let mut good = harness.agent("good", 1);
    harness.runtime.block_on(async {
        let (_dialer, twice) = dial(&harness.data, "n1", &address(&harness)).await;
        let _one = open(&twice, StreamKind::Control).await;
        let _two = open(&twice, StreamKind::Control).await;
        let why = timeout(SOON, twice.closed()).await.unwrap();
        assert!(why.contains("two streams of one kind"), "{why}");

        let (_dialer, garbage) = dial(&harness.data, "n2", &address(&harness)).await;
        let mut stream = garbage.open().await.unwrap();
        stream.0.send_bytes(&[0xff; 64]).await.unwrap();
        let why = timeout(SOON, garbage.closed()).await.unwrap();
        assert!(why.contains("broke the protocol"), "{why}");

        let mut rude = Agent::link(&harness.data, "n3", &address(&harness), &words("n3", 1)).await;
        rude.welcomed().await;
        let gpus = vec![Gpu::default(); 1000];
        let found = Inventory {
            gpus,
            ..Inventory::default()
        };
        rude.control
            .0
            .send(&FromNode::Inventory(Box::new(found)))
            .await
            .unwrap();
        let why = timeout(SOON, rude.connection.closed()).await.unwrap();
        assert!(why.contains("GPUs: 1000"), "{why}");

        good.heartbeat.0.send(&beat(1)).await.unwrap();
        let ack: HeartbeatAck = good.heartbeat.1.next().await.unwrap().unwrap();
        assert_eq!(ack.number, 1);
    });
}

#[test]
fn a_second_link_of_a_node_takes_the_place_of_the_first() {
    let harness = Harness::start();
    let first = harness.agent("n1", 1);
    let mut second = harness.agent("n1", 1);
    harness.runtime.block_on(async {
        let why = timeout(SOON, first.connection.closed()).await.unwrap();
        assert!(why.contains("another connection of this node"), "{why}");
        // The end of the first link is not the end of the node's.
        second.heartbeat.0.send(&beat(1)).await.unwrap();
        let ack: HeartbeatAck = second.heartbeat.1.next().await.unwrap().unwrap();
        assert_eq!(ack.number, 1);
    });
    // A refused link replaces none.
    let mut hello = words("n1", 1);
    hello.protocol += 1;
    harness.runtime.block_on(async {
        let mut third = Agent::link(&harness.data, "n1", &address(&harness), &hello).await;
        let greeting: HelloReply = third.receive().await;
        assert!(
            matches!(greeting, HelloReply::Refused { .. }),
            "{greeting:?}"
        );
        timeout(SOON, third.connection.closed()).await.unwrap();
    });
    harness.submit("a");
    let order = harness.runtime.block_on(second.order()).order;
    assert!(matches!(order, ToNode::Assign(_)), "{order:?}");
}

/// Challenge of a host's supervisor.
const CHALLENGE: Challenge = Challenge([9; 16]);

#[test]
fn a_lease_is_signed_for_the_node_of_the_certificate_and_its_challenge_alone() {
    let harness = Harness::start();
    let engine = harness.running.as_ref().unwrap().engine.clone();
    let expected = |challenge| {
        let core = harness
            .runtime
            .block_on(engine.read(|core| *core.settings()));
        let settings = core.unwrap();
        Box::new(engine.seal().lease(LeaseGrant {
            node: NodeName::new("n1").unwrap(),
            challenge,
            lease: settings.lease,
            stop_limit: settings.stop_limit,
        }))
    };
    let (first, second) = (expected(CHALLENGE), expected(Challenge([8; 16])));
    harness.runtime.block_on(async {
        let mut hello = words("n1", 1);
        hello.challenge = Some(CHALLENGE);
        let mut agent = Agent::link(&harness.data, "n1", &address(&harness), &hello).await;
        let HelloReply::Welcome(welcome) = agent.receive().await else {
            panic!("it is let in");
        };
        assert_eq!(welcome.seal, Some(first));
        for (challenge, seal) in [(None, None), (Some(Challenge([8; 16])), Some(second))] {
            let beat = Heartbeat {
                challenge,
                ..beat(1)
            };
            agent.heartbeat.0.send(&beat).await.unwrap();
            let ack: HeartbeatAck = agent.heartbeat.1.next().await.unwrap().unwrap();
            assert_eq!(ack.seal, seal);
        }
    });
}

#[test]
fn nothing_is_signed_for_a_node_that_is_not_let_in() {
    let harness = Harness::start();
    harness.runtime.block_on(async {
        for _ in 0..20 {
            let mut hello = words("n1", 1);
            hello.pool = "defalt".parse().unwrap();
            hello.challenge = Some(CHALLENGE);
            let mut agent = Agent::link(&harness.data, "n1", &address(&harness), &hello).await;
            let beat = Heartbeat {
                challenge: Some(CHALLENGE),
                ..beat(1)
            };
            // The refusal may overtake the heartbeat.
            let _closed = agent.heartbeat.0.send(&beat).await;
            let ack: Result<Option<HeartbeatAck>, _> = agent.heartbeat.1.next().await;
            if let Ok(Some(ack)) = ack {
                assert_eq!(ack.seal, None);
            }
        }
    });
}

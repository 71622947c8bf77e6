//! Tests of join tokens and of the end of a node's access.

use crate::record;
use alloc::boxed::Box;
use alloc::string::{String, ToString};

use sluice_common::credential::{Fingerprint, Generation, NodeClaim, SecretHash};
use sluice_common::id::{JoinTokenId, PoolName};
use sluice_common::label::{LabelKey, LabelValue};
use sluice_common::state::NodeState;
use sluice_common::time::Span;
use sluice_common::wire::HelloReply;

use super::harness::*;
use crate::{
    Answer, Input, JoinApplication, JoinRefusal, Joined, MAX_JOIN_TOKENS, NewJoinToken, NodeChange,
    Record, Refusal, ReplyId, SessionId, TokenStatus,
};

fn token_id(number: u32) -> JoinTokenId {
    JoinTokenId::new(alloc::format!("t{number}")).unwrap()
}

fn hash(number: u32) -> SecretHash {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    SecretHash::new(bytes)
}

fn key(number: u8) -> Fingerprint {
    Fingerprint::new([number; 32])
}

/// Makes a token for one host of the pool `default`, valid for a minute.
fn token(number: u32) -> NewJoinToken {
    NewJoinToken {
        id: token_id(number),
        hash: hash(number),
        pool: PoolName::new("default").ok(),
        node: None,
        labels: Default::default(),
        uses: 1,
        ttl: Span::from_secs(60),
    }
}

fn make(harness: &mut Harness, token: NewJoinToken) -> Result<(), Refusal> {
    let reply = ReplyId(7);
    let effects = harness.feed(Input::MakeJoinToken { reply, token });
    match &effects.answers[..] {
        [Answer::Changed(made)] => made.clone(),
        other => panic!("{other:?}"),
    }
}

fn ask(number: u32, name: &str, by: u8) -> JoinApplication {
    JoinApplication {
        hash: hash(number),
        node: node(name),
        pool: None,
        key: key(by),
    }
}

fn join_with(
    harness: &mut Harness,
    application: JoinApplication,
) -> (Result<Joined, JoinRefusal>, InputEffects) {
    let effects = harness.feed(Input::Join {
        reply: ReplyId(8),
        application,
    });
    match &effects.answers[..] {
        [Answer::Joined(joined)] => (joined.clone(), effects),
        other => panic!("{other:?}"),
    }
}

fn join(harness: &mut Harness, number: u32, name: &str, by: u8) -> Result<Joined, JoinRefusal> {
    join_with(harness, ask(number, name, by)).0
}

/// Answers a hello of a node whose certificate has these contents.
fn says(harness: &mut Harness, name: &str, claim: NodeClaim) -> Result<(), String> {
    let hello = Box::new(hello(name, 1, 4));
    let session = SessionId(9000 + harness.log.len() as u64);
    let effects = harness.feed(Input::NodeHello {
        epoch_is_proven: false,
        session,
        hello,
        claim,
    });
    match effects.greeting() {
        HelloReply::Welcome(_) => Ok(()),
        HelloReply::Refused { message } => Err(message.clone()),
    }
}

#[test]
fn a_token_lets_in_as_many_hosts_as_it_says_and_a_repeat_counts_once() {
    let mut harness = Harness::new();
    make(
        &mut harness,
        NewJoinToken {
            uses: 2,
            ..token(1)
        },
    )
    .unwrap();
    let joined = join(&mut harness, 1, "a", 1).unwrap();
    assert_eq!(joined.node, node("a"));
    assert_eq!(joined.claim.pool, Some(PoolName::new("default").unwrap()));
    assert_eq!(joined.claim.generation, Generation::new(1));
    let (again, effects) = join_with(&mut harness, ask(1, "a", 1));
    assert_eq!((again.unwrap(), effects.records.len()), (joined.clone(), 0));
    join(&mut harness, 1, "b", 2).unwrap();
    let refused = join(&mut harness, 1, "c", 3).unwrap_err();
    assert!(
        matches!(refused, JoinRefusal::UsedUp { uses: 2, .. }),
        "{refused}"
    );
    // The answer to a join may still be under way when the token is used up.
    assert_eq!(join(&mut harness, 1, "a", 1), Ok(joined));
    // The key that used the token gets no second name.
    let refused = join(&mut harness, 1, "d", 1).unwrap_err();
    assert!(matches!(refused, JoinRefusal::UsedUp { .. }), "{refused}");
}

#[test]
fn a_use_is_durable_before_it_is_answered_and_survives_a_restart() {
    let mut harness = Harness::new();
    make(&mut harness, token(1)).unwrap();
    let (_, effects) = join_with(&mut harness, ask(1, "a", 1));
    assert_eq!(effects.types(), ["join_token_used"]);
    for snapshot_at in [0, harness.log.len()] {
        harness.restart(snapshot_at);
        assert!(join(&mut harness, 1, "b", 2).is_err());
    }
}

#[test]
fn each_refusal_names_its_cause_and_is_recorded() {
    let mut harness = Harness::one_node(1, 4);
    harness.put_pool("other");
    make(
        &mut harness,
        NewJoinToken {
            node: Some(node("only")),
            ..token(1)
        },
    )
    .unwrap();
    make(&mut harness, token(2)).unwrap();
    make(&mut harness, token(3)).unwrap();
    harness.feed(Input::RevokeJoinToken {
        reply: ReplyId(9),
        token: token_id(3),
    });
    let mut elsewhere = ask(2, "a", 1);
    elsewhere.pool = Some(PoolName::new("other").unwrap());
    for (asked, expected) in [
        (ask(1, "a", 1), "is for node `only` alone"),
        (ask(2, "n", 1), "node `n` exists already"),
        (ask(3, "a", 1), "join token `t3` was revoked"),
        (
            elsewhere,
            "for pool `default` and the agent's config says pool `other`",
        ),
    ] {
        let (refused, effects) = join_with(&mut harness, asked);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        let [Record::JoinRefused(record::JoinRefused { why, .. })] = &effects.records[..] else {
            panic!("{effects:?}");
        };
        assert_eq!(*why, message);
    }
    // An unknown secret is not recorded, because anybody can make one up.
    let (refused, effects) = join_with(&mut harness, ask(99, "a", 1));
    assert_eq!(
        (refused, effects.records.len()),
        (Err(JoinRefusal::Unknown), 0)
    );
    harness.now = harness.now + Span::from_secs(60);
    let refused = join(&mut harness, 2, "a", 1).unwrap_err();
    assert!(matches!(refused, JoinRefusal::Expired { .. }), "{refused}");
}

#[test]
fn whoever_knows_an_old_secret_does_not_fill_the_log() {
    let mut harness = Harness::one_node(1, 4);
    make(&mut harness, token(1)).unwrap();
    let before = harness.log.len();
    for number in 0..200 {
        assert!(join(&mut harness, 1, "n", number).is_err());
    }
    assert_eq!(harness.log.len() - before, 100);
}

#[test]
fn a_name_that_is_taken_is_given_anew_by_a_token_for_it_alone() {
    let mut harness = Harness::one_node(1, 4);
    make(
        &mut harness,
        NewJoinToken {
            node: Some(node("n")),
            ..token(1)
        },
    )
    .unwrap();
    let (joined, effects) = join_with(&mut harness, ask(1, "n", 1));
    let joined = joined.unwrap();
    assert_eq!(joined.claim.generation, Generation::new(1));
    assert_eq!(
        effects.cut.len(),
        1,
        "the host that had the name loses its link"
    );
    assert_eq!(harness.node_state("n"), NodeState::Unreachable);
    let message = says(&mut harness, "n", NodeClaim::default()).unwrap_err();
    assert!(
        message.contains("`sluice token create --node n`"),
        "{message}"
    );
    says(&mut harness, "n", joined.claim).unwrap();
}

#[test]
fn a_host_that_has_joined_and_was_not_seen_yet_keeps_its_name() {
    let mut harness = Harness::new();
    make(
        &mut harness,
        NewJoinToken {
            uses: 9,
            ..token(1)
        },
    )
    .unwrap();
    join(&mut harness, 1, "a", 1).unwrap();
    let refused = join(&mut harness, 1, "a", 2).unwrap_err();
    assert!(
        matches!(refused, JoinRefusal::NodeTaken { .. }),
        "{refused}"
    );
    harness.change("a", NodeChange::Delete { force: false });
    join(&mut harness, 1, "a", 2).unwrap();
    // The use ended with the access of the first host.
    let refused = join(&mut harness, 1, "a", 1).unwrap_err();
    assert!(matches!(refused, JoinRefusal::Ended { .. }), "{refused}");
}

#[test]
fn a_revoked_node_loses_its_link_at_once_and_stays_out_after_a_restart() {
    let mut harness = Harness::one_node(1, 4);
    harness.submit("a", spec(1, 1000)).unwrap();
    let effects = harness.change("n", NodeChange::Revoke);
    assert_eq!(effects.types()[0], "node_revoked");
    assert_eq!(effects.cut, ["the access of this node was ended"]);
    assert_eq!(harness.node_state("n"), NodeState::Unreachable);
    for snapshot_at in [0, harness.log.len()] {
        harness.restart(snapshot_at);
        assert!(says(&mut harness, "n", NodeClaim::default()).is_err());
    }
    // The attempts of the host end with their lease, as on any silent host.
    assert_eq!(harness.core.state().attempts_on(&node("n")).count(), 1);
}

#[test]
fn a_linked_node_is_deleted_by_force_and_its_certificate_with_it() {
    let mut harness = Harness::one_node(1, 4);
    let delete = |force| NodeChange::Delete { force };
    assert!(harness.change("n", delete(false)).cut.is_empty());
    let effects = harness.change("n", delete(true));
    assert_eq!(
        (effects.cut.len(), harness.core.state().nodes().len()),
        (1, 0)
    );
    assert!(says(&mut harness, "n", NodeClaim::default()).is_err());
    assert!(harness.core.state().nodes().is_empty());
}

#[test]
fn a_certificate_for_a_pool_decides_where_a_host_joins_and_its_config_does_not() {
    let mut harness = Harness::new();
    harness.put_pool("training");
    let pool = Some(PoolName::new("training").unwrap());
    let generation = Generation::default();
    says(&mut harness, "n", NodeClaim { pool, generation }).unwrap();
    let here = harness.core.state().node(&node("n")).unwrap();
    assert_eq!(here.pool.as_str(), "training");
    assert_eq!(here.configured_pool().as_str(), "default");
}

#[test]
fn a_token_without_a_pool_lets_each_host_into_that_of_its_config() {
    let mut harness = Harness::new();
    harness.put_pool("training");
    let open = NewJoinToken {
        pool: None,
        uses: 3,
        ..token(1)
    };
    make(&mut harness, open).unwrap();
    let mut wish = |name: &str, by: u8, pool: Option<&str>| {
        let pool = pool.map(|pool| PoolName::new(pool).unwrap());
        let wish = JoinApplication {
            pool,
            ..ask(1, name, by)
        };
        let joined = join_with(&mut harness, wish).0;
        joined.map(|joined| joined.claim.pool.unwrap().to_string())
    };
    assert_eq!(wish("a", 1, Some("training")).unwrap(), "training");
    assert_eq!(wish("b", 2, None).unwrap(), "default");
    let refused = wish("c", 3, Some("trainin")).unwrap_err().to_string();
    assert!(refused.contains("did you mean `training`?"), "{refused}");
}

#[test]
fn labels_of_a_token_become_the_node_s_and_an_admin_may_take_them_away() {
    let mut harness = Harness::new();
    let zone = (
        LabelKey::new("zone").unwrap(),
        LabelValue::new("a").unwrap(),
    );
    make(
        &mut harness,
        NewJoinToken {
            labels: [zone.clone()].into(),
            ..token(1)
        },
    )
    .unwrap();
    let claim = join(&mut harness, 1, "n", 1).unwrap().claim;
    says(&mut harness, "n", claim.clone()).unwrap();
    let labels = |harness: &Harness| {
        harness
            .core
            .state()
            .node(&node("n"))
            .unwrap()
            .labels_in_force()
    };
    assert_eq!(labels(&harness)["zone"], "a");
    harness.change("n", NodeChange::Label([(zone.0, None)].into()));
    let session = SessionId(1);
    harness.feed(Input::NodeGone {
        session,
        node: node("n"),
    });
    says(&mut harness, "n", claim).unwrap();
    assert!(labels(&harness).is_empty());
}

#[test]
fn tokens_are_bounded_and_open_ones_are_not_dropped() {
    let mut harness = Harness::new();
    let most = u32::try_from(MAX_JOIN_TOKENS).unwrap();
    for number in 0..most {
        make(&mut harness, token(number)).unwrap();
    }
    let limit = MAX_JOIN_TOKENS;
    let refused = make(&mut harness, token(most));
    assert_eq!(refused, Err(Refusal::TooManyJoinTokens { limit }));
    harness.feed(Input::RevokeJoinToken {
        reply: ReplyId(9),
        token: token_id(5),
    });
    make(&mut harness, token(most)).unwrap();
    let tokens = harness.core.state().admission().tokens();
    assert_eq!(tokens.len(), MAX_JOIN_TOKENS);
    assert!(!tokens.contains_key(&token_id(5)));
    assert_eq!(
        tokens[&token_id(0)].standing(harness.now),
        TokenStatus::Open
    );
}

#[test]
fn a_token_that_is_not_there_or_for_no_pool_is_refused() {
    let mut harness = Harness::new();
    let pool = PoolName::new("nowhere").ok();
    let refused = make(&mut harness, NewJoinToken { pool, ..token(1) });
    assert!(
        matches!(refused, Err(Refusal::UnknownPool { .. })),
        "{refused:?}"
    );
    let effects = harness.feed(Input::RevokeJoinToken {
        reply: ReplyId(9),
        token: token_id(1),
    });
    let [Answer::Changed(Err(refusal))] = &effects.answers[..] else {
        panic!("{effects:?}");
    };
    assert!(
        refusal.to_string().contains("`sluice token list`"),
        "{refusal}"
    );
}

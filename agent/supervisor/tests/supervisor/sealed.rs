//! A compromised agent cannot keep its steps running: it cannot extend a lease by itself.

use ring::signature::{Ed25519KeyPair, KeyPair};
use sluice_common::id::NodeName;
use sluice_common::lease::{Challenge, LeaseGrant, LeaseKey, SealedLease};
use sluice_common::supervision::{BootMillis, Exit, SpawnSpec, ToSupervisor};
use sluice_common::time::Span;
use sluice_supervisor::clock::{after, boot_now};

use crate::client::{Client, sh};
use crate::host::Host;

const FOR_EVER: BootMillis = BootMillis(1 << 62);

/// A lease signed by a cluster.
fn signed(seed: u8, challenge: Challenge, lease: Span) -> ToSupervisor {
    signed_for("n", seed, challenge, lease)
}

fn signed_for(node: &str, seed: u8, challenge: Challenge, lease: Span) -> ToSupervisor {
    let grant = LeaseGrant {
        node: NodeName::new(node).unwrap(),
        challenge,
        lease,
        stop_limit: Span::from_millis(600),
    };
    let (key, signature) = sign(seed, &grant.signed_bytes());
    ToSupervisor::Lease(SealedLease {
        grant,
        key,
        signature,
    })
}

/// Signature of a text with the key of the cluster of this number.
pub(crate) fn sign(seed: u8, text: &[u8]) -> (LeaseKey, [[u8; 32]; 2]) {
    let key = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
    let signature = key.sign(text);
    let (halves, _) = signature.as_ref().as_chunks::<32>();
    let key = LeaseKey(key.public_key().as_ref().try_into().unwrap());
    (key, halves.try_into().unwrap())
}

pub(crate) fn renew(client: &mut Client, lease: Span) {
    let challenge = client.challenge();
    client.send(&signed(1, challenge, lease));
}

/// A step that ignores SIGTERM, without a lease, and with an infinite grace.
fn unleased(id: &str) -> SpawnSpec {
    let mut spec = sh(id, "trap '' TERM; while :; do sleep 0.05; done");
    spec.lease_until = None;
    spec.lease_grace = Span::from_millis(1 << 62);
    spec
}

#[test]
fn no_word_of_the_agent_keeps_a_step_beyond_what_the_cluster_has_signed() {
    let host = Host::start();
    let mut client = host.client();
    renew(&mut client, Span::from_secs(3));
    let latest = after(boot_now(), Span::from_secs(3));
    let (first, mut second) = (unleased("none.1"), unleased("far.1"));
    second.lease_until = Some(FOR_EVER);
    client.spawn(&first);
    client.spawn(&second);
    client.wait_running(&first.attempt);
    client.wait_running(&second.attempt);
    client.send(&ToSupervisor::Renew { until: FOR_EVER });
    for spec in [&first, &second] {
        assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::LeaseExpired);
    }
    // The kill is within the stop limit that was signed, not within the agent's grace.
    let most = after(latest, Span::from_secs(20));
    assert!(boot_now() < most, "{:?} and not {most:?}", boot_now());
    // No further attempt starts.
    for id in ["later.1", "later.2"] {
        let exit = client.run(&unleased(id));
        assert!(matches!(exit, Exit::NotBegun(_)), "{exit:?}");
        client.send(&ToSupervisor::Renew { until: FOR_EVER });
    }
}

#[test]
fn what_was_signed_once_extends_nothing_when_it_is_said_again() {
    let host = Host::start();
    let mut client = host.client();
    let challenge = client.challenge();
    let lease = signed(1, challenge, Span::from_secs(3));
    client.send(&lease);
    let spec = unleased("replayed.1");
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    for made_up in [challenge, Challenge([0; 16])] {
        client.send(&signed(1, made_up, Span::from_secs(3600)));
    }
    let end = client.wait_gone(&spec.attempt).exit;
    assert_eq!(end, Exit::LeaseExpired);
}

#[test]
fn a_signed_lease_outlives_the_supervisor_and_no_more_than_that() {
    let mut host = Host::start();
    let mut client = host.client();
    renew(&mut client, Span::from_secs(4));
    let spec = unleased("kept.1");
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    host.kill();
    host.restart();
    let mut client = host.client();
    client.wait_running(&spec.attempt);
    client.send(&ToSupervisor::Renew { until: FOR_EVER });
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::LeaseExpired);
}

#[test]
fn another_cluster_s_lease_starts_nothing_and_says_the_way_out() {
    let host = Host::start();
    let mut client = host.client();
    renew(&mut client, Span::ZERO);
    let challenge = client.challenge();
    client.send(&signed(2, challenge, Span::from_secs(60)));
    let exit = client.run(&unleased("other.1"));
    let Exit::HostFailed(why) = exit else {
        panic!("{exit:?}");
    };
    assert!(why.contains("lease_key.json"), "{why}");
    renew(&mut client, Span::from_secs(60));
    let spec = sh("own.1", "exit 3");
    assert_eq!(client.run(&spec), Exit::Code(3));
}

#[test]
fn what_was_signed_for_another_host_or_supervisor_extends_nothing() {
    let (host, mut other) = (Host::start(), Host::start());
    let mut client = host.client();
    renew(&mut client, Span::from_secs(3));
    let spec = unleased("own.1");
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    // A challenge for another node, of another supervisor, or of an earlier supervisor of this host.
    let challenge = client.challenge();
    client.send(&signed_for("m", 1, challenge, Span::from_secs(3600)));
    let theirs = other.client().challenge();
    client.send(&signed(1, theirs, Span::from_secs(3600)));
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::LeaseExpired);
    let mut client = other.client();
    renew(&mut client, Span::ZERO);
    let earlier = client.challenge();
    other.kill();
    other.restart();
    let mut client = other.client();
    client.send(&signed(1, earlier, Span::from_secs(3600)));
    let exit = client.run(&unleased("other.1"));
    assert!(matches!(exit, Exit::NotBegun(_)), "{exit:?}");
}

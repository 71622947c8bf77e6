//! Verifies signed leases. The supervisor draws challenges; the cluster signs a lease for a challenge; the
//! lease runs from the moment when the challenge was drawn. So the agent, which carries both, can delay a
//! lease but never extend it, and a signature for another host, boot or supervisor is rejected.
//!
//! The cluster's key is the one in the config, or the first that signs a lease for this host. That key and
//! the node's name are stored in the state directory, and no other key is accepted afterwards. Until then the
//! agent is trusted, up to the longest lease that the host allows.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use sluice_common::id::{AttemptId, NodeName, UserName};
use sluice_common::lease::{Challenge, LeaseKey, SealedLease};
use sluice_common::limit::MAX_GRACE;
use sluice_common::submitter::{Submitter, signed_bytes};
use sluice_common::supervision::BootMillis;
use sluice_common::supervisor_config::LeaseRules;
use sluice_common::time::Span;

use crate::atomic_file::{self, FileError};
use crate::clock;

/// The file with the pinned key.
const FILE: &str = "lease_key.json";
const NEW: &str = ".lease_key.new";

/// Most open challenges: one for each heartbeat, and more unanswered heartbeats mean that the link is dead.
/// The oldest is forgotten first.
const MAX_ISSUED: usize = 256;

/// Why a signed lease is rejected.
#[derive(Debug, thiserror::Error)]
pub enum LeaseRejection {
    /// The lease answers no open challenge: it is late, repeated, or from elsewhere.
    #[error("it answers no open challenge of this supervisor")]
    Unknown,
    /// Another cluster signed the lease.
    #[error(
        "it is signed with key {found}, and this host takes leases of key {expected} only: {way_out}"
    )]
    OtherKey {
        /// The key that signed.
        found: LeaseKey,
        /// The key that is accepted.
        expected: LeaseKey,
        /// Advice for a cluster that has another key now.
        way_out: String,
    },
    /// The lease is for another node.
    #[error(
        "it is for node `{found}`, and this host is node `{expected}`: if it was renamed, remove {} while nothing runs \
         on it, and restart the supervisor", file.display()
    )]
    OtherNode {
        /// The node in the lease.
        found: NodeName,
        /// This host's node.
        expected: NodeName,
        /// The file that stores the node's name.
        file: PathBuf,
    },
    /// The signature is invalid.
    #[error("its signature is not that of key {0}")]
    Forged(LeaseKey),
    /// The key cannot be stored.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why the submitter of a step is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitterRejection {
    /// No key is pinned yet, so no signature can be verified.
    #[error(
        "the order says that user `{0}` submitted the step, and this host cannot verify that before its first lease of the cluster: submit it again"
    )]
    Early(UserName),
    /// The coordinator's signature is missing or invalid.
    #[error(
        "the order says that user `{0}` submitted the step, without the coordinator's signature for this attempt and node: if the cluster was restored or the node renamed, submit it again; else check this host's agent, which passed it on"
    )]
    Forged(UserName),
}

/// The stored key and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PinnedKey {
    key: String,
    node: NodeName,
    stop_limit: Span,
}

/// Why the pinned key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file has other content.
    #[error("{} is not a lease key: remove it, and the next cluster that this host's agent joins sets it again", path.display())]
    Damaged { path: PathBuf },
}

/// Draws challenges and verifies signed leases.
#[derive(Debug)]
pub struct LeaseVerifier {
    dir: PathBuf,
    terms: LeaseRules,
    pinned: Option<(LeaseKey, PinnedKey)>,
    issued: VecDeque<(Challenge, BootMillis)>,
    random: SystemRandom,
}

impl LeaseVerifier {
    /// Loads the pinned key from `state_dir`.
    ///
    /// # Errors
    /// If the file exists and cannot be used; no key is trusted instead.
    pub fn open(state_dir: &Path, terms: LeaseRules) -> Result<Self, SealError> {
        let path = state_dir.join(FILE);
        let pinned = match fs::read(&path) {
            Ok(bytes) => Some(read(&bytes).ok_or(SealError::Damaged { path })?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(FileError::new("read", &path, e).into()),
        };
        // A key in the config replaces a pinned key, and the node's name that was pinned with it.
        let pinned = pinned.filter(|(key, _)| terms.key.is_none_or(|set| set == *key));
        Ok(Self {
            dir: state_dir.to_owned(),
            terms,
            pinned,
            issued: VecDeque::new(),
            random: SystemRandom::new(),
        })
    }

    /// Whether only signed leases are accepted.
    pub fn is_settled(&self) -> bool {
        self.terms.key.is_some() || self.pinned.is_some()
    }

    /// The latest end of a lease that is given now.
    pub fn latest(&self, now: BootMillis) -> BootMillis {
        clock::after(now, self.terms.longest)
    }

    /// The longest time between SIGTERM and SIGKILL of an attempt with an expired lease. The cluster relies
    /// on the stop limit that it has signed, of which a sixth is reserved for dying.
    pub fn longest_grace(&self) -> Span {
        let stop_limit = self.pinned.as_ref().map(|(_, pinned)| pinned.stop_limit);
        let grace = |limit: Span| limit - Span::from_millis(limit.millis().div_ceil(6));
        stop_limit.map_or(MAX_GRACE, grace)
    }

    /// A new challenge; `None` if the kernel returns no random bytes.
    pub fn draw(&mut self, now: BootMillis) -> Option<Challenge> {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes).ok()?;
        let challenge = Challenge(bytes);
        if self.issued.len() >= MAX_ISSUED {
            self.issued.pop_front();
        }
        self.issued.push_back((challenge, now));
        Some(challenge)
    }

    /// The deadline by a signed lease.
    ///
    /// # Errors
    /// If the lease is rejected.
    pub fn verify(&mut self, lease: &SealedLease) -> Result<BootMillis, LeaseRejection> {
        let open = self.issued.iter();
        let (place, drawn_at) = open
            .zip(0..)
            .find(|((challenge, _), _)| *challenge == lease.grant.challenge)
            .map(|((_, at), place)| (place, *at))
            .ok_or(LeaseRejection::Unknown)?;
        self.check_key(lease)?;
        UnparsedPublicKey::new(&ED25519, lease.key.0)
            .verify(&lease.grant.signed_bytes(), lease.signature.as_flattened())
            .map_err(|_| LeaseRejection::Forged(lease.key))?;
        self.pin(lease)?;
        // Challenges that were drawn before this one are not valid any more either.
        self.issued.drain(..=place);
        let lasts = lease.grant.lease.min(self.terms.longest);
        Ok(clock::after(drawn_at, lasts))
    }

    /// Verifies the coordinator's signature that this user submitted an attempt of this host.
    ///
    /// # Errors
    /// If the signature is missing or invalid, or cannot be verified.
    pub fn verify_submitter(
        &self,
        attempt: &AttemptId,
        submitter: &Submitter,
    ) -> Result<(), SubmitterRejection> {
        let Submitter { user, seal } = submitter;
        let (key, pinned) = match &self.pinned {
            Some(pinned) => pinned,
            None => return Err(SubmitterRejection::Early(user.clone())),
        };
        let text = signed_bytes(&pinned.node, attempt, user);
        let signed = seal.as_ref().filter(|seal| seal.key == *key).map(|seal| {
            let verifier = UnparsedPublicKey::new(&ED25519, key.0);
            verifier.verify(&text, seal.signature.as_flattened())
        });
        match signed {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => Err(SubmitterRejection::Forged(user.clone())),
        }
    }

    fn check_key(&self, lease: &SealedLease) -> Result<(), LeaseRejection> {
        let file = || self.dir.join(FILE);
        let pinned = self.pinned.as_ref();
        let expected = self.terms.key.or(pinned.map(|(key, _)| *key));
        if let Some(expected) = expected.filter(|expected| *expected != lease.key) {
            let way_out = match self.terms.key {
                Some(_) => {
                    "if the cluster has a new key, set `lease_key` in supervisor.toml".to_owned()
                }
                None => format!(
                    "if the cluster has a new key, remove {} while nothing runs on this host, and restart the supervisor",
                    file().display()
                ),
            };
            let found = lease.key;
            return Err(LeaseRejection::OtherKey {
                found,
                expected,
                way_out,
            });
        }
        match pinned {
            Some((_, pinned)) if pinned.node != lease.grant.node => {
                Err(LeaseRejection::OtherNode {
                    found: lease.grant.node.clone(),
                    expected: pinned.node.clone(),
                    file: file(),
                })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Pins the key and the node's name of an accepted lease, if they are new.
    fn pin(&mut self, lease: &SealedLease) -> Result<(), FileError> {
        let found = PinnedKey {
            key: lease.key.to_string(),
            node: lease.grant.node.clone(),
            stop_limit: lease.grant.stop_limit,
        };
        if self
            .pinned
            .as_ref()
            .is_some_and(|(_, known)| *known == found)
        {
            return Ok(());
        }
        let bytes = serde_json::to_vec(&found).expect("a key and a name are JSON");
        atomic_file::replace(&self.dir.join(FILE), &self.dir.join(NEW), &bytes)?;
        if self.pinned.is_none() {
            tracing::info!(key = %lease.key, node = %found.node, "from now on only leases of this key and node count");
        }
        self.pinned = Some((lease.key, found));
        Ok(())
    }
}

fn read(bytes: &[u8]) -> Option<(LeaseKey, PinnedKey)> {
    let pinned: PinnedKey = serde_json::from_slice(bytes).ok()?;
    Some((LeaseKey::parse(&pinned.key)?, pinned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use sluice_common::lease::LeaseGrant;
    use sluice_common::submitter::SubmitterSeal;

    const LEASE: Span = Span::from_secs(300);
    const STOP_LIMIT: Span = Span::from_secs(30);

    fn cluster(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn key(of: &Ed25519KeyPair) -> LeaseKey {
        LeaseKey(of.public_key().as_ref().try_into().unwrap())
    }

    fn sign(by: &Ed25519KeyPair, node: &str, challenge: Challenge, lease: Span) -> SealedLease {
        let grant = LeaseGrant {
            node: NodeName::new(node).unwrap(),
            challenge,
            lease,
            stop_limit: STOP_LIMIT,
        };
        let signature = by.sign(&grant.signed_bytes());
        let (halves, _) = signature.as_ref().as_chunks::<32>();
        SealedLease {
            key: key(by),
            grant,
            signature: halves.try_into().unwrap(),
        }
    }

    fn open(dir: &Path) -> LeaseVerifier {
        LeaseVerifier::open(dir, LeaseRules::default()).unwrap()
    }

    #[test]
    fn a_submitter_is_believed_by_the_key_of_leases_for_one_attempt_and_node() {
        let dir = tempfile::tempdir().unwrap();
        let mut seals = open(dir.path());
        let attempt: AttemptId = "a.1".parse().unwrap();
        let user = UserName::new("alice").unwrap();
        let sealed = |by: u8, node: &str, attempt: &str, user: &UserName| {
            let (node, attempt) = (NodeName::new(node).unwrap(), attempt.parse().unwrap());
            let by = cluster(by);
            let signature = by.sign(&signed_bytes(&node, &attempt, user));
            let (halves, _) = signature.as_ref().as_chunks::<32>();
            SubmitterSeal {
                key: key(&by),
                signature: halves.try_into().unwrap(),
            }
        };
        let judged = |seals: &LeaseVerifier, seal| {
            let user = user.clone();
            seals.verify_submitter(&attempt, &Submitter { user, seal })
        };
        let good = sealed(1, "n", "a.1", &user);
        let early = judged(&seals, Some(good.clone()));
        assert!(matches!(early, Err(SubmitterRejection::Early(_))));
        let challenge = seals.draw(BootMillis(0)).unwrap();
        seals
            .verify(&sign(&cluster(1), "n", challenge, LEASE))
            .unwrap();
        assert!(judged(&seals, Some(good.clone())).is_ok());
        assert!(judged(&open(dir.path()), Some(good)).is_ok());
        let bob = UserName::new("bob").unwrap();
        for forged in [
            None,
            Some(sealed(2, "n", "a.1", &user)),
            Some(sealed(1, "m", "a.1", &user)),
            Some(sealed(1, "n", "a.2", &user)),
            Some(sealed(1, "n", "a.1", &bob)),
        ] {
            assert!(matches!(
                judged(&seals, forged),
                Err(SubmitterRejection::Forged(_))
            ));
        }
    }

    #[test]
    fn a_lease_runs_from_its_challenge_and_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut seals, by) = (open(dir.path()), cluster(1));
        let earlier = seals.draw(BootMillis(500)).unwrap();
        let challenge = seals.draw(BootMillis(1000)).unwrap();
        let lease = sign(&by, "n", challenge, LEASE);
        assert!(!seals.is_settled());
        assert_eq!(seals.verify(&lease).unwrap(), BootMillis(301_000));
        assert!(seals.is_settled());
        for used in [challenge, earlier, Challenge([7; 16])] {
            let again = seals.verify(&sign(&by, "n", used, LEASE));
            assert!(matches!(again, Err(LeaseRejection::Unknown)), "{again:?}");
        }
    }

    #[test]
    fn nothing_of_a_signed_lease_can_be_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut seals, by) = (open(dir.path()), cluster(1));
        let challenge = seals.draw(BootMillis(0)).unwrap();
        let good = sign(&by, "n", challenge, LEASE);
        let mut longer = good.clone();
        longer.grant.lease = Span::from_millis(1 << 62);
        let mut slower = good.clone();
        slower.grant.stop_limit = Span::from_millis(1 << 62);
        let mut named = good.clone();
        named.grant.node = NodeName::new("m").unwrap();
        let mut keyed = good.clone();
        keyed.key = key(&cluster(2));
        let mut signed = good.clone();
        signed.signature[1][31] ^= 1;
        for changed in [longer, slower, named, keyed, signed] {
            let found = seals.verify(&changed);
            assert!(matches!(found, Err(LeaseRejection::Forged(_))), "{found:?}");
            assert!(!seals.is_settled(), "and nobody is trusted for it");
        }
        seals.verify(&good).unwrap();
    }

    #[test]
    fn what_was_signed_for_another_supervisor_counts_nowhere_else() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut here, mut there, by) = (open(one.path()), open(two.path()), cluster(1));
        let challenge = there.draw(BootMillis(0)).unwrap();
        let lease = sign(&by, "n", challenge, LEASE);
        assert!(matches!(here.verify(&lease), Err(LeaseRejection::Unknown)));
        // The restarted supervisor does not accept its own earlier challenges.
        let mut restarted = open(two.path());
        assert!(matches!(
            restarted.verify(&lease),
            Err(LeaseRejection::Unknown)
        ));
        there.verify(&lease).unwrap();
    }

    #[test]
    fn the_first_key_and_node_count_until_somebody_removes_them() {
        let dir = tempfile::tempdir().unwrap();
        let (mut seals, first, second) = (open(dir.path()), cluster(1), cluster(2));
        let challenge = seals.draw(BootMillis(0)).unwrap();
        seals.verify(&sign(&first, "n", challenge, LEASE)).unwrap();
        let mut seals = open(dir.path());
        assert!(seals.is_settled(), "it is kept");
        let challenge = seals.draw(BootMillis(0)).unwrap();
        let other = seals
            .verify(&sign(&second, "n", challenge, LEASE))
            .unwrap_err();
        let told = other.to_string();
        for word in [FILE, "remove", &key(&first).to_string()] {
            assert!(told.contains(word), "{told}");
        }
        let other = seals
            .verify(&sign(&first, "m", challenge, LEASE))
            .unwrap_err();
        assert!(other.to_string().contains("node `m`"), "{other}");
        assert_eq!(seals.longest_grace(), Span::from_secs(25));
        seals.verify(&sign(&first, "n", challenge, LEASE)).unwrap();
    }

    #[test]
    fn a_key_that_was_set_by_hand_counts_from_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (cluster(1), cluster(2));
        let terms = LeaseRules {
            key: Some(key(&second)),
            ..LeaseRules::default()
        };
        let mut seals = LeaseVerifier::open(dir.path(), terms).unwrap();
        assert!(seals.is_settled());
        let challenge = seals.draw(BootMillis(0)).unwrap();
        let other = seals
            .verify(&sign(&first, "n", challenge, LEASE))
            .unwrap_err();
        assert!(other.to_string().contains("supervisor.toml"), "{other}");
        seals.verify(&sign(&second, "n", challenge, LEASE)).unwrap();
    }

    #[test]
    fn no_signature_makes_a_lease_longer_than_the_host_allows() {
        let dir = tempfile::tempdir().unwrap();
        let terms = LeaseRules {
            longest: Span::from_secs(60),
            ..LeaseRules::default()
        };
        let mut seals = LeaseVerifier::open(dir.path(), terms).unwrap();
        let challenge = seals.draw(BootMillis(1000)).unwrap();
        let lease = sign(&cluster(1), "n", challenge, Span::from_millis(1 << 62));
        assert_eq!(seals.verify(&lease).unwrap(), BootMillis(61_000));
    }

    #[test]
    fn a_flood_of_challenges_is_bounded_and_a_damaged_key_trusts_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let mut seals = open(dir.path());
        for at in 0..10_000 {
            seals.draw(BootMillis(at)).unwrap();
        }
        assert_eq!(seals.issued.len(), MAX_ISSUED);
        for text in ["", "{}", r#"{"key":"00","node":"n","stop_limit":1}"#] {
            fs::write(dir.path().join(FILE), text).unwrap();
            let told = LeaseVerifier::open(dir.path(), LeaseRules::default()).unwrap_err();
            assert!(told.to_string().contains(FILE), "{told}");
        }
    }
}

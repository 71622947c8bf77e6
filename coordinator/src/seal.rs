//! Seals what hosts keep for the cluster, warrants and epochs, so that the coordinator recognises its own statements
//! when a host shows them. Without the seal a host could invent a step in another subject's name and have other hosts
//! run it, or claim a later coordinator and have all work stopped. The key is a file beside the store, so that seals
//! can be checked after the store is lost.
//!
//! Leases, and the submitters of steps, are signed with a key derived from the same file, so that backups contain it;
//! supervisors check them and know only the public half.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coordinator_core::Warrant;
use data_encoding::BASE64URL_NOPAD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair};
use sluice_common::epoch::{EPOCH_SEAL_BYTES, EpochSeal, SealedEpoch};
use sluice_common::hex;
use sluice_common::id::{AttemptId, Epoch, NodeName};
use sluice_common::lease::{LeaseGrant, LeaseKey, SealedLease};
use sluice_common::limit::MAX_WARRANT_BYTES;
use sluice_common::submitter::{self, SubmitterSeal};
use sluice_common::warrant::SealedWarrant;
use sluice_common::wire::Assignment;
use sluice_transport::files::{self, FileError};

/// Name of the key file in the data directory.
pub const KEY_FILE: &str = "warrants.key";

/// Random bytes in a key.
const KEY_BYTES: usize = 32;

/// Prefix of an encrypted warrant. One without it was written before warrants were encrypted: the seal in digits, a
/// space and the text.
const ENCRYPTED: &str = "2.";

/// Bytes of an unencrypted warrant's seal, a SHA-256.
const TAG_BYTES: usize = 32;

/// Length of the digits and the space after them.
const HEAD_BYTES: usize = 2 * TAG_BYTES + 1;

/// Domain separator of the encryption key of warrants. No attempt id begins like this, so it cannot equal the text of
/// an earlier seal.
const ENCRYPTION: &[u8] = b"warrants 2: encryption";

/// Why the key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The file cannot be read or made, or others can read it.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file does not hold a key.
    #[error(
        "{} is not a warrant key: restore the key of the cluster, or remove the file; without the key, steps that run cannot be adopted after a restore",
        path.display()
    )]
    Damaged { path: PathBuf },
    /// No random bytes for a new key.
    #[error("cannot generate a key: {0}")]
    Random(String),
}

/// Domain separator of the key that signs leases.
const LEASE_DOMAIN: &[u8] = b"sluice: key by which leases are signed, 1";

/// Makes and checks seals. Clones share the keys.
#[derive(Clone)]
pub struct Seal(Arc<SealKeys>);

struct SealKeys {
    /// Seals epochs, and checks warrants of earlier releases.
    tags: hmac::Key,
    warrants: LessSafeKey,
    leases: Ed25519KeyPair,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// Loads the key in a data directory, and makes it if there is none.
    ///
    /// # Errors
    /// If it cannot be read or made.
    pub fn of(dir: &Path) -> Result<Self, SealError> {
        match Self::read_stored(dir)? {
            Some(seal) => Ok(seal),
            None => Self::make(&dir.join(KEY_FILE)),
        }
    }

    /// Checks that [`Seal::of`] could use the key in a data directory; makes nothing.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn check(dir: &Path) -> Result<(), SealError> {
        Self::read_stored(dir).map(drop)
    }

    fn read_stored(dir: &Path) -> Result<Option<Self>, SealError> {
        let path = dir.join(KEY_FILE);
        match files::read_private(&path) {
            Ok(text) => match hex::decode(text.trim()) {
                Some(key) => Ok(Some(Self::by(&key))),
                None => Err(SealError::Damaged { path }),
            },
            Err(FileError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a new key in memory.
    ///
    /// # Errors
    /// If there are no random bytes.
    pub fn drawn() -> Result<Self, SealError> {
        Ok(Self::by(&draw()?))
    }

    fn by(key: &[u8; KEY_BYTES]) -> Self {
        let tags = hmac::Key::new(hmac::HMAC_SHA256, key);
        let warrants = hmac::sign(&tags, ENCRYPTION);
        let warrants = UnboundKey::new(&AES_256_GCM, warrants.as_ref());
        let warrants = warrants.expect("a SHA-256 is as long as a key of AES-256");
        let seed = hmac::sign(&tags, LEASE_DOMAIN);
        let leases = Ed25519KeyPair::from_seed_unchecked(seed.as_ref());
        Self(Arc::new(SealKeys {
            tags,
            warrants: LessSafeKey::new(warrants),
            leases: leases.expect("a SHA-256 is as long as a seed"),
        }))
    }

    fn make(path: &Path) -> Result<Self, SealError> {
        let key = draw()?;
        files::write_private(path, &format!("{}\n", hex::encode(&key)))?;
        Ok(Self::by(&key))
    }

    /// Returns the public key by which supervisors check leases.
    pub fn lease_key(&self) -> LeaseKey {
        let key = self.0.leases.public_key().as_ref();
        LeaseKey(key.try_into().expect("an Ed25519 key has 32 bytes"))
    }

    /// Signs a lease.
    pub fn lease(&self, grant: LeaseGrant) -> SealedLease {
        SealedLease {
            key: self.lease_key(),
            signature: self.sign(&grant.signed_bytes()),
            grant,
        }
    }

    /// Seals the parts of a start order that `node` shows later: the warrant to the coordinator, the submitter to its
    /// supervisor.
    pub fn seal_order(
        &self,
        node: &NodeName,
        assignment: &mut Assignment,
        warrant: Option<&Warrant>,
    ) {
        let attempt = &assignment.attempt;
        let sealed = warrant.map(|warrant| self.seal(attempt, warrant));
        assignment.warrant = sealed.unwrap_or_default();
        if let Some(submitter) = &mut assignment.submitter {
            let text = submitter::signed_bytes(node, attempt, &submitter.user);
            submitter.seal = Some(SubmitterSeal {
                key: self.lease_key(),
                signature: self.sign(&text),
            });
        }
    }

    fn sign(&self, text: &[u8]) -> [[u8; 32]; 2] {
        let signature = self.0.leases.sign(text);
        let (halves, _) = signature.as_ref().as_chunks::<32>();
        halves
            .try_into()
            .expect("an Ed25519 signature has 64 bytes")
    }

    /// Encrypts the warrant that a host keeps; the host cannot read the step's variables in it. `None` if it would be
    /// too long to be sent or there is no randomness: the attempt runs, but cannot be adopted.
    pub fn seal(&self, attempt: &AttemptId, warrant: &Warrant) -> SealedWarrant {
        let json = serde_json::to_vec(warrant).expect("our own types are JSON");
        self.seal_text(attempt, json).unwrap_or_default()
    }

    fn seal_text(&self, attempt: &AttemptId, mut text: Vec<u8>) -> Option<SealedWarrant> {
        // 96 random bits suffice for far more warrants than a cluster ever grants.
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).ok()?;
        let aad = Aad::from(attempt.to_string());
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0
            .warrants
            .seal_in_place_append_tag(unique, aad, &mut text)
            .ok()?;
        let sealed = [&nonce, &*text].concat();
        let length = ENCRYPTED.len() + BASE64URL_NOPAD.encode_len(sealed.len());
        if length > MAX_WARRANT_BYTES {
            return None;
        }
        let text = format!("{ENCRYPTED}{}", BASE64URL_NOPAD.encode(&sealed));
        Some(SealedWarrant::new(text))
    }

    /// Opens the warrant that a host shows for an attempt; `None` if this cluster has not sealed it for that attempt.
    pub fn open(&self, attempt: &AttemptId, sealed: &SealedWarrant) -> Option<Warrant> {
        match sealed.as_str().strip_prefix(ENCRYPTED) {
            Some(encrypted) => self.open_encrypted(attempt, encrypted),
            None => self.open_plain(attempt, sealed),
        }
    }

    fn open_encrypted(&self, attempt: &AttemptId, encrypted: &str) -> Option<Warrant> {
        let bytes = BASE64URL_NOPAD.decode(encrypted.as_bytes()).ok()?;
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let aad = Aad::from(attempt.to_string());
        let mut text = text.to_vec();
        let json = self.0.warrants.open_in_place(nonce, aad, &mut text).ok()?;
        serde_json::from_slice(json).ok()
    }

    /// Opens a warrant of an earlier release.
    fn open_plain(&self, attempt: &AttemptId, sealed: &SealedWarrant) -> Option<Warrant> {
        let (head, json) = sealed.as_str().split_at_checked(HEAD_BYTES)?;
        let tag: [u8; TAG_BYTES] = hex::decode(head.strip_suffix(' ')?)?;
        hmac::verify(&self.0.tags, &sealed_text(attempt, json), &tag).ok()?;
        serde_json::from_str(json).ok()
    }

    /// Proves to later coordinators that `node` was told this epoch. Hosts gain nothing by exchanging proofs, because
    /// each is bound to its node.
    pub fn seal_epoch(&self, node: &NodeName, epoch: &Epoch) -> EpochSeal {
        let tag = hmac::sign(&self.0.tags, &epoch_text(node, epoch));
        let mut seal = [0; EPOCH_SEAL_BYTES];
        seal.copy_from_slice(tag.as_ref());
        EpochSeal(seal)
    }

    /// Whether the seal on the epoch that `node` shows was made for that node.
    pub fn knows_epoch(&self, node: &NodeName, shown: &SealedEpoch) -> bool {
        let text = epoch_text(node, &shown.epoch);
        let verify = |seal: EpochSeal| hmac::verify(&self.0.tags, &text, &seal.0);
        shown.seal.is_some_and(|seal| verify(seal).is_ok())
    }
}

/// Returns the text that is sealed for an epoch. No attempt id begins like it, so a warrant's text never equals it;
/// names contain no line ends.
fn epoch_text(node: &NodeName, epoch: &Epoch) -> Vec<u8> {
    let Epoch { cluster, counter } = epoch;
    format!("epoch \n{cluster}\n{node}\n{counter}").into_bytes()
}

fn sealed_text(attempt: &AttemptId, json: &str) -> Vec<u8> {
    format!("{attempt}\n{json}").into_bytes()
}

fn draw() -> Result<[u8; KEY_BYTES], SealError> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| SealError::Random(error.to_string()))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    mod fuzz;

    use super::*;
    use crate::fixture::step;
    use coordinator_core::{LogPoint, Placement};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn attempt(id: &str) -> AttemptId {
        id.parse().unwrap()
    }

    fn warrant() -> Warrant {
        Warrant {
            told_at: LogPoint { epoch: 3, seq: 9 },
            submitted_at: Default::default(),
            spec: step("a").spec.into(),
            is_part: false,
            excluded_pools: Default::default(),
            route: Default::default(),
            provenance: Default::default(),
            retries_spent: 1,
            pool: "default".parse().unwrap(),
            placements: vec![Placement {
                node: "n".parse().unwrap(),
                gpus: vec!["GPU-1".to_owned()],
            }],
            port: None,
        }
    }

    #[test]
    fn only_what_was_sealed_by_the_same_key_for_that_attempt_is_known_again() {
        let dir = tempfile::tempdir().unwrap();
        let seal = Seal::of(dir.path()).unwrap();
        let sealed = seal.seal(&attempt("a.1"), &warrant());
        let again = Seal::of(dir.path()).unwrap();
        assert_eq!(again.open(&attempt("a.1"), &sealed), Some(warrant()));
        assert_eq!(again.open(&attempt("a.2"), &sealed), None);
        assert_eq!(Seal::drawn().unwrap().open(&attempt("a.1"), &sealed), None);
        let text = sealed.as_str();
        let last = text.len() - 4;
        let changed = format!(
            "{}{}",
            &text[..last],
            text[last..].chars().rev().collect::<String>()
        );
        for text in [changed.as_str(), "", "2.", "2.AAAA", "{}", &text[1..], "é"] {
            let changed = SealedWarrant::new(text.to_owned());
            assert_eq!(again.open(&attempt("a.1"), &changed), None, "{text}");
        }
        let mode = fs::metadata(dir.path().join(KEY_FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn an_epoch_is_proven_only_by_its_own_seal_for_its_own_node() {
        let (seal, node) = (Seal::drawn().unwrap(), NodeName::new("n").unwrap());
        let epoch = |cluster: &str, counter| Epoch {
            cluster: cluster.parse().unwrap(),
            counter,
        };
        let sealed = |epoch: &Epoch, seal| SealedEpoch {
            epoch: epoch.clone(),
            seal,
        };
        let ours = epoch("c", 7);
        let proof = seal.seal_epoch(&node, &ours);
        assert!(seal.knows_epoch(&node, &sealed(&ours, Some(proof))));
        let other_node = NodeName::new("m").unwrap();
        assert!(!seal.knows_epoch(&other_node, &sealed(&ours, Some(proof))));
        for claim in [epoch("c", 8), epoch("d", 7), epoch("c", 70)] {
            assert!(!seal.knows_epoch(&node, &sealed(&claim, Some(proof))));
        }
        assert!(!seal.knows_epoch(&node, &sealed(&ours, None)));
        let other_key = Seal::drawn().unwrap();
        let forged = other_key.seal_epoch(&node, &ours);
        assert!(!seal.knows_epoch(&node, &sealed(&ours, Some(forged))));
    }

    #[test]
    fn a_host_reads_nothing_of_a_step_in_its_warrant() {
        let seal = Seal::drawn().unwrap();
        let mut secret = warrant();
        let text = "hunter2-hunter2".to_owned();
        Arc::make_mut(&mut secret.spec).env = [("TOKEN".to_owned(), text.clone())].into();
        let sealed = seal.seal(&attempt("a.1"), &secret);
        let bytes = BASE64URL_NOPAD
            .decode(&sealed.as_str().as_bytes()[2..])
            .unwrap();
        let holds = |bytes: &[u8], word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
        for word in [text.as_bytes(), b"TOKEN", b"GPU-1", b"command"] {
            assert!(!holds(sealed.as_str().as_bytes(), word));
            assert!(!holds(&bytes, word));
        }
        let again = seal.seal(&attempt("a.1"), &secret);
        assert_ne!(again, sealed, "no two are alike, whatever they hold");
        assert_eq!(seal.open(&attempt("a.1"), &sealed), Some(secret));
    }

    #[test]
    fn what_was_sealed_before_warrants_were_encrypted_is_known_again() {
        let seal = Seal::drawn().unwrap();
        let json = serde_json::to_string(&warrant()).unwrap();
        let tag = hmac::sign(&seal.0.tags, &sealed_text(&attempt("a.1"), &json));
        let plain = SealedWarrant::new(format!("{} {json}", hex::encode(tag.as_ref())));
        assert_eq!(seal.open(&attempt("a.1"), &plain), Some(warrant()));
        assert_eq!(seal.open(&attempt("a.2"), &plain), None);
        let changed = plain.as_str().replace("GPU-1", "GPU-2");
        assert_eq!(
            seal.open(&attempt("a.1"), &SealedWarrant::new(changed)),
            None
        );
    }

    #[test]
    fn the_key_of_leases_is_as_lasting_as_the_file_and_of_no_other_use() {
        let dir = tempfile::tempdir().unwrap();
        let key = Seal::of(dir.path()).unwrap().lease_key();
        assert_eq!(Seal::of(dir.path()).unwrap().lease_key(), key);
        assert_ne!(Seal::drawn().unwrap().lease_key(), key);
        let file = fs::read_to_string(dir.path().join(KEY_FILE)).unwrap();
        assert_ne!(file.trim(), key.to_string());
    }

    #[test]
    fn a_damaged_key_is_said_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        files::write_private(&dir.path().join(KEY_FILE), "short").unwrap();
        let error = Seal::of(dir.path()).unwrap_err().to_string();
        assert!(error.contains(KEY_FILE), "{error}");
        assert_eq!(
            fs::read_to_string(dir.path().join(KEY_FILE)).unwrap(),
            "short"
        );
    }
}

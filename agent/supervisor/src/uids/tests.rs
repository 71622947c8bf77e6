//! Tests of claiming, holding, handing over and freeing ids, in a registry of the test's own.

use super::*;
use std::os::unix::fs::chown;

struct Registry {
    dir: tempfile::TempDir,
}

impl Registry {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("attempts")).unwrap();
        Self { dir }
    }

    fn open(&self, state_dir: &str, held: &[(u32, &AttemptId, bool)]) -> UidAllocator {
        let range = UidRange::new(2_100_100_000, 2_100_100_003).ok();
        let at = |name: &str| self.dir.path().join(name);
        UidAllocator::open(
            no_helper(),
            &at("run/uids"),
            Path::new(state_dir),
            &at("attempts"),
            range,
            held.iter().copied(),
        )
        .unwrap()
    }

    /// Makes the directory of an attempt, owned by its user.
    fn attempt(&self, id: &AttemptId, uid: u32) -> PathBuf {
        let dir = self.dir.path().join("attempts").join(id.to_string());
        for name in [OWN_WORKDIR, STEP_DIR] {
            fs::create_dir_all(dir.join(name)).unwrap();
            chown(dir.join(name), Some(uid), Some(uid)).unwrap();
        }
        dir
    }
}

/// A helper that cleans nothing.
fn no_helper() -> HelperProgram {
    HelperProgram::at(Path::new("/bin/true")).unwrap()
}

fn id(text: &str) -> AttemptId {
    text.parse().unwrap()
}

/// Only root can assign ids.
fn is_root() -> bool {
    geteuid().is_root()
}

fn owner(path: &Path) -> u32 {
    fs::metadata(path).unwrap().uid()
}

#[test]
fn no_two_attempts_have_one_id_whichever_supervisor_gives_it() {
    if !is_root() {
        return;
    }
    let rig = Registry::new();
    let (mut one, mut other) = (rig.open("/one", &[]), rig.open("/other", &[]));
    let mut given = BTreeSet::new();
    for n in 0..3 {
        let from = if n == 1 { &mut other } else { &mut one };
        let uid = from.claim(&id(&format!("a.{}", n + 1))).unwrap();
        given.insert(uid.as_raw());
    }
    assert_eq!(given.len(), 3);
    for from in [&mut one, &mut other] {
        let told = from.claim(&id("late.1")).unwrap_err().to_string();
        assert!(
            told.contains("no user id of uid_range is free, of 3"),
            "{told}"
        );
    }
}

#[test]
fn an_id_is_given_again_once_it_is_clean_and_not_before() {
    if !is_root() {
        return;
    }
    let rig = Registry::new();
    let mut uids = rig.open("/one", &[]);
    let (a, b, c) = (id("a.1"), id("b.1"), id("c.1"));
    let uid = uids.claim(&a).unwrap();
    uids.claim(&b).unwrap();
    uids.claim(&c).unwrap();
    let dir = rig.attempt(&a, uid.as_raw());
    uids.on_gone(uid, &a);
    assert_eq!(owner(&dir.join(OWN_WORKDIR)), 0);
    assert_eq!(owner(&dir.join(STEP_DIR)), 0);
    assert!(uids.claim(&a).is_err() && !uids.is_settled());
    uids.free(uid.as_raw());
    assert!(uids.is_settled());
    assert_eq!(uids.claim(&id("d.1")).unwrap(), uid);
    // `free` must not free an id in use.
    uids.free(uid.as_raw());
    assert!(uids.claim(&id("e.1")).is_err());
}

#[test]
fn the_next_supervisor_holds_what_lives_and_cleans_the_rest_of_its_own() {
    if !is_root() {
        return;
    }
    let rig = Registry::new();
    let (lives, unrecorded, others) = (id("lives.1"), id("unrecorded.1"), id("others.1"));
    let mut uids = rig.open("/one", &[]);
    let held = uids.claim(&lives).unwrap().as_raw();
    let lost = uids.claim(&unrecorded).unwrap().as_raw();
    let foreign = rig.open("/other", &[]).claim(&others).unwrap().as_raw();
    drop(uids);
    let dir = rig.attempt(&unrecorded, lost);
    let next = rig.open("/one", &[(held, &lives, true)]);
    assert_eq!(next.unclean, BTreeSet::from([lost]));
    assert!(![held, foreign].contains(&lost));
    let mut next = next;
    next.free(lost);
    assert_eq!(owner(&dir.join(OWN_WORKDIR)), 0, "its record was lost");
}

#[test]
fn an_attempt_that_begins_anew_keeps_its_directory_when_its_earlier_id_is_free() {
    if !is_root() {
        return;
    }
    let rig = Registry::new();
    let again = id("again.1");
    let before = rig.open("/one", &[]).claim(&again).unwrap().as_raw();
    let mut uids = rig.open("/one", &[]);
    let now = uids.claim(&again).unwrap().as_raw();
    let dir = rig.attempt(&again, now);
    uids.free(before);
    assert_eq!(owner(&dir.join(OWN_WORKDIR)), now);
}

#[test]
fn after_a_reboot_what_lives_has_its_id_and_what_does_not_leaves_its_directory_to_root() {
    if !is_root() {
        return;
    }
    let rig = Registry::new();
    let (lives, dead) = (id("lives.1"), id("dead.1"));
    let (held, before) = (2_100_100_000, 2_100_100_001);
    let dir = rig.attempt(&dead, before);
    let mut uids = rig.open("/one", &[(held, &lives, true), (before, &dead, false)]);
    assert_eq!(owner(&dir.join(OWN_WORKDIR)), 0);
    assert!(uids.unclean.is_empty());
    let given = [uids.claim(&id("a.1")), uids.claim(&id("b.1"))].map(Result::unwrap);
    assert!(!given.contains(&Uid::from_raw(held)), "{given:?}");
}

#[test]
fn a_registry_that_others_can_write_is_refused() {
    if !is_root() {
        return;
    }
    let rig = Registry::new();
    let registry = rig.dir.path().join("run/uids");
    fs::create_dir_all(&registry).unwrap();
    fs::set_permissions(&registry, Permissions::from_mode(0o777)).unwrap();
    let opened = UidAllocator::open(
        no_helper(),
        &registry,
        Path::new("/s"),
        Path::new("/a"),
        None,
        [].into_iter(),
    );
    let told = opened.unwrap_err().to_string();
    assert!(
        told.contains("can be written by others: `chmod go-w"),
        "{told}"
    );
}

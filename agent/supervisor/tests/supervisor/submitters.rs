//! Steps that run as their submitters: as which user, isolated from whom, and by whose signature. Only root
//! can start them as other users, so these tests pass at once for others.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::unistd::User;
use sluice_common::id::{NodeName, Subject, UserName};
use sluice_common::submitter::{Submitter, SubmitterSeal, signed_bytes};
use sluice_common::supervision::{Exit, SpawnSpec, StopSignal};
use sluice_common::template::launch::HookRun;
use sluice_common::time::Span;

use crate::client::{Client, sh};
use crate::host::{Host, until, until_some};
use crate::sealed::{renew, sign};
use crate::tenants::reached_by;

const LISTED: &str = "as_submitter = [\"daemon\", \"games\"]\n";

/// A host with the pinned key of cluster number 1, which calls the host `n`.
fn host(config: &str) -> Option<Host> {
    let host = crate::left_out::needs_root().then(|| Host::start_under(config, &[]))?;
    meet(&mut host.client());
    Some(host)
}

/// Sends a lease of the cluster, and waits until it is read.
fn meet(client: &mut Client) {
    renew(client, Span::from_secs(600));
    client.challenge();
}

/// A step with a cluster's signature that a user submitted it.
fn sealed(seed: u8, node: &str, user: &str, mut spec: SpawnSpec) -> SpawnSpec {
    let user = UserName::new(user).unwrap();
    let node = NodeName::new(node).unwrap();
    let (key, signature) = sign(seed, &signed_bytes(&node, &spec.attempt, &user));
    let seal = Some(SubmitterSeal { key, signature });
    spec.submitter = Some(Submitter { user, seal });
    spec
}

fn by(user: &str, spec: SpawnSpec) -> SpawnSpec {
    sealed(1, "n", user, spec)
}

fn uid_of(user: &str) -> u32 {
    User::from_name(user).unwrap().unwrap().uid.as_raw()
}

fn refusal(client: &mut Client, spec: &SpawnSpec) -> String {
    match client.run(spec) {
        Exit::StartFailed(why) => why,
        other => panic!("{other:?}"),
    }
}

/// The user that a step ran as, from `id`.
fn ran_as(host: &Host, spec: &SpawnSpec) -> u32 {
    assert_eq!(host.client().run(spec), Exit::Code(0));
    host.number_in(&spec.attempt.to_string(), "stdout")
}

#[test]
fn steps_of_one_subject_run_as_who_submitted_each() {
    let Some(host) = host(LISTED) else { return };
    let script =
        "echo $(id -u) $(id -g) $(id -G); echo $HOME $USER $LOGNAME; touch file; stat -c %u file";
    for name in ["daemon", "games"] {
        let spec = by(name, sh(&format!("{name}.1"), script));
        assert_eq!(host.client().run(&spec), Exit::Code(0));
        let user = User::from_name(name).unwrap().unwrap();
        let groups = std::process::Command::new("id").args(["-G", name]).output();
        let groups = String::from_utf8(groups.unwrap().stdout).unwrap();
        let (uid, gid, home) = (user.uid, user.gid, user.dir.display());
        let wanted = format!("{uid} {gid} {groups}{home} {name} {name}\n{uid}\n");
        assert_eq!(host.output(&spec.attempt, "stdout"), wanted);
    }
}

#[test]
fn neither_of_two_submitters_of_a_subject_reaches_the_other_s_step() {
    let Some(host) = host(LISTED) else { return };
    let reached = reached_by(&host, |spec| by("daemon", spec), |spec| by("games", spec));
    assert_eq!(reached, BTreeSet::new());
}

#[test]
fn what_runs_beside_and_after_a_step_is_its_submitter_over_a_restart_and_an_upgrade() {
    let Some(mut host) = host(LISTED) else { return };
    let place = tempfile::tempdir().unwrap();
    let made = place.path().join("after");
    fs::set_permissions(
        place.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o777),
    )
    .unwrap();
    let mut spec = by("games", sh("stays.1", "exec sleep 1000"));
    spec.hooks.after = vec![HookRun {
        name: "late".to_owned(),
        command: ["touch", made.to_str().unwrap()].map(str::to_owned).into(),
        timeout: Span::from_secs(60),
    }];
    spec.hook_env = spec.env.clone();
    let mut client = host.client();
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    drop(client);
    host.kill();
    host.restart();
    host.upgrade();
    let mut client = host.client();
    client.wait_running(&spec.attempt);
    for other in [Some("daemon"), None] {
        let told = crate::execs::refused_beside(&mut client, &spec.attempt, other);
        assert!(told.contains("runs as `games`, who submitted it"), "{told}");
    }
    let beside = crate::execs::whoami_beside(&host, &mut client, "stays.1", Some("games"));
    assert_eq!(beside, uid_of("games"));
    client.signal(&spec.attempt, StopSignal::Kill);
    client.wait_gone(&spec.attempt);
    assert_eq!(fs::metadata(&made).unwrap().uid(), uid_of("games"));
}

#[test]
fn whoever_is_not_listed_not_there_or_not_known_is_refused_with_the_way_out() {
    let config = "[as_submitter]\ndaemon = \"daemon\"\ncarol = \"no-such-user\"\n";
    let Some(host) = host(config) else { return };
    let log = || host.log.lock().unwrap().clone();
    until("the start warns", || {
        log().contains("as_submitter.carol is `no-such-user`, and this host has no such user")
    });
    let hostname = nix::unistd::gethostname().unwrap();
    let hostname = hostname.to_str().unwrap();
    let mut client = host.client();
    for (id, spec, said) in [
        (
            "games.1",
            by("games", sh("games.1", "id -u")),
            "does not list `games`",
        ),
        (
            "nobody.1",
            by("nobody", sh("nobody.1", "id -u")),
            "does not list `nobody`",
        ),
        (
            "root.1",
            by("root", sh("root.1", "id -u")),
            "does not list `root`",
        ),
        (
            "gone.1",
            by("carol", sh("gone.1", "id -u")),
            "lists `carol` as user `no-such-user`, whom the host did not have",
        ),
        (
            "none.1",
            sh("none.1", "id -u"),
            "knows no user who submitted",
        ),
    ] {
        let why = refusal(&mut client, &spec);
        assert!(
            why.contains(said) && why.contains("as_submitter in /"),
            "{why}"
        );
        assert!(why.contains(&format!("host `{hostname}`")), "{why}");
        assert!(!host.attempt_dir(&id).exists(), "{id}");
    }
    let listed = by("daemon", sh("daemon.1", "id -u"));
    assert_eq!(ran_as(&host, &listed), uid_of("daemon"));
}

#[test]
fn no_agent_makes_up_who_submitted_a_step() {
    let Some(host) = host(LISTED) else { return };
    let mut client = host.client();
    let mut unsealed = by("games", sh("unsealed.1", "id -u"));
    unsealed.submitter.as_mut().unwrap().seal = None;
    let mut renamed = by("daemon", sh("renamed.1", "id -u"));
    renamed.submitter.as_mut().unwrap().user = UserName::new("games").unwrap();
    let mut borrowed = sh("borrowed.1", "id -u");
    borrowed.submitter = by("games", sh("other.1", "id -u")).submitter;
    let mut spoilt = by("games", sh("spoilt.1", "id -u"));
    spoilt
        .submitter
        .as_mut()
        .unwrap()
        .seal
        .as_mut()
        .unwrap()
        .signature[1][31] ^= 1;
    let own_key = sealed(2, "n", "games", sh("key.1", "id -u"));
    let mut posed = own_key.clone();
    posed.attempt = "posed.1".parse().unwrap();
    let (key, _) = sign(1, b"");
    posed.submitter.as_mut().unwrap().seal.as_mut().unwrap().key = key;
    let elsewhere = sealed(1, "m", "games", sh("node.1", "id -u"));
    for spec in [
        unsealed, renamed, borrowed, spoilt, own_key, posed, elsewhere,
    ] {
        let why = refusal(&mut client, &spec);
        assert!(
            why.contains("without the coordinator's signature for this attempt and node"),
            "{why}"
        );
        assert!(!host.attempt_dir(&spec.attempt).exists());
    }
}

#[test]
fn before_a_host_has_met_its_cluster_nobody_is_believed_to_have_submitted_a_step() {
    if !crate::left_out::needs_root() {
        return;
    }
    let host = Host::start_under(LISTED, &[]);
    let mut client = host.client();
    let why = refusal(&mut client, &by("games", sh("early.1", "id -u")));
    assert!(
        why.contains("before its first lease of the cluster"),
        "{why}"
    );
    meet(&mut client);
    assert_eq!(
        ran_as(&host, &by("games", sh("met.1", "id -u"))),
        uid_of("games")
    );
}

#[test]
fn a_subject_s_user_goes_before_its_submitters_and_others_run_as_usual_where_the_config_says_so() {
    let config = "other_submitters = \"as_usual\"\n[as_submitter]\n\"g@example.org\" = \"games\"\n[users]\nprod = \"daemon\"\n";
    let Some(host) = host(config) else { return };
    let own = |uid: u32| (2_100_000_000..=2_100_065_535).contains(&uid);
    assert_eq!(
        ran_as(&host, &by("g@example.org", sh("mapped.1", "id -u"))),
        uid_of("games")
    );
    assert!(own(ran_as(&host, &by("games", sh("name.1", "id -u")))));
    assert!(own(ran_as(&host, &sh("nobody.1", "id -u"))));
    let mut prod = by("g@example.org", sh("prod.1", "id -u"));
    prod.subject = Subject::new("prod").unwrap();
    assert_eq!(ran_as(&host, &prod), uid_of("daemon"));
    // A name that would change nothing is not accepted either.
    prod.attempt = "forged.1".parse().unwrap();
    assert!(refusal(&mut host.client(), &prod).contains("signature"));
}

#[test]
fn whoever_is_taken_off_the_list_begins_nothing_more() {
    let Some(mut host) = host(LISTED) else { return };
    let mut client = host.client();
    let runs = by("games", sh("runs.1", "echo up; exec sleep 1000"));
    client.spawn(&runs);
    client.wait_running(&runs.attempt);
    until_some("it runs", || {
        let text = host.output(&"runs.1", "stdout");
        (text == "up\n").then_some(())
    });
    host.configure("as_submitter = [\"daemon\"]\n");
    drop(client);
    host.upgrade();
    let mut client = host.client();
    client.wait_running(&runs.attempt);
    let why = refusal(&mut client, &by("games", sh("late.1", "id -u")));
    assert!(
        why.contains("does not list `games`: use another pool"),
        "{why}"
    );
    let beside = crate::execs::refused_beside(&mut client, &runs.attempt, Some("games"));
    assert!(
        beside.contains("does not list `games`, so no program begins beside or after the step"),
        "{beside}"
    );
    client.signal(&runs.attempt, StopSignal::Kill);
    client.wait_gone(&runs.attempt);
}

#[test]
fn where_nobody_asks_who_submitted_a_step_it_is_neither_believed_nor_kept() {
    let Some(host) = host("[users]\ns = \"daemon\"\n") else {
        return;
    };
    let mut client = host.client();
    let mut spec = by("root", sh("step.1", "id -u; exec sleep 1000"));
    spec.submitter.as_mut().unwrap().seal = None;
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    assert_eq!(host.number_in("step.1", "stdout"), uid_of("daemon"));
    let record = fs::read_to_string(host.record("step.1")).unwrap();
    assert!(!record.contains("submitter"), "{record}");
    client.signal(&spec.attempt, StopSignal::Kill);
    client.wait_gone(&spec.attempt);
}

//! Each invariant is violated on purpose, and the check finds it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::input::{LinkId, Settings};
use crate::link::{Link, LinkTerms};
use crate::waiting::ReleaseWait;
use sluice_common::id::{ClusterId, Epoch, NodeName, Subject};
use sluice_common::supervision::{
    BootMillis, DeviceAccess, Exit, LaunchRecord, ResourceLimits, SpawnSpec,
};
use sluice_common::time::{Span, Time};
use sluice_common::usage::Usage;
use sluice_common::wire::{AttemptEnd, StopReason};

fn core() -> Core {
    let settings = Settings {
        node: NodeName::new("n").unwrap(),
        path: "/bin".into(),
        gpu_release_timeout: Span::from_secs(30),
        respect_foreign: true,
        gpus_are_declared: false,
        attempts_dir: "/attempts".into(),
        inputs_dir: "/inputs".into(),
        ports: Default::default(),
        suspend_limit: Span::from_secs(120),
        topology: Default::default(),
    };
    Core::new(settings, None)
}

fn welcomed() -> Option<Link> {
    let terms = LinkTerms {
        lease: Span::from_secs(1),
        stop_limit: Span::from_secs(1),
        order_limit: Span::from_secs(1),
    };
    Some(Link {
        stage: LinkStage::Welcomed {
            greeted_at: BootMillis(0),
            terms,
        },
        ..Link::new(LinkId(1))
    })
}

fn starting(named: &str, command: Vec<alloc::string::String>, told: &str) -> Attempt {
    let span = Span::from_secs(1);
    Attempt::Starting {
        was_sent: true,
        awaits_inputs: false,
        spec: Box::new(SpawnSpec {
            attempt: named.parse().unwrap(),
            command,
            env: [("SLUICE_STEP_ID".into(), told.into())].into(),
            workdir: None,
            prefer_workdir: None,
            lease_until: None,
            lease_grace: span,
            launch_record: LaunchRecord {
                timeout: None,
                grace: span,
                gpus: vec![],
                processors: Default::default(),
                is_allocation: false,
            },
            subject: Subject::new("s").unwrap(),
            submitter: None,
            limits: ResourceLimits::default(),
            devices: DeviceAccess::default(),
            processors: Default::default(),
            hooks: sluice_common::template::launch::HooksAndLimits::default(),
            hook_env: Default::default(),
            wrapper: 0,
            env_file: false,
            streams: Default::default(),
            container: None,
            inputs: None,
            keep: vec![],
        }),
    }
}

#[test]
fn a_new_core_is_sound() {
    assert_eq!(check(&core()), Ok(()));
}

#[test]
fn a_welcome_without_an_epoch_or_a_lease_is_found() {
    let mut core = core();
    core.supervisor = Supervisor::Up;
    core.link = welcomed();
    let missing = "an epoch";
    assert_eq!(check(&core), Err(Violation::WelcomeWithout { missing }));
    let cluster = ClusterId::new("c").unwrap();
    core.highest_epoch = Some(
        Epoch {
            cluster,
            counter: 1,
        }
        .into(),
    );
    let missing = "a lease";
    assert_eq!(check(&core), Err(Violation::WelcomeWithout { missing }));
    core.lease_until = Some(BootMillis(1));
    assert_eq!(check(&core), Ok(()));
}

#[test]
fn a_greeting_before_the_supervisor_is_found() {
    let mut core = core();
    core.link = Some(Link {
        stage: LinkStage::Greeted { at: BootMillis(0) },
        ..Link::new(LinkId(1))
    });
    let what = "a coordinator was greeted";
    assert_eq!(check(&core), Err(Violation::BeforeSupervisor { what }));
}

#[test]
fn an_unfit_spawn_is_found() {
    let program = || vec!["true".into()];
    for (attempt, expected) in [
        (starting("a.1", program(), "a"), None),
        (starting("b.1", program(), "a"), Some("is another attempt")),
        (
            starting("a.1", program(), "b"),
            Some("carries another step's id"),
        ),
    ] {
        let mut core = core();
        core.attempts.insert("a.1".parse().unwrap(), attempt);
        let found = match check(&core) {
            Ok(()) => None,
            Err(Violation::SpawnUnfit { fault, .. }) => Some(fault),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn a_stop_that_waits_too_long_is_found() {
    let end = AttemptEnd {
        started: None,
        exit: Exit::Unknown,
        stopped: None,
        at: Time::default(),
        usage: Usage::default(),
        kept: None,
    };
    let longest = MAX_GRACE.millis();
    for (stop, is_sound) in [
        (
            Stop::Asked {
                kill_at: BootMillis(100 + longest),
            },
            true,
        ),
        (
            Stop::Asked {
                kill_at: BootMillis(101 + longest),
            },
            false,
        ),
        (
            Stop::Killing {
                again_at: BootMillis(1100),
            },
            true,
        ),
        (
            Stop::Killing {
                again_at: BootMillis(1101),
            },
            false,
        ),
    ] {
        let why = StopReason::Cancelled;
        let end = end.clone();
        for attempt in [
            Attempt::Ended { end, stop },
            Attempt::Stopping {
                process: None,
                why,
                stop,
            },
        ] {
            let mut core = core();
            core.clock = BootMillis(100);
            core.attempts.insert("a.1".parse().unwrap(), attempt);
            assert_eq!(check(&core).is_ok(), is_sound, "{stop:?}");
        }
    }
}

#[test]
fn a_release_that_waits_for_nothing_or_for_too_long_is_found() {
    let id: AttemptId = "a.1".parse().unwrap();
    let found = |core: &Core, fault| {
        let attempt = "a.1".parse().unwrap();
        assert_eq!(check(core), Err(Violation::ReleaseUnfit { attempt, fault }));
    };
    let mut core = core();
    core.supervisor = Supervisor::Up;
    let end = AttemptEnd {
        started: None,
        exit: Exit::Unknown,
        stopped: None,
        usage: Default::default(),
        kept: None,
        at: Time::from_unix_millis(0),
    };
    core.attempts
        .insert(id.clone(), Attempt::Releasing { end: end.clone() });
    found(&core, "is being released and waits for nothing");
    let mut release = ReleaseWait {
        since: BootMillis(0),
        until: BootMillis(30_000),
        awaited: Default::default(),
    };
    core.releases.insert(id.clone(), release.clone());
    found(&core, "waits for no GPU");
    release.awaited.insert("GPU-a".into(), None);
    core.releases.insert(id.clone(), release.clone());
    assert_eq!(check(&core), Ok(()));
    release.until = BootMillis(30_001);
    core.releases.insert(id.clone(), release);
    found(&core, "waits for its GPUs longer than the maximum");
    core.attempts.insert(id, Attempt::Released { end });
    found(&core, "waits for GPUs and is not being released");
}

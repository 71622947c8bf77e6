//! Golden bytes of every message between agent and supervisor. A change here is a change of the protocol: raise
//! `supervision::SUPERVISION_VERSION` with it.

use crate::notation::check;
use sluice_common::carving::{CarveFailure, GpuLayout};
use sluice_common::container::Container;
use sluice_common::device::DeviceNumber;
use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::exec::{ExecId, ExecOrder, ExecProgram, TerminalRequest};
use sluice_common::host_health::HostHealth;
use sluice_common::id::{AttemptId, BootId, NodeName, Subject, UserName};
use sluice_common::image::ContainerRuntime;
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::lease::{Challenge, LeaseGrant, LeaseKey, SealedLease};
use sluice_common::processors::CpuMode;
use sluice_common::streams::{OutputPath, StepInput, StepStreams};
use sluice_common::submitter::{Submitter, SubmitterSeal};
use sluice_common::supervision::{
    AttemptView, BootMillis, CpuAllocation, DeviceAccess, Exit, FreezeRefusal, FreezerState,
    FromSupervisor, FrozenTime, HostPhase, LaunchRecord, MovedMemory, OutOfMemory, Process,
    ProcessEnd, ResourceLimits, SUPERVISION_VERSION, SpawnSpec, StopSignal, StorageBound,
    StorageExceeded, ToSupervisor,
};
use sluice_common::template::launch::{HookRun, HooksAndLimits, ProcessLimit};
use sluice_common::time::{Span, Time};
use sluice_common::usage::{RunningUsage, Usage};
use sluice_common::wire::StopReason;

/// Protocol version of the bytes below.
#[test]
fn golden_bytes_belong_to_this_version() {
    assert_eq!(SUPERVISION_VERSION, 10);
}

fn attempt() -> AttemptId {
    "ab.2".parse().unwrap()
}

const ATTEMPT: &str = "0400000000000000 'ab.2'";

fn memo() -> LaunchRecord {
    LaunchRecord {
        timeout: Some(Span::from_millis(500)),
        grace: Span::from_millis(7),
        gpus: vec!["GPU-8".into()],
        processors: "0-3,8".parse().unwrap(),
        is_allocation: true,
    }
}

const MEMO: &str = "01 f401000000000000 0700000000000000 0100000000000000 0500000000000000 'GPU-8' 0500000000000000 '0-3,8' 01";

fn process() -> Process {
    Process {
        pid: 77,
        start_ticks: 258,
        started_at: Time::from_unix_millis(1_000),
        workdir_refused: Some(DirectoryRefusal::Missing),
    }
}

const PROCESS: &str = "4d000000 0201000000000000 e803000000000000 01 00000000";

#[test]
fn spawns() {
    let full = SpawnSpec {
        attempt: attempt(),
        command: vec!["sh".into(), "-c".into()],
        env: [("A".into(), "1".into()), ("B".into(), String::new())].into(),
        workdir: Some("/w".into()),
        prefer_workdir: None,
        lease_until: Some(BootMillis(259)),
        lease_grace: Span::from_millis(8),
        launch_record: memo(),
        subject: Subject::new("s").unwrap(),
        submitter: Some(Submitter {
            user: UserName::new("u").unwrap(),
            seal: Some(SubmitterSeal {
                key: LeaseKey([2; 32]),
                signature: [[3; 32], [4; 32]],
            }),
        }),
        limits: ResourceLimits {
            mcpu: Some(1500),
            memory_bytes: Some(1 << 30),
            storage_bytes: Some(1 << 31),
        },
        devices: DeviceAccess {
            granted: vec![DeviceNumber::new(195, 0)],
            all_gpus: vec![DeviceNumber::new(195, 0), DeviceNumber::new(195, 1)],
        },
        processors: CpuAllocation {
            mode: CpuMode::Pinned,
            own: "0-1".parse().unwrap(),
        },
        hooks: HooksAndLimits {
            limits: vec![ProcessLimit {
                name: "core".into(),
                max: 258,
            }],
            before: vec![],
            after: vec![HookRun {
                name: "a".into(),
                command: vec!["x".into()],
                timeout: Span::from_millis(9),
            }],
        },
        hook_env: [("P".into(), "2".into())].into(),
        wrapper: 1,
        env_file: true,
        streams: StepStreams {
            stdin: StepInput::File("/f".into()),
            terminal: false,
            stdout: None,
            stderr: Some(OutputPath::new("/%u").unwrap()),
            append: true,
        },
        container: Some(Container {
            image: "/r".parse().unwrap(),
            runtime: Some(ContainerRuntime::Podman),
            mounts: vec![],
        }),
        inputs: Some("/i".into()),
        keep: vec!["o/*".parse().unwrap()],
    };
    let golden = format!(
        "00000000
         {ATTEMPT}
         0200000000000000           # command: two
           0200000000000000 'sh' 0200000000000000 '-c'
         0200000000000000           # env: two, in the order of their names
           0100000000000000 'A' 0100000000000000 '1'
           0100000000000000 'B' 0000000000000000
         01 0200000000000000 '/w'   # workdir
         00                         # prefer_workdir
         01 0301000000000000        # lease_until
         0800000000000000           # lease_grace
         {MEMO}
         0100000000000000 's'        # subject
         01 0100000000000000 'u'     # submitter
         01 {}                       # key
         {} {}                       # signature
         01 dc05000000000000        # mcpu
         01 0000004000000000        # memory_bytes
         01 0000008000000000        # storage_bytes
         0100000000000000           # granted: one
           c3000000 00000000
         0200000000000000           # fenced: two
           c3000000 00000000
           c3000000 01000000
         02000000 0300000000000000 '0-1' # processors
         0100000000000000           # limits: one
           0400000000000000 'core' 0201000000000000
         0000000000000000           # before
         0100000000000000           # after: one
           0100000000000000 'a' 0100000000000000 0100000000000000 'x' 0900000000000000
         0100000000000000 0100000000000000 'P' 0100000000000000 '2' # around_env
         01000000 01                # wrapper, env_file
         02000000 0200000000000000 '/f' 00 # stdin, terminal
         00 01 0300000000000000 '/%u' 01 # stdout, stderr, append
         01 0200000000000000 '/r' # container: image
         01 02000000 0000000000000000 # runtime, mounts
         01 0200000000000000 '/i' # inputs
         0100000000000000 0300000000000000 'o/*' # keep",
        "02".repeat(32),
        "03".repeat(32),
        "04".repeat(32),
    );
    check(&ToSupervisor::Spawn(full.clone()), &golden);
    let bare = SpawnSpec {
        env: Default::default(),
        workdir: None,
        prefer_workdir: Some("/p".into()),
        lease_until: None,
        launch_record: LaunchRecord {
            timeout: None,
            gpus: vec![],
            processors: Default::default(),
            ..memo()
        },
        submitter: None,
        limits: ResourceLimits::default(),
        devices: DeviceAccess::default(),
        processors: CpuAllocation::default(),
        hooks: HooksAndLimits::default(),
        hook_env: Default::default(),
        wrapper: 0,
        env_file: false,
        streams: StepStreams::default(),
        container: None,
        inputs: None,
        keep: vec![],
        ..full
    };
    let golden = format!(
        "{ATTEMPT}
         0200000000000000 0200000000000000 'sh' 0200000000000000 '-c'
         0000000000000000 00 01 0200000000000000 '/p' 00 # env, workdir, prefer_workdir, lease_until
         0800000000000000       # lease_grace
         00 0700000000000000 0000000000000000 0000000000000000 01 # memo
         0100000000000000 's' 00 00 00 00
         0000000000000000 0000000000000000 # devices
         00000000 0000000000000000 # processors
         0000000000000000 0000000000000000 0000000000000000 # limits, before, after
         0000000000000000 00000000 00 # around_env, wrapper, env_file
         00000000 00 00 00 00 # stdin, terminal, stdout, stderr, append
         00 00 0000000000000000 # container, inputs, keep"
    );
    check(&bare, &golden);
}

#[test]
fn other_orders() {
    let signal = |signal| ToSupervisor::Signal {
        attempt: attempt(),
        signal,
    };
    let golden = format!("01000000 {ATTEMPT} 00000000");
    check(&signal(StopSignal::Terminate), &golden);
    let golden = format!("01000000 {ATTEMPT} 01000000");
    check(&signal(StopSignal::Kill), &golden);
    let renew = ToSupervisor::Renew {
        until: BootMillis(258),
    };
    check(&renew, "02000000 0201000000000000");
    let forget = ToSupervisor::Forget { attempt: attempt() };
    check(&forget, &format!("03000000 {ATTEMPT}"));
    check(&ToSupervisor::List, "04000000");
    check(&ToSupervisor::Ping, "0c000000");
    check(&FromSupervisor::Pong, "04000000");
    let freeze = ToSupervisor::Freeze { attempt: attempt() };
    check(&freeze, &format!("05000000 {ATTEMPT}"));
    let thaw = ToSupervisor::Thaw { attempt: attempt() };
    check(&thaw, &format!("06000000 {ATTEMPT}"));
    let notice = ToSupervisor::Notice {
        attempt: attempt(),
        why: StopReason::Preempted,
        kill_at: BootMillis(258),
    };
    let golden = format!("07000000 {ATTEMPT} 03000000 0201000000000000");
    check(&notice, &golden);
    let suspend = ToSupervisor::Suspend {
        attempt: attempt(),
        users: vec![7],
        bytes: 258,
        limit: Span::from_millis(259),
    };
    let pin = ToSupervisor::Pin {
        attempt: attempt(),
        processors: "4".parse().unwrap(),
    };
    check(&pin, &format!("0b000000 {ATTEMPT} 0100000000000000 '4'"));
    let numbers = "0100000000000000 07000000 0201000000000000 0301000000000000";
    check(&suspend, &format!("08000000 {ATTEMPT} {numbers}"));
}

fn view(phase: HostPhase) -> AttemptView {
    AttemptView {
        attempt: attempt(),
        phase,
        launch_record: memo(),
        freezer: FreezerState::Thawed,
        frozen: Default::default(),
    }
}

fn usage() -> Usage {
    Usage {
        cpu_us: Some(258),
        read_bytes: Some(259),
        ..Usage::default()
    }
}

fn end(process: Option<Process>, exit: Exit) -> ProcessEnd {
    ProcessEnd {
        process,
        exit,
        ended_at: Time::from_unix_millis(1_001),
        usage: usage(),
        kept: None,
    }
}

/// Encoded `FrozenTime` of an attempt that was never frozen.
const NEVER: &str = "0000000000000000 00";

#[test]
fn hello_lists_every_phase() {
    let hello = FromSupervisor::Hello {
        version: 1,
        boot_id: BootId::new("b00").unwrap(),
        attempts: vec![
            view(HostPhase::Running(process())),
            view(HostPhase::Ended(end(Some(process()), Exit::Signal(9)))),
            view(HostPhase::Gone(end(None, Exit::StartFailed("no".into())))),
        ],
        capabilities: [(Capability::Freeze, Mechanism::Cgroup1)].into(),
        carves_gpus: true,
    };
    let golden = format!(
        "00000000
         01000000               # version
         0300000000000000 'b00' # boot_id
         0300000000000000       # attempts: three
           {ATTEMPT}
             00000000 {PROCESS}
             {MEMO} 00000000 {NEVER} # freezer: thawed
           {ATTEMPT}
             01000000 01 {PROCESS} 01000000 09000000 e903000000000000
               01 0201000000000000 00 01 0301000000000000 00 00 # usage, files
             {MEMO} 00000000 {NEVER}
           {ATTEMPT}
             02000000 00 02000000 0200000000000000 'no' e903000000000000
               01 0201000000000000 00 01 0301000000000000 00 00 # usage, files
             {MEMO} 00000000 {NEVER}
         0100000000000000        # capabilities: one
           01000000 01000000
         01                      # carves_gpus"
    );
    check(&hello, &golden);
}

#[test]
fn a_changed_attempt() {
    let changed = FromSupervisor::Attempt(view(HostPhase::Running(process())));
    let golden = format!("01000000 {ATTEMPT} 00000000 {PROCESS} {MEMO} 00000000 {NEVER}");
    check(&changed, &golden);
}

#[test]
fn programs_beside_an_attempt() {
    let exec = || ExecId {
        attempt: attempt(),
        number: 258,
    };
    let begin = ToSupervisor::Exec {
        exec: exec(),
        order: ExecOrder {
            program: ExecProgram::Command {
                command: vec!["a".into()],
                terminal: Some(TerminalRequest {
                    rows: 24,
                    columns: 80,
                    term: "x".into(),
                }),
            },
            by: UserName::new("b").ok(),
        },
    };
    let command = "0100000000000000 0100000000000000 'a'";
    let by = "01 0100000000000000 'b'";
    let terminal = "01 1800 5000 0100000000000000 'x'";
    check(
        &begin,
        &format!("09000000 {ATTEMPT} 02010000 00000000 {command} {terminal} {by}"),
    );
    let copy = ToSupervisor::Exec {
        exec: exec(),
        order: ExecOrder {
            program: ExecProgram::CopyFiles,
            by: None,
        },
    };
    check(&copy, &format!("09000000 {ATTEMPT} 02010000 01000000 00"));
    let probe = ToSupervisor::Exec {
        exec: exec(),
        order: ExecOrder {
            program: ExecProgram::Probe {
                command: vec!["a".into()],
            },
            by: None,
        },
    };
    let golden = format!("09000000 {ATTEMPT} 02010000 02000000 {command} 00");
    check(&probe, &golden);
    let connect = ToSupervisor::Exec {
        exec: exec(),
        order: ExecOrder {
            program: ExecProgram::Connect {
                port: "a".parse().unwrap(),
            },
            by: None,
        },
    };
    let golden = format!("09000000 {ATTEMPT} 02010000 03000000 0100000000000000 'a' 00");
    check(&connect, &golden);
    let end = ToSupervisor::EndExec { exec: exec() };
    check(&end, &format!("0a000000 {ATTEMPT} 02010000"));
    let ended = FromSupervisor::ExecEnded {
        exec: exec(),
        exit: Exit::Code(3),
    };
    let golden = format!("03000000 {ATTEMPT} 02010000 00000000 03000000");
    check(&ended, &golden);
}

#[test]
fn how_the_host_is() {
    let unfit = FromSupervisor::Health(HostHealth::Unfit("no".into()));
    check(&unfit, "02000000 01000000 0200000000000000 'no'");
}

#[test]
fn challenges_and_leases() {
    let sixteen = "01".repeat(16);
    check(&ToSupervisor::Challenge, "0d000000");
    let drawn = FromSupervisor::Challenge(Challenge([1; 16]));
    check(&drawn, &format!("05000000 {sixteen}"));
    let lease = SealedLease {
        grant: LeaseGrant {
            node: NodeName::new("n").unwrap(),
            challenge: Challenge([1; 16]),
            lease: Span::from_millis(258),
            stop_limit: Span::from_millis(3),
        },
        key: LeaseKey([2; 32]),
        signature: [[3; 32], [4; 32]],
    };
    let signed = b"sluice lease 1\nn\n01010101010101010101010101010101\n258\n3\n";
    assert_eq!(lease.grant.signed_bytes(), signed);
    let (key, one, two) = ("02".repeat(32), "03".repeat(32), "04".repeat(32));
    let terms = "0201000000000000 0300000000000000";
    let golden = format!("0e000000 0100000000000000 'n' {sixteen} {terms} {key} {one} {two}");
    check(&ToSupervisor::Lease(lease), &golden);
}

#[test]
fn frozen_time() {
    let frozen = FrozenTime {
        before: Span::from_millis(258),
        since: Some(BootMillis(259)),
    };
    check(&frozen, "0201000000000000 01 0301000000000000");
}

#[test]
fn freezer_states() {
    check(&FreezerState::Freezing, "01000000");
    check(&FreezerState::Frozen, "02000000");
    let refused = FreezerState::Refused;
    check(&refused(FreezeRefusal::Unsupported), "03000000 00000000");
    for (refusal, golden) in [
        (FreezeRefusal::NoCheckpoint, "02000000"),
        (FreezeRefusal::SeveralProcesses, "03000000"),
        (FreezeRefusal::TimedOut, "04000000"),
    ] {
        check(&refusal, golden);
    }
    let not_restored = FreezeRefusal::NotRestored("no".into());
    check(&not_restored, "05000000 0200000000000000 6e6f");
    check(&FreezerState::Moving, "04000000");
    let moved = MovedMemory {
        pids: vec![7],
        bytes: 258,
    };
    let golden = "05000000 0100000000000000 07000000 0201000000000000";
    check(&FreezerState::Moved(moved), golden);
    check(&FreezerState::Restoring, "06000000");
    let failed = FreezeRefusal::Failed("no".into());
    check(&refused(failed), "03000000 01000000 0200000000000000 'no'");
}

#[test]
fn exits() {
    check(&Exit::Code(-1), "00000000 ffffffff");
    check(&Exit::Signal(9), "01000000 09000000");
    let failed = Exit::StartFailed("no".into());
    check(&failed, "02000000 0200000000000000 'no'");
    check(&Exit::LeaseExpired, "03000000");
    check(&Exit::HostRebooted, "04000000");
    check(&Exit::Unknown, "05000000");
    let failed = Exit::PrologFailed("no".into());
    let golden = "08000000 0200000000000000 'no'";
    check(&failed, golden);
    let not_begun = Exit::NotBegun("no".into());
    check(&not_begun, "0a000000 0200000000000000 'no'");
    let failed = Exit::HostFailed("no".into());
    check(&failed, "06000000 0200000000000000 'no'");
    let killed = Exit::OutOfMemory(OutOfMemory {
        limit_bytes: Some(258),
        peak_bytes: None,
    });
    check(&killed, "07000000 01 0201000000000000 00");
    let exceeded = |bound| {
        Exit::StorageExceeded(StorageExceeded {
            bound,
            used_bytes: 259,
            used_files: 3,
        })
    };
    let used = "0301000000000000 0300000000000000";
    let granted = exceeded(StorageBound::Granted(258));
    check(
        &granted,
        &format!("09000000 00000000 0201000000000000 {used}"),
    );
    let reserve = exceeded(StorageBound::Reserve);
    check(&reserve, &format!("09000000 01000000 {used}"));
    let depth = exceeded(StorageBound::Depth);
    check(&depth, &format!("09000000 02000000 {used}"));
    let files = exceeded(StorageBound::Files(2));
    check(
        &files,
        &format!("09000000 03000000 0200000000000000 {used}"),
    );
}

#[test]
fn a_gpu_that_is_cut() {
    let layout = || GpuLayout::slices(vec!["3g.40gb".parse().unwrap()]);
    let slices = "01000000 0100000000000000 0700000000000000 '3g.40gb'";
    let gpu = "0500000000000000 'GPU-0'";
    let order = |layout| ToSupervisor::Carve("GPU-0".into(), layout);
    check(&order(layout()), &format!("0f000000 {gpu} {slices}"));
    check(
        &order(GpuLayout::Whole),
        &format!("0f000000 {gpu} 00000000"),
    );
    let carved = |failure| FromSupervisor::Carved("GPU-0".into(), layout(), failure);
    check(&carved(None), &format!("06000000 {gpu} {slices} 00"));
    let failures = [
        (CarveFailure::NotAllowed, "00000000"),
        (
            CarveFailure::InUse("a".into()),
            "01000000 0100000000000000 'a'",
        ),
        (CarveFailure::NeedsReset, "02000000"),
        (
            CarveFailure::NotOffered("3g.40gb".parse().unwrap()),
            "03000000 0700000000000000 '3g.40gb'",
        ),
        (CarveFailure::NoRoom, "04000000"),
        (
            CarveFailure::Refused("a".into()),
            "05000000 0100000000000000 'a'",
        ),
        (CarveFailure::TimedOut, "06000000"),
        (
            CarveFailure::OthersSeen(GpuLayout::Whole),
            "07000000 00000000",
        ),
    ];
    for (failure, golden) in failures {
        let golden = format!("06000000 {gpu} {slices} 01 {golden}");
        check(&carved(Some(failure)), &golden);
    }
}

#[test]
fn what_attempts_use() {
    check(&ToSupervisor::Measure, "10000000");
    let usage = RunningUsage {
        cpu_us: Some(5),
        memory_bytes: None,
    };
    let used = FromSupervisor::Usages(vec![(attempt(), usage)]);
    let golden = format!("07000000 0100000000000000 {ATTEMPT} 01 0500000000000000 00");
    check(&used, &golden);
}

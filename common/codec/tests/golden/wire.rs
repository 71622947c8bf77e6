//! Golden bytes of every message between coordinator and agent. A change here is a change of the protocol: raise
//! `wire::PROTOCOL_VERSION` with it.

use std::collections::{BTreeMap, BTreeSet};

use crate::notation::check;
use sluice_common::amount::Amounts;
use sluice_common::carving::{CarveFailure, CarveOrder, CarveOutcome, GpuLayout};
use sluice_common::container::{Container, ContainerMount};
use sluice_common::device::{DeviceNode, DeviceNumber};
use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::epoch::{EPOCH_SEAL_BYTES, EpochSeal, SealedEpoch};
use sluice_common::gpu_state::{GpuFault, GpuStates};
use sluice_common::host_health::{HostHealth, SupervisorState};
use sluice_common::id::{
    AttemptId, BootId, ClusterId, Epoch, NodeName, PoolName, Subject, UserName,
};
use sluice_common::image::ContainerRuntime;
use sluice_common::inputs::{InputFile, InputHash};
use sluice_common::inventory::{
    BoardFacts, BoardReading, Capability, Gpu, GpuProcess, GpuReading, HostReading, Inventory,
    MachineIdentity, Mechanism, MigInstance, MigMode, Readings, RemappedRows, Reserve,
};
use sluice_common::keep::KeptFiles;
use sluice_common::lease::Challenge;
use sluice_common::metric::{MetricReading, MetricSource};
use sluice_common::probe::{
    EndpointReport, HttpTarget, Probe, ProbeAction, ProbeFailure, ProbeKind, Probes,
};
use sluice_common::processors::CpuMode;
use sluice_common::streams::{OutputPath, StepInput, StepStreams};
use sluice_common::submitter::Submitter;
use sluice_common::supervision::{BootMillis, Exit};
use sluice_common::template::launch::{HookRun, HooksAndLimits, Launch, ProcessLimit};
use sluice_common::time::{Span, Time};
use sluice_common::usage::{Usage, UsageReport};
use sluice_common::warrant::SealedWarrant;
use sluice_common::wire::{
    Assignment, AttemptEnd, AttemptPhase, AttemptStatus, Command, FromNode, Gang, Heartbeat,
    HeartbeatAck, Hello, HelloReply, InputsRequest, LogReply, LogRequest, LogStream,
    MemoryShortage, OutputSince, PROTOCOL_VERSION, StartedProcess, StopReason, StreamKind,
    SuspendFailure, ToNode, Welcome,
};

use sluice_common::credential::Fingerprint;
use sluice_common::join::{
    CertificateMessage, CertificateRequest, Credentials, JoinReply, JoinRequest, JoinSecret,
};

fn credentials() -> Credentials {
    Credentials {
        certificate: "C".into(),
        authorities: "AB".into(),
    }
}

const CREDENTIALS: &str = "0100000000000000 'C' 0200000000000000 'AB'";

#[test]
fn joining_and_renewing() {
    check(&StreamKind::Certificates, "02000000");
    let request = JoinRequest {
        version: "1".into(),
        secret: JoinSecret([7; 32]),
        node: NodeName::new("n1").unwrap(),
        pool: None,
        request: vec![1, 2],
    };
    let secret = "07".repeat(32);
    let node = "0200000000000000 'n1'";
    check(
        &request,
        &format!("0100000000000000 '1' {secret} {node} 00 0200000000000000 0102"),
    );
    check(
        &JoinReply::Joined(credentials()),
        &format!("00000000 {CREDENTIALS}"),
    );
    let refused = JoinReply::Refused {
        message: "no".into(),
        later: true,
    };
    check(&refused, "01000000 0200000000000000 'no' 01");
    let request = CertificateRequest { request: vec![3] };
    check(&request, "0100000000000000 03");
    let authorities = CertificateMessage::Authorities {
        pem: "AB".into(),
        issuing: Some(Fingerprint::new([9; 32])),
    };
    let hash = "09".repeat(32);
    check(
        &authorities,
        &format!("00000000 0200000000000000 'AB' 01 4000000000000000 '{hash}'"),
    );
    check(
        &CertificateMessage::Certificate(credentials()),
        &format!("01000000 {CREDENTIALS}"),
    );
    let refused = CertificateMessage::Refused {
        message: "no".into(),
    };
    check(&refused, "02000000 0200000000000000 'no'");
}

/// Protocol version of the bytes below.
#[test]
fn golden_bytes_belong_to_this_version() {
    assert_eq!(PROTOCOL_VERSION, 1);
}

fn attempt() -> AttemptId {
    "ab.2".parse().unwrap()
}

const ATTEMPT: &str = "0400000000000000 'ab.2'";

fn epoch() -> Epoch {
    Epoch {
        cluster: ClusterId::new("c1").unwrap(),
        counter: 258,
    }
}

const EPOCH: &str = "0200000000000000 'c1' 0201000000000000";

fn sealed_epoch() -> SealedEpoch {
    SealedEpoch {
        epoch: epoch(),
        seal: Some(EpochSeal([0x5a; EPOCH_SEAL_BYTES])),
    }
}

const SEAL: &str = "01 5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

fn started() -> StartedProcess {
    StartedProcess {
        pid: 77,
        at: Time::from_unix_millis(1_000),
        workdir_refused: Some(DirectoryRefusal::Denied),
    }
}

const STARTED: &str = "4d000000 e803000000000000 01 02000000";

fn inventory() -> Inventory {
    Inventory {
        kernel: "6.1".into(),
        os: "Deb".into(),
        arch: "x86".into(),
        cpu_model: "Q".into(),
        cores: 4,
        cpus: 8,
        memory_bytes: 1 << 34,
        storage_bytes: 1 << 40,
        capabilities: BTreeMap::from([(Capability::Freeze, Mechanism::Cgroup1)]),
        driver: Some("570".into()),
        cuda: Some("12.8".into()),
        gpus: vec![Gpu {
            index: 1,
            uuid: "GPU-8".into(),
            pci: Some("0:1".into()),
            model: "H100".into(),
            platform: "h100".into(),
            memory_bytes: 85_520_809_984,
            mig: Some(MigInstance {
                profile: "1g".into(),
                parent: "GPU-7".into(),
            }),
            nvlink: vec!["GPU-6".into()],
            numa_node: Some(1),
            ecc: Some(true),
            devices: vec![DeviceNode {
                path: "/d".into(),
                number: DeviceNumber::new(195, 1),
            }],
            board: BoardFacts {
                compute_capability: Some("9.0".into()),
                serial: Some("165".into()),
                vbios: Some("96".into()),
                pcie_max_generation: Some(5),
                pcie_max_lanes: Some(16),
                mig_profiles: BTreeMap::from([("1g".into(), 7)]),
                virtualization: Some("none".into()),
                confidential_computing: Some(false),
                nvlink_domain: Some("7.1".into()),
            },
        }],
        notes: vec!["slow".into()],
        reserve: Reserve {
            cpus: 2,
            memory_bytes: 1 << 33,
        },
        machine: MachineIdentity {
            id: "m1".into(),
            addresses: BTreeSet::from(["a1".into()]),
        },
        gpus_unknown: true,
        empty_gpus: Vec::new(),
        carves_gpus: true,
        container_runtimes: [(ContainerRuntime::Bubblewrap, "0.8".into())].into(),
    }
}

const INVENTORY: &str = "
    0300000000000000 '6.1'     # kernel
    0300000000000000 'Deb'     # os
    0300000000000000 'x86'     # arch
    0100000000000000 'Q'       # cpu_model
    04000000                   # cores
    08000000                   # cpus
    0000000004000000           # memory_bytes
    0000000000010000           # storage_bytes
    0100000000000000           # capabilities: one
      01000000 01000000        #   freeze: cgroup1
    01 0300000000000000 '570'  # driver
    01 0400000000000000 '12.8' # cuda
    0100000000000000           # gpus: one
      01000000                 #   index
      0500000000000000 'GPU-8' #   uuid
      01 0300000000000000 '0:1' #  pci
      0400000000000000 'H100'  #   model
      0400000000000000 'h100'  #   platform
      000070e913000000         #   memory_bytes
      01 0200000000000000 '1g' #   mig: profile
         0500000000000000 'GPU-7' # parent
      0100000000000000         #   nvlink: one
        0500000000000000 'GPU-6'
      01 01000000              #   numa_node
      01 01                    #   ecc
      0100000000000000         #   devices: one
        0200000000000000 '/d'  #     path
        c3000000 01000000      #     number
      01 0300000000000000 '9.0' #  board: compute_capability
      01 0300000000000000 '165' #    serial
      01 0200000000000000 '96' #     vbios
      01 05000000 01 10000000  #     pcie_max_generation, pcie_max_lanes
      0100000000000000         #     mig_profiles: one
        0200000000000000 '1g' 07000000
      01 0400000000000000 'none' #   virtualization
      01 00                    #     confidential_computing
      01 0300000000000000 '7.1' #    nvlink_domain
    0100000000000000           # notes: one
      0400000000000000 'slow'
    02000000 0000000002000000  # reserve: cpus, memory_bytes
    0200000000000000 'm1'      # machine: id
      0100000000000000         # machine: addresses: one
        0200000000000000 'a1'
    01                         # gpus_unknown
    0000000000000000 01        # empty_gpus, carves_gpus
    0100000000000000           # container_runtimes: one
      01000000 0300000000000000 '0.8' # bubblewrap
";

#[test]
fn stream_kinds() {
    check(&StreamKind::Control, "00000000");
    check(&StreamKind::Heartbeat, "01000000");
    check(&StreamKind::Inputs, "03000000");
    let request = InputsRequest { attempt: attempt() };
    check(&request, ATTEMPT);
}

fn gpu_states() -> GpuStates {
    let held = GpuFault::Quarantined {
        why: "held".into(),
        pids: vec![7],
    };
    GpuStates {
        faults: BTreeMap::from([
            ("GPU-7".into(), held),
            ("GPU-8".into(), GpuFault::Foreign { pids: vec![] }),
            ("GPU-9".into(), GpuFault::Lost),
        ]),
        drain: Some("XID".into()),
    }
}

const GPU_STATES: &str = "
    0300000000000000                        # faults: three
      0500000000000000 'GPU-7' 00000000     #   quarantined
        0400000000000000 'held' 0100000000000000 07000000
      0500000000000000 'GPU-8' 01000000 0000000000000000
      0500000000000000 'GPU-9' 02000000
    01 0300000000000000 'XID'               # drain
";

#[test]
fn gpu_states_of_a_host() {
    let golden = format!("03000000 {GPU_STATES}");
    check(&FromNode::GpuStates(Box::new(gpu_states())), &golden);
}

#[test]
fn hello() {
    let status = AttemptStatus {
        attempt: attempt(),
        phase: AttemptPhase::Starting,
    };
    let hello = Hello {
        protocol: 1,
        version: "0.1".into(),
        node: NodeName::new("n-1").unwrap(),
        pool: PoolName::new("default").unwrap(),
        labels: BTreeMap::from([("rack".into(), "r2".into())]),
        address: "a7".into(),
        boot_id: BootId::new("b00").unwrap(),
        state_dir: "1-2".into(),
        highest_epoch: Some(sealed_epoch()),
        inventory: inventory(),
        attempts: vec![status],
        gpu_states: gpu_states(),
        sent_at: BootMillis(258),
        supervisor: SupervisorState::Unresponsive("no".into()),
        challenge: Some(Challenge([1; 16])),
    };
    let golden = format!(
        "01000000                  # protocol
         0300000000000000 '0.1'     # version
         0300000000000000 'n-1'     # node
         0700000000000000 'default' # pool
         0100000000000000           # labels: one
           0400000000000000 'rack' 0200000000000000 'r2'
         0200000000000000 'a7'      # address
         0300000000000000 'b00'     # boot_id
         0300000000000000 '1-2'     # state_dir
         01 {EPOCH} {SEAL}          # highest_epoch
         {INVENTORY}
         0100000000000000           # attempts: one
           {ATTEMPT} 00000000       #   starting
         {GPU_STATES}
         0201000000000000           # said_at
         01000000 0200000000000000 'no' # supervisor: away
         01 01010101010101010101010101010101 # challenge"
    );
    check(&hello, &golden);
}

#[test]
fn hello_of_a_new_host() {
    let hello = Hello {
        protocol: 1,
        version: String::new(),
        node: NodeName::new("n").unwrap(),
        pool: PoolName::new("p").unwrap(),
        labels: BTreeMap::new(),
        address: String::new(),
        boot_id: BootId::new("b").unwrap(),
        state_dir: String::new(),
        highest_epoch: None,
        inventory: Inventory::default(),
        attempts: vec![],
        gpu_states: GpuStates::default(),
        sent_at: BootMillis(1),
        supervisor: SupervisorState::Responding,
        challenge: None,
    };
    let golden = "
        01000000                            # protocol
        0000000000000000                    # version
        0100000000000000 'n'                # node
        0100000000000000 'p'                # pool
        0000000000000000                    # labels
        0000000000000000                    # address
        0100000000000000 'b'                # boot_id
        0000000000000000                    # state_dir
        00                                  # highest_epoch
        0000000000000000 0000000000000000   # kernel, os
        0000000000000000 0000000000000000   # arch, cpu_model
        00000000 00000000                   # cores, cpus
        0000000000000000 0000000000000000   # memory_bytes, storage_bytes
        0000000000000000 00 00              # capabilities, driver, cuda
        0000000000000000 0000000000000000   # gpus, notes
        00000000 0000000000000000           # reserve
        0000000000000000 0000000000000000   # machine: id, addresses
        00                                  # gpus_unknown
        0000000000000000 00                 # empty_gpus, carves_gpus
        0000000000000000                    # container_runtimes
        0000000000000000                    # attempts
        0000000000000000 00                 # gpu_states
        0100000000000000                    # said_at
        00000000                            # supervisor: answers
        00                                  # challenge
    ";
    check(&hello, golden);
}

#[test]
fn greetings() {
    let welcome = Welcome {
        epoch: sealed_epoch(),
        lease: Span::from_secs(300),
        stop_limit: Span::from_secs(30),
        heartbeat: Span::from_secs(3),
        order_limit: Span::from_secs(10),
        seal: None,
    };
    let golden = format!(
        "00000000 {EPOCH} {SEAL}
         e093040000000000 # lease
         3075000000000000 # stop_limit
         b80b000000000000 # heartbeat
         1027000000000000 # order_limit
         00               # seal"
    );
    check(&HelloReply::Welcome(welcome), &golden);
    let refused = HelloReply::Refused {
        message: "no".into(),
    };
    check(&refused, "01000000 0200000000000000 'no'");
}

#[test]
fn from_node() {
    let status = AttemptStatus {
        attempt: attempt(),
        phase: AttemptPhase::Running(started()),
    };
    let golden = format!("00000000 {ATTEMPT} 01000000 {STARTED}");
    check(&FromNode::Status(status), &golden);
    let golden = format!("01000000 {INVENTORY}");
    check(&FromNode::Inventory(Box::new(inventory())), &golden);
}

#[test]
fn readings() {
    let gpu = GpuReading {
        uuid: "GPU-8".into(),
        memory_used_bytes: Some(1),
        memory_free_bytes: Some(2),
        utilization_percent: Some(3),
        temperature_celsius: Some(4),
        power_milliwatts: Some(5),
        power_limit_milliwatts: Some(6),
        ecc_corrected: Some(7),
        ecc_uncorrected: None,
        xids: BTreeMap::from([(79, 1)]),
        processes: Some(vec![GpuProcess {
            pid: 9,
            memory_bytes: Some(10),
        }]),
        board: Some(BoardReading {
            memory_temperature_celsius: Some(1),
            sm_clock_mhz: Some(2),
            memory_clock_mhz: Some(3),
            throttle_reasons: Some(["idle".into()].into()),
            pcie_generation: Some(4),
            pcie_lanes: Some(5),
            nvlinks: Some(6),
            nvlinks_active: Some(7),
            nvlink_errors: Some(8),
            fabric: Some("completed".into()),
            remapped_rows: Some(RemappedRows {
                correctable: 9,
                uncorrectable: 10,
                is_pending: true,
                has_failed: false,
            }),
            persistence: Some(true),
            compute_mode: Some("default".into()),
            mig: Some(MigMode {
                is_enabled: false,
                is_enabled_after_reset: true,
            }),
        }),
    };
    let readings = Readings {
        host: HostReading {
            load_milli: 1_500,
            memory_available_bytes: 1,
            storage_free_bytes: 2,
        },
        gpus: vec![gpu],
    };
    let golden = "
        02000000                    # readings
        dc05000000000000            # load_milli
        0100000000000000 0200000000000000 # memory_available_bytes, storage_free_bytes
        0100000000000000            # gpus: one
          0500000000000000 'GPU-8'  #   uuid
          01 0100000000000000       #   memory_used_bytes
          01 0200000000000000       #   memory_free_bytes
          01 03000000 01 04000000   #   utilization_percent, temperature_celsius
          01 05000000 01 06000000   #   power_milliwatts, power_limit_milliwatts
          01 0700000000000000 00    #   ecc_corrected, ecc_uncorrected
          0100000000000000          #   xids: one
            4f00000000000000 0100000000000000
          01 0100000000000000       #   processes: one
            09000000 01 0a00000000000000
          01                        #   board
          01 01000000 01 02000000 01 03000000 # memory_temperature_celsius, sm_clock_mhz, memory_clock_mhz
          01 0100000000000000 0400000000000000 'idle' # throttle_reasons: one
          01 04000000 01 05000000   #   pcie_generation, pcie_lanes
          01 06000000 01 07000000   #   nvlinks, nvlinks_active
          01 0800000000000000       #   nvlink_errors
          01 0900000000000000 'completed' # fabric
          01 09000000 0a000000 01 00 #  remapped_rows
          01 01                     #   persistence
          01 0700000000000000 'default' # compute_mode
          01 00 01                  #   mig
    ";
    check(&FromNode::Readings(readings), golden);
}

#[test]
fn a_checkpoint() {
    let checkpoint = FromNode::Checkpoint {
        attempt: attempt(),
        ago: Span::from_millis(258),
    };
    check(&checkpoint, &format!("04000000 {ATTEMPT} 0201000000000000"));
}

#[test]
fn how_a_host_is() {
    check(&FromNode::Health(HostHealth::Fit), "05000000 00000000");
    let unfit = FromNode::Health(HostHealth::Unfit("no".into()));
    check(&unfit, "05000000 01000000 0200000000000000 'no'");
}

#[test]
fn a_warrant() {
    let shown = |warrant: Option<&str>| FromNode::Warrant {
        attempt: attempt(),
        warrant: warrant.map(|text| SealedWarrant::new(text.to_owned())),
    };
    let golden = format!("06000000 {ATTEMPT} 01 0100000000000000 'w'");
    check(&shown(Some("w")), &golden);
    check(&shown(None), &format!("06000000 {ATTEMPT} 00"));
}

#[test]
fn labels() {
    let labels = FromNode::Labels([("a".into(), "1".into())].into());
    let one = "0100000000000000";
    check(&labels, &format!("07000000 {one} {one} 'a' {one} '1'"));
}

#[test]
fn a_gpu_that_was_cut_or_not() {
    let carved = |outcome| FromNode::Carved {
        gpu: "GPU".to_owned(),
        outcome,
    };
    let gpu = "0300000000000000 'GPU'";
    let golden = format!("09000000 {gpu} 00000000");
    check(&carved(CarveOutcome::Done), &golden);
    let failed = CarveOutcome::Failed {
        why: CarveFailure::NoRoom,
        is_restored: true,
    };
    let golden = format!("09000000 {gpu} 01000000 04000000 01");
    check(&carved(failed), &golden);
}

#[test]
fn whether_a_supervisor_answers() {
    let golden = "08000000 00000000";
    check(&FromNode::Supervisor(SupervisorState::Responding), golden);
    let unheard = SupervisorState::NeverSeen("no".into());
    let golden = "08000000 02000000 0200000000000000 'no'";
    check(&FromNode::Supervisor(unheard), golden);
}

fn command(order: ToNode) -> Command {
    Command {
        epoch: epoch(),
        number: 1,
        last_heard: BootMillis(2),
        order,
    }
}

/// Epoch, number and `last_heard` of an order.
const HEAD: &str = "0200000000000000 'c1' 0201000000000000 0100000000000000 0200000000000000";

#[test]
fn assignments() {
    let full = Assignment {
        attempt: attempt(),
        pool: PoolName::new("p").unwrap(),
        command: vec!["sh".into(), "-c".into()],
        env: [("A".into(), "é".into())].into(),
        workdir: Some("/w".into()),
        prefer_workdir: None,
        gpus: vec!["GPU-8".into()],
        timeout: Some(Span::from_millis(500)),
        grace: Span::from_millis(7),
        gang: Gang {
            rank: 1,
            hosts: vec!["a".into(), "b".into()],
            port: Some(29_500),
        },
        subject: Subject::new("s").unwrap(),
        submitter: Some(Submitter {
            user: UserName::new("u").unwrap(),
            seal: None,
        }),
        resources: Amounts::new().with("gpu", 1),
        cpu_mode: CpuMode::Weight,
        launch: Launch {
            wrapper: vec!["nice".into()],
            env: [("T".into(), "1".into())].into(),
            hooks: HooksAndLimits {
                limits: vec![ProcessLimit {
                    name: "core".into(),
                    max: 258,
                }],
                before: vec![HookRun {
                    name: "a".into(),
                    command: vec!["x".into()],
                    timeout: Span::from_millis(9),
                }],
                after: vec![],
            },
        },
        warrant: SealedWarrant::new("w".to_owned()),
        streams: StepStreams {
            stdin: StepInput::Stream,
            terminal: true,
            stdout: Some(OutputPath::new("/%u").unwrap()),
            stderr: None,
            append: true,
        },
        container: Some(Container {
            image: "/r".parse().unwrap(),
            runtime: None,
            mounts: vec![ContainerMount {
                source: "/s".into(),
                target: "/t".into(),
                read_only: true,
            }],
        }),
        inputs: vec![InputFile {
            name: "i".into(),
            sha256: InputHash::of_digest(&[9; 32]),
            size: 258,
            executable: true,
        }],
        keep: vec!["o/*".parse().unwrap()],
        ports: vec!["h".parse().unwrap()],
        probes: Probes {
            readiness: Some(probe(ProbeAction::Http(HttpTarget {
                path: "/".into(),
                port: "h".parse().unwrap(),
            }))),
            liveness: Some(probe(ProbeAction::Command(vec!["x".into()]))),
            metric: Some(MetricSource {
                name: "q".parse().unwrap(),
                port: "h".parse().unwrap(),
                path: "/".into(),
            }),
        },
        is_measured: true,
    };
    let golden = format!(
        "{HEAD} 00000000
         {ATTEMPT}
         0100000000000000 'p'                         # pool
         0200000000000000                             # command: two
           0200000000000000 'sh' 0200000000000000 '-c'
         0100000000000000                             # env: one, in UTF-8
           0100000000000000 'A' 0200000000000000 c3a9
         01 0200000000000000 '/w'                     # workdir
         00                                           # prefer_workdir
         0100000000000000 0500000000000000 'GPU-8'    # gpus: one
         01 f401000000000000                          # timeout
         0700000000000000                             # grace
         01000000                                     # rank
         0200000000000000                             # hosts: two
           0100000000000000 'a' 0100000000000000 'b'
         01 3c73                                      # port
         0100000000000000 's'                         # subject
         01 0100000000000000 'u' 00                   # submitter, not sealed
         0100000000000000                             # units: of one key
           0300000000000000 'gpu' 0100000000000000
         01000000                                     # cpu_mode
         0100000000000000 0400000000000000 'nice'     # wrapper: one
         0100000000000000                             # variables of templates: one
           0100000000000000 'T' 0100000000000000 '1'
         0100000000000000                             # limits: one
           0400000000000000 'core' 0201000000000000
         0100000000000000                             # before: one
           0100000000000000 'a' 0100000000000000 0100000000000000 'x' 0900000000000000
         0000000000000000                             # after
         0100000000000000 'w'                         # warrant
         01000000 01                                  # stdin, terminal
         01 0300000000000000 '/%u' 00 01              # stdout, stderr, append
         01 0200000000000000 '/r' 00                  # container: image, no runtime
         0100000000000000                             # mounts: one
           0200000000000000 '/s' 0200000000000000 '/t' 01
         0100000000000000                             # inputs: one
           0100000000000000 'i' 4000000000000000 '{}' 0201000000000000 01
         0100000000000000 0300000000000000 'o/*'      # keep: one
         0100000000000000 0100000000000000 'h'        # ports: one
         01 00000000                                  # readiness: HTTP
           0100000000000000 '/' 0100000000000000 'h'
           0200000000000000 0300000000000000 04000000 05000000 0600000000000000
         01 02000000                                  # liveness: a command
           0100000000000000 0100000000000000 'x'
           0200000000000000 0300000000000000 04000000 05000000 0600000000000000
         01 0100000000000000 'q'                      # metric
           0100000000000000 'h' 0100000000000000 '/'
         01                                           # is_measured",
        "09".repeat(32),
    );
    check(&command(ToNode::Assign(Box::new(full.clone()))), &golden);
    let bare = Assignment {
        env: Default::default(),
        workdir: None,
        prefer_workdir: Some("/p".into()),
        gpus: vec![],
        timeout: None,
        gang: Gang::single("a"),
        submitter: None,
        resources: Amounts::new(),
        cpu_mode: CpuMode::Limit,
        launch: Launch::default(),
        warrant: SealedWarrant::default(),
        streams: StepStreams::default(),
        container: None,
        inputs: vec![],
        keep: vec![],
        ports: vec![],
        probes: Probes::default(),
        is_measured: false,
        ..full
    };
    let golden = format!(
        "{ATTEMPT} 0100000000000000 'p'
         0200000000000000 0200000000000000 'sh' 0200000000000000 '-c'
         0000000000000000 00 01 0200000000000000 '/p' # env, workdir, prefer_workdir
         0000000000000000 00 # gpus, timeout
         0700000000000000
         00000000 0100000000000000 0100000000000000 'a' 00 # alone
         0100000000000000 's' 00 0000000000000000 00000000
         0000000000000000 0000000000000000 # wrapper, variables of templates
         0000000000000000 0000000000000000 0000000000000000 # limits, before, after
         0000000000000000 # warrant
         00000000 00 00 00 00 # stdin, terminal, stdout, stderr, append
         00 0000000000000000 0000000000000000 # container, inputs, keep
         0000000000000000 00 00 00 00 # ports, readiness, liveness, metric, is_measured"
    );
    check(&bare, &golden);
}

fn probe(action: ProbeAction) -> Probe {
    Probe {
        action,
        period: Span::from_millis(2),
        timeout: Span::from_millis(3),
        failures: 4,
        successes: 5,
        initial_delay: Span::from_millis(6),
    }
}

#[test]
fn ports_and_readiness() {
    let report = EndpointReport {
        attempt: attempt(),
        ports: vec![20_000],
        ready: false,
        failure: Some(ProbeFailure::new(ProbeKind::Liveness, "x")),
    };
    let golden = format!(
        "0a000000 {ATTEMPT}
         0100000000000000 204e                        # ports: one
         00 01 01000000 0100000000000000 'x'          # not ready, what liveness saw"
    );
    check(&FromNode::Endpoint(Box::new(report)), &golden);
}

#[test]
fn what_attempts_use() {
    let read = |value| MetricReading {
        name: "q".parse().unwrap(),
        value,
    };
    let report = |value| UsageReport {
        mcpu: Some(5),
        gpu_milli: Some(6),
        metric: Some(read(value)),
        ..UsageReport::empty(attempt())
    };
    let golden = format!(
        "0b000000 0200000000000000
         {ATTEMPT} 01 0500000000000000 00             # cores, memory
         01 0600000000000000                          # GPUs
         01 0100000000000000 'q' 00000000 0700000000000000
         {ATTEMPT} 01 0500000000000000 00 01 0600000000000000
         01 0100000000000000 'q' 01000000 0100000000000000 'x'"
    );
    let both = vec![report(Ok(7)), report(Err("x".into()))];
    check(&FromNode::Usages(both), &golden);
}

#[test]
fn orders_to_stop_and_to_forget() {
    let stop = ToNode::Stop {
        attempt: attempt(),
        why: StopReason::Drained,
        grace: Span::from_millis(7),
    };
    let golden = format!("{HEAD} 01000000 {ATTEMPT} 02000000 0700000000000000");
    check(&command(stop), &golden);
    let forget = ToNode::Forget { attempt: attempt() };
    check(&command(forget), &format!("{HEAD} 02000000 {ATTEMPT}"));
    let suspend = ToNode::Suspend {
        attempt: attempt(),
        room_mb: 258,
    };
    let golden = format!("{HEAD} 03000000 {ATTEMPT} 0201000000000000");
    check(&command(suspend), &golden);
    let resume = ToNode::Resume { attempt: attempt() };
    check(&command(resume), &format!("{HEAD} 04000000 {ATTEMPT}"));
    let restore = ToNode::RestoreGpus {
        gpus: vec!["GPU".to_owned()],
    };
    let golden = format!("{HEAD} 05000000 0100000000000000 0300000000000000 475055");
    check(&command(restore), &golden);
    let show = ToNode::ShowWarrant { attempt: attempt() };
    check(&command(show), &format!("{HEAD} 06000000 {ATTEMPT}"));
    let carve = ToNode::Carve(Box::new(CarveOrder {
        gpu: "GPU".to_owned(),
        layout: GpuLayout::slices(vec!["3g.40gb".parse().unwrap()]),
        before: GpuLayout::Whole,
    }));
    let layouts = "01000000 0100000000000000 0700000000000000 '3g.40gb' 00000000";
    let golden = format!("{HEAD} 07000000 0300000000000000 'GPU' {layouts}");
    check(&command(carve), &golden);
}

#[test]
fn reasons_to_stop() {
    check(&StopReason::Cancelled, "00000000");
    check(&StopReason::TimedOut, "01000000");
    check(&StopReason::Drained, "02000000");
    check(&StopReason::Preempted, "03000000");
    check(&StopReason::Superseded, "04000000");
    check(&StopReason::PeerEnded, "05000000");
    check(&StopReason::GpuLost, "06000000");
    check(&StopReason::Requeued, "07000000");
    check(&StopReason::NotSuspended, "08000000");
    check(&StopReason::SuspendedTooLong, "09000000");
    check(&StopReason::NotRenewed, "0a000000");
}

#[test]
fn phases_on_the_way() {
    check(&AttemptPhase::Starting, "00000000");
    let running = AttemptPhase::Running(started());
    check(&running, &format!("01000000 {STARTED}"));
    let stopping = |started| AttemptPhase::Stopping {
        started,
        why: StopReason::TimedOut,
    };
    let golden = format!("02000000 01 {STARTED} 01000000");
    check(&stopping(Some(started())), &golden);
    check(&stopping(None), "02000000 00 01000000");
}

fn kept_files() -> KeptFiles {
    KeptFiles {
        files: 2,
        bytes: 3,
        left_out: 4,
        why: Some("no".into()),
    }
}

/// Encoding of these files.
const KEPT_FILES: &str =
    "0200000000000000 0300000000000000 0400000000000000 01 0200000000000000 'no'";

#[test]
fn phases_at_the_end() {
    let end = AttemptEnd {
        started: Some(started()),
        exit: Exit::Code(7),
        stopped: Some(StopReason::Preempted),
        at: Time::from_unix_millis(1_001),
        usage: Usage {
            cpu_us: Some(258),
            peak_memory_bytes: Some(259),
            read_bytes: Some(260),
            written_bytes: Some(261),
        },
        kept: Some(Box::new(kept_files())),
    };
    let golden = format!(
        "03000000 01 {STARTED} 00000000 07000000 01 03000000 e903000000000000
         01 0201000000000000 01 0301000000000000 01 0401000000000000 01 0501000000000000
         01 {KEPT_FILES}"
    );
    check(&AttemptPhase::Ended(end), &golden);
    let end = AttemptEnd {
        started: None,
        exit: Exit::StartFailed("no".into()),
        stopped: None,
        at: Time::from_unix_millis(1_001),
        usage: Usage::default(),
        kept: None,
    };
    let golden = "04000000 00 02000000 0200000000000000 'no' 00 e903000000000000 00 00 00 00 00";
    check(&AttemptPhase::Released(end), golden);
}

#[test]
fn phases_of_what_is_frozen() {
    let suspending = AttemptPhase::Suspending(started());
    check(&suspending, &format!("05000000 {STARTED}"));
    let suspended = AttemptPhase::Suspended {
        started: started(),
        moved_mb: 258,
    };
    let golden = format!("06000000 {STARTED} 0201000000000000");
    check(&suspended, &golden);
    let resuming = AttemptPhase::Resuming(started());
    check(&resuming, &format!("07000000 {STARTED}"));
    let not_suspended = AttemptPhase::NotSuspended {
        started: started(),
        why: SuspendFailure::NoFreezer,
    };
    check(&not_suspended, &format!("08000000 {STARTED} 00000000"));
}

#[test]
fn reasons_not_to_freeze() {
    check(&SuspendFailure::NoCheckpoint, "01000000");
    check(&SuspendFailure::SeveralProcesses, "02000000");
    let no_room = SuspendFailure::NoRoom(MemoryShortage {
        wanted_mb: 2,
        room_mb: 1,
    });
    check(&no_room, "03000000 0200000000000000 0100000000000000");
    let refused = SuspendFailure::Refused("no".into());
    check(&refused, "04000000 0200000000000000 'no'");
    check(&SuspendFailure::TimedOut, "05000000");
    check(&SuspendFailure::GpusBusy, "06000000");
    let not_resumed = SuspendFailure::NotResumed("no".into());
    check(&not_resumed, "07000000 0200000000000000 'no'");
}

#[test]
fn heartbeats() {
    let beat = Heartbeat {
        number: 258,
        sent_at: BootMillis(3),
        last_acknowledged: BootMillis(2),
        last_order: 1,
        challenge: None,
    };
    let golden = "0201000000000000 0300000000000000 0200000000000000 0100000000000000 00";
    check(&beat, golden);
    let number = u64::MAX;
    let ack = HeartbeatAck { number, seal: None };
    check(&ack, "ffffffffffffffff 00");
}

#[test]
fn logs() {
    let request = LogRequest {
        attempt: attempt(),
        stream: LogStream::Stderr,
        offset: 258,
        follow: true,
        since: None,
        timestamps: false,
    };
    let golden = format!("{ATTEMPT} 01000000 0201000000000000 01 00 00");
    check(&request, &golden);
    let timed = LogRequest {
        since: Some(OutputSince::Ago(Span::from_millis(259))),
        timestamps: true,
        ..request
    };
    let golden = format!("{ATTEMPT} 01000000 0201000000000000 01 01 01000000 0301000000000000 01");
    check(&timed, &golden);
    let since = OutputSince::At(Time::from_unix_millis(260));
    check(&since, "00000000 0401000000000000");
    check(&LogStream::Stdout, "00000000");
    check(&LogStream::Exec, "02000000");
    let from = LogReply::From { offset: 258 };
    check(&from, "00000000 0201000000000000");
    let refused = LogReply::Refused {
        message: "no".into(),
    };
    check(&refused, "01000000 0200000000000000 'no'");
}

//! Golden bytes of every message between coordinator and agent. A change here is a change of the protocol: raise
//! `wire::PROTOCOL_VERSION` with it.

use std::collections::BTreeMap;

use crate::notation::check;
use sluice_common::id::{AttemptId, BootId, ClusterId, Epoch, NodeName, PoolName};
use sluice_common::inventory::{Gpu, Inventory};
use sluice_common::supervision::Exit;
use sluice_common::time::{Span, Time};
use sluice_common::wire::{
    Assignment, AttemptEnd, AttemptPhase, AttemptStatus, Command, FromNode, Greeting, Heartbeat,
    HeartbeatAck, Hello, LogReply, LogRequest, LogStream, PROTOCOL_VERSION, Started, StopWhy,
    StreamKind, ToNode, Welcome,
};

/// The version that the bytes below belong to.
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

fn started() -> Started {
    Started {
        pid: 77,
        at: Time::from_unix_millis(1_000),
    }
}

const STARTED: &str = "4d000000 e803000000000000";

fn inventory() -> Inventory {
    Inventory {
        kernel: "6.1".into(),
        arch: "x86".into(),
        cpu_model: "Q".into(),
        cpus: 8,
        memory_bytes: 1 << 34,
        storage_bytes: 1 << 40,
        driver: Some("570".into()),
        gpus: vec![Gpu {
            index: 1,
            uuid: "GPU-8".into(),
            model: "H100".into(),
            memory_bytes: 85_520_809_984,
        }],
        notes: vec!["slow".into()],
    }
}

const INVENTORY: &str = "
    0300000000000000 '6.1'     # kernel
    0300000000000000 'x86'     # arch
    0100000000000000 'Q'       # cpu_model
    08000000                   # cpus
    0000000004000000           # memory_bytes
    0000000000010000           # storage_bytes
    01 0300000000000000 '570'  # driver
    0100000000000000           # gpus: one
      01000000                 #   index
      0500000000000000 'GPU-8' #   uuid
      0400000000000000 'H100'  #   model
      000070e913000000         #   memory_bytes
    0100000000000000           # notes: one
      0400000000000000 'slow'
";

#[test]
fn stream_kinds() {
    check(&StreamKind::Control, "00000000");
    check(&StreamKind::Heartbeat, "01000000");
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
        boot_id: BootId::new("b00").unwrap(),
        highest_epoch: Some(epoch()),
        inventory: inventory(),
        attempts: vec![status],
    };
    let golden = format!(
        "01000000                  # protocol
         0300000000000000 '0.1'     # version
         0300000000000000 'n-1'     # node
         0700000000000000 'default' # pool
         0100000000000000           # labels: one
           0400000000000000 'rack' 0200000000000000 'r2'
         0300000000000000 'b00'     # boot_id
         01 {EPOCH}                 # highest_epoch
         {INVENTORY}
         0100000000000000           # attempts: one
           {ATTEMPT} 00000000       #   starting"
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
        boot_id: BootId::new("b").unwrap(),
        highest_epoch: None,
        inventory: Inventory::default(),
        attempts: vec![],
    };
    let golden = "
        01000000                            # protocol
        0000000000000000                    # version
        0100000000000000 'n'                # node
        0100000000000000 'p'                # pool
        0000000000000000                    # labels
        0100000000000000 'b'                # boot_id
        00                                  # highest_epoch
        0000000000000000 0000000000000000   # kernel, arch
        0000000000000000 00000000           # cpu_model, cpus
        0000000000000000 0000000000000000   # memory_bytes, storage_bytes
        00 0000000000000000 0000000000000000 # driver, gpus, notes
        0000000000000000                    # attempts
    ";
    check(&hello, golden);
}

#[test]
fn greetings() {
    let welcome = Welcome {
        epoch: epoch(),
        lease: Span::from_secs(300),
        stop_limit: Span::from_secs(30),
        heartbeat: Span::from_secs(3),
    };
    let golden = format!(
        "00000000 {EPOCH}
         e093040000000000 # lease
         3075000000000000 # stop_limit
         b80b000000000000 # heartbeat"
    );
    check(&Greeting::Welcome(welcome), &golden);
    let refused = Greeting::Refused {
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
    check(&FromNode::Inventory(inventory()), &golden);
}

fn command(order: ToNode) -> Command {
    Command {
        epoch: epoch(),
        order,
    }
}

#[test]
fn assignments() {
    let full = Assignment {
        attempt: attempt(),
        pool: PoolName::new("p").unwrap(),
        command: vec!["sh".into(), "-c".into()],
        env: BTreeMap::from([("A".into(), "é".into())]),
        workdir: Some("/w".into()),
        gpus: vec!["GPU-8".into()],
        timeout: Some(Span::from_millis(500)),
        grace: Span::from_millis(7),
    };
    let golden = format!(
        "{EPOCH} 00000000
         {ATTEMPT}
         0100000000000000 'p'                         # pool
         0200000000000000                             # command: two
           0200000000000000 'sh' 0200000000000000 '-c'
         0100000000000000                             # env: one, in UTF-8
           0100000000000000 'A' 0200000000000000 c3a9
         01 0200000000000000 '/w'                     # workdir
         0100000000000000 0500000000000000 'GPU-8'    # gpus: one
         01 f401000000000000                          # timeout
         0700000000000000                             # grace"
    );
    check(&command(ToNode::Assign(full.clone())), &golden);
    let bare = Assignment {
        env: BTreeMap::new(),
        workdir: None,
        gpus: vec![],
        timeout: None,
        ..full
    };
    let golden = format!(
        "{ATTEMPT} 0100000000000000 'p'
         0200000000000000 0200000000000000 'sh' 0200000000000000 '-c'
         0000000000000000 00 0000000000000000 00 # env, workdir, gpus, timeout
         0700000000000000"
    );
    check(&bare, &golden);
}

#[test]
fn orders_to_stop_and_to_forget() {
    let stop = ToNode::Stop {
        attempt: attempt(),
        why: StopWhy::Drained,
        grace: Span::from_millis(7),
    };
    let golden = format!("{EPOCH} 01000000 {ATTEMPT} 02000000 0700000000000000");
    check(&command(stop), &golden);
    let forget = ToNode::Forget { attempt: attempt() };
    check(&command(forget), &format!("{EPOCH} 02000000 {ATTEMPT}"));
}

#[test]
fn reasons_to_stop() {
    check(&StopWhy::Cancelled, "00000000");
    check(&StopWhy::TimedOut, "01000000");
    check(&StopWhy::Drained, "02000000");
    check(&StopWhy::Preempted, "03000000");
    check(&StopWhy::Superseded, "04000000");
}

#[test]
fn phases_on_the_way() {
    check(&AttemptPhase::Starting, "00000000");
    let running = AttemptPhase::Running(started());
    check(&running, &format!("01000000 {STARTED}"));
    let stopping = |started| AttemptPhase::Stopping {
        started,
        why: StopWhy::TimedOut,
    };
    let golden = format!("02000000 01 {STARTED} 01000000");
    check(&stopping(Some(started())), &golden);
    check(&stopping(None), "02000000 00 01000000");
}

#[test]
fn phases_at_the_end() {
    let end = AttemptEnd {
        started: Some(started()),
        exit: Exit::Code(7),
        stopped: Some(StopWhy::Preempted),
        at: Time::from_unix_millis(1_001),
    };
    let golden = format!("03000000 01 {STARTED} 00000000 07000000 01 03000000 e903000000000000");
    check(&AttemptPhase::Ended(end), &golden);
    let end = AttemptEnd {
        started: None,
        exit: Exit::StartFailed("no".into()),
        stopped: None,
        at: Time::from_unix_millis(1_001),
    };
    let golden = "04000000 00 02000000 0200000000000000 'no' 00 e903000000000000";
    check(&AttemptPhase::Released(end), golden);
}

#[test]
fn heartbeats() {
    check(&Heartbeat { number: 258 }, "0201000000000000");
    check(&HeartbeatAck { number: u64::MAX }, "ffffffffffffffff");
}

#[test]
fn logs() {
    let request = LogRequest {
        attempt: attempt(),
        stream: LogStream::Stderr,
        offset: 258,
        follow: true,
    };
    check(&request, &format!("{ATTEMPT} 01000000 0201000000000000 01"));
    check(&LogStream::Stdout, "00000000");
    let from = LogReply::From { offset: 258 };
    check(&from, "00000000 0201000000000000");
    let refused = LogReply::Refused {
        message: "no".into(),
    };
    check(&refused, "01000000 0200000000000000 'no'");
}

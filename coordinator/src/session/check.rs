//! Validates agents' messages. The frame limit bounds a message as a whole; here its parts are bounded, because they
//! are stored in the log, kept in memory and shown on terminals.

use std::collections::BTreeMap;

use sluice_common::carving::{CarveFailure, CarveOutcome, GpuLayout, MAX_SLICES_PER_GPU};
use sluice_common::gpu_state::{GpuFault, GpuStates, MAX_NAMED_PIDS};
use sluice_common::host_health::{HostHealth, SupervisorState};
use sluice_common::id::NodeName;
use sluice_common::inventory::{BoardFacts, BoardReading, Inventory, Readings};
use sluice_common::keep::MAX_KEPT_WHY_BYTES;
use sluice_common::limit::{
    MAX_ADDRESS_BYTES, MAX_ADDRESSES, MAX_ATTEMPTS_PER_NODE, MAX_NODE_LABELS,
};
use sluice_common::metric::MAX_UNKNOWN_BYTES;
use sluice_common::port::MAX_PORTS;
use sluice_common::probe::{EndpointReport, MAX_SAW_BYTES};
use sluice_common::supervision::Exit;
use sluice_common::usage::UsageReport;
use sluice_common::wire::{AttemptPhase, FromNode, Hello, SuspendFailure};

/// Longest key of a label in bytes.
const MAX_LABEL_KEY_BYTES: usize = 128;
/// Longest other text of one line: label values, versions, models.
const MAX_LINE_BYTES: usize = 256;
/// Most GPUs of one host. The largest machines have 16, each of which can be cut into 7 instances.
const MAX_GPUS: usize = 256;
/// Amounts beyond those of any machine, so that no sum over hosts overflows: larger ones are cut to this.
const MAX_CPUS: u32 = 1 << 16;
const MAX_MEMORY_BYTES: u64 = 1 << 50;
const MAX_STORAGE_BYTES: u64 = 1 << 56;
const MAX_GPU_MEMORY_BYTES: u64 = 1 << 44;
/// Most notes of one inventory.
const MAX_NOTES: usize = 64;
/// Most XIDs and processes of one GPU. NVIDIA lists fewer kinds of XIDs, and a GPU has fewer processes.
const MAX_XIDS: usize = 256;
const MAX_PROCESSES: usize = 256;
/// Most MIG profiles, and most reasons for reduced clocks, of one GPU: NVML has a mask of 64 bits and fewer profiles.
const MAX_BOARD_WORDS: usize = 64;
/// Longest sentence for people: a note, or why a process could not start. Longer ones are cut.
const MAX_SENTENCE_BYTES: usize = 2048;

/// Why a message is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidMessage {
    #[error(
        "the agent says that it is node `{named}` and its certificate is of node `{certified}`: set `node` in its config, or issue it a certificate"
    )]
    OtherNode {
        named: NodeName,
        certified: NodeName,
    },
    #[error("{what}: {count}, and the maximum is {most}")]
    TooMany {
        what: &'static str,
        count: usize,
        most: usize,
    },
    #[error("{what} has {bytes} bytes, and the maximum is {most}")]
    TooLong {
        what: &'static str,
        bytes: usize,
        most: usize,
    },
    #[error("{what} holds control characters: `{text}`")]
    Control { what: &'static str, text: String },
}

/// Validates a hello over the link of the node `certified`. The core checks versions, pools and epochs. Sentences that
/// are too long are cut.
pub(super) fn hello(mut hello: Hello, certified: &NodeName) -> Result<Hello, InvalidMessage> {
    if hello.node != *certified {
        return Err(InvalidMessage::OtherNode {
            named: hello.node.clone(),
            certified: certified.clone(),
        });
    }
    most(
        "attempts on the host",
        hello.attempts.len(),
        MAX_ATTEMPTS_PER_NODE,
    )?;
    line("the agent's version", &hello.version)?;
    line("the state directory", &hello.state_dir)?;
    labels(&hello.labels)?;
    short("the host's address", &hello.address, MAX_ADDRESS_BYTES)?;
    inventory(&mut hello.inventory)?;
    for status in &mut hello.attempts {
        phase(&mut status.phase);
    }
    gpu_states(&mut hello.gpu_states)?;
    supervisor(&mut hello.supervisor);
    Ok(hello)
}

fn labels(labels: &BTreeMap<String, String>) -> Result<(), InvalidMessage> {
    most("labels", labels.len(), MAX_NODE_LABELS)?;
    for (key, value) in labels {
        short("a label's key", key, MAX_LABEL_KEY_BYTES)?;
        line("a label's value", value)?;
    }
    Ok(())
}

/// Validates an inventory. Odd names of hardware do not exclude a host: texts that are only shown are cut and cleaned,
/// but GPU ids must be exact.
fn inventory(inventory: &mut Inventory) -> Result<(), InvalidMessage> {
    most("GPUs", inventory.gpus.len(), MAX_GPUS)?;
    most("GPUs without slices", inventory.empty_gpus.len(), MAX_GPUS)?;
    let Inventory {
        kernel,
        os,
        arch,
        cpu_model,
        driver,
        cuda,
        gpus,
        notes,
        cores,
        cpus,
        memory_bytes,
        storage_bytes,
        capabilities: _,
        reserve,
        machine,
        gpus_unknown: _,
        empty_gpus,
        carves_gpus: _,
        container_runtimes,
    } = inventory;
    line("the machine's id", &machine.id)?;
    most(
        "addresses of network hardware",
        machine.addresses.len(),
        MAX_ADDRESSES,
    )?;
    for address in &machine.addresses {
        line("an address of network hardware", address)?;
    }
    for count in [cores, cpus, &mut reserve.cpus] {
        *count = (*count).min(MAX_CPUS);
    }
    for bytes in [memory_bytes, &mut reserve.memory_bytes] {
        *bytes = (*bytes).min(MAX_MEMORY_BYTES);
    }
    *storage_bytes = (*storage_bytes).min(MAX_STORAGE_BYTES);
    for text in [kernel, os, arch, cpu_model]
        .into_iter()
        .chain(driver)
        .chain(cuda)
        .chain(container_runtimes.values_mut())
    {
        tidy(text, MAX_LINE_BYTES);
    }
    for gpu in gpus.iter_mut().chain(empty_gpus) {
        line("a GPU's UUID", &gpu.uuid)?;
        gpu.memory_bytes = gpu.memory_bytes.min(MAX_GPU_MEMORY_BYTES);
        most("NVLink peers of a GPU", gpu.nvlink.len(), MAX_GPUS)?;
        most("device nodes of a GPU", gpu.devices.len(), MAX_GPUS)?;
        let texts = [&mut gpu.model, &mut gpu.platform].into_iter();
        let mig = gpu
            .mig
            .iter_mut()
            .flat_map(|mig| [&mut mig.profile, &mut mig.parent]);
        let nodes = gpu.devices.iter_mut().map(|node| &mut node.path);
        let texts = texts.chain(&mut gpu.pci).chain(&mut gpu.nvlink);
        for text in texts.chain(mig).chain(nodes) {
            tidy(text, MAX_LINE_BYTES);
        }
        board(&mut gpu.board);
    }
    notes.truncate(MAX_NOTES);
    notes
        .iter_mut()
        .for_each(|note| tidy(note, MAX_SENTENCE_BYTES));
    Ok(())
}

/// Cuts the facts of a board, which are only shown and matched.
fn board(board: &mut BoardFacts) {
    let BoardFacts {
        compute_capability,
        serial,
        vbios,
        pcie_max_generation: _,
        pcie_max_lanes: _,
        mig_profiles,
        virtualization,
        confidential_computing: _,
        nvlink_domain,
    } = board;
    let texts = [
        compute_capability,
        serial,
        vbios,
        virtualization,
        nvlink_domain,
    ];
    for text in texts.into_iter().flatten() {
        tidy(text, MAX_LINE_BYTES);
    }
    let profiles = std::mem::take(mig_profiles).into_iter();
    *mig_profiles = profiles
        .take(MAX_BOARD_WORDS)
        .map(|(mut profile, count)| {
            tidy(&mut profile, MAX_LINE_BYTES);
            (profile, count)
        })
        .collect();
}

/// Cuts the texts of a board's reading, which are only shown.
fn board_reading(board: &mut BoardReading) {
    for text in [&mut board.fabric, &mut board.compute_mode]
        .into_iter()
        .flatten()
    {
        tidy(text, MAX_LINE_BYTES);
    }
    if let Some(reasons) = &mut board.throttle_reasons {
        let all = std::mem::take(reasons).into_iter();
        let tidied = all.take(MAX_BOARD_WORDS).map(|mut reason| {
            tidy(&mut reason, MAX_LINE_BYTES);
            reason
        });
        *reasons = tidied.collect();
    }
}

fn readings(readings: &mut Readings) -> Result<(), InvalidMessage> {
    most("readings of GPUs", readings.gpus.len(), 2 * MAX_GPUS)?;
    for gpu in &mut readings.gpus {
        tidy(&mut gpu.uuid, MAX_LINE_BYTES);
        while gpu.xids.len() > MAX_XIDS {
            gpu.xids.pop_last();
        }
        if let Some(processes) = &mut gpu.processes {
            processes.truncate(MAX_PROCESSES);
        }
        if let Some(board) = &mut gpu.board {
            board_reading(board);
        }
    }
    Ok(())
}

/// Validates GPU states. GPU ids must be exact; other texts are only shown.
fn gpu_states(states: &mut GpuStates) -> Result<(), InvalidMessage> {
    most("faults of GPUs", states.faults.len(), 2 * MAX_GPUS)?;
    for (uuid, fault) in &mut states.faults {
        line("a GPU's UUID", uuid)?;
        match fault {
            GpuFault::Quarantined { why, pids } => {
                tidy(why, MAX_SENTENCE_BYTES);
                pids.truncate(MAX_NAMED_PIDS);
            }
            GpuFault::Foreign { pids } => pids.truncate(MAX_NAMED_PIDS),
            GpuFault::Lost => {}
        }
    }
    if let Some(why) = &mut states.drain {
        tidy(why, MAX_SENTENCE_BYTES);
    }
    Ok(())
}

/// Validates the result of cutting a GPU. Its id must be exact; sentences are cut.
fn carved(gpu: &str, outcome: &mut CarveOutcome) -> Result<(), InvalidMessage> {
    line("a GPU's UUID", gpu)?;
    match outcome {
        CarveOutcome::Failed {
            why: CarveFailure::InUse(why) | CarveFailure::Refused(why),
            ..
        } => {
            tidy(why, MAX_SENTENCE_BYTES);
            Ok(())
        }
        CarveOutcome::Failed {
            why: CarveFailure::OthersSeen(GpuLayout::Slices(profiles)),
            ..
        } => most("slices of a GPU", profiles.len(), MAX_SLICES_PER_GPU),
        CarveOutcome::Done | CarveOutcome::Failed { .. } => Ok(()),
    }
}

fn supervisor(state: &mut SupervisorState) {
    if let SupervisorState::Unresponsive(why) | SupervisorState::NeverSeen(why) = state {
        tidy(why, MAX_SENTENCE_BYTES);
    }
}

/// Cuts a text that is only shown, and removes control characters.
fn tidy(text: &mut String, most: usize) {
    if text.chars().any(char::is_control) {
        *text = text.replace(char::is_control, " ");
    }
    text.truncate(text.floor_char_boundary(most));
}

fn most(what: &'static str, count: usize, most: usize) -> Result<(), InvalidMessage> {
    if count <= most {
        return Ok(());
    }
    Err(InvalidMessage::TooMany { what, count, most })
}

fn line(what: &'static str, text: &str) -> Result<(), InvalidMessage> {
    short(what, text, MAX_LINE_BYTES)
}

fn short(what: &'static str, text: &str, most: usize) -> Result<(), InvalidMessage> {
    if text.len() > most {
        let bytes = text.len();
        return Err(InvalidMessage::TooLong { what, bytes, most });
    }
    if text.chars().any(char::is_control) {
        let text = text.escape_debug().to_string();
        return Err(InvalidMessage::Control { what, text });
    }
    Ok(())
}

/// Validates a message after the hello, and cuts sentences that are too long: they come from the host's kernel or from
/// a step's command and must not end the node's link.
pub(super) fn from_node(mut message: FromNode) -> Result<FromNode, InvalidMessage> {
    match &mut message {
        FromNode::Inventory(found) => inventory(found)?,
        FromNode::Labels(named) => labels(named)?,
        FromNode::Readings(found) => readings(found)?,
        FromNode::GpuStates(found) => gpu_states(found)?,
        FromNode::Status(status) => phase(&mut status.phase),
        FromNode::Health(HostHealth::Unfit(why)) => tidy(why, MAX_SENTENCE_BYTES),
        FromNode::Supervisor(state) => supervisor(state),
        FromNode::Endpoint(report) => endpoint(report)?,
        FromNode::Carved { gpu, outcome } => carved(gpu, outcome)?,
        FromNode::Usages(found) => usages(found),
        FromNode::Checkpoint { .. }
        | FromNode::Health(HostHealth::Fit)
        | FromNode::Warrant { .. } => {}
    }
    Ok(message)
}

/// Cuts what a host says about the use of attempts: replicas may have written why their metric is unknown.
fn usages(found: &mut Vec<UsageReport>) {
    found.truncate(MAX_ATTEMPTS_PER_NODE);
    let readings = found.iter_mut().filter_map(|it| it.metric.as_mut());
    for why in readings.filter_map(|it| it.value.as_mut().err()) {
        tidy(why, MAX_UNKNOWN_BYTES);
    }
}

/// Validates the ports and the readiness of an attempt. What a probe saw is cut.
fn endpoint(report: &mut EndpointReport) -> Result<(), InvalidMessage> {
    if let Some(failure) = &mut report.failure {
        tidy(&mut failure.saw, MAX_SAW_BYTES);
    }
    most("ports of an attempt", report.ports.len(), MAX_PORTS)
}

fn phase(phase: &mut AttemptPhase) {
    if let AttemptPhase::NotSuspended {
        why: SuspendFailure::Refused(sentence) | SuspendFailure::NotResumed(sentence),
        ..
    } = phase
    {
        sentence.truncate(sentence.floor_char_boundary(MAX_SENTENCE_BYTES));
    }
    let (AttemptPhase::Ended(end) | AttemptPhase::Released(end)) = phase else {
        return;
    };
    if let Some(why) = end.kept.as_mut().and_then(|kept| kept.why.as_mut()) {
        tidy(why, MAX_KEPT_WHY_BYTES);
    }
    if let Exit::StartFailed(sentence)
    | Exit::HostFailed(sentence)
    | Exit::PrologFailed(sentence)
    | Exit::NotBegun(sentence) = &mut end.exit
    {
        sentence.truncate(sentence.floor_char_boundary(MAX_SENTENCE_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::id::{BootId, PoolName};
    use sluice_common::inventory::Gpu;
    use sluice_common::keep::KeptFiles;
    use sluice_common::metric::MetricReading;
    use sluice_common::time::Time;
    use sluice_common::usage::Usage;
    use sluice_common::wire::{AttemptEnd, AttemptStatus, PROTOCOL_VERSION};

    fn node() -> NodeName {
        NodeName::new("gpu-7").unwrap()
    }

    fn words() -> Hello {
        Hello {
            protocol: PROTOCOL_VERSION,
            version: "0.1.0".to_owned(),
            node: node(),
            pool: PoolName::new("default").unwrap(),
            labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            address: String::new(),
            boot_id: BootId::new("b1").unwrap(),
            state_dir: String::new(),
            highest_epoch: None,
            inventory: Inventory::default(),
            attempts: vec![failed(10_000)],
            gpu_states: Default::default(),
            sent_at: sluice_common::supervision::BootMillis(1),
            supervisor: SupervisorState::Responding,
            challenge: None,
        }
    }

    fn failed(bytes: usize) -> AttemptStatus {
        let end = AttemptEnd {
            started: None,
            exit: Exit::StartFailed("\u{e4}".repeat(bytes / 2)),
            stopped: None,
            at: Time::default(),
            usage: Usage::default(),
            kept: Some(Box::new(KeptFiles {
                why: Some("\u{1b}".repeat(bytes)),
                ..KeptFiles::default()
            })),
        };
        AttemptStatus {
            attempt: "a.1".parse().unwrap(),
            phase: AttemptPhase::Ended(end),
        }
    }

    fn sentence(status: &AttemptStatus) -> usize {
        match &status.phase {
            AttemptPhase::Ended(AttemptEnd {
                exit: Exit::StartFailed(sentence),
                kept: Some(kept),
                ..
            }) => {
                let why = kept.why.as_ref().unwrap();
                assert!(why.len() <= MAX_KEPT_WHY_BYTES && !why.contains('\u{1b}'));
                sentence.len()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn long_sentences_are_cut_between_characters() {
        let hello = hello(words(), &node()).unwrap();
        assert_eq!(sentence(&hello.attempts[0]), MAX_SENTENCE_BYTES);
        let FromNode::Status(status) = from_node(FromNode::Status(failed(9999))).unwrap() else {
            panic!("a status stays one");
        };
        assert_eq!(sentence(&status), MAX_SENTENCE_BYTES);
    }

    #[test]
    fn a_name_that_is_not_the_certificate_s_is_refused() {
        let other = NodeName::new("gpu-8").unwrap();
        let message = hello(words(), &other).unwrap_err().to_string();
        assert!(
            message.contains("`gpu-7`") && message.contains("`gpu-8`"),
            "{message}"
        );
    }

    #[test]
    fn each_part_is_bounded() {
        type CorruptHello = fn(&mut Hello);
        let cases: [(&str, CorruptHello); 6] = [
            ("attempts on the host: 4097", |h| {
                h.attempts = vec![failed(2); 4097]
            }),
            ("labels: 65", |h| {
                h.labels = (0..65).map(|n| (n.to_string(), String::new())).collect();
            }),
            ("a label's value has 257 bytes", |h| {
                h.labels.insert("a".to_owned(), "x".repeat(257));
            }),
            ("version holds control characters: `\\u{1b}[2J`", |h| {
                h.version = "\u{1b}[2J".to_owned();
            }),
            ("GPUs: 257", |h| {
                h.inventory.gpus = vec![Gpu::default(); 257];
            }),
            ("a GPU's UUID holds control characters", |h| {
                let uuid = "GPU-\n".to_owned();
                h.inventory.gpus = vec![Gpu {
                    uuid,
                    ..Gpu::default()
                }];
            }),
        ];
        for (expected, spoil) in cases {
            let mut words = words();
            spoil(&mut words);
            let message = hello(words, &node()).unwrap_err().to_string();
            assert!(message.contains(expected), "{expected}: {message}");
        }
    }

    #[test]
    fn a_host_is_not_turned_away_for_what_its_hardware_is_called() {
        let mut strange = words();
        strange.inventory.notes = vec!["x\u{1b}[2J".repeat(1000); 100];
        strange.inventory.cpu_model = "CPU\u{0}\n".repeat(100);
        strange.inventory.gpus = vec![Gpu {
            uuid: "GPU-1".to_owned(),
            model: "\u{e4}".repeat(1000),
            board: BoardFacts {
                serial: Some("1\n".repeat(1000)),
                mig_profiles: (0..1000).map(|n| (format!("{n}\u{0}"), n)).collect(),
                ..BoardFacts::default()
            },
            ..Gpu::default()
        }];
        let hello = hello(strange, &node()).unwrap();
        let inventory = hello.inventory;
        assert_eq!(inventory.notes.len(), MAX_NOTES);
        let profiles = &inventory.gpus[0].board.mig_profiles;
        assert_eq!(profiles.len(), MAX_BOARD_WORDS);
        let texts = inventory
            .notes
            .iter()
            .chain([&inventory.cpu_model, &inventory.gpus[0].model])
            .chain(&inventory.gpus[0].board.serial)
            .chain(inventory.gpus[0].board.mig_profiles.keys());
        for text in texts {
            assert!(
                text.len() <= MAX_SENTENCE_BYTES && !text.chars().any(char::is_control),
                "{text:?}"
            );
        }
    }

    #[test]
    fn why_a_metric_is_unknown_is_cut_and_steers_no_terminal() {
        let report = UsageReport {
            metric: Some(MetricReading {
                name: "q".parse().unwrap(),
                value: Err("\u{1b}[2J\u{e4}".repeat(500)),
            }),
            ..UsageReport::empty("a.1".parse().unwrap())
        };
        let many = vec![report; MAX_ATTEMPTS_PER_NODE + 1];
        let Ok(FromNode::Usages(found)) = from_node(FromNode::Usages(many)) else {
            panic!("it is refused");
        };
        assert_eq!(found.len(), MAX_ATTEMPTS_PER_NODE);
        let why = found[0].metric.clone().unwrap().value.unwrap_err();
        assert!(why.len() <= MAX_UNKNOWN_BYTES && !why.contains(char::is_control));
    }
}

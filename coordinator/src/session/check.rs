//! What an agent may say. The frame limit bounds a message as a whole; here its parts are bounded, because they are
//! stored in the log, kept in memory and shown on terminals.

use std::collections::BTreeMap;

use sluice_common::id::NodeName;
use sluice_common::inventory::Inventory;
use sluice_common::limit::MAX_ATTEMPTS_PER_NODE;
use sluice_common::supervision::Exit;
use sluice_common::wire::{AttemptPhase, FromNode, Hello};

/// Labels of one node.
const MAX_LABELS: usize = 64;
/// A label's key, in bytes.
const MAX_LABEL_KEY_BYTES: usize = 128;
/// Any other text of one line: label values, versions, models.
const MAX_LINE_BYTES: usize = 256;
/// GPUs of one host. The largest machines have 16, each of which may be cut into 7 instances.
const MAX_GPUS: usize = 256;
/// Notes of one inventory.
const MAX_NOTES: usize = 64;
/// A sentence for people: a note, or why a process could not be made. Longer ones are cut.
const MAX_SENTENCE_BYTES: usize = 2048;

/// What an agent said that it may not.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    #[error(
        "the agent says that it is node `{said}` and its certificate is of node `{certified}`: set `node` in its config, or issue it a certificate"
    )]
    OtherNode { said: NodeName, certified: NodeName },
    #[error("{what}: {count}, and the most is {most}")]
    TooMany {
        what: &'static str,
        count: usize,
        most: usize,
    },
    #[error("{what} has {bytes} bytes, and the most is {most}")]
    TooLong {
        what: &'static str,
        bytes: usize,
        most: usize,
    },
    #[error("{what} holds control characters: `{text}`")]
    Control { what: &'static str, text: String },
}

/// Checks a hello that came over the link of the node `certified`. Versions, pools and epochs are the core's to judge.
/// Sentences that are too long are cut.
pub(super) fn hello(mut hello: Hello, certified: &NodeName) -> Result<Hello, Invalid> {
    if hello.node != *certified {
        return Err(Invalid::OtherNode {
            said: hello.node.clone(),
            certified: certified.clone(),
        });
    }
    most(
        "attempts on the host",
        hello.attempts.len(),
        MAX_ATTEMPTS_PER_NODE,
    )?;
    line("the agent's version", &hello.version)?;
    labels(&hello.labels)?;
    inventory(&hello.inventory)?;
    for status in &mut hello.attempts {
        phase(&mut status.phase);
    }
    Ok(hello)
}

fn labels(labels: &BTreeMap<String, String>) -> Result<(), Invalid> {
    most("labels", labels.len(), MAX_LABELS)?;
    for (key, value) in labels {
        short("a label's key", key, MAX_LABEL_KEY_BYTES)?;
        line("a label's value", value)?;
    }
    Ok(())
}

fn inventory(inventory: &Inventory) -> Result<(), Invalid> {
    most("GPUs", inventory.gpus.len(), MAX_GPUS)?;
    most("notes in the inventory", inventory.notes.len(), MAX_NOTES)?;
    line("the kernel's release", &inventory.kernel)?;
    line("the architecture", &inventory.arch)?;
    line("the processor's model", &inventory.cpu_model)?;
    line(
        "the driver's version",
        inventory.driver.as_deref().unwrap_or(""),
    )?;
    for gpu in &inventory.gpus {
        line("a GPU's UUID", &gpu.uuid)?;
        line("a GPU's model", &gpu.model)?;
    }
    for note in &inventory.notes {
        short("a note in the inventory", note, MAX_SENTENCE_BYTES)?;
    }
    Ok(())
}

fn most(what: &'static str, count: usize, most: usize) -> Result<(), Invalid> {
    if count <= most {
        return Ok(());
    }
    Err(Invalid::TooMany { what, count, most })
}

fn line(what: &'static str, text: &str) -> Result<(), Invalid> {
    short(what, text, MAX_LINE_BYTES)
}

fn short(what: &'static str, text: &str, most: usize) -> Result<(), Invalid> {
    if text.len() > most {
        let bytes = text.len();
        return Err(Invalid::TooLong { what, bytes, most });
    }
    if text.chars().any(char::is_control) {
        let text = text.escape_debug().to_string();
        return Err(Invalid::Control { what, text });
    }
    Ok(())
}

/// Checks what an agent says after its hello, and cuts a sentence that is too long: it comes from the host's kernel or
/// from a step's own command and must not cost the node its link.
pub(super) fn from_node(mut message: FromNode) -> Result<FromNode, Invalid> {
    match &mut message {
        FromNode::Inventory(found) => inventory(found)?,
        FromNode::Readings(readings) => most("GPUs", readings.gpus.len(), 2 * MAX_GPUS)?,
        FromNode::Status(status) => phase(&mut status.phase),
    }
    Ok(message)
}

fn phase(phase: &mut AttemptPhase) {
    let (AttemptPhase::Ended(end) | AttemptPhase::Released(end)) = phase else {
        return;
    };
    if let Exit::StartFailed(sentence) = &mut end.exit {
        sentence.truncate(sentence.floor_char_boundary(MAX_SENTENCE_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::id::{BootId, PoolName};
    use sluice_common::inventory::Gpu;
    use sluice_common::time::Time;
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
            boot_id: BootId::new("b1").unwrap(),
            highest_epoch: None,
            inventory: Inventory::default(),
            attempts: vec![failed(10_000)],
        }
    }

    fn failed(bytes: usize) -> AttemptStatus {
        let end = AttemptEnd {
            started: None,
            exit: Exit::StartFailed("\u{e4}".repeat(bytes / 2)),
            stopped: None,
            at: Time::default(),
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
                ..
            }) => sentence.len(),
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
        type Spoil = fn(&mut Hello);
        let cases: [(&str, Spoil); 6] = [
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
            ("a note in the inventory has 2049 bytes", |h| {
                h.inventory.notes = vec!["x".repeat(2049)];
            }),
        ];
        for (expected, spoil) in cases {
            let mut words = words();
            spoil(&mut words);
            let message = hello(words, &node()).unwrap_err().to_string();
            assert!(message.contains(expected), "{expected}: {message}");
        }
    }
}

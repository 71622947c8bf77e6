//! Fuzz tests of agents' messages. They can be decoded, and may say anything. Whatever two nodes send, in any order and
//! however late, the core's invariants hold after each message, and its records build its state.

use std::collections::BTreeMap;

use coordinator_core::{
    Core, Input, NewStep, Output, ReplyId, SessionId, State, TimerKey, check as check_core,
    check_record,
};
use serde::de::DeserializeOwned;
use sluice_common::id::{ClusterId, StepId};
use sluice_common::request::StepRequest;
use sluice_common::supervision::BootMillis;
use sluice_common::time::{Span, Time};
use sluice_fuzz::Fuzz;

use super::*;
use crate::fixture::settings;

/// Nodes that have a certificate.
const NODES: [&str; 2] = ["one", "two"];

fn step(id: &str, request: &str) -> NewStep {
    let request: StepRequest = serde_json::from_str(request).unwrap();
    NewStep::new(StepId::new(id).unwrap(), request.check().unwrap())
}

/// A core, with the state built from its records.
struct World {
    core: Core,
    folded: State,
    now: Time,
    timers: BTreeMap<TimerKey, Time>,
    sessions: BTreeMap<NodeName, SessionId>,
    last_session: u64,
}

impl World {
    /// Starts with three waiting steps: for a processor, for a GPU, and for two hosts.
    fn new() -> Self {
        let mut core = Core::recover(settings(), State::default());
        let now = Time::from_unix_millis(1_000_000_000);
        core.start(now, ClusterId::new("c1").unwrap());
        let mut fuzzed = Self {
            core,
            folded: State::default(),
            now,
            timers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_session: 0,
        };
        let steps = vec![
            step("a", r#"{"command":["x"],"resources":{"cpu_count":1}}"#),
            step(
                "b",
                r#"{"command":["x"],"resources":{"gpu_count":1},"on_preempt":"suspend"}"#,
            ),
            step(
                "c",
                r#"{"command":["x"],"resources":{"cpu_count":1},"nodes":2}"#,
            ),
        ];
        fuzzed.feed(Input::Submit {
            reply: ReplyId(1),
            steps,
        });
        fuzzed
    }

    fn feed(&mut self, input: Input) {
        self.core.handle(self.now, input);
        for output in self.core.outputs() {
            self.take(output);
        }
        check_core(&self.core).unwrap();
        assert_eq!(self.core.state(), &self.folded);
    }

    fn take(&mut self, output: Output) {
        match output {
            Output::Record(record) => {
                check_record(&self.folded, &record.record).unwrap();
                self.folded.apply(&record).unwrap();
            }
            Output::SetTimer { key, at } => drop(self.timers.insert(key, at)),
            Output::LetGo { session, .. } => self.sessions.retain(|_, known| *known != session),
            Output::Greet { .. } | Output::ToNode { .. } | Output::Reply { .. } => {}
        }
    }

    /// Advances the time and fires timers.
    fn wait(&mut self, span: Span) {
        self.now = self.now + span;
        let due: Vec<TimerKey> = self
            .timers
            .extract_if(.., |_, at| *at <= self.now)
            .map(|(key, _)| key)
            .collect();
        for key in due {
            self.feed(Input::Timer(key));
        }
    }

    fn hello(&mut self, hello: Hello) {
        let node = hello.node.clone();
        if !NODES.contains(&node.as_str()) {
            return;
        }
        let Ok(hello) = check::hello(hello, &node) else {
            return;
        };
        self.last_session += 1;
        let session = SessionId(self.last_session);
        self.sessions.insert(node, session);
        self.feed(Input::NodeHello {
            session,
            hello: Box::new(hello),
            claim: Default::default(),
            epoch_is_proven: false,
        });
    }

    /// Interprets a line: the node and its message.
    fn line(&mut self, line: &[u8]) {
        let Some((kind, payload)) = line.split_first() else {
            return;
        };
        match kind {
            b'h' => read(payload)
                .into_iter()
                .for_each(|hello| self.hello(hello)),
            b'+' => {
                let millis = std::str::from_utf8(payload)
                    .ok()
                    .and_then(|it| it.parse().ok());
                self.wait(Span::from_millis(millis.unwrap_or(0).min(86_400_000)));
            }
            b'1' | b'2' => self.word(NODES[usize::from(kind - b'1')], payload),
            _ => {}
        }
    }

    /// Sends the heartbeat of a host that hears nothing.
    fn beat(&mut self, session: SessionId, node: NodeName) {
        let beat = Heartbeat {
            number: 0,
            sent_at: BootMillis(self.now.unix_millis()),
            last_acknowledged: BootMillis(0),
            last_order: 0,
            challenge: None,
        };
        self.feed(Input::Heartbeat {
            session,
            node,
            beat,
        });
    }

    /// Interprets a message: `-` ends the link, `!` is a heartbeat.
    fn word(&mut self, node: &str, payload: &[u8]) {
        let node = NodeName::new(node).unwrap();
        let Some(session) = self.sessions.get(&node).copied() else {
            return;
        };
        match payload {
            b"-" => self.feed(Input::NodeGone { session, node }),
            b"!" => self.beat(session, node),
            _ => {
                let message = read(payload).and_then(|it| check::from_node(it).ok());
                if let Some(message) = message {
                    self.feed(Input::FromNode {
                        session,
                        node,
                        message,
                    });
                }
            }
        }
    }
}

fn read<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    serde_json::from_slice(json).ok()
}

#[test]
fn words_of_agents() {
    let words = [
        "\nh",
        "\n1",
        "\n2",
        "\n1-",
        "\n2!",
        "\n+400000",
        "\n+30000",
        "\"node\":\"two\"",
        "\"attempts\":[",
        "\"attempt\":\"a.1\"",
        "\"attempt\":\"b.1\"",
        "\"attempt\":\"c.1\"",
        "\"phase\":",
        "\"Starting\"",
        "\"Released\":{",
        "\"Status\":{",
        "\"Inventory\":{",
        "\"GpuStates\":{",
        "\"Checkpoint\":{",
        "\"Health\":",
        "\"Labels\":{",
        "\"exit\":{\"code\":0}",
        "\"gpus\":[",
        "\"uuid\":\"GPU-a\"",
        "\"memory_bytes\":",
        "18446744073709551615",
        "4294967295",
        "\"boot_id\":\"b2\"",
        "\"highest_epoch\":{\"epoch\":{\"cluster\":\"c1\",\"counter\":9},\"seal\":null}",
        "\"pool\":\"default\"",
    ];
    Fuzz::new("agent-words")
        .words(&words)
        .max_bytes(8192)
        .memory(8 << 20, 4096)
        .run(|input| {
            let mut fuzzed = World::new();
            for line in input.split(|byte| *byte == b'\n').take(40) {
                fuzzed.line(line);
            }
        });
}

//! Fuzz target for the content of peers' messages: decodable orders of a coordinator, views of a supervisor
//! and observations of a driver, in any order. Whatever they say, the core's invariants must hold.

use std::collections::BTreeMap;

use agent_core::{
    Core, GpuHealth, GpuObservation, GpuScan, Input, LinkId, Now, Output, Processor, Settings,
    TimerKey, Topology, check,
};
use serde::de::DeserializeOwned;
use sluice_common::id::{BootId, NodeName};
use sluice_common::supervision::{AttemptView, BootMillis};
use sluice_common::time::{Span, Time};
use sluice_fuzz::Fuzz;

fn settings() -> Settings {
    let processor = |number| Processor {
        number,
        core: number / 2,
        node: number / 4,
    };
    Settings {
        node: NodeName::new("host-1").unwrap(),
        path: "/bin".to_owned(),
        gpu_release_timeout: Span::from_secs(10),
        respect_foreign: true,
        gpus_are_declared: false,
        suspend_limit: Span::from_secs(60),
        topology: Topology {
            processors: (0..8).map(processor).collect(),
            gpu_nodes: Default::default(),
        },
        attempts_dir: "/attempts".to_owned(),
        inputs_dir: "/inputs".to_owned(),
        ports: Default::default(),
    }
}

struct FuzzedCore {
    core: Core,
    now: u64,
    timers: BTreeMap<TimerKey, BootMillis>,
    link: u64,
}

impl FuzzedCore {
    fn new() -> Self {
        Self {
            core: Core::new(settings(), None),
            now: 1_000_000,
            timers: BTreeMap::new(),
            link: 0,
        }
    }

    fn handle(&mut self, input: Input) {
        let now = Now {
            wall: Time::from_unix_millis(1_800_000_000_000 + self.now),
            boot: BootMillis(self.now),
        };
        self.core.handle(now, input);
        for output in self.core.outputs() {
            if let Output::SetTimer { key, at } = output {
                self.timers.insert(key, at);
            }
        }
    }

    /// Advances the time and fires due timers.
    fn wait(&mut self, millis: u64) {
        self.now += millis.min(86_400_000);
        let due = self
            .timers
            .extract_if(.., |_, at| at.0 <= self.now)
            .map(|(key, _)| key)
            .collect::<Vec<_>>();
        due.into_iter()
            .for_each(|key| self.handle(Input::Timer(key)));
    }

    /// A line is a kind and its content.
    fn line(&mut self, line: &[u8]) {
        let Some((kind, said)) = line.split_first() else {
            return;
        };
        match kind {
            b'd' => self.link += 1,
            b'+' => return self.wait(number(said)),
            _ => {}
        }
        if let Some(input) = self.input(*kind, said) {
            self.handle(input);
        }
    }

    fn input(&self, kind: u8, said: &[u8]) -> Option<Input> {
        let link = LinkId(self.link);
        Some(match kind {
            b'd' => Input::Dialled { link },
            b'l' => Input::LinkLost { link },
            b'w' => Input::Welcomed {
                link,
                welcome: read(said)?,
            },
            b'c' => Input::Command {
                link,
                command: read(said)?,
            },
            b'k' => Input::HeartbeatAcked {
                link,
                sent: BootMillis(number(said)),
            },
            b's' => {
                let (boot_id, attempts): (BootId, Vec<AttemptView>) = read(said)?;
                Input::SupervisorUp { boot_id, attempts }
            }
            b'x' => Input::SupervisorDown {
                why: "gone".to_owned(),
            },
            b'a' => Input::Attempt(read(said)?),
            b'g' => Input::Gpus(look(said)?),
            b'q' => Input::GpuHealth(quarantine(said)?),
            _ => return None,
        })
    }
}

/// By UUID, the processes and used memory of each GPU; `None` for one that does not answer.
type GpuAnswers = BTreeMap<String, Option<(Option<Vec<u32>>, Option<u64>)>>;

fn look(said: &[u8]) -> Option<GpuScan> {
    let (began, memory_available, told): (u64, Option<u64>, GpuAnswers) = read(said)?;
    let seen = |told| match told {
        Some((processes, memory_used)) => GpuObservation::Present {
            processes,
            memory_used,
        },
        None => GpuObservation::NoAnswer,
    };
    Some(GpuScan {
        began: BootMillis(began),
        gpus: told.into_iter().map(|(gpu, it)| (gpu, seen(it))).collect(),
        units: BTreeMap::new(),
        memory_available,
    })
}

fn quarantine(said: &[u8]) -> Option<GpuHealth> {
    let (uuid, why, is_count) = read(said)?;
    Some(GpuHealth::Quarantine {
        uuid,
        why,
        is_count,
    })
}

fn read<T: DeserializeOwned>(json: &[u8]) -> Option<T> {
    serde_json::from_slice(json).ok()
}

fn number(text: &[u8]) -> u64 {
    let text = std::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[test]
fn words_of_peers() {
    let words = [
        "\nd",
        "\nl",
        "\nx",
        "\ns[\"b1\",[]]",
        "\nw",
        "\nc",
        "\na",
        "\ng[1000000,null,{}]",
        "\nk1000000",
        "\n+1000",
        "\n+60000",
        "\"order\":",
        "{\"Stop\":{",
        "{\"Forget\":{",
        "{\"Suspend\":{",
        "{\"Resume\":{",
        "\"attempt\":\"a.1\"",
        "\"phase\":",
        "\"freezer\":\"Frozen\"",
        "\"timeout\":",
        "\"grace\":",
        "18446744073709551615",
        "\"counter\":2",
        "\"GPU-a\"",
        "\"room_mb\":",
    ];
    Fuzz::new("agent-orders")
        .words(&words)
        .max_bytes(8192)
        .memory(8 << 20, 4096)
        .run(|input| {
            let mut world = FuzzedCore::new();
            for line in input.split(|byte| *byte == b'\n').take(60) {
                world.line(line);
                check(&world.core).unwrap_or_else(|violation| panic!("{violation}"));
            }
        });
}

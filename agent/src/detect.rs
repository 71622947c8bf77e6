//! What this host has and how it does: one file for each detector, and their sum. A detector that cannot answer leaves
//! its part empty and says why in the inventory's notes; none of them fails.
//!
//! The driver of the GPUs is asked on a thread of its own, because it may keep whoever asks waiting for ever. While it
//! does, what it said last stays, and the agent does everything else.

mod cpu;
mod health;
mod machine;
mod memory;
mod notes;
pub(crate) mod nvml;
mod storage;
mod system;
pub(crate) mod topology;

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::{GpuHealth, GpuLook, Input, Seen};
use sluice_common::inventory::{self, HostReading, Inventory, Readings};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use crate::clock;
use crate::config::Reserve;
use crate::engine::Event;

use health::Judged;
use notes::Notes;
use nvml::{Driver, Report, Xids};

/// Between two looks at the host while the agent runs. A GPU that falls off the bus should be gone from the pool within
/// seconds; a look costs a few calls of the driver.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Looks between two tellings of readings: a graph of ten-second points is as fine as most are drawn, and a coordinator
/// of a thousand hosts hears a hundred of them a second.
const TELL_AFTER: u32 = 3;
/// How long the driver may take for a look before it is noted that it does not answer. A cold driver takes a few seconds.
const DRIVER_LIMIT: Duration = Duration::from_secs(10);
/// How long the agent's start waits for the first look of the driver; whatever it says later is a change.
const FIRST_LIMIT: Duration = Duration::from_secs(5);

/// What is noted while the driver keeps us waiting. The same words each time, so that it is one change.
const SILENT: &str = "the NVIDIA driver does not answer: what it said last is shown, and the rest of this host goes on \
                      without it; look at the kernel's log, and reboot the host if it stays so";

/// What detection needs to know.
pub(crate) struct Host {
    state_dir: PathBuf,
    reserve: Reserve,
    driver: DriverThread,
    xids: Xids,
    judged: Judged,
}

/// What the driver is asked.
#[derive(Clone, Copy, Debug)]
enum Ask {
    All,
    /// Who uses the GPUs.
    Glance,
}

/// What came of it: a report where all was asked, and in any case who uses the GPUs, where the driver tells.
struct Told {
    report: Option<Report>,
    glance: Option<GpuLook>,
}

/// The thread that asks the driver.
struct DriverThread {
    ask: mpsc::Sender<Ask>,
    told: mpsc::Receiver<Told>,
    last: Report,
    /// The last glance, until somebody takes it.
    glance: Option<GpuLook>,
    /// Since when an answer is awaited.
    asked: Option<Instant>,
    silent: bool,
}

impl Host {
    /// `state_dir` tells which disk counts; `nvml_library` replaces the loader's choice; `reserve` is kept for the
    /// system and not reported.
    pub(crate) fn new(state_dir: PathBuf, nvml_library: Option<PathBuf>, reserve: Reserve) -> Self {
        Self {
            state_dir,
            reserve,
            driver: DriverThread::start(nvml_library.clone()),
            xids: nvml::listen(nvml_library),
            judged: Judged::default(),
        }
    }

    /// What there is, with the driver's word if it comes within `limit`.
    pub(crate) async fn look(&mut self, limit: Duration) -> Inventory {
        self.driver.look(Ask::All, limit).await;
        inventory(&self.state_dir, &self.reserve, &self.driver)
    }

    /// Who uses the GPUs now, where the driver tells within `limit`.
    pub(crate) async fn glance(&mut self, limit: Duration) -> Option<GpuLook> {
        self.driver.look(Ask::Glance, limit).await;
        self.seen()
    }

    /// Who used them at the last look, once.
    pub(crate) fn seen(&mut self) -> Option<GpuLook> {
        self.driver.glance.take()
    }

    /// What the last look and the driver's reports of errors ask for, each once.
    fn verdicts(&mut self) -> Vec<GpuHealth> {
        let last = &self.driver.last;
        self.judged.note_slowed(&last.slowed);
        self.judged
            .verdicts(&last.gpus, &last.readings, &self.xids.all())
    }

    /// How it does, by the last look.
    pub(crate) fn readings(&self) -> Readings {
        let mut gpus = self.driver.last.readings.clone();
        for reading in &mut gpus {
            reading.xids = self.xids.of(&reading.uuid);
        }
        Readings {
            host: host_reading(&self.state_dir),
            gpus,
        }
    }
}

impl DriverThread {
    fn start(library: Option<PathBuf>) -> Self {
        let (ask, mut asked) = mpsc::channel(1);
        let (tell, told) = mpsc::channel(1);
        let started = std::thread::Builder::new()
            .name("nvml".to_owned())
            .spawn(move || {
                let mut driver = Driver::new(library);
                while let Some(ask) = asked.blocking_recv() {
                    let report = match ask {
                        Ask::All => Some(driver.look()),
                        Ask::Glance => None,
                    };
                    let glance = driver.glance();
                    if tell.blocking_send(Told { report, glance }).is_err() {
                        return;
                    }
                }
            });
        let mut last = Report::default();
        if let Err(error) = started {
            last.notes.add(format!(
                "GPUs cannot be looked for: no thread can be started: {error}"
            ));
        }
        Self {
            ask,
            told,
            last,
            glance: None,
            asked: None,
            silent: false,
        }
    }

    /// Asks, unless an answer is still awaited, and waits for it.
    async fn look(&mut self, what: Ask, limit: Duration) {
        if self.asked.is_none() && self.ask.try_send(what).is_ok() {
            self.asked = Some(Instant::now());
        }
        match timeout(limit, self.told.recv()).await {
            Ok(Some(told)) => {
                self.last = told.report.unwrap_or(std::mem::take(&mut self.last));
                self.glance = told.glance;
                self.asked = None;
                self.silent = false;
            }
            Ok(None) => self
                .last
                .notes
                .add("detection of GPUs has died of a defect: what was seen last is shown"),
            Err(_) => self.silent = self.asked.is_some_and(|asked| asked.elapsed() >= limit),
        }
    }
}

fn inventory(state_dir: &Path, reserve: &Reserve, driver: &DriverThread) -> Inventory {
    let mut inventory = Inventory::default();
    let mut notes = Notes::default();
    system::detect(&mut inventory, &mut notes);
    machine::detect(Path::new("/"), &mut inventory);
    cpu::detect(&mut inventory, &mut notes);
    memory::detect(&mut inventory, &mut notes);
    storage::detect(state_dir, &mut inventory, &mut notes);
    inventory.capabilities = sluice_cgroups::capabilities::detect_capabilities(Path::new("/"))
        .unwrap_or_else(|e| {
            notes.add(format!("control groups cannot be looked for: {e}"));
            sluice_cgroups::capabilities::minimum_capabilities()
        });
    let Report {
        driver: version,
        cuda,
        gpus,
        notes: said,
        ..
    } = &driver.last;
    inventory.driver = version.clone();
    inventory.cuda = cuda.clone();
    inventory.gpus = gpus.clone();
    notes.extend(said);
    if driver.silent {
        notes.add(SILENT);
    }
    inventory.notes = notes.list();
    keep_back(reserve, &mut inventory);
    inventory
}

/// What steps are not given is told beside what they are. More than there is cannot be kept.
fn keep_back(reserve: &Reserve, inventory: &mut Inventory) {
    let kept = inventory::Reserve {
        cpus: reserve.cpus.min(inventory.cpus),
        memory_bytes: reserve.memory_bytes.min(inventory.memory_bytes),
    };
    inventory.cpus -= kept.cpus;
    inventory.memory_bytes -= kept.memory_bytes;
    inventory.reserve = kept;
}

fn host_reading(state_dir: &Path) -> HostReading {
    let mut reading = HostReading::default();
    memory::read(&mut reading);
    storage::read(state_dir, &mut reading);
    reading.load_milli = load_milli(&std::fs::read_to_string("/proc/loadavg").unwrap_or_default());
    reading
}

/// The first number of `0.52 0.58 0.59 1/467 12345`, in thousandths.
pub(crate) fn load_milli(loadavg: &str) -> u64 {
    let first = loadavg.split_whitespace().next().unwrap_or_default();
    let (whole, part) = first.split_once('.').unwrap_or((first, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    number(whole)
        .saturating_mul(1000)
        .saturating_add(number(&part))
}

/// The first look of an agent that starts.
pub(crate) async fn first(host: &mut Host) -> Inventory {
    host.look(FIRST_LIMIT).await
}

/// Everything, for whoever asks once and waits.
pub(crate) async fn once(host: &mut Host) -> (Inventory, Readings) {
    let inventory = host.look(DRIVER_LIMIT).await;
    (inventory, host.readings())
}

/// Looks again and again, and tells the loop when the host has changed and how it does, and who uses the GPUs, in
/// between whenever `wanted` asks for that. Ends with the loop.
pub(crate) async fn watch(
    mut host: Host,
    mut last: Inventory,
    events: mpsc::Sender<Event>,
    mut wanted: mpsc::Receiver<()>,
) {
    let mut looks = 0;
    loop {
        let told = if looks % TELL_AFTER == 0 {
            events
                .send(Event::Readings(Box::new(host.readings())))
                .await
        } else {
            Ok(())
        };
        if told.is_err() {
            return;
        }
        looks += 1;
        if glance_until(&mut host, Instant::now() + LOOK_EVERY, &events, &mut wanted)
            .await
            .is_err()
        {
            return;
        }
        let found = host.look(DRIVER_LIMIT).await;
        if tell_seen(host.seen(), &events).await.is_err()
            || tell_health(&mut host, &events).await.is_err()
        {
            return;
        }
        if found == last {
            continue;
        }
        report(&last, &found);
        last = found.clone();
        if events
            .send(Event::HostChanged(Box::new(found)))
            .await
            .is_err()
        {
            return;
        }
    }
}

/// The loop has ended.
struct Over;

/// Glances at the GPUs whenever that is wanted, until it is time for a look at everything.
async fn glance_until(
    host: &mut Host,
    until: Instant,
    events: &mpsc::Sender<Event>,
    wanted: &mut mpsc::Receiver<()>,
) -> Result<(), Over> {
    while let Ok(asked) = timeout_at(until, wanted.recv()).await {
        asked.ok_or(Over)?;
        let seen = host.glance(DRIVER_LIMIT).await;
        tell_seen(seen, events).await?;
    }
    Ok(())
}

async fn tell_seen(seen: Option<GpuLook>, events: &mpsc::Sender<Event>) -> Result<(), Over> {
    match seen {
        Some(look) => {
            let event = Event::Core(Input::Gpus(look));
            events.send(event).await.map_err(|_| Over)
        }
        None => Ok(()),
    }
}

async fn tell_health(host: &mut Host, events: &mpsc::Sender<Event>) -> Result<(), Over> {
    for verdict in host.verdicts() {
        let event = Event::Core(Input::GpuHealth(verdict));
        events.send(event).await.map_err(|_| Over)?;
    }
    Ok(())
}

/// Answers for GPUs that are declared and not there: nobody can tell who uses them. Ends with the loop.
pub(crate) async fn answer_for_declared(
    declared: Inventory,
    events: mpsc::Sender<Event>,
    mut wanted: mpsc::Receiver<()>,
) {
    while wanted.recv().await.is_some() {
        let untold = Seen::There {
            processes: None,
            memory_used: None,
        };
        let gpus = declared.gpus.iter();
        let look = GpuLook {
            began: clock::boot(),
            gpus: gpus.map(|gpu| (gpu.uuid.clone(), untold.clone())).collect(),
            memory_available: None,
        };
        if tell_seen(Some(look), &events).await.is_err() {
            return;
        }
    }
}

/// Once in the log what is new.
fn report(last: &Inventory, found: &Inventory) {
    info!(
        gpus = found.gpus.len(),
        cpus = found.cpus,
        "the host has changed"
    );
    let new = found.notes.iter().filter(|note| !last.notes.contains(note));
    new.for_each(|note| warn!("{note}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::inventory::Capability;

    async fn found(dir: &Path, library: Option<&Path>, reserve: &Reserve) -> Inventory {
        let mut host = Host::new(dir.into(), library.map(Path::to_path_buf), reserve.clone());
        once(&mut host).await.0
    }

    const NOTHING: Reserve = Reserve {
        cpus: 0,
        memory_bytes: 0,
    };

    #[tokio::test]
    async fn a_host_reports_itself_less_what_is_kept_back() {
        let dir = tempfile::tempdir().unwrap();
        let whole = found(dir.path(), None, &NOTHING).await;
        assert!(
            whole.cpus > 0 && whole.memory_bytes > 0 && whole.storage_bytes > 0,
            "{whole:?}"
        );
        assert!(!whole.kernel.is_empty() && !whole.arch.is_empty() && !whole.os.is_empty());
        assert_eq!(whole.capabilities.len(), Capability::ALL.len());

        let reserve = Reserve {
            cpus: 1,
            memory_bytes: 1 << 20,
        };
        let rest = found(dir.path(), None, &reserve).await;
        assert_eq!(rest.cpus, whole.cpus - 1);
        assert_eq!(rest.memory_bytes, whole.memory_bytes - (1 << 20));
        let told = (rest.reserve.cpus, rest.reserve.memory_bytes);
        assert_eq!(told, (1, 1 << 20), "it is told with the rest");
        let much = Reserve {
            cpus: u32::MAX,
            memory_bytes: u64::MAX,
        };
        let none = found(dir.path(), None, &much).await;
        assert_eq!((none.cpus, none.memory_bytes), (0, 0));
        assert_eq!(none.reserve.cpus, whole.cpus, "no more than there is");
    }

    #[tokio::test]
    async fn a_library_that_is_not_there_leaves_a_cpu_only_host_and_a_note() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("libnvidia-ml.so.1");
        let found = found(dir.path(), Some(&missing), &NOTHING).await;
        assert!(found.gpus.is_empty() && found.driver.is_none());
        assert!(
            found.notes.iter().any(|note| note.contains("libnvidia-ml")),
            "{:?}",
            found.notes
        );
    }

    #[test]
    fn the_load_is_read_in_thousandths() {
        for (text, milli) in [
            ("0.52 0.58 0.59 1/467 12345\n", 520),
            ("12.5 0 0 1/1 1", 12_500),
            ("3 0 0 1/1 1", 3_000),
            ("", 0),
        ] {
            assert_eq!(load_milli(text), milli, "{text}");
        }
    }
}

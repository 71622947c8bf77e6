//! Detects the host's hardware and its state, with one file for each detector. A detector that fails leaves
//! its part empty and adds a note to the inventory; detection as a whole never fails.
//!
//! A thread of its own queries the GPU driver, because a query may block for ever. Meanwhile the last answer
//! stays, and the agent continues.

mod cpu;
mod health;
mod machine;
mod memory;
mod notes;
pub(crate) mod nvml;
mod storage;
mod system;
pub(crate) mod topology;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::{GpuHealth, GpuObservation, GpuScan, Input};
use sluice_common::inventory::{self, HostReading, Inventory, Readings};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use crate::clock;
use crate::config::Reserve;
use crate::engine::Event;

use health::SeenFailures;
use notes::Notes;
use nvml::{Driver, DriverReport, Xids};

/// Time between two scans of the host. A lost GPU should leave the pool within seconds; a scan takes a few
/// driver calls.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);
/// Scans between two reports of readings: ten seconds are as fine as most graphs are drawn, and a coordinator
/// of a thousand hosts gets a hundred reports a second.
const LOOKS_PER_REPORT: u32 = 3;
/// Time limit of a driver query, after which a note says that it does not answer. The first query takes a few
/// seconds.
const DRIVER_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait of the agent's start for the driver's first answer; a later one is reported as a change.
const FIRST_LIMIT: Duration = Duration::from_secs(5);

/// The note while the driver does not answer. A constant text, so that it counts as one change.
const SILENT: &str = "the NVIDIA driver does not answer: its last report is shown, and the rest of this host works without it; look at the kernel's log, and reboot the host if it does not recover";

/// State of the detectors.
pub(crate) struct HostDetector {
    state_dir: PathBuf,
    reserve: Reserve,
    driver: DriverThread,
    xids: Xids,
    seen_failures: SeenFailures,
}

/// A query for the driver thread.
#[derive(Clone, Copy, Debug)]
enum DriverRequest {
    All,
    /// Only the users of the GPUs.
    UseScan,
}

/// Answer of the driver thread: a report if everything was queried, and the users of the GPUs if the driver
/// tells.
struct DriverAnswer {
    report: Option<DriverReport>,
    glance: Option<GpuScan>,
}

/// Handle of the thread that queries the driver.
struct DriverThread {
    ask: mpsc::Sender<DriverRequest>,
    told: mpsc::Receiver<DriverAnswer>,
    last: DriverReport,
    /// The last scan of users that was not taken yet.
    glance: Option<GpuScan>,
    /// Start of the pending query.
    asked: Option<Instant>,
    silent: bool,
}

impl HostDetector {
    /// `state_dir` selects the disk; `nvml_library` replaces the loader's choice; `reserve` is not offered to
    /// steps.
    pub(crate) fn new(state_dir: PathBuf, nvml_library: Option<PathBuf>, reserve: Reserve) -> Self {
        Self {
            state_dir,
            reserve,
            driver: DriverThread::start(nvml_library.clone()),
            xids: nvml::listen(nvml_library),
            seen_failures: SeenFailures::default(),
        }
    }

    /// The inventory, with the driver's answer if it comes within `limit`.
    pub(crate) async fn look(&mut self, limit: Duration) -> Inventory {
        self.driver.look(DriverRequest::All, limit).await;
        inventory(&self.state_dir, &self.reserve, &self.driver)
    }

    /// Users of the GPUs now, if the driver answers within `limit`.
    pub(crate) async fn glance(&mut self, limit: Duration) -> Option<GpuScan> {
        self.driver.look(DriverRequest::UseScan, limit).await;
        self.seen()
    }

    /// Users of the GPUs at the last scan; returned once.
    pub(crate) fn seen(&mut self) -> Option<GpuScan> {
        self.driver.glance.take()
    }

    /// New failures by the last scan and the driver's error events; each is returned once.
    fn new_failures(&mut self) -> Vec<GpuHealth> {
        let last = &self.driver.last;
        self.seen_failures
            .new_failures(&last.gpus, &last.readings, &self.xids.all())
    }

    /// Conditions of the GPUs that answered the last scan.
    pub(crate) fn conditions(&mut self) -> Input {
        let conditions = self.seen_failures.conditions(&self.driver.last);
        Input::GpuHealth(GpuHealth::Conditions(conditions))
    }

    /// Readings of the last scan.
    pub(crate) fn readings(&self) -> Readings {
        let mut gpus = self.driver.last.readings.clone();
        for reading in &mut gpus {
            let listed = self.driver.last.gpus.iter();
            let mut listed = listed.filter(|gpu| gpu.uuid == reading.uuid);
            let pci = listed.next().and_then(|gpu| gpu.pci.as_deref());
            reading.xids = self.xids.of(&reading.uuid, pci);
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
                        DriverRequest::All => Some(driver.look()),
                        DriverRequest::UseScan => None,
                    };
                    let glance = driver.glance();
                    if tell.blocking_send(DriverAnswer { report, glance }).is_err() {
                        return;
                    }
                }
            });
        let mut last = DriverReport::default();
        if let Err(error) = started {
            last.notes.add(format!(
                "GPUs cannot be detected: no thread can be started: {error}"
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

    /// Queries the driver unless a query is pending, and waits for the answer.
    async fn look(&mut self, what: DriverRequest, limit: Duration) {
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
                .add("GPU detection has crashed, which is a defect: its last report is shown"),
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
            notes.add(format!("control groups cannot be detected: {e}"));
            sluice_cgroups::capabilities::minimum_capabilities()
        });
    let DriverReport {
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

/// Notes the reserve and subtracts it from the inventory, down to zero.
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

/// The first scan of an agent that starts.
pub(crate) async fn first(host: &mut HostDetector) -> Inventory {
    host.look(FIRST_LIMIT).await
}

/// A complete scan, for a command that waits.
pub(crate) async fn once(host: &mut HostDetector) -> (Inventory, Readings) {
    let inventory = host.look(DRIVER_LIMIT).await;
    (inventory, host.readings())
}

/// Scans the host periodically, and reports changes, readings and users of GPUs; scans users at once on a
/// request in `wanted`. Ends with the engine.
pub(crate) async fn watch(
    mut host: HostDetector,
    mut last: Inventory,
    events: mpsc::Sender<Event>,
    mut wanted: mpsc::Receiver<()>,
) {
    let mut looks = 0;
    loop {
        let told = if looks % LOOKS_PER_REPORT == 0 {
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
        if glance_until(
            &mut host,
            Instant::now() + LOOK_INTERVAL,
            &events,
            &mut wanted,
        )
        .await
        .is_err()
        {
            return;
        }
        let found = host.look(DRIVER_LIMIT).await;
        if tell_seen(host.seen(), &events).await.is_err()
            || tell_conditions(&mut host, &events).await.is_err()
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

/// The engine has ended.
struct DetectionEnded;

/// Serves requests for scans of users until the next full scan.
async fn glance_until(
    host: &mut HostDetector,
    until: Instant,
    events: &mpsc::Sender<Event>,
    wanted: &mut mpsc::Receiver<()>,
) -> Result<(), DetectionEnded> {
    while let Ok(asked) = timeout_at(until, wanted.recv()).await {
        asked.ok_or(DetectionEnded)?;
        let seen = host.glance(DRIVER_LIMIT).await;
        tell_seen(seen, events).await?;
    }
    Ok(())
}

async fn tell_seen(
    seen: Option<GpuScan>,
    events: &mpsc::Sender<Event>,
) -> Result<(), DetectionEnded> {
    match seen {
        Some(look) => {
            let event = Event::Core(Input::Gpus(look));
            events.send(event).await.map_err(|_| DetectionEnded)
        }
        None => Ok(()),
    }
}

async fn tell_conditions(
    host: &mut HostDetector,
    events: &mpsc::Sender<Event>,
) -> Result<(), DetectionEnded> {
    let event = Event::Core(host.conditions());
    events.send(event).await.map_err(|_| DetectionEnded)
}

async fn tell_health(
    host: &mut HostDetector,
    events: &mpsc::Sender<Event>,
) -> Result<(), DetectionEnded> {
    for verdict in host.new_failures() {
        let event = Event::Core(Input::GpuHealth(verdict));
        events.send(event).await.map_err(|_| DetectionEnded)?;
    }
    Ok(())
}

/// Answers requests for declared GPUs, whose users are unknown. Ends with the engine.
pub(crate) async fn answer_for_declared(
    declared: Inventory,
    events: mpsc::Sender<Event>,
    mut wanted: mpsc::Receiver<()>,
) {
    while wanted.recv().await.is_some() {
        let untold = GpuObservation::Present {
            processes: None,
            memory_used: None,
        };
        let gpus = declared.gpus.iter();
        let look = GpuScan {
            began: clock::boot(),
            gpus: gpus.map(|gpu| (gpu.uuid.clone(), untold.clone())).collect(),
            units: BTreeMap::new(),
            memory_available: None,
        };
        if tell_seen(Some(look), &events).await.is_err() {
            return;
        }
    }
}

/// Logs what is new in the inventory.
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
        let mut host =
            HostDetector::new(dir.into(), library.map(Path::to_path_buf), reserve.clone());
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

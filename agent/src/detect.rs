//! Detects the host's hardware and its state, with one file for each detector. A detector that fails leaves
//! its part empty and adds a note to the inventory; detection as a whole never fails.
//!
//! A process of its own queries the GPU driver, because a query may block for ever or crash. Meanwhile the last
//! answer stays, and the agent continues.

mod client;
mod containers;
mod cpu;
mod health;
mod machine;
mod memory;
mod notes;
pub(crate) mod nvml;
mod report_file;
mod storage;
mod system;
pub(crate) mod topology;
mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_core::{GpuHealth, GpuObservation, GpuScan, Input};
use sluice_common::inventory::{self, HostReading, Inventory, Readings};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::clock;
use crate::config::Reserve;
use crate::event::{Event, UsageEvent};
use crate::gpu_usage::GpuUsage;

use client::DriverClient;
use containers::ContainerDetector;
use health::SeenFailures;
use notes::Notes;
use nvml::DriverReport;
use report_file::ReportFile;
use worker::DriverRequest;

pub(crate) use nvml::GpuActivity;
pub(crate) use worker::answer as query_driver;

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

/// Condition of each GPU while the driver does not answer.
const UNANSWERED: &str = "the NVIDIA driver does not answer";

/// State of the detectors.
pub(crate) struct HostDetector {
    state_dir: PathBuf,
    reserve: Reserve,
    driver: DriverClient,
    last_report: ReportFile,
    seen_failures: SeenFailures,
    containers: ContainerDetector,
}

impl HostDetector {
    /// `state_dir` selects the disk; `nvml_library` replaces the loader's choice; `reserve` is not offered to
    /// steps.
    pub(crate) fn new(state_dir: PathBuf, nvml_library: Option<PathBuf>, reserve: Reserve) -> Self {
        let mut driver = DriverClient::start(nvml_library);
        let last_report = ReportFile::new(&state_dir);
        driver.remember(last_report.load());
        Self {
            state_dir,
            reserve,
            driver,
            last_report,
            seen_failures: SeenFailures::default(),
            containers: ContainerDetector::default(),
        }
    }

    /// The inventory, with the driver's answer if it comes within `limit`.
    pub(crate) async fn look(&mut self, limit: Duration) -> Inventory {
        self.driver.look(DriverRequest::All, limit).await;
        self.containers.look().await;
        self.inventory()
    }

    fn inventory(&self) -> Inventory {
        let mut notes = Notes::default();
        let mut inventory = Inventory {
            container_runtimes: self.containers.detect(&mut notes),
            ..Inventory::default()
        };
        fill(&mut inventory, &self.state_dir, &self.driver, notes);
        keep_back(&self.reserve, &mut inventory);
        inventory
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
            .new_failures(&last.gpus, &last.readings, &self.driver.xids)
    }

    /// Conditions of the GPUs that answered the last scan.
    pub(crate) fn conditions(&mut self) -> Input {
        let mut conditions = self.seen_failures.conditions(&self.driver.last);
        if self.driver.is_silent_too_long() {
            for gpu in &self.driver.last.gpus {
                let conditions = conditions.entry(gpu.whole().to_owned()).or_default();
                conditions.insert(UNANSWERED.to_owned());
            }
        }
        Input::GpuHealth(GpuHealth::Conditions(conditions))
    }

    /// Stores the driver's report for the next agent, if it has changed.
    fn keep_report(&mut self) {
        if let Some(report) = self.driver.answered() {
            self.last_report.save(report);
        }
    }

    /// Readings of the last scan.
    pub(crate) fn readings(&self) -> Readings {
        let mut gpus = self.driver.last.readings.clone();
        for reading in &mut gpus {
            let listed = self.driver.last.gpus.iter();
            let mut listed = listed.filter(|gpu| gpu.uuid == reading.uuid);
            let pci = listed.next().and_then(|gpu| gpu.pci.as_deref());
            reading.xids = self.driver.xids_of(&reading.uuid, pci);
        }
        Readings {
            host: host_reading(&self.state_dir),
            gpus,
        }
    }
}

/// Fills in all but the container runtimes.
fn fill(inventory: &mut Inventory, state_dir: &Path, driver: &DriverClient, mut notes: Notes) {
    system::detect(inventory, &mut notes);
    machine::detect(Path::new("/"), inventory);
    cpu::detect(inventory, &mut notes);
    memory::detect(inventory, &mut notes);
    storage::detect(state_dir, inventory, &mut notes);
    inventory.capabilities = sluice_cgroups::capabilities::detect_capabilities(Path::new("/"))
        .unwrap_or_else(|e| {
            notes.add(format!("control groups cannot be detected: {e}"));
            sluice_cgroups::capabilities::minimum_capabilities()
        });
    let DriverReport {
        driver: version,
        cuda,
        gpus,
        empty_gpus,
        notes: said,
        ..
    } = &driver.last;
    inventory.driver = version.clone();
    inventory.cuda = cuda.clone();
    inventory.gpus = gpus.clone();
    inventory.empty_gpus = empty_gpus.clone();
    inventory.gpus_unknown = driver.gpus_unknown();
    notes.extend(said);
    notes.extend(&driver.silence());
    inventory.notes = notes.list();
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
        host.keep_report();
        if tell_activity(&host, &events).await.is_err()
            || tell_seen(host.seen(), &events).await.is_err()
            || tell_conditions(&mut host, &events).await.is_err()
            || tell_health(&mut host, &events).await.is_err()
        {
            return;
        }
        if found != last {
            report(&last, &found);
            last = found.clone();
            let changed = Event::HostChanged(Box::new(found));
            if events.send(changed).await.is_err() {
                return;
            }
        }
        if tell_looked(&host, &events).await.is_err() {
            return;
        }
    }
}

/// Tells how busy the GPUs are by the last report, which may be that of an earlier scan.
async fn tell_activity(
    host: &HostDetector,
    events: &mpsc::Sender<Event>,
) -> Result<(), DetectionEnded> {
    let report = host.driver.answered().zip(host.driver.looked_at);
    let Some((report, at)) = report.filter(|(report, _)| !report.activity.is_empty()) else {
        return Ok(());
    };
    let usage = GpuUsage::new(report.activity.clone(), at);
    let event = Event::Usage(UsageEvent::Gpus(Box::new(usage)));
    events.send(event).await.map_err(|_| DetectionEnded)
}

/// Tells when the queries of the last report started, which may be the report of an earlier scan.
async fn tell_looked(
    host: &HostDetector,
    events: &mpsc::Sender<Event>,
) -> Result<(), DetectionEnded> {
    let Some(began) = host.driver.looked_at else {
        return Ok(());
    };
    let event = Event::Core(Input::Looked { began });
    events.send(event).await.map_err(|_| DetectionEnded)
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

    async fn found(dir: &Path, reserve: &Reserve) -> Inventory {
        let host = HostDetector::new(dir.into(), None, reserve.clone());
        host.inventory()
    }

    const NOTHING: Reserve = Reserve {
        cpus: 0,
        memory_bytes: 0,
    };

    #[tokio::test]
    async fn a_host_reports_itself_less_what_is_kept_back() {
        let dir = tempfile::tempdir().unwrap();
        let whole = found(dir.path(), &NOTHING).await;
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
        let rest = found(dir.path(), &reserve).await;
        assert_eq!(rest.cpus, whole.cpus - 1);
        assert_eq!(rest.memory_bytes, whole.memory_bytes - (1 << 20));
        let told = (rest.reserve.cpus, rest.reserve.memory_bytes);
        assert_eq!(told, (1, 1 << 20), "it is told with the rest");
        let much = Reserve {
            cpus: u32::MAX,
            memory_bytes: u64::MAX,
        };
        let none = found(dir.path(), &much).await;
        assert_eq!((none.cpus, none.memory_bytes), (0, 0));
        assert_eq!(none.reserve.cpus, whole.cpus, "no more than there is");
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

//! Listens for XIDs, the errors of a GPU that NVIDIA's driver reports. A thread of its own waits for them, because the
//! call blocks; it counts them by GPU.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use tracing::{debug, warn};

use super::answer::{line, uuid};
use super::device::short_address;
use super::open;

/// Longest wait of one call. Long, because each return wakes the processor.
const WAIT_MILLIS: u32 = 60_000;
/// Time until new GPUs are added, and until a driver that refused is asked again.
const LISTEN_INTERVAL: Duration = Duration::from_secs(60);
/// Time until the other GPUs are listened to again after one was lost: what is raised meanwhile is not heard.
const PAUSE_AFTER_LOSS: Duration = Duration::from_secs(2);
/// Most kinds of XID that are counted for one GPU. Fewer than two hundred exist.
const MAX_KINDS: usize = 256;

/// Number of an event that the driver cannot classify.
const UNKNOWN: u64 = 999;

/// Counts of XIDs by UUID of the GPU, or by PCI address if the driver does not tell the UUID. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Xids(Arc<Mutex<BTreeMap<String, BTreeMap<u64, u64>>>>);

impl Xids {
    /// Counts of all GPUs.
    pub(crate) fn all(&self) -> BTreeMap<String, BTreeMap<u64, u64>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn count(&self, uuid: &str, xid: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_gpu = counts.entry(uuid.to_owned()).or_default();
        if of_gpu.len() < MAX_KINDS || of_gpu.contains_key(&xid) {
            *of_gpu.entry(xid).or_default() += 1;
        }
    }
}

/// Starts a listener thread that runs as long as this process.
pub(crate) fn listen(library: Option<PathBuf>) -> Xids {
    let xids = Xids::default();
    let counts = xids.clone();
    let started = std::thread::Builder::new()
        .name("xid".to_owned())
        .spawn(move || {
            loop {
                let pause = listen_once(library.as_deref(), &counts).unwrap_or_else(|why| {
                    debug!("XIDs cannot be received now: {why}");
                    LISTEN_INTERVAL
                });
                std::thread::sleep(pause);
            }
        });
    if let Err(error) = started {
        warn!("XIDs are not counted: no thread can be started: {error}");
    }
    xids
}

/// Listens to the current GPUs until it is time to look for new ones, or one fails. Returns how long to wait before the
/// next time.
fn listen_once(library: Option<&std::path::Path>, xids: &Xids) -> Result<Duration, String> {
    let nvml = open(library).map_err(|absence| absence.why)?;
    let words = |error: NvmlError| error.to_string();
    let mut set = nvml.create_event_set().map_err(words)?;
    let wanted = EventTypes::CRITICAL_XID_ERROR;
    for index in 0..nvml.device_count().map_err(words)? {
        let Ok(device) = nvml.device_by_index(index) else {
            continue;
        };
        if device
            .supported_event_types()
            .is_ok_and(|types| types.contains(wanted))
        {
            set = device
                .register_events(wanted, set)
                .map_err(|error| error.to_string())?;
        }
    }
    let until = Instant::now() + LISTEN_INTERVAL;
    while Instant::now() < until {
        match set.wait(WAIT_MILLIS) {
            Ok(event) => {
                let gpu = gpu_of(&event.device);
                let xid = match event.event_data {
                    Some(XidError::Value(xid)) => xid,
                    Some(XidError::Unknown) => UNKNOWN,
                    None => continue,
                };
                xids.count(&gpu, xid);
            }
            Err(NvmlError::Timeout) => {}
            // A lost GPU fails at once and for ever; the next round listens to the others.
            Err(error) => {
                debug!("a GPU no longer reports XIDs: {error}");
                return Ok(PAUSE_AFTER_LOSS);
            }
        }
    }
    Ok(Duration::ZERO)
}

/// UUID of a GPU, else its PCI address: a GPU that has fallen off the bus may tell only that.
fn gpu_of(device: &Device<'_>) -> String {
    let address = |_| Ok(short_address(&line(&device.pci_info()?.bus_id)));
    let found: Result<String, NvmlError> = uuid(device).or_else(address);
    found.unwrap_or_else(|_| "unknown".to_owned())
}

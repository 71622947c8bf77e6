//! Listens for XIDs, the errors of a GPU that NVIDIA's driver reports. A thread of its own waits for them, because the
//! call blocks; it counts them by GPU and logs each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use tracing::{debug, warn};

use super::answer::line;
use super::open;
use crate::detect::health::{XidAction, of_xid};

/// Longest wait of one call. Long, because each return wakes the processor.
const WAIT_MILLIS: u32 = 60_000;
/// Time until new GPUs are added, and until a driver that refused is asked again.
const LISTEN_INTERVAL: Duration = Duration::from_secs(60);
/// Most kinds of XID that are counted for one GPU. Fewer than two hundred exist.
const MAX_KINDS: usize = 256;

/// Number of an event that the driver cannot classify.
const UNKNOWN: u64 = 999;

/// Counts of XIDs by GPU. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Xids(Arc<Mutex<BTreeMap<String, BTreeMap<u64, u64>>>>);

impl Xids {
    /// Counts of one GPU.
    pub(crate) fn of(&self, uuid: &str) -> BTreeMap<u64, u64> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(uuid).cloned().unwrap_or_default()
    }

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
                let began = Instant::now();
                if let Err(why) = listen_once(library.as_deref(), &counts) {
                    debug!("XIDs cannot be received now: {why}");
                }
                std::thread::sleep(LISTEN_INTERVAL.saturating_sub(began.elapsed()));
            }
        });
    if let Err(error) = started {
        warn!("XIDs are not counted: no thread can be started: {error}");
    }
    xids
}

/// Listens to the current GPUs until it is time to look for new ones, or the driver fails.
fn listen_once(library: Option<&std::path::Path>, xids: &Xids) -> Result<(), String> {
    let nvml = open(library)?;
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
                let uuid = event
                    .device
                    .uuid()
                    .map_or_else(|_| "unknown".to_owned(), |uuid| line(&uuid));
                let xid = match event.event_data {
                    Some(XidError::Value(xid)) => xid,
                    Some(XidError::Unknown) => UNKNOWN,
                    None => continue,
                };
                note(&uuid, xid, xids);
            }
            Err(NvmlError::Timeout) => {}
            // A lost GPU fails at once and for ever; the others are listened to in the next round.
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

fn note(uuid: &str, xid: u64, xids: &Xids) {
    xids.count(uuid, xid);
    let (action, name) = of_xid(xid);
    if action == XidAction::BlameStep {
        warn!(gpu = uuid, xid, "XID caused by a program: {name}");
    } else {
        warn!(
            gpu = uuid,
            xid, "XID: {name}; the host's kernel log says more"
        );
    }
}

//! A fast scan of the users and used memory of all GPUs. It queries nothing else, because an attempt that
//! waits for a GPU triggers it many times a second.

use std::collections::{BTreeMap, BTreeSet};

use agent_core::GpuObservation;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use serde::{Deserialize, Serialize};
use sluice_common::inventory::Gpu;
use sluice_common::supervision::BootMillis;

use super::answer::{is_gone, uuid};
use super::mig::{Instances, MigModes};
use super::{memory, reading};
use crate::clock;
use crate::detect::notes::Notes;

/// The grantable units of each known GPU: the GPU itself, or its instances.
#[derive(Default)]
pub(super) struct UseScanner {
    known: BTreeMap<String, KnownGpu>,
}

/// Observation of one unit, as the process that queries the driver passes it on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum UseAnswer {
    Present {
        processes: Option<Vec<u32>>,
        memory_used: Option<u64>,
    },
    NoAnswer,
    Lost,
}

impl From<UseAnswer> for GpuObservation {
    fn from(unit: UseAnswer) -> Self {
        match unit {
            UseAnswer::Present {
                processes,
                memory_used,
            } => GpuObservation::Present {
                processes,
                memory_used,
            },
            UseAnswer::NoAnswer => GpuObservation::NoAnswer,
            UseAnswer::Lost => GpuObservation::Lost,
        }
    }
}

/// Result of a scan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GpuUses {
    /// When the scan started.
    pub(crate) began: BootMillis,
    /// Observation of every known unit.
    pub(crate) seen: BTreeMap<String, UseAnswer>,
    /// Units of each GPU whose units could all be read.
    pub(crate) units: BTreeMap<String, BTreeSet<String>>,
}

struct KnownGpu {
    index: u32,
    units: BTreeSet<String>,
}

impl UseScanner {
    /// Observation of every unit; `None` if the whole driver does not answer, an error if it is unloaded.
    pub(super) fn look(
        &mut self,
        nvml: &Nvml,
        modes: &mut MigModes,
    ) -> Result<Option<GpuUses>, NvmlError> {
        let began = clock::boot();
        let count = match nvml.device_count() {
            Ok(count) => count,
            Err(error) if is_gone(&error) => return Err(error),
            Err(_) => return Ok(None),
        };
        let mut uses = GpuUses {
            began,
            seen: BTreeMap::new(),
            units: BTreeMap::new(),
        };
        let mut there = BTreeSet::new();
        let mut silent = BTreeMap::new();
        for index in 0..count {
            let device = nvml.device_by_index(index);
            match device.and_then(|device| Ok((uuid(&device)?, device))) {
                Ok((uuid, device)) => {
                    there.insert(uuid.clone());
                    self.look_at(&device, index, &uuid, modes, &mut uses);
                }
                Err(error) => drop(silent.insert(index, error)),
            }
        }
        for (_, known) in self.known.iter().filter(|(uuid, _)| !there.contains(*uuid)) {
            let verdict = missing(known.index, &silent);
            let units = known.units.iter();
            uses.seen
                .extend(units.map(|unit| (unit.clone(), verdict.clone())));
        }
        Ok(Some(uses))
    }

    /// Takes over what is known from an earlier report.
    pub(super) fn remember(&mut self, gpus: &[Gpu]) {
        for gpu in gpus {
            let known = self.known.entry(gpu.whole().to_owned());
            let known = known.or_insert_with(|| KnownGpu {
                index: gpu.index,
                units: BTreeSet::new(),
            });
            known.units.insert(gpu.uuid.clone());
        }
    }

    /// Observes the units of one GPU that answers. A known unit that cannot be read does not answer.
    fn look_at(
        &mut self,
        device: &Device<'_>,
        index: u32,
        uuid: &str,
        modes: &mut MigModes,
        uses: &mut GpuUses,
    ) {
        let before = self.known.remove(uuid).map(|known| known.units);
        let (mut units, all_read) = match modes.is_cut(device, uuid, &mut Notes::default()) {
            Some(false) => (BTreeMap::from([(uuid.to_owned(), seen(device))]), true),
            Some(true) => {
                let Instances { found, unread } = Instances::of(device);
                let seen = found.iter().map(|(uuid, unit)| (uuid.clone(), seen(unit)));
                (seen.collect(), unread.is_none())
            }
            None => (BTreeMap::new(), false),
        };
        if all_read {
            let units = units.keys().cloned().collect();
            uses.units.insert(uuid.to_owned(), units);
        } else {
            for unit in before.into_iter().flatten() {
                units.entry(unit).or_insert(UseAnswer::NoAnswer);
            }
        }
        let known = KnownGpu {
            index,
            units: units.keys().cloned().collect(),
        };
        self.known.insert(uuid.to_owned(), known);
        uses.seen.extend(units);
    }
}

/// Observation of a known GPU that does not report its UUID now: by the error of its index; if the driver
/// lists only the others, it is lost.
fn missing(index: u32, silent: &BTreeMap<u32, NvmlError>) -> UseAnswer {
    let of_others = silent
        .values()
        .find(|error| !matches!(error, NvmlError::GpuLost));
    match silent.get(&index).or(of_others) {
        None | Some(NvmlError::GpuLost) => UseAnswer::Lost,
        Some(_) => UseAnswer::NoAnswer,
    }
}

fn seen(device: &Device<'_>) -> UseAnswer {
    match (told(memory::ask(device)), told(reading::pids(device))) {
        (QueryResult::Lost, _) | (_, QueryResult::Lost) => UseAnswer::Lost,
        (QueryResult::Nothing, _) | (_, QueryResult::Nothing) => UseAnswer::NoAnswer,
        (QueryResult::Answer(memory), QueryResult::Answer(processes)) => UseAnswer::Present {
            memory_used: memory.map(|memory| memory.used),
            processes,
        },
    }
}

enum QueryResult<T> {
    /// `None` if the driver has no answer for this kind of GPU or this user.
    Answer(Option<T>),
    /// No answer this time.
    Nothing,
    Lost,
}

fn told<T>(answer: Result<T, NvmlError>) -> QueryResult<T> {
    match answer {
        Ok(answer) => QueryResult::Answer(Some(answer)),
        Err(
            NvmlError::NotSupported
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::NoPermission,
        ) => QueryResult::Answer(None),
        Err(NvmlError::GpuLost) => QueryResult::Lost,
        Err(_) => QueryResult::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_lost_where_its_place_says_so_or_nothing_else_is_silent() {
        assert_eq!(missing(1, &BTreeMap::new()), UseAnswer::Lost);
        let lost = || NvmlError::GpuLost;
        assert_eq!(missing(1, &BTreeMap::from([(1, lost())])), UseAnswer::Lost);
        assert_eq!(missing(1, &BTreeMap::from([(0, lost())])), UseAnswer::Lost);
        let slow = || NvmlError::Timeout;
        assert_eq!(
            missing(1, &BTreeMap::from([(1, slow())])),
            UseAnswer::NoAnswer
        );
        let both = BTreeMap::from([(0, slow()), (1, lost())]);
        assert_eq!(missing(1, &both), UseAnswer::Lost);
        assert_eq!(missing(2, &both), UseAnswer::NoAnswer);
    }

    #[test]
    fn what_a_driver_cannot_tell_is_no_failure() {
        for error in [NvmlError::NotSupported, NvmlError::NoPermission] {
            assert!(matches!(told::<u32>(Err(error)), QueryResult::Answer(None)));
        }
        assert!(matches!(
            told::<u32>(Err(NvmlError::Unknown)),
            QueryResult::Nothing
        ));
        assert!(matches!(
            told::<u32>(Err(NvmlError::GpuLost)),
            QueryResult::Lost
        ));
    }
}

//! One quick look at who uses the GPUs and how much of their memory is held: no more is asked, since somebody may wait
//! for a GPU to come free and look many times a second.

use std::collections::{BTreeMap, BTreeSet};

use agent_core::Seen;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::answer::{is_gone, line};
use super::mig::is_cut;
use super::{memory, reading};

/// The units that each GPU was seen to have: itself, or its instances.
#[derive(Default)]
pub(super) struct Glances {
    known: BTreeMap<String, Known>,
}

struct Known {
    index: u32,
    units: BTreeSet<String>,
}

impl Glances {
    /// What every unit shows; nothing where the driver as a whole does not answer, and an error where it is gone.
    pub(super) fn look(
        &mut self,
        nvml: &Nvml,
    ) -> Result<Option<BTreeMap<String, Seen>>, NvmlError> {
        let count = match nvml.device_count() {
            Ok(count) => count,
            Err(error) if is_gone(&error) => return Err(error),
            Err(_) => return Ok(None),
        };
        let mut seen = BTreeMap::new();
        let mut there = BTreeSet::new();
        let mut silent = BTreeMap::new();
        for index in 0..count {
            let device = nvml.device_by_index(index);
            match device.and_then(|device| Ok((line(&device.uuid()?), device))) {
                Ok((uuid, device)) => {
                    let units = units(&device, &uuid);
                    there.insert(uuid.clone());
                    let names = units.keys().cloned().collect();
                    self.known.insert(
                        uuid,
                        Known {
                            index,
                            units: names,
                        },
                    );
                    seen.extend(units);
                }
                Err(error) => drop(silent.insert(index, error)),
            }
        }
        for (_, known) in self.known.iter().filter(|(uuid, _)| !there.contains(*uuid)) {
            let verdict = missing(known.index, &silent);
            seen.extend(
                known
                    .units
                    .iter()
                    .map(|unit| (unit.clone(), verdict.clone())),
            );
        }
        Ok(Some(seen))
    }
}

/// What to think of a GPU that was there and does not tell its name now: what its place says, or, where the driver
/// lists the others as if it had never been, that it is lost.
fn missing(index: u32, silent: &BTreeMap<u32, NvmlError>) -> Seen {
    let of_others = silent
        .values()
        .find(|error| !matches!(error, NvmlError::GpuLost));
    match silent.get(&index).or(of_others) {
        None | Some(NvmlError::GpuLost) => Seen::Lost,
        Some(_) => Seen::Unanswered,
    }
}

fn units(device: &Device<'_>, uuid: &str) -> BTreeMap<String, Seen> {
    if !is_cut(device) {
        return BTreeMap::from([(uuid.to_owned(), seen(device))]);
    }
    let count = device.mig_device_count().unwrap_or_default();
    let instances = (0..count).filter_map(|place| device.mig_device_by_index(place).ok());
    instances
        .filter_map(|instance| Some((line(&instance.uuid().ok()?), seen(&instance))))
        .collect()
}

fn seen(device: &Device<'_>) -> Seen {
    match (told(memory::ask(device)), told(reading::pids(device))) {
        (Told::Lost, _) | (_, Told::Lost) => Seen::Lost,
        (Told::Nothing, _) | (_, Told::Nothing) => Seen::Unanswered,
        (Told::Answer(memory), Told::Answer(processes)) => Seen::There {
            memory_used: memory.map(|memory| memory.used),
            processes,
        },
    }
}

enum Told<T> {
    /// `None` where this kind of GPU, or this driver, has no answer for this user.
    Answer(Option<T>),
    /// Not this time.
    Nothing,
    Lost,
}

fn told<T>(answer: Result<T, NvmlError>) -> Told<T> {
    match answer {
        Ok(answer) => Told::Answer(Some(answer)),
        Err(
            NvmlError::NotSupported
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::NoPermission,
        ) => Told::Answer(None),
        Err(NvmlError::GpuLost) => Told::Lost,
        Err(_) => Told::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_lost_where_its_place_says_so_or_nothing_else_is_silent() {
        assert_eq!(missing(1, &BTreeMap::new()), Seen::Lost);
        let lost = || NvmlError::GpuLost;
        assert_eq!(missing(1, &BTreeMap::from([(1, lost())])), Seen::Lost);
        assert_eq!(missing(1, &BTreeMap::from([(0, lost())])), Seen::Lost);
        let slow = || NvmlError::Timeout;
        assert_eq!(missing(1, &BTreeMap::from([(1, slow())])), Seen::Unanswered);
        let both = BTreeMap::from([(0, slow()), (1, lost())]);
        assert_eq!(missing(1, &both), Seen::Lost);
        assert_eq!(missing(2, &both), Seen::Unanswered);
    }

    #[test]
    fn what_a_driver_cannot_tell_is_no_failure() {
        for error in [NvmlError::NotSupported, NvmlError::NoPermission] {
            assert!(matches!(told::<u32>(Err(error)), Told::Answer(None)));
        }
        assert!(matches!(
            told::<u32>(Err(NvmlError::Unknown)),
            Told::Nothing
        ));
        assert!(matches!(told::<u32>(Err(NvmlError::GpuLost)), Told::Lost));
    }
}

//! Places a step inside an allocation: which of its hosts, and which of their GPUs. Pure: [`rooms`] reads the state, and
//! [`place`] decides by its result alone.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::{
    Amounts, MCPU, MEMORY_MB, MGPU, MGPU_A_GPU, ResourceKey, STEP_RUN, STORAGE_MB,
};
use sluice_common::id::{NodeName, StepId};

use sluice_reasons::standing::UnfitGpus;

use crate::model::placement::Placement;
use crate::model::step::{Attempt, Part, PartPhase, Step};
use crate::state::State;

/// The part of an allocation on one host that no step inside it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FreeResources {
    pub(crate) node: NodeName,
    /// UUIDs of the GPUs, in the order of the allocation.
    pub(crate) gpus: Vec<String>,
    /// The other GPUs of the allocation that are not granted now, because their host or an admin withholds them.
    pub(crate) unfit: Option<UnfitGpus>,
    /// Free amounts, of the keys of which the allocation has a counted amount.
    pub(crate) free: Amounts,
    /// The keys that the allocation itself does not count on its hosts.
    pub(crate) unbounded: BTreeSet<&'static str>,
    /// The steps that hold something here, in order of submission.
    pub(crate) holders: Vec<StepId>,
}

/// Resources that a step lacks on the host that comes closest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingResources {
    pub(crate) node: NodeName,
    pub(crate) key: ResourceKey,
    pub(crate) asked: u64,
    pub(crate) free: u64,
    pub(crate) holders: Vec<StepId>,
    /// If GPUs are lacking: those that are withheld.
    pub(crate) unfit: Option<UnfitGpus>,
}

/// Keys of which an allocation may have no counted amount and yet use some, because its host shares them.
const SHARED: [&str; 3] = [MCPU, MEMORY_MB, STORAGE_MB];

/// Whether an allocation counts a key: it bounds what steps inside it may ask for.
pub(crate) fn is_counted(allocation: &Amounts, key: &str) -> bool {
    key != STEP_RUN && (allocation.get(key) > 0 || !SHARED.contains(&key))
}

/// The rooms of an allocation, by rank of its hosts. `attempt` is its attempt that runs.
pub(crate) fn rooms(state: &State, allocation: &Step, attempt: &Attempt) -> Vec<FreeResources> {
    let request = &allocation.spec.request;
    let unbounded = SHARED.into_iter().filter(|key| !is_counted(request, key));
    let mut rooms: Vec<FreeResources> = (attempt.parts.iter())
        .map(|part| {
            let (gpus, unfit) = fit_gpus(state, part);
            FreeResources {
                node: part.node.clone(),
                gpus,
                unfit,
                free: request.clone(),
                unbounded: unbounded.clone().collect(),
                holders: Vec::new(),
            }
        })
        .collect();
    for step in state.steps_inside(&allocation.id) {
        let parts = step.attempts.iter().flat_map(|attempt| &attempt.parts);
        for part in parts.filter(|part| part.phase < PartPhase::Released) {
            let Some(room) = rooms.iter_mut().find(|room| room.node == part.node) else {
                continue;
            };
            room.gpus.retain(|gpu| !part.gpus.contains(gpu));
            room.free = room.free.saturating_sub(&step.spec.request);
            if room.holders.last() != Some(&step.id) {
                room.holders.push(step.id.clone());
            }
        }
    }
    rooms
}

/// The GPUs of a part of an allocation that may be granted, and those that may not. A GPU that did not come free after a
/// step inside the allocation is among the latter until it was seen free.
fn fit_gpus(state: &State, part: &Part) -> (Vec<String>, Option<UnfitGpus>) {
    let node = state.node(&part.node);
    let (mut fit, mut unfit) = (Vec::new(), Vec::new());
    for gpu in part.gpus.iter().cloned() {
        match node.and_then(|node| node.unfit(&gpu)) {
            None => fit.push(gpu),
            Some(why) => unfit.push((gpu, why)),
        }
    }
    (fit, UnfitGpus::of(unfit))
}

/// Whether a step inside an allocation still holds a part of it on a host.
pub(crate) fn is_used_inside(state: &State, node: &NodeName, allocation: &StepId) -> bool {
    let mut inside = state.steps_inside(allocation);
    inside.any(|step| {
        let parts = step.attempts.iter().flat_map(|attempt| &attempt.parts);
        let mut here = parts.filter(|part| part.node == *node);
        here.any(|part| part.phase < PartPhase::Released)
    })
}

impl FreeResources {
    /// The first key of which this has less than is asked for.
    fn lack(&self, request: &Amounts) -> Option<MissingResources> {
        let gpus = self.gpus.len() as u64 * MGPU_A_GPU;
        let is_bounded = |key: &str| key != STEP_RUN && !self.unbounded.contains(key);
        let asked = request.iter().filter(|(key, _)| is_bounded(key.as_str()));
        // GPUs first, because the other amounts often follow from them.
        let (of_gpus, others): (Vec<_>, Vec<_>) = asked.partition(|(key, _)| key.as_str() == MGPU);
        let mut asked = of_gpus.into_iter().chain(others);
        asked.find_map(|(key, asked)| {
            let free = match key.as_str() {
                MGPU => gpus,
                key => self.free.get(key),
            };
            (asked > free).then(|| MissingResources {
                node: self.node.clone(),
                key: key.clone(),
                asked,
                free,
                holders: self.holders.clone(),
                unfit: self.unfit.clone().filter(|_| key.as_str() == MGPU),
            })
        })
    }

    /// The grant of a request that fits here: the first free GPUs.
    fn grant(&self, request: &Amounts) -> Placement {
        let gpus = usize::try_from(request.get(MGPU) / MGPU_A_GPU).unwrap_or(usize::MAX);
        Placement {
            node: self.node.clone(),
            gpus: self.gpus.iter().take(gpus).cloned().collect(),
        }
    }
}

/// Places a request on `hosts` of these rooms: the first that fit, by rank.
///
/// # Errors
/// Too few fit; what is lacking on the first that does not.
pub(crate) fn place(
    rooms: &[FreeResources],
    request: &Amounts,
    hosts: usize,
) -> Result<Vec<Placement>, Option<Box<MissingResources>>> {
    let fits = rooms.iter().filter(|room| room.lack(request).is_none());
    let placements: Vec<Placement> = fits.take(hosts).map(|room| room.grant(request)).collect();
    if placements.len() == hosts && hosts > 0 {
        return Ok(placements);
    }
    let lack = rooms.iter().find_map(|room| room.lack(request));
    Err(lack.map(Box::new))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    fn room(node: &str, gpus: &[&str], mcpu: u64) -> FreeResources {
        FreeResources {
            node: NodeName::new(node).unwrap(),
            gpus: gpus.iter().map(ToString::to_string).collect(),
            free: Amounts::new().with(MCPU, mcpu),
            unbounded: BTreeSet::from([MEMORY_MB]),
            unfit: None,
            holders: vec![StepId::new("other").unwrap()],
        }
    }

    fn request(gpus: u64, mcpu: u64) -> Amounts {
        let request = Amounts::new().with(MCPU, mcpu).with(STEP_RUN, 1);
        request.with_gpus(gpus)
    }

    #[test]
    fn the_first_hosts_with_room_are_taken_with_their_first_gpus() {
        let rooms = [
            room("a", &["A0"], 8000),
            room("b", &["B0", "B1", "B2"], 2000),
            room("c", &["C0", "C1"], 4000),
        ];
        let placed = place(&rooms, &request(2, 2000), 1).unwrap();
        assert_eq!(placed[0].node.as_str(), "b");
        assert_eq!(placed[0].gpus, ["B0", "B1"]);
        let placed = place(&rooms, &request(2, 2000), 2).unwrap();
        assert_eq!(placed[1].gpus, ["C0", "C1"]);
        let placed = place(&rooms, &request(0, 8000), 1).unwrap();
        assert_eq!((placed[0].node.as_str(), placed[0].gpus.len()), ("a", 0));
    }

    #[test]
    fn what_does_not_fit_names_the_key_and_what_holds_it() {
        let rooms = [room("a", &["A0"], 8000), room("b", &["B0", "B1"], 2000)];
        let lack = place(&rooms, &request(2, 4000), 1).unwrap_err().unwrap();
        assert_eq!((lack.node.as_str(), lack.key.as_str()), ("a", MGPU));
        assert_eq!((lack.asked, lack.free), (2000, 1000));
        assert_eq!(lack.holders.len(), 1);
        assert!(place(&rooms, &request(1, 0), 3).is_err());
        assert_eq!(place(&rooms, &request(1, 0), 3), Err(None));
        let licence = ResourceKey::new("licence").unwrap();
        let mut asks = request(0, 0);
        asks.set(licence, 1);
        let lack = place(&rooms, &asks, 1).unwrap_err().unwrap();
        assert_eq!((lack.key.as_str(), lack.free), ("licence", 0));
    }

    #[test]
    fn what_the_allocation_does_not_count_is_not_bounded() {
        let rooms = [room("a", &[], 1000)];
        let asks = Amounts::new().with(MEMORY_MB, 1_000_000);
        assert!(place(&rooms, &asks, 1).is_ok());
        let whole = Amounts::new().with(MCPU, 1);
        for (key, counted) in [
            (MCPU, true),
            (MEMORY_MB, false),
            (MGPU, true),
            ("licence", true),
            (STEP_RUN, false),
        ] {
            assert_eq!(is_counted(&whole, key), counted, "{key}");
        }
    }
}

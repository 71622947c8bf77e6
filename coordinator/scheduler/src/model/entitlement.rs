//! Entitlement to the CPU, memory and disk of hosts with GPUs. Each GPU carries the same part of its host's. A run is
//! entitled to what its GPUs carry; it borrows from the host's GPUs what it holds beyond that. Resources that the
//! pool's policies meter are not borrowed, because shares and limits bind them, and nothing is borrowed on a host without
//! GPUs.

use sluice_common::amount::MGPU_A_GPU;

use crate::model::host::Host;
use crate::model::pool::Pool;
use crate::model::resources::HostResources;

impl Pool {
    /// The resources that a run that holds `each` on a host borrows from its GPUs.
    pub(crate) fn borrowed_from_gpus(&self, host: &Host, each: HostResources) -> HostResources {
        if !host.has_gpus() {
            return HostResources::default();
        }
        let beyond = each.less(host.capacity.carried_by(each.mgpu(), host.carrying()));
        beyond.retain(|key| !self.is_metered(key))
    }
}

impl Host {
    /// Thousandths of free GPUs that lose what they carry if a request takes `each` of `free`. Of whole GPUs each counts
    /// as a whole.
    pub(crate) fn gpus_that_lose(&self, free: HostResources, each: HostResources) -> u64 {
        let after = free.less(each);
        let lost = self.mgpu_with_all(free).saturating_sub(each.mgpu());
        lost.saturating_sub(self.mgpu_with_all(after))
    }

    /// Thousandths of GPUs that have all that they carry, out of what is free.
    fn mgpu_with_all(&self, free: HostResources) -> u64 {
        let all = u128::from(self.carrying());
        let carried = self.capacity.beside_gpus().zip(free.beside_gpus());
        let carried = carried.filter(|(all, _)| *all > 0);
        let enough = carried.map(|(capacity, free)| u128::from(free) * all / u128::from(capacity));
        let mgpu = enough.fold(u128::from(free.mgpu()), u128::min);
        let mgpu = u64::try_from(mgpu).unwrap_or(u64::MAX);
        match self.has_slices() {
            true => mgpu,
            false => mgpu - mgpu % MGPU_A_GPU,
        }
    }
}

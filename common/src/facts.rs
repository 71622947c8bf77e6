//! Facts: detected properties of a host as labels under the prefix `sluice/`. Facts are derived from the inventory and
//! never stored, so users cannot set them and they are always current. Selectors of nodes and platforms match against
//! facts and user labels together.
//!
//! If a host's GPUs differ, each GPU is matched separately with the host's properties: a host with two GPU models
//! matches a selector for either.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::id::{NodeName, PoolName};
use crate::inventory::{Gpu, Inventory};
use crate::label::{LabelKey, LabelValue};
use crate::selector::Selector;

/// Prefix of the keys of all facts.
pub const PREFIX: &str = "sluice/";

/// Name of the node.
pub const HOSTNAME: &str = "sluice/hostname";
/// Pool of the node.
pub const POOL: &str = "sluice/pool";
/// Processor architecture, such as `x86_64`.
pub const ARCH: &str = "sluice/arch";
/// Kernel release, such as `6.1.0-18-amd64`.
pub const KERNEL: &str = "sluice/kernel";
/// Version of the NVIDIA driver.
pub const DRIVER: &str = "sluice/driver";
/// Highest CUDA version that the driver supports.
pub const CUDA: &str = "sluice/cuda";
/// Number of GPUs or MIG instances of the host.
pub const GPU_COUNT: &str = "sluice/gpu.count";
/// Short name of a GPU's model, such as `h100`.
pub const GPU_MODEL: &str = "sluice/gpu.model";
/// Full name of a GPU's model, such as `NVIDIA-H100-80GB-HBM3`.
pub const GPU_PRODUCT: &str = "sluice/gpu.product";
/// Memory of a GPU, such as `81559MiB`.
pub const GPU_MEMORY: &str = "sluice/gpu.memory";
/// CUDA compute capability of a GPU, such as `9.0`.
pub const GPU_COMPUTE_CAPABILITY: &str = "sluice/gpu.compute-capability";
/// Virtualization of a GPU, such as `vgpu` or `passthrough`; absent on bare metal.
pub const GPU_VIRTUALIZATION: &str = "sluice/gpu.virtualization";
/// Whether confidential computing is on.
pub const GPU_CONFIDENTIAL_COMPUTING: &str = "sluice/gpu.confidential-computing";
/// Whether NVLink connects the GPU to another GPU of the host.
pub const NVLINK: &str = "sluice/nvlink";
/// NVLink domain and clique of a GPU, if NVLink reaches beyond the host.
pub const NVLINK_DOMAIN: &str = "sluice/nvlink-domain";
/// MIG profile of an instance, such as `1g.10gb`.
pub const MIG_PROFILE: &str = "sluice/mig.profile";

/// Prefix of the keys of container runtimes, such as `sluice/container.podman`, whose values are versions.
pub const CONTAINER: &str = "sluice/container.";

/// Longest value of a label, in bytes.
const MAX_VALUE_BYTES: usize = 63;

/// Labels as text, including facts.
pub type Labels = BTreeMap<String, String>;

/// Whether a key is reserved for facts.
pub fn is_reserved(key: &LabelKey) -> bool {
    key.as_str().starts_with(PREFIX)
}

/// Whether a fact changes when a GPU is cut into slices.
pub fn depends_on_layout(key: &str) -> bool {
    [GPU_COUNT, GPU_MEMORY, NVLINK, MIG_PROFILE].contains(&key)
}

/// Everything about a host that selectors match.
#[derive(Clone, Copy, Debug)]
pub struct HostLabels<'a> {
    /// Name of the node.
    pub name: &'a NodeName,
    /// Pool of the node.
    pub pool: &'a PoolName,
    /// Detected hardware and software.
    pub inventory: &'a Inventory,
    /// Labels from the node's config and from admins.
    pub labels: &'a Labels,
}

impl HostLabels<'_> {
    /// Facts of the host together with those of one GPU.
    fn facts(&self, gpu: Option<&Gpu>) -> Labels {
        let mut labels = Labels::new();
        let mut put = |key: &str, text: &str| {
            let value = value(text);
            if !value.is_empty() {
                labels.insert(key.to_string(), value);
            }
        };
        put(HOSTNAME, self.name.as_str());
        put(POOL, self.pool.as_str());
        put(ARCH, &self.inventory.arch);
        put(KERNEL, &self.inventory.kernel);
        put(DRIVER, self.inventory.driver.as_deref().unwrap_or_default());
        put(CUDA, self.inventory.cuda.as_deref().unwrap_or_default());
        for (runtime, version) in &self.inventory.container_runtimes {
            put(&format!("{CONTAINER}{runtime}"), version);
        }
        if !self.inventory.gpus_unknown {
            put(GPU_COUNT, &self.inventory.gpus.len().to_string());
        }
        if let Some(gpu) = gpu {
            put(GPU_MODEL, &gpu.platform);
            put(GPU_PRODUCT, &gpu.model);
            put(GPU_MEMORY, &format!("{}MiB", gpu.memory_bytes >> 20));
            put(NVLINK, truth(!gpu.nvlink.is_empty()));
            let board = &gpu.board;
            let capability = board.compute_capability.as_deref();
            put(GPU_COMPUTE_CAPABILITY, capability.unwrap_or_default());
            let virtualization = board.virtualization.as_deref();
            let virtualization = virtualization.filter(|mode| *mode != "none");
            put(GPU_VIRTUALIZATION, virtualization.unwrap_or_default());
            let confidential = board.confidential_computing.map(truth);
            put(GPU_CONFIDENTIAL_COMPUTING, confidential.unwrap_or_default());
            let domain = board.nvlink_domain.as_deref();
            put(NVLINK_DOMAIN, domain.unwrap_or_default());
            let mig = gpu.mig.as_ref();
            put(MIG_PROFILE, mig.map_or("", |mig| mig.profile.as_str()));
        }
        labels
    }

    /// All labels of the host together with the facts of one GPU. Facts override user labels of the same key.
    pub fn labels_with(&self, gpu: Option<&Gpu>) -> Labels {
        let mut labels = self.labels.clone();
        labels.retain(|key, _| !key.starts_with(PREFIX));
        labels.extend(self.facts(gpu));
        labels
    }

    /// Labels for each distinct kind of GPU; one set if the host has no GPU.
    fn labels_by_gpu(&self) -> Vec<Labels> {
        let gpus = self.inventory.gpus.iter().map(Some);
        let mut views: Vec<Labels> = gpus.map(|gpu| self.labels_with(gpu)).collect();
        views.sort_unstable();
        views.dedup();
        if views.is_empty() {
            views.push(self.labels_with(None));
        }
        views
    }

    /// The values of labels and facts of the host, in order, up to the first that it lacks or in which its GPUs differ.
    pub fn values(&self, keys: &[LabelKey]) -> Vec<String> {
        if keys.is_empty() {
            return Vec::new();
        }
        let views = self.labels_by_gpu();
        let values = keys.iter().map_while(|key| {
            let mut values = views.iter().map(|labels| labels.get(key.as_str()));
            let value = values.next()??;
            values
                .all(|other| other == Some(value))
                .then(|| value.clone())
        });
        values.collect()
    }

    /// Whether a selector matches the host or one of its GPUs.
    pub fn matches(&self, selector: &Selector) -> bool {
        selector.is_empty()
            || self
                .labels_by_gpu()
                .iter()
                .any(|labels| selector_matches(selector, labels))
    }

    /// Facts for each distinct kind of GPU; one set if the host has no GPU.
    pub fn facts_by_gpu(&self) -> Vec<Labels> {
        let mut views = self.labels_by_gpu();
        for labels in &mut views {
            labels.retain(|key, _| key.starts_with(PREFIX));
        }
        views
    }
}

fn truth(truth: bool) -> &'static str {
    match truth {
        true => "true",
        false => "false",
    }
}

/// Whether a selector matches a set of labels.
pub fn selector_matches(selector: &Selector, labels: &Labels) -> bool {
    selector.matches(|key| labels.get(key).map(String::as_str))
}

/// Converts a text to a label value: characters that are not allowed become `-`, as GPU feature discovery does.
fn value(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let kept = text.chars().map(|c| if allowed(c) { c } else { '-' });
    let kept: String = kept.take(MAX_VALUE_BYTES).collect();
    let kept = kept.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    LabelValue::new(kept).map_or_else(|_| String::new(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ContainerRuntime;
    use crate::inventory::MigInstance;
    use alloc::borrow::ToOwned;
    use alloc::vec;

    fn gpu(model: &str, platform: &str, mib: u64) -> Gpu {
        Gpu {
            model: model.to_owned(),
            platform: platform.to_owned(),
            memory_bytes: mib << 20,
            ..Gpu::default()
        }
    }

    fn inventory() -> Inventory {
        let mut linked = gpu("NVIDIA H100 80GB HBM3", "h100", 81_559);
        linked.nvlink = vec!["GPU-2".to_owned()];
        linked.board.compute_capability = Some("9.0".to_owned());
        linked.board.virtualization = Some("none".to_owned());
        linked.board.confidential_computing = Some(false);
        let mut slice = gpu("NVIDIA A100-SXM4-80GB", "a100", 9856);
        slice.mig = Some(MigInstance {
            profile: "1g.10gb+me".to_owned(),
            parent: "GPU-1".to_owned(),
        });
        slice.board.virtualization = Some("passthrough".to_owned());
        Inventory {
            arch: "x86_64".to_owned(),
            driver: Some("570.86.15".to_owned()),
            container_runtimes: [(ContainerRuntime::Podman, "4.3.1+ds1".to_owned())].into(),
            gpus: vec![linked.clone(), linked, slice],
            ..Inventory::default()
        }
    }

    fn with<R>(inventory: &Inventory, see: impl Fn(HostLabels<'_>) -> R) -> R {
        let labels = [("zone", "a"), ("sluice/gpu.model", "mine")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        see(HostLabels {
            name: &NodeName::new("n1").unwrap(),
            pool: &PoolName::new("train").unwrap(),
            inventory,
            labels: &labels.into(),
        })
    }

    #[test]
    fn a_host_with_two_models_is_meant_by_who_asks_for_either() {
        for (selector, meant) in [
            ("sluice/gpu.model=h100", true),
            ("sluice/gpu.model=a100,sluice/mig.profile=1g.10gb-me", true),
            ("sluice/gpu.model=h100,sluice/mig.profile", false),
            ("sluice/gpu.model=h100,sluice/nvlink=true,zone=a", true),
            ("sluice/gpu.model=a100,sluice/nvlink=true", false),
            ("sluice/gpu.model!=h100", true),
            ("sluice/gpu.model notin (h100,a100)", false),
            ("sluice/gpu.count=3,sluice/driver=570.86.15", true),
            ("sluice/gpu.model=mine", false),
            ("!sluice/cuda", true),
            ("sluice/container.podman=4.3.1-ds1", true),
            ("sluice/container.apptainer", false),
            ("sluice/gpu.compute-capability in (9.0,10.0)", true),
            ("sluice/gpu.model=a100,sluice/gpu.compute-capability", false),
            (
                "sluice/gpu.virtualization=passthrough,sluice/mig.profile",
                true,
            ),
            ("sluice/gpu.model=h100,!sluice/gpu.virtualization", true),
            ("sluice/gpu.confidential-computing=false", true),
        ] {
            let selector: Selector = selector.parse().unwrap();
            let is = with(&inventory(), |host| host.matches(&selector));
            assert_eq!(is, meant, "{selector}");
        }
    }

    #[test]
    fn facts_are_told_once_for_each_kind_of_gpu() {
        let told = with(&inventory(), |host| host.facts_by_gpu());
        assert_eq!(told.len(), 2);
        assert_eq!(told[0][GPU_MODEL], "h100");
        assert_eq!(told[0][GPU_MEMORY], "81559MiB");
        assert_eq!(told[0][GPU_PRODUCT], "NVIDIA-H100-80GB-HBM3");
        assert_eq!(told[1][GPU_MODEL], "a100");
        let both = (&*told[1][HOSTNAME], &*told[1][POOL]);
        assert_eq!(both, ("n1", "train"));
        assert!(!told[0].contains_key("zone") && !told[0].contains_key(CUDA));
        let bare = with(&Inventory::default(), |host| host.facts_by_gpu());
        assert_eq!(bare[0][GPU_COUNT], "0");
        assert!(!bare[0].contains_key(GPU_MODEL) && !bare[0].contains_key(NVLINK));
        let silent = Inventory {
            gpus_unknown: true,
            ..Inventory::default()
        };
        let silent = with(&silent, |host| host.facts_by_gpu());
        assert!(!silent[0].contains_key(GPU_COUNT), "{silent:?}");
        for key in told[0].keys() {
            assert!(is_reserved(&LabelKey::new(key.as_str()).unwrap()));
        }
    }

    #[test]
    fn what_may_not_stand_in_a_value_is_replaced() {
        for (text, expected) in [
            ("6.1.0-18-amd64", "6.1.0-18-amd64"),
            ("NVIDIA RTX 6000 (Ada)", "NVIDIA-RTX-6000--Ada"),
            ("\u{1b}[2J", "2J"),
            ("--", ""),
        ] {
            assert_eq!(value(text), expected);
        }
        assert!(value(&"x.".repeat(60)).len() <= MAX_VALUE_BYTES);
    }
}

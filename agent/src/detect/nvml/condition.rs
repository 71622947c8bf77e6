//! Conditions of a GPU that make it unfit while they last: modes, memory repairs that wait or failed, links. A condition
//! that cannot be read now is as it was when it was last read. `docs/gpu-health.md` has the table for admins.

use std::collections::{BTreeMap, BTreeSet};

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as nvml;

use super::raw;

/// Result of a check.
enum CheckResult {
    Fit,
    Unfit(String),
    /// The condition cannot be judged now.
    Unknown,
}

type Check = fn(&Device<'_>) -> Result<CheckResult, NvmlError>;

const CHECKS: [Check; 5] = [compute_mode, rows, pages, fabric, pcie];

/// Most NVLinks of one GPU.
const MAX_LINKS: u32 = 18;

/// The last known conditions of each GPU.
#[derive(Default)]
pub(super) struct HealthChecker {
    known: BTreeMap<(String, usize), String>,
    /// Most NVLinks that were active at one time, by GPU.
    most_links: BTreeMap<String, u32>,
}

/// Number of active NVLinks of a GPU, and its model.
pub(super) struct LinkCount {
    pub(super) model: String,
    pub(super) active: u32,
}

impl HealthChecker {
    /// Conditions of one GPU now.
    pub(super) fn of(&mut self, device: &Device<'_>, uuid: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (number, check) in CHECKS.iter().enumerate() {
            let key = (uuid.to_owned(), number);
            match check(device) {
                Ok(CheckResult::Unfit(why)) => drop(self.known.insert(key.clone(), why)),
                Ok(CheckResult::Fit) => drop(self.known.remove(&key)),
                // The model, the driver or the user lacks the query.
                Err(error) if is_never_told(&error) => drop(self.known.remove(&key)),
                Ok(CheckResult::Unknown) | Err(_) => {}
            }
            found.extend(self.known.get(&key).cloned());
        }
        found
    }

    /// Adds the GPUs that lack NVLinks: fewer are active than before, or, of a GPU with some, fewer than on another of
    /// the same model. A GPU without a bridge has none.
    pub(super) fn judge_links(
        &mut self,
        links: &BTreeMap<String, LinkCount>,
        found: &mut BTreeMap<String, BTreeSet<String>>,
    ) {
        for (uuid, own) in links {
            let alike = links.values().filter(|other| other.model == own.model);
            let of_others = alike
                .map(|other| other.active)
                .max()
                .filter(|_| own.active > 0);
            let most = self.most_links.entry(uuid.clone()).or_default();
            *most = (*most).max(own.active);
            let expected = of_others.unwrap_or(0).max(*most);
            if own.active < expected {
                let why = format!(
                    "{} of its {expected} NVLinks are down",
                    expected - own.active
                );
                found.entry(uuid.clone()).or_default().insert(why);
            }
        }
    }
}

fn is_never_told(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::NotSupported
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::NoPermission
    )
}

fn judged(unfit: Option<impl Into<String>>) -> Result<CheckResult, NvmlError> {
    Ok(match unfit {
        Some(why) => CheckResult::Unfit(why.into()),
        None => CheckResult::Fit,
    })
}

/// By number, because drivers add modes.
fn compute_mode(device: &Device<'_>) -> Result<CheckResult, NvmlError> {
    let name = match raw::compute_mode(device)? {
        nvml::nvmlComputeMode_enum_NVML_COMPUTEMODE_DEFAULT => return judged(None::<String>),
        nvml::nvmlComputeMode_enum_NVML_COMPUTEMODE_PROHIBITED => "prohibited".to_owned(),
        nvml::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_THREAD => {
            "exclusive to one thread".to_owned()
        }
        nvml::nvmlComputeMode_enum_NVML_COMPUTEMODE_EXCLUSIVE_PROCESS => {
            "exclusive to one process".to_owned()
        }
        other => format!("number {other}"),
    };
    let change = "run `nvidia-smi -c DEFAULT`";
    judged(Some(format!("its compute mode is {name}: {change}")))
}

fn rows(device: &Device<'_>) -> Result<CheckResult, NvmlError> {
    let rows = raw::remapped_rows(device)?;
    judged(match (rows.has_failed, rows.is_pending) {
        (false, false) => None,
        (false, true) => Some("it needs a reset to remap rows of its memory"),
        (true, _) => Some("rows of its memory could not be remapped"),
    })
}

fn pages(device: &Device<'_>) -> Result<CheckResult, NvmlError> {
    let pending = device.are_pages_pending_retired()?;
    judged(pending.then_some("it needs a reset to retire pages of its memory"))
}

fn fabric(device: &Device<'_>) -> Result<CheckResult, NvmlError> {
    let fabric = raw::fabric(device)?;
    let look = "look at the fabric manager (`systemctl status nvidia-fabricmanager`)";
    let why = match fabric.state {
        nvml::NVML_GPU_FABRIC_STATE_NOT_SUPPORTED => None,
        nvml::NVML_GPU_FABRIC_STATE_NOT_STARTED => Some("has not begun"),
        nvml::NVML_GPU_FABRIC_STATE_IN_PROGRESS => Some("is not finished"),
        _ if fabric.has_failed => Some("has failed"),
        _ => None,
    };
    judged(why.map(|why| format!("its registration with the NVLink fabric {why}: {look}")))
}

/// The width counts always. The generation counts while the GPU is busy, because an idle one saves power; until then a
/// slow link stays as it was last judged.
fn pcie(device: &Device<'_>) -> Result<CheckResult, NvmlError> {
    let (width, most) = (
        device.current_pcie_link_width()?,
        device.max_pcie_link_width()?,
    );
    if width < most {
        return judged(Some(format!("its PCIe link has {width} of {most} lanes")));
    }
    let (now, best) = (device.current_pcie_link_gen()?, device.max_pcie_link_gen()?);
    if now >= best {
        return judged(None::<String>);
    }
    let is_busy = device.utilization_rates().is_ok_and(|rates| rates.gpu > 0);
    let why = format!("its PCIe link runs at generation {now} of {best} under load");
    Ok(match is_busy {
        true => CheckResult::Unfit(why),
        false => CheckResult::Unknown,
    })
}

/// Number of NVLinks of a GPU, and of the active ones.
pub(super) struct LinkState {
    pub(super) all: u32,
    pub(super) active: u32,
}

/// NVLinks of a GPU; `None` if it has none or does not tell of one.
pub(super) fn links(device: &Device<'_>) -> Option<LinkState> {
    let mut active = 0;
    for link in 0..MAX_LINKS {
        match device.link_wrapper_for(link).is_active() {
            Ok(is_active) => active += u32::from(is_active),
            // The GPU has no link of this number.
            Err(NvmlError::InvalidArg | NvmlError::NotSupported) => {
                return (link > 0).then_some(LinkState { all: link, active });
            }
            Err(_) => return None,
        }
    }
    let all = MAX_LINKS;
    Some(LinkState { all, active })
}

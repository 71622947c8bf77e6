//! Checks what an agent would find on this host: limits of steps and how they are enforced, and NVIDIA's library. Runs
//! the agent's own detection.

use std::path::Path;

use sluice_common::api::HostView;
use sluice_common::inventory::{Capability, Mechanism};

use super::check::Check;
use crate::args::DetectArgs;
use crate::commands::detect::{AGENT, ask};
use crate::commands::sibling;

/// File of the loaded kernel module.
const DRIVER: &str = "/proc/driver/nvidia/version";

pub(super) fn checks() -> Vec<Check> {
    let cure = "install the agent's package, or build it: `cargo build`";
    let Some(agent) = sibling(AGENT) else {
        let found = format!("{AGENT} is not beside this program: not checked");
        return vec![Check::warn("agent", found, cure)];
    };
    match ask(&agent, &DetectArgs::default()) {
        Ok(host) => vec![
            agent_check(&host),
            capabilities(&host),
            nvml(&host, Path::new(DRIVER).exists()),
        ],
        Err(error) => vec![Check::fail(
            "agent",
            error,
            "run `sluice detect` to see more",
        )],
    }
}

fn agent_check(host: &HostView) -> Check {
    Check::ok(
        "agent",
        format!(
            "{} cores, {} GPUs, kernel {}",
            host.cpus,
            host.gpus.len(),
            host.kernel
        ),
    )
}

fn capabilities(host: &HostView) -> Check {
    let name = "capabilities";
    let words: Vec<String> = host
        .capabilities
        .iter()
        .map(|(what, how)| format!("{what}:{how}"))
        .collect();
    if words.is_empty() {
        let cure = "install an agent of this version, which reports them";
        return Check::warn(name, "the agent does not report it", cure);
    }
    let found = words.join(" ");
    let weak = |what: &Capability| {
        let how = host.capabilities.get(what);
        matches!(how, None | Some(Mechanism::None | Mechanism::ProcessGroup))
    };
    let lacking: Vec<&str> = Capability::ALL
        .iter()
        .filter(|what| weak(what))
        .map(|what| what.as_str())
        .collect();
    if lacking.is_empty() {
        return Check::ok(name, found);
    }
    let found = format!("{found} (weak or absent: {})", lacking.join(", "));
    let cure = "mount cgroup2 with its controllers (boot with systemd.unified_cgroup_hierarchy=1) \
                and run the supervisor as root or in a delegated unit";
    Check::warn(name, found, cure)
}

fn nvml(host: &HostView, module: bool) -> Check {
    let name = "nvml";
    let note = host.notes.iter().find(|note| note.contains("NVIDIA"));
    match (&host.driver, module, note) {
        (Some(driver), _, None) => {
            Check::ok(name, format!("driver {driver}, {} GPUs", host.gpus.len()))
        }
        (Some(driver), _, Some(note)) => Check::warn(
            name,
            format!("driver {driver}, {} GPUs: {note}", host.gpus.len()),
            "`nvidia-smi` and the kernel's log say more",
        ),
        (None, true, _) => Check::fail(
            name,
            "the kernel has NVIDIA's driver, and its library does not answer",
            "install the libnvidia-ml of the driver's own version, or name it in agent.toml as `nvml_library`",
        ),
        (None, false, _) => Check::ok(name, "no NVIDIA driver: steps without GPUs only"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::CheckStatus;
    use super::*;

    #[test]
    fn weak_means_are_told_and_strong_ones_are_fine() {
        let all = |how| HostView {
            capabilities: Capability::ALL.map(|what| (what, how)).into(),
            ..HostView::default()
        };
        assert_eq!(
            capabilities(&all(Mechanism::Cgroup2)).verdict,
            CheckStatus::Ok
        );
        let mut host = all(Mechanism::Cgroup1);
        host.capabilities
            .insert(Capability::Freeze, Mechanism::None);
        let check = capabilities(&host);
        assert_eq!(check.verdict, CheckStatus::Warn);
        assert!(
            check.found.ends_with("(weak or absent: freeze)"),
            "{}",
            check.found
        );
        assert_eq!(
            capabilities(&HostView::default()).verdict,
            CheckStatus::Warn
        );
    }

    #[test]
    fn a_driver_without_its_library_fails() {
        let none = HostView::default();
        assert_eq!(nvml(&none, false).verdict, CheckStatus::Ok);
        assert_eq!(nvml(&none, true).verdict, CheckStatus::Fail);
        let some = HostView {
            driver: Some("550.1".into()),
            ..HostView::default()
        };
        assert_eq!(nvml(&some, true).verdict, CheckStatus::Ok);
        let lost = HostView {
            notes: vec!["an NVIDIA GPU is lost".into()],
            ..some
        };
        assert_eq!(nvml(&lost, true).verdict, CheckStatus::Warn);
    }
}

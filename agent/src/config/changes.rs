//! Applies a config that was read again: which changes take effect at once, and which need a restart. Each
//! key of [`Config`] is listed here, so that a new one must be assigned to one or the other.

use std::fmt;

use agent_core::ReloadedSettings;
use sluice_common::config::ReloadReport;
use sluice_common::port::PortRange;

use super::{Config, Reserve};
use crate::renewal::CertificateSource;

impl Config {
    /// Takes from `written` what can change at run time; the rest stays.
    pub(crate) fn renew(&mut self, written: Config) -> ReloadReport {
        let mut changes = ReloadReport::default();
        let Config {
            coordinators,
            node,
            pool,
            address,
            labels,
            reserve,
            nvml_library,
            state_dir,
            supervisor_socket,
            path,
            gpu_release_timeout,
            suspend_limit,
            respect_foreign,
            ports,
            tls,
            log_format,
            log_filter,
        } = written;
        changes.apply("labels", &mut self.labels, labels);
        changes.apply("log_filter", &mut self.log_filter, log_filter);
        changes.apply("path", &mut self.path, path);
        changes.apply(
            "gpu_release_timeout",
            &mut self.gpu_release_timeout,
            gpu_release_timeout,
        );
        changes.apply("suspend_limit", &mut self.suspend_limit, suspend_limit);
        changes.apply(
            "respect_foreign",
            &mut self.respect_foreign,
            respect_foreign,
        );
        keep(
            &mut changes,
            "coordinators",
            &self.coordinators,
            &coordinators,
        );
        keep(&mut changes, "node", self.node.as_str(), node.as_str());
        keep(&mut changes, "pool", self.pool.as_str(), pool.as_str());
        keep(&mut changes, "address", &self.address, &address);
        keep(
            &mut changes,
            "nvml_library",
            &self.nvml_library,
            &nvml_library,
        );
        keep(&mut changes, "state_dir", &self.state_dir, &state_dir);
        keep(
            &mut changes,
            "supervisor_socket",
            &self.supervisor_socket,
            &supervisor_socket,
        );
        let range = |ports: &PortRange| ports.to_string();
        keep(&mut changes, "ports", range(&self.ports), range(&ports));
        keep(&mut changes, "log_format", self.log_format, log_format);
        keep_reserve(&mut changes, &self.reserve, &reserve);
        keep(&mut changes, "tls", places(&self.tls), places(&tls));
        changes
    }

    /// The settings for the core.
    pub(crate) fn tuning(&self) -> ReloadedSettings {
        ReloadedSettings {
            path: self.path.clone(),
            gpu_release_timeout: self.gpu_release_timeout,
            respect_foreign: self.respect_foreign,
            suspend_limit: self.suspend_limit,
        }
    }
}

/// Reports values as they are written in the file, with quotes around strings.
fn keep(changes: &mut ReloadReport, key: &str, runs: impl fmt::Debug, written: impl fmt::Debug) {
    changes.defer(key, format!("{runs:?}"), format!("{written:?}"));
}

/// The assignment of processors at the start depends on it.
fn keep_reserve(changes: &mut ReloadReport, runs: &Reserve, written: &Reserve) {
    keep(changes, "reserve.cpu_count", runs.cpus, written.cpus);
    let bytes = |reserve: &Reserve| format!("{}B", reserve.memory_bytes);
    keep(changes, "reserve.memory", bytes(runs), bytes(written));
}

/// The files that a config names; empty if the host joined.
fn places(tls: &CertificateSource) -> Vec<&std::path::Path> {
    match tls {
        CertificateSource::Joined(_) => Vec::new(),
        CertificateSource::Given(files) => vec![&files.ca, &files.cert, &files.key],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::parse;

    const BASE: &str =
        "coordinators = [\"a:1\"]\nnode = \"n\"\ntls = { ca = \"c\", cert = \"d\", key = \"e\" }\n";

    fn changed(before: &str, after: &str) -> (Config, ReloadReport) {
        let read = |more: &str| parse(&format!("{BASE}{more}")).unwrap();
        let mut config = read(before);
        let changes = config.renew(read(after));
        (config, changes)
    }

    #[test]
    fn what_is_as_it_was_changes_nothing() {
        let (_, changes) = changed("log_filter = \"info\"\n", "suspend_limit = \"120s\"\n");
        assert_eq!(changes, ReloadReport::default());
    }

    #[test]
    fn what_may_change_is_taken_key_by_key() {
        for (key, text) in [
            ("labels", "labels = { rack = \"7\" }"),
            ("log_filter", "log_filter = \"debug\""),
            ("path", "path = \"/bin\""),
            ("gpu_release_timeout", "gpu_release_timeout = \"1m\""),
            ("suspend_limit", "suspend_limit = \"1m\""),
            ("respect_foreign", "respect_foreign = false"),
        ] {
            let (config, changes) = changed("", &format!("{text}\n"));
            assert_eq!((changes.applied, changes.deferred), (vec![key], vec![]));
            let again = parse(&format!("{BASE}{text}\n")).unwrap();
            assert_eq!(config.to_string(), again.to_string());
            assert_eq!(config.tuning(), again.tuning());
        }
    }

    #[test]
    fn what_may_not_change_is_named_and_stays_until_the_next_start() {
        for (text, told) in [
            (
                "pool = \"other\"",
                "pool changed from \"default\" to \"other\": takes effect at the next start",
            ),
            (
                "address = \"10.0.0.7\"",
                "address changed from \"n\" to \"10.0.0.7\"",
            ),
            ("state_dir = \"/x\"", "to \"/x\""),
            (
                "supervisor_socket = \"/x\"",
                "supervisor_socket changed from",
            ),
            (
                "nvml_library = \"/x\"",
                "nvml_library changed from None to Some(\"/x\")",
            ),
            (
                "log_format = \"json\"",
                "log_format changed from Auto to Json",
            ),
            (
                "reserve = { memory = \"1KiB\" }",
                "reserve.memory changed from \"0B\" to \"1024B\"",
            ),
            (
                "ports = \"5000-5999\"",
                "ports changed from \"20000-29499\" to \"5000-5999\"",
            ),
            (
                "reserve = { cpu_count = 2 }",
                "reserve.cpu_count changed from 0 to 2",
            ),
        ] {
            let (config, changes) = changed("", &format!("{text}\n"));
            let [kept] = &changes.deferred[..] else {
                panic!("{text}: {changes:?}");
            };
            assert!(changes.applied.is_empty());
            assert!(kept.contains(told), "{kept}");
            assert_eq!(config.to_string(), parse(BASE).unwrap().to_string());
        }
        let other = BASE
            .replace("a:1", "b:2")
            .replace("\"n\"", "\"m\"")
            .replace("\"d\"", "\"f\"");
        let changes = parse(BASE).unwrap().renew(parse(&other).unwrap());
        let words = changes.deferred.iter().map(|kept| kept.split_whitespace());
        let keys: Vec<&str> = words.filter_map(|mut words| words.next()).collect();
        assert_eq!(keys, ["coordinators", "node", "address", "tls"]);
    }
}

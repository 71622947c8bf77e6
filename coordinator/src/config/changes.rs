//! Decides for each key of a reloaded config whether it takes effect at once or at the next start. Each key of
//! [`Config`] is named here, so that a new one cannot be forgotten.

use coordinator_core::{Bounds, Settings};
use sluice_common::config::ReloadReport;

use super::Config;

impl Config {
    /// Takes over from `written` what may change while the coordinator runs; everything else stays.
    pub fn renew(&mut self, written: Config) -> ReloadReport {
        let mut changes = ReloadReport::default();
        let Config {
            quic,
            http,
            data_dir,
            settings,
            retention,
            tls,
            api_token,
            open_to_all_local_users,
            http_names,
            metrics_need_token,
            http_tls,
            oidc,
            cert_ttl,
            advertise,
            log_filter,
        } = written;
        changes.apply("advertise", &mut self.advertise, advertise);
        changes.apply("log_filter", &mut self.log_filter, log_filter);
        changes.apply("retention", &mut self.retention, retention);
        take_bounds(&mut changes, &mut self.settings.bounds, settings.bounds);
        match api_token {
            Some(_) => changes.apply("api_token_file", &mut self.api_token, api_token),
            // The need for a token was checked against the address on which this coordinator listens.
            None => changes.defer(
                "api_token_file",
                known(self.api_token.is_some()),
                known(false),
            ),
        }
        changes.defer(
            "open_to_all_local_users",
            self.open_to_all_local_users,
            open_to_all_local_users,
        );
        changes.defer(
            "http_names",
            self.http_names.join(" "),
            http_names.join(" "),
        );
        changes.defer(
            "metrics_need_token",
            self.metrics_need_token,
            metrics_need_token,
        );
        changes.defer("quic", self.quic, quic);
        changes.defer("http", self.http, http);
        changes.defer("data_dir", self.data_dir.display(), data_dir.display());
        keep_terms(&mut changes, &self.settings, &settings);
        changes.defer("node_cert_ttl", self.cert_ttl, cert_ttl);
        changes.defer_section("tls", &self.tls, &tls);
        changes.defer_section("http_tls", &self.http_tls, &http_tls);
        changes.defer_section("oidc", &self.oidc, &oidc);
        changes
    }
}

/// Takes over the bounds of remembered and queued steps.
fn take_bounds(changes: &mut ReloadReport, runs: &mut Bounds, written: Bounds) {
    let Bounds {
        keep_finished,
        keep_finished_bytes,
        queued_steps,
        queued_bytes,
    } = written;
    changes.apply("keep_finished", &mut runs.keep_finished, keep_finished);
    for (key, runs, written) in [
        (
            "keep_finished_bytes",
            &mut runs.keep_finished_bytes,
            keep_finished_bytes,
        ),
        ("max_queued_steps", &mut runs.queued_steps, queued_steps),
        ("max_queued_bytes", &mut runs.queued_bytes, queued_bytes),
    ] {
        changes.apply(key, runs, written);
    }
}

/// Compares the settings that agents and the core were given at the start.
fn keep_terms(changes: &mut ReloadReport, runs: &Settings, written: &Settings) {
    for (key, runs, written) in [
        ("lease", runs.lease, written.lease),
        ("stop_limit", runs.stop_limit, written.stop_limit),
        ("heartbeat", runs.heartbeat, written.heartbeat),
        (
            "unreachable_after",
            runs.unreachable_after,
            written.unreachable_after,
        ),
        ("lost_after", runs.lost_after, written.lost_after),
    ] {
        changes.defer(key, runs, written);
    }
}

/// Names a token without showing it.
fn known(token: bool) -> &'static str {
    match token {
        true => "a token",
        false => "none",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sluice_transport::files::write_private;

    use super::super::{Overrides, RawConfig};
    use super::*;

    fn read(text: &str) -> Config {
        let raw = RawConfig::parse(Path::new("c.toml"), text).unwrap();
        raw.check(Overrides::default()).unwrap()
    }

    fn changed(before: &str, after: &str) -> (Config, ReloadReport) {
        let mut config = read(before);
        let changes = config.renew(read(after));
        (config, changes)
    }

    #[test]
    fn what_may_change_is_taken_key_by_key() {
        for (key, text) in [
            ("advertise", "advertise = [\"a:1\"]"),
            ("log_filter", "log_filter = \"debug\""),
            ("retention", "retention = 5"),
            ("keep_finished", "keep_finished = 5"),
            ("keep_finished_bytes", "keep_finished_bytes = \"5MiB\""),
            ("max_queued_steps", "max_queued_steps = 5"),
            ("max_queued_bytes", "max_queued_bytes = \"5MiB\""),
        ] {
            let (config, changes) = changed("", text);
            assert_eq!((changes.applied, changes.deferred), (vec![key], vec![]));
            assert_eq!(config.to_string(), read(text).to_string());
        }
        let (_, changes) = changed("lease = \"5m\"", "log_filter = \"info\"");
        assert_eq!(changes, ReloadReport::default());
    }

    #[test]
    fn a_token_may_be_another_and_is_not_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, token: &str| {
            let path = dir.path().join(name);
            write_private(&path, token).unwrap();
            format!("api_token_file = {path:?}\n")
        };
        let (one, two) = (
            file("one", "a-token-of-some-length"),
            file("two", "another-token-of-some-length"),
        );
        for before in [&one, ""] {
            let (config, changes) = changed(before, &two);
            assert_eq!(changes.applied, ["api_token_file"]);
            assert_eq!(config.api_token, read(&two).api_token);
        }
        let (config, changes) = changed(&one, "");
        assert_eq!(config.api_token, read(&one).api_token);
        assert_eq!(
            changes.deferred,
            ["api_token_file changed from a token to none: takes effect at the next start"]
        );
    }

    #[test]
    fn what_may_not_change_is_named_and_stays_until_the_next_start() {
        for (text, expected) in [
            (
                "quic = \"127.0.0.1:1\"",
                "quic changed from 127.0.0.1:7443 to 127.0.0.1:1: takes effect at the next start",
            ),
            ("http = \"127.0.0.1:1\"", "http changed from"),
            (
                "open_to_all_local_users = true",
                "open_to_all_local_users changed from false to true: takes effect at the next start",
            ),
            (
                "data_dir = \"/x\"",
                "data_dir changed from /var/lib/sluice/coordinator to /x",
            ),
            (
                "lost_after = \"10m\"",
                "lost_after changed from 6m30s to 10m",
            ),
            ("heartbeat = \"2s\"", "heartbeat changed from 3s to 2s"),
            (
                "node_cert_ttl = \"1d\"",
                "node_cert_ttl changed from 7d to 1d",
            ),
            (
                "tls = { ca = \"a\", cert = \"b\", key = \"c\" }",
                "tls changed: takes effect",
            ),
            ("[http_tls]\nnames = [\"b\"]", "http_tls changed"),
            (
                "[oidc]\nissuer = \"https://id.example\"\naudience = \"s\"\njwks_file = \"/j\"",
                "oidc changed",
            ),
        ] {
            let (config, changes) = changed("", text);
            let [deferred] = &changes.deferred[..] else {
                panic!("{text}: {changes:?}");
            };
            assert!(deferred.contains(expected), "{deferred}");
            assert!(changes.applied.is_empty());
            assert_eq!(config.to_string(), read("").to_string());
        }
    }
}

//! Prints the effective config for `--check-config`. Of secrets it shows only the source.

use std::fmt;

use coordinator_core::Bounds;
use sluice_common::amount::format_memory;

use super::oidc::KeySource;
use super::{Config, HttpTls, OidcConfig, TlsPaths};

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = &self.settings;
        writeln!(f, "quic = \"{}\"", self.quic)?;
        writeln!(f, "http = \"{}\"", self.http)?;
        writeln!(f, "data_dir = {:?}", self.data_dir)?;
        writeln!(f, "advertise = {:?}", self.advertise)?;
        writeln!(f, "node_cert_ttl = \"{}\"", self.cert_ttl)?;
        for (key, span) in [
            ("lease", terms.lease),
            ("stop_limit", terms.stop_limit),
            ("heartbeat", terms.heartbeat),
            ("unreachable_after", terms.unreachable_after),
            ("lost_after", terms.lost_after),
        ] {
            writeln!(f, "{key} = \"{span}\"")?;
        }
        writeln!(f, "retention = {}", self.retention)?;
        bounds(&terms.bounds, f)?;
        writeln!(f, "log_filter = {:?}", self.log_filter.to_string())?;
        writeln!(f, "http_names = {:?}", self.http_names)?;
        writeln!(f, "metrics_need_token = {}", self.metrics_need_token)?;
        match &self.api_token {
            Some(_) => writeln!(f, "# an API token was read")?,
            None if self.open_to_all_local_users => writeln!(f, "open_to_all_local_users = true")?,
            None => writeln!(
                f,
                "# the API token is in the data directory, made at the start"
            )?,
        }
        self.http_tls.iter().try_for_each(|tls| http_tls(tls, f))?;
        self.oidc.iter().try_for_each(|oidc| issuer(oidc, f))?;
        self.tls.iter().try_for_each(|paths| tls(paths, f))
    }
}

fn bounds(bounds: &Bounds, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Bounds {
        keep_finished,
        keep_finished_bytes,
        queued_steps,
        queued_bytes,
    } = bounds;
    writeln!(f, "keep_finished = {keep_finished}")?;
    let bytes = format_memory(*keep_finished_bytes);
    writeln!(f, "keep_finished_bytes = \"{bytes}\"")?;
    writeln!(f, "max_queued_steps = {queued_steps}")?;
    writeln!(f, "max_queued_bytes = \"{}\"", format_memory(*queued_bytes))
}

fn http_tls(tls: &HttpTls, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "[http_tls]")?;
    match tls {
        HttpTls::Cluster { names } => writeln!(f, "names = {names:?}"),
        HttpTls::Files {
            cert,
            key,
            users_ca,
        } => {
            writeln!(f, "cert = {cert:?}\nkey = {key:?}")?;
            let mut users_ca = users_ca.iter();
            users_ca.try_for_each(|ca| writeln!(f, "users_ca = {ca:?}"))
        }
    }
}

fn issuer(oidc: &OidcConfig, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let OidcConfig {
        issuer,
        audience,
        keys,
        leeway,
        name_claim,
    } = oidc;
    writeln!(f, "[oidc]\nissuer = {issuer:?}\naudience = {audience:?}")?;
    match keys {
        KeySource::File(path) => writeln!(f, "jwks_file = {path:?}")?,
        KeySource::Url { url, ca } => {
            writeln!(f, "jwks_url = {url:?}")?;
            ca.iter()
                .try_for_each(|ca| writeln!(f, "jwks_ca = {ca:?}"))?;
        }
    }
    writeln!(f, "name_claim = {name_claim:?}\nleeway = \"{leeway}\"")
}

fn tls(paths: &TlsPaths, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let TlsPaths { ca, cert, key } = paths;
    writeln!(f, "[tls]\nca = {ca:?}\ncert = {cert:?}\nkey = {key:?}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Overrides, RawConfig};

    #[test]
    fn what_is_shown_can_be_read_again_and_says_the_same() {
        let text = "quic = \"127.0.0.1:1\"\nlost_after = \"10m\"\nadvertise = [\"a:1\"]\n[http_tls]\nnames = [\"b\"]\n";
        let path = Path::new("c.toml");
        let read = |text: &str| {
            let raw = RawConfig::parse(path, text).unwrap();
            raw.check(Overrides::default()).unwrap().to_string()
        };
        let shown = read(text);
        assert!(shown.contains("lost_after = \"10m\""), "{shown}");
        assert!(shown.contains("lease = \"5m\""), "{shown}");
        assert_eq!(read(&shown), shown);
    }
}

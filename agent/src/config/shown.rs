//! Prints the effective config for `--check-config`.

use std::fmt;

use super::{Config, Reserve};
use crate::renewal::CertificateSource;

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reserve { cpus, memory_bytes } = &self.reserve;
        writeln!(f, "coordinators = {:?}", self.coordinators)?;
        writeln!(f, "node = \"{}\"", self.node)?;
        writeln!(f, "pool = \"{}\"", self.pool)?;
        writeln!(f, "address = {:?}", self.address)?;
        writeln!(f, "state_dir = {:?}", self.state_dir)?;
        writeln!(f, "supervisor_socket = {:?}", self.supervisor_socket)?;
        if let Some(library) = &self.nvml_library {
            writeln!(f, "nvml_library = {library:?}")?;
        }
        writeln!(f, "path = {:?}", self.path)?;
        writeln!(f, "gpu_release_timeout = \"{}\"", self.gpu_release_timeout)?;
        writeln!(f, "suspend_limit = \"{}\"", self.suspend_limit)?;
        writeln!(f, "respect_foreign = {}", self.respect_foreign)?;
        writeln!(f, "ports = \"{}\"", self.ports)?;
        writeln!(f, "log_format = \"{}\"", self.log_format)?;
        writeln!(f, "log_filter = {:?}", self.log_filter.to_string())?;
        writeln!(
            f,
            "[reserve]\ncpu_count = {cpus}\nmemory = \"{memory_bytes}B\""
        )?;
        writeln!(f, "[labels]")?;
        for (key, value) in &self.labels {
            writeln!(f, "{key:?} = {value:?}")?;
        }
        match &self.tls {
            CertificateSource::Joined(kept) => {
                let when = match kept.is_there() {
                    true => "it was issued when this host joined",
                    false => "it is issued when this host joins, at the agent's start",
                };
                writeln!(f, "# certificate: {when}")
            }
            CertificateSource::Given(files) => writeln!(
                f,
                "[tls]\nca = {:?}\ncert = {:?}\nkey = {:?}",
                files.ca, files.cert, files.key
            ),
        }
    }
}

//! Stores the GPUs of the driver's last report. An agent that starts while the driver hangs shows these, so that no step
//! is rejected because the host seems to have no GPU.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sluice_common::inventory::Gpu;
use tracing::warn;

use super::nvml::DriverReport;
use crate::durable_file;

/// The file, and the GPUs in it.
pub(super) struct ReportFile {
    path: PathBuf,
    stored: Option<Vec<Gpu>>,
}

impl ReportFile {
    /// The file in this state directory.
    pub(super) fn new(state_dir: &Path) -> Self {
        Self {
            path: state_dir.join("driver.json"),
            stored: None,
        }
    }

    /// The stored report; an empty one if there is none or it cannot be read.
    pub(super) fn load(&self) -> DriverReport {
        let read =
            || -> io::Result<DriverReport> { Ok(serde_json::from_slice(&fs::read(&self.path)?)?) };
        read().unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                warn!(
                    "{} cannot be read, so no GPU is known until the driver answers: {error}",
                    self.path.display()
                );
            }
            DriverReport::default()
        })
    }

    /// Stores the lasting part of a report if its GPUs have changed.
    pub(super) fn save(&mut self, report: &DriverReport) {
        if self.stored.as_ref() == Some(&report.gpus) {
            return;
        }
        let lasting = DriverReport {
            driver: report.driver.clone(),
            cuda: report.cuda.clone(),
            gpus: report.gpus.clone(),
            ..DriverReport::default()
        };
        let bytes = serde_json::to_vec(&lasting).map_err(io::Error::from);
        match bytes.and_then(|bytes| durable_file::replace(&self.path, &bytes)) {
            Ok(()) => self.stored = Some(report.gpus.clone()),
            Err(error) => warn!("cannot write {}: {error}", self.path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gpus_of_a_report_are_there_for_the_next_agent_and_damage_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = ReportFile::new(dir.path());
        assert_eq!(file.load(), DriverReport::default());
        let mut report = DriverReport {
            gpus: vec![Gpu::default()],
            ..DriverReport::default()
        };
        report.notes.add("a passing note");
        file.save(&report);
        let loaded = ReportFile::new(dir.path()).load();
        assert_eq!(loaded.gpus, report.gpus);
        assert_eq!(loaded.notes, Default::default());
        fs::write(dir.path().join("driver.json"), b"{").unwrap();
        assert_eq!(file.load(), DriverReport::default());
    }
}

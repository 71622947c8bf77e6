//! The hosts of a trace: from a CSV file, a short form such as `64x8`, or documents.

use std::path::{Path, PathBuf};

use sluice_common::id::PoolName;
use sluice_simulator::{CsvTable, Row, megabytes};

use crate::dev::{DeclaredHost, HostDocument};
use crate::failure::Failure;

/// Most hosts of a short form, against typing errors.
const MOST_HOSTS: usize = 100_000;
const OPENB: [&str; 4] = ["sn", "cpu_milli", "memory_mib", "gpu"];
/// GPU model if none is named.
const NO_MODEL: &str = "GPU";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SimulatedHost {
    pub(super) made: DeclaredHost,
    /// Whether it names its pool.
    pub(super) says_pool: bool,
    /// Whether it names the model of its GPUs.
    pub(super) says_model: bool,
}

impl SimulatedHost {
    /// Reads a host of a document.
    pub(super) fn of(request: HostDocument) -> Result<Self, String> {
        Ok(Self {
            made: request.check_for_simulation()?,
            says_pool: true,
            says_model: true,
        })
    }

    /// Reads a host of another form, which may leave out its pool and GPU model.
    fn of_row(written: HostDocument) -> Result<Self, String> {
        let (says_pool, says_model) = (written.pool.is_some(), written.gpu_model.is_some());
        let model = written.gpu_model.unwrap_or_else(|| NO_MODEL.to_owned());
        let gpu_model = Some(model);
        let request = HostDocument {
            gpu_model,
            ..written
        };
        Ok(Self {
            made: request.check_for_simulation()?,
            says_pool,
            says_model,
        })
    }

    /// Number of GPUs.
    pub(super) fn gpus(&self) -> u64 {
        self.made.inventory.gpus.len() as u64
    }
}

/// Reads the hosts of a CSV file, or of a short form such as `64x8`, `training=64x8` or `64x8:H100`; `before` is the
/// number of earlier hosts.
pub(super) fn read(text: &str, before: usize) -> Result<Vec<SimulatedHost>, Failure> {
    match shape(text) {
        Some(shape) => shape.hosts(before),
        None => listed(&PathBuf::from(text)),
    }
}

/// A number of equal hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostSpec<'a> {
    pool: Option<&'a str>,
    count: usize,
    gpus: u64,
    model: Option<&'a str>,
}

fn shape(text: &str) -> Option<HostSpec<'_>> {
    let (pool, shape) = match text.split_once('=') {
        Some((pool, shape)) => (Some(pool), shape),
        None => (None, text),
    };
    let (count, gpus) = shape.split_once('x')?;
    let (gpus, model) = match gpus.split_once(':') {
        Some((gpus, model)) => (gpus, Some(model)),
        None => (gpus, None),
    };
    Some(HostSpec {
        pool,
        count: count.parse().ok()?,
        gpus: gpus.parse().ok()?,
        model,
    })
}

impl HostSpec<'_> {
    fn hosts(self, before: usize) -> Result<Vec<SimulatedHost>, Failure> {
        let wrong = |why: String| Failure::Usage(format!("--hosts: {why}"));
        if self.count > MOST_HOSTS {
            let count = self.count;
            return Err(wrong(format!("{count} hosts are more than {MOST_HOSTS}")));
        }
        if let Some(pool) = self.pool {
            PoolName::new(pool).map_err(|e| wrong(e.to_string()))?;
        }
        let numbers = (before + 1..).take(self.count);
        let hosts = numbers.map(|n| {
            SimulatedHost::of_row(HostDocument {
                name: format!("h{n:04}"),
                pool: self.pool.map(str::to_owned),
                gpus: self.gpus,
                gpu_model: self.model.map(str::to_owned),
                ..HostDocument::default()
            })
        });
        hosts.collect::<Result<_, _>>().map_err(wrong)
    }
}

fn listed(path: &Path) -> Result<Vec<SimulatedHost>, Failure> {
    let sheet = CsvTable::read(path)?;
    if !sheet.has(&OPENB) {
        return Err(Failure::Usage(format!(
            "{}: its header `{}` is not that of a list of hosts: write `{},model`, or a shape such as --hosts 64x8",
            sheet.file(),
            sheet.header().escape_debug(),
            OPENB.join(",")
        )));
    }
    Ok(sheet.each(host)?)
}

fn host(row: Row<'_>) -> Result<SimulatedHost, String> {
    let said = |column| Some(row.text(column)).filter(|text| !text.is_empty());
    let mcpu = row.number("cpu_milli")?;
    let cores = u32::try_from(mcpu / 1000);
    let cores = cores.ok().filter(|_| mcpu.is_multiple_of(1000));
    let cores = cores.ok_or_else(|| row.wrong("cpu_milli", "write a multiple of 1000"))?;
    let host = SimulatedHost::of_row(HostDocument {
        name: row.text("sn").to_owned(),
        pool: said("pool").map(str::to_owned),
        gpus: row.number("gpu")?,
        gpu_model: said("model").map(str::to_owned),
        cpu: Some(cores),
        memory: Some(format!("{}MB", megabytes(row.number("memory_mib")?))),
        ..HostDocument::default()
    });
    host.map_err(|e| row.wrong("sn", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_told_from_files() {
        let of = |pool, count, gpus, model| {
            Some(HostSpec {
                pool,
                count,
                gpus,
                model,
            })
        };
        assert_eq!(shape("64x8"), of(None, 64, 8, None));
        assert_eq!(shape("training=2x4"), of(Some("training"), 2, 4, None));
        assert_eq!(shape("2x4:H100"), of(None, 2, 4, Some("H100")));
        assert_eq!(shape("boxes.csv"), None);
        let hosts = read("2x4", 3).unwrap();
        let names: Vec<&str> = hosts.iter().map(|host| host.made.name.as_str()).collect();
        assert_eq!(names, ["h0004", "h0005"]);
    }

    #[test]
    fn what_a_shape_has_is_its_gpus_and_no_end_of_all_else() {
        let host = &read("training=1x2:H100", 0).unwrap()[0];
        let gpu = &host.made.inventory.gpus[1];
        assert_eq!((host.gpus(), gpu.platform.as_str()), (2, "h100"));
        assert!(host.says_pool && host.says_model);
        assert!(host.made.inventory.cpus >= 1_000_000);
        let bare = &read("1x2", 0).unwrap()[0];
        assert!(!bare.says_pool && !bare.says_model);
    }
}

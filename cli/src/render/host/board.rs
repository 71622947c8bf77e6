//! Renders the boards of GPUs: their facts, and their links, clocks and modes now.

use std::collections::BTreeSet;

use sluice_common::api::GpuView;
use sluice_common::inventory::{BoardFacts, BoardReading};

use super::super::or_dash;
use super::super::sections::titled;
use super::super::table::{Cell, Column, Table};
use crate::out::Out;

const COLUMNS: &[Column] = &[
    Column::new("GPU", 9),
    Column::new("COMPUTE", 7),
    Column::new("PCIE", 7),
    Column::new("NVLINKS", 6),
    Column::new("CLOCKS", 6),
    Column::new("SLOWED", 8),
    Column::new("MEMORY", 5),
    Column::new("ROWS", 6),
    Column::new("MODES", 8),
    Column::new("MIG", 3),
    Column::new("VBIOS", 2),
    Column::new("SERIAL", 4),
];

/// Renders a table with a row for each whole GPU; empty if nothing is known of any.
pub(super) fn boards(gpus: &[GpuView], out: Out) -> String {
    let mut seen = BTreeSet::new();
    let whole = gpus.iter().filter(|gpu| {
        let parent = gpu.mig.as_ref().map_or(&gpu.uuid, |mig| &mig.parent);
        seen.insert(parent)
    });
    let known = whole.filter(|gpu| gpu.board != BoardFacts::default() || reading(gpu).is_some());
    let rows: Vec<Vec<Cell>> = known.map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => titled("Boards", &Table::new(COLUMNS, out).whole(&rows)),
    }
}

fn reading(gpu: &GpuView) -> Option<&BoardReading> {
    gpu.reading.as_ref()?.board.as_ref()
}

fn row(gpu: &GpuView) -> Vec<Cell> {
    let none = BoardReading::default();
    let (facts, now) = (&gpu.board, reading(gpu).unwrap_or(&none));
    vec![
        gpu.index.to_string().into(),
        or_dash(facts.compute_capability.as_deref()).into(),
        or_dash(pcie(facts, now).as_deref()).into(),
        or_dash(nvlinks(now).as_deref()).into(),
        or_dash(clocks(now).as_deref()).into(),
        or_dash(slowed(now).as_deref()).into(),
        or_dash(memory(now).as_deref()).into(),
        or_dash(rows(now).as_deref()).into(),
        or_dash(Some(&modes(facts, now))).into(),
        or_dash(mig(now)).into(),
        or_dash(facts.vbios.as_deref()).into(),
        or_dash(facts.serial.as_deref()).into(),
    ]
}

/// Formats generation and lanes of the link now, and at most if different: `5x16`, `1x16 of 5x16`.
fn pcie(facts: &BoardFacts, now: &BoardReading) -> Option<String> {
    let link = |generation: Option<u32>, lanes: Option<u32>| {
        let link = generation.zip(lanes);
        link.map(|(generation, lanes)| format!("{generation}x{lanes}"))
    };
    let most = link(facts.pcie_max_generation, facts.pcie_max_lanes);
    match (link(now.pcie_generation, now.pcie_lanes), most) {
        (Some(now), Some(most)) if now != most => Some(format!("{now} of {most}")),
        (None, Some(most)) => Some(format!("? of {most}")),
        (now, _) => now,
    }
}

/// Formats active links, and errors if there were any: `17/18,3 errors`.
fn nvlinks(now: &BoardReading) -> Option<String> {
    let (active, all) = now.nvlinks_active.zip(now.nvlinks)?;
    let fabric = now.fabric.as_deref().filter(|state| *state != "completed");
    let fabric = fabric.map(|state| format!(",fabric {state}"));
    let errors = now.nvlink_errors.filter(|errors| *errors > 0);
    let errors = errors.map(|errors| format!(",{errors} errors"));
    let (errors, fabric) = (errors.unwrap_or_default(), fabric.unwrap_or_default());
    Some(format!("{active}/{all}{errors}{fabric}"))
}

/// Formats the clocks of processors and memory: `1980/2619MHz`.
fn clocks(now: &BoardReading) -> Option<String> {
    match (now.sm_clock_mhz, now.memory_clock_mhz) {
        (Some(sm), Some(memory)) => Some(format!("{sm}/{memory}MHz")),
        (Some(one), None) | (None, Some(one)) => Some(format!("{one}MHz")),
        (None, None) => None,
    }
}

/// Formats why the clocks are reduced, apart from idleness.
fn slowed(now: &BoardReading) -> Option<String> {
    let reasons = now.throttle_reasons.as_ref()?.iter();
    let reasons: Vec<&str> = reasons
        .map(String::as_str)
        .filter(|reason| *reason != "idle")
        .collect();
    Some(reasons.join(","))
}

fn memory(now: &BoardReading) -> Option<String> {
    Some(format!("{}C", now.memory_temperature_celsius?))
}

/// Formats remapped rows, corrected and not: `0`, `1+2,pending`.
fn rows(now: &BoardReading) -> Option<String> {
    let rows = now.remapped_rows?;
    let mut text = match (rows.correctable, rows.uncorrectable) {
        (0, 0) => "0".to_owned(),
        (correctable, uncorrectable) => format!("{correctable}+{uncorrectable}"),
    };
    if rows.is_pending {
        text.push_str(",pending");
    }
    if rows.has_failed {
        text.push_str(",failed");
    }
    Some(text)
}

/// Formats the modes that are not the usual ones.
fn modes(facts: &BoardFacts, now: &BoardReading) -> String {
    let persistence = (now.persistence == Some(false)).then(|| "no persistence".to_owned());
    let compute = now.compute_mode.as_ref();
    let compute = compute.filter(|mode| *mode != "default");
    let virtualization = facts.virtualization.as_ref();
    let virtualization = virtualization.filter(|mode| *mode != "none");
    let confidential = facts.confidential_computing == Some(true);
    let confidential = confidential.then(|| "confidential".to_owned());
    let words = [
        persistence,
        compute.cloned(),
        virtualization.cloned(),
        confidential,
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    words.join(",")
}

/// Formats the MIG mode now, and after a reset if different.
fn mig(now: &BoardReading) -> Option<&'static str> {
    let mode = now.mig?;
    Some(match (mode.is_enabled, mode.is_enabled_after_reset) {
        (true, true) => "on",
        (false, false) => "off",
        (true, false) => "on,off after reset",
        (false, true) => "off,on after reset",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_is_one_row_and_what_is_usual_is_not_said() {
        let board = serde_json::json!({
            "compute_capability": "9.0", "serial": "165", "vbios": "96.00", "pcie_max_generation": 5,
            "pcie_max_lanes": 16, "virtualization": "none", "confidential_computing": false,
        });
        let reading = serde_json::json!({
            "memory_temperature_celsius": 42, "sm_clock_mhz": 345, "memory_clock_mhz": 2619, "throttle_reasons": ["idle"],
            "pcie_generation": 5, "pcie_lanes": 16, "nvlinks": 18, "nvlinks_active": 18, "nvlink_errors": 0,
            "fabric": "completed", "persistence": true, "compute_mode": "default",
            "remapped_rows": {"correctable": 0, "uncorrectable": 0, "is_pending": false, "has_failed": false},
            "mig": {"is_enabled": false, "is_enabled_after_reset": false},
        });
        let gpu = |index: u32, uuid: &str, changed: &[(&str, serde_json::Value)]| {
            let mut reading = reading.clone();
            for (key, value) in changed {
                reading[*key] = value.clone();
            }
            serde_json::json!({
                "index": index, "uuid": uuid, "board": board,
                "reading": {"uuid": uuid, "xids": {}, "board": reading},
            })
        };
        let odd = [
            ("pcie_generation", 1.into()),
            ("nvlinks_active", 17.into()),
            ("nvlink_errors", 3.into()),
            ("throttle_reasons", serde_json::json!(["hardware", "idle"])),
            ("persistence", false.into()),
            ("compute_mode", "prohibited".into()),
        ];
        let gpus = serde_json::json!([gpu(0, "GPU-a", &[]), gpu(1, "GPU-b", &odd), {"index": 2}]);
        let gpus: Vec<GpuView> = serde_json::from_value(gpus).unwrap();
        let expected = "
Boards:
GPU  COMPUTE  PCIE          NVLINKS         CLOCKS       SLOWED    MEMORY  ROWS  MODES                      MIG  VBIOS  SERIAL
0    9.0      5x16          18/18           345/2619MHz  -         42C     0     -                          off  96.00  165
1    9.0      1x16 of 5x16  17/18,3 errors  345/2619MHz  hardware  42C     0     no persistence,prohibited  off  96.00  165
";
        assert_eq!(boards(&gpus, Out::plain()), expected);
        assert_eq!(boards(&gpus[2..], Out::plain()), "");
    }
}

//! Formats amounts of resources: cores instead of thousandths, memory with a unit.

use sluice_common::amount::{Amounts, MCPU, MEMORY_MB, MGPU, STEP_RUN, STORAGE_MB};
use sluice_common::quantity;
pub(crate) use sluice_common::quantity::cores;
use sluice_common::request::ResourceSettings;

/// Digits after the point of memory in a table.
const DIGITS: u32 = 1;

/// Formats units of 10^6 bytes in powers of 1024, with one digit after the point.
pub(crate) fn megabytes(mb: u64) -> String {
    quantity::megabytes(mb, DIGITS)
}

/// Formats `used/total` of thousandths of a GPU.
pub(crate) fn gpus_of(used: u64, total: u64) -> String {
    format!("{}/{}", cores(used), cores(total))
}

/// Formats `used/total` of units of 10^6 bytes, both in the unit of the total.
pub(crate) fn megabytes_of(used: u64, total: u64) -> String {
    quantity::megabytes_of(used, total, DIGITS)
}

/// Formats bytes in powers of 1024, with one digit after the point.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scale: u64 = 1;
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes / scale >= 1024 {
        scale *= 1024;
        unit += 1;
    }
    let tenths = u128::from(bytes % scale) * 10 / u128::from(scale);
    let tenths = u64::try_from(tenths).expect("a tenth of a remainder is below ten");
    format!("{}{}", decimal(bytes / scale, tenths, 1), UNITS[unit])
}

/// Formats a number with so many digits after the point, without trailing zeros.
fn decimal(whole: u64, fraction: u64, digits: usize) -> String {
    let text = format!("{whole}.{fraction:0digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats `gpu=2 cpu=1 memory=2GiB`, custom keys last; `-` if there are none.
pub(crate) fn amounts(amounts: &Amounts) -> String {
    let known = [MGPU, MCPU, MEMORY_MB, STORAGE_MB];
    let custom = amounts.iter().map(|(key, _)| key.as_str());
    let custom = custom.filter(|key| !known.contains(key) && *key != STEP_RUN);
    let words: Vec<String> = known
        .into_iter()
        .chain(custom)
        .filter(|key| amounts.get(key) > 0)
        .map(|key| word(key, amounts.get(key)))
        .collect();
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(" ")
    }
}

fn word(key: &str, amount: u64) -> String {
    match key {
        MCPU => format!("cpu={}", cores(amount)),
        MGPU => format!("gpu={}", cores(amount)),
        MEMORY_MB => format!("memory={}", megabytes(amount)),
        STORAGE_MB => format!("storage={}", megabytes(amount)),
        _ => format!("{key}={amount}"),
    }
}

/// Formats a request: amounts as they were written, then the defaults.
pub(crate) fn asked(resources: &ResourceSettings, request: &Amounts) -> String {
    let unsaid = [
        (
            MGPU,
            resources.gpu_count.is_none() && resources.mig.is_none(),
        ),
        (MCPU, resources.cpu_count.is_none()),
        (MEMORY_MB, resources.memory.is_none()),
        (STORAGE_MB, resources.storage.is_none()),
    ];
    let filled = unsaid
        .into_iter()
        .filter(|(key, unsaid)| *unsaid && request.get(key) > 0)
        .map(|(key, _)| word(key, request.get(key)));
    let written = Some(settings(resources)).filter(|words| words != "-");
    let words: Vec<String> = written.into_iter().chain(filled).collect();
    match words.is_empty() {
        true => "-".to_owned(),
        false => words.join(" "),
    }
}

/// Formats a request as it was written: `gpu=2 cpu=1 memory=2GiB`.
fn settings(resources: &ResourceSettings) -> String {
    let mut words = Vec::new();
    words.extend(resources.gpu_count.map(|n| format!("gpu={n}")));
    words.extend(resources.mig.as_ref().map(|mig| format!("mig={mig}")));
    words.extend(resources.cpu_count.map(|n| format!("cpu={n}")));
    words.extend(
        resources
            .memory
            .as_deref()
            .map(|m| format!("memory={}", super::safe(m))),
    );
    let storage = resources.storage.as_deref();
    words.extend(storage.map(|size| format!("storage={}", super::safe(size))));
    let custom = resources.pool_resources.iter();
    words.extend(custom.map(|(key, n)| format!("{}={n}", super::safe(key))));
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_common::amount::ResourceKey;

    #[test]
    fn amounts_are_in_units_that_people_use() {
        assert_eq!(
            [0, 500, 1000, 2500, 1001].map(cores),
            ["0", "0.5", "1", "2.5", "1.001"]
        );
        assert_eq!(
            [0, 537, 1074, 17_180, 1_649_268].map(megabytes),
            ["0MiB", "512MiB", "1GiB", "16GiB", "1.5TiB"]
        );
        let memory = [0, 1023, 1 << 30, 85_520_809_984, u64::MAX].map(bytes);
        assert_eq!(memory, ["0B", "1023B", "1GiB", "79.6GiB", "16383.9PiB"]);
    }

    #[test]
    fn known_keys_come_first_and_the_run_itself_is_left_out() {
        let mut all = Amounts::new()
            .with_gpus(2)
            .with(MCPU, 1000)
            .with(MEMORY_MB, 2148)
            .with(STEP_RUN, 1);
        all.set(ResourceKey::new("a_license").unwrap(), 3);
        assert_eq!(amounts(&all), "gpu=2 cpu=1 memory=2GiB a_license=3");
        assert_eq!(amounts(&Amounts::new().with(STEP_RUN, 1)), "-");
    }

    #[test]
    fn settings_are_shown_as_written() {
        let resources = ResourceSettings {
            gpu_count: Some(2),
            cpu_count: Some(0.5),
            memory: Some("2GiB".into()),
            ..ResourceSettings::default()
        };
        assert_eq!(settings(&resources), "gpu=2 cpu=0.5 memory=2GiB");
        assert_eq!(settings(&ResourceSettings::default()), "-");
        let request = Amounts::new().with_gpus(2).with(STORAGE_MB, 1074);
        assert_eq!(
            asked(&resources, &request),
            "gpu=2 cpu=0.5 memory=2GiB storage=1GiB"
        );
        let nothing = ResourceSettings::default();
        assert_eq!(asked(&nothing, &request), "gpu=2 storage=1GiB");
        assert_eq!(asked(&nothing, &Amounts::new()), "-");
    }
}

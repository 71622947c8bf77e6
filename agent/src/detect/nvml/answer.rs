//! Interprets the driver's answers: a value, none, or a need to open the library again.

use std::fmt::Display;

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;

use super::super::notes::Notes;

/// `NVML_DEVICE_MIG_ENABLE` of NVIDIA's header.
pub(super) const MIG_ENABLED: u32 = 1;

/// Whether the driver was unloaded or replaced, so the library must be opened again.
pub(super) fn is_gone(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::DriverNotLoaded | NvmlError::Uninitialized | NvmlError::LibRmVersionMismatch
    )
}

/// The value, if there is one; adds a note if the failure says something about the host.
pub(super) fn optional<T>(
    what: &str,
    answer: Result<T, NvmlError>,
    notes: &mut Notes,
) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        // The model lacks the feature, or the GPU is lost, which the query of its UUID shows.
        Err(
            NvmlError::NotSupported | NvmlError::NotFound | NvmlError::NoData | NvmlError::GpuLost,
        ) => None,
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => {
            notes.add(format!("{what}: the driver is too old to tell"));
            None
        }
        Err(error) => {
            notes.add(format!("{what}: {}", words(&error)));
            None
        }
    }
}

/// A text of the driver as one line without control characters.
pub(super) fn line(text: &str) -> String {
    let clean = text.replace(char::is_control, " ");
    clean[..clean.floor_char_boundary(128)].trim().to_owned()
}

/// The driver's error in words; a code that this program does not know, by its number.
pub(super) fn words(error: &NvmlError) -> String {
    match error {
        NvmlError::UnexpectedVariant(code) => {
            format!("NVML's code {code}, which is newer than this program")
        }
        other => other.to_string(),
    }
}

/// UUID of a GPU or instance. One that tells an empty UUID cannot be granted.
pub(super) fn uuid(device: &Device<'_>) -> Result<String, NvmlError> {
    let uuid = line(&device.uuid()?);
    match uuid.is_empty() {
        true => Err(NvmlError::NoData),
        false => Ok(uuid),
    }
}

/// A measured value, unless it cannot be true: then it is dropped, with a note.
pub(super) fn plausible<T: PartialOrd + Copy + Display>(
    what: &str,
    value: Option<T>,
    most: T,
    notes: &mut Notes,
) -> Option<T> {
    let value = value?;
    if value > most {
        notes.add(format!(
            "{what}: the driver tells {value}, which cannot be true"
        ));
        return None;
    }
    Some(value)
}

/// The last word of names such as `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
pub(super) fn profile_in(name: &str) -> Option<String> {
    let (_, profile) = name.rsplit_once("MIG ")?;
    Some(line(profile)).filter(|profile| !profile.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_read_off_the_name() {
        assert_eq!(
            profile_in("NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
            Some("1g.10gb".into())
        );
        assert_eq!(
            profile_in("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb"),
            Some("1c.3g.20gb".into())
        );
        assert_eq!(profile_in("NVIDIA H100 80GB HBM3"), None);
        assert_eq!(profile_in("MIG "), None);
    }
}

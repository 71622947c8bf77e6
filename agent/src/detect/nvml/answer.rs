//! What an answer of the driver comes to: a value, nothing, or that everything must be asked anew.

use nvml_wrapper::error::NvmlError;

use super::super::notes::Notes;

/// Whether only those who begin anew are answered: the driver was unloaded or replaced under us.
pub(super) fn is_gone(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::DriverNotLoaded | NvmlError::Uninitialized | NvmlError::LibRmVersionMismatch
    )
}

/// The answer, or nothing; with a note where the refusal says something about the host.
pub(super) fn optional<T>(
    what: &str,
    answer: Result<T, NvmlError>,
    notes: &mut Notes,
) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        // This model does not do that, or the GPU is gone, which is told where it is asked for its UUID.
        Err(
            NvmlError::NotSupported | NvmlError::NotFound | NvmlError::NoData | NvmlError::GpuLost,
        ) => None,
        Err(NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => {
            notes.add(format!("{what}: the driver is too old to tell"));
            None
        }
        Err(error) => {
            notes.add(format!("{what}: {error}"));
            None
        }
    }
}

/// A text of the driver as one harmless line.
pub(super) fn line(text: &str) -> String {
    let clean = text.replace(char::is_control, " ");
    clean[..clean.floor_char_boundary(128)].trim().to_owned()
}

//! Validates `cpu_mode` against the requested number of cores.

use alloc::format;

use super::{FieldError, StepRequest};
use crate::amount::{Amounts, MCPU};
use crate::error_code::ErrorCode;
use crate::processors::CpuMode;

impl StepRequest {
    /// The requested mode, if the number of cores permits it.
    pub(super) fn checked_cpu_mode(&self, demand: &Amounts) -> Result<CpuMode, FieldError> {
        let mode = self.cpu_mode.unwrap_or_default();
        let mcpu = demand.get(MCPU);
        if mode.suits(mcpu) {
            return Ok(mode);
        }
        let wanting = match mcpu {
            0 => "is not set",
            _ => "is not a whole number",
        };
        let way_out = match mode {
            CpuMode::Pinned => "write how many processors it gets for itself, such as 4",
            CpuMode::Limit | CpuMode::Weight => {
                "write how many processors it is worth, such as 1.5"
            }
        };
        let message = format!(
            "`{mode}` needs a number of processors, and `resources.cpu_count` {wanting}: {way_out}"
        );
        Err(FieldError::new(
            ErrorCode::Contradiction,
            "cpu_mode",
            message,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    fn checked(fields: &str) -> Result<CpuMode, String> {
        let json = format!(r#"{{"command":["a"],{fields}}}"#);
        let request: StepRequest = serde_json::from_str(&json).unwrap();
        let spec = request.check().map_err(|e| e.to_string())?;
        Ok(spec.cpu_mode)
    }

    #[test]
    fn whole_processors_are_pinned_and_parts_are_weighed() {
        for (fields, wanted) in [
            (r#""resources":{"cpu_count":1.5}"#, CpuMode::Limit),
            (r#""cpu_mode":"limit""#, CpuMode::Limit),
            (
                r#""cpu_mode":"weight","resources":{"cpu_count":0.5}"#,
                CpuMode::Weight,
            ),
            (
                r#""cpu_mode":"pinned","resources":{"cpu_count":2}"#,
                CpuMode::Pinned,
            ),
            (
                r#""cpu_mode":"pinned","resources":{"pool_resources":{"mcpu":3000}}"#,
                CpuMode::Pinned,
            ),
            (
                r#""defaults":{"cpu_mode":"pinned"},"resources":{"cpu_count":2}"#,
                CpuMode::Pinned,
            ),
        ] {
            assert_eq!(checked(fields), Ok(wanted), "{fields}");
        }
        for (fields, said) in [
            (
                r#""cpu_mode":"weight""#,
                "is not set: write how many processors it is worth",
            ),
            (
                r#""cpu_mode":"pinned""#,
                "is not set: write how many processors it gets for itself",
            ),
            (
                r#""cpu_mode":"pinned","resources":{"cpu_count":1.5}"#,
                "is not a whole number",
            ),
        ] {
            let error = checked(fields).unwrap_err();
            assert!(
                error.starts_with("cpu_mode: ") && error.contains(said),
                "{error}"
            );
        }
    }
}

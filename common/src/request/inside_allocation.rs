//! Requests for steps inside an allocation.

use super::{FieldError, StepRequest};
use crate::error_code::ErrorCode;
use crate::id::StepId;
use crate::processors::CpuMode;
use crate::step::OnPreempt;

impl StepRequest {
    /// Returns the allocation if this is to run inside one, and fills in what follows from that.
    ///
    /// # Errors
    /// The allocation has no well-formed id, or the first field that the allocation decides.
    pub(super) fn take_inside(&mut self) -> Result<Option<StepId>, FieldError> {
        let Some(inside) = self.inside.take() else {
            return Ok(None);
        };
        let id = StepId::new(inside.as_str());
        let id = id.map_err(|e| FieldError::new(ErrorCode::InvalidId, "inside", e))?;
        if let Some((field, why)) = self.field_of_an_allocation() {
            return Err(FieldError::new(ErrorCode::Contradiction, field, why));
        }
        // It ends with its allocation, and waits for no other.
        self.on_preempt = Some(OnPreempt::Fail);
        Ok(Some(id))
    }

    /// The first field that a step inside an allocation does not have, with the reason.
    fn field_of_an_allocation(&self) -> Option<(&'static str, &'static str)> {
        const PLACE: &str = "a step inside an allocation runs on its hosts, in its pool: leave out this field, or `inside`";
        const GIVES_WAY: &str = "a step inside an allocation lasts as long as that at most, and gives way with it alone: leave out this field, or `inside`";
        const NESTED: &str = "an allocation is not inside another: leave out `lease`, or `inside`";
        const NOT_YET: &str =
            "not supported inside an allocation: leave out this field, or `inside`";
        let resources = &self.resources;
        let fields = [
            ("lease", self.lease.is_some(), NESTED),
            ("pool", self.pool.is_some(), PLACE),
            ("platform", self.platform.is_some(), PLACE),
            ("within", self.within.is_some(), PLACE),
            ("prefer_within", self.prefer_within.is_some(), PLACE),
            ("allow_pending", self.allow_pending.is_some(), PLACE),
            (
                "resources.preemptible",
                resources.preemptible.is_some(),
                GIVES_WAY,
            ),
            ("priority_class", self.priority_class.is_some(), GIVES_WAY),
            ("on_preempt", self.on_preempt.is_some(), GIVES_WAY),
            ("suspend_timeout", self.suspend_timeout.is_some(), GIVES_WAY),
            (
                "free_preemptions",
                self.free_preemptions.is_some(),
                GIVES_WAY,
            ),
            ("array", self.array.is_some(), NOT_YET),
            ("resources.mig", resources.mig.is_some(), NOT_YET),
            ("cpu_mode", self.cpu_mode == Some(CpuMode::Pinned), NOT_YET),
        ];
        let mut set = fields.into_iter().filter(|(_, is_set, _)| *is_set);
        set.next().map(|(field, _, why)| (field, why))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::step::StepSpec;

    fn checked(json: &str) -> Result<StepSpec, FieldError> {
        serde_json::from_str::<StepRequest>(json).unwrap().check()
    }

    #[test]
    fn it_names_its_allocation_and_leaves_the_number_of_hosts_to_it() {
        let spec = checked(r#"{"command":["a"],"inside":"held"}"#).unwrap();
        assert_eq!(spec.inside, Some(StepId::new("held").unwrap()));
        assert_eq!((spec.nodes, spec.on_preempt), (0, OnPreempt::Fail));
        let spec = checked(r#"{"command":["a"],"inside":"held","nodes":2}"#).unwrap();
        assert_eq!(spec.nodes, 2);
        let error = checked(r#"{"command":["a"],"inside":"held","nodes":0}"#).unwrap_err();
        assert_eq!(error.field, "nodes");
        assert_eq!(checked(r#"{"command":["a"]}"#).unwrap().nodes, 1);
    }

    #[test]
    fn fields_that_its_allocation_decides_are_refused_by_name() {
        for (json, field, part) in [
            (r#""lease":"1m""#, "lease", "not inside another"),
            (r#""pool":"p""#, "pool", "in its pool"),
            (r#""platform":"h100""#, "platform", "on its hosts"),
            (
                r#""on_preempt":"suspend""#,
                "on_preempt",
                "gives way with it",
            ),
            (r#""array":"1-3""#, "array", "not supported"),
            (r#""cpu_mode":"pinned""#, "cpu_mode", "not supported"),
            (
                r#""resources":{"preemptible":true}"#,
                "resources.preemptible",
                "gives way with it",
            ),
            (
                r#""defaults":{"inside":"b"}"#,
                "defaults.inside",
                "has no default",
            ),
        ] {
            let command = match field {
                "lease" => "[]",
                _ => r#"["a"]"#,
            };
            let json = alloc::format!(r#"{{"command":{command},"inside":"held",{json}}}"#);
            let error = checked(&json).unwrap_err();
            assert_eq!(error.field, field, "{json}");
            assert!(error.to_string().contains(part), "{json}: {error}");
        }
        let error = checked(r#"{"command":["a"],"inside":"no id"}"#).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidId);
    }
}

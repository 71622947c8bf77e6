//! Requests for allocations: steps without a program.

use alloc::borrow::ToOwned;
use alloc::format;

use super::{FieldError, StepRequest};
use crate::allocation::{ReclaimTolerance, check_lease};
use crate::error_code::ErrorCode;
use crate::step::OnPreempt;
use crate::time::Span;

impl StepRequest {
    /// Returns the lease if this asks for an allocation, and fills in what follows from that.
    ///
    /// # Errors
    /// The first field that has no meaning for what it asks for.
    pub(super) fn take_lease(&mut self) -> Result<Option<Span>, FieldError> {
        let Some(lease) = &self.lease else {
            return match self.reclaim_tolerance {
                None => Ok(None),
                Some(_) => Err(contradiction(
                    "reclaim_tolerance",
                    "only an allocation has it: set `lease` and no command, or use `resources.preemptible`",
                )),
            };
        };
        let lease = check_lease(lease)?;
        if let Some(field) = self.field_of_a_program() {
            let why = format!(
                "an allocation runs no program of its own: leave out `{field}`, or `lease`"
            );
            return Err(contradiction(field, &why));
        }
        (self.on_preempt, self.retries) = (Some(OnPreempt::Fail), Some(0));
        if let Some(tolerance) = self.reclaim_tolerance {
            self.tolerate(tolerance)?;
        }
        Ok(Some(lease))
    }

    fn tolerate(&mut self, tolerance: ReclaimTolerance) -> Result<(), FieldError> {
        if self.resources.preemptible.is_some() || self.priority_class.is_some() {
            return Err(contradiction(
                "reclaim_tolerance",
                "it says whether the allocation is preemptible: leave out `resources.preemptible` and `priority_class`",
            ));
        }
        self.resources.preemptible = Some(tolerance != ReclaimTolerance::None);
        if tolerance == ReclaimTolerance::Any {
            if self.grace_period.is_some() {
                let why = "`any` gives no time to release it: leave out `grace_period`, or write `coordinated`";
                return Err(contradiction("reclaim_tolerance", why));
            }
            self.grace_period = Some("0s".to_owned());
        }
        Ok(())
    }

    /// The first field that only steps with a program have.
    fn field_of_a_program(&self) -> Option<&'static str> {
        let fields = [
            ("command", !self.command.is_empty()),
            ("image", self.image.is_some()),
            ("array", self.array.is_some()),
            ("retries", self.retries.is_some()),
            ("on_preempt", self.on_preempt.is_some()),
            ("suspend_timeout", self.suspend_timeout.is_some()),
            ("stdin", self.stdin.is_some()),
            ("stdout", self.stdout.is_some()),
            ("stderr", self.stderr.is_some()),
            ("append", self.append.is_some()),
            ("terminal", self.terminal.is_some()),
            ("inputs", !self.inputs.is_empty()),
            ("keep", !self.keep.is_empty()),
            ("ports", !self.ports.is_empty()),
            ("probes", self.probes.is_some()),
        ];
        let mut set = fields.into_iter().filter(|(_, is_set)| *is_set);
        set.next().map(|(field, _)| field)
    }
}

fn contradiction(field: &str, why: &str) -> FieldError {
    FieldError::new(ErrorCode::Contradiction, field, why)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::pool_rules::Setting;
    use crate::time::Span;

    fn checked(json: &str) -> Result<crate::step::StepSpec, FieldError> {
        serde_json::from_str::<StepRequest>(json).unwrap().check()
    }

    #[test]
    fn an_allocation_runs_nothing_and_ends_if_it_gives_way() {
        let spec = checked(r#"{"lease":"90s","resources":{"gpu_count":2}}"#).unwrap();
        assert_eq!(spec.lease, Some(Span::from_secs(90)));
        assert_eq!((spec.name.as_str(), spec.command.len()), ("allocation", 0));
        assert_eq!(spec.on_preempt, OnPreempt::Fail);
        let spec = checked(r#"{"lease":"90s","work":"training"}"#).unwrap();
        assert_eq!(
            (spec.retries, spec.unset.contains(&Setting::Retries)),
            (0, false)
        );
    }

    #[test]
    fn tolerance_says_whether_and_how_fast_it_gives_way() {
        for (tolerance, preemptible, grace) in [
            ("none", false, 30),
            ("coordinated", true, 30),
            ("any", true, 0),
        ] {
            let json = format!(r#"{{"lease":"1m","reclaim_tolerance":"{tolerance}"}}"#);
            let spec = checked(&json).unwrap();
            assert_eq!(
                (spec.preemptible, spec.grace),
                (preemptible, Span::from_secs(grace))
            );
        }
    }

    #[test]
    fn fields_that_contradict_each_other_are_named() {
        for (json, field, part) in [
            (
                r#"{"lease":"1m","command":["true"]}"#,
                "command",
                "runs no program",
            ),
            (
                r#"{"lease":"1m","keep":["out"]}"#,
                "keep",
                "leave out `keep`",
            ),
            (r#"{"lease":"1s"}"#, "lease", "1s is not between 5s and 7d"),
            (r#"{"lease":"soon"}"#, "lease", "soon"),
            (
                r#"{"command":["true"],"reclaim_tolerance":"any"}"#,
                "reclaim_tolerance",
                "only an allocation",
            ),
            (
                r#"{"lease":"1m","reclaim_tolerance":"any","grace_period":"1m"}"#,
                "reclaim_tolerance",
                "leave out `grace_period`",
            ),
            (
                r#"{"lease":"1m","reclaim_tolerance":"any","resources":{"preemptible":true}}"#,
                "reclaim_tolerance",
                "resources.preemptible",
            ),
        ] {
            let error = checked(json).unwrap_err();
            assert_eq!(error.field, field, "{json}");
            assert!(error.to_string().contains(part), "{json}: {error}");
        }
    }
}

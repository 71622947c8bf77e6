//! Applies the shorthands of a step: priority class and kind of work. Explicit fields override the kind of work and
//! must not contradict the class.

use alloc::collections::BTreeSet;
use alloc::format;

use super::{FieldError, StepRequest};
use crate::error_code::ErrorCode;
use crate::pool_rules::Setting;
use crate::step::{PriorityClass, WorkKind};

impl PriorityClass {
    /// Whether steps of the class may be preempted.
    pub const fn is_preemptible(self) -> bool {
        match self {
            PriorityClass::High | PriorityClass::Normal => false,
            PriorityClass::Low => true,
        }
    }

    /// Default priority among the steps of the same subject.
    pub const fn priority(self) -> i64 {
        match self {
            PriorityClass::High => 1000,
            PriorityClass::Normal => 0,
            PriorityClass::Low => -1000,
        }
    }
}

impl WorkKind {
    /// Default of `preemptible`. Inference and notebooks have waiting users.
    pub const fn is_preemptible(self) -> bool {
        match self {
            WorkKind::Training | WorkKind::Compute => true,
            WorkKind::Inference | WorkKind::Notebook => false,
        }
    }

    /// Default number of retries. Training restarts from its checkpoint and inference must be available; a notebook's
    /// state is lost, so a restart is useless.
    pub const fn retries(self) -> u32 {
        match self {
            WorkKind::Training => 2,
            WorkKind::Inference => 10,
            WorkKind::Notebook | WorkKind::Compute => 0,
        }
    }
}

impl StepRequest {
    /// The kind of work from `work`, or from the document's `kind`.
    pub(super) fn work_kind(&self) -> Result<Option<WorkKind>, FieldError> {
        let Some(kind) = self.kind.as_deref().filter(|kind| *kind != "step") else {
            return Ok(self.work);
        };
        let work = kind.parse().map_err(|_| {
            let kind = kind.escape_debug();
            let message = format!(
                "`{kind}` cannot be submitted: write `step`, or training, inference, notebook or compute"
            );
            FieldError::new(ErrorCode::InvalidKind, "kind", message)
        })?;
        match self.work.filter(|written| *written != work) {
            None => Ok(Some(work)),
            Some(written) => Err(FieldError::new(
                ErrorCode::Contradiction,
                "work",
                format!("`{written}` and `kind: {work}` contradict each other: remove one of them"),
            )),
        }
    }

    /// Whether the step may be preempted: explicit value, else by class, else by kind of work, else yes.
    pub(super) fn is_preemptible(&self) -> Result<bool, FieldError> {
        let written = self.resources.preemptible;
        let Some(class) = self.priority_class else {
            let by_work = self.work.is_none_or(WorkKind::is_preemptible);
            return Ok(written.unwrap_or(by_work));
        };
        match written.filter(|written| *written != class.is_preemptible()) {
            None => Ok(class.is_preemptible()),
            Some(written) => Err(FieldError::new(
                ErrorCode::Contradiction,
                "priority_class",
                format!(
                    "class `{class}` is {}preemptible, and `resources.preemptible: {written}` says otherwise: remove one of them",
                    if class.is_preemptible() { "" } else { "not " },
                ),
            )),
        }
    }

    /// Priority among the subject's steps: explicit value, else by class.
    pub(super) fn own_priority(&self) -> i64 {
        let by_class = self.priority_class.map_or(0, PriorityClass::priority);
        self.priority.unwrap_or(by_class)
    }

    /// Settings left to the pool.
    pub(super) fn unset_settings(&self) -> BTreeSet<Setting> {
        let said = [
            (Setting::Timeout, self.timeout.is_some()),
            (Setting::QueueTimeout, self.queue_timeout.is_some()),
            (Setting::GracePeriod, self.grace_period.is_some()),
            (Setting::Retries, self.retries.is_some()),
            (Setting::OnPreempt, self.on_preempt.is_some()),
            (Setting::CpuMode, self.cpu_mode.is_some()),
        ];
        let unsaid = said.into_iter().filter(|(_, said)| !said);
        unsaid.map(|(setting, _)| setting).collect()
    }

    /// Number of retries: explicit value, else by kind of work.
    pub(super) fn own_retries(&self) -> u32 {
        let by_work = self.work.map_or(0, WorkKind::retries);
        self.retries.unwrap_or(by_work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::StepSpec;

    fn checked(fields: &str) -> Result<StepSpec, FieldError> {
        let json = format!(r#"{{"command":["a"],{fields}}}"#);
        let request: StepRequest = serde_json::from_str(&json).unwrap();
        request.check()
    }

    #[test]
    fn a_class_says_who_gives_way_and_who_goes_first() {
        for (class, preemptible, priority) in [
            ("high", false, 1000),
            ("normal", false, 0),
            ("low", true, -1000),
        ] {
            let spec = checked(&format!(r#""priority_class":"{class}""#)).unwrap();
            assert_eq!(
                (spec.preemptible, spec.priority),
                (preemptible, priority),
                "{class}"
            );
        }
        let spec =
            checked(r#""priority_class":"high","priority":7,"resources":{"preemptible":false}"#);
        assert_eq!(spec.unwrap().priority, 7);
    }

    #[test]
    fn a_class_that_is_contradicted_is_refused() {
        for (class, preemptible) in [("high", true), ("normal", true), ("low", false)] {
            let fields = format!(
                r#""priority_class":"{class}","resources":{{"preemptible":{preemptible}}}"#
            );
            let error = checked(&fields).unwrap_err();
            assert_eq!(error.code, ErrorCode::Contradiction);
            assert!(error.message.contains(class), "{error}");
        }
    }

    #[test]
    fn a_kind_of_work_fills_in_what_is_not_written() {
        for (work, preemptible, retries) in [
            ("training", true, 2),
            ("inference", false, 10),
            ("notebook", false, 0),
            ("compute", true, 0),
        ] {
            let spec = checked(&format!(r#""work":"{work}""#)).unwrap();
            assert_eq!(
                (spec.preemptible, spec.retries),
                (preemptible, retries),
                "{work}"
            );
        }
        let spec =
            checked(r#""work":"inference","retries":0,"resources":{"preemptible":true}"#).unwrap();
        assert_eq!(
            (spec.preemptible, spec.retries),
            (true, 0),
            "zero is a value"
        );
        assert_eq!(
            checked(r#""kind":"training""#).unwrap().work,
            Some(WorkKind::Training)
        );
        let error = checked(r#""kind":"training","work":"notebook""#).unwrap_err();
        assert_eq!(error.code, ErrorCode::Contradiction);
        let spec = checked(r#""work":"notebook","priority_class":"low""#).unwrap();
        assert!(spec.preemptible, "the class wins over the kind of work");
    }
}

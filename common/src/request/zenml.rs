//! Settings of ZenML's newer `ResourceSettings` that have another name here, so that what `model_dump()` gives can be
//! written as `resources`.

use alloc::format;

use super::demand::ResourceDemands;
use super::{FieldError, ResourceSettings, StepRequest};
use crate::allocation::ReclaimTolerance;
use crate::error_code::ErrorCode;

fn wrong(code: ErrorCode, field: &str, why: &str) -> FieldError {
    FieldError::new(code, format!("resources.{field}"), why)
}

fn contradiction(field: &str, why: &str) -> FieldError {
    wrong(ErrorCode::Contradiction, field, why)
}

impl StepRequest {
    /// Turns settings under ZenML's newer names into those of this type.
    ///
    /// # Errors
    /// A setting contradicts one that is written too, or has no counterpart.
    pub(super) fn take_zenml_settings(&mut self) -> Result<(), FieldError> {
        if self.resources.is_nothing() {
            return Ok(());
        }
        let settings = &mut self.resources;
        if let Some(class) = settings.gpu_class.take() {
            if let Some(platform) = self.platform.as_ref().filter(|it| **it != class) {
                let class = class.escape_default();
                let why = format!(
                    "it is `{class}`, and `platform` is `{platform}`: leave out one of them"
                );
                return Err(contradiction("gpu_class", &why));
            }
            self.platform = Some(class);
        }
        if let Some(tolerance) = settings.reclaim_tolerance.take() {
            let is_preemptible = tolerance != ReclaimTolerance::None;
            if settings.preemptible.is_some_and(|it| it != is_preemptible) {
                let why = "it says whether the step is preemptible, and `preemptible` says the opposite: leave out one of them";
                return Err(contradiction("reclaim_tolerance", why));
            }
            settings.preemptible = Some(is_preemptible);
        }
        let zero = "0 seconds are no time: write 1 or more, or leave it out";
        for (field, seconds) in [
            (
                "allocation_wait_timeout_seconds",
                settings.allocation_wait_timeout_seconds,
            ),
            (
                "initialization_lease_seconds",
                settings.initialization_lease_seconds.take(),
            ),
        ] {
            if seconds == Some(0) {
                return Err(wrong(ErrorCode::InvalidDuration, field, zero));
            }
        }
        let wait = settings.allocation_wait_timeout_seconds.take();
        if let Some(seconds) = wait.filter(|_| self.queue_timeout.is_none()) {
            self.queue_timeout = Some(format!("{seconds}s"));
        }
        settings.take_zenml_resources()
    }
}

impl ResourceSettings {
    fn take_zenml_resources(&mut self) -> Result<(), FieldError> {
        let amounts = self.resources.take().map(ResourceDemands::amounts);
        let amounts = amounts.transpose()?.unwrap_or_default();
        if !amounts.is_empty() && !self.pool_resources.is_empty() {
            let why = "`pool_resources` is its older name: leave out one of them";
            return Err(contradiction("resources", why));
        }
        for (name, amount) in amounts {
            if amount == 0 {
                let why = format!(
                    "0 of `{}`: write 1 or more, or leave it out",
                    name.escape_default()
                );
                return Err(wrong(ErrorCode::InvalidAmount, "resources", &why));
            }
            let sum = self.pool_resources.entry(name).or_default();
            *sum = sum.saturating_add(amount);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::step::StepSpec;
    use crate::time::Span;

    fn checked(resources: &str, more: &str) -> Result<StepSpec, FieldError> {
        let json = format!(r#"{{"command":["a"],"resources":{resources}{more}}}"#);
        serde_json::from_str::<StepRequest>(&json).unwrap().check()
    }

    #[test]
    fn what_zenml_dumps_is_taken_as_it_is() {
        let dump = r#"{"cpu_count":null,"gpu_count":1,"gpu_class":"h100","memory":null,
            "resources":[{"quantity":2,"name":"licence","kind":null,"unit":null,"class_name":null,
                          "resource_selector":null,"class_selector":null}],
            "reclaim_tolerance":"none","allocation_wait_timeout_seconds":3600,"initialization_lease_seconds":3600,
            "min_replicas":null,"max_replicas":null,"autoscaling_metric":null,"autoscaling_target":null,
            "max_concurrency":null}"#;
        let spec = checked(dump, "").unwrap();
        assert_eq!(
            (spec.gpu_count(), spec.platform.as_deref()),
            (1, Some("h100"))
        );
        assert!(!spec.preemptible);
        assert_eq!(spec.queue_timeout, Some(Span::from_secs(3600)));
        assert_eq!(spec.resources.pool_resources["licence"], 2);
        for (resources, licences) in [
            (r#"{"resources":"licence"}"#, Some(1)),
            (r#"{"resources":{"licence":3}}"#, Some(3)),
            (r#"{"resources":{"quantity":4,"name":"licence"}}"#, Some(4)),
            (r#"{"resources":[]}"#, None),
        ] {
            let spec = checked(resources, "").unwrap();
            let found = spec.resources.pool_resources.get("licence").copied();
            assert_eq!(found, licences, "{resources}");
        }
        let spec = checked(
            r#"{"allocation_wait_timeout_seconds":60}"#,
            r#","queue_timeout":"5s""#,
        );
        assert_eq!(spec.unwrap().queue_timeout, Some(Span::from_secs(5)));
    }

    #[test]
    fn what_contradicts_or_has_no_counterpart_is_refused_by_name() {
        for (resources, more, field, part) in [
            (
                r#"{"gpu_class":"h100"}"#,
                r#","platform":"a100""#,
                "gpu_class",
                "`platform` is `a100`",
            ),
            (
                r#"{"reclaim_tolerance":"any","preemptible":false}"#,
                "",
                "reclaim_tolerance",
                "the opposite",
            ),
            (
                r#"{"initialization_lease_seconds":0}"#,
                "",
                "initialization_lease_seconds",
                "0 seconds",
            ),
            (
                r#"{"resources":{"a":1},"pool_resources":{"b":1}}"#,
                "",
                "resources",
                "older name",
            ),
            (r#"{"resources":{"a":0}}"#, "", "resources", "0 of `a`"),
            (
                r#"{"resources":[{"quantity":1,"kind":"gpu"}]}"#,
                "",
                "resources",
                "`kind`",
            ),
            (
                r#"{"resources":[{"quantity":1}]}"#,
                "",
                "resources",
                "no name",
            ),
        ] {
            let error = checked(resources, more).unwrap_err();
            assert_eq!(error.field, format!("resources.{field}"), "{resources}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}

//! Requests for services: a step as their replica, the number of replicas, and the terms of changes.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::times::check_span;
use super::{AutoscalingRequest, FieldError, ResourceSettings, StepRequest};
use crate::amount::ceil_thousandths;
use crate::error_code::ErrorCode;
use crate::id::ServiceName;
use crate::pool::HostPlacement;
use crate::service::{
    MAX_DRAIN_TIMEOUT, MAX_LOAD, MAX_PROGRESS_DEADLINE, MAX_REPLICAS, MAX_SERVICE_NAME_BYTES,
    RolloutSpec, ScaleSpec, ServiceSpec,
};
use crate::step::StepSpec;
use crate::time::Span;

/// Terms of a change of a service to another version, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RolloutRequest {
    /// Most replicas beyond the number that the service is to have; 1 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<u64>,
    /// Most replicas that are missing from that number; 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<u64>,
    /// Time between the removal of a replica from the endpoints and its stop, such as `1m`; `30s` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<String>,
    /// Time within which another replica must be ready, or the change is rolled back, such as `30m`; `10m` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<String>,
}

impl RolloutRequest {
    fn check(&self) -> Result<RolloutSpec, FieldError> {
        let default = RolloutSpec::default();
        let of = |field: &str, count: Option<u64>, default| match count {
            None => Ok(default),
            Some(count) => replicas(&format!("rollout.{field}"), count),
        };
        let span = |field: &str, text: Option<&str>, default, max| {
            check_span(&format!("rollout.{field}"), text, default, max)
        };
        let (drain, progress) = (&self.drain_timeout, &self.progress_deadline);
        let spec = RolloutSpec {
            max_surge: of("max_surge", self.max_surge, default.max_surge)?,
            max_unavailable: of(
                "max_unavailable",
                self.max_unavailable,
                default.max_unavailable,
            )?,
            drain_timeout: span(
                "drain_timeout",
                drain.as_deref(),
                default.drain_timeout,
                MAX_DRAIN_TIMEOUT,
            )?,
            progress_deadline: span(
                "progress_deadline",
                progress.as_deref(),
                default.progress_deadline,
                MAX_PROGRESS_DEADLINE,
            )?,
        };
        if spec.progress_deadline == Span::ZERO {
            let why = "0 leaves no time to become ready: write a time such as `10m`";
            let field = "rollout.progress_deadline";
            return Err(FieldError::new(ErrorCode::InvalidDuration, field, why));
        }
        if (spec.max_surge, spec.max_unavailable) == (0, 0) {
            let why = "`max_surge` and `max_unavailable` are both 0, so that no replica could ever be replaced: allow 1 \
                       more or 1 less";
            return Err(FieldError::new(ErrorCode::Contradiction, "rollout", why));
        }
        Ok(spec)
    }
}

impl StepRequest {
    /// Checks a service: its name, its replica as a step, and its number of replicas. `name` is that of the call.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check_service(mut self, name: &str) -> Result<(ServiceName, ServiceSpec), FieldError> {
        let inherited = self.inherited();
        self = self.with_defaults()?;
        let name = self.service_name(name)?;
        if let Some(kind) = self.kind.take().filter(|kind| kind != "service") {
            let why = format!("`{}` is not `service`", kind.escape_debug());
            return Err(FieldError::new(ErrorCode::InvalidKind, "kind", why));
        }
        if let Some((field, why)) = self.field_of_a_lone_step() {
            return Err(FieldError::new(ErrorCode::UnsupportedField, field, why));
        }
        let rollout = self.rollout.take().unwrap_or_default().check()?;
        let placement = self
            .placement
            .take()
            .unwrap_or_else(HostPlacement::of_services);
        let autoscaling = self.autoscaling.take().unwrap_or_default();
        let scale = self.take_scale(&autoscaling)?;
        // The pool must not fill in retries: the service starts a new replica for each that ends.
        self.retries = Some(0);
        self.name = Some(name.as_str().to_owned());
        let mut replica = StepSpec {
            inherited,
            ..self.check()?
        };
        replica.probes.metric = autoscaling.source(&scale, &replica.ports)?;
        let spec = ServiceSpec {
            scale,
            rollout,
            placement,
            replica,
        };
        Ok((name, spec))
    }

    fn service_name(&self, called: &str) -> Result<ServiceName, FieldError> {
        let wrong = |e: &dyn core::fmt::Display| FieldError::new(ErrorCode::InvalidName, "name", e);
        let name = ServiceName::new(called).map_err(|e| wrong(&e))?;
        if name.as_str().len() > MAX_SERVICE_NAME_BYTES {
            let why = format!(
                "`{name}` is too long for a service, whose replicas have the ids `{name}-NUMBER`: write at most \
                 {MAX_SERVICE_NAME_BYTES} bytes"
            );
            return Err(wrong(&why));
        }
        if let Some(other) = self.name.as_deref().filter(|other| *other != called) {
            let why = format!(
                "`{}` is not `{name}`, the service of the call: leave it out, or write `{name}`",
                other.escape_debug()
            );
            return Err(wrong(&why));
        }
        Ok(name)
    }

    /// The first field that has no meaning for a replica, with the reason.
    fn field_of_a_lone_step(&self) -> Option<(&'static str, &'static str)> {
        const IDS: &str = "replicas have the ids `NAME-1`, `NAME-2`, ...: leave it out";
        const ENDS: &str =
            "a replica that ends is replaced until the service is deleted: leave it out";
        const STARTS: &str = "replicas start whenever one is missing: leave it out";
        const FILES: &str = "files that are sent along are not kept for as long as a service runs: put them into its image or on its hosts";
        const ALLOCATION: &str = "replicas get resources of their pool, one by one: leave it out, or run a step inside the allocation";
        const READ: &str = "nobody sends input to a replica: leave it out";
        let fields = [
            ("inputs", !self.inputs.is_empty(), FILES),
            ("id", self.id.is_some(), IDS),
            ("array", self.array.is_some(), IDS),
            ("lease", self.lease.is_some(), ENDS),
            ("reclaim_tolerance", self.reclaim_tolerance.is_some(), ENDS),
            ("inside", self.inside.is_some(), ALLOCATION),
            ("retries", self.retries.is_some(), ENDS),
            ("begin", self.begin.is_some(), STARTS),
            ("deadline", self.deadline.is_some(), STARTS),
            ("after", !self.after.is_empty(), STARTS),
            ("terminal", self.terminal == Some(true), READ),
            ("stdin", self.stdin.as_deref() == Some("-"), READ),
        ];
        let mut set = fields.into_iter().filter(|(_, is_set, _)| *is_set);
        set.next().map(|(field, _, why)| (field, why))
    }

    /// Takes the number of replicas out of the request, so that the rest is a step.
    fn take_scale(&mut self, autoscaling: &AutoscalingRequest) -> Result<ScaleSpec, FieldError> {
        let written = self.resources.take_scale();
        let is_range = written.min_replicas.is_some() || written.max_replicas.is_some();
        let mut scale = match self.replicas.take() {
            Some(_) if is_range => {
                let why = "`resources.min_replicas` and `max_replicas` say how many there are too: leave out one of them";
                return Err(FieldError::new(ErrorCode::Contradiction, "replicas", why));
            }
            Some(count) => ScaleSpec::fixed(replicas("replicas", count)?),
            None if is_range => written.range()?,
            None => ScaleSpec::fixed(1),
        };
        autoscaling.check(&written, &mut scale)?;
        Ok(scale)
    }

    /// Refuses fields that only services have.
    pub(super) fn refuse_service_fields(&self) -> Result<(), FieldError> {
        if self.kind.as_deref() == Some("service") {
            let why =
                "a service is not submitted: `sluice apply -f FILE` starts it and keeps it running";
            return Err(FieldError::new(ErrorCode::InvalidKind, "kind", why));
        }
        let scale = &self.resources;
        let set = [
            ("replicas", self.replicas.is_some()),
            ("rollout", self.rollout.is_some()),
            ("placement", self.placement.is_some()),
            ("autoscaling", self.autoscaling.is_some()),
            (
                "resources.min_replicas",
                scale.min_replicas.is_some_and(|n| n != 0),
            ),
            (
                "resources.max_replicas",
                scale.max_replicas.is_some_and(|n| n != 0),
            ),
            (
                "resources.autoscaling_metric",
                scale.autoscaling_metric.is_some(),
            ),
            (
                "resources.autoscaling_target",
                scale.autoscaling_target.is_some(),
            ),
            ("resources.max_concurrency", scale.max_concurrency.is_some()),
        ];
        match set.into_iter().find(|(_, set)| *set) {
            None => Ok(()),
            Some((field, _)) => {
                let why = "this belongs to a service, which is applied with `kind: service`: leave it out of a step";
                Err(FieldError::new(ErrorCode::UnsupportedField, field, why))
            }
        }
    }
}

impl ResourceSettings {
    /// Takes the settings of services out.
    fn take_scale(&mut self) -> Self {
        Self {
            min_replicas: self.min_replicas.take(),
            max_replicas: self.max_replicas.take(),
            autoscaling_metric: self.autoscaling_metric.take(),
            autoscaling_target: self.autoscaling_target.take(),
            max_concurrency: self.max_concurrency.take(),
            ..Self::default()
        }
    }

    fn range(&self) -> Result<ScaleSpec, FieldError> {
        let min = self.min_replicas.unwrap_or(1);
        let min = replicas("resources.min_replicas", min)?;
        let max = self.max_replicas.filter(|max| *max > 0);
        let unlimited = max.is_none();
        let max = max.map(|max| replicas("resources.max_replicas", max));
        let max = max.transpose()?.unwrap_or(MAX_REPLICAS);
        if min > max {
            let why = format!("{min} is more than `max_replicas`, which is {max}");
            let field = "resources.min_replicas";
            return Err(FieldError::new(ErrorCode::InvalidReplicas, field, why));
        }
        Ok(ScaleSpec {
            min,
            max,
            unlimited,
            fixed: false,
            ..ScaleSpec::fixed(min)
        })
    }
}

/// Reads a reported value of a metric in thousandths.
///
/// # Errors
/// The value is no number, negative, or larger than [`MAX_LOAD`].
pub fn load_milli(field: &str, value: f64) -> Result<u64, FieldError> {
    if value.is_finite() && (0.0..=MAX_LOAD).contains(&value) {
        return Ok(ceil_thousandths(value));
    }
    let why = format!("{value} cannot be: report a number from 0 to {MAX_LOAD}");
    Err(FieldError::new(ErrorCode::InvalidMetric, field, why))
}

/// Reads a number of replicas.
///
/// # Errors
/// The number is larger than [`MAX_REPLICAS`].
pub fn replicas(field: &str, count: u64) -> Result<u32, FieldError> {
    let within = u32::try_from(count)
        .ok()
        .filter(|count| *count <= MAX_REPLICAS);
    within.ok_or_else(|| {
        let why = format!("{count} is too many: write at most {MAX_REPLICAS}");
        FieldError::new(ErrorCode::InvalidReplicas, field, why)
    })
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::service::ScaleMetric;

    fn service(json: &str) -> Result<ServiceSpec, FieldError> {
        let request: StepRequest = serde_json::from_str(json).unwrap();
        request.check_service("web").map(|(_, spec)| spec)
    }

    fn scaled(resources: &str) -> Result<ScaleSpec, FieldError> {
        service(&format!(
            r#"{{"command":["a"],"resources":{{{resources}}}}}"#
        ))
        .map(|it| it.scale)
    }

    #[test]
    fn a_step_with_a_number_is_a_service() {
        let spec = service(
            r#"{"kind":"service","name":"web","command":["serve"],"replicas":3,"resources":{"gpu_count":1},
                "rollout":{"max_surge":0,"max_unavailable":1,"drain_timeout":"5s"}}"#,
        );
        let spec = spec.unwrap();
        assert_eq!(spec.scale, ScaleSpec::fixed(3));
        assert_eq!(
            (spec.rollout.max_surge, spec.rollout.max_unavailable),
            (0, 1)
        );
        assert_eq!(spec.rollout.drain_timeout, Span::from_secs(5));
        assert_eq!(spec.rollout.progress_deadline, Span::from_secs(600));
        assert_eq!(
            (spec.replica.name.as_str(), spec.replica.retries),
            ("web", 0)
        );
        assert_eq!(spec.replica.gpu_count(), 1);
        assert_eq!(
            service(r#"{"command":["a"]}"#).unwrap().scale,
            ScaleSpec::fixed(1)
        );
    }

    #[test]
    fn settings_of_zenml_are_taken_verbatim() {
        let scale = scaled(
            r#""gpu_count":1,"min_replicas":0,"max_replicas":0,"autoscaling_metric":"rps","autoscaling_target":2.5"#,
        );
        let scale = scale.unwrap();
        assert_eq!(
            (scale.min, scale.max, scale.unlimited),
            (0, MAX_REPLICAS, true)
        );
        assert_eq!(
            (&scale.metric, scale.target_milli),
            (&Some(ScaleMetric::Rps), Some(2500))
        );
        assert_eq!(
            (
                scale.count(None),
                scale.count(Some(0)),
                scale.count(Some(7))
            ),
            (1, 0, 7)
        );
        let scale = scaled(r#""min_replicas":2,"max_replicas":2"#).unwrap();
        assert_eq!((scale.min, scale.max, scale.fixed), (2, 2, false));
        let scale =
            scaled(r#""max_replicas":4,"autoscaling_metric":"concurrency","max_concurrency":8"#)
                .unwrap();
        assert_eq!(
            (scale.min, scale.max, scale.target_milli),
            (1, 4, Some(8000))
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_numbers() {
        for (resources, field, part) in [
            (
                r#""min_replicas":5,"max_replicas":3"#,
                "min_replicas",
                "5 is more than `max_replicas`, which is 3",
            ),
            (
                r#""max_replicas":5000"#,
                "max_replicas",
                "5000 is too many: write at most 1000",
            ),
            (
                r#""max_replicas":3,"autoscaling_metric":"qps""#,
                "autoscaling_metric",
                "`qps` is not a metric of ZenML",
            ),
            (
                r#""max_replicas":3,"autoscaling_metric":"cpu""#,
                "autoscaling_metric",
                "`cpu` has no target",
            ),
            (
                r#""max_replicas":3,"autoscaling_target":3"#,
                "autoscaling_target",
                "3 of what?",
            ),
            (
                r#""max_replicas":3,"autoscaling_metric":"cpu","autoscaling_target":-70"#,
                "autoscaling_target",
                "-70 is no target of `cpu`: write more than 0 and at most 1000000000",
            ),
            (
                r#""max_replicas":3,"autoscaling_metric":"rps","autoscaling_target":0"#,
                "autoscaling_target",
                "0 is no target of `rps`",
            ),
            (
                r#""max_concurrency":0"#,
                "max_concurrency",
                "0 requests at once",
            ),
            (
                r#""min_replicas":2,"max_replicas":2,"autoscaling_metric":"rps","autoscaling_target":1"#,
                "autoscaling_metric",
                "fixed to 2",
            ),
        ] {
            let error = scaled(resources).unwrap_err();
            assert_eq!(error.field, format!("resources.{field}"), "{resources}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn fields_of_a_lone_step_are_named() {
        for (json, field) in [
            (r#"{"command":["a"],"id":"x"}"#, "id"),
            (r#"{"command":["a"],"retries":2}"#, "retries"),
            (r#"{"command":["a"],"name":"other"}"#, "name"),
            (r#"{"command":["a"],"kind":"step"}"#, "kind"),
            (
                r#"{"command":["a"],"replicas":1,"resources":{"min_replicas":1}}"#,
                "replicas",
            ),
            (r#"{"command":["a"],"rollout":{"max_surge":0}}"#, "rollout"),
            (
                r#"{"command":["a"],"rollout":{"drain_timeout":"soon"}}"#,
                "rollout.drain_timeout",
            ),
            (
                r#"{"command":["a"],"rollout":{"progress_deadline":"0s"}}"#,
                "rollout.progress_deadline",
            ),
            (r#"{"command":[]}"#, "command"),
        ] {
            assert_eq!(service(json).unwrap_err().field, field, "{json}");
        }
        let long = "x".repeat(MAX_SERVICE_NAME_BYTES + 1);
        let request: StepRequest = serde_json::from_str(r#"{"command":["a"]}"#).unwrap();
        assert_eq!(request.check_service(&long).unwrap_err().field, "name");
    }
}

//! Terms by which the number of replicas of a service follows its load: those of ZenML in `resources`, and Sluice's own
//! in `autoscaling`.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::times::check_span;
use super::{FieldError, ResourceSettings};
use crate::amount::ceil_thousandths;
use crate::error_code::ErrorCode;
use crate::metric::{DEFAULT_METRIC_PATH, MetricName, MetricSource};
use crate::port::PortName;
use crate::probe::{check_http_path, find_port};
use crate::service::{DEFAULT_DOWN_AFTER, MAX_DOWN_AFTER, MAX_LOAD, ScaleMetric, ScaleSpec};

/// Terms by which the number of replicas of a service follows its load, as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct AutoscalingRequest {
    /// Metric instead of `resources.autoscaling_metric`: `gpu` for the time in which GPUs are busy, or with `port` the name
    /// of a metric that the replicas serve in the text format of Prometheus, such as `vllm:num_requests_running`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Name of the port, one of `ports`, at which the replicas serve the metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Path at which they serve it; `/metrics` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Value of `metric` that each replica is to have: percent for `gpu`, else a number above 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// Time for which fewer replicas must be enough before there are fewer, such as `1m`; `5m` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_after: Option<String>,
}

/// No target is NaN once it is checked, so equality is total.
impl Eq for AutoscalingRequest {}

fn wrong(field: &str, why: &dyn core::fmt::Display) -> FieldError {
    FieldError::new(ErrorCode::InvalidMetric, field, why)
}

impl AutoscalingRequest {
    /// Checks the terms with those of ZenML, and fills them in.
    ///
    /// # Errors
    /// The first invalid field.
    pub(super) fn check(
        &self,
        settings: &ResourceSettings,
        scale: &mut ScaleSpec,
    ) -> Result<(), FieldError> {
        settings.check_metric(scale)?;
        let field = match &self.metric {
            Some(metric) => {
                (scale.metric, scale.target_milli) = self.own_metric(metric, settings)?;
                "autoscaling.metric"
            }
            None => {
                self.refuse_without_metric()?;
                "resources.autoscaling_metric"
            }
        };
        let down_after = self.down_after.as_deref();
        let of_down = "autoscaling.down_after";
        scale.down_after = check_span(of_down, down_after, DEFAULT_DOWN_AFTER, MAX_DOWN_AFTER)?;
        match &scale.metric {
            // ZenML accepts this for a fixed number, but a service that never scales by its metric surprises its owner.
            Some(metric) if scale.min == scale.max => {
                let why = format!(
                    "the number of replicas is fixed to {}, so `{metric}` decides nothing: set `min_replicas` below `max_replicas`",
                    scale.min,
                );
                Err(wrong(field, &why))
            }
            None if down_after.is_some() => {
                let why = "nothing decides about the number of replicas: name it in `resources.autoscaling_metric`, or in \
                           `autoscaling.metric`";
                Err(wrong(of_down, &why))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn own_metric(
        &self,
        name: &str,
        settings: &ResourceSettings,
    ) -> Result<(Option<ScaleMetric>, Option<u64>), FieldError> {
        let field = "autoscaling.metric";
        let of_zenml =
            settings.autoscaling_metric.is_some() || settings.autoscaling_target.is_some();
        if of_zenml {
            let why = "`resources` names a metric or a target too, and one decides about the number: leave out \
                       `autoscaling_metric` and `autoscaling_target` there, or `metric` and `target` here";
            return Err(FieldError::new(ErrorCode::Contradiction, field, why));
        }
        let metric = match (&self.port, name) {
            (Some(_), name) => ScaleMetric::Named(name.parse().map_err(|e| wrong(field, &e))?),
            (None, "gpu") => ScaleMetric::Gpu,
            (None, name) if ScaleMetric::of_zenml(name).is_ok() => {
                let why = format!(
                    "`{name}` is a metric of ZenML: write it in `resources.autoscaling_metric`"
                );
                return Err(wrong(field, &why));
            }
            (None, name) => {
                let why = format!(
                    "hosts do not measure `{}`: write `gpu`, or the `port` at which the replicas serve the metric, such as \
                     `port: http`",
                    name.escape_default()
                );
                return Err(wrong(field, &why));
            }
        };
        let Some(target) = self.target else {
            let why = format!("`{metric}` has no target: write `autoscaling.target`, such as 4");
            return Err(wrong(field, &why));
        };
        let target =
            target_milli(&metric, target).map_err(|why| wrong("autoscaling.target", &why))?;
        Ok((Some(metric), Some(target)))
    }

    fn refuse_without_metric(&self) -> Result<(), FieldError> {
        let set = [
            ("target", self.target.is_some()),
            ("port", self.port.is_some()),
            ("path", self.path.is_some()),
        ];
        let Some((field, _)) = set.into_iter().find(|(_, is_set)| *is_set) else {
            return Ok(());
        };
        let why =
            format!("`{field}` of what? Name the metric in `autoscaling.metric`, or leave it out");
        Err(wrong(&format!("autoscaling.{field}"), &why))
    }

    /// Returns the place at which hosts read the metric of the replicas, if these serve it themselves.
    ///
    /// # Errors
    /// The replicas have no such port, or the path is no path.
    pub(super) fn source(
        &self,
        scale: &ScaleSpec,
        ports: &[PortName],
    ) -> Result<Option<MetricSource>, FieldError> {
        let name: &MetricName = match (&scale.metric, &self.path) {
            (Some(ScaleMetric::Named(name)), _) => name,
            (_, Some(_)) => {
                let why = "only a metric that the replicas serve is read at a path: leave it out, or name the `port`";
                return Err(wrong("autoscaling.path", &why));
            }
            (_, None) => return Ok(None),
        };
        let port = self.port.as_deref().unwrap_or_default();
        let port = find_port(ports, port).map_err(|why| wrong("autoscaling.port", &why))?;
        let path = self.path.as_deref().unwrap_or(DEFAULT_METRIC_PATH);
        check_http_path(path).map_err(|why| wrong("autoscaling.path", &why))?;
        let (name, path) = (name.clone(), path.to_owned());
        Ok(Some(MetricSource { name, port, path }))
    }
}

impl ResourceSettings {
    fn check_metric(&self, scale: &mut ScaleSpec) -> Result<(), FieldError> {
        let wrong = |field: &str, why: &dyn core::fmt::Display| {
            FieldError::new(ErrorCode::InvalidMetric, format!("resources.{field}"), why)
        };
        let metric = self.autoscaling_metric.as_deref();
        let metric = metric.map(ScaleMetric::of_zenml).transpose();
        scale.metric = metric.map_err(|e| wrong("autoscaling_metric", &e))?;
        if self.max_concurrency == Some(0) {
            let why = "0 requests at once would let nobody in: write 1 or more, or leave it out for no limit";
            return Err(wrong("max_concurrency", &why));
        }
        scale.max_concurrency = self.max_concurrency;
        // A replica that takes so many at once is full with them.
        let by_concurrency = scale
            .max_concurrency
            .filter(|_| scale.metric == Some(ScaleMetric::Concurrency));
        let by_concurrency = by_concurrency.map(|max| max.saturating_mul(1000));
        scale.target_milli = match (&scale.metric, self.autoscaling_target) {
            (None, None) => None,
            (None, Some(target)) => {
                let why = format!(
                    "{target} of what? Name it in `autoscaling_metric`: cpu, memory, concurrency or rps"
                );
                return Err(wrong("autoscaling_target", &why));
            }
            (Some(metric), Some(target)) => Some(
                target_milli(metric, target).map_err(|why| wrong("autoscaling_target", &why))?,
            ),
            (Some(_), None) if by_concurrency.is_some() => by_concurrency,
            (Some(metric), None) => {
                let why =
                    format!("`{metric}` has no target: write `autoscaling_target`, such as 70");
                return Err(wrong("autoscaling_metric", &why));
            }
        };
        Ok(())
    }
}

/// Reads a target in thousandths. Decimals occur only in requests.
fn target_milli(metric: &ScaleMetric, target: f64) -> Result<u64, String> {
    // Replicas may use more cores than they ask for, but not more GPUs.
    let most = match metric {
        ScaleMetric::Gpu => 100.0,
        _ => MAX_LOAD,
    };
    if !(target.is_finite() && target > 0.0 && target <= most) {
        return Err(format!(
            "{target} is no target of `{metric}`: write more than 0 and at most {most}"
        ));
    }
    Ok(ceil_thousandths(target))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::super::StepRequest;
    use super::*;
    use crate::service::ServiceSpec;
    use crate::time::Span;

    fn checked(autoscaling: &str, resources: &str) -> Result<ServiceSpec, FieldError> {
        let json = format!(
            r#"{{"command":["a"],"ports":["http"],"resources":{{{resources}}},"autoscaling":{{{autoscaling}}}}}"#
        );
        let request: StepRequest = serde_json::from_str(&json).unwrap();
        request.check_service("web").map(|(_, spec)| spec)
    }

    const RANGE: &str = r#""max_replicas":3"#;

    #[test]
    fn a_metric_of_the_replicas_is_read_at_their_port() {
        let terms =
            r#""metric":"vllm:num_requests_running","port":"http","target":4.5,"down_after":"1m""#;
        let spec = checked(terms, RANGE).unwrap();
        let name: MetricName = "vllm:num_requests_running".parse().unwrap();
        assert_eq!(spec.scale.metric, Some(ScaleMetric::Named(name.clone())));
        assert_eq!(spec.scale.target_milli, Some(4500));
        assert_eq!(spec.scale.down_after, Span::from_secs(60));
        let source = MetricSource {
            name,
            port: "http".parse().unwrap(),
            path: "/metrics".to_owned(),
        };
        assert_eq!(spec.replica.probes.metric, Some(source));
        let named_gpu = r#""metric":"gpu","port":"http","path":"/m?a=1","target":900"#;
        let spec = checked(named_gpu, RANGE).unwrap();
        assert_eq!(spec.scale.metric.unwrap().to_string(), "gpu");
        assert_eq!(spec.replica.probes.metric.as_ref().unwrap().path, "/m?a=1");
    }

    #[test]
    fn busy_gpus_are_a_metric_of_hosts() {
        let spec = checked(r#""metric":"gpu","target":70"#, RANGE).unwrap();
        let scale = &spec.scale;
        assert_eq!(
            (&scale.metric, scale.target_milli),
            (&Some(ScaleMetric::Gpu), Some(70_000))
        );
        assert_eq!(spec.replica.probes.metric, None);
    }

    #[test]
    fn terms_that_cannot_be_are_refused_by_name() {
        let of_zenml = r#""max_replicas":3,"autoscaling_metric":"cpu","autoscaling_target":70"#;
        for (terms, resources, field, part) in [
            (
                r#""metric":"queue","target":4"#,
                RANGE,
                "metric",
                "hosts do not measure `queue`",
            ),
            (
                r#""metric":"cpu","target":4"#,
                RANGE,
                "metric",
                "`resources.autoscaling_metric`",
            ),
            (
                r#""metric":"a b","port":"http","target":4"#,
                RANGE,
                "metric",
                "a b",
            ),
            (
                r#""metric":"up","port":"http""#,
                RANGE,
                "metric",
                "`up` has no target",
            ),
            (
                r#""metric":"up","port":"http","target":0"#,
                RANGE,
                "target",
                "0 is no target of `up`",
            ),
            (
                r#""metric":"gpu","target":101"#,
                RANGE,
                "target",
                "at most 100",
            ),
            (
                r#""metric":"gpu","target":70,"path":"/x""#,
                RANGE,
                "path",
                "name the `port`",
            ),
            (
                r#""metric":"up","port":"htp","target":1"#,
                RANGE,
                "port",
                "did you mean `http`?",
            ),
            (
                r#""metric":"up","port":"http","path":"m","target":1"#,
                RANGE,
                "path",
                "begin with `/`",
            ),
            (
                r#""metric":"gpu","target":70"#,
                of_zenml,
                "metric",
                "leave out",
            ),
            (
                r#""metric":"gpu","target":70"#,
                r#""min_replicas":2,"max_replicas":2"#,
                "metric",
                "fixed to 2",
            ),
            (r#""target":70"#, of_zenml, "target", "`target` of what?"),
            (r#""port":"http""#, RANGE, "port", "`port` of what?"),
            (
                r#""down_after":"1m""#,
                RANGE,
                "down_after",
                "nothing decides",
            ),
        ] {
            let error = checked(terms, resources).unwrap_err();
            assert_eq!(error.field, format!("autoscaling.{field}"), "{terms}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}

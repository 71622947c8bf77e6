//! Merges a step's settings with inherited ones, such as its pipeline's. Absent fields are inherited, maps are merged
//! key by key, and zero is a value like any other.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{FieldError, ResourceSettings, StepRequest};
use crate::error_code::ErrorCode;
use crate::probe::ProbesRequest;
use crate::template::merge::merge_lists;
use crate::template::origin::list_fields;

impl StepRequest {
    /// Merges these settings over `below`. `kind` and `id` are never inherited.
    #[must_use]
    pub fn over(self, below: StepRequest) -> Self {
        // The class and `preemptible` are two forms of one setting.
        let says = self.priority_class.is_some() || self.resources.preemptible.is_some();
        let gives_way = match says {
            true => (self.priority_class, self.resources.preemptible),
            false => (below.priority_class, below.resources.preemptible),
        };
        // Two forms of one setting.
        let within = match self.within.is_some() || self.prefer_within.is_some() {
            true => (self.within, self.prefer_within),
            false => (below.within, below.prefer_within),
        };
        let mut env = below.env;
        env.extend(self.env);
        let mut labels = below.labels;
        labels.extend(self.labels);
        let mut resources = self
            .resources
            .into_inner()
            .over(below.resources.into_inner());
        resources.preemptible = gives_way.1;
        Self {
            kind: self.kind,
            id: self.id,
            name: self.name.or(below.name),
            subject: self.subject.or(below.subject),
            pool: self.pool.or(below.pool),
            platform: self.platform.or(below.platform),
            command: or_below(self.command, below.command),
            env,
            workdir: self.workdir.or(below.workdir),
            prefer_workdir: self.prefer_workdir.or(below.prefer_workdir),
            image: self.image.or(below.image),
            resources: resources.into(),
            nodes: self.nodes.or(below.nodes),
            within: within.0,
            prefer_within: within.1,
            priority: self.priority.or(below.priority),
            retries: self.retries.or(below.retries),
            timeout: self.timeout.or(below.timeout),
            grace_period: self.grace_period.or(below.grace_period),
            on_preempt: self.on_preempt.or(below.on_preempt),
            allow_pending: self.allow_pending.or(below.allow_pending),
            free_preemptions: self.free_preemptions.or(below.free_preemptions),
            priority_class: gives_way.0,
            work: self.work.or(below.work),
            defaults: self.defaults.or(below.defaults),
            suspend_timeout: self.suspend_timeout.or(below.suspend_timeout),
            queue_timeout: self.queue_timeout.or(below.queue_timeout),
            begin: self.begin.or(below.begin),
            deadline: self.deadline.or(below.deadline),
            after: or_below(self.after, below.after),
            array: self.array.or(below.array),
            labels,
            cpu_mode: self.cpu_mode.or(below.cpu_mode),
            mounts: merge_lists(self.mounts, below.mounts),
            privileged: self.privileged.or(below.privileged),
            host_network: self.host_network.or(below.host_network),
            stdin: self.stdin.or(below.stdin),
            stdout: self.stdout.or(below.stdout),
            stderr: self.stderr.or(below.stderr),
            append: self.append.or(below.append),
            terminal: self.terminal.or(below.terminal),
            inputs: or_below(self.inputs, below.inputs),
            keep: or_below(self.keep, below.keep),
            ports: or_below(self.ports, below.ports),
            probes: ProbesRequest::over(self.probes, below.probes),
            lease: self.lease.or(below.lease),
            reclaim_tolerance: self.reclaim_tolerance.or(below.reclaim_tolerance),
            inside: self.inside.or(below.inside),
            replicas: self.replicas.or(below.replicas),
            rollout: self.rollout.or(below.rollout),
            placement: self.placement.or(below.placement),
            autoscaling: self.autoscaling.or(below.autoscaling),
        }
    }

    /// Fields that only `defaults` sets.
    pub(super) fn inherited(&self) -> BTreeSet<String> {
        let below = self.defaults.as_ref().map(|below| below.set_fields());
        let own = self.set_fields();
        let below = below.into_iter().flatten();
        below.filter(|field| !own.contains(field)).collect()
    }

    fn set_streams(&self) -> [(&'static str, bool); 5] {
        [
            ("stdin", self.stdin.is_some()),
            ("stdout", self.stdout.is_some()),
            ("stderr", self.stderr.is_some()),
            ("append", self.append.is_some()),
            ("terminal", self.terminal.is_some()),
        ]
    }

    /// Fields that are set, by their names in the API; maps key by key.
    fn set_fields(&self) -> BTreeSet<String> {
        let resources = &self.resources;
        let own = [
            ("name", self.name.is_some()),
            ("subject", self.subject.is_some()),
            ("pool", self.pool.is_some()),
            ("platform", self.platform.is_some()),
            ("command", !self.command.is_empty()),
            ("workdir", self.workdir.is_some()),
            ("prefer_workdir", self.prefer_workdir.is_some()),
            ("image", self.image.is_some()),
            ("nodes", self.nodes.is_some()),
            ("within", self.within.is_some()),
            ("prefer_within", self.prefer_within.is_some()),
            ("priority", self.priority.is_some()),
            ("retries", self.retries.is_some()),
            ("timeout", self.timeout.is_some()),
            ("grace_period", self.grace_period.is_some()),
            ("on_preempt", self.on_preempt.is_some()),
            ("allow_pending", self.allow_pending.is_some()),
            ("free_preemptions", self.free_preemptions.is_some()),
            ("priority_class", self.priority_class.is_some()),
            ("work", self.work.is_some()),
            ("suspend_timeout", self.suspend_timeout.is_some()),
            ("queue_timeout", self.queue_timeout.is_some()),
            ("begin", self.begin.is_some()),
            ("deadline", self.deadline.is_some()),
            ("after", !self.after.is_empty()),
            ("array", self.array.is_some()),
            ("cpu_mode", self.cpu_mode.is_some()),
            ("privileged", self.privileged.is_some()),
            ("host_network", self.host_network.is_some()),
            ("inputs", !self.inputs.is_empty()),
            ("keep", !self.keep.is_empty()),
            ("ports", !self.ports.is_empty()),
            ("probes", self.probes.is_some()),
            ("lease", self.lease.is_some()),
            ("reclaim_tolerance", self.reclaim_tolerance.is_some()),
            ("inside", self.inside.is_some()),
            ("replicas", self.replicas.is_some()),
            ("rollout", self.rollout.is_some()),
            ("placement", self.placement.is_some()),
            ("autoscaling", self.autoscaling.is_some()),
            ("resources.gpu_count", resources.gpu_count.is_some()),
            ("resources.mig", resources.mig.is_some()),
            ("resources.cpu_count", resources.cpu_count.is_some()),
            ("resources.memory", resources.memory.is_some()),
            ("resources.storage", resources.storage.is_some()),
            ("resources.preemptible", resources.preemptible.is_some()),
        ];
        let own = own.into_iter().chain(self.set_streams());
        let own = own.filter(|(_, said)| *said);
        let own = own.map(|(field, _)| String::from(field));
        let env = self.env.keys().map(|name| format!("env.{name}"));
        let keys = resources.pool_resources.keys();
        let keys = keys.map(|key| format!("resources.pool_resources.{key}"));
        let mounts = list_fields("mounts", self.mounts.as_ref());
        own.chain(env).chain(keys).chain(mounts).collect()
    }

    /// Merges the step's own settings over its `defaults`.
    ///
    /// # Errors
    /// If `defaults` sets a field that cannot be inherited.
    pub fn with_defaults(mut self) -> Result<Self, FieldError> {
        let Some(below) = self.defaults.take() else {
            return Ok(self);
        };
        let own = [
            ("id", below.id.is_some()),
            ("kind", below.kind.is_some()),
            ("defaults", below.defaults.is_some()),
            ("inside", below.inside.is_some()),
        ];
        match own.into_iter().find(|(_, written)| *written) {
            None => Ok(self.over(*below)),
            Some((field, _)) => Err(FieldError::new(
                ErrorCode::UnsupportedField,
                format!("defaults.{field}"),
                "this is each step's own and has no default: leave it out of `defaults`",
            )),
        }
    }
}

/// A list, or that below if it is empty.
fn or_below<T>(own: Vec<T>, below: Vec<T>) -> Vec<T> {
    match own.is_empty() {
        true => below,
        false => own,
    }
}

impl ResourceSettings {
    fn over(self, below: ResourceSettings) -> Self {
        let mut pool_resources = below.pool_resources;
        pool_resources.extend(self.pool_resources);
        Self {
            // Whole GPUs and slices are two forms of one setting.
            gpu_count: self
                .gpu_count
                .or(below.gpu_count.filter(|_| self.mig.is_none())),
            mig: self.mig.or(below.mig.filter(|_| self.gpu_count.is_none())),
            cpu_count: self.cpu_count.or(below.cpu_count),
            memory: self.memory.or(below.memory),
            preemptible: self.preemptible.or(below.preemptible),
            pool_resources,
            min_replicas: self.min_replicas.or(below.min_replicas),
            max_replicas: self.max_replicas.or(below.max_replicas),
            autoscaling_metric: self.autoscaling_metric.or(below.autoscaling_metric),
            autoscaling_target: self.autoscaling_target.or(below.autoscaling_target),
            max_concurrency: self.max_concurrency.or(below.max_concurrency),
            storage: self.storage.or(below.storage),
            gpu_class: self.gpu_class.or(below.gpu_class),
            resources: self.resources.or(below.resources),
            reclaim_tolerance: self.reclaim_tolerance.or(below.reclaim_tolerance),
            allocation_wait_timeout_seconds: self
                .allocation_wait_timeout_seconds
                .or(below.allocation_wait_timeout_seconds),
            initialization_lease_seconds: self
                .initialization_lease_seconds
                .or(below.initialization_lease_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::{PriorityClass, WorkKind};
    use alloc::boxed::Box;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn request(json: &str) -> StepRequest {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_step_s_own_settings_override_its_pipeline_s_field_by_field() {
        let step = request(
            r#"{"id":"a","command":["train"],"env":{"A":"own"},"labels":{"team":"own"},"retries":0,"resources":{"gpu_count":0},
               "defaults":{"command":["idle"],"env":{"A":"below","B":"below"},"labels":{"team":"b","run":"b"},"retries":3,"timeout":"1h",
                 "resources":{"gpu_count":4,"memory":"8GiB","pool_resources":{"licence":1}}}}"#,
        );
        let spec = step.check().unwrap();
        assert_eq!(spec.command, ["train"]);
        assert_eq!(
            (spec.env["A"].as_str(), spec.env["B"].as_str()),
            ("own", "below")
        );
        let labels: Vec<&str> = spec.labels.values().map(|value| value.as_str()).collect();
        assert_eq!(labels, ["b", "own"], "by key");
        assert_eq!(spec.retries, 0, "zero is a value");
        assert_eq!(
            (spec.request.get("mgpu"), spec.request.get("licence")),
            (0, 1)
        );
        assert_eq!(spec.request.get("memory_mb"), 8590);
        assert_eq!(spec.timeout.unwrap().to_string(), "1h");
    }

    #[test]
    fn what_is_each_step_s_own_has_no_default() {
        for field in [r#""id":"x""#, r#""kind":"step""#, r#""defaults":{}"#] {
            let json = alloc::format!(r#"{{"command":["a"],"defaults":{{{field}}}}}"#);
            let error = request(&json).check().unwrap_err();
            assert_eq!(error.code, ErrorCode::UnsupportedField);
            assert!(error.field.starts_with("defaults."), "{error}");
        }
    }

    #[test]
    fn a_class_below_yields_to_what_is_written_above() {
        let step = request(
            r#"{"command":["a"],"resources":{"preemptible":false},"defaults":{"priority_class":"low"}}"#,
        );
        assert!(!step.check().unwrap().preemptible);
    }

    fn requests() -> impl Strategy<Value = StepRequest> {
        let texts = || proptest::option::of("[a-c]");
        let maps = || proptest::collection::btree_map("[A-C]", "[a-c]", 0..3);
        let amounts = proptest::collection::btree_map("[a-c]", 0u64..3, 0..3);
        let gives_way = (
            proptest::option::of(prop_oneof![
                Just(PriorityClass::High),
                Just(PriorityClass::Low)
            ]),
            proptest::option::of(any::<bool>()),
        );
        let numbers = (proptest::option::of(0u32..3), proptest::option::of(0u64..3));
        let work = proptest::option::of(prop_oneof![
            Just(WorkKind::Training),
            Just(WorkKind::Notebook)
        ]);
        let command = proptest::collection::vec("[a-c]", 0..2);
        (
            texts(),
            (maps(), maps()),
            amounts,
            gives_way,
            numbers,
            work,
            command,
            texts(),
        )
            .prop_map(
                |(
                    pool,
                    (env, labels),
                    pool_resources,
                    (priority_class, preemptible),
                    (retries, gpu_count),
                    work,
                    command,
                    timeout,
                )| {
                    let resources = ResourceSettings {
                        gpu_count,
                        preemptible,
                        pool_resources,
                        ..ResourceSettings::default()
                    };
                    StepRequest {
                        pool,
                        env: env.into_iter().collect(),
                        labels,
                        resources: resources.into(),
                        priority_class,
                        retries,
                        work,
                        command: command as Vec<String>,
                        timeout,
                        ..StepRequest::default()
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn layers_may_be_joined_in_any_grouping(a in requests(), b in requests(), c in requests()) {
            let left = a.clone().over(b.clone()).over(c.clone());
            prop_assert_eq!(left, a.over(b.over(c)));
        }

        #[test]
        fn settings_over_themselves_are_themselves(a in requests()) {
            prop_assert_eq!(a.clone().over(a.clone()), a);
        }

        #[test]
        fn nothing_below_changes_nothing(a in requests()) {
            let with = StepRequest { defaults: Some(Box::default()), ..a.clone() };
            prop_assert_eq!(with.with_defaults().unwrap(), a);
        }
    }
}

//! Documents that can be applied again: the writable fields of a view, and under `status` the rest.

use serde::Serialize;
use serde_json::{Map, Value};
use sluice_common::access::{BindingSpec, RoleSpec};
use sluice_common::api::{
    BindingView, ClusterView, PolicyView, PoolView, RoleView, StepView, TemplateView, TopologyView,
    ValidationView,
};
use sluice_common::cluster::ClusterSpec;
use sluice_common::platform::spec::PlatformSpec;
use sluice_common::pool::PoolSpec;
use sluice_common::pool_rules::Setting;
use sluice_common::request::StepRequest;
use sluice_common::topology::TopologySpec;
use sluice_common::validation::ValidationSpec;

use super::platform::PoolPlatform;

/// The document of a thing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApplyDocument {
    /// Kind of the document.
    pub(crate) kind: &'static str,
    /// Writable fields; empty ones are left out.
    pub(crate) fields: Map<String, Value>,
    /// Names that mean one thing in the document and another in the view.
    ambiguous: &'static [&'static str],
}

impl ApplyDocument {
    fn new<const N: usize>(
        kind: &'static str,
        names: [(&str, &str); N],
        terms: &impl Serialize,
    ) -> Self {
        let mut fields = match serde_json::to_value(terms) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) | Err(_) => Map::new(),
        };
        let named = names.map(|(key, name)| (key.to_owned(), Value::from(name)));
        fields.extend(named);
        fields.retain(|_, value| says_something(value));
        let ambiguous = &[];
        Self {
            kind,
            fields,
            ambiguous,
        }
    }

    /// Whether YAML shows the plain view too: a step is submitted and not applied.
    pub(crate) fn is_flat(&self) -> bool {
        self.kind == "step"
    }

    /// Adds the rest of the view as `status`.
    pub(crate) fn with_status(
        self,
        view: &impl Serialize,
    ) -> Result<DocumentWithStatus, serde_json::Error> {
        let Value::Object(mut status) = serde_json::to_value(view)? else {
            unreachable!("a thing that is listed has fields");
        };
        let told = |name: &str| self.fields.contains_key(name) && !self.ambiguous.contains(&name);
        status.retain(|name, value| !told(name) && says_something(value));
        Ok(DocumentWithStatus {
            kind: self.kind,
            fields: self.fields,
            status,
        })
    }
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// A document with its status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DocumentWithStatus {
    kind: &'static str,
    #[serde(flatten)]
    fields: Map<String, Value>,
    status: Map<String, Value>,
}

pub(super) fn pool(view: &PoolView) -> ApplyDocument {
    let request = PoolSpec {
        capacity: view.declared.clone(),
        unmatched_platform: view.unmatched_platform,
        platforms: Some(view.declared_platforms.clone()),
        ..view.spec.clone()
    };
    ApplyDocument {
        ambiguous: &["capacity", "platforms"],
        ..ApplyDocument::new("pool", [("name", &view.name)], &request)
    }
}

pub(super) fn policy(view: &PolicyView) -> ApplyDocument {
    let names = [
        ("pool", view.pool.as_str()),
        ("subject", view.subject.as_str()),
    ];
    ApplyDocument::new("policy", names, &view.spec)
}

pub(super) fn platform(view: &PoolPlatform) -> ApplyDocument {
    let terms = PlatformSpec {
        description: view.description.clone(),
        selector: view.selector.clone(),
        overrides: view.overrides.clone(),
        mig: view.mig.clone(),
        validations: view.validations.clone(),
        taint: view.taint,
    };
    let names = [("pool", view.pool.as_str()), ("name", view.name.as_str())];
    ApplyDocument::new("platform", names, &terms)
}

pub(super) fn template(view: &TemplateView) -> ApplyDocument {
    let TemplateView {
        name,
        template,
        pools: _,
        version: _,
    } = view;
    let mut document = ApplyDocument::new("template", [("name", name)], template);
    // An empty list is a value here.
    if let Ok(Value::Object(said)) = serde_json::to_value(template) {
        document.fields.extend(said);
    }
    document
}

pub(super) fn cluster(view: &ClusterView) -> ApplyDocument {
    let terms = ClusterSpec {
        default_pool: view.default_pool.clone(),
        subjects: view.subjects.clone(),
    };
    ApplyDocument::new("cluster", [], &terms)
}

pub(super) fn topology(view: &TopologyView) -> ApplyDocument {
    let terms = TopologySpec {
        levels: view.levels.clone(),
    };
    ApplyDocument::new("topology", [], &terms)
}

pub(super) fn validation(view: &ValidationView) -> ApplyDocument {
    let terms = ValidationSpec {
        description: view.description.clone(),
        assertions: view.assertions.clone(),
    };
    ApplyDocument::new("validation", [("name", &view.name)], &terms)
}

pub(super) fn role(view: &RoleView) -> ApplyDocument {
    let terms = RoleSpec {
        description: view.description.clone(),
        rules: view.rules.clone(),
    };
    ApplyDocument::new("role", [("name", &view.name)], &terms)
}

pub(super) fn binding(view: &BindingView) -> ApplyDocument {
    let terms = BindingSpec {
        description: view.description.clone(),
        roles: view.roles.clone(),
        pools: view.pools.clone(),
        subjects: view.subjects.clone(),
        members: view.members.clone(),
    };
    ApplyDocument::new("binding", [("name", &view.name)], &terms)
}

/// Returns the document of a new step like this one, without its id.
pub(super) fn step(view: &StepView) -> ApplyDocument {
    let said = |setting: Setting| !view.unset.contains(&setting);
    let ordered = view.priority != 0 || view.priority_class.is_some();
    let of = |setting: Setting, text: &Option<String>| text.clone().filter(|_| said(setting));
    let level = |required: bool| {
        let within = view.within.as_ref().filter(|it| it.required == required);
        within.map(|within| within.level.to_string())
    };
    let request = StepRequest {
        name: Some(view.name.clone()),
        subject: Some(view.subject.clone()),
        pool: view
            .moved_to
            .clone()
            .or_else(|| view.requested_pool.clone()),
        platform: view.platform.clone(),
        command: view.command.clone(),
        env: view.env.clone(),
        workdir: view.workdir.clone(),
        prefer_workdir: view.prefer_workdir.clone(),
        image: view.image.clone(),
        resources: view.resources.clone(),
        nodes: (view.nodes != 1).then_some(view.nodes),
        within: level(true),
        prefer_within: level(false),
        priority: ordered.then_some(view.priority),
        retries: said(Setting::Retries).then_some(view.retries),
        timeout: of(Setting::Timeout, &view.timeout),
        grace_period: said(Setting::GracePeriod).then(|| view.grace_period.clone()),
        on_preempt: said(Setting::OnPreempt).then_some(view.on_preempt),
        allow_pending: view.allow_pending.then_some(true),
        free_preemptions: (!view.free_preemptions).then_some(false),
        priority_class: view.priority_class,
        work: view.work,
        suspend_timeout: view.suspend_timeout.clone(),
        queue_timeout: of(Setting::QueueTimeout, &view.queue_timeout),
        begin: view.begin.map(|at| at.to_string()),
        deadline: view.deadline.map(|at| at.to_string()),
        after: view.after.clone(),
        array: view.array.as_ref().map(|it| it.indexes.to_string()),
        labels: view.labels.clone(),
        cpu_mode: said(Setting::CpuMode).then_some(view.cpu_mode),
        mounts: view.mounts.clone(),
        privileged: view.privileged.then_some(true),
        host_network: view.host_network.then_some(true),
        stdin: view.stdin.clone().filter(|_| !view.terminal),
        stdout: view.stdout.clone(),
        stderr: view.stderr.clone(),
        append: view.append.then_some(true),
        terminal: view.terminal.then_some(true),
        inputs: view.inputs.clone(),
        keep: view.keep.clone(),
        ports: view.ports.clone(),
        probes: view.probes.clone(),
        ..StepRequest::default()
    };
    let mut document = ApplyDocument::new("step", [], &request);
    if let Ok(mounts) = serde_json::to_value(&request.mounts) {
        document
            .fields
            .extend((!mounts.is_null()).then(|| ("mounts".to_owned(), mounts)));
    }
    document
}

//! Pod templates of OSMO: of a Kubernetes pod, the parts that a template or a platform of ours has. Everything else is
//! refused by its name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::super::fields::{ForeignFields, Refusal};
use crate::render::safe;

/// Variables that OSMO fills in for each task, with those of our templates.
const TASK_VARIABLES: [(&str, &str); 8] = [
    ("USER_CPU", "{{cpu_count}}"),
    ("USER_GPU", "{{gpu_count}}"),
    ("WF_ID", "{{step}}"),
    ("WF_UUID", "{{step}}"),
    ("WF_TASK_NAME", "{{name}}"),
    ("WF_SUBMITTED_BY", "{{subject}}"),
    ("WF_POOL", "{{pool}}"),
    ("WF_PLATFORM", "{{platform}}"),
];

/// Variables for amounts of a step, with the names of the amounts.
const AMOUNTS: [(&str, &str); 4] = [
    ("USER_CPU", "cpu_count"),
    ("USER_GPU", "gpu_count"),
    ("USER_MEMORY", "memory"),
    ("USER_STORAGE", "storage"),
];

/// Amounts of a container that are what the step asked for.
const ASKED: [(&str, &str); 4] = [
    ("cpu", "{{USER_CPU}}"),
    ("nvidia.com/gpu", "{{USER_GPU}}"),
    ("memory", "{{USER_MEMORY}}"),
    ("ephemeral-storage", "{{USER_STORAGE}}"),
];

/// Labels that Kubernetes and NVIDIA's operator give a node, with the facts of ours.
const FACTS: [(&str, &str); 3] = [
    ("kubernetes.io/hostname", "sluice/hostname"),
    ("nvidia.com/gpu.product", "sluice/gpu.product"),
    ("nvidia.com/gpu.count", "sluice/gpu.count"),
];

/// Name of OSMO's own container beside that of the user.
const CONTROL: &str = "osmo-ctrl";

const NO_PODS: &str =
    "there are no pods: remove it, or write a wrapper in a template of ours (docs/templates.md)";

const SPEC_REFUSALS: &[Refusal] = &[
    (
        "affinity",
        "write `nodeSelector`, or a platform of ours with a selector",
    ),
    (
        "securityContext",
        "a step runs as a user of its host, confined by its control groups: remove it",
    ),
    (
        "hostNetwork",
        "a step uses the network of its host: remove it",
    ),
    (
        "imagePullSecrets",
        "a step uses the login of its host's container runtime: remove it",
    ),
    (
        "priorityClassName",
        "the priority is that of a subject in a pool: write it into its policy, and remove it",
    ),
    ("runtimeClassName", NO_PODS),
    (
        "initContainers",
        "write `hooks` in a template of ours, and remove it",
    ),
    ("serviceAccountName", NO_PODS),
];

const CONTAINER_REFUSALS: &[Refusal] = &[
    ("image", "an image is that of a step: remove it"),
    (
        "command",
        "write a `wrapper` in a template of ours, and remove it",
    ),
    (
        "args",
        "write a `wrapper` in a template of ours, and remove it",
    ),
    (
        "securityContext",
        "a step runs as a user of its host, confined by its control groups: remove it",
    ),
    (
        "lifecycle",
        "write `hooks` in a template of ours, and remove it",
    ),
    ("envFrom", "write the variables into `env`"),
];

/// The parts of a pod template that have a counterpart; texts may contain variables.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ForeignTemplate {
    /// Path in the file.
    path: String,
    env: BTreeMap<String, String>,
    mounts: Vec<Value>,
    /// Labels of the hosts that it chooses.
    labels: BTreeMap<String, String>,
    /// Whether hosts with a taint are chosen too, which keep out those without this template.
    pub(super) tolerates: bool,
}

impl ForeignTemplate {
    pub(super) fn read(
        mut template: ForeignFields,
        notes: &mut Vec<String>,
    ) -> Result<Self, String> {
        let mut made = Self {
            path: template.path_of_all(),
            ..Self::default()
        };
        template.refuse(&[
            ("metadata", "steps have labels of their own: remove it"),
            ("apiVersion", NO_PODS),
            ("kind", NO_PODS),
        ])?;
        let Some(mut spec) = template.object("spec")? else {
            template.end()?;
            return Ok(made);
        };
        template.end()?;
        made.labels = spec.text_map("nodeSelector")?;
        made.tolerates = tolerations(&mut spec)?;
        let volumes = volumes(&mut spec)?;
        for container in spec.objects("containers")? {
            made.container(container, &volumes, notes)?;
        }
        spec.refuse(SPEC_REFUSALS)?;
        spec.end()?;
        Ok(made)
    }

    fn container(
        &mut self,
        mut container: ForeignFields,
        volumes: &BTreeMap<String, String>,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        let name = container.needed("name")?;
        if name == CONTROL {
            let path = container.path_of_all();
            notes.push(format!(
                "{path}: `{CONTROL}` is OSMO's own program, which is not there: it is left out"
            ));
            return Ok(());
        }
        for mut variable in container.objects("env")? {
            let name = variable.needed("name")?;
            variable.refuse(&[("valueFrom", "write a `value`")])?;
            let value = variable.text("value")?.unwrap_or_default();
            variable.end()?;
            self.env.insert(name, value);
        }
        if let Some(mut resources) = container.object("resources")? {
            for table in ["limits", "requests"] {
                for (key, value) in resources.text_map(table)? {
                    let is_asked = |(own, text): &(&str, &str)| {
                        *own == key && text.replace(' ', "") == value.replace(' ', "")
                    };
                    if !ASKED.iter().any(is_asked) {
                        let way = "a step holds what it asks for: write a default as `USER_CPU` and the like of `default_variables`, and remove it";
                        let path = resources.path(table);
                        return Err(format!("{path}.{}: `{}`: {way}", safe(&key), safe(&value)));
                    }
                }
            }
            resources.end()?;
        }
        self.mount(container.objects("volumeMounts")?, volumes)?;
        container.refuse(CONTAINER_REFUSALS)?;
        container.end()
    }

    fn mount(
        &mut self,
        mounts: Vec<ForeignFields>,
        volumes: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        for mut mount in mounts {
            let volume = mount.needed("name")?;
            let target = mount.needed("mountPath")?;
            let read_only = mount.flag("readOnly")?;
            let source = volumes.get(&volume).ok_or_else(|| {
                mount.wrong(
                    "name",
                    &volume.clone().into(),
                    "no volume of `spec.volumes` has this name",
                )
            })?;
            mount.end()?;
            self.mounts.push(
                json!({"name": volume, "source": source, "target": target, "read_only": read_only}),
            );
        }
        Ok(())
    }

    /// Whether it chooses hosts.
    pub(super) fn selects(&self) -> bool {
        !self.labels.is_empty() || self.tolerates
    }

    /// Whether what is left of it for a template of ours has variables of pools or platforms.
    pub(super) fn has_variables(&self) -> bool {
        let mounts = self
            .mounts
            .iter()
            .flat_map(|mount| mount["source"].as_str());
        let mut texts = self.env.values().map(String::as_str).chain(mounts);
        texts.any(|text| text.contains("{{"))
    }

    /// Returns the fields of a template of ours.
    pub(super) fn fields(&self, variables: &Variables) -> Result<Map<String, Value>, String> {
        let mut fields = Map::new();
        if !self.env.is_empty() {
            let env = self.env.iter().map(|(name, value)| {
                let path = format!("{}: variable `{}`", self.path, safe(name));
                Ok((name.clone(), variables.fill(value, &path)?.into()))
            });
            fields.insert(
                "env".to_owned(),
                Value::Object(env.collect::<Result<_, String>>()?),
            );
        }
        if !self.mounts.is_empty() {
            let mounts = self.mounts.iter().map(|mount| {
                let mut mount = mount.clone();
                let source = mount["source"].as_str().unwrap_or_default();
                let name = mount["name"].as_str().unwrap_or_default();
                let path = format!("{}: volume `{}`", self.path, safe(name));
                mount["source"] = variables.fill(source, &path)?.into();
                Ok(mount)
            });
            fields.insert(
                "mounts".to_owned(),
                Value::Array(mounts.collect::<Result<_, String>>()?),
            );
        }
        Ok(fields)
    }
}

/// Reads tolerations; returns whether there is one.
fn tolerations(spec: &mut ForeignFields) -> Result<bool, String> {
    let mut any = false;
    for mut toleration in spec.objects("tolerations")? {
        toleration.text("key")?;
        toleration.text("operator")?;
        toleration.text("value")?;
        match toleration.text("effect")?.as_deref() {
            None | Some("NoSchedule") => any = true,
            Some(other) => {
                let way = "a taint keeps new steps off and stops none: write `NoSchedule`, and `sluice drain NODE` to empty a node";
                return Err(toleration.wrong("effect", &other.into(), way));
            }
        }
        toleration.end()?;
    }
    Ok(any)
}

/// Reads volumes that are directories of the host, by name.
fn volumes(spec: &mut ForeignFields) -> Result<BTreeMap<String, String>, String> {
    let mut volumes = BTreeMap::new();
    for mut volume in spec.objects("volumes")? {
        let name = volume.needed("name")?;
        let Some(mut path) = volume.object("hostPath")? else {
            let way =
                "only `hostPath` has a counterpart: mount it on each host, and write its path";
            return Err(volume.wrong("name", &name.into(), way));
        };
        path.text("type")?;
        volumes.insert(name, path.needed("path")?);
        path.end()?;
        volume.end()?;
    }
    Ok(volumes)
}

/// Puts the fields of a later template over those of an earlier one: maps key by key, lists by name.
pub(super) fn merge(below: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (below.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(over)) => below.extend(over),
            (Some(Value::Array(below)), Value::Array(over)) => {
                below.retain(|item| {
                    !over
                        .iter()
                        .any(|it| !it["name"].is_null() && it["name"] == item["name"])
                });
                below.extend(over);
            }
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

/// Returns the selector of a platform that these templates choose.
pub(super) fn selector(
    templates: &[&ForeignTemplate],
    variables: &Variables,
) -> Result<Map<String, Value>, String> {
    let mut selector = Map::new();
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for template in templates {
        for (key, value) in &template.labels {
            let path = format!("{}.spec.nodeSelector.{}", template.path, safe(key));
            let value = variables.fill(value, &path)?;
            if key == "kubernetes.io/arch" {
                selector.insert("arch".to_owned(), value.into());
                continue;
            }
            let fact = FACTS.iter().find(|(theirs, _)| theirs == key);
            let key = fact.map_or(key.as_str(), |(_, ours)| ours);
            labels.insert(key.to_owned(), value);
        }
    }
    if !labels.is_empty() {
        let labels: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        selector.insert("labels".to_owned(), labels.join(",").into());
    }
    Ok(selector)
}

/// Default variables of a pool or a platform.
#[derive(Clone, Debug, Default)]
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    pub(super) fn read(fields: &mut ForeignFields, name: &'static str) -> Result<Self, String> {
        fields.text_map(name).map(Self)
    }

    /// Returns them with others, which count more.
    pub(super) fn with(&self, others: &Self) -> Self {
        let all = self.0.iter().chain(&others.0);
        Self(
            all.map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }

    /// Returns the amounts that a step holds if it asks for none.
    pub(super) fn amounts(&self) -> Result<Option<Map<String, Value>>, String> {
        let mut amounts = Map::new();
        for (variable, name) in AMOUNTS {
            let Some(text) = self.0.get(variable) else {
                continue;
            };
            let value = match name {
                "memory" | "storage" => text.clone().into(),
                "gpu_count" if text == "0" => continue,
                _ => {
                    let number: Result<serde_json::Number, _> = text.parse();
                    let wrong = |_| format!("{variable}: `{}`: write a number", safe(text));
                    number.map_err(wrong)?.into()
                }
            };
            amounts.insert(name.to_owned(), value);
        }
        Ok((!amounts.is_empty()).then_some(amounts))
    }

    /// Fills in the variables of a text. Messages name its place `path` and do not show it, because it may be a secret.
    fn fill(&self, text: &str, path: &str) -> Result<String, String> {
        if text.contains("{%") {
            let way = "there is no Jinja but `{{VARIABLE}}`: write the value";
            return Err(format!("{path}: {way}"));
        }
        let mut parts = text.split("{{");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let Some((name, rest)) = part.split_once("}}") else {
                return Err(format!("{path}: `{{{{` is not closed"));
            };
            let name = name.trim();
            let of_task = TASK_VARIABLES.iter().find(|(theirs, _)| *theirs == name);
            let of_task = of_task.map(|(_, ours)| *ours);
            // The default of an amount is not what a step holds.
            let is_amount = AMOUNTS.iter().any(|(variable, _)| *variable == name);
            let own = self.0.get(name).filter(|_| !is_amount);
            let value = of_task.or(own.map(String::as_str));
            filled += value.ok_or_else(|| self.unknown(name, path))?;
            filled += rest;
        }
        Ok(filled)
    }

    fn unknown(&self, name: &str, path: &str) -> String {
        let known = self.0.keys().cloned();
        let of_task = TASK_VARIABLES.iter().map(|(name, _)| (*name).to_owned());
        let known: BTreeSet<String> = known.chain(of_task).collect();
        format!(
            "{path}: there is no variable `{}`: write it into `default_variables` of the platform, or use one of {}",
            safe(name),
            quoted(&known)
        )
    }
}

/// Returns names without repetition, for messages.
fn quoted(names: &BTreeSet<String>) -> String {
    let names: Vec<String> = names
        .iter()
        .map(|name| format!("`{}`", safe(name)))
        .collect();
    names.join(", ")
}

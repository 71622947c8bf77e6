//! Tests of files of other tools: what each comes to, that our own readers take it, and what is refused.

use serde_json::{Map, Value, json};

use super::{TranslationItem, translate};
use crate::documents;

fn fields(text: &str) -> Map<String, Value> {
    let mut values: Vec<Value> = documents::values(text, "f.yaml").unwrap();
    assert_eq!(values.len(), 1, "{text}");
    values.remove(0).as_object().cloned().unwrap()
}

/// Returns the documents of a file, one a line, then the notes.
fn told(text: &str) -> String {
    let translation = translate(&fields(text))
        .expect("it is known")
        .expect("it is translated");
    let documents = translation.documents.iter().map(|document| match document {
        TranslationItem::Document(fields) => Value::Object(fields.clone()).to_string(),
        TranslationItem::Foreign(document) => format!("{document:?}"),
    });
    let lines: Vec<String> = documents.chain(translation.notes).collect();
    // Our own readers take it.
    if let Err(error) = documents::placed(text, "f.yaml") {
        panic!("{error}");
    }
    lines.join("\n")
}

/// Returns why a file is refused.
fn refused(text: &str) -> String {
    translate(&fields(text))
        .expect("it is known")
        .expect_err(text)
}

const JOB: &str = "kind: training
version: v0.1
job: {name: sft, namespace: team-alice, priority: high, description: fine-tuning}
environment:
  image: python:3.12
  command: [python]
  args: [train.py, --lr, 0.1]
  env: [{name: EPOCHS, value: 3}, {name: MODE, value: fast}]
resources: {pool: training-pool, gpu: 4, gpu-type: A100-80G, cpu: 500m, memory: 128Gi}
storage: {workdirs: [{path: /data/sets}]}
";

#[test]
fn files_of_gpuctl_are_read_as_they_are() {
    insta::assert_snapshot!("gpuctl_job", told(JOB));
    let service = "kind: inference\njob: {name: chat}\nenvironment: {command: [serve, --port, \"8000\"]}\n\
                   service: {replicas: 3, port: 8000, healthCheck: /health, timeout: 30s}\n\
                   resources: {gpu: 1, cpu: 8, memory: 32Gi, gpuType: RTX4090-24G}\n";
    insta::assert_snapshot!("gpuctl_service", told(service));
    let notebook = "kind: notebook\njob: {name: lab, priority: high}\n\
                    environment: {image: jupyter, command: [jupyter, lab, --ip=0.0.0.0, --port=8888]}\n\
                    resources: {gpu: 1, cpu: 8, memory: 32Gi}\nstorage: {workdirs: [{path: /home/jovyan/work}]}\n";
    insta::assert_snapshot!("gpuctl_notebook", told(notebook));
    let pool = "kind: pool\nversion: v0.1\npool: {name: training, description: big}\n\
                nodes: {node-1: {gpu-type: A100-80G}, node-2: {gpuType: \"\"}, node-3: }\n";
    insta::assert_snapshot!("gpuctl_pool", told(pool));
    let quota = "kind: quota\nversion: v0.1\nquota: {name: teams}\ndefault: {cpu: 4}\n\
                 namespace: {team-alice: {cpu: 16, memory: 64Gi, gpu: \"8\"}}\n";
    insta::assert_snapshot!("gpuctl_quota", told(quota));
}

#[test]
fn a_job_of_gpuctl_that_serves_nothing_is_a_step_or_a_service_without_a_port() {
    let of_kind = |kind: &str, rest: &str| {
        let text =
            format!("kind: {kind}\njob: {{name: a}}\nenvironment: {{command: [b]}}\n{rest}\n");
        let translation = translate(&fields(&text)).unwrap().unwrap();
        let Some(TranslationItem::Document(fields)) = translation.documents.into_iter().next()
        else {
            panic!("{text}");
        };
        Value::Object(fields)
    };
    assert_eq!(of_kind("compute", "")["kind"], "compute");
    assert_eq!(of_kind("training", "")["kind"], "training");
    for (kind, rest, replicas) in [
        ("inference", "", 1),
        ("inference", "service: {replicas: 2}", 2),
        ("compute", "service: {replicas: 3}", 3),
    ] {
        let service = of_kind(kind, rest);
        assert_eq!(service["kind"], "service", "{service}");
        assert_eq!(service["work"], kind, "{service}");
        assert_eq!(service["replicas"], replicas, "{service}");
        assert_eq!(service.get("ports"), None, "{service}");
    }
}

#[test]
fn what_gpuctl_has_and_sluice_not_is_refused_by_name() {
    let job = |fields: &str| {
        format!("kind: compute\njob: {{name: a}}\nenvironment: {{command: [b]}}\n{fields}\n")
    };
    for (text, told) in [
        (job("service: {healthCheck: health}"), "service.healthCheck: `health`: write a path, such as `/health`"),
        (job("service: {healthCheck: /health}"), "service.port: `8000`: neither the command nor a variable such as `PORT` has it"),
        (job("service: {timeout: 3s}"), "service.timeout: `3s`: it is that of `healthCheck`, which is missing"),
        (job("service: {port: 0}"), "service.port: `0`: write a number from 1 to 65535"),
        (job("service: {port: 80}"), "write it there (`--port 80`), and the port that its host gives takes its place"),
        ("kind: notebook\njob: {name: a}\nenvironment: {command: [jupyter, lab]}\n".to_owned(), "service.port: `8888`: neither the command"),
        ("kind: notebook\njob: {name: a}\nenvironment: {command: [b]}\nservice: {replicas: 2}\n".to_owned(), "service.replicas: `2`: a notebook has one"),
        ("kind: training\njob: {name: a}\nenvironment: {command: [b]}\nservice: {port: 80}\n".to_owned(), "service: `{...}`: gpuctl reads it for the other kinds alone"),
        (job("resources: {gpuShare: 2Gi}"), "resources.gpuShare: `2Gi`: GPUs are granted whole"),
        (job("resources: {cpu: many}"), "resources.cpu: `many`: write a number of cores"),
        (job("resources: {gpu: -1}"), "resources.gpu: `-1`: write a whole number from 0"),
        (job("resources: {gpus: 1}"), "resources.gpus: `1`: no field of gpuctl is known by this name: did you mean `gpu`?"),
        (job("model: {name: llama}"), "model: `{...}`: no registry of models"),
        (job("service: {replicas: 0}"), "service.replicas: `0`: write a number from 1"),
        ("kind: compute\njob: {name: a, epochs: 3}\nenvironment: {command: [b]}\n".to_owned(), "job.epochs: `3`: gpuctl does not read it"),
        ("kind: compute\njob: {name: a, priority: urgent}\nenvironment: {command: [b]}\n".to_owned(), "job.priority: `urgent`: write `high`"),
        ("kind: compute\njob: {name: a}\nenvironment: {image: b}\n".to_owned(), "environment.command: it is missing"),
        ("kind: compute\njob: {name: a}\nenvironment: {command: [b], imagePullSecret: c}\n".to_owned(), "environment.imagePullSecret: a step uses the login"),
        ("kind: compute\njob: {name: a}\nenvironment: {command: [b], env: [{name: A, value: [secret]}]}\n".to_owned(), "environment.env[0].value: write a text"),
        ("kind: pool\npool: {name: a}\nnodes: {b: {gpu-type: [c]}}\n".to_owned(), "nodes.b.gpu-type: `[...]`: write a text"),
        ("kind: pool\npool: {description: a}\n".to_owned(), "pool.name: it is missing"),
        ("kind: quota\nquota: {name: a}\n".to_owned(), "namespace: it is missing"),
        ("kind: quota\nnamespace: {default: {gpu: 1}}\ndefault: {gpu: 2}\n".to_owned(), "default: it is there as `namespace.default` too"),
        ("kind: quota\nnamespace: {a: {memory: lots}}\n".to_owned(), "namespace.a: "),
        (job("resources: {gpu: 1, accelerator_count: 2}"), "resources.accelerator_count: it is there as `gpu` too"),
        ("kind: compute\njob: {name: a}\nenvironment: {command: [b], env: [{name: A, value: 1}, {name: A, value: 2}]}\n".to_owned(), "environment.env[1].name: it is there twice"),
    ] {
        let error = refused(&text);
        assert!(error.contains(told), "{text}: {error}");
    }
}

const EXPERIMENT: &str = "name: const
description: a trial
workspace: research
project: vision
labels: [mnist]
entrypoint: python train.py
max_restarts: 2
environment:
  image: {cuda: torch:gpu, cpu: torch:cpu}
  environment_variables: [EPOCHS=3, OPTIONS=a=b]
resources: {resource_pool: gpu, slots_per_trial: 4}
bind_mounts: [{host_path: /data, container_path: /in, read_only: true}]
searcher: {name: single, metric: loss}
timeout: 2h
";

const MASTER: &str = "resource_manager:
  type: agent
  scheduler: {type: priority}
  default_aux_resource_pool: cpu
  default_compute_resource_pool: gpu
resource_pools:
- {pool_name: cpu}
- pool_name: gpu
  description: big
  scheduler: {type: fair_share, fitting_policy: worst}
  task_container_defaults: {environment_variables: [NCCL_DEBUG=WARN]}
";

#[test]
fn files_of_determined_are_read_as_they_are() {
    insta::assert_snapshot!("determined_experiment", told(EXPERIMENT));
    insta::assert_snapshot!("determined_master", told(MASTER));
    let task =
        "description: shell\nresources: {slots: 0, resource_pool: cpu}\nentrypoint: [sleep, 60]\n";
    insta::assert_snapshot!("determined_task", told(task));
    let step = "kind: step\ncommand: [a]\nresources: {slots: 2, memory: 4GiB}\n";
    insta::assert_snapshot!("determined_step", told(step));
}

#[test]
fn what_determined_has_and_sluice_not_is_refused_by_name() {
    for (text, told) in [
        (
            "entrypoint: a\nsearcher: {name: adaptive_asha}\n",
            "searcher.name: `adaptive_asha`: only `single` is one step",
        ),
        (
            "entrypoint: a\nhyperparameters: {lr: 1}\n",
            "hyperparameters: `{...}`: write them into `entrypoint`",
        ),
        (
            "entrypoint: a\nresources: {priority: 10}\n",
            "resources.priority: `10`: the priority is that of a subject",
        ),
        (
            "entrypoint: a\nresources: {slots: 1, slots_per_trial: 2}\n",
            "resources.slots_per_trial: `2`: it is there as `slots` too",
        ),
        (
            "entrypoint: a\nresources: {slots: many}\n",
            "resources.slots: `many`: write a whole number",
        ),
        (
            "entrypoint: a\nenvironment: {registry_auth: {password: hunter2}}\n",
            "environment.registry_auth: ",
        ),
        (
            "entrypoint: a\nenvironment: {environment_variables: [SECRET]}\n",
            "environment.environment_variables: write a list of `NAME=VALUE`",
        ),
        (
            "entrypoint: a\ncommand: [b]\n",
            "command: it is there as `entrypoint` too: write it once",
        ),
        (
            "entrypoint: a\nworkspace: b\nsubject: c\n",
            "subject: it is there as `workspace` too",
        ),
        (
            "entrypoint: a\nresources: {resource_pool: b}\npool: c\n",
            "pool: it is there as `resources.resource_pool` too",
        ),
        (
            "entrypoint: a\nresources: {slots: 1, gpu_count: 2}\n",
            "resources.gpu_count: it is there as `slots` too",
        ),
        (
            "entrypoint: a\nproject: b\nlabels: {project: c}\n",
            "project: it is there as `labels.project` too",
        ),
        (
            "entrypoint: a\nenvironment: {image: {tpu: b}}\n",
            "environment.image.tpu: there is no such kind of slot: write cpu, cuda",
        ),
        (
            "entrypoint: a\nresources: {slots: 1}\nenvironment: {image: {cuda: b, gpu: c}}\n",
            "environment.image.gpu: it is there as `cuda` too",
        ),
        (
            "entrypoint: a\nenvironment: {environment_variables: A=b}\n",
            "environment.environment_variables: write a list of `NAME=VALUE`",
        ),
        (
            "entrypoint: a\nenvironment: {environment_variables: [A=b, A=c]}\n",
            "environment.environment_variables: `A` is there twice",
        ),
        (
            "resource_manager: {scheduler: {type: fair_share, preemption: true}}\n",
            "resource_manager.scheduler.preemption: `true`: it belongs to `type: priority`",
        ),
        (
            "resource_pools: [{pool_name: a, provider: {type: aws}}]\n",
            "resource_pools[0].provider: ",
        ),
        (
            "resource_pools: [{pool_name: a}]\ndb: {password: hunter2}\n",
            "db: only `resource_manager` and `resource_pools`",
        ),
        (
            "resource_manager: {default_aux_resource_pool: a b}\n",
            "resource_manager.default_aux_resource_pool: `a b`: ",
        ),
        (
            "resource_manager: {type: kubernetes}\n",
            "resource_manager.type: `kubernetes`",
        ),
        (
            "resource_manager: {scheduler: {type: round_robin}}\n",
            "resource_manager.scheduler.type: `round_robin`: write `priority`",
        ),
    ] {
        let error = refused(text);
        assert!(error.contains(told), "{text}: {error}");
    }
}

#[test]
fn what_is_wrong_about_a_variable_is_told_without_its_value() {
    let gpuctl = |env: &str| {
        format!("kind: compute\njob: {{name: a}}\nenvironment: {{command: [b], {env}}}\n")
    };
    let pod = |env: &str| {
        format!("pod_templates: {{t: {{spec: {{containers: [{{name: main, {env}}}]}}}}}}\n")
    };
    for text in [
        "resource_pools: [{pool_name: a}]\ndb: {password: hunter2}\n".to_owned(),
        "entrypoint: a\nenvironment: {registry_auth: {password: hunter2}}\n".to_owned(),
        "entrypoint: a\nenvironment: {registry_auth: hunter2}\n".to_owned(),
        "resource_pools: [{pool_name: a, task_container_defaults: {environment_variables: A=hunter2}}]\n".to_owned(),
        "resource_pools: [{pool_name: a, task_container_defaults: {environment_variables: [hunter2]}}]\n".to_owned(),
        gpuctl("env: A=hunter2"),
        gpuctl("env: [A=hunter2]"),
        gpuctl("env: [{name: A, valeu: hunter2}]"),
        gpuctl("envs: {A: hunter2}"),
        pod("env: [{name: A, value: '{{x}} hunter2'}]"),
        pod("env: [{name: A, value: '{% hunter2'}]"),
        pod("env: [{name: A, value: '{{hunter2'}]"),
        pod("env: [{name: A, valueFrom: hunter2}]"),
        pod("env: A=hunter2"),
        "pools: {p: {common_default_variables: A=hunter2}}\n".to_owned(),
    ] {
        let error = refused(&text);
        assert!(!error.contains("hunter2"), "{text}: {error}");
    }
    // Numbers are values too.
    let error = refused(&pod("env: [{name: A, value: 4711}]"));
    assert!(!error.contains("4711"), "{error}");
    // What is no YAML is told without the lines around it.
    let text = "db: {password: hunter2}\ndb: {}\n";
    let error = documents::placed(text, "f.yaml").unwrap_err().to_string();
    assert!(error.contains("duplicate mapping key: db"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn what_is_left_out_of_a_file_is_told_by_its_field() {
    for (text, note) in [
        (
            "kind: quota\nquota: {name: a, description: b}\nnamespace: {c: {gpu: 1}}\n",
            "quota.description: limits have no description",
        ),
        (
            "entrypoint: a\nenvironment: {image: {cuda: b}, force_pull_image: true}\n",
            "environment.image: nothing of it is for `cpu` slots",
        ),
        (
            "entrypoint: a\nenvironment: {image: b, force_pull_image: true}\n",
            "environment.force_pull_image: the container runtime",
        ),
        (
            "resource_manager: {scheduler: {type: priority}}\n",
            "resource_manager.scheduler: there is no pool in the file",
        ),
        (
            "pod_templates: {t: {spec: {containers: [{name: osmo-ctrl}]}}}\n",
            "pod_templates.t.spec.containers[0]: `osmo-ctrl` is OSMO's own program",
        ),
    ] {
        let read = documents::placed(text, "f.yaml").unwrap();
        let notes: Vec<&String> = read.iter().flat_map(|it| &it.notes).collect();
        assert!(
            notes.iter().any(|it| it.contains(note)),
            "{text}: {notes:?}"
        );
    }
}

fn osmo() -> Value {
    json!({
        "resource_validations": {"default_cpu": [
            {"operator": "LE", "left_operand": "{{USER_CPU}}", "right_operand": "{{K8_CPU}}", "assert_message": "too many"}]},
        "pod_templates": {
            "user": {"spec": {"containers": [
                {"name": "{{USER_CONTAINER_NAME}}",
                 "env": [{"name": "LEVEL", "value": "{{LEVEL}}"}, {"name": "RUN", "value": "{{WF_ID}}"}],
                 "resources": {"limits": {"cpu": "{{USER_CPU}}", "nvidia.com/gpu": "{{USER_GPU}}"}},
                 "volumeMounts": [{"name": "sets", "mountPath": "/sets", "readOnly": true}]},
                {"name": "osmo-ctrl", "resources": {"requests": {"cpu": "1"}}}],
                "volumes": [{"name": "sets", "hostPath": {"path": "/data/sets"}}]}},
            "a100": {"spec": {
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100", "kubernetes.io/arch": "amd64", "row": "{{ROW}}"},
                "tolerations": [{"key": "gpu", "value": "a100", "effect": "NoSchedule"}]}}},
        "pools": {"robots": {
            "backend": "default", "description": "walk", "default_platform": "east", "enable_maintenance": false,
            "default_exec_timeout": "4h", "max_queue_timeout": "1d", "topology_keys": [],
            "resources": {"gpu": null},
            "common_default_variables": {"USER_CPU": 1, "USER_GPU": 0, "USER_MEMORY": "2Gi", "LEVEL": "WARN"},
            "common_resource_validations": ["default_cpu"], "common_pod_template": ["user", "kept-in-the-cluster"],
            "platforms": {
                "east": {"override_pod_template": ["a100"], "default_variables": {"ROW": "e", "USER_MEMORY": "8Gi"},
                         "host_network_allowed": true, "allowed_mounts": ["/data"]},
                "west": {"override_pod_template": ["a100", "user"], "default_variables": {"ROW": "w", "LEVEL": "INFO"}}}}}
    })
}

#[test]
fn configuration_of_osmo_is_read_as_it_is() {
    insta::assert_snapshot!("osmo", told(&osmo().to_string()));
    let mut chart = osmo();
    let groups = [
        ("pod_templates", "podTemplates"),
        ("resource_validations", "resourceValidations"),
    ];
    for (ours, theirs) in groups {
        chart[theirs] = chart.as_object_mut().unwrap().remove(ours).unwrap();
    }
    let chart = json!({"services": {"configs": chart}});
    let of_chart = told(&chart.to_string());
    let note = "services: of the values of the chart only `services.configs` is read";
    let plain = told(&osmo().to_string());
    let (documents, notes) = plain.split_once("\npod_templates").unwrap();
    assert_eq!(
        of_chart,
        format!("{documents}\n{note}\npod_templates{notes}")
    );
}

#[test]
fn what_osmo_has_and_sluice_not_is_refused_by_name() {
    let pool = |fields: Value| json!({"pools": {"p": fields}});
    let pod = |spec: Value| json!({"pod_templates": {"t": {"spec": spec}}});
    for (config, told) in [
        (
            pool(json!({"resources": {"gpu": {"guarantee": 4}}})),
            "pools.p.resources: `{...}`: a pool has hosts",
        ),
        (
            pool(json!({"topology_keys": [{"key": "rack", "label": "r"}]})),
            "pools.p.topology_keys: ",
        ),
        (
            pool(json!({"platform": {}})),
            "pools.p.platform: `{}`: no field of OSMO is known by this name: did you mean `platforms`?",
        ),
        (
            pool(json!({"platforms": {"a": {"override_pod_template": ["x"]}}})),
            "pools.p.platforms.a.override_pod_template: `x`: it is written into each platform",
        ),
        (
            pool(json!({"default_exit_actions": {"RESCHEDULE": "1"}})),
            "pools.p.default_exit_actions: ",
        ),
        (
            pool(json!({"common_default_variables": {"USER_CPU": "many"}})),
            "USER_CPU: `many`: write a number",
        ),
        (
            pod(json!({"affinity": {}})),
            "pod_templates.t.spec.affinity: `{}`: write `nodeSelector`",
        ),
        (
            pod(json!({"nodeSelector": {"a": "b"}})),
            "pod_templates.t.spec: a template does not choose hosts",
        ),
        (
            pod(json!({"tolerations": [{"key": "a", "effect": "NoExecute"}]})),
            "spec.tolerations[0].effect: `NoExecute`: a taint keeps new steps off",
        ),
        (
            pod(
                json!({"containers": [{"name": "main", "env": [{"name": "A", "value": "{{NONE}}"}]}]}),
            ),
            "pod_templates.t: variable `A`: there is no variable `NONE`",
        ),
        (
            pod(
                json!({"containers": [{"name": "main", "env": [{"name": "A", "value": "{% if b %}"}]}]}),
            ),
            "pod_templates.t: variable `A`: there is no Jinja but",
        ),
        (
            pod(json!({"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]})),
            "spec.containers[0].resources.limits.cpu: `2`: a step holds what it asks for",
        ),
        (
            pod(json!({"volumes": [{"name": "v", "emptyDir": {}}]})),
            "spec.volumes[0].name: `v`: only `hostPath`",
        ),
        (
            json!({"pools": {}, "backends": {}}),
            "backends: `{}`: no field of OSMO is known",
        ),
    ] {
        let error = refused(&config.to_string());
        assert!(error.contains(told), "{config}: {error}");
    }
}

#[test]
fn documents_of_ours_are_not_taken_for_those_of_others() {
    for text in [
        "kind: pool\nname: a\ncapacity: {gpu: 1}\n",
        "kind: training\nname: a\ncommand: [b]\nresources: {gpu_count: 1}\n",
        "command: [b]\nresources: {gpu_count: 1}\n",
        "kind: policy\npool: a\nsubject: b\nversion: 3\n",
        "kind: host\nname: a\ngpus: 1\n",
    ] {
        assert!(translate(&fields(text)).is_none(), "{text}");
    }
}

//! Requests of what is typed after `run` and `submit`.

use super::*;
use crate::args::{Args, Command};
use crate::context::ContextFile;

fn local() -> Defaults {
    let context = ContextFile {
        subject: Some("dev".into()),
        ..ContextFile::default()
    };
    Defaults::of(&context)
}

fn here() -> String {
    std::env::current_dir()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned()
}

fn typed_words(words: &[&str], defaults: &Defaults) -> Result<Vec<StepRequest>, Failure> {
    let line = ["sluice", "submit"].iter().chain(words).map(Into::into);
    let Command::Submit(args) = Args::read(line.collect()).unwrap().command else {
        panic!("`submit` was typed");
    };
    requests(args, defaults, Out::plain())
}

fn typed(line: &str, defaults: &Defaults) -> Result<StepRequest, Failure> {
    let words: Vec<&str> = line.split(' ').collect();
    typed_words(&words, defaults).map(|mut requests| requests.remove(0))
}

/// Returns what flags and a file with this text give.
fn with_file(text: &str, flags: &[&str]) -> Result<Vec<StepRequest>, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.yaml");
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let line = [&["-f", path], flags].concat();
    let told = typed_words(&line, &local());
    told.map_err(|e| e.to_string().replace(path, "f.yaml"))
}

#[test]
fn every_flag_finds_its_field() {
    let line = "--gpus 2 --cpus 0.5 --cpu-mode weight --memory 16GiB --resource tensorrt_sessions=3 --non-preemptible --pool p \
                --platform h100 --nodes 2 --subject s --retries 1 --timeout 2h --grace 90s --on-preempt fail --suspend-timeout 3h --queue-timeout 0s \
                --env A=1 --env B=x=y --label team=vision --allow-pending --workdir /w --name n --priority -5 --id mine -- python train.py";
    let request = typed(line, &local()).unwrap();
    let expected = serde_json::json!({
        "id": "mine", "name": "n", "subject": "s", "pool": "p", "platform": "h100",
        "command": ["python", "train.py"], "env": {"A": "1", "B": "x=y"}, "workdir": "/w",
        "resources": {"gpu_count": 2, "cpu_count": 0.5, "memory": "16GiB", "preemptible": false,
                      "pool_resources": {"tensorrt_sessions": 3}},
        "nodes": 2, "priority": -5, "retries": 1, "timeout": "2h", "grace_period": "1m30s", "suspend_timeout": "3h", "queue_timeout": "0s",
        "on_preempt": "fail", "labels": {"team": "vision"}, "cpu_mode": "weight", "allow_pending": true,
    });
    assert_eq!(serde_json::to_value(&request).unwrap(), expected);
}

#[test]
fn a_step_prefers_the_directory_of_the_caller_and_has_the_subject_of_the_context() {
    let request = typed("-- true", &local()).unwrap();
    assert_eq!(
        (request.workdir, request.prefer_workdir),
        (None, Some(here()))
    );
    assert_eq!(request.subject.as_deref(), Some("dev"));
    let request = typed("-- true", &Defaults::default()).unwrap();
    assert_eq!((request.prefer_workdir, request.subject), (None, None));
}

#[test]
fn a_port_has_a_name_and_a_probe_may_name_it() {
    let step = |line| typed(line, &local()).unwrap().check().unwrap();
    let spec = step("--port http --port metrics --ready-when http:/health -- serve");
    assert_eq!(spec.ports.len(), 2);
    let probes = spec.probes.as_written().unwrap();
    let http = probes.readiness.unwrap().http.unwrap();
    assert_eq!(
        (http.port.as_str(), http.path.as_str()),
        ("http", "/health")
    );
    let spec = step("--port http --ready-when http -- serve");
    let probes = spec.probes.as_written().unwrap();
    assert_eq!(probes.readiness.unwrap().tcp.as_deref(), Some("http"));
    let refused = |line| typed(line, &local()).unwrap_err().to_string();
    let told = refused("--port HTTP -- serve");
    assert!(
        told.contains("--port: `HTTP` is not a valid port name"),
        "{told}"
    );
    let told = refused("--port http --ready-when htp:/ -- serve");
    assert!(
        told.contains("--ready-when: ") && told.contains("`http`?"),
        "{told}"
    );
}

#[test]
fn a_relative_file_of_input_is_below_the_directory_of_the_caller() {
    let stdin = |line| typed(line, &local()).unwrap().stdin.unwrap();
    assert_eq!(stdin("--stdin in.txt -- cat"), format!("{}/in.txt", here()));
    assert_eq!(stdin("--stdin /srv/in.txt -- cat"), "/srv/in.txt");
    assert_eq!(stdin("--stdin - -- cat"), "-");
}

#[test]
fn a_relative_directory_is_below_that_of_the_caller_and_none_is_the_step_s_own() {
    for defaults in [local(), Defaults::default()] {
        let request = typed("--workdir sub -- true", &defaults).unwrap();
        assert_eq!(request.workdir, Some(format!("{}/sub", here())));
        assert_eq!(request.prefer_workdir, None);
        for line in [
            "-- true",
            "--keep out/* -- true",
            "--input Cargo.toml -- true",
        ] {
            let request = typed(&format!("--workdir none {line}"), &defaults).unwrap();
            let spec = request.check().unwrap();
            assert_eq!((spec.workdir, spec.prefer_workdir), (None, None), "{line}");
        }
    }
    for directory in ["workdir", "prefer_workdir"] {
        let text =
            format!("command: [a]\n{directory}: /srv\ndefaults: {{{directory}: /pipeline}}\n");
        let requests = with_file(&text, &["-w", "none"]).unwrap();
        let spec = requests[0].clone().check().unwrap();
        assert_eq!((spec.workdir, spec.prefer_workdir), (None, None));
        let requests = with_file(&text, &[]).unwrap();
        let spec = requests[0].clone().check().unwrap();
        assert_eq!(
            spec.workdir.or(spec.prefer_workdir).as_deref(),
            Some("/srv")
        );
    }
}

#[test]
fn settings_of_the_pipeline_go_before_those_of_the_context() {
    let text = "kind: step\ncommand: [a]\ndefaults: {subject: prod, workdir: /srv}\n---\nkind: step\ncommand: [b]\ndefaults: {timeout: 1h}\n";
    let requests = with_file(text, &[]).unwrap();
    let set = |it: &StepRequest| (it.subject.clone(), it.prefer_workdir.clone());
    assert_eq!(set(&requests[0]), (None, None));
    assert_eq!(set(&requests[1]), (Some("dev".to_owned()), Some(here())));
}

#[test]
fn ids_are_fresh_and_well_formed() {
    let ids: std::collections::BTreeSet<_> = (0..100)
        .map(|_| typed("-- true", &local()).unwrap().chosen_id().unwrap())
        .collect();
    assert_eq!(ids.len(), 100);
}

#[test]
fn bad_values_are_usage_errors_in_the_words_of_the_flags() {
    for (line, words) in [
        ("--memory 8gb -- true", "--memory: `8gb`"),
        ("--cpus=1e12 -- true", "--cpus: 1000000000000"),
        ("--nodes 0 -- true", "--nodes: 0 hosts"),
        ("--env SLUICE_X=1 -- true", "--env SLUICE_X: "),
        ("--resource A=1 -- true", "--resource A: "),
        ("--label sluice/x=1 -- true", "--label sluice/x: "),
        ("--id ../x -- true", "--id: "),
        (
            "--env SLUICE_TEST_UNSET -- true",
            "--env SLUICE_TEST_UNSET: you have no variable",
        ),
    ] {
        let error = typed(line, &local()).unwrap_err();
        assert!(matches!(error, Failure::Usage(_)), "{line}");
        assert!(error.to_string().contains(words), "{line}: {error}");
    }
    let error = typed_words(&["--", ""], &local()).unwrap_err();
    let words = "the command: the command is empty";
    assert!(error.to_string().starts_with(words), "{error}");
}

#[test]
fn documents_become_requests_in_order() {
    let text = "kind: step\nname: a\ncommand: [sleep, 10]\nenv: {N: \"1\"}\nresources: {gpu_count: 1, cpu_count: 1}\n\
                ---\nkind: step\nname: b\ncommand: [python, train.py]\nworkdir: /w\nsubject: s\n";
    let requests = with_file(text, &[]).unwrap();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].command, ["sleep", "10"]);
    assert_eq!(requests[0].prefer_workdir, Some(here()));
    assert_eq!(requests[1].prefer_workdir, None);
    assert_eq!(requests[1].workdir.as_deref(), Some("/w"));
    assert_eq!(requests[1].subject.as_deref(), Some("s"));
    assert!(requests.iter().all(|request| request.id.is_some()));
}

#[test]
fn flags_override_the_file_field_by_field() {
    let text = "kind: training\nid: mine\nname: a\ncommand: [train]\nenv: {A: \"1\", B: \"2\"}\nlabels: {t: x}\n\
                resources: {gpu_count: 2, memory: 8GiB}\ntimeout: 1h\n";
    let flags = [
        "--mig", "3g.40gb", "-e", "B=3", "-t", "90", "--label", "u=y", "--", "eval", "-v",
    ];
    let request = serde_json::to_value(&with_file(text, &flags).unwrap()[0]).unwrap();
    let expected = serde_json::json!({
        "kind": "training", "id": "mine", "name": "a", "subject": "dev", "command": ["eval", "-v"],
        "env": {"A": "1", "B": "3"}, "labels": {"t": "x", "u": "y"}, "timeout": "1h30m", "prefer_workdir": here(),
        "resources": {"mig": {"profile": "3g.40gb"}, "memory": "8GiB"},
    });
    assert_eq!(request, expected);
    let other = with_file(text, &["--id", "other", "--work", "notebook"]).unwrap();
    let spec = other[0].clone().check().unwrap();
    assert_eq!(other[0].id.as_deref(), Some("other"));
    assert_eq!(
        spec.work.map(|work| work.to_string()).as_deref(),
        Some("notebook")
    );
}

#[test]
fn several_steps_take_the_flags_that_all_of_them_can_have() {
    let text = "command: [a]\n---\ncommand: [b]\n";
    let both = with_file(text, &["--pool", "p", "--name", "n"]).unwrap();
    assert!(
        both.iter()
            .all(|it| it.pool.as_deref() == Some("p") && it.name.as_deref() == Some("n"))
    );
    for (flags, words) in [
        (&["--id", "x"][..], "--id: f.yaml has 2 steps"),
        (&["--", "c"], "the command after `--`: f.yaml has 2 steps"),
    ] {
        let error = with_file(text, flags).unwrap_err();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn a_bad_document_is_named_with_its_field() {
    for (text, words) in [
        (
            "kind: step\ncommand: [a]\n---\nkind: pool\ncommand: [a]\n",
            "f.yaml:4, document 2: kind: `pool`",
        ),
        (
            "command: [a, 1]\ngpus: 1\n---\ncommand: [b]\nresources: {gpu: 1}\n",
            "f.yaml:2, document 1: there is no field `gpus`: did you mean `gpu_count` in `resources`?\n\
             f.yaml:5, document 2: there is no field `gpu`: did you mean `gpu_count`?",
        ),
        (
            "command: [a]\ntimout: 1h\n",
            "f.yaml:2: there is no field `timout`: did you mean `timeout`?",
        ),
        (
            "command: [a]\nresources: {memory: 8 GB}\n",
            "f.yaml:2: resources.memory: `8 GB`",
        ),
        (
            "command: [a]\nnodes: 0\n---\nid: ../x\ncommand: [b]\n",
            "f.yaml:2, document 1: nodes: 0 hosts: write 1 to 1000\nf.yaml:4, document 2: id: ",
        ),
        ("name: x\n", "f.yaml:1: command: the command is empty"),
        ("command: [a\n", "f.yaml:1: "),
        ("", "there is no step in it"),
    ] {
        let error = with_file(text, &[]).unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
    }
    let error = with_file(
        "command: [a]\nresources: {memory: 8 GB}\n",
        &["--memory", "8gb"],
    );
    assert!(error.unwrap_err().starts_with("--memory: `8gb`"));
}

#[test]
fn a_file_is_taken_without_its_flag_and_anything_else_is_told_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let steps = at("step.yaml", "command: [a]\n");
    let request = typed_words(&["--gpus", "1", &steps], &local()).unwrap();
    assert_eq!(request[0].resources.gpu_count, Some(1));
    let told = |words: &[&str]| {
        let error = typed_words(words, &local()).unwrap_err();
        assert!(matches!(error, Failure::Usage(_)), "{error}");
        error.to_string()
    };
    assert_eq!(
        told(&["--gpus", "2", "hostname", "-f"]),
        "`hostname` is no file here; if it is a program of the host, put `--` before it: \
         sluice submit --gpus 2 -- hostname -f"
    );
    let late = told(&[&steps, "--gpus", "1"]);
    assert!(late.starts_with("`--gpus` stands after"), "{late}");
    let stray = told(&["-f", &steps, "python"]);
    assert!(stray.starts_with("`python` stands after --file"), "{stray}");
    let twice = told(&["-f", "-", "--env-file", "-"]);
    assert!(twice.starts_with("--env-file: standard input"), "{twice}");
}

#[test]
fn a_script_is_a_step_whose_lines_the_flags_override() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("train.sh");
    std::fs::write(&path, "#!/bin/sh\n#SLUICE --gpus 1 --memory 8GiB\ntrue\n").unwrap();
    let file = path.to_str().unwrap();
    let request = typed_words(&["--gpus", "2", file, "--gpus", "7"], &local()).unwrap();
    assert_eq!(request[0].resources.gpu_count, Some(2));
    assert_eq!(request[0].resources.memory.as_deref(), Some("8GiB"));
    assert_eq!(request[0].name.as_deref(), Some("train.sh"));
    assert_eq!(request[0].command[5..], ["--gpus", "7"]);
    let by_flag = typed_words(&["-f", file], &local()).unwrap();
    assert_eq!(by_flag[0].command.len(), 5);
    let told = |words: &[&str]| typed_words(words, &local()).unwrap_err().to_string();
    let replaced = told(&["-f", file, "--", "true"]);
    assert!(
        replaced.contains("is a script, and its own command"),
        "{replaced}"
    );
    let wrong = told(&["--memory", "8gb", file]);
    assert!(wrong.starts_with("--memory: `8gb`"), "{wrong}");
    std::fs::write(&path, "#!/bin/sh\n#SLUICE --memory 8gb\n").unwrap();
    let wrong = told(&[file]);
    assert!(
        wrong.contains("train.sh: resources.memory: `8gb`"),
        "{wrong}"
    );
    std::fs::write(&path, "echo\n").unwrap();
    let plain = told(&[file, "-v"]);
    assert!(
        plain.contains("is neither YAML nor a script") && plain.ends_with("train.sh -v"),
        "{plain}"
    );
    let program = std::env::current_exe().unwrap();
    let program = told(&[program.to_str().unwrap()]);
    assert!(
        program.contains("is a program, which is not sent along"),
        "{program}"
    );
}

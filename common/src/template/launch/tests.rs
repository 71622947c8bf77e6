//! Examples of what is started from a template.

use super::*;
use crate::request::StepRequest;
use alloc::borrow::ToOwned;

fn known(variable: Variable) -> Option<String> {
    match variable {
        Variable::Node => Some("n1".to_owned()),
        Variable::Numa => Some("0".to_owned()),
        Variable::CpuCount => Some("1.5".to_owned()),
        _ => None,
    }
}

fn launched(template: &str, step: &str) -> Launch {
    let template: Template = serde_json::from_str(template).unwrap();
    template.check().unwrap();
    let step: StepRequest = serde_json::from_str(step).unwrap();
    template.launch(&step.check().unwrap(), known)
}

const RUNTIME: &str = r#"{"wrapper":["run","{{privileged}}","{{host_network}}","{{mounts}}","--cpus={{cpu_count}}","--"],
    "mount_argument":"-v={{source}}:{{target}}:{{mode}}","privileged_argument":"--privileged",
    "privileged_allowed":true,"host_network_allowed":true,
    "mounts":[{"name":"data","source":"/data/{{node}}","target":"/data","read_only":true},{"name":"w","source":"{{workdir}}"}],
    "allowed_mounts":[{"source":"/"}]}"#;

#[test]
fn a_wrapper_becomes_arguments_with_all_that_is_known() {
    let plain = launched(RUNTIME, r#"{"command":["x"]}"#);
    let expected = [
        "run",
        "false",
        "-v=/data/n1:/data:ro",
        "-v={{workdir}}:{{workdir}}:rw",
        "--cpus=1.5",
        "--",
    ];
    assert_eq!(plain.wrapper, expected);
    let mut asks = launched(
        RUNTIME,
        r#"{"command":["x"],"privileged":true,"host_network":true,
            "mounts":[{"name":"data","source":"/mine/{{node}}"},{"name":"new","source":"/new","target":"/n"}]}"#,
    );
    asks.fill_paths("/w", "/env");
    let expected = [
        "run",
        "--privileged",
        "true",
        "-v=/mine/{{node}}:/data:ro",
        "-v=/w:/w:rw",
        "-v=/new:/n:rw",
        "--cpus=1.5",
        "--",
    ];
    assert_eq!(
        asks.wrapper, expected,
        "nothing is filled into a step's own"
    );
}

#[test]
fn a_wrapper_is_told_of_the_file_of_variables() {
    let mut named = launched(
        r#"{"wrapper":["run","--env-file={{env_file}}"]}"#,
        r#"{"command":["x"]}"#,
    );
    assert!(named.has_env_file());
    named.fill_paths("/w", "/a/env");
    assert_eq!(named.wrapper, ["run", "--env-file=/a/env"]);
    assert!(!launched(RUNTIME, r#"{"command":["x"]}"#).has_env_file());
}

#[test]
fn a_template_s_variables_stay_and_the_step_s_own_directory_goes_before_its() {
    let template = r#"{"env":{"A":"{{node}}","B":"{{workdir}}/b"},"workdir":"/scratch/{{node}}","limits":{"core":0,"stack":"8KiB"},
        "hooks":{"before":[{"command":["a","{{numa}}"]},{"name":"n","command":["b"],"timeout":"5s"}]}}"#;
    let found = launched(template, r#"{"command":["x"],"env":{"A":"{{own}}"}}"#);
    // The wrapper and the hooks get the template's value, even if the step sets another.
    let expected = [("A", "n1"), ("B", "{{workdir}}/b")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(found.env, Environment::from(expected));
    let template: Template = serde_json::from_str(template).unwrap();
    let step = |json: &str| {
        let step: StepRequest = serde_json::from_str(json).unwrap();
        step.check().unwrap()
    };
    let workdir = |json| template.workdir_of(&step(json), known);
    assert_eq!(
        workdir(r#"{"command":["x"]}"#).as_deref(),
        Some("/scratch/n1")
    );
    assert_eq!(
        workdir(r#"{"command":["x"],"workdir":"/own"}"#).as_deref(),
        Some("/own")
    );
    let limits: Vec<_> = found
        .hooks
        .limits
        .iter()
        .map(|it| (it.name.as_str(), it.max))
        .collect();
    assert_eq!(limits, [("core", 0), ("stack", 8192)]);
    let hooks: Vec<_> = found
        .hooks
        .before
        .iter()
        .map(|it| (it.name.as_str(), it.command.join(" ")))
        .collect();
    assert_eq!(hooks, [("1", "a 0".to_owned()), ("n", "b".to_owned())]);
    assert_eq!(found.hooks.before[1].timeout, Span::from_secs(5));
}

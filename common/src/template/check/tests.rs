//! Examples of valid and invalid templates, and of requests that templates allow or refuse.

use super::*;
use crate::request::StepRequest;

fn refusal(json: &str) -> String {
    let template: Template = serde_json::from_str(json).unwrap();
    let error = template.check().unwrap_err();
    format!("{} {error}", error.code)
}

#[test]
fn what_a_template_may_not_hold_is_refused_with_field_and_way_out() {
    for (json, expected) in [
        (
            r#"{"wrapper":["numactl","--cpunodebind={{nuna}}"]}"#,
            "invalid_variable wrapper[1]: there is no variable `nuna`: did you mean `numa`?",
        ),
        (
            r#"{"env":{"A":"{{step"}}"#,
            "invalid_variable env.A: `{{step` has braces without their other half: write a variable as `{{name}}`",
        ),
        (r#"{"env":{"SLUICE_X":"1"}}"#, "reserved_env env.SLUICE_X: "),
        (
            r#"{"wrapper":[""]}"#,
            "invalid_template wrapper[0]: the program is empty: write one, or `[]` for no wrapper",
        ),
        (r#"{"workdir":"here"}"#, "invalid_workdir workdir: "),
        (
            r#"{"workdir":"/a/{{workdir}}"}"#,
            "invalid_variable workdir: `workdir` cannot be used here: ",
        ),
        (
            r#"{"limits":{"nofiles":4}}"#,
            "invalid_template limits.nofiles: there is no limit `nofiles`: did you mean `nofile`?",
        ),
        (
            r#"{"limits":{"nproc":"8GiB"}}"#,
            "invalid_template limits.nproc: `8GiB` is not a number: write one without quotes",
        ),
        (
            r#"{"limits":{"stack":"8 oxen"}}"#,
            "invalid_template limits.stack: ",
        ),
        (
            r#"{"limits":{"processes":0}}"#,
            "invalid_template limits.processes: a step is one process at least: write 1 or more",
        ),
        (
            r#"{"hooks":{"before":[{"name":"a","command":[]}]}}"#,
            "invalid_template hooks.before[0].command: the command is empty: ",
        ),
        (
            r#"{"hooks":{"after":[{"command":["x"],"timeout":"1h"}]}}"#,
            "invalid_duration hooks.after[0].timeout: `1h`: write more than 0s and at most 10m",
        ),
        (
            r#"{"hooks":{"after":[{"command":["x","{{mounts}}"]}]}}"#,
            "invalid_variable hooks.after[0].command[1]: `mounts` cannot be used here: ",
        ),
        (
            r#"{"resources":{"memory":"8gb"}}"#,
            "invalid_memory resources.memory: ",
        ),
        (
            r#"{"resources":{"storage":"8 GB"}}"#,
            "invalid_storage resources.storage: ",
        ),
        (
            r#"{"mounts":[{"name":"a","source":"/a"},{"name":"a","source":"/b"}]}"#,
            "invalid_template mounts[1].name: `a` is listed twice: ",
        ),
        (
            r#"{"mounts":[{"source":"/a/../b"}]}"#,
            "invalid_mount mounts[0].source: `/a/../b` is not an absolute path without `..`: begin it with `/`",
        ),
        (
            r#"{"allowed_mounts":[{"source":"/home/{{name}}"}]}"#,
            "invalid_variable allowed_mounts[0].source: `name` cannot be used here: subject, pool can be",
        ),
        (
            r#"{"mount_argument":"-v={{source}}:{{node}}"}"#,
            "invalid_variable mount_argument: `node` cannot be used here: source, target, mode can be",
        ),
        (
            r#"{"privileged_argument":"--{{step}}"}"#,
            "invalid_variable privileged_argument: `step` cannot be used here: nothing can be",
        ),
    ] {
        let said = refusal(json);
        assert!(said.starts_with(expected), "{said}\n{expected}");
    }
}

#[test]
fn what_may_stand_in_a_template_is_taken() {
    let json = r#"{"description":"d","env":{"OMP_NUM_THREADS":"{{cpu_count}}"},
        "wrapper":["docker","run","{{privileged}}","{{mounts}}","--cpus={{cpu_count}}","-w","{{workdir}}","img"],
        "workdir":"/scratch/{{subject}}","limits":{"nofile":4096,"stack":"8MiB","processes":100},
        "hooks":{"before":[{"name":"stage","command":["stage","{{node}}"],"timeout":"1m"}],"after":[]},
        "resources":{"gpu_count":0,"cpu_count":0.5,"memory":"8GiB","storage":"1TB"},
        "mounts":[{"name":"w","source":"{{workdir}}"}],"allowed_mounts":[{"source":"/home/{{subject}}"}],
        "mount_argument":"-v={{source}}:{{target}}:{{mode}}","privileged_allowed":true,
        "privileged_argument":"--privileged"}"#;
    let template: Template = serde_json::from_str(json).unwrap();
    template.check().unwrap();
}

fn forbidden(template: &str, step: &str) -> Option<(&'static str, String, String)> {
    let template: Template = serde_json::from_str(template).unwrap();
    let step: StepRequest = serde_json::from_str(step).unwrap();
    let known = |variable| match variable {
        Variable::Subject => Some("ann".to_owned()),
        _ => None,
    };
    let found = template.violation(&step.check().unwrap(), known)?;
    Some((found.code.as_str(), found.field, found.message))
}

#[test]
fn a_step_gets_what_is_allowed_and_handed_on_and_is_told_of_the_rest() {
    let open = r#"{"wrapper":["run","{{mounts}}","{{privileged}}","--net={{host_network}}"],"privileged_allowed":true,
        "host_network_allowed":true,
        "allowed_mounts":[{"source":"/data","read_only":true},{"source":"/home/{{subject}}","target":"/home"}]}"#;
    let asks = |fields: &str| format!(r#"{{"command":["x"],{fields}}}"#);
    for fields in [
        r#""privileged":true,"host_network":true"#,
        r#""mounts":[{"source":"/data/sets","read_only":true}]"#,
        r#""mounts":[{"source":"/home/ann/","target":"/home/me"}]"#,
        r#""privileged":false"#,
    ] {
        assert_eq!(forbidden(open, &asks(fields)), None, "{fields}");
    }
    let closed = r#"{"wrapper":["run","{{mounts}}"],"privileged_allowed":false,"host_network_allowed":true}"#;
    let shows = r#"{"wrapper":["run","{{mounts}}"],"mounts":[{"source":"{{workdir}}","target":"/work"}],
        "allowed_mounts":[{"source":"/data","read_only":true},{"source":"/home/{{subject}}","target":"/home"}]}"#;
    for (template, fields) in [
        (shows, r#""workdir":"/home/ann/run""#),
        (shows, r#""env":{"A":"1"}"#),
        // The wrapper does not use the working directory, or there is none.
        (open, r#""workdir":"/""#),
        (
            r#"{"mounts":[{"source":"{{workdir}}"}]}"#,
            r#""workdir":"/""#,
        ),
    ] {
        assert_eq!(forbidden(template, &asks(fields)), None, "{fields}");
    }
    for (template, fields, code, field, words) in [
        (
            closed,
            r#""privileged":true"#,
            "privileged_not_allowed",
            "privileged",
            "is not allowed there",
        ),
        (
            closed,
            r#""host_network":true"#,
            "host_network_not_allowed",
            "host_network",
            "no wrapper there takes `{{host_network}}`",
        ),
        (
            closed,
            r#""mounts":[{"source":"/data"}]"#,
            "mount_not_allowed",
            "mounts[0]",
            "nothing may be mounted there",
        ),
        (
            open,
            r#""mounts":[{"source":"/data"}]"#,
            "mount_not_allowed",
            "mounts[0]",
            "set `read_only: true`",
        ),
        (
            open,
            r#""mounts":[{"source":"/data","read_only":true},{"source":"/database"}]"#,
            "mount_not_allowed",
            "mounts[1]",
            "below `/data`, `/home/ann`",
        ),
        (
            open,
            r#""mounts":[{"source":"/home/bob","target":"/home/me"}]"#,
            "mount_not_allowed",
            "mounts[0]",
            "it would mount `/home/bob` at `/home/me`",
        ),
        (
            shows,
            r#""workdir":"/""#,
            "mount_not_allowed",
            "workdir",
            "it would work in `/`, which its wrapper shows it, and what may be shown there to be written to is below `/home/ann`",
        ),
        (
            shows,
            r#""workdir":"/data/sets""#,
            "mount_not_allowed",
            "workdir",
            "it would work in `/data/sets`",
        ),
        (
            r#"{"wrapper":["run","-w","{{workdir}}"]}"#,
            r#""workdir":"/etc""#,
            "mount_not_allowed",
            "workdir",
            "no directory may be shown there: leave it out",
        ),
        (
            r#"{"allowed_mounts":[{"source":"/"}]}"#,
            r#""mounts":[{"source":"/data"}]"#,
            "mount_not_allowed",
            "mounts[0]",
            "no wrapper there takes `{{mounts}}`",
        ),
    ] {
        let (found, at, message) = forbidden(template, &asks(fields)).unwrap();
        assert_eq!((found, at.as_str()), (code, field));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn the_mounts_of_a_step_are_absolute_paths_and_nothing_is_filled_into_them() {
    for (mounts, words) in [
        (r#"[{"source":"data"}]"#, "`data` is not an absolute path"),
        (r#"[{"source":"/a/.."}]"#, "`/a/..` is not an absolute path"),
        (
            r#"[{"source":"{{workdir}}"}]"#,
            "no variable is filled into",
        ),
    ] {
        let json = format!(r#"{{"command":["x"],"mounts":{mounts}}}"#);
        let step: StepRequest = serde_json::from_str(&json).unwrap();
        let error = step.check().unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidMount);
        assert!(error.message.contains(words), "{error}");
    }
}

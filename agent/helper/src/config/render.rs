//! Prints the effective config for `--check-config`, with keys as in the file.

use std::fmt::Write;

use sluice_common::supervisor_config::{
    CheckedConfig, OtherSubmitters, SubmitterUsers, SupervisorConfig, UidRangeSetting, UserRef,
};

use super::NO_RANGE;

/// One line for each key whose value differs from the default.
pub(super) fn render(checked: &CheckedConfig) -> String {
    let CheckedConfig { config, warnings } = checked;
    let file = config.steps.file.as_ref();
    let file = file.map_or("none".to_owned(), |file| format!("{file:?}"));
    let mut lines = vec![("# config".to_owned(), file)];
    for (key, value) in keys(config)
        .into_iter()
        .chain(output(config))
        .chain(users(config))
    {
        lines.push((key.to_owned(), value));
    }
    let steps = &config.steps;
    for (subject, named) in &steps.users {
        lines.push((format!("users.{:?}", subject.as_str()), user(named)));
    }
    for (name, most) in &steps.limits {
        lines.push((format!("limits.{name}"), most.to_string()));
    }
    let mut text = String::new();
    for (key, value) in lines {
        let _a_string_takes_all = writeln!(text, "{key} = {value}");
    }
    for warning in warnings {
        let _a_string_takes_all = writeln!(text, "# warning: {warning}");
    }
    text
}

/// A key, and its value if it is set.
type KeyValue = (&'static str, String);

fn keys(config: &SupervisorConfig) -> Vec<KeyValue> {
    let SupervisorConfig { steps, hooks, .. } = config;
    let quoted = |text: &Option<String>| text.as_ref().map(|text| format!("{text:?}"));
    let place = config.cgroup.as_deref().unwrap_or("own");
    let pairs = [
        ("log_filter", quoted(&config.log_filter)),
        ("cgroup", Some(format!("{place:?}"))),
        ("agent_uid", config.agent.as_ref().map(user)),
        ("pids_max", config.pids_max.map(|most| most.to_string())),
        ("default_user", steps.default_user.as_ref().map(user)),
        ("umask", steps.umask.map(|umask| format!("\"{umask:03o}\""))),
        (
            "workdirs",
            steps.workdirs.as_ref().map(|dirs| format!("{dirs:?}")),
        ),
        ("cuda_library", quoted(&config.cuda_library)),
        ("cuda_checkpoint", quoted(&config.cuda_checkpoint)),
        ("carve_gpus", Some(config.carving.is_allowed.to_string())),
        (
            "carve_timeout",
            Some(format!("\"{}\"", config.carving.limit)),
        ),
        ("nvml_library", quoted(&config.carving.library)),
        ("prolog", quoted(&hooks.prolog)),
        ("epilog", quoted(&hooks.epilog)),
        (
            "lease_key",
            config.leases.key.map(|key| format!("\"{key}\"")),
        ),
        ("max_lease", Some(format!("\"{}\"", config.leases.longest))),
        ("allow_root", Some(steps.allow_root.to_string())),
    ];
    with_values(pairs)
}

fn output(config: &SupervisorConfig) -> Vec<KeyValue> {
    let output = &config.output;
    with_values([
        ("output_max", Some(format!("\"{}B\"", output.max_bytes))),
        ("output_retention", Some(format!("\"{}\"", output.keep_for))),
        (
            "output_total_max",
            Some(format!("\"{}B\"", output.total_bytes)),
        ),
        ("keep_max", Some(format!("\"{}B\"", output.kept_bytes))),
        ("keep_work", Some(format!("\"{}\"", output.keep_work))),
        (
            "min_free",
            output.min_free.map(|bytes| format!("\"{bytes}B\"")),
        ),
    ])
}

fn users(config: &SupervisorConfig) -> Vec<KeyValue> {
    let steps = &config.steps;
    let range = match &steps.uid_range {
        UidRangeSetting::Default => None,
        UidRangeSetting::Given(bounds) => Some(format!("{bounds:?}")),
        UidRangeSetting::Nothing => Some(format!("{NO_RANGE:?}")),
    };
    let shared: Vec<String> = steps.shared_users.iter().map(user).collect();
    let shared = (!shared.is_empty()).then(|| format!("[{}]", shared.join(", ")));
    let mut pairs = with_values([("uid_range", range), ("shared_users", shared)]);
    pairs.extend(steps.as_submitter.iter().flat_map(submitters));
    pairs
}

fn with_values<const N: usize>(pairs: [(&'static str, Option<String>); N]) -> Vec<KeyValue> {
    let pairs = pairs.into_iter();
    pairs
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

fn submitters(listed: &SubmitterUsers) -> Vec<KeyValue> {
    let users = listed.users.iter();
    let users = users.map(|(name, named)| format!("{:?} = {}", name.as_str(), user(named)));
    let users: Vec<String> = users.collect();
    let mut lines = vec![("as_submitter", format!("{{ {} }}", users.join(", ")))];
    if listed.others == OtherSubmitters::AsUsual {
        lines.push(("other_submitters", "\"as_usual\"".to_owned()));
    }
    lines
}

fn user(named: &UserRef) -> String {
    match named {
        UserRef::Name(name) => format!("{name:?}"),
        UserRef::Uid(uid) => uid.to_string(),
    }
}

//! What a command line and its config come to, for whoever checks them: keys as the config writes them.

use std::fmt::Write;
use std::path::Path;

use super::Options;
use crate::config::{AsSubmitter, OtherSubmitters, UidRange, UserRef};
use crate::groups::choice::Place;

/// One line for each key that is not as it would be without a config.
pub(super) fn shown(options: &Options, warnings: &[String]) -> String {
    let mut text = String::new();
    let rules = &options.rules;
    let mut say = |key: &str, value: String| {
        let _a_string_takes_all = writeln!(text, "{key} = {value}");
    };
    let quoted = |path: &Path| format!("{path:?}");
    let file = rules.file.as_deref();
    say("# config", file.map_or("none".to_owned(), quoted));
    say(
        "log_filter",
        format!("{:?}", options.log_filter.to_string()),
    );
    say("cgroup", format!("{:?}", place(&options.groups.place)));
    for (key, value) in [
        ("agent_uid", options.agent_uid.map(|uid| uid.to_string())),
        (
            "pids_max",
            options.groups.pids_max.map(|most| most.to_string()),
        ),
        ("default_user", rules.default_user.as_ref().map(user)),
        ("umask", rules.umask.map(|umask| format!("\"{umask:03o}\""))),
        (
            "workdirs",
            rules.workdirs.as_ref().map(|dirs| format!("{dirs:?}")),
        ),
        ("cuda_library", options.cuda.library.as_deref().map(quoted)),
        ("cuda_checkpoint", options.cuda.tool.as_deref().map(quoted)),
        ("prolog", options.hooks.prolog.as_deref().map(quoted)),
        ("epilog", options.hooks.epilog.as_deref().map(quoted)),
    ] {
        if let Some(value) = value {
            say(key, value);
        }
    }
    if let Some(key) = options.leases.key {
        say("lease_key", format!("\"{key}\""));
    }
    say("max_lease", format!("\"{}\"", options.leases.longest));
    say("allow_root", rules.allow_root.to_string());
    say("output_max", format!("\"{}B\"", options.output.max_bytes));
    say(
        "output_retention",
        format!("\"{}\"", options.output.keep_for),
    );
    say(
        "output_total_max",
        format!("\"{}B\"", options.output.total_bytes),
    );
    say("keep_work", format!("\"{}\"", options.output.keep_work));
    if let Some(bytes) = options.output.min_free {
        say("min_free", format!("\"{bytes}B\""));
    }
    match &rules.uid_range {
        UidRange::Default => {}
        UidRange::Given(bounds) => say("uid_range", format!("{bounds:?}")),
        UidRange::Word(word) => say("uid_range", format!("{word:?}")),
    }
    if !rules.shared_users.is_empty() {
        let shared: Vec<String> = rules.shared_users.iter().map(user).collect();
        say("shared_users", format!("[{}]", shared.join(", ")));
    }
    rules
        .as_submitter
        .iter()
        .flat_map(submitters)
        .for_each(|(key, value)| say(key, value));
    for (subject, named) in &rules.users {
        say(&format!("users.{:?}", subject.as_str()), user(named));
    }
    for limit in &rules.limits {
        say(&format!("limits.{}", limit.name), limit.most.to_string());
    }
    for warning in warnings {
        let _a_string_takes_all = writeln!(text, "# warning: {warning}");
    }
    text
}

fn submitters(listed: &AsSubmitter) -> Vec<(&'static str, String)> {
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

fn place(place: &Place) -> String {
    match place {
        Place::Own => "own".to_owned(),
        Place::At(path) => path.display().to_string(),
        Place::Nowhere => "none".to_owned(),
    }
}

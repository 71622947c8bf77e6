//! Collects the variables of a step from `--env-all`, `--env-file` and `--env`, each before the next. No message
//! contains a value.

use std::ffi::OsString;

use crate::args::VariableRequest;
use crate::env_file;
use crate::failure::Failure;
use crate::render::safe;

/// Variables that `--env-all` leaves out: those of the caller's login, terminal and shell, which a step has of its own
/// or not at all.
const OF_THE_SESSION: [&str; 15] = [
    "_",
    "CUDA_VISIBLE_DEVICES",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "HOME",
    "HOSTNAME",
    "LOGNAME",
    "MAIL",
    "OLDPWD",
    "PWD",
    "SHELL",
    "SHLVL",
    "TERM",
    "USER",
    "WAYLAND_DISPLAY",
];

/// Beginnings of names that `--env-all` leaves out: Sluice's own, and those of a login or another scheduler's job.
const OF_OTHERS: [&str; 4] = ["SLUICE_", "SLURM_", "SSH_", "XDG_"];

/// Returns the variables that flags choose: the last value of a name counts.
///
/// # Errors
/// If a file cannot be read, or the caller lacks a variable that `--env` names.
pub(crate) fn chosen(
    all: bool,
    files: &[String],
    flags: Vec<VariableRequest>,
) -> Result<Vec<(String, String)>, Failure> {
    let mut variables = match all {
        true => of_caller(std::env::vars_os()),
        false => Vec::new(),
    };
    variables.extend(env_file::read_all(files)?);
    for (name, value) in flags {
        let value = match value {
            Some(value) => value,
            None => copied(&name, std::env::var_os(&name))?,
        };
        variables.push((name, value));
    }
    Ok(variables)
}

/// Returns the value of the caller's variable that `--env NAME` copies.
fn copied(name: &str, own: Option<OsString>) -> Result<String, Failure> {
    let shown = safe(name);
    let Some(value) = own else {
        return Err(Failure::Usage(format!(
            "--env {shown}: you have no variable of that name to copy: export it, or write `--env {shown}=VALUE`"
        )));
    };
    value.into_string().map_err(|_| {
        Failure::Usage(format!(
            "--env {shown}: the value of your variable is not UTF-8, so it cannot be sent"
        ))
    })
}

/// Returns the caller's variables that make sense elsewhere. One that is not UTF-8 cannot be sent.
fn of_caller(own: impl Iterator<Item = (OsString, OsString)>) -> Vec<(String, String)> {
    let texts =
        own.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let is_kept = |name: &str| {
        !OF_THE_SESSION.contains(&name) && !OF_OTHERS.iter().any(|it| name.starts_with(it))
    };
    texts.filter(|(name, _)| is_kept(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_describes_the_session_stays_behind() {
        let own = [
            ("PATH", "/opt/conda/bin:/usr/bin"),
            ("HF_HOME", "/data/hf"),
            ("HOME", "/home/me"),
            ("SLUICE_CONTEXT", "c.json"),
            ("SLURM_JOB_ID", "7"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
            ("PWD", "/home/me"),
        ];
        let kept = of_caller(own.map(|(n, v)| (n.into(), v.into())).into_iter());
        let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["PATH", "HF_HOME"]);
    }

    #[test]
    fn a_variable_to_copy_must_be_there_and_text() {
        use std::os::unix::ffi::OsStringExt;
        assert_eq!(copied("A", Some("1".into())).unwrap(), "1");
        let error = copied("HF_HOME", None).unwrap_err().to_string();
        assert!(
            error.starts_with("--env HF_HOME: you have no variable"),
            "{error}"
        );
        let odd = OsString::from_vec(b"hunter2\xff".to_vec());
        let error = copied("KEY", Some(odd)).unwrap_err().to_string();
        assert!(
            error.contains("not UTF-8") && !error.contains("hunter2"),
            "{error}"
        );
    }
}

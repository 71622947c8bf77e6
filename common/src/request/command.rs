//! Validates commands: program, arguments, environment and working directory that a process can be given. Whether the
//! program exists is checked on the host.

use alloc::format;
use alloc::string::String;

use super::FieldError;
use crate::environment::Environment;
use crate::error_code::ErrorCode;
use crate::exec::TerminalRequest;
use crate::limit::MAX_SPEC_BYTES;

impl crate::exec::ExecRequest {
    /// Checks that the command can be run.
    ///
    /// # Errors
    /// If it is empty or contains what no process can be given.
    pub fn check(&self) -> Result<(), FieldError> {
        check_command(&self.command, &Environment::default(), None)?;
        self.terminal
            .as_ref()
            .map_or(Ok(()), TerminalRequest::check)
    }
}

/// Quotes a variable's name without what follows `=`, which may be a secret.
fn quoted_name(name: &str) -> String {
    let (name, more) = name
        .split_once('=')
        .map_or((name, ""), |(name, _)| (name, "=..."));
    format!("{}{more}", name.escape_default())
}

/// Checks that a process can be given these.
pub(crate) fn check_command(
    command: &[String],
    env: &Environment,
    workdir: Option<&str>,
) -> Result<(), FieldError> {
    if command.first().is_none_or(String::is_empty) {
        let message = "the command is empty: write a program and its arguments, such as [\"python\", \"train.py\"]";
        return Err(FieldError::new(
            ErrorCode::InvalidCommand,
            "command",
            message,
        ));
    }
    check_surroundings(command, env, workdir)
}

/// Checks the same of a command that may be empty.
pub(super) fn check_surroundings(
    command: &[String],
    env: &Environment,
    workdir: Option<&str>,
) -> Result<(), FieldError> {
    if command.iter().any(|arg| arg.contains('\0')) {
        return Err(FieldError::new(
            ErrorCode::InvalidCommand,
            "command",
            "an argument contains a NUL byte, which cannot be passed to a program",
        ));
    }
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let message = format!(
                "`{}` is not a variable: its name must not be empty or contain `=`, and nothing may contain NUL",
                quoted_name(name)
            );
            return Err(FieldError::new(ErrorCode::InvalidEnv, "env", message));
        }
        if name.starts_with("SLUICE_") || name == "CUDA_VISIBLE_DEVICES" {
            let message = format!("`{name}` is set by Sluice itself: choose another name");
            return Err(FieldError::new(
                ErrorCode::ReservedEnv,
                format!("env.{name}"),
                message,
            ));
        }
    }
    check_directory("workdir", workdir)?;
    let bytes = command.iter().map(String::len).sum::<usize>()
        + env.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>()
        + workdir.map_or(0, str::len);
    if bytes > MAX_SPEC_BYTES {
        let message = format!(
            "command, environment and directory take {bytes} bytes: the maximum is {MAX_SPEC_BYTES}"
        );
        return Err(FieldError::new(ErrorCode::TooLarge, "command", message));
    }
    Ok(())
}

/// Checks that a working directory is an absolute path that a process can be given.
pub(super) fn check_directory(field: &str, dir: Option<&str>) -> Result<(), FieldError> {
    let is_path = |dir: &str| dir.starts_with('/') && !dir.contains('\0');
    let Some(dir) = dir.filter(|dir| !is_path(dir)) else {
        return Ok(());
    };
    let message = format!(
        "`{}` is not an absolute path on the host: begin with `/`",
        dir.escape_default()
    );
    Err(FieldError::new(ErrorCode::InvalidWorkdir, field, message))
}

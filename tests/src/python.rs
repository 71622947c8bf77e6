//! Virtual environments of Python for tests that use external packages, made once and kept with Cargo's build output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::binaries;

/// Returns the interpreter of an environment called `name` that has exactly `requirements`, in pip's syntax: each
/// pinned, dependencies included, since pip resolves nothing else.
///
/// # Errors
/// The message of `python3` or pip, for instance if the registry cannot be reached.
pub fn python_with(name: &str, requirements: &str) -> Result<PathBuf, String> {
    // Two tests of one process must not make one environment at the same time.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let home = binaries().join("..").join(name);
    let python = home.join("bin/python");
    let ready = home.join("ready");
    if fs::read_to_string(&ready).is_ok_and(|had| had == requirements) {
        return Ok(python);
    }
    make(&home, &python, requirements)?;
    fs::write(&ready, requirements).map_err(|error| error.to_string())?;
    Ok(python)
}

fn make(home: &Path, python: &Path, requirements: &str) -> Result<(), String> {
    let mut venv = Command::new("python3");
    ran(venv.args(["-m", "venv", "--clear"]).arg(home))?;
    let list = home.join("requirements.txt");
    fs::write(&list, requirements).map_err(|error| error.to_string())?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-input", "--no-deps"])
        .args(["--retries=1", "--timeout=15", "--requirement"]);
    ran(pip.arg(&list))
}

fn ran(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

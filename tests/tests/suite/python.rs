//! The Python package `sluice`: installed as a user would, judged by mypy, and tested by its own tests, which start a
//! cluster and run the examples of `docs/python.md`; and its module `sluice.zenml` with a real ZenML server, set up as
//! `docs/zenml.md` says.

use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_tests::{binaries, python_with};

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations/python")
}

/// Runs a module of `python` in the folder of the package; returns what it prints.
fn ran(python: &Path, module: &[&str]) -> String {
    let output = Command::new(python)
        .arg("-m")
        .args(module)
        .current_dir(package())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SLUICE_BIN", binaries())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{module:?}: {stdout}\n{stderr}");
    stdout
}

/// Installs the package where `python` is.
fn install(python: &Path) {
    let words = "pip install --quiet --no-input --no-deps --no-build-isolation --force-reinstall .";
    ran(python, &words.split(' ').collect::<Vec<_>>());
}

/// Runs tests of the package; none may be left out.
fn test(python: &Path, more: &[&str]) {
    let said = ran(
        python,
        &[&["pytest", "-q", "-p", "no:cacheprovider"], more].concat(),
    );
    let all = said.contains(" passed") && !said.contains("skipped");
    assert!(all, "{said}");
}

#[test]
fn the_python_package_keeps_its_types_and_does_what_its_tests_and_its_page_say() {
    let requirements = include_str!("../../../integrations/python/tests/requirements.txt");
    let python = python_with("python-package", requirements).unwrap_or_else(|why| {
        panic!("pip cannot install integrations/python/tests/requirements.txt: {why}")
    });
    install(&python);
    let cache = python.with_file_name("mypy-cache");
    ran(&python, &["mypy", "--cache-dir", cache.to_str().unwrap()]);
    test(&python, &[]);
}

#[test]
fn zenml_gets_its_resources_and_runs_its_steps_here() {
    let requirements = include_str!("../../../integrations/python/zenml_tests/requirements.txt");
    let python = python_with("python-zenml", requirements).unwrap_or_else(|why| {
        panic!("pip cannot install integrations/python/zenml_tests/requirements.txt: {why}")
    });
    install(&python);
    test(&python, &["zenml_tests"]);
}

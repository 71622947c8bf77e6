//! The Python package `sluice`: installed as a user would, judged by mypy, and tested by its own tests, which start a
//! cluster and run the examples of `docs/python.md`.

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

#[test]
fn the_python_package_keeps_its_types_and_does_what_its_tests_and_its_page_say() {
    let requirements = include_str!("../../../integrations/python/tests/requirements.txt");
    let python = python_with("python-package", requirements).unwrap_or_else(|why| {
        panic!("pip cannot install integrations/python/tests/requirements.txt: {why}")
    });
    let install =
        "pip install --quiet --no-input --no-deps --no-build-isolation --force-reinstall .";
    ran(&python, &install.split(' ').collect::<Vec<_>>());
    let cache = python.with_file_name("mypy-cache");
    ran(&python, &["mypy", "--cache-dir", cache.to_str().unwrap()]);
    let said = ran(&python, &["pytest", "-q", "-p", "no:cacheprovider"]);
    let all = said.contains(" passed") && !said.contains("skipped");
    assert!(all, "{said}");
}

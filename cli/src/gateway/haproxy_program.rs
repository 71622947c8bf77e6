//! The installed program of HAProxy: where it is, and whether its version will do.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::render::safe;

/// Oldest version that has all that the configuration uses.
const OLDEST: (u32, u32) = (2, 5);
/// Directories beside those of `PATH`: users other than root do not search them on Debian.
const MORE_DIRS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// Why HAProxy cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HaproxyProgramError {
    #[error(
        "HAProxy is missing: `{name}` is not on the PATH: install it (`apt install haproxy`), or set `haproxy` to its path"
    )]
    Missing { name: String },
    #[error("cannot run {path}: {message}; set `haproxy` to the path of HAProxy, or install it again (`apt install haproxy`)", path = path.display())]
    Unusable { path: PathBuf, message: String },
    #[error("{path} is HAProxy {found}, and the gateway needs {oldest} or newer: install a newer one, or set `haproxy` to its path", path = path.display(), oldest = format_args!("{}.{}", OLDEST.0, OLDEST.1))]
    TooOld { path: PathBuf, found: String },
}

/// Finds HAProxy and checks its version.
///
/// # Errors
/// If it is missing, cannot be run, or is too old.
pub(crate) fn find_haproxy(program: &Path) -> Result<PathBuf, HaproxyProgramError> {
    let path = search(program).ok_or_else(|| HaproxyProgramError::Missing {
        name: safe(&program.to_string_lossy()),
    })?;
    let unusable = |message: String| HaproxyProgramError::Unusable {
        path: path.clone(),
        message: safe(&message),
    };
    let output = Command::new(&path).arg("-v").output();
    let output = output.map_err(|error| unusable(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let version = parse_version(&said).ok_or_else(|| {
        let line = said.lines().next().unwrap_or_default();
        unusable(format!(
            "`-v` says `{line}`, which names no version of HAProxy"
        ))
    })?;
    match version >= OLDEST {
        true => Ok(path),
        false => Err(HaproxyProgramError::TooOld {
            path,
            found: format!("{}.{}", version.0, version.1),
        }),
    }
}

fn search(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(MORE_DIRS.map(PathBuf::from));
    dirs.map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// Major and minor number in `HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/`; before 2.4 it was
/// called `HA-Proxy`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let rest = text
        .strip_prefix("HAProxy version ")
        .or_else(|| text.strip_prefix("HA-Proxy version "))?;
    let mut numbers = rest
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        (_, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn versions_are_read() {
        let debian =
            "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/\nStatus: ...";
        assert_eq!(parse_version(debian), Some((2, 6)));
        assert_eq!(
            parse_version("HA-Proxy version 2.2.9-2+deb11u7 2026/02/05"),
            Some((2, 2))
        );
        assert_eq!(parse_version("HAProxy version 3.0-dev1"), Some((3, 0)));
        assert_eq!(parse_version("nginx version: 1.22"), None);
    }

    #[test]
    fn what_is_missing_or_another_program_is_told_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = |script: &str| {
            let path = folder.path().join("haproxy");
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            find_haproxy(&path).unwrap_err().to_string()
        };
        let old = refusal("echo 'HA-Proxy version 2.2.9-2 2026/02/05'");
        assert!(
            old.contains("is HAProxy 2.2") && old.contains("2.5 or newer"),
            "{old}"
        );
        let other = refusal("echo 'hello'");
        assert!(
            other.contains("`hello`") && other.contains("apt install haproxy"),
            "{other}"
        );
        for name in ["no-such-haproxy", "/no/such/haproxy"] {
            let missing = find_haproxy(Path::new(name)).unwrap_err().to_string();
            assert!(
                missing.contains(name) && missing.contains("apt install haproxy"),
                "{missing}"
            );
        }
    }
}

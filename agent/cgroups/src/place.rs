//! Where the groups of attempts are made.

use std::path::PathBuf;

use crate::Own;

/// Where the groups of attempts are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In the group that the supervisor itself is in.
    #[default]
    Own,
    /// In this group of version 2, which was delegated to the supervisor: its path, below the mount or whole.
    At(PathBuf),
    /// Nowhere.
    Nowhere,
}

impl From<&str> for Place {
    fn from(text: &str) -> Self {
        match text {
            "none" => Self::Nowhere,
            "own" => Self::Own,
            path => Self::At(path.into()),
        }
    }
}

impl Place {
    /// The directory, where this process's own group is `own`.
    pub fn below(&self, own: &Own) -> PathBuf {
        match self {
            Self::Own | Self::Nowhere => own.group.clone(),
            Self::At(path) if path.starts_with(&own.mount) => path.clone(),
            Self::At(path) => own.mount.join(path.strip_prefix("/").unwrap_or(path)),
        }
    }

    /// Whether the group itself was given to the supervisor, to hand its controllers down.
    pub fn is_delegated(&self) -> bool {
        matches!(self, Self::At(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_path_is_below_the_mount_however_it_is_written() {
        let own = Own {
            mount: "/sys/fs/cgroup".into(),
            group: "/sys/fs/cgroup/me".into(),
        };
        for (text, wanted) in [
            ("own", "/sys/fs/cgroup/me"),
            (
                "system.slice/a.service",
                "/sys/fs/cgroup/system.slice/a.service",
            ),
            (
                "/system.slice/a.service",
                "/sys/fs/cgroup/system.slice/a.service",
            ),
            ("/sys/fs/cgroup/a.service", "/sys/fs/cgroup/a.service"),
        ] {
            assert_eq!(Place::from(text).below(&own), Path::new(wanted), "{text}");
        }
        assert_eq!(Place::from("none"), Place::Nowhere);
    }
}

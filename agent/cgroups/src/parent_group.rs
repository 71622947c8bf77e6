//! The control group below which the groups of attempts are made.

use std::path::PathBuf;

use crate::OwnGroup;

/// The control group below which the groups of attempts are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ParentGroup {
    /// The group that the supervisor itself is in.
    #[default]
    OwnGroup,
    /// A group of version 2 that was delegated to the supervisor: an absolute path, or a path below the mount
    /// point.
    At(PathBuf),
    /// No groups are made.
    Nowhere,
}

impl From<&str> for ParentGroup {
    fn from(text: &str) -> Self {
        match text {
            "none" => Self::Nowhere,
            "own" => Self::OwnGroup,
            path => Self::At(path.into()),
        }
    }
}

impl ParentGroup {
    /// The directory of the parent group; `own` is this process's own group.
    pub fn directory(&self, own: &OwnGroup) -> PathBuf {
        match self {
            Self::OwnGroup | Self::Nowhere => own.group.clone(),
            Self::At(path) if path.starts_with(&own.mount) => path.clone(),
            Self::At(path) => own.mount.join(path.strip_prefix("/").unwrap_or(path)),
        }
    }

    /// Whether the group was delegated to the supervisor, which then enables controllers in it.
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
        let own = OwnGroup {
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
            assert_eq!(
                ParentGroup::from(text).directory(&own),
                Path::new(wanted),
                "{text}"
            );
        }
        assert_eq!(ParentGroup::from("none"), ParentGroup::Nowhere);
    }
}

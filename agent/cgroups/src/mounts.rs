//! Finds where control groups are mounted and which group this process is in. A kernel may have both versions
//! mounted, in any place, and a container may see only a part of a hierarchy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A controller of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Limits processor time.
    Cpu,
    /// Counts processor time, in version 1.
    CpuAccounting,
    Memory,
    /// Limits how many processes there are.
    Pids,
    /// Freezes and thaws. With it no process escapes a kill by forking. In version 2 every group has it.
    Freezer,
    /// Filters devices, in version 1.
    Devices,
    /// Restricts to some processors.
    Cpuset,
}

impl Controller {
    /// The name that the kernel uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::CpuAccounting => "cpuacct",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Freezer => "freezer",
            Controller::Devices => "devices",
            Controller::Cpuset => "cpuset",
        }
    }
}

/// A mounted hierarchy, and the group of this process in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnGroup {
    /// Mount point of the hierarchy.
    pub mount: PathBuf,
    /// Directory of this process's own group.
    pub group: PathBuf,
}

/// The hierarchies in which this process has a group.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    pub unified: Option<OwnGroup>,
    /// Hierarchies of version 1, by controller.
    pub legacy: BTreeMap<String, OwnGroup>,
}

impl Hierarchies {
    /// Reads the hierarchies below `root`, which is `/` except in tests.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mountinfo = fs::read_to_string(root.join("proc/self/mountinfo"))?;
        let own = fs::read_to_string(root.join("proc/self/cgroup"))?;
        Ok(Self::parse(root, &mountinfo, &own))
    }

    fn parse(root: &Path, mountinfo: &str, own: &str) -> Self {
        let own = own_groups(own);
        let mut found = Self::default();
        for mount in mountinfo.lines().filter_map(Mount::parse) {
            let at = |name: &str| mount.own(root, own.get(name)?);
            if mount.is_unified {
                found.unified = found.unified.or_else(|| at(""));
                continue;
            }
            for name in mount.options.split(',') {
                if let Some(own) = at(name) {
                    found.legacy.entry(name.to_owned()).or_insert(own);
                }
            }
        }
        found
    }
}

/// The group of this process for each controller, from lines such as `8:pids:/x` and `0::/x`; the controller
/// of version 2 has an empty name.
fn own_groups(text: &str) -> BTreeMap<&str, &str> {
    let mut groups = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        if let (Some(names), Some(group)) = (fields.next(), fields.next()) {
            groups.extend(names.split(',').map(|name| (name, group)));
        }
    }
    groups
}

/// A line of `mountinfo` about control groups.
struct Mount<'a> {
    /// The group of the hierarchy that is mounted at `point`.
    top: &'a str,
    point: &'a str,
    is_unified: bool,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// Parses lines such as `30 29 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw`: the fourth
    /// word is the mounted group, the fifth the mount point, the type follows the dash, and the last word has
    /// the controllers of version 1.
    fn parse(line: &'a str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split_whitespace().skip(3);
        let mut kind = kind.split_whitespace();
        let is_unified = match kind.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        Some(Self {
            top: place.next()?,
            point: place.next()?,
            is_unified,
            options: kind.last().unwrap_or_default(),
        })
    }

    /// The group `own` of the hierarchy, if this mount shows it.
    fn own(&self, root: &Path, own: &str) -> Option<OwnGroup> {
        let below = Path::new(own).strip_prefix(self.top).ok()?;
        // The path of a group outside of what a container sees has these components.
        if below.components().any(|part| part.as_os_str() == "..") {
            return None;
        }
        let point = Path::new(self.point);
        let mount = root.join(point.strip_prefix("/").unwrap_or(point));
        let group = mount.join(below);
        Some(OwnGroup { mount, group })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(mount: &str, group: &str) -> OwnGroup {
        OwnGroup {
            mount: mount.into(),
            group: group.into(),
        }
    }

    #[test]
    fn each_hierarchy_is_found_where_it_is_mounted() {
        let mountinfo = "22 1 0:20 / / rw - ext4 /dev/vda rw\n\
                         29 28 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                         30 28 0:26 / /sys/fs/cgroup/cpu,cpuacct rw shared:3 - cgroup cgroup rw,cpu,cpuacct\n\
                         31 28 0:27 /box /odd/place rw - cgroup cgroup rw,pids\n\
                         32 28 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
                         garbage\n - \n";
        let groups = "5:pids:/box/a\n4:cpu,cpuacct:/b\n1:name=systemd:/\n0::/c/d\n";
        let found = Hierarchies::parse(Path::new("/"), mountinfo, groups);
        let unified = "/sys/fs/cgroup/unified";
        assert_eq!(found.unified, Some(own(unified, &format!("{unified}/c/d"))));
        let both = "/sys/fs/cgroup/cpu,cpuacct";
        for name in ["cpu", "cpuacct"] {
            assert_eq!(found.legacy[name], own(both, &format!("{both}/b")));
        }
        assert_eq!(found.legacy["pids"], own("/odd/place", "/odd/place/a"));
        assert!(!found.legacy.contains_key("freezer"));
    }

    #[test]
    fn a_group_that_this_mount_does_not_show_is_not_guessed_at() {
        let mountinfo = "29 28 0:25 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        for outside in ["0::/other", "0::/box/../other", "", "0::"] {
            let found = Hierarchies::parse(Path::new("/"), mountinfo, outside);
            assert_eq!(found.unified, None, "{outside}");
        }
        let outside = "29 28 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let found = Hierarchies::parse(Path::new("/"), outside, "0::/../x\n");
        assert_eq!(found.unified, None);
    }
}

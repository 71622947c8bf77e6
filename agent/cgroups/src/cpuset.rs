//! Pins attempts to processors by the cpuset controller of either version. The agent chooses the processors.
//!
//! In version 1 only pinned attempts get a cpuset group: a new group has no processors and no memory nodes
//! until they are written, and other attempts do not need one.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_common::inventory::Mechanism;
use sluice_common::processors::CpuSet;
use tracing::{debug, warn};

use crate::file::{self, GroupError};
use crate::unified::Unified;
use crate::{Controller, Hierarchies, OwnGroup};

const PROCESSORS: &str = "cpuset.cpus";
const MEMORY: &str = "cpuset.mems";

/// The cpuset groups of attempts.
#[derive(Debug)]
pub struct Cpusets {
    backend: Backend,
    /// `/`, or a test's directory; memory nodes are read below it.
    root: PathBuf,
}

#[derive(Debug)]
enum Backend {
    None,
    /// The cpuset files of each attempt's own group of version 2.
    Unified,
    /// A group for each attempt below this one of version 1.
    Legacy(PathBuf),
}

impl Cpusets {
    /// Makes a value that pins no step.
    pub fn none() -> Self {
        Self {
            backend: Backend::None,
            root: PathBuf::new(),
        }
    }

    /// Uses version 2 if the cpuset controller is on there, else a group `name` of version 1 below this
    /// process's own.
    pub fn open(
        root: &Path,
        unified: Option<&Unified>,
        hierarchies: &Hierarchies,
        name: &str,
    ) -> Self {
        let legacy = || {
            let own = hierarchies.legacy.get(Controller::Cpuset.as_str())?;
            let made = make_legacy_root(own, name);
            made.inspect_err(|e| {
                warn!("steps cannot be pinned with control groups of version 1: {e}")
            })
            .ok()
        };
        let backend = match unified.is_some_and(|unified| unified.supports(Controller::Cpuset)) {
            true => Backend::Unified,
            false => legacy().map_or(Backend::None, Backend::Legacy),
        };
        Self {
            backend,
            root: root.to_owned(),
        }
    }

    /// The mechanism by which steps are pinned.
    pub fn mechanism(&self) -> Mechanism {
        match self.backend {
            Backend::None => Mechanism::None,
            Backend::Unified => Mechanism::Cgroup2,
            Backend::Legacy(_) => Mechanism::Cgroup1,
        }
    }

    /// Restricts all processes of an attempt, present and future, to `processors`. If all of these belong to
    /// one memory node, memory comes from that node. `group` is the attempt's group of version 2.
    ///
    /// # Errors
    /// If the kernel rejects the processors.
    pub fn pin(
        &self,
        group: Option<&Path>,
        name: &Path,
        processors: &CpuSet,
    ) -> Result<(), GroupError> {
        let node = memory_node(&self.root, processors);
        match (&self.backend, group) {
            (Backend::None, _) | (Backend::Unified, None) => Ok(()),
            (Backend::Unified, Some(group)) => {
                file::write(&group.join(PROCESSORS), &processors.to_string())?;
                // An empty line means all nodes.
                let node = node.map_or("\n".to_owned(), |node| node.to_string());
                if let Err(e) = file::write(&group.join(MEMORY), &node) {
                    debug!("its memory cannot be bound to a NUMA node: {e}");
                }
                Ok(())
            }
            (Backend::Legacy(root), _) => {
                let group = root.join(name);
                file::make(&group)?;
                let near = node.map(|node| file::write(&group.join(MEMORY), &node.to_string()));
                if !matches!(near, Some(Ok(()))) {
                    copy(MEMORY, root, &group)?;
                }
                file::write(&group.join(PROCESSORS), &processors.to_string())
            }
        }
    }

    /// The `tasks` file by which a thread enters the attempt's cpuset group of version 1, if it has one.
    pub fn entry_file(&self, name: &Path) -> Option<PathBuf> {
        let tasks = self.legacy_root()?.join(name).join("tasks");
        tasks.exists().then_some(tasks)
    }

    /// Names of the attempts' groups of version 1.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.legacy_root().into_iter().flat_map(file::children)
    }

    /// Whether the attempt has a cpuset group of version 1.
    pub fn exists(&self, name: &Path) -> bool {
        self.legacy_root()
            .is_some_and(|root| root.join(name).exists())
    }

    /// Removes an attempt's group of version 1, which must hold no process.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self, name: &Path) -> Result<(), GroupError> {
        match self.legacy_root() {
            Some(root) => file::remove_tree(&root.join(name)),
            None => Ok(()),
        }
    }

    /// Removes the root of version 1 unless attempts that still run have groups there.
    pub fn close(&self) {
        let _ = self.legacy_root().map(fs::remove_dir);
    }

    /// The root of version 1, if it is used.
    pub fn legacy_root(&self) -> Option<&Path> {
        match &self.backend {
            Backend::None | Backend::Unified => None,
            Backend::Legacy(root) => Some(root),
        }
    }
}

/// Makes the root and copies processors and memory nodes into it: no process can enter a cpuset group of
/// version 1 without them.
fn make_legacy_root(own: &OwnGroup, name: &str) -> Result<PathBuf, GroupError> {
    let root = own.group.join(name);
    file::make(&root)?;
    for what in [MEMORY, PROCESSORS] {
        copy(what, &own.group, &root)?;
    }
    Ok(root)
}

fn copy(what: &str, from: &Path, to: &Path) -> Result<(), GroupError> {
    let path = from.join(what);
    let text = fs::read_to_string(&path).map_err(|e| GroupError::new("read", &path, e))?;
    file::write(&to.join(what), text.trim())
}

/// The memory node that all of these processors belong to, if there is one.
fn memory_node(root: &Path, processors: &CpuSet) -> Option<u32> {
    let nodes = root.join("sys/devices/system/node");
    let numbers = file::children(&nodes).filter_map(|name| {
        let number: u32 = name.strip_prefix("node")?.parse().ok()?;
        let listed = fs::read_to_string(nodes.join(&name).join("cpulist")).ok()?;
        let listed: CpuSet = listed.parse().ok()?;
        processors.is_subset(&listed).then_some(number)
    });
    numbers.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake host with two memory nodes of two processors each, and the files of one hierarchy.
    struct FakeHost(tempfile::TempDir);

    impl FakeHost {
        fn new() -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (node, list) in [("node0", "0-1\n"), ("node1", "2-3\n")] {
                tree.put(&format!("sys/devices/system/node/{node}/cpulist"), list);
            }
            tree
        }

        fn put(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn text(&self, name: &str) -> String {
            let text = fs::read_to_string(self.0.path().join(name)).unwrap();
            text.trim().to_owned()
        }

        fn cpusets(&self, backend: Backend) -> Cpusets {
            Cpusets {
                backend,
                root: self.0.path().to_owned(),
            }
        }
    }

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn version_2_is_told_processors_and_the_node_that_they_are_near_to() {
        let tree = FakeHost::new();
        let group = tree.0.path().join("a");
        let cpusets = tree.cpusets(Backend::Unified);
        for (processors, memory) in [("2-3", "1"), ("0", "0"), ("1-2", "")] {
            tree.put("a/cpuset.cpus", "");
            tree.put("a/cpuset.mems", "");
            cpusets
                .pin(Some(&group), Path::new("a"), &set(processors))
                .unwrap();
            assert_eq!(tree.text("a/cpuset.cpus"), processors);
            assert_eq!(tree.text("a/cpuset.mems"), memory, "{processors}");
        }
        assert_eq!(cpusets.mechanism(), Mechanism::Cgroup2);
        assert_eq!(cpusets.entry_file(Path::new("a")), None, "it has one group");
    }

    #[test]
    fn version_1_has_all_memory_where_several_nodes_are_near() {
        let tree = FakeHost::new();
        tree.put("root/cpuset.mems", "0-1\n");
        tree.put("root/a/cpuset.mems", "");
        tree.put("root/a/cpuset.cpus", "");
        tree.put("root/a/tasks", "");
        let cpusets = tree.cpusets(Backend::Legacy(tree.0.path().join("root")));
        let name = Path::new("a");
        cpusets.pin(None, name, &set("1-2")).unwrap();
        assert_eq!(tree.text("root/a/cpuset.mems"), "0-1");
        assert_eq!(tree.text("root/a/cpuset.cpus"), "1-2");
        assert!(cpusets.exists(name) && cpusets.entry_file(name).is_some());
        assert!(
            !cpusets.exists(Path::new("b")),
            "who is not pinned has none"
        );
    }

    #[test]
    fn processors_that_the_kernel_refuses_are_an_error_that_names_the_file() {
        let tree = FakeHost::new();
        let group = tree.0.path().join("none");
        let refused =
            tree.cpusets(Backend::Unified)
                .pin(Some(&group), Path::new("none"), &set("0"));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("none/cpuset.cpus"), "{error}");
    }
}

//! Keeping an attempt to processors of its own, by the cpuset controller of either version. Which processors those are
//! the agent decides; here is only how the kernel is told.
//!
//! Only attempts that are pinned have a group of version 1: a new group of that version holds nothing, neither processors
//! nor memory, until it is filled, and one that every attempt entered would be of no use to the others.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_common::inventory::Mechanism;
use sluice_common::processors::CpuSet;
use tracing::{debug, warn};

use crate::file::{self, GroupError};
use crate::unified::Unified;
use crate::{Controller, Hierarchies, Own};

const PROCESSORS: &str = "cpuset.cpus";
const MEMORY: &str = "cpuset.mems";

/// By which means attempts are kept to processors.
#[derive(Debug)]
pub struct Cpusets {
    way: Way,
    /// Where the kernel tells of memory nodes: `/`, or what a test puts in its place.
    root: PathBuf,
}

#[derive(Debug)]
enum Way {
    None,
    /// In each attempt's own group.
    Unified,
    /// In groups below this one.
    Legacy(PathBuf),
}

impl Cpusets {
    /// By none.
    pub fn none() -> Self {
        Self {
            way: Way::None,
            root: PathBuf::new(),
        }
    }

    /// By version 2 where that can, else below our own group `name` of version 1.
    pub fn open(
        root: &Path,
        unified: Option<&Unified>,
        hierarchies: &Hierarchies,
        name: &str,
    ) -> Self {
        let legacy = || {
            let own = hierarchies.legacy.get(Controller::Cpuset.as_str())?;
            let made = make_legacy_root(own, name);
            made.inspect_err(|e| warn!("steps cannot be pinned by version 1: {e}"))
                .ok()
        };
        let way = match unified.is_some_and(|unified| unified.does(Controller::Cpuset)) {
            true => Way::Unified,
            false => legacy().map_or(Way::None, Way::Legacy),
        };
        Self {
            way,
            root: root.to_owned(),
        }
    }

    /// By which means.
    pub fn mechanism(&self) -> Mechanism {
        match self.way {
            Way::None => Mechanism::None,
            Way::Unified => Mechanism::Cgroup2,
            Way::Legacy(_) => Mechanism::Cgroup1,
        }
    }

    /// Keeps what is in the groups of an attempt, and what comes in later, to these processors; and, where they are near
    /// to one memory node, to the memory of that. `group` is its group of version 2.
    ///
    /// # Errors
    /// Where the kernel refuses the processors.
    pub fn pin(
        &self,
        group: Option<&Path>,
        name: &Path,
        processors: &CpuSet,
    ) -> Result<(), GroupError> {
        let node = memory_node(&self.root, processors);
        match (&self.way, group) {
            (Way::None, _) | (Way::Unified, None) => Ok(()),
            (Way::Unified, Some(group)) => {
                file::write(&group.join(PROCESSORS), &processors.to_string())?;
                // A line without a number is all that there is.
                let node = node.map_or("\n".to_owned(), |node| node.to_string());
                if let Err(e) = file::write(&group.join(MEMORY), &node) {
                    debug!("its memory is taken from anywhere: {e}");
                }
                Ok(())
            }
            (Way::Legacy(root), _) => {
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

    /// The file of threads by which one comes in, where an attempt has a group of this alone.
    pub fn entrance(&self, name: &Path) -> Option<PathBuf> {
        let tasks = self.legacy_root()?.join(name).join("tasks");
        tasks.exists().then_some(tasks)
    }

    /// The names of the groups of version 1.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.legacy_root().into_iter().flat_map(file::children)
    }

    /// Whether there is such a group of version 1.
    pub fn exists(&self, name: &Path) -> bool {
        self.legacy_root()
            .is_some_and(|root| root.join(name).exists())
    }

    /// Removes a group of version 1, which holds no process.
    ///
    /// # Errors
    /// Where it cannot be removed.
    pub fn remove(&self, name: &Path) -> Result<(), GroupError> {
        match self.legacy_root() {
            Some(root) => file::remove_tree(&root.join(name)),
            None => Ok(()),
        }
    }

    /// Removes the root of version 1, unless it holds the groups of attempts that run on.
    pub fn close(&self) {
        let _ = self.legacy_root().map(fs::remove_dir);
    }

    /// The root of version 1, where it is used.
    pub fn legacy_root(&self) -> Option<&Path> {
        match &self.way {
            Way::None | Way::Unified => None,
            Way::Legacy(root) => Some(root),
        }
    }
}

/// Nobody can come into a group of version 1 that has no processors or no memory.
fn make_legacy_root(own: &Own, name: &str) -> Result<PathBuf, GroupError> {
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

/// The one memory node that all of these processors are near to.
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

    /// A host on paper with two memory nodes of two processors each, and the files of one hierarchy.
    struct Tree(tempfile::TempDir);

    impl Tree {
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

        fn cpusets(&self, way: Way) -> Cpusets {
            Cpusets {
                way,
                root: self.0.path().to_owned(),
            }
        }
    }

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn version_2_is_told_processors_and_the_node_that_they_are_near_to() {
        let tree = Tree::new();
        let group = tree.0.path().join("a");
        let cpusets = tree.cpusets(Way::Unified);
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
        assert_eq!(cpusets.entrance(Path::new("a")), None, "it has one group");
    }

    #[test]
    fn version_1_has_all_memory_where_several_nodes_are_near() {
        let tree = Tree::new();
        tree.put("root/cpuset.mems", "0-1\n");
        tree.put("root/a/cpuset.mems", "");
        tree.put("root/a/cpuset.cpus", "");
        tree.put("root/a/tasks", "");
        let cpusets = tree.cpusets(Way::Legacy(tree.0.path().join("root")));
        let name = Path::new("a");
        cpusets.pin(None, name, &set("1-2")).unwrap();
        assert_eq!(tree.text("root/a/cpuset.mems"), "0-1");
        assert_eq!(tree.text("root/a/cpuset.cpus"), "1-2");
        assert!(cpusets.exists(name) && cpusets.entrance(name).is_some());
        assert!(
            !cpusets.exists(Path::new("b")),
            "who is not pinned has none"
        );
    }

    #[test]
    fn processors_that_the_kernel_refuses_are_an_error_that_names_the_file() {
        let tree = Tree::new();
        let group = tree.0.path().join("none");
        let refused = tree
            .cpusets(Way::Unified)
            .pin(Some(&group), Path::new("none"), &set("0"));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("none/cpuset.cpus"), "{error}");
    }
}

//! The file system of a container of bubblewrap: the image's files, read-only, with places for mounts that the image does
//! not have. bubblewrap cannot make a mount point within a read-only directory. So each directory of the image that leads
//! to a mount is made anew, in memory, and its entries are bound one by one.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Most entries that are bound one by one: each is a mount of the kernel's, and a directory with more is an odd place for
/// a mount.
const MAX_ENTRIES: usize = 4096;

/// Arguments that show the files of the image at `root` around mounts at `targets`.
pub(super) fn arguments(root: &Path, targets: &[&Path]) -> Result<Vec<OsString>, String> {
    let mut view = RootView {
        root,
        targets,
        args: Vec::new(),
        entries: 0,
    };
    view.show(Path::new("/"))?;
    Ok(view.args)
}

struct RootView<'a> {
    root: &'a Path,
    targets: &'a [&'a Path],
    args: Vec<OsString>,
    entries: usize,
}

impl RootView<'_> {
    /// Shows the entries of a directory that leads to a mount.
    fn show(&mut self, dir: &Path) -> Result<(), String> {
        let own = inside(self.root, dir);
        let failed = |e: &io::Error| format!("{} of the image cannot be read: {e}", own.display());
        let entries = fs::read_dir(&own).map_err(|e| failed(&e))?;
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry.map_err(|e| failed(&e))?.file_name());
        }
        names.sort_unstable();
        self.entries += names.len();
        if self.entries > MAX_ENTRIES {
            return Err(format!(
                "the image has more than {MAX_ENTRIES} entries around its mounts, such as in `{}`: mount elsewhere",
                dir.display()
            ));
        }
        for name in names {
            self.show_entry(&dir.join(name))?;
        }
        Ok(())
    }

    fn show_entry(&mut self, path: &Path) -> Result<(), String> {
        if self.targets.contains(&path) {
            return Ok(());
        }
        let own = inside(self.root, path);
        let failed = |e: &io::Error| format!("{} of the image cannot be read: {e}", own.display());
        let kind = own.symlink_metadata().map_err(|e| failed(&e))?.file_type();
        let leads_to_mount = self.targets.iter().any(|target| target.starts_with(path));
        if leads_to_mount {
            // A link that leads to a mount gives way to a directory.
            self.add(&["--dir".as_ref(), path]);
            return match kind.is_dir() {
                true => self.show(path),
                false => Ok(()),
            };
        }
        if kind.is_symlink() {
            let to = fs::read_link(&own).map_err(|e| failed(&e))?;
            self.add(&["--symlink".as_ref(), &to, path]);
        } else {
            self.add(&["--ro-bind".as_ref(), &own, path]);
        }
        Ok(())
    }

    fn add(&mut self, args: &[&Path]) {
        self.args
            .extend(args.iter().map(|arg| arg.as_os_str().to_owned()));
    }
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_directories_that_lead_to_a_mount_are_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for below in ["usr/bin", "var/lib/dpkg", "var/log", "data", "home"] {
            fs::create_dir_all(root.join(below)).unwrap();
        }
        fs::write(root.join("etc"), "").unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        symlink("/elsewhere", root.join("opt")).unwrap();
        let targets = ["/var/lib/sluice/a.1", "/data", "/opt/sets", "/new/place"];
        let args = arguments(root, &targets.map(Path::new)).unwrap();
        let args: Vec<String> = args
            .iter()
            .map(|arg| arg.to_str().unwrap().replace(root.to_str().unwrap(), "R"))
            .collect();
        let expected = "--symlink usr/bin /bin --ro-bind R/etc /etc --ro-bind R/home /home --dir /opt \
             --ro-bind R/usr /usr --dir /var --dir /var/lib --ro-bind R/var/lib/dpkg /var/lib/dpkg \
             --ro-bind R/var/log /var/log";
        assert_eq!(args.join(" "), expected);
    }

    #[test]
    fn a_directory_with_too_many_entries_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..=MAX_ENTRIES {
            fs::write(dir.path().join(n.to_string()), "").unwrap();
        }
        let why = arguments(dir.path(), &[Path::new("/x")]).unwrap_err();
        assert!(why.contains("more than 4096 entries"), "{why}");
    }
}

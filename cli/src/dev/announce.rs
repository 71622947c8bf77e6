//! Writes the context file of this cluster into the user's configuration, unless another cluster has it, and removes it
//! at the end.

use std::path::{Path, PathBuf};

use crate::context::{self, ContextError, ContextFile, NamedContexts};
use crate::out::Out;

/// The written context files.
#[derive(Debug)]
pub(super) struct Announcement {
    /// Our own copy, for `--context`.
    own: PathBuf,
    /// The file in the user's configuration, if it is ours.
    default: Option<PathBuf>,
}

impl Announcement {
    /// Writes the context into the user's configuration if there is none, or that of a dead `dev`.
    pub(super) fn make(context: &ContextFile, own: &Path, out: Out) -> Self {
        let Ok(contexts) = NamedContexts::of_user() else {
            return Self::make_at(None, context, own, out);
        };
        let current = contexts.current();
        if current == context::DEFAULT {
            return Self::make_at(Some(contexts.path(&current)), context, own, out);
        }
        out.warning(&format!(
            "the context in use is `{current}`: commands reach this cluster with --context {}",
            own.display()
        ));
        Self::make_at(None, context, own, out)
    }

    fn make_at(path: Option<PathBuf>, context: &ContextFile, own: &Path, out: Out) -> Self {
        let own = own.to_owned();
        let Some(path) = path else {
            return Self { own, default: None };
        };
        let shown = path.display();
        if let Some(owner) = taken_by(&path) {
            out.warning(&format!(
                "{shown} {owner}: commands reach this cluster with --context {}",
                own.display()
            ));
            return Self { own, default: None };
        }
        match context.write(&path) {
            Ok(()) => Self {
                own,
                default: Some(path),
            },
            Err(error) => {
                out.warning(&format!(
                    "cannot write {shown} ({error}): commands reach this cluster with --context {}",
                    own.display()
                ));
                Self { own, default: None }
            }
        }
    }

    /// Returns the file that commands must be given with `--context`.
    pub(super) fn needed_flag(&self) -> Option<&Path> {
        self.default.is_none().then_some(&self.own)
    }

    /// Removes the file in the user's configuration, if it is still ours.
    pub(super) fn withdraw(&self) {
        if let Some(path) = &self.default
            && context::read(path).is_ok_and(|file| file.is_ours())
        {
            // A file that stays behind says that its `dev` has ended.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns whose the file is, if it is not free to take.
fn taken_by(path: &Path) -> Option<String> {
    match context::read(path) {
        Ok(file) if file.dev_lives() => {
            let pid = file.dev_pid.unwrap_or_default();
            Some(format!("belongs to another `sluice dev` (process {pid})"))
        }
        Ok(file) if file.dev_pid.is_some() => None,
        Err(ContextError::Unreadable { source, .. })
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            None
        }
        Ok(_) | Err(_) => Some("names another cluster".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(pid: u32, ticks: Option<u64>) -> ContextFile {
        ContextFile {
            http: "127.0.0.1:1".into(),
            dev_pid: Some(pid),
            dev_start_ticks: ticks,
            ..ContextFile::default()
        }
    }

    fn ours() -> ContextFile {
        let pid = std::process::id();
        context(pid, context::start_ticks(pid))
    }

    fn announce(path: &Path) -> Announcement {
        Announcement::make_at(
            Some(path.to_owned()),
            &ours(),
            Path::new("/own"),
            Out::plain(),
        )
    }

    #[test]
    fn a_free_place_is_taken_and_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sluice/context.json");
        let announcement = announce(&path);
        assert_eq!(announcement.needed_flag(), None);
        assert!(context::read(&path).unwrap().is_ours());
        announcement.withdraw();
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_dev_s_place_is_free_and_a_live_one_s_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("context.json");
        context(std::process::id(), Some(1)).write(&path).unwrap();
        assert_eq!(
            announce(&path).needed_flag(),
            None,
            "its number was given to another process"
        );
        let parent = std::os::unix::process::parent_id();
        let live = context(parent, context::start_ticks(parent));
        live.write(&path).unwrap();
        let announcement = announce(&path);
        assert_eq!(announcement.needed_flag(), Some(Path::new("/own")));
        announcement.withdraw();
        assert_eq!(
            context::read(&path).unwrap(),
            live,
            "what is another's stays"
        );
    }

    #[test]
    fn a_real_cluster_s_context_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("context.json");
        let real = ContextFile {
            http: "coord-1:7070".into(),
            ..ContextFile::default()
        };
        real.write(&path).unwrap();
        assert!(announce(&path).needed_flag().is_some());
        assert_eq!(context::read(&path).unwrap(), real);
    }
}

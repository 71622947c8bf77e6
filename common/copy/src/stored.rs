//! Sends a file or a directory of a stored stream, as [`crate::send`] does of the directory that it was made of. What is
//! stored is not trusted: a step wrote it.

use std::io::{Read, Write};

use crate::error::CopyError;
use crate::message::{
    CopyIssue, FilePart, FileVersion, Issue, MAX_DEPTH, Position, TreeItem, TreePath, is_name,
};
use crate::stream::{Contents, CopyReader, CopyWriter};

/// Sends what a stored stream has at a path, from where an earlier connection ended.
///
/// # Errors
/// If either stream breaks, or nothing is stored at the path; the receiving end is told then.
pub fn send_stored<R: Read, W: Write>(
    stored: &mut CopyReader<R>,
    path: &[u8],
    after: Option<&Position>,
    out: &mut CopyWriter<W>,
) -> Result<(), CopyError> {
    let sent = wanted(path).and_then(|wanted| {
        let mut sender = StoredSender {
            stored,
            out,
            wanted,
            after,
            path: Vec::new(),
            has_begun: false,
            left_out: None,
        };
        sender.tree()
    });
    match sent {
        Err(error) => {
            let told = out.message(&TreeItem::Failed(error.to_failure()));
            let _the_first_error_counts = told.and_then(|()| out.flush());
            Err(error)
        }
        Ok(()) => out.flush(),
    }
}

/// The names of a path below the directory that was stored.
fn wanted(path: &[u8]) -> Result<Vec<Vec<u8>>, CopyError> {
    let shown = String::from_utf8_lossy(path).into_owned();
    let refused = |why: &str| Err(CopyError::Refused(format!("`{shown}` {why}")));
    if path.starts_with(b"/") {
        return refused(
            "is not a path in the step's own directory: the step has ended, and only files of that are kept; leave out the `/`",
        );
    }
    let names = path.split(|byte| *byte == b'/');
    let names: Vec<_> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    match names.iter().all(|name| is_name(name)) {
        true => Ok(names.into_iter().map(<[u8]>::to_vec).collect()),
        false => refused("is not a path in the step's own directory: write it without `..`"),
    }
}

struct StoredSender<'a, R, W> {
    stored: &'a mut CopyReader<R>,
    out: &'a mut CopyWriter<W>,
    /// Names of the wanted file or directory.
    wanted: Vec<Vec<u8>>,
    after: Option<&'a Position>,
    /// Names of the current file or directory.
    path: Vec<Vec<u8>>,
    /// Whether the wanted file or directory has come.
    has_begun: bool,
    /// Reason for which the wanted one was left out.
    left_out: Option<Issue>,
}

impl<R: Read, W: Write> StoredSender<'_, R, W> {
    fn tree(&mut self) -> Result<(), CopyError> {
        match self.item()? {
            TreeItem::Directory {
                name,
                mode,
                version,
            } if name.is_empty() => self.directory(mode, version)?,
            _ => return Err(damaged()),
        }
        if self.has_begun {
            return self.out.message(&TreeItem::End);
        }
        let names = self.wanted.iter().map(|name| String::from_utf8_lossy(name));
        let path = names.collect::<Vec<_>>().join("/");
        Err(CopyError::Refused(match self.left_out {
            Some(issue) => format!("`{path}` {issue}"),
            None => format!(
                "`{path}` is not among the files that were kept of the step: `sluice cp STEP: DIR` copies all of them"
            ),
        }))
    }

    fn item(&mut self) -> Result<TreeItem, CopyError> {
        self.stored.message().map_err(|error| match error {
            CopyError::Lost(_) => damaged(),
            error => error,
        })
    }

    /// The path below the wanted directory, if the current file is in it or is it.
    fn below(&self) -> Option<TreePath> {
        let below = self.path.strip_prefix(&self.wanted[..])?;
        Some(TreePath(below.to_vec()))
    }

    /// The name that the receiving end gets: the root of the copy has none.
    fn name(&self) -> Vec<u8> {
        match self.path.len() == self.wanted.len() {
            true => Vec::new(),
            false => self.path.last().cloned().unwrap_or_default(),
        }
    }

    fn is_done(&self, below: &TreePath, is_directory: bool) -> bool {
        let after = self.after;
        after.is_some_and(|after| after.includes(below, is_directory))
    }

    fn directory(&mut self, mode: u32, version: FileVersion) -> Result<(), CopyError> {
        let below = self.below();
        let sends = below.is_some_and(|below| below.0.is_empty() || !self.is_done(&below, true));
        if sends {
            self.has_begun = true;
            let name = self.name();
            self.out.message(&TreeItem::Directory {
                name,
                mode,
                version,
            })?;
        }
        loop {
            let item = self.item()?;
            if item == TreeItem::DirectoryEnd {
                break;
            }
            if let TreeItem::Note(note) = item {
                self.note(note)?;
                continue;
            }
            let name = match &item {
                TreeItem::Directory { name, .. }
                | TreeItem::File { name, .. }
                | TreeItem::Link { name, .. } => name.clone(),
                _ => return Err(damaged()),
            };
            if !is_name(&name) || self.path.len() >= MAX_DEPTH {
                return Err(damaged());
            }
            self.path.push(name);
            self.entry(item)?;
            self.path.pop();
        }
        match sends {
            true => self.out.message(&TreeItem::DirectoryEnd),
            false => Ok(()),
        }
    }

    fn entry(&mut self, item: TreeItem) -> Result<(), CopyError> {
        match item {
            TreeItem::Directory { mode, version, .. } => self.directory(mode, version),
            TreeItem::File {
                mode,
                version,
                from: 0,
                ..
            } => self.file(mode, version),
            TreeItem::Link { name, target } => self.link(name, target),
            _ => Err(damaged()),
        }
    }

    fn link(&mut self, name: Vec<u8>, target: Vec<u8>) -> Result<(), CopyError> {
        let Some(below) = self.below() else {
            return Ok(());
        };
        if below.0.is_empty() {
            let target = String::from_utf8_lossy(&target).into_owned();
            let name = String::from_utf8_lossy(&name);
            let why =
                format!("`{name}` is a link to `{target}`: copy that, or the directory around it");
            return Err(CopyError::Refused(why));
        }
        match self.is_done(&below, false) {
            true => Ok(()),
            false => self.out.message(&TreeItem::Link { name, target }),
        }
    }

    fn file(&mut self, mode: u32, version: FileVersion) -> Result<(), CopyError> {
        let below = self.below();
        let sent = below.filter(|below| !self.is_done(below, false));
        self.has_begun |= self.path == self.wanted;
        let Some(below) = sent else {
            return self.contents(version.size, None);
        };
        let part = self.after.filter(|after| after.path == below);
        let from = match part.and_then(|after| after.part) {
            Some(FilePart {
                version: then,
                bytes,
            }) if then == version => bytes.min(version.size),
            Some(_) | None => 0,
        };
        let name = self.name();
        self.out.message(&TreeItem::File {
            name,
            mode,
            version,
            from,
        })?;
        self.contents(version.size, Some(from))?;
        self.out.message(&TreeItem::FileEnd)
    }

    /// Reads the contents of a file, and sends those from an offset.
    fn contents(&mut self, size: u64, from: Option<u64>) -> Result<(), CopyError> {
        let mut at = 0;
        loop {
            let data = match self.stored.data() {
                Err(CopyError::Lost(_)) => return Err(damaged()),
                data => data?,
            };
            let bytes = match data {
                Contents::Bytes(bytes) => bytes,
                Contents::Message(message) => {
                    let is_end = Contents::parse::<TreeItem>(message)? == TreeItem::FileEnd;
                    return match is_end && at == size {
                        true => Ok(()),
                        false => Err(damaged()),
                    };
                }
            };
            let end = at + bytes.len() as u64;
            if end > size {
                return Err(damaged());
            }
            let skipped = from.map_or(bytes.len() as u64, |from| from.saturating_sub(at));
            let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
            if let Some(mut wanted) = bytes.get(skipped..).filter(|it| !it.is_empty()) {
                self.out.data(wanted.len() as u64, |room| {
                    Ok(wanted.read(room).unwrap_or_default())
                })?;
            }
            at = end;
        }
    }

    fn note(&mut self, note: CopyIssue) -> Result<(), CopyError> {
        let Some(below) = note.path.0.strip_prefix(&self.wanted[..]) else {
            return Ok(());
        };
        if below.is_empty() {
            self.left_out = Some(note.issue);
        }
        match self.has_begun {
            true => self.out.message(&TreeItem::Note(CopyIssue {
                path: TreePath(below.to_vec()),
                issue: note.issue,
            })),
            false => Ok(()),
        }
    }
}

fn damaged() -> CopyError {
    CopyError::Refused(
        "the files that were kept of the step cannot be read: they are damaged".to_owned(),
    )
}

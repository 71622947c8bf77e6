//! `sluice cp`: copies files and directories to and from a running step, and those that were kept of one that has ended. The
//! other end is `sluice-helper`, which runs as the step's user, or the agent; `sluice-copy` has both ends and what they say to each other.
//!
//! A broken connection is made again, to the same attempt, and the copy goes on at the position that it had reached.

mod download;
mod session;
mod upload;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sluice_copy::{CopyIssue, CopyTarget};

use crate::args::CopyArgs;
use crate::client::Client;
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use session::CopySession;

/// One of the two paths of a copy.
#[derive(Debug, PartialEq, Eq)]
enum CopyPath<'a> {
    /// On the host of a step.
    OfStep { step: &'a str, path: &'a str },
    /// On this machine.
    Local(&'a str),
}

impl<'a> CopyPath<'a> {
    /// Reads a path: of a step if a colon comes before the first slash.
    fn parse(text: &'a str) -> Self {
        match text.split_once(':') {
            Some((step, path)) if !step.is_empty() && !step.contains('/') => Self::OfStep {
                step,
                path: match path {
                    "" => ".",
                    path => path,
                },
            },
            _ => Self::Local(text),
        }
    }
}

pub(crate) fn run(client: &Client, args: &CopyArgs, out: Out) -> Result<u8, Failure> {
    let usage = |text: &str| Err(Failure::Usage(text.to_owned()));
    for path in [&args.source, &args.target] {
        if path == "-" {
            return usage(
                "`-` is no path: use `sluice exec STEP -- cat PATH` to print a file of a step",
            );
        }
    }
    match (CopyPath::parse(&args.source), CopyPath::parse(&args.target)) {
        (CopyPath::OfStep { step, path }, CopyPath::Local(target)) => {
            let target = target_of(path, target);
            let mut session = CopySession::open(client, step, args.rank)?;
            download::run(&mut session, path, target, out)
        }
        (CopyPath::Local(source), CopyPath::OfStep { step, path }) => {
            let target = target_of(source, path);
            let mut session = CopySession::open(client, step, args.rank)?;
            upload::run(&mut session, Path::new(source), target, out)
        }
        (CopyPath::Local(_), CopyPath::Local(_)) => usage(
            "neither SOURCE nor TARGET names a step: write one of them as STEP:PATH, such as k3v9:out",
        ),
        (CopyPath::OfStep { .. }, CopyPath::OfStep { .. }) => usage(
            "SOURCE and TARGET both name a step: copy to this machine first, or write ./NAME for a path of this machine that contains a colon",
        ),
    }
}

/// The target as the user wrote it, with the name that a copy of `source` gets in an existing directory.
fn target_of(source: &str, target: &str) -> CopyTarget {
    let name = Path::new(source).file_name();
    CopyTarget::Written {
        path: target.as_bytes().to_vec(),
        name: name.map(|name| name.as_bytes().to_vec()),
    }
}

/// Prints what the user should know about one file, and counts files that could not be read.
fn print_note(note: &CopyIssue, source: &[u8], unread: &mut usize, out: Out) {
    let path = note.path.below(Path::new(OsStr::from_bytes(source)));
    out.warning(&format!("`{}` {}", path.display(), note.issue));
    *unread += usize::from(note.issue.is_failure());
}

/// Exit code of a copy that has arrived.
fn ended(files: usize, unread: usize, target: &Path, out: Out) -> u8 {
    let word = if files == 1 { "file" } else { "files" };
    out.progress(&format!("copied {files} {word} to {}", target.display()));
    if unread > 0 {
        let files = if unread == 1 { "file" } else { "files" };
        out.error(&format!(
            "{unread} {files} could not be read, as the warnings say"
        ));
        return FAILED;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_of_a_step_if_a_colon_comes_before_any_slash() {
        let of_step = |step, path| CopyPath::OfStep { step, path };
        for (text, parsed) in [
            ("k3v9:out", of_step("k3v9", "out")),
            ("id.7:/a:b", of_step("id.7", "/a:b")),
            ("k3v9:", of_step("k3v9", ".")),
            ("./k3v9:out", CopyPath::Local("./k3v9:out")),
            ("/tmp/a:b", CopyPath::Local("/tmp/a:b")),
            (":out", CopyPath::Local(":out")),
            ("out", CopyPath::Local("out")),
        ] {
            assert_eq!(CopyPath::parse(text), parsed, "{text}");
        }
    }
}

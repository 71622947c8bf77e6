//! Stores files of a step's own directory, the current one, after the end of its program. This process runs as the step's
//! user, in the step's groups, so the kernel enforces what it may read. Standard output is a file of the supervisor.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use nix::sys::prctl::{set_dumpable, set_name};
use nix::sys::resource::{Resource, getrlimit};
use sluice_common::keep::{KEPT_SUMMARY_BYTES, KeepPattern, KeptFiles};
use sluice_copy::{CopyIssue, KeepLimits, KeepReport, keep};

/// Most files that were left out and are named in the step's output.
const MAX_NAMED: usize = 10;

/// Keeps the files that match the patterns in the arguments.
///
/// # Errors
/// If nothing can be kept.
pub(crate) fn run(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let _it_is_a_name = set_name(c"sluice-keep");
    // No other process of the user may write to the file.
    set_dumpable(false)?;
    let kept = read(&mut args).and_then(|(limits, patterns)| {
        let stream = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let kept = keep(Path::new("."), &patterns, limits, &stream).map_err(io::Error::other)?;
        // The files are whole without it.
        let _they_are_not_counted_then = summarize(&kept, &stream);
        Ok(kept)
    });
    let mut stderr = io::stderr();
    match kept {
        Ok(kept) => report(&mut stderr, &kept.left_out),
        Err(error) => {
            let _nobody_reads_it = writeln!(stderr, "sluice: no files were kept: {error}");
            Err(error)
        }
    }
}

fn read(args: &mut impl Iterator<Item = OsString>) -> io::Result<(KeepLimits, Vec<KeepPattern>)> {
    let [bytes, min_free, seconds] = [number(args)?, number(args)?, number(args)?];
    let mut limits = KeepLimits {
        bytes,
        min_free,
        time: Duration::from_secs(seconds),
    };
    // A template may bound the size of files.
    let (most, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    let excess = limits.stream_bytes().saturating_sub(most);
    limits.bytes = limits.bytes.saturating_sub(excess);
    let patterns = args.map(|arg| {
        let text = arg.into_string().map_err(|_| invalid("pattern"))?;
        KeepPattern::try_from(text).map_err(io::Error::other)
    });
    Ok((limits, patterns.collect::<io::Result<_>>()?))
}

fn number(args: &mut impl Iterator<Item = OsString>) -> io::Result<u64> {
    let text = args.next().and_then(|arg| arg.into_string().ok());
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| invalid("number"))
}

fn invalid(what: &str) -> io::Error {
    io::Error::other(format!("an argument is no {what}"))
}

/// Writes the count of what was kept behind the stream, for the supervisor.
fn summarize(kept: &KeepReport, mut stream: &File) -> io::Result<()> {
    let summary = KeptFiles {
        files: kept.files,
        bytes: kept.bytes,
        left_out: kept.left_out.len() as u64,
        why: kept.left_out.first().map(sentence),
    };
    let mut bytes = serde_json::to_vec(&summary.bounded())?;
    bytes.resize(KEPT_SUMMARY_BYTES, b' ');
    stream.write_all(&bytes)
}

fn sentence(CopyIssue { path, issue }: &CopyIssue) -> String {
    format!("`{}` {issue}", path.to_string().escape_debug())
}

/// Tells in the step's output what was left out.
fn report(out: &mut impl Write, left_out: &[CopyIssue]) -> io::Result<()> {
    for issue in left_out.iter().take(MAX_NAMED) {
        writeln!(out, "sluice: {}", sentence(issue))?;
    }
    match left_out.len().saturating_sub(MAX_NAMED) {
        0 => Ok(()),
        more => writeln!(out, "sluice: {more} more were not kept either"),
    }
}

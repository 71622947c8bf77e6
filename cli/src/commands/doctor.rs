//! `sluice doctor`: finds problems of this machine, each with a fix. Local checks need no cluster; a cluster is checked
//! if there is one.

mod check;
mod cluster;
mod disk;
mod host;
mod kernel;
mod supervisor;

use std::path::Path;

use serde::Serialize;

use crate::args::{DoctorArgs, Format};
use crate::failure::{FAILED, Failure};
use crate::out::{Out, Tone};
use crate::render::safe;
use crate::show;
use check::{Check, CheckStatus};

#[derive(Serialize)]
struct DoctorReport {
    checks: Vec<Check>,
    verdict: CheckStatus,
}

pub(crate) fn run(chosen: Option<&Path>, args: &DoctorArgs, out: Out) -> Result<u8, Failure> {
    let mut checks = cluster::checks(chosen);
    checks.extend(kernel::checks());
    checks.extend(host::checks());
    checks.extend(supervisor::check());
    checks.extend(disk::checks(&args.state_dir));
    let worst = checks.iter().map(|check| check.verdict).max();
    let verdict = worst.unwrap_or(CheckStatus::Ok);
    match out.format() {
        Format::Table | Format::Wide => out.result(&text(&checks, out))?,
        Format::Name => out.result(&names(&checks))?,
        Format::Json | Format::Yaml => show::value(&DoctorReport { checks, verdict }, out)?,
    }
    Ok(if verdict == CheckStatus::Fail {
        FAILED
    } else {
        0
    })
}

/// Formats each check on a line, with the fix below.
fn text(checks: &[Check], out: Out) -> String {
    let mut text = String::new();
    for check in checks {
        let (tone, word) = match check.verdict {
            CheckStatus::Ok => (Tone::Good, "ok  "),
            CheckStatus::Warn => (Tone::Pending, "warn"),
            CheckStatus::Fail => (Tone::Bad, "FAIL"),
        };
        let line = format!("{:12}  {}", check.name, safe(&check.found));
        text.push_str(&format!("{}  {line}\n", out.paint(tone, word)));
        if let Some(cure) = &check.cure {
            text.push_str(&format!("{:20}{}\n", "", safe(cure)));
        }
    }
    text
}

/// Lists the checks that did not pass.
fn names(checks: &[Check]) -> String {
    let bad = checks
        .iter()
        .filter(|check| check.verdict != CheckStatus::Ok);
    bad.map(|check| format!("{}\n", check.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_a_line_with_the_way_out_below() {
        let checks = [
            Check::ok("clock", "0.1s apart"),
            Check::fail("context", "a\u{1b}b", "start one"),
        ];
        assert_eq!(
            text(&checks, Out::plain()),
            "ok    clock         0.1s apart\n\
             FAIL  context       a\\u{1b}b\n\
             \x20                   start one\n"
        );
        assert_eq!(names(&checks), "context\n");
    }
}

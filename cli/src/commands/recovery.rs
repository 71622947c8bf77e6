//! `sluice recovery`: shows whether the coordinator was restored and waits for its hosts, and ends the wait.

use jiff::Timestamp;
use sluice_common::api::RecoveryView;

use super::outage_note;
use crate::args::{RecoveryAction, RecoveryArgs};
use crate::client::{Client, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::{age::age, safe, shortened};
use crate::show;

/// Most nodes named.
const NAMED: usize = 10;

pub(crate) fn run(client: &Client, args: &RecoveryArgs, out: Out) -> Result<u8, Failure> {
    let found = client.keep_trying(RetryLimit::READ, outage_note(out), || client.recovery())?;
    match args.action {
        None => tell(&found, out),
        Some(RecoveryAction::End { force }) => end(client, &found, force, out),
    }
}

fn end(client: &Client, found: &RecoveryView, force: bool, out: Out) -> Result<u8, Failure> {
    if found.recovering && !force {
        return Err(Failure::Failed(format!(
            "{}\nwhat such a host runs may be started a second time elsewhere, and runs twice until the host is heard or its \
             lease passes; what it has not shown by now is stopped then. If you know that nothing of that kind runs: \
             `sluice recovery end --force`",
            words(found, Timestamp::now()).trim_end()
        )));
    }
    let ended = client.end_recovery()?;
    tell(&ended, out)
}

fn tell(view: &RecoveryView, out: Out) -> Result<u8, Failure> {
    if out.format().is_text() {
        out.result(&words(view, Timestamp::now()))?;
    } else {
        show::value(view, out)?;
    }
    Ok(0)
}

fn words(view: &RecoveryView, now: Timestamp) -> String {
    if !view.recovering {
        return "not recovering: queued steps may start\n".to_owned();
    }
    let why = match view.why.as_deref() {
        Some("restored") => "its store was restored from a backup",
        Some("store_lost") => "its store was lost and created again",
        Some("later_epoch") => "a host has obeyed a later coordinator than its store knows of",
        Some(_) | None => "its store is of an earlier time than its hosts",
    };
    let left = view.until.map_or_else(String::new, |until| {
        format!(", in {} at the latest", age(now, until))
    });
    let nodes = view.unreported.iter().map(|node| safe(node).to_string());
    let awaited = match view.unreported.is_empty() {
        true => "every known node has reported what it runs; hosts that are not known may still run steps".to_owned(),
        false => format!("not heard yet: {}", shortened(nodes, NAMED)),
    };
    format!(
        "the coordinator recovers: {why}\nnothing new starts until hosts have reported what they run, or it has stopped{left}\n{awaited}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_why_and_for_whom_nothing_starts() {
        assert_eq!(
            words(&RecoveryView::default(), Timestamp::UNIX_EPOCH),
            "not recovering: queued steps may start\n"
        );
        let view = RecoveryView {
            recovering: true,
            why: Some("restored".to_owned()),
            since: Some(Timestamp::UNIX_EPOCH),
            until: Timestamp::from_second(120).ok(),
            unreported: vec!["gpu-1".to_owned(), "gpu-2".to_owned()],
        };
        assert_eq!(
            words(&view, Timestamp::UNIX_EPOCH),
            "the coordinator recovers: its store was restored from a backup\n\
             nothing new starts until hosts have reported what they run, or it has stopped, in 2m at the latest\n\
             not heard yet: gpu-1, gpu-2\n"
        );
    }
}

//! Builds the view of how an attempt has ended.

use coordinator_core::Attempt;
use sluice_common::api::ExitView;
use sluice_common::supervision::Exit;

/// Returns the exit of an attempt, once all of its parts have ended.
pub(super) fn exit(attempt: &Attempt) -> Option<ExitView> {
    let end = attempt
        .decisive_part()
        .filter(|_| attempt.has_ended())?
        .end
        .as_ref()?;
    Some(exit_view(&end.exit))
}

fn exit_view(exit: &Exit) -> ExitView {
    let with_message = |message: &str| ExitView {
        message: Some(message.to_owned()),
        ..ExitView::default()
    };
    match exit {
        Exit::Code(code) => ExitView {
            code: Some(*code),
            ..ExitView::default()
        },
        Exit::Signal(signal) => ExitView {
            signal: Some(*signal),
            ..ExitView::default()
        },
        Exit::StartFailed(message)
        | Exit::HostFailed(message)
        | Exit::PrologFailed(message)
        | Exit::NotBegun(message) => with_message(message),
        Exit::LeaseExpired => with_message(
            "its lease expired before the coordinator was heard again, so its host stopped it",
        ),
        Exit::HostRebooted => with_message("its host was rebooted under it"),
        Exit::OutOfMemory(_) => with_message("the kernel killed it because it was out of memory"),
        Exit::StorageExceeded(_) => {
            with_message("its host stopped it because its files took too much of the disk")
        }
        Exit::Unknown => with_message("it is unknown how it ended"),
    }
}

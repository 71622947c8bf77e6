//! Sentences about attempts that ended by themselves.

use alloc::format;
use alloc::string::String;

use sluice_common::amount::format_memory;
use sluice_common::id::NodeName;
use sluice_common::reason::{Detail, Reason, ReasonCode};
use sluice_common::supervision::{Exit, OutOfMemory, StorageBound, StorageExceeded};

pub(super) fn exited(code: ReasonCode, node: &NodeName, exit: &Exit) -> Reason {
    let of = |message: String| Reason::new(code, message);
    let on = |message: String| Reason::new(code, message).with("node", node.as_str());
    match exit {
        Exit::Code(exit_code) => {
            let reason = of(format!("its process exited with code {exit_code}"));
            match exit_code {
                0 => reason,
                _ => reason.with("exit_code", signed(*exit_code)),
            }
        }
        Exit::Signal(signal) => of(format!(
            "its process was killed by signal {signal}, which Sluice did not send"
        ))
        .with("signal", signed(*signal)),
        Exit::StartFailed(why) => of(format!("its process could not be started: {why}")),
        Exit::HostFailed(why) => on(format!("`{node}` could not start it: {why}")),
        Exit::PrologFailed(why) => on(format!("the prolog of `{node}` failed: {why}")),
        Exit::NotBegun(why) => on(format!("it did not start on `{node}`: {why}")),
        Exit::LeaseExpired => on(format!(
            "`{node}` stopped it because the coordinator could not be reached for as long as its lease"
        )),
        Exit::HostRebooted => on(format!("its host `{node}` was rebooted")),
        Exit::OutOfMemory(found) => out_of_memory(code, node, *found),
        Exit::StorageExceeded(found) => storage_exceeded(code, node, *found),
        Exit::Unknown => on(format!(
            "its process ended on `{node}` while no supervisor was running, so its exit is unknown"
        )),
    }
}

/// More memory for the step helps if it reached its own limit, another host if that was full.
fn out_of_memory(code: ReasonCode, node: &NodeName, found: OutOfMemory) -> Reason {
    let (limit, peak) = (found.limit_bytes, found.peak_bytes);
    let held = peak.map_or_else(String::new, |bytes| {
        format!(", having held {}", format_memory(bytes))
    });
    let message = match limit {
        Some(bytes) => format!(
            "the kernel killed it because it wanted more memory than its {}{held}: ask for more `memory`",
            format_memory(bytes)
        ),
        None => format!(
            "the kernel killed it because `{node}` had no memory left{held}: ask for `memory`, so that it is kept free"
        ),
    };
    let amounts = [("limit_bytes", limit), ("peak_bytes", peak)];
    let known = amounts
        .into_iter()
        .filter_map(|(name, bytes)| Some((name, bytes?)));
    known.fold(Reason::new(code, message), |reason, (name, bytes)| {
        reason.with(name, bytes)
    })
}

/// More storage for the step helps if it reached its own grant, a grant if it had none.
fn storage_exceeded(code: ReasonCode, node: &NodeName, found: StorageExceeded) -> Reason {
    let (files, used) = (found.used_files, format_memory(found.used_bytes));
    let message = match found.bound {
        StorageBound::Granted(bytes) => format!(
            "`{node}` stopped it because its files took {used} of disk, more than its {}: ask for more `storage`, or \
             write elsewhere",
            format_memory(bytes)
        ),
        StorageBound::Reserve => format!(
            "`{node}` stopped it because its disk was nearly full and this step used most of it, {used} in {files} \
             files: ask for `storage`, so that it is kept free"
        ),
        StorageBound::Depth => format!(
            "`{node}` stopped it because its directories nest too deep for the disk that they take to be counted \
             ({used} in {files} files were): nest them less"
        ),
        StorageBound::Files(most) => format!(
            "`{node}` stopped it because it had made {files} files, more than the {most} that come with its `storage`: ask \
             for more of it, make fewer files, or write elsewhere"
        ),
    };
    let reason = Reason::new(code, message)
        .with("used_bytes", found.used_bytes)
        .with("used_files", files);
    match found.bound {
        StorageBound::Granted(bytes) => reason.with("limit_bytes", bytes),
        StorageBound::Files(most) => reason.with("limit_files", most),
        StorageBound::Reserve | StorageBound::Depth => reason,
    }
}

/// Details hold no negative numbers. An exit code is never negative; a number that a host makes up is shown as text.
fn signed(number: i32) -> Detail {
    match u64::try_from(number) {
        Ok(number) => number.into(),
        Err(_) => format!("{number}").as_str().into(),
    }
}

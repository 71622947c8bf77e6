//! Events as callers see them: without secrets, with a message to each reason and times in RFC 3339.

use coordinator_core::record::{StepEnded, StepRejected};
use coordinator_core::{AccessChange, LogEntry, Record};
use sluice_common::access::TokenDigest;
use sluice_reasons::Cause;

use super::times::with_times;
use crate::store::Event;

/// Returns the JSON that callers get of an event.
pub(super) fn shown(event: &Event) -> &str {
    event.shown(|event| {
        let json = match changed(&event.record) {
            Some(record) => serde_json::to_value(&record),
            None => serde_json::from_str(&event.json),
        };
        with_times(json.expect("a stored record is JSON"))
    })
}

/// The record that callers see instead, if it has something to hide or to explain. The log contains no values of
/// variables.
fn changed(entry: &LogEntry) -> Option<LogEntry> {
    let has_secret = matches!(
        &entry.record,
        Record::AccessChanged {
            change: AccessChange::ApiTokenCreated { .. }
        }
    );
    let reason = match &entry.record {
        Record::StepRejected(StepRejected { reason, .. })
        | Record::StepEnded(StepEnded { reason, .. })
        | Record::Requeued { reason, .. } => Some(reason),
        _ => None,
    };
    let lacks_message = reason.is_some_and(|reason| !matches!(reason, Cause::Said(_)));
    (has_secret || lacks_message).then(|| {
        let mut entry = entry.clone();
        hide_secrets(&mut entry.record);
        say_why(&mut entry.record);
        entry
    })
}

/// Removes the hashes of tokens.
fn hide_secrets(record: &mut Record) {
    if let Record::AccessChanged {
        change: AccessChange::ApiTokenCreated { terms, .. },
    } = record
    {
        terms.digest = TokenDigest::hidden();
    }
}

/// Adds the message to a reason: the log has only the code and its parameters.
fn say_why(record: &mut Record) {
    if let Record::StepRejected(StepRejected { reason, .. })
    | Record::StepEnded(StepEnded { reason, .. })
    | Record::Requeued { reason, .. } = record
    {
        *reason = Cause::Said(reason.to_reason());
    }
}

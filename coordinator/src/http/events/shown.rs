//! Events as callers see them: without secrets, with a message to each reason and times in RFC 3339.

use coordinator_core::record::{StepEnded, StepRejected};
use coordinator_core::{AccessChange, Record};
use sluice_common::access::TokenDigest;
use sluice_reasons::Cause;

use super::times::with_times;
use crate::store::Event;

/// Returns the JSON that callers get of an event.
pub(super) fn shown(event: &Event) -> &str {
    event.shown(|event| {
        let mut entry = event.record.clone();
        let is_changed = hide_secrets(&mut entry.record) | say_why(&mut entry.record);
        let json = match is_changed {
            true => serde_json::to_value(&entry),
            false => serde_json::from_str(&event.json),
        };
        with_times(json.expect("a stored record is JSON"))
    })
}

/// Removes the hashes of tokens, if the record has any. The log contains no values of variables.
fn hide_secrets(record: &mut Record) -> bool {
    let Record::AccessChanged {
        change: AccessChange::ApiTokenCreated { terms, .. },
    } = record
    else {
        return false;
    };
    terms.digest = TokenDigest::hidden();
    true
}

/// Adds the message to a reason, if the record has one without: the log has only the code and its parameters.
fn say_why(record: &mut Record) -> bool {
    let (Record::StepRejected(StepRejected { reason, .. })
    | Record::StepEnded(StepEnded { reason, .. })
    | Record::Requeued { reason, .. }) = record
    else {
        return false;
    };
    if matches!(reason, Cause::Said(_)) {
        return false;
    }
    *reason = Cause::Said(reason.to_reason());
    true
}

//! The event that a host was refused.

use alloc::string::String;

use sluice_common::id::NodeName;

use crate::core::Core;
use crate::record::Record;

impl Core {
    /// Whoever is refused dials again and again: the first refusal after a welcome is an event.
    pub(super) fn note_refusal(&mut self, node: &NodeName, message: &str) {
        let contact = self.contacts.get_mut(node);
        let Some(contact) = contact.filter(|contact| !contact.refused) else {
            return;
        };
        contact.refused = true;
        if self.state.node(node).is_some() {
            self.record(Record::NodeRefused {
                node: node.clone(),
                why: String::from(message),
            });
        }
    }
}

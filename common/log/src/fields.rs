//! Collects message and fields of events and spans as JSON values.

use std::fmt::{Debug, Write};

use serde_json::Value;
use tracing::field::{Field, Visit};

/// Name of the field with an event's message.
const MESSAGE: &str = "message";

/// Fields of an event or span, in order of writing.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    message: String,
    named: Vec<(&'static str, Value)>,
}

impl Fields {
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.named.iter().map(|(name, value)| (*name, value))
    }

    /// Adds fields of an enclosing span. Fields that are already present win.
    pub(crate) fn inherit(&mut self, span: &Fields) {
        for (name, value) in &span.named {
            if !self.has(name) {
                self.named.push((name, value.clone()));
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.named.iter().any(|(known, _)| *known == name)
    }

    fn put(&mut self, field: &Field, value: Value) {
        self.named.retain(|(known, _)| *known != field.name());
        self.named.push((field.name(), value));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == MESSAGE {
            self.message.clear();
            write!(self.message, "{value:?}").expect("a string takes all that is written");
        } else {
            self.put(field, format!("{value:?}").into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == MESSAGE {
            value.clone_into(&mut self.message);
        } else {
            self.put(field, value.into());
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

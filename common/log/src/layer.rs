//! Subscriber layer that merges each event's fields with those of its spans and writes one line.

use std::time::SystemTime;

use jiff::Timestamp;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::fields::Fields;
use crate::format::ResolvedFormat;
use crate::{json, text};

/// An event to be formatted.
#[derive(Debug)]
pub(crate) struct LogEvent {
    pub(crate) time: Timestamp,
    pub(crate) level: Level,
    pub(crate) target: &'static str,
    pub(crate) fields: Fields,
}

/// Writes one line per event that passes the filter.
#[derive(Debug)]
pub(crate) struct LineLayer<W> {
    shape: ResolvedFormat,
    write: W,
}

impl<W: Fn(&[u8])> LineLayer<W> {
    pub(crate) fn new(shape: ResolvedFormat, write: W) -> Self {
        Self { shape, write }
    }

    fn say(&self, entry: &LogEvent) {
        let mut text = match self.shape {
            ResolvedFormat::Plain { colors } => text::plain(entry, colors),
            ResolvedFormat::Journal => text::journal(entry),
            ResolvedFormat::Json => json::object(entry),
        };
        text.push('\n');
        (self.write)(text.as_bytes());
    }
}

impl<S, W> Layer<S> for LineLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Fn(&[u8]) + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        // Visit spans from the innermost outwards.
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(known) = span.extensions().get::<Fields>() {
                fields.inherit(known);
            }
        }
        self.say(&LogEvent {
            time: now(),
            level: *event.metadata().level(),
            target: event.metadata().target(),
            fields,
        });
    }
}

/// Current time, clamped to the years 1970 to 9999.
fn now() -> Timestamp {
    let now = Timestamp::try_from(SystemTime::now()).unwrap_or_default();
    now.max(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt;

    /// Lines written while `work` runs.
    fn written(shape: ResolvedFormat, work: impl FnOnce()) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        let write = move |line: &[u8]| {
            kept.lock()
                .unwrap()
                .push(String::from_utf8(line.to_vec()).unwrap());
        };
        let subscriber = tracing_subscriber::registry().with(LineLayer::new(shape, write));
        tracing::subscriber::with_default(subscriber, work);
        Arc::into_inner(lines).unwrap().into_inner().unwrap()
    }

    #[test]
    fn an_event_has_the_fields_of_the_spans_around_it_and_its_own_before_theirs() {
        let lines = written(ResolvedFormat::Json, || {
            let node = tracing::error_span!("agent", node = "gpu-1", attempt = 7);
            let _in_node = node.enter();
            let late = tracing::error_span!("attempt", step = "train", pid = tracing::field::Empty);
            late.record("pid", 12);
            late.in_scope(|| tracing::info!(attempt = 2, ok = true, "started"));
        });
        let mut found: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with("}\n"), "{lines:?}");
        let time = found.as_object_mut().unwrap().remove("time").unwrap();
        assert_eq!(
            time.as_str().unwrap().len(),
            "2026-01-01T00:00:00.000Z".len()
        );
        assert_eq!(
            found,
            serde_json::json!({
                "message": "started", "level": "INFO", "target": "sluice_log::layer::tests",
                "attempt": 2, "ok": true, "step": "train", "pid": 12, "node": "gpu-1",
            })
        );
    }

    #[test]
    fn a_line_is_one_line_whatever_is_in_it() {
        let work = || tracing::warn!(said = "two\nlines \u{1b}[2J", "first\nsecond \u{202e}");
        for shape in [
            ResolvedFormat::Plain { colors: false },
            ResolvedFormat::Journal,
            ResolvedFormat::Json,
        ] {
            let lines = written(shape, work);
            let text = lines[0].strip_suffix('\n').unwrap();
            assert!(!text.contains(['\n', '\u{1b}']), "{shape:?}: {text}");
        }
        let lines = written(ResolvedFormat::Journal, work);
        assert_eq!(
            lines[0],
            "<4>first\\nsecond \\u{202e} said=\"two\\nlines \\u{1b}[2J\"\n"
        );
    }
}

//! Writes Prometheus' text format, version 0.0.4: families of samples, each with help and type.

use std::fmt::{Display, Write};

use crate::engine::Histogram;

/// The page written so far.
#[derive(Debug, Default)]
pub(super) struct MetricsPage(String);

/// One line: labels and value.
#[derive(Debug)]
pub(super) struct Sample {
    labels: String,
    value: String,
}

impl Sample {
    /// Makes a sample without the empty labels, which mean the same.
    pub(super) fn new(labels: &[(&str, &str)], value: impl Display) -> Self {
        let mut text = String::new();
        for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            let comma = if text.is_empty() { "" } else { "," };
            let _infallible = write!(text, "{comma}{name}=\"{}\"", escaped(value));
        }
        Self {
            labels: text,
            value: value.to_string(),
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

impl MetricsPage {
    /// Adds a family, a counter or a gauge by its name; one without samples is left out.
    pub(super) fn family(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        self.head(name, kind, help);
        for Sample { labels, value } in samples {
            let labels = if labels.is_empty() {
                labels
            } else {
                format!("{{{labels}}}")
            };
            let _infallible = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    /// Adds a histogram without labels.
    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        for (bound, count) in histogram.cumulative() {
            let bound = bound.map_or("+Inf".to_owned(), |bound| bound.to_string());
            let _infallible = writeln!(self.0, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let (count, sum) = (histogram.count(), histogram.sum().as_secs_f64());
        let _infallible = writeln!(self.0, "{name}_sum {sum}\n{name}_count {count}");
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _infallible = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Returns the whole page.
    pub(super) fn text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_hold_any_text_and_empty_families_are_left_out() {
        let mut page = MetricsPage::default();
        page.family("none", "None.", []);
        page.family(
            "a",
            "Help.",
            [Sample::new(&[("x", "\"\\\n"), ("y", "")], 1.5)],
        );
        assert_eq!(
            page.text(),
            "# HELP a Help.\n# TYPE a gauge\na{x=\"\\\"\\\\\\n\"} 1.5\n"
        );
    }
}

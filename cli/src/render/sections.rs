//! Builds descriptions: aligned `Key: value` lines, with named sections indented below them.

use super::table::align;

/// A description under construction. Values are already safe.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    lines: Vec<String>,
    indent: usize,
}

impl Sections {
    /// Adds a key and its value.
    pub(crate) fn field(&mut self, key: &str, value: impl AsRef<str>) -> &mut Self {
        let indent = "  ".repeat(self.indent);
        let value = value.as_ref();
        let value = if value.is_empty() { "-" } else { value };
        self.lines.push(format!("{indent}{key}:\t{value}"));
        self
    }

    /// Adds a key and its value, if there is one.
    pub(crate) fn optional(&mut self, key: &str, value: Option<impl AsRef<str>>) -> &mut Self {
        match value {
            Some(value) => self.field(key, value),
            None => self,
        }
    }

    /// Adds a key with each of its values, one a line.
    pub(crate) fn many(&mut self, key: &str, values: &[String]) -> &mut Self {
        values
            .iter()
            .fold(self, |text, value| text.field(key, value))
    }

    /// Adds a section with what `fill` writes.
    pub(crate) fn section(&mut self, name: &str, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let indent = "  ".repeat(self.indent);
        self.lines.push(format!("{indent}{name}:"));
        self.indent += 1;
        fill(self);
        self.indent -= 1;
        self
    }

    /// Adds a line of its own.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> &mut Self {
        let indent = "  ".repeat(self.indent);
        self.lines.push(format!("{indent}{}", text.as_ref()));
        self
    }

    /// Returns the text. All values are in one column, across sections.
    pub(crate) fn finish(&self) -> String {
        let (mut out, mut block) = (String::new(), Vec::new());
        for line in &self.lines {
            // A line without a value would end the aligned block, so widths are carried over it.
            block.push(if line.contains('\t') {
                line.clone()
            } else {
                format!("{line}\t")
            });
        }
        for line in align(&block).lines() {
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Adds a title to a table.
pub(crate) fn titled(title: &str, table: &str) -> String {
    format!("\n{title}:\n{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_one_column() {
        let mut sections = Sections::default();
        sections
            .field("Name", "a")
            .optional("None", None::<&str>)
            .section("Attempts", |attempts| {
                attempts.section("1", |one| {
                    one.field("Started", "now").field("Exit", "");
                });
            });
        assert_eq!(
            sections.finish(),
            "Name:         a\n\
             Attempts:\n\
             \x20 1:\n\
             \x20   Started:  now\n\
             \x20   Exit:     -\n"
        );
    }
}

//! Output formats of commands.

use clap::ValueEnum;

/// Output format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns, for people; fitted to a terminal.
    Table,
    /// The same with more columns, never cut.
    Wide,
    /// JSON with the field names of the HTTP API: a list is `{"items": [...]}`, a single thing is itself.
    Json,
    /// YAML, equal to the JSON.
    Yaml,
    /// Names alone, such as `step/k3v9`.
    Name,
}

impl Format {
    /// Whether it is for people.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Format::Table | Format::Wide)
    }

    /// Whether it is for programs, with every field.
    pub(crate) fn is_data(self) -> bool {
        matches!(self, Format::Json | Format::Yaml)
    }

    /// Whether each thing is a line of its own, which need not wait for the others.
    pub(crate) fn is_line_by_line(self) -> bool {
        matches!(self, Format::Table | Format::Wide | Format::Name)
    }
}

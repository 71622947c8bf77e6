//! Output formats of commands.

use clap::ValueEnum;

/// Output format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Wide,
    Json,
    Yaml,
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

/// Output formats as they are typed: those of every command, and those of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Aligned columns, for people; fitted to a terminal.
    Table,
    /// The same with more columns, never cut.
    Wide,
    /// JSON with the field names of the HTTP API: a list is `{"items": [...]}`, a single thing is itself.
    Json,
    /// One line of JSON for each thing; only `get`.
    Jsonl,
    /// YAML, equal to the JSON.
    Yaml,
    /// Comma-separated values with all columns; only `get`.
    Csv,
    /// Names alone, such as `step/k3v9`.
    Name,
}

/// Formats that only lists have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListFormat {
    Csv,
    Jsonl,
}

impl OutputFormat {
    /// Returns the format that every command has: of CSV the table, of lines of JSON the JSON.
    pub(crate) fn format(self) -> Format {
        match self {
            OutputFormat::Table | OutputFormat::Csv => Format::Table,
            OutputFormat::Wide => Format::Wide,
            OutputFormat::Json | OutputFormat::Jsonl => Format::Json,
            OutputFormat::Yaml => Format::Yaml,
            OutputFormat::Name => Format::Name,
        }
    }

    /// Returns the format that only lists have, if it is one.
    pub(crate) fn list_format(self) -> Option<ListFormat> {
        match self {
            OutputFormat::Csv => Some(ListFormat::Csv),
            OutputFormat::Jsonl => Some(ListFormat::Jsonl),
            OutputFormat::Table
            | OutputFormat::Wide
            | OutputFormat::Json
            | OutputFormat::Yaml
            | OutputFormat::Name => None,
        }
    }
}

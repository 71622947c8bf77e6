//! What may be wrong with a rule: each in words that say the way out, at a column.

use alloc::string::String;

use super::value::ValueKind;

/// Longest text of an assertion, in bytes: what is longer is better said in two.
pub const MAX_RULE_BYTES: usize = 500;

/// How deep brackets may be nested: deeper than anybody reads, and far from the end of any stack.
pub(super) const MAX_DEPTH: usize = 16;

/// What is wrong with a rule, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {wrong}")]
pub struct RuleError {
    /// The character at which it is wrong, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub wrong: RuleProblem,
}

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleProblem {
    /// It is longer than is read.
    #[error("it has {0} bytes, and {MAX_RULE_BYTES} are the most: say it in two assertions")]
    TooLong(usize),
    /// Its brackets are nested too deeply.
    #[error("brackets are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// A character that may stand nowhere.
    #[error("`{0}` may not stand in a rule")]
    Character(String),
    /// A sign that is written otherwise.
    #[error("there is no `{0}`: {1}")]
    Sign(&'static str, &'static str),
    /// Two conditions in one.
    #[error(
        "one comparison is one assertion: write another assertion, or put the condition into `when`"
    )]
    Joined,
    /// A text without its end.
    #[error("the text that begins here has no end: close it with the same quote")]
    Unclosed,
    /// No number, or one that cannot be counted.
    #[error("`{text}` is no number: {hint}")]
    Number {
        /// What was written.
        text: String,
        /// The way out.
        hint: String,
    },
    /// A name that stands for nothing.
    #[error("there is no `{name}`: {hint}")]
    Unknown {
        /// What was written.
        name: String,
        /// What may have been meant, or what there is.
        hint: String,
    },
    /// The key of a label or of a resource.
    #[error("{0}")]
    Key(String),
    /// Something else should stand there.
    #[error("{found} where {wanted} should stand")]
    Expected {
        /// What stands there.
        found: String,
        /// What should.
        wanted: &'static str,
    },
    /// Arithmetic over what is no amount, or not of one kind.
    #[error("`{left} {sign} {right}`: {left_kind} and {right_kind} cannot be calculated with so")]
    Arithmetic {
        /// The left side as written.
        left: String,
        /// The sign.
        sign: char,
        /// The right side as written.
        right: String,
        /// What is on the left.
        left_kind: ValueKind,
        /// What is on the right.
        right_kind: ValueKind,
    },
    /// Sides of two kinds.
    #[error("`{left}` is {left_kind} and `{right}` is {right_kind}: they cannot be compared{hint}")]
    Compared {
        /// The left side as written.
        left: String,
        /// What is on the left.
        left_kind: ValueKind,
        /// The right side as written.
        right: String,
        /// What is on the right.
        right_kind: ValueKind,
        /// The way out, where it is clear.
        hint: &'static str,
    },
    /// Words have no order.
    #[error("{kind} is neither more nor less: write `==` or `!=`")]
    Unordered {
        /// What is compared.
        kind: ValueKind,
    },
    /// It says the same of every step.
    #[error("it names no fact, so it says the same of every step")]
    Constant,
}

//! Errors in rules, each with a column and a suggestion.

use alloc::string::String;

use super::value::ValueKind;

/// Longest expression, in bytes; longer ones should be split into two assertions.
pub const MAX_RULE_BYTES: usize = 500;

/// Deepest nesting of brackets, far below the end of any stack.
pub(super) const MAX_DEPTH: usize = 16;

/// Error in a rule, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {wrong}")]
pub struct RuleError {
    /// Column of the error in characters, starting at 1.
    pub column: usize,
    /// The problem found.
    pub wrong: RuleProblem,
}

/// Problem with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleProblem {
    /// The text is too long.
    #[error("it has {0} bytes; the maximum is {MAX_RULE_BYTES}: split it into two assertions")]
    TooLong(usize),
    /// Brackets are nested too deeply.
    #[error("brackets are nested more than {MAX_DEPTH} deep")]
    TooDeep,
    /// The character is not allowed in rules.
    #[error("`{0}` is not allowed in a rule")]
    Character(String),
    /// The operator does not exist; another one is suggested.
    #[error("there is no `{0}`: {1}")]
    Sign(&'static str, &'static str),
    /// Several comparisons are combined.
    #[error(
        "one comparison is one assertion: write another assertion, or put the condition into `when`"
    )]
    Joined,
    /// A quoted text is not closed.
    #[error("the text that begins here has no end: close it with the same quote")]
    Unclosed,
    /// Not a number, or out of range.
    #[error("`{text}` is not a number: {hint}")]
    Number {
        /// The text found.
        text: String,
        /// Suggestion of what to write.
        hint: String,
    },
    /// Unknown name of a fact.
    #[error("there is no `{name}`: {hint}")]
    Unknown {
        /// The name found.
        name: String,
        /// A similar name, or the list of names.
        hint: String,
    },
    /// Invalid key of a label or a resource.
    #[error("{0}")]
    Key(String),
    /// An unexpected token.
    #[error("expected {wanted}, found {found}")]
    Expected {
        /// The token found.
        found: String,
        /// The tokens that were expected.
        wanted: &'static str,
    },
    /// Arithmetic on values of incompatible kinds.
    #[error("`{left} {sign} {right}`: {left_kind} and {right_kind} cannot be combined like this")]
    Arithmetic {
        /// Left operand as written.
        left: String,
        /// The arithmetic operator.
        sign: char,
        /// Right operand as written.
        right: String,
        /// Kind of the left operand.
        left_kind: ValueKind,
        /// Kind of the right operand.
        right_kind: ValueKind,
    },
    /// Comparison of different kinds.
    #[error("`{left}` is {left_kind} and `{right}` is {right_kind}: they cannot be compared{hint}")]
    Compared {
        /// Left side as written.
        left: String,
        /// Kind of the left side.
        left_kind: ValueKind,
        /// Right side as written.
        right: String,
        /// Kind of the right side.
        right_kind: ValueKind,
        /// Suggestion, or empty.
        hint: &'static str,
    },
    /// Order comparison of values without an order.
    #[error("{kind} has no order: use `==` or `!=`")]
    Unordered {
        /// Kind of the values.
        kind: ValueKind,
    },
    /// The rule mentions no fact, so its result is constant.
    #[error("it mentions no fact, so its result is the same for every step")]
    Constant,
}

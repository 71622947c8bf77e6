//! Validation rules: assertions of admins about steps and the hosts that could hold them, such as `memory <= 0.9 *
//! node.memory`. This file defines the document format; `validation/parse.rs` parses an assertion and
//! `validation/evaluate.rs` evaluates it. The coordinator selects the rules of a step and handles violations.
//!
//! An assertion is one comparison of two arithmetic expressions over a fixed list of facts ([`Fact`]). Its cost is
//! bounded by the length of its text and the depth of its brackets; there are no loops, calls or patterns. Amounts are
//! exact fractions, so that every machine gets the same result. Units are checked when the rule is written.
//!
//! CEL was considered first: it has no units, does not multiply an integer by a decimal, and its crates detect type
//! errors only at evaluation.

mod constant;
mod error;
mod evaluate;
mod fact;
mod lex;
mod number;
mod parse;
mod value;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

pub use error::{MAX_RULE_BYTES, RuleError, RuleProblem};
pub use evaluate::{FactSource, RuleFailure, RuleResult, StepOnNode};
pub use fact::{Fact, MissingFact, NodeFact, NodeFacts, StepFacts};
pub use number::Ratio;
pub use parse::Rule;
pub use value::{FactValue, ValueKind};

/// Most assertions per validation. Each is evaluated for a step, and for each host if it mentions hosts.
pub const MAX_ASSERTIONS: usize = 32;

/// Most validations that one pool may reference.
pub const MAX_VALIDATIONS: usize = 16;

/// Longest message of an assertion, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// Spec of a validation: a set of assertions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ValidationTerms"))]
#[serde(deny_unknown_fields)]
pub struct ValidationSpec {
    /// Free text for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Assertions that a step must satisfy.
    pub assertions: Vec<Assertion>,
}

/// One assertion as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    /// Condition to satisfy, such as `gpu_count <= 8` or `memory <= 0.9 * node.memory`.
    pub assert: String,
    /// Precondition, such as `work == "notebook"`; always true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Message for submitters who violate the assertion.
    pub message: String,
}

/// A parsed assertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedAssertion {
    /// The assertion as written.
    pub source: Assertion,
    when: Option<Rule>,
    rule: Rule,
}

impl ParsedAssertion {
    /// Whether it mentions facts of hosts.
    pub fn is_about_hosts(&self) -> bool {
        self.rule.is_about_hosts() || self.when.as_ref().is_some_and(Rule::is_about_hosts)
    }

    /// Whether a `when` about the step alone is false, so that the assertion does not apply.
    pub fn is_inactive(&self, step: &StepFacts<'_>) -> bool {
        let when = self.when.as_ref();
        let when = when.filter(|when| !when.is_about_hosts());
        when.is_some_and(|when| when.evaluate(step) != RuleResult::Holds)
    }

    /// Evaluates the assertion. It holds if `when` is false or cannot be evaluated.
    pub fn evaluate(&self, facts: &impl FactSource) -> RuleResult {
        let wanted = self.when.as_ref().map(|when| when.evaluate(facts));
        match wanted {
            None | Some(RuleResult::Holds) => self.rule.evaluate(facts),
            Some(RuleResult::Fails(_)) => RuleResult::Holds,
        }
    }
}

/// Error in a validation, with the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {wrong}")]
pub struct ValidationError {
    /// Path of the field, such as `assertions[2].assert`.
    pub field: String,
    /// The problem with the field.
    pub wrong: Box<ValidationProblem>,
}

/// Problem with one field of a validation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidationProblem {
    /// There are no assertions, or too many.
    #[error("{0} assertions: write 1 to {MAX_ASSERTIONS}")]
    Count(usize),
    /// The message is empty or too long.
    #[error("write 1 to {MAX_MESSAGE_CHARS} characters that tell users what to do")]
    Message,
    /// An expression cannot be parsed.
    #[error("`{text}`: {error}")]
    Rule {
        /// The expression, escaped.
        text: String,
        /// The problem and its position.
        error: RuleError,
    },
}

impl ValidationError {
    fn new(field: String, wrong: ValidationProblem) -> Self {
        let wrong = Box::new(wrong);
        Self { field, wrong }
    }
}

impl ValidationSpec {
    /// Parses every assertion.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn read(&self) -> Result<Vec<ParsedAssertion>, ValidationError> {
        let count = self.assertions.len();
        if count == 0 || count > MAX_ASSERTIONS {
            let field = "assertions".to_string();
            return Err(ValidationError::new(field, ValidationProblem::Count(count)));
        }
        let all = self.assertions.iter().enumerate();
        all.map(|(at, assertion)| read(at, assertion)).collect()
    }
}

fn read(at: usize, written: &Assertion) -> Result<ParsedAssertion, ValidationError> {
    let wrong =
        |field: &str, wrong| ValidationError::new(format!("assertions[{at}].{field}"), wrong);
    let rule = |field: &str, text: &str| {
        Rule::parse(text).map_err(|error| {
            let text = text.escape_debug().to_string();
            wrong(field, ValidationProblem::Rule { text, error })
        })
    };
    let chars = written.message.chars().count();
    if chars > MAX_MESSAGE_CHARS || written.message.trim().is_empty() {
        return Err(wrong("message", ValidationProblem::Message));
    }
    let when = written.when.as_deref().map(|text| rule("when", text));
    Ok(ParsedAssertion {
        when: when.transpose()?,
        rule: rule("assert", &written.assert)?,
        source: written.clone(),
    })
}

#[cfg(test)]
mod tests;

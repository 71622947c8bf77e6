//! Validation rules: what an admin asserts of steps, and of hosts that could hold them, as text such as
//! `memory <= 0.9 * node.memory`. This file is what is written and stored; `validation/parse.rs` reads an assertion,
//! `validation/evaluate.rs` judges it. Whose rules a step must keep, and what becomes of one that does not, is the
//! coordinator's.
//!
//! An assertion is one comparison of two sides of simple arithmetic over a closed list of facts ([`Fact`]). What it
//! costs is bounded before it is read: by the length of its text and the depth of its brackets; there are no loops, no
//! calls and no patterns in it. Amounts are exact fractions, so that each machine comes to the same verdict. That sides
//! are comparable at all (memory with memory, time with time) is checked when the rule is written.
//!
//! A general language of expressions (CEL) was looked at first: it has no units, does not multiply an integer with a
//! decimal, and the crates for it find wrong types only when they run.

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

/// Most assertions of one document. A step is judged by each, on each host where it is about hosts.
pub const MAX_ASSERTIONS: usize = 32;

/// Most documents that one pool may name.
pub const MAX_VALIDATIONS: usize = 16;

/// Longest message of an assertion, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// A document of assertions, as it is written and stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ValidationTerms"))]
#[serde(deny_unknown_fields)]
pub struct ValidationSpec {
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Each of which a step must keep.
    pub assertions: Vec<Assertion>,
}

/// One assertion as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    /// What must hold, such as `gpu_count <= 8` or `memory <= 0.9 * node.memory`.
    pub assert: String,
    /// When it must hold, such as `work == "notebook"`; always where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// What whoever breaks it is told.
    pub message: String,
}

/// An assertion that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedAssertion {
    /// As it is written.
    pub source: Assertion,
    when: Option<Rule>,
    rule: Rule,
}

impl ParsedAssertion {
    /// Whether it is about hosts.
    pub fn is_about_hosts(&self) -> bool {
        self.rule.is_about_hosts() || self.when.as_ref().is_some_and(Rule::is_about_hosts)
    }

    /// Whether a `when` about steps keeps it from asking for anything.
    pub fn is_inactive(&self, step: &StepFacts<'_>) -> bool {
        let when = self.when.as_ref();
        let when = when.filter(|when| !when.is_about_hosts());
        when.is_some_and(|when| when.evaluate(step) != RuleResult::Holds)
    }

    /// Whether it holds. Where its `when` does not, or cannot be judged, it asks for nothing.
    pub fn evaluate(&self, facts: &impl FactSource) -> RuleResult {
        let wanted = self.when.as_ref().map(|when| when.evaluate(facts));
        match wanted {
            None | Some(RuleResult::Holds) => self.rule.evaluate(facts),
            Some(RuleResult::Fails(_)) => RuleResult::Holds,
        }
    }
}

/// What is wrong with a document of assertions, and in which field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {wrong}")]
pub struct ValidationError {
    /// Such as `assertions[2].assert`.
    pub field: String,
    /// What is wrong.
    pub wrong: Box<ValidationProblem>,
}

/// What is wrong with a field of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValidationProblem {
    /// There are no assertions, or too many.
    #[error("{0} assertions: write 1 to {MAX_ASSERTIONS}")]
    Count(usize),
    /// One tells nobody anything.
    #[error("write 1 to {MAX_MESSAGE_CHARS} characters that tell users what to do")]
    Message,
    /// One cannot be read.
    #[error("`{text}`: {error}")]
    Rule {
        /// What was written.
        text: String,
        /// What is wrong, and where in the text.
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
    /// Reads every assertion.
    ///
    /// # Errors
    /// The first that is wrong.
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

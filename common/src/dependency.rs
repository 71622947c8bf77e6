//! Dependencies between steps: which other steps must have ended, and how, before a step may start.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

use crate::error_code::ErrorCode;
use crate::field_error::FieldError;
use crate::id::{NameError, StepId};
use crate::state::StepState;

/// Most steps on which one step may depend.
pub const MAX_DEPENDENCIES: usize = 1000;

/// A step that must have ended before another may start, written as `prep`, `prep:ok`, `prep:any` or `prep:failed`. With
/// `prep:each`, `prep:each:any` and so on, each part of an array depends on the part of `prep` with the same index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(with = "String")
)]
#[serde(try_from = "String", into = "String")]
pub struct Dependency {
    /// The step that must have ended.
    pub step: StepId,
    /// Whether each part of an array depends on the part of that array with the same index.
    pub each: bool,
    /// The required end of that step.
    pub end: ExpectedEnd,
}

/// The ends of a step that satisfy a dependency on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedEnd {
    /// Success and nothing else.
    #[default]
    Ok,
    /// Any end at all.
    Any,
    /// Any end but success: the step failed, or was cancelled, rejected or preempted for good.
    Failed,
}

impl ExpectedEnd {
    /// All of them, in display order.
    pub const ALL: [ExpectedEnd; 3] = [ExpectedEnd::Ok, ExpectedEnd::Any, ExpectedEnd::Failed];

    /// The word as the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ExpectedEnd::Ok => "ok",
            ExpectedEnd::Any => "any",
            ExpectedEnd::Failed => "failed",
        }
    }

    /// Whether a step in this terminal state has ended as required.
    pub fn is_met_by(self, end: StepState) -> bool {
        match self {
            ExpectedEnd::Ok => end == StepState::Succeeded,
            ExpectedEnd::Any => true,
            ExpectedEnd::Failed => end != StepState::Succeeded,
        }
    }
}

/// Error for a text that is not a dependency.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DependencyError {
    /// The step is no well-formed id.
    #[error(transparent)]
    Id(#[from] NameError),
    /// The required end is none of the known ones.
    #[error(
        "`:{end}` is no end of a step: write `{step}` or `{step}:ok`, `{step}:any` or `{step}:failed`, and `{step}:each` for the part with the same index"
    )]
    End {
        /// The step of the dependency.
        step: StepId,
        /// The rejected word, escaped.
        end: String,
    },
}

impl FromStr for Dependency {
    type Err = DependencyError;

    fn from_str(text: &str) -> Result<Self, DependencyError> {
        let (step, end) = match text.split_once(':') {
            Some((step, end)) => (step, Some(end)),
            None => (text, None),
        };
        let step = StepId::new(step)?;
        let (each, end) = match end {
            Some("each") => (true, None),
            Some(end) => match end.strip_prefix("each:") {
                Some(end) => (true, Some(end)),
                None => (false, Some(end)),
            },
            None => (false, None),
        };
        let Some(word) = end else {
            let end = ExpectedEnd::Ok;
            return Ok(Dependency { step, each, end });
        };
        let known = ExpectedEnd::ALL.into_iter();
        match known.into_iter().find(|end| end.as_str() == word) {
            Some(end) => Ok(Dependency { step, each, end }),
            None => Err(DependencyError::End {
                step,
                end: word.escape_default().to_string(),
            }),
        }
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.step.fmt(f)?;
        if self.each {
            f.write_str(":each")?;
        }
        match self.end {
            ExpectedEnd::Ok => Ok(()),
            ExpectedEnd::Any | ExpectedEnd::Failed => write!(f, ":{}", self.end.as_str()),
        }
    }
}

impl TryFrom<String> for Dependency {
    type Error = DependencyError;

    fn try_from(text: String) -> Result<Self, DependencyError> {
        text.parse()
    }
}

impl From<Dependency> for String {
    fn from(dependency: Dependency) -> Self {
        dependency.to_string()
    }
}

/// Parses the field `after` of a request.
///
/// # Errors
/// If one of its texts is not a dependency, a step is listed twice, there are more than [`MAX_DEPENDENCIES`], or parts are
/// paired and the step is no array.
pub(crate) fn check_dependencies(
    texts: &[String],
    is_array: bool,
) -> Result<Vec<Dependency>, FieldError> {
    if texts.len() > MAX_DEPENDENCIES {
        let message = format!(
            "it names {} steps, and a step may depend on {MAX_DEPENDENCIES}: have one step after some of them, and name that one",
            texts.len()
        );
        return Err(FieldError::new(
            ErrorCode::InvalidDependency,
            "after",
            message,
        ));
    }
    let mut dependencies: Vec<Dependency> = Vec::with_capacity(texts.len());
    let mut seen = alloc::collections::BTreeSet::new();
    for (place, text) in texts.iter().enumerate() {
        let wrong = |message: String| {
            FieldError::new(
                ErrorCode::InvalidDependency,
                format!("after[{place}]"),
                message,
            )
        };
        let dependency: Dependency = text
            .parse()
            .map_err(|e: DependencyError| wrong(e.to_string()))?;
        if dependency.each && !is_array {
            return Err(wrong(format!(
                "`{dependency}` pairs the parts of two arrays, and this step is none: set `array`, or write `{}`",
                dependency.step
            )));
        }
        if !seen.insert(dependency.step.clone()) {
            return Err(wrong(format!(
                "step `{}` is listed twice: leave one",
                dependency.step
            )));
        }
        dependencies.push(dependency);
    }
    Ok(dependencies)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    #[test]
    fn a_dependency_is_read_as_it_is_written() {
        for (text, end, written) in [
            ("prep", ExpectedEnd::Ok, "prep"),
            ("prep:ok", ExpectedEnd::Ok, "prep"),
            ("prep:any", ExpectedEnd::Any, "prep:any"),
            ("a.b-7:failed", ExpectedEnd::Failed, "a.b-7:failed"),
            ("prep:each", ExpectedEnd::Ok, "prep:each"),
            ("prep:each:any", ExpectedEnd::Any, "prep:each:any"),
        ] {
            let read: Dependency = text.parse().expect("it is well formed");
            assert_eq!((read.end, read.to_string().as_str()), (end, written));
        }
    }

    #[test]
    fn a_wrong_dependency_names_its_place_and_the_way_out() {
        let error = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            let error = check_dependencies(&texts, false).expect_err("it is wrong");
            format!("{}: {}", error.field, error.message)
        };
        assert_eq!(
            error(&["a", "b:succeeded"]),
            "after[1]: `:succeeded` is no end of a step: write `b` or `b:ok`, `b:any` or `b:failed`, and `b:each` for the part with the same index"
        );
        assert_eq!(
            error(&["a:each:any"]),
            "after[0]: `a:each:any` pairs the parts of two arrays, and this step is none: set `array`, or write `a`"
        );
        assert_eq!(
            error(&["a", "b", "a:any"]),
            "after[2]: step `a` is listed twice: leave one"
        );
        assert!(error(&["a b"]).starts_with("after[0]: `a b` is not a valid step id"));
        let many = vec!["a"; MAX_DEPENDENCIES + 1];
        assert!(
            error(&many).starts_with("after: it names 1001 steps, and a step may depend on 1000")
        );
    }

    #[test]
    fn each_end_meets_what_it_should() {
        use StepState::{Cancelled, Failed, Preempted, Rejected, Succeeded};
        for end in [Succeeded, Failed, Cancelled, Rejected, Preempted] {
            assert!(ExpectedEnd::Any.is_met_by(end));
            assert_eq!(ExpectedEnd::Ok.is_met_by(end), end == Succeeded);
            assert_eq!(ExpectedEnd::Failed.is_met_by(end), end != Succeeded);
        }
    }
}

//! Evaluates rules against the facts of a step and a host. A rule that cannot be evaluated fails and explains why.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::fact::{Fact, MissingFact, NodeFacts, StepFacts};
use super::number::Ratio;
use super::parse::{ArithmeticOp, Comparison, Expr, Rule, Side, kind_of};
use super::value::{FactValue, ValueKind};

/// Source of facts.
pub trait FactSource {
    /// Looks up the value of a fact.
    ///
    /// # Errors
    /// If there is no such value.
    fn value(&self, fact: &Fact) -> Result<FactValue, MissingFact>;
}

impl FactSource for StepFacts<'_> {
    fn value(&self, fact: &Fact) -> Result<FactValue, MissingFact> {
        StepFacts::value(self, fact)
    }
}

/// A step together with a candidate host.
#[derive(Clone, Copy, Debug)]
pub struct StepOnNode<'a> {
    /// Facts of the step.
    pub step: StepFacts<'a>,
    /// Facts of the host.
    pub node: &'a NodeFacts,
}

impl FactSource for StepOnNode<'_> {
    fn value(&self, fact: &Fact) -> Result<FactValue, MissingFact> {
        match fact {
            Fact::Node(fact) => self.node.value(fact),
            fact => self.step.value(fact),
        }
    }
}

/// Result of evaluating a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleResult {
    /// The rule holds.
    Holds,
    /// The rule fails or cannot be evaluated.
    Fails(RuleFailure),
}

/// Why a rule fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFailure {
    /// Values of its sides, or why they are unknown.
    pub values: String,
    /// Relative difference of its sides, in millionths of the larger.
    pub gap: u64,
}

/// Relative difference of values that cannot be compared numerically.
const WHOLE: u64 = 1_000_000;

impl Rule {
    /// Evaluates the comparison.
    pub fn evaluate(&self, facts: &impl FactSource) -> RuleResult {
        let sides = self.left.expr.worth(facts).and_then(|left| {
            let right = self.right.expr.worth(facts)?;
            let holds = self.comparison.holds(&left, &right)?;
            Ok((left, right, holds))
        });
        match sides {
            Ok((_, _, true)) => RuleResult::Holds,
            Ok((left, right, false)) => RuleResult::Fails(self.failure(&left, &right)),
            Err(MissingFact(why)) => RuleResult::Fails(RuleFailure {
                values: format!("it cannot be evaluated: {why}"),
                gap: WHOLE,
            }),
        }
    }

    fn failure(&self, left: &FactValue, right: &FactValue) -> RuleFailure {
        let sides = [(&self.left, left), (&self.right, right)];
        let told = sides.into_iter().filter(|(side, _)| !side.is_constant());
        let told: Vec<String> = told.map(|(side, value)| worth(side, value)).collect();
        let amounts = left.amount().zip(right.amount());
        RuleFailure {
            values: told.join(", "),
            gap: amounts.map_or(WHOLE, |(left, right)| left.gap(right)),
        }
    }
}

fn worth(side: &Side, value: &FactValue) -> String {
    format!("{} is {value}", side.text)
}

impl Expr {
    fn worth(&self, facts: &impl FactSource) -> Result<FactValue, MissingFact> {
        match self {
            Expr::Constant(value) => Ok(value.clone()),
            Expr::Fact(fact) => facts.value(fact),
            Expr::Sum(left, sign, right) => sum(&left.worth(facts)?, *sign, &right.worth(facts)?),
        }
    }
}

fn sum(left: &FactValue, sign: ArithmeticOp, right: &FactValue) -> Result<FactValue, MissingFact> {
    let (Some(l), Some(r)) = (left.amount(), right.amount()) else {
        return unlimited_arithmetic(left, sign, right);
    };
    let result = match sign {
        ArithmeticOp::Plus => l.plus(r),
        ArithmeticOp::Minus => l.minus(r),
        ArithmeticOp::Times => l.times(r),
        ArithmeticOp::Over if r == Ratio::whole(0) => {
            return Err(MissingFact(format!("{left} would be divided by {right}")));
        }
        ArithmeticOp::Over => l.over(r),
    };
    let result = result.ok_or_else(|| MissingFact("it is beyond what can be counted".into()))?;
    Ok(match kind_of(left.kind(), sign, right.kind()) {
        Some(ValueKind::Bytes) => FactValue::Bytes(result),
        Some(ValueKind::Time) => FactValue::Time(result),
        Some(ValueKind::Number | ValueKind::Text | ValueKind::Bool) | None => {
            FactValue::Number(result)
        }
    })
}

/// Arithmetic with an unlimited time: sums and multiples stay unlimited, everything else has no value.
fn unlimited_arithmetic(
    left: &FactValue,
    sign: ArithmeticOp,
    right: &FactValue,
) -> Result<FactValue, MissingFact> {
    match (left, sign, right) {
        (
            FactValue::Forever,
            ArithmeticOp::Plus | ArithmeticOp::Times | ArithmeticOp::Over,
            right,
        ) if *right != FactValue::Forever => Ok(FactValue::Forever),
        (FactValue::Forever, ArithmeticOp::Minus, right) if *right != FactValue::Forever => {
            Ok(FactValue::Forever)
        }
        (_, ArithmeticOp::Plus | ArithmeticOp::Times, FactValue::Forever) => Ok(FactValue::Forever),
        _ => Err(MissingFact(
            "an unlimited time cannot be combined like this".into(),
        )),
    }
}

impl Comparison {
    fn holds(self, left: &FactValue, right: &FactValue) -> Result<bool, MissingFact> {
        let order = order(left, right)?;
        Ok(match self {
            Comparison::Equal => order == Ordering::Equal,
            Comparison::NotEqual => order != Ordering::Equal,
            Comparison::AtMost => order != Ordering::Greater,
            Comparison::Less => order == Ordering::Less,
            Comparison::AtLeast => order != Ordering::Less,
            Comparison::More => order == Ordering::Greater,
        })
    }
}

fn order(left: &FactValue, right: &FactValue) -> Result<Ordering, MissingFact> {
    if let (Some(left), Some(right)) = (left.amount(), right.amount()) {
        let order = left.compare(right);
        return order.ok_or_else(|| MissingFact("it is beyond what can be counted".into()));
    }
    Ok(match (left, right) {
        (FactValue::Forever, FactValue::Forever) => Ordering::Equal,
        (FactValue::Forever, _) => Ordering::Greater,
        (_, FactValue::Forever) => Ordering::Less,
        (FactValue::Text(left), FactValue::Text(right)) => left.cmp(right),
        (FactValue::Bool(left), FactValue::Bool(right)) => left.cmp(right),
        _ => return Err(MissingFact("its sides are not of one kind".into())),
    })
}

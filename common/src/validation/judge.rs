//! Judges a rule: what each side is worth, and whether the comparison holds. What cannot be judged does not hold, and
//! says why.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use super::fact::{Fact, Lack, NodeFacts, StepFacts};
use super::number::Ratio;
use super::parse::{Comparison, Expr, Rule, Side, Sign, kind_of};
use super::value::{Kind, Value};

/// Where facts are found.
pub trait Facts {
    /// What a fact is worth.
    ///
    /// # Errors
    /// Where there is nothing of the kind.
    fn value(&self, fact: &Fact) -> Result<Value, Lack>;
}

impl Facts for StepFacts<'_> {
    fn value(&self, fact: &Fact) -> Result<Value, Lack> {
        StepFacts::value(self, fact)
    }
}

/// A step on a host.
#[derive(Clone, Copy, Debug)]
pub struct On<'a> {
    /// The step.
    pub step: StepFacts<'a>,
    /// The host.
    pub node: &'a NodeFacts,
}

impl Facts for On<'_> {
    fn value(&self, fact: &Fact) -> Result<Value, Lack> {
        match fact {
            Fact::Node(fact) => self.node.value(fact),
            fact => self.step.value(fact),
        }
    }
}

/// What becomes of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not, or cannot be judged.
    Fails(Failure),
}

/// Why a rule does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What its sides are worth, or why they cannot be told.
    pub found: String,
    /// How far its sides are apart, as millionths of the larger.
    pub gap: u64,
}

/// The gap of what cannot be measured.
const WHOLE: u64 = 1_000_000;

impl Rule {
    /// Whether it holds.
    pub fn judge(&self, facts: &impl Facts) -> Verdict {
        let sides = self.left.expr.worth(facts).and_then(|left| {
            let right = self.right.expr.worth(facts)?;
            let holds = self.comparison.holds(&left, &right)?;
            Ok((left, right, holds))
        });
        match sides {
            Ok((_, _, true)) => Verdict::Holds,
            Ok((left, right, false)) => Verdict::Fails(self.failure(&left, &right)),
            Err(Lack(why)) => Verdict::Fails(Failure {
                found: format!("it cannot be judged: {why}"),
                gap: WHOLE,
            }),
        }
    }

    fn failure(&self, left: &Value, right: &Value) -> Failure {
        let sides = [(&self.left, left), (&self.right, right)];
        let told = sides.into_iter().filter(|(side, _)| !side.is_constant());
        let told: Vec<String> = told.map(|(side, value)| worth(side, value)).collect();
        let amounts = left.amount().zip(right.amount());
        Failure {
            found: told.join(", "),
            gap: amounts.map_or(WHOLE, |(left, right)| left.gap(right)),
        }
    }
}

fn worth(side: &Side, value: &Value) -> String {
    format!("{} is {value}", side.text)
}

impl Expr {
    fn worth(&self, facts: &impl Facts) -> Result<Value, Lack> {
        match self {
            Expr::Constant(value) => Ok(value.clone()),
            Expr::Fact(fact) => facts.value(fact),
            Expr::Sum(left, sign, right) => sum(&left.worth(facts)?, *sign, &right.worth(facts)?),
        }
    }
}

fn sum(left: &Value, sign: Sign, right: &Value) -> Result<Value, Lack> {
    let (Some(l), Some(r)) = (left.amount(), right.amount()) else {
        return endless(left, sign, right);
    };
    let result = match sign {
        Sign::Plus => l.plus(r),
        Sign::Minus => l.minus(r),
        Sign::Times => l.times(r),
        Sign::Over if r == Ratio::whole(0) => {
            return Err(Lack(format!("{left} would be divided by {right}")));
        }
        Sign::Over => l.over(r),
    };
    let result = result.ok_or_else(|| Lack("it is beyond what can be counted".into()))?;
    Ok(match kind_of(left.kind(), sign, right.kind()) {
        Some(Kind::Bytes) => Value::Bytes(result),
        Some(Kind::Time) => Value::Time(result),
        Some(Kind::Number | Kind::Text | Kind::Truth) | None => Value::Number(result),
    })
}

/// A time without end stays so, whatever is added to it; what is made of it otherwise is no time.
fn endless(left: &Value, sign: Sign, right: &Value) -> Result<Value, Lack> {
    match (left, sign, right) {
        (Value::Forever, Sign::Plus | Sign::Times | Sign::Over, right)
            if *right != Value::Forever =>
        {
            Ok(Value::Forever)
        }
        (Value::Forever, Sign::Minus, right) if *right != Value::Forever => Ok(Value::Forever),
        (_, Sign::Plus | Sign::Times, Value::Forever) => Ok(Value::Forever),
        _ => Err(Lack(
            "a time without end cannot be calculated with so".into(),
        )),
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> Result<bool, Lack> {
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

fn order(left: &Value, right: &Value) -> Result<Ordering, Lack> {
    if let (Some(left), Some(right)) = (left.amount(), right.amount()) {
        let order = left.compare(right);
        return order.ok_or_else(|| Lack("it is beyond what can be counted".into()));
    }
    Ok(match (left, right) {
        (Value::Forever, Value::Forever) => Ordering::Equal,
        (Value::Forever, _) => Ordering::Greater,
        (_, Value::Forever) => Ordering::Less,
        (Value::Text(left), Value::Text(right)) => left.cmp(right),
        (Value::Truth(left), Value::Truth(right)) => left.cmp(right),
        _ => return Err(Lack("its sides are not of one kind".into())),
    })
}

//! Parses a rule: two arithmetic expressions over facts and constants, with a comparison between. Names, units and
//! kinds are checked here, before any step exists.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::constant;
use super::error::{MAX_DEPTH, RuleError, RuleProblem};
use super::fact::{self, Fact};
use super::lex::{self, Token, TokenKind};
use super::value::{FactValue, ValueKind};

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    AtMost,
    Less,
    AtLeast,
    More,
}

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::AtMost),
    ("<", Comparison::Less),
    (">=", Comparison::AtLeast),
    (">", Comparison::More),
];

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArithmeticOp {
    Plus,
    Minus,
    Times,
    Over,
}

/// An arithmetic expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    Constant(FactValue),
    Fact(Fact),
    Sum(Box<Expr>, ArithmeticOp, Box<Expr>),
}

/// One side of a comparison, with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) expr: Expr,
    pub(super) kind: ValueKind,
    pub(super) text: String,
}

/// A parsed rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) left: Side,
    pub(super) comparison: Comparison,
    pub(super) right: Side,
}

impl Rule {
    /// Parses a rule.
    ///
    /// # Errors
    /// If the text is not a rule, with the column of the problem.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let tokens = lex::words(text)?;
        let mut reader = RuleParser {
            text,
            tokens: &tokens,
            next: 0,
            depth: 0,
        };
        let rule = reader.rule()?;
        if !rule.left.expr.names_a_fact() && !rule.right.expr.names_a_fact() {
            return Err(lex::error(text, 0, RuleProblem::Constant));
        }
        Ok(rule)
    }

    /// Whether the rule mentions facts of hosts.
    pub fn is_about_hosts(&self) -> bool {
        self.left.expr.is_about_hosts() || self.right.expr.is_about_hosts()
    }
}

impl Expr {
    fn any(&self, is: &impl Fn(&Fact) -> bool) -> bool {
        match self {
            Expr::Constant(_) => false,
            Expr::Fact(fact) => is(fact),
            Expr::Sum(left, _, right) => left.any(is) || right.any(is),
        }
    }

    fn names_a_fact(&self) -> bool {
        self.any(&|_| true)
    }

    fn is_about_hosts(&self) -> bool {
        self.any(&|fact| matches!(fact, Fact::Node(_)))
    }
}

struct RuleParser<'a> {
    text: &'a str,
    tokens: &'a [Token<'a>],
    next: usize,
    depth: usize,
}

impl<'a> RuleParser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.next]
    }

    /// The next token; stays at the end.
    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        if token.word != TokenKind::End {
            self.next += 1;
        }
        token
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is = self.peek().word == TokenKind::Sign(sign);
        if is {
            self.take();
        }
        is
    }

    fn error(&self, at: usize, wrong: RuleProblem) -> RuleError {
        lex::error(self.text, at, wrong)
    }

    fn expected(&self, token: Token<'_>, wanted: &'static str) -> RuleError {
        let found = token.word.shown();
        let wrong = match token.word {
            TokenKind::Name("and" | "or" | "not") => RuleProblem::Joined,
            _ => RuleProblem::Expected { found, wanted },
        };
        self.error(token.at, wrong)
    }

    fn rule(&mut self) -> Result<Rule, RuleError> {
        let left = self.side()?;
        let token = self.take();
        let sign = COMPARISONS
            .into_iter()
            .find(|(sign, _)| token.word == TokenKind::Sign(sign));
        let Some((_, comparison)) = sign else {
            return Err(self.expected(token, "a comparison (==, !=, <=, <, >=, >)"));
        };
        let right = self.side()?;
        let last = self.peek();
        if last.word != TokenKind::End {
            return Err(self.expected(last, "the end"));
        }
        self.comparable(token.at, &left, comparison, &right)?;
        Ok(Rule {
            left,
            comparison,
            right,
        })
    }

    fn comparable(
        &self,
        at: usize,
        left: &Side,
        comparison: Comparison,
        right: &Side,
    ) -> Result<(), RuleError> {
        let kind = left.kind;
        if kind != right.kind {
            let wrong = RuleProblem::Compared {
                left: left.text.clone(),
                left_kind: kind,
                right: right.text.clone(),
                right_kind: right.kind,
                hint: unit_hint(kind, right.kind),
            };
            return Err(self.error(at, wrong));
        }
        let ordered = !matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        match kind {
            ValueKind::Text | ValueKind::Bool if ordered => {
                Err(self.error(at, RuleProblem::Unordered { kind }))
            }
            ValueKind::Text
            | ValueKind::Bool
            | ValueKind::Number
            | ValueKind::Bytes
            | ValueKind::Time => Ok(()),
        }
    }

    fn side(&mut self) -> Result<Side, RuleError> {
        let from = self.peek().at;
        let (expr, kind) = self.sum()?;
        let text = on_one_line(&self.text[from..self.peek().at]);
        Ok(Side { expr, kind, text })
    }

    fn sum(&mut self) -> Result<(Expr, ValueKind), RuleError> {
        let from = self.peek().at;
        let mut left = self.product()?;
        loop {
            let at = self.peek().at;
            let sign = match self.peek().word {
                TokenKind::Sign("+") => ArithmeticOp::Plus,
                TokenKind::Sign("-") => ArithmeticOp::Minus,
                _ => return Ok(left),
            };
            self.take();
            let right = self.product()?;
            left = self.joined(from, at, left, sign, right)?;
        }
    }

    fn product(&mut self) -> Result<(Expr, ValueKind), RuleError> {
        let from = self.peek().at;
        let mut left = self.factor()?;
        loop {
            let at = self.peek().at;
            let sign = match self.peek().word {
                TokenKind::Sign("*") => ArithmeticOp::Times,
                TokenKind::Sign("/") => ArithmeticOp::Over,
                _ => return Ok(left),
            };
            self.take();
            let right = self.factor()?;
            left = self.joined(from, at, left, sign, right)?;
        }
    }

    fn joined(
        &self,
        from: usize,
        at: usize,
        (left, left_kind): (Expr, ValueKind),
        sign: ArithmeticOp,
        (right, right_kind): (Expr, ValueKind),
    ) -> Result<(Expr, ValueKind), RuleError> {
        let Some(kind) = kind_of(left_kind, sign, right_kind) else {
            let end = self.peek().at;
            let wrong = RuleProblem::Arithmetic {
                left: on_one_line(&self.text[from..at]),
                sign: sign.as_char(),
                right: on_one_line(&self.text[at + 1..end]),
                left_kind,
                right_kind,
            };
            return Err(self.error(at, wrong));
        };
        Ok((Expr::Sum(Box::new(left), sign, Box::new(right)), kind))
    }

    fn factor(&mut self) -> Result<(Expr, ValueKind), RuleError> {
        let token = self.take();
        match token.word {
            TokenKind::Number(text) => self.constant(token.at, text),
            TokenKind::Text(text) => Ok(constant_expr(FactValue::Text(text.to_string()))),
            TokenKind::Name("true") => Ok(constant_expr(FactValue::Bool(true))),
            TokenKind::Name("false") => Ok(constant_expr(FactValue::Bool(false))),
            TokenKind::Name(name) => self.fact(token.at, name),
            TokenKind::Sign("(") => self.bracket(token.at),
            TokenKind::Sign(_) | TokenKind::End => {
                Err(self.expected(token, "a fact, a number, an amount or a text"))
            }
        }
    }

    fn bracket(&mut self, at: usize) -> Result<(Expr, ValueKind), RuleError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(at, RuleProblem::TooDeep));
        }
        let inner = self.sum()?;
        self.depth -= 1;
        match self.takes(")") {
            true => Ok(inner),
            false => Err(self.expected(self.peek(), "`)`")),
        }
    }

    fn constant(&self, at: usize, text: &str) -> Result<(Expr, ValueKind), RuleError> {
        constant::read(text).map(constant_expr).ok_or_else(|| {
            let wrong = RuleProblem::Number {
                text: text.to_string(),
                hint: constant::hint(text),
            };
            self.error(at, wrong)
        })
    }

    fn fact(&mut self, at: usize, first: &str) -> Result<(Expr, ValueKind), RuleError> {
        let of_node = first == "node";
        let name = match of_node {
            false => first,
            true => self.part("the name of a fact of hosts, such as `memory`")?,
        };
        let key = match fact::KEYED.contains(&name) {
            false => None,
            true => Some(self.key()?),
        };
        let fact = Fact::find(of_node, name, key).map_err(|wrong| self.error(at, wrong))?;
        let kind = fact.kind();
        Ok((Expr::Fact(fact), kind))
    }

    /// Parses a name after `.`.
    fn part(&mut self, wanted: &'static str) -> Result<&'a str, RuleError> {
        if !self.takes(".") {
            return Err(self.expected(self.peek(), "`.`"));
        }
        let token = self.take();
        match token.word {
            TokenKind::Name(name) => Ok(name),
            TokenKind::Number(_) | TokenKind::Text(_) | TokenKind::Sign(_) | TokenKind::End => {
                Err(self.expected(token, wanted))
            }
        }
    }

    /// Parses `.KEY`, or `["KEY"]` for keys with other characters.
    fn key(&mut self) -> Result<&'a str, RuleError> {
        const WANTED: &str = "a key, such as `.team` or `[\"example.com/team\"]`";
        if !self.takes("[") {
            return self.part(WANTED);
        }
        let token = self.take();
        let TokenKind::Text(key) = token.word else {
            return Err(self.expected(token, "a text between quotes"));
        };
        match self.takes("]") {
            true => Ok(key),
            false => Err(self.expected(self.peek(), "`]`")),
        }
    }
}

/// Quotes a part of a rule on one line.
fn on_one_line(part: &str) -> String {
    let is_end = |c: char| c.is_whitespace() && c != ' ';
    let words: Vec<&str> = part
        .trim()
        .split(is_end)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

fn constant_expr(value: FactValue) -> (Expr, ValueKind) {
    let kind = value.kind();
    (Expr::Constant(value), kind)
}

impl ArithmeticOp {
    fn as_char(self) -> char {
        match self {
            ArithmeticOp::Plus => '+',
            ArithmeticOp::Minus => '-',
            ArithmeticOp::Times => '*',
            ArithmeticOp::Over => '/',
        }
    }
}

/// Kind of the result: equal kinds add, subtract and divide, and any kind multiplies with and divides by a number.
pub(super) fn kind_of(left: ValueKind, sign: ArithmeticOp, right: ValueKind) -> Option<ValueKind> {
    let counts = |kind| matches!(kind, ValueKind::Number | ValueKind::Bytes | ValueKind::Time);
    if !counts(left) || !counts(right) {
        return None;
    }
    match sign {
        ArithmeticOp::Plus | ArithmeticOp::Minus => (left == right).then_some(left),
        ArithmeticOp::Times if left == ValueKind::Number => Some(right),
        ArithmeticOp::Times => (right == ValueKind::Number).then_some(left),
        ArithmeticOp::Over if right == ValueKind::Number => Some(left),
        ArithmeticOp::Over => (left == right).then_some(ValueKind::Number),
    }
}

fn unit_hint(left: ValueKind, right: ValueKind) -> &'static str {
    match (left, right) {
        (ValueKind::Bytes, ValueKind::Number) | (ValueKind::Number, ValueKind::Bytes) => {
            "; write amounts with their unit, such as `16GiB`"
        }
        (ValueKind::Time, ValueKind::Number) | (ValueKind::Number, ValueKind::Time) => {
            "; write times with their unit, such as `2h`"
        }
        (ValueKind::Text, _) | (_, ValueKind::Text) => "; write texts between quotes",
        _ => "",
    }
}

impl Side {
    /// Whether the side is a constant, whose value needs no explanation.
    pub(super) fn is_constant(&self) -> bool {
        matches!(self.expr, Expr::Constant(_))
    }
}

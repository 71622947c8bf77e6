//! Rules of OSMO in their three-field form: an operator between two operands, each a variable or a constant.

use serde_json::{Map, Value, json};

use super::super::fields::ForeignFields;
use crate::render::safe;

/// Name of the tool in messages.
const TOOL: &str = "OSMO";

const OPERATORS: [(&str, &str); 6] = [
    ("LE", "<="),
    ("GE", ">="),
    ("LT", "<"),
    ("GT", ">"),
    ("EQ", "=="),
    ("NE", "!="),
];

/// Variables of a rule, with the facts of ours, and whether the fact has a unit.
const VARIABLES: [(&str, &str, bool); 8] = [
    ("USER_CPU", "cpu_count", false),
    ("USER_GPU", "gpu_count", false),
    ("USER_MEMORY", "memory", true),
    ("USER_STORAGE", "storage", true),
    ("K8_CPU", "node.cpu_count", false),
    ("K8_GPU", "node.gpu_count", false),
    ("K8_MEMORY", "node.memory", true),
    ("K8_STORAGE", "node.storage", true),
];

/// Translates the rules of a set.
pub(super) fn all(name: &str, rules: Value) -> Result<Value, String> {
    let path = format!("resource_validations.{}", safe(name));
    let Value::Array(rules) = rules else {
        return Err(format!("{path}: write a list of rules"));
    };
    let rules = rules.into_iter().enumerate().map(|(at, rule)| {
        let path = format!("{path}[{at}]");
        match rule {
            Value::Object(fields) => one(ForeignFields::below(TOOL, path, fields)),
            _ => Err(format!("{path}: write a mapping")),
        }
    });
    Ok(Value::Array(rules.collect::<Result<_, _>>()?))
}

/// Translates the assertions of a validation of ours that are in this form; others stay as they are.
pub(crate) fn translate(document: &mut Map<String, Value>) -> Result<(), String> {
    let Some(Value::Array(assertions)) = document.get_mut("assertions") else {
        return Ok(());
    };
    for (at, assertion) in assertions.iter_mut().enumerate() {
        match assertion {
            Value::Object(fields) if fields.contains_key("left_operand") => {
                let path = format!("assertions[{at}]");
                *assertion = one(ForeignFields::below(TOOL, path, fields.clone()))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn one(mut rule: ForeignFields) -> Result<Value, String> {
    let word = rule.needed("operator")?;
    let operator = OPERATORS.iter().find(|(theirs, _)| *theirs == word);
    let (_, operator) = operator.ok_or_else(|| {
        rule.wrong(
            "operator",
            &word.clone().into(),
            "write LE, GE, LT, GT, EQ or NE",
        )
    })?;
    let left = operand(&mut rule, "left_operand")?;
    let right = operand(&mut rule, "right_operand")?;
    let message = rule.needed("assert_message")?;
    rule.end()?;
    let with_unit = left.has_unit() || right.has_unit();
    let assert = format!(
        "{} {operator} {}",
        left.text(with_unit),
        right.text(with_unit)
    );
    Ok(json!({"assert": assert, "message": told(&message)}))
}

/// One side of a rule.
enum RuleValue {
    Fact(&'static str, bool),
    Number(String),
    Amount(String),
}

impl RuleValue {
    fn has_unit(&self) -> bool {
        matches!(self, RuleValue::Fact(_, true))
    }

    /// Writes it as assertions of ours do: OSMO compares amounts in Ki, so a number beside one counts these.
    fn text(&self, with_unit: bool) -> String {
        match self {
            RuleValue::Fact(name, _) => (*name).to_owned(),
            RuleValue::Amount(text) => text.clone(),
            RuleValue::Number(number) if with_unit => format!("{number}KiB"),
            RuleValue::Number(number) => number.clone(),
        }
    }
}

fn operand(rule: &mut ForeignFields, name: &'static str) -> Result<RuleValue, String> {
    let value = rule.take(name).unwrap_or_default();
    let text = match &value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return Err(rule.wrong(name, &value, "write a variable or a constant")),
    };
    let inner = text.strip_prefix("{{").and_then(|it| it.strip_suffix("}}"));
    if let Some(variable) = inner.map(str::trim) {
        let found = VARIABLES.iter().find(|(theirs, ..)| *theirs == variable);
        let known = VARIABLES.map(|(theirs, ..)| theirs).join(", ");
        let way =
            format!("write one variable of {known}, or an assertion of ours (docs/validation.md)");
        let (_, fact, unit) = found.ok_or_else(|| rule.wrong(name, &value, &way))?;
        return Ok(RuleValue::Fact(fact, *unit));
    }
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[number.len()..];
    let is_number = number.parse::<f64>().is_ok_and(f64::is_finite);
    match unit {
        "" if is_number => Ok(RuleValue::Number(text)),
        "B" if is_number => Ok(RuleValue::Amount(text)),
        "Ki" | "Mi" | "Gi" | "Ti" if is_number => Ok(RuleValue::Amount(format!("{text}B"))),
        _ => Err(rule.wrong(
            name,
            &value,
            "write a variable such as `{{USER_CPU}}`, a number, or an amount such as `5Gi`",
        )),
    }
}

/// Names the facts in a message, which says the numbers by itself.
fn told(message: &str) -> String {
    let mut message = message.to_owned();
    for (theirs, fact, _) in VARIABLES {
        for token in [format!("{{{{{theirs}}}}}"), format!("{{{{ {theirs} }}}}")] {
            message = message.replace(&token, fact);
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(operator: &str, left: &str, right: &str) -> Result<Value, String> {
        all(
            "r",
            json!([{"operator": operator, "left_operand": left, "right_operand": right, "assert_message": "{{USER_CPU}} is wrong"}]),
        )
    }

    #[test]
    fn rules_in_three_fields_are_assertions() {
        for (operator, left, right, assert) in [
            (
                "LE",
                "{{USER_CPU}}",
                "{{K8_CPU}}",
                "cpu_count <= node.cpu_count",
            ),
            ("GT", "{{USER_GPU}}", "0", "gpu_count > 0"),
            ("GE", "{{ USER_STORAGE }}", "5Gi", "storage >= 5GiB"),
            (
                "LT",
                "{{USER_MEMORY}}",
                "{{K8_MEMORY}}",
                "memory < node.memory",
            ),
            ("GT", "{{USER_MEMORY}}", "0", "memory > 0KiB"),
            ("NE", "100B", "{{USER_MEMORY}}", "100B != memory"),
        ] {
            let made = rule(operator, left, right).unwrap();
            assert_eq!(
                made,
                json!([{"assert": assert, "message": "cpu_count is wrong"}])
            );
            let spec = json!({"assertions": made});
            let spec: sluice_common::validation::ValidationSpec =
                serde_json::from_value(spec).unwrap();
            spec.read().unwrap_or_else(|e| panic!("{assert}: {e}"));
        }
    }

    #[test]
    fn what_is_no_rule_is_told_with_its_place() {
        for (operator, left, right, told) in [
            (
                "IN",
                "1",
                "2",
                "resource_validations.r[0].operator: `IN`: write LE",
            ),
            (
                "LE",
                "{{USER_CPUS}}",
                "2",
                "left_operand: `{{USER_CPUS}}`: write one variable of USER_CPU",
            ),
            (
                "LE",
                "{{USER_CPU}}",
                "5Zi",
                "right_operand: `5Zi`: write a variable such as",
            ),
        ] {
            let error = rule(operator, left, right).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }
}

//! Renders roles, bindings and API tokens.

use jiff::Timestamp;
use sluice_common::access::{AccessRule, Effect, OneOrAll, RoleGrant};
use sluice_common::api::{ApiTokenView, BindingView, RoleView};

use super::age::age;
use super::document::{self, ApplyDocument};
use super::listed::Listed;
use super::table::{Cell, Column};
use super::{or_dash, safe};

impl Listed for RoleView {
    const KIND: &'static str = "role";
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME", 9).text(),
        Column::new("BUILT-IN", 6),
        Column::new("RULES", 7),
        Column::new("DESCRIPTION", 4).text(),
        Column::new("VERSION", 3).wide(),
    ];

    fn document(&self) -> Option<ApplyDocument> {
        Some(document::role(self))
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            safe(&self.name).into(),
            if self.built_in { "yes" } else { "no" }.to_owned().into(),
            self.rules.len().to_string().into(),
            safe(&self.description).into(),
            self.version.to_string().into(),
        ]
    }
}

impl Listed for BindingView {
    const KIND: &'static str = "binding";
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME", 9).text(),
        Column::new("ROLES", 8).text(),
        Column::new("MEMBERS", 7).text(),
        Column::new("POOLS", 5).text(),
        Column::new("SUBJECTS", 5).text(),
        Column::new("DESCRIPTION", 4).text(),
        Column::new("VERSION", 3).wide(),
    ];

    fn document(&self) -> Option<ApplyDocument> {
        Some(document::binding(self))
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let roles = self.roles.iter().map(ToString::to_string);
        let members = self.members.iter().map(|it| safe(&it.to_string()));
        vec![
            safe(&self.name).into(),
            roles.collect::<Vec<_>>().join(", ").into(),
            members.collect::<Vec<_>>().join(", ").into(),
            all_or(&self.pools).into(),
            all_or(&self.subjects).into(),
            safe(&self.description).into(),
            self.version.to_string().into(),
        ]
    }
}

impl Listed for ApiTokenView {
    const KIND: &'static str = "api-token";
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME", 9).text(),
        Column::new("GRANTS", 8).text(),
        Column::new("USER", 5).wide(),
        Column::new("EXPIRES", 8),
        Column::new("CREATED BY", 6).text(),
        Column::new("AGE", 7),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, now: Timestamp) -> Vec<Cell> {
        let grants = self.grants.iter().map(grant);
        let expires = match self.expires_at {
            None => "never".to_owned(),
            Some(_) if self.expired => "expired".to_owned(),
            Some(end) => end.strftime("%Y-%m-%d %H:%M").to_string(),
        };
        vec![
            safe(&self.name).into(),
            grants.collect::<Vec<_>>().join("; ").into(),
            or_dash(self.user.as_deref()).into(),
            expires.into(),
            safe(&self.created_by).into(),
            age(self.created_at, now).into(),
        ]
    }
}

/// Formats the lifetime of a token.
pub(crate) fn lifetime(token: &ApiTokenView) -> String {
    match token.expires_at {
        Some(end) => format!("good until {end}"),
        None => "good until it is deleted".to_owned(),
    }
}

/// Formats a grant as a phrase.
pub(crate) fn grant(grant: &RoleGrant) -> String {
    format!(
        "{}{}{}",
        grant.role,
        narrowed("pools", &grant.pools),
        narrowed("subjects", &grant.subjects)
    )
}

fn narrowed<T: ToString>(what: &str, patterns: &[T]) -> String {
    match patterns {
        [] => String::new(),
        patterns => format!(" ({what} {})", listed(patterns)),
    }
}

fn listed<T: ToString>(words: &[T]) -> String {
    let words = words.iter().map(ToString::to_string);
    words.collect::<Vec<_>>().join(", ")
}

fn all_or<T: ToString>(patterns: &[T]) -> String {
    match patterns {
        [] => "all".to_owned(),
        patterns => listed(patterns),
    }
}

/// Formats a role with its rules, a line each.
pub(crate) fn role(role: &RoleView) -> String {
    let mut lines = vec![format!("Name:         {}", safe(&role.name))];
    if !role.description.is_empty() {
        lines.push(format!("Description:  {}", safe(&role.description)));
    }
    let built_in = if role.built_in { "yes" } else { "no" };
    lines.push(format!("Built in:     {built_in}"));
    lines.push("Rules:".to_owned());
    lines.extend(role.rules.iter().map(|it| format!("  {}", rule(it))));
    lines.join("\n") + "\n"
}

fn rule(rule: &AccessRule) -> String {
    let effect = match rule.effect {
        Effect::Allow => "allow",
        Effect::Deny => "deny",
    };
    format!(
        "{effect} {} on {}{}{}",
        words(&rule.verbs),
        words(&rule.resources),
        narrowed("pools", &rule.pools),
        narrowed("subjects", &rule.subjects)
    )
}

fn words<T: ToString>(words: &[OneOrAll<T>]) -> String {
    let words = words.iter().map(|word| match word {
        OneOrAll::All => "everything".to_owned(),
        OneOrAll::One(word) => word.to_string(),
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_told_rule_by_rule() {
        let view: RoleView = serde_json::from_value(serde_json::json!({
            "name": "night", "description": "after hours", "built_in": false, "version": 7, "rules": [
                {"effect": "allow", "verbs": ["*"], "resources": ["steps", "steps/logs"], "pools": ["train-*"]},
                {"effect": "deny", "verbs": ["cancel"], "resources": ["*"], "subjects": ["prod"]}
            ]
        }))
        .unwrap();
        assert_eq!(
            role(&view),
            "Name:         night\n\
             Description:  after hours\n\
             Built in:     no\n\
             Rules:\n  \
             allow everything on steps, steps/logs (pools train-*)\n  \
             deny cancel on everything (subjects prod)\n"
        );
    }
}

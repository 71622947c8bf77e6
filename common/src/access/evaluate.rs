//! Decides whether a set of role grants allows an action. A rule that denies overrides all rules that allow. If the
//! pool or subject of the action is not known yet, a right must hold for all of them, and a deny rule for any of them
//! applies.

use super::{AccessRule, Effect, NamePattern, Resource, RoleGrant, RoleSpec, Verb};
use crate::id::RoleName;

/// Pools or subjects that an action concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// The one of this name.
    One(&'a str),
    /// Unknown in advance: the right must hold for every name.
    Every,
    /// Results are filtered one by one later: a right for any name is enough.
    Any,
    /// The object belongs to no pool or subject. Reading it needs no scope, changing it does.
    Unscoped,
}

/// An action to be checked against role grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessQuery<'a> {
    /// Action to perform.
    pub verb: Verb,
    /// Kind of object that the action concerns.
    pub resource: Resource,
    /// Pools of the object.
    pub pool: Scope<'a>,
    /// Subjects of the object.
    pub subject: Scope<'a>,
}

/// Result of an access check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A rule allows the action.
    Allowed,
    /// A rule of this role denies the action.
    Denied(RoleName),
    /// No rule allows the action.
    NotGranted,
}

/// Decides a query by all grants of a caller, each with the spec of its role.
pub fn decide<'a>(
    grants: impl Iterator<Item = (&'a RoleGrant, &'a RoleSpec)>,
    ask: &AccessQuery<'_>,
) -> Decision {
    let mut verdict = Decision::NotGranted;
    for (grant, role) in grants {
        for rule in &role.rules {
            if !applies(rule, grant, ask) {
                continue;
            }
            match rule.effect {
                Effect::Deny => return Decision::Denied(grant.role.clone()),
                Effect::Allow => verdict = Decision::Allowed,
            }
        }
    }
    verdict
}

fn applies(rule: &AccessRule, grant: &RoleGrant, ask: &AccessQuery<'_>) -> bool {
    let there = |patterns: &[NamePattern], at: Scope<'_>| match rule.effect {
        Effect::Allow => allows(patterns, at, ask.verb),
        Effect::Deny => denies(patterns, at),
    };
    rule.verbs.iter().any(|verb| verb.matches(&ask.verb))
        && rule.resources.iter().any(|it| it.matches(&ask.resource))
        && there(&rule.pools, ask.pool)
        && there(&grant.pools, ask.pool)
        && there(&rule.subjects, ask.subject)
        && there(&grant.subjects, ask.subject)
}

fn is_any(patterns: &[NamePattern]) -> bool {
    patterns.is_empty() || patterns.iter().any(NamePattern::matches_all)
}

fn allows(patterns: &[NamePattern], at: Scope<'_>, verb: Verb) -> bool {
    let looks = matches!(verb, Verb::Get | Verb::List);
    match at {
        _ if is_any(patterns) => true,
        Scope::One(name) => patterns.iter().any(|pattern| pattern.matches(name)),
        Scope::Every => false,
        Scope::Any => true,
        Scope::Unscoped => looks,
    }
}

fn denies(patterns: &[NamePattern], at: Scope<'_>) -> bool {
    match at {
        _ if is_any(patterns) => true,
        Scope::One(name) => patterns.iter().any(|pattern| pattern.matches(name)),
        Scope::Every => true,
        Scope::Any | Scope::Unscoped => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BUILT_IN_ROLES, built_in_role};
    use super::*;
    use std::vec::Vec;

    fn grant(role: &str, pools: &[&str], subjects: &[&str]) -> RoleGrant {
        let read = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        RoleGrant {
            role: RoleName::new(role).unwrap(),
            pools: read(pools),
            subjects: read(subjects),
        }
    }

    fn may(
        grants: &[RoleGrant],
        verb: Verb,
        resource: Resource,
        pool: Scope,
        subject: Scope,
    ) -> bool {
        let roles: Vec<_> = grants
            .iter()
            .map(|grant| built_in_role(&grant.role, |pool| pool == "train").unwrap())
            .collect();
        let ask = AccessQuery {
            verb,
            resource,
            pool,
            subject,
        };
        decide(grants.iter().zip(&roles), &ask) == Decision::Allowed
    }

    #[test]
    fn a_submitter_acts_for_its_subjects_in_its_pools_alone() {
        let grants = [grant("submitter", &["train"], &["prod-*"])];
        let submits = |pool, subject| may(&grants, Verb::Create, Resource::Steps, pool, subject);
        assert!(submits(Scope::One("train"), Scope::One("prod-a")));
        assert!(!submits(Scope::One("other"), Scope::One("prod-a")));
        assert!(!submits(Scope::One("train"), Scope::One("dev")));
        assert!(!submits(Scope::Every, Scope::One("prod-a")));
        assert!(submits(Scope::Any, Scope::Any));
        let update = |pool| {
            may(
                &grants,
                Verb::Update,
                Resource::Pools,
                pool,
                Scope::Unscoped,
            )
        };
        assert!(!update(Scope::One("train")));
        let get = |pool| may(&grants, Verb::Get, Resource::Pools, pool, Scope::Unscoped);
        assert!(get(Scope::One("train")) && !get(Scope::One("other")));
    }

    #[test]
    fn a_role_that_is_narrowed_changes_nothing_beyond() {
        let grants = [grant("admin", &["train"], &["a"])];
        let update = |resource, pool, subject| may(&grants, Verb::Update, resource, pool, subject);
        assert!(update(
            Resource::Policies,
            Scope::One("train"),
            Scope::One("a")
        ));
        assert!(!update(
            Resource::Pools,
            Scope::One("train"),
            Scope::Unscoped
        ));
        assert!(!update(Resource::Cluster, Scope::Unscoped, Scope::Unscoped));
    }

    #[test]
    fn what_denies_wins_and_where_it_could_deny_it_does() {
        let text = r#"{"rules":[{"effect":"deny","verbs":["cancel"],"resources":["*"],"subjects":["prod"]}]}"#;
        let deny: RoleSpec = serde_json::from_str(text).unwrap();
        let admin = built_in_role(&RoleName::new("admin").unwrap(), |_| false).unwrap();
        let grants = [grant("admin", &[], &[]), grant("careful", &[], &[])];
        let roles = [admin, deny];
        let judged = |subject| {
            let ask = AccessQuery {
                verb: Verb::Cancel,
                resource: Resource::Steps,
                pool: Scope::Every,
                subject,
            };
            decide(grants.iter().zip(&roles), &ask)
        };
        let denied = Decision::Denied(RoleName::new("careful").unwrap());
        assert_eq!(judged(Scope::One("dev")), Decision::Allowed);
        assert_eq!(judged(Scope::One("prod")), denied);
        assert_eq!(judged(Scope::Every), denied);
        assert_eq!(judged(Scope::Any), Decision::Allowed);
    }

    #[test]
    fn only_an_admin_sees_environments_and_gives_rights() {
        for role in BUILT_IN_ROLES {
            let grants = [grant(role, &[], &[])];
            let env = may(
                &grants,
                Verb::Get,
                Resource::StepEnv,
                Scope::Every,
                Scope::Every,
            );
            let gives = may(
                &grants,
                Verb::Create,
                Resource::ApiTokens,
                Scope::Unscoped,
                Scope::Unscoped,
            );
            assert_eq!((env, gives), (role == "admin", role == "admin"), "{role}");
        }
    }

    #[test]
    fn the_roles_of_a_pool_reach_no_other() {
        for role in [
            "pool-train-admin",
            "pool-train-submitter",
            "pool-train-viewer",
        ] {
            let grants = [grant(role, &[], &[])];
            let list = |pool| may(&grants, Verb::List, Resource::Steps, pool, Scope::One("x"));
            assert!(
                list(Scope::One("train")) && !list(Scope::One("other")),
                "{role}"
            );
        }
        let gone = RoleName::new("pool-gone-admin").unwrap();
        assert!(built_in_role(&gone, |pool| pool == "train").is_none());
    }
}

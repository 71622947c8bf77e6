//! What rules mean: whether grants, with the roles that they name, let somebody do something. A rule that denies wins
//! over all that allow. Where it is not known in which pool or for which subject something will be, a right must hold
//! in all of them, and a rule that could deny does.

use super::{Effect, Grant, Pattern, Resource, RoleTerms, Rule, Verb};
use crate::id::RoleName;

/// Where something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At<'a> {
    /// There.
    This(&'a str),
    /// There is no telling: a right must hold everywhere.
    Everywhere,
    /// Somewhere: what is found is judged one by one later, and a right for any of it is enough.
    Somewhere,
    /// It is nowhere in particular: it has no subject, or no pool. Seeing it is no matter of where, changing it is.
    Nowhere,
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// What.
    pub verb: Verb,
    /// To what.
    pub resource: Resource,
    /// In which pool.
    pub pool: At<'a>,
    /// Of which subject.
    pub subject: At<'a>,
}

/// Whether it may be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allowed,
    /// A rule of this role takes the right away.
    Denied(RoleName),
    /// Nothing gives the right.
    Missing,
}

/// Judges by all grants that somebody has, each with what its role is.
pub fn judge<'a>(
    grants: impl Iterator<Item = (&'a Grant, &'a RoleTerms)>,
    ask: &Ask<'_>,
) -> Verdict {
    let mut verdict = Verdict::Missing;
    for (grant, role) in grants {
        for rule in &role.rules {
            if !applies(rule, grant, ask) {
                continue;
            }
            match rule.effect {
                Effect::Deny => return Verdict::Denied(grant.role.clone()),
                Effect::Allow => verdict = Verdict::Allowed,
            }
        }
    }
    verdict
}

fn applies(rule: &Rule, grant: &Grant, ask: &Ask<'_>) -> bool {
    let there = |patterns: &[Pattern], at: At<'_>| match rule.effect {
        Effect::Allow => allows(patterns, at, ask.verb),
        Effect::Deny => denies(patterns, at),
    };
    rule.verbs.iter().any(|verb| verb.takes(&ask.verb))
        && rule.resources.iter().any(|it| it.takes(&ask.resource))
        && there(&rule.pools, ask.pool)
        && there(&grant.pools, ask.pool)
        && there(&rule.subjects, ask.subject)
        && there(&grant.subjects, ask.subject)
}

fn is_any(patterns: &[Pattern]) -> bool {
    patterns.is_empty() || patterns.iter().any(Pattern::takes_all)
}

fn allows(patterns: &[Pattern], at: At<'_>, verb: Verb) -> bool {
    let looks = matches!(verb, Verb::Get | Verb::List);
    match at {
        _ if is_any(patterns) => true,
        At::This(name) => patterns.iter().any(|pattern| pattern.takes(name)),
        At::Everywhere => false,
        At::Somewhere => true,
        At::Nowhere => looks,
    }
}

fn denies(patterns: &[Pattern], at: At<'_>) -> bool {
    match at {
        _ if is_any(patterns) => true,
        At::This(name) => patterns.iter().any(|pattern| pattern.takes(name)),
        At::Everywhere => true,
        At::Somewhere | At::Nowhere => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BUILT_IN, built_in};
    use super::*;
    use std::vec::Vec;

    fn grant(role: &str, pools: &[&str], subjects: &[&str]) -> Grant {
        let read = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        Grant {
            role: RoleName::new(role).unwrap(),
            pools: read(pools),
            subjects: read(subjects),
        }
    }

    fn may(grants: &[Grant], verb: Verb, resource: Resource, pool: At, subject: At) -> bool {
        let roles: Vec<_> = grants
            .iter()
            .map(|grant| built_in(&grant.role, |pool| pool == "train").unwrap())
            .collect();
        let ask = Ask {
            verb,
            resource,
            pool,
            subject,
        };
        judge(grants.iter().zip(&roles), &ask) == Verdict::Allowed
    }

    #[test]
    fn a_submitter_acts_for_its_subjects_in_its_pools_alone() {
        let grants = [grant("submitter", &["train"], &["prod-*"])];
        let submits = |pool, subject| may(&grants, Verb::Create, Resource::Steps, pool, subject);
        assert!(submits(At::This("train"), At::This("prod-a")));
        assert!(!submits(At::This("other"), At::This("prod-a")));
        assert!(!submits(At::This("train"), At::This("dev")));
        assert!(!submits(At::Everywhere, At::This("prod-a")));
        assert!(submits(At::Somewhere, At::Somewhere));
        let update = |pool| may(&grants, Verb::Update, Resource::Pools, pool, At::Nowhere);
        assert!(!update(At::This("train")));
        let get = |pool| may(&grants, Verb::Get, Resource::Pools, pool, At::Nowhere);
        assert!(get(At::This("train")) && !get(At::This("other")));
    }

    #[test]
    fn a_role_that_is_narrowed_changes_nothing_beyond() {
        let grants = [grant("admin", &["train"], &["a"])];
        let update = |resource, pool, subject| may(&grants, Verb::Update, resource, pool, subject);
        assert!(update(Resource::Policies, At::This("train"), At::This("a")));
        assert!(!update(Resource::Pools, At::This("train"), At::Nowhere));
        assert!(!update(Resource::Cluster, At::Nowhere, At::Nowhere));
    }

    #[test]
    fn what_denies_wins_and_where_it_could_deny_it_does() {
        let text = r#"{"rules":[{"effect":"deny","verbs":["cancel"],"resources":["*"],"subjects":["prod"]}]}"#;
        let deny: RoleTerms = serde_json::from_str(text).unwrap();
        let admin = built_in(&RoleName::new("admin").unwrap(), |_| false).unwrap();
        let grants = [grant("admin", &[], &[]), grant("careful", &[], &[])];
        let roles = [admin, deny];
        let judged = |subject| {
            let ask = Ask {
                verb: Verb::Cancel,
                resource: Resource::Steps,
                pool: At::Everywhere,
                subject,
            };
            judge(grants.iter().zip(&roles), &ask)
        };
        let denied = Verdict::Denied(RoleName::new("careful").unwrap());
        assert_eq!(judged(At::This("dev")), Verdict::Allowed);
        assert_eq!(judged(At::This("prod")), denied);
        assert_eq!(judged(At::Everywhere), denied);
        assert_eq!(judged(At::Somewhere), Verdict::Allowed);
    }

    #[test]
    fn only_an_admin_sees_environments_and_gives_rights() {
        for role in BUILT_IN {
            let grants = [grant(role, &[], &[])];
            let env = may(
                &grants,
                Verb::Get,
                Resource::StepEnv,
                At::Everywhere,
                At::Everywhere,
            );
            let gives = may(
                &grants,
                Verb::Create,
                Resource::ApiTokens,
                At::Nowhere,
                At::Nowhere,
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
            let list = |pool| may(&grants, Verb::List, Resource::Steps, pool, At::This("x"));
            assert!(
                list(At::This("train")) && !list(At::This("other")),
                "{role}"
            );
        }
        let gone = RoleName::new("pool-gone-admin").unwrap();
        assert!(built_in(&gone, |pool| pool == "train").is_none());
    }
}

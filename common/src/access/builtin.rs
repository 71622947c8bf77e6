//! Built-in roles: four for the whole cluster, and three for each pool that exist as long as the pool.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::{AccessRule, Effect, NamePattern, OneOrAll, Resource, RoleSpec, Verb};
use crate::id::RoleName;

/// Names of the built-in cluster roles.
pub const BUILT_IN_ROLES: [&str; 4] = ["admin", "operator", "submitter", "viewer"];

/// Prefix of the names of pool roles.
const POOL_ROLE_PREFIX: &str = "pool-";
/// Suffixes of pool roles; each is the cluster role of that name limited to one pool.
const POOL_ROLES: [&str; 3] = ["admin", "submitter", "viewer"];

/// Resources that the viewer role does not include.
const PRIVATE: [Resource; 4] = [
    Resource::StepEnv,
    Resource::ApiTokens,
    Resource::JoinTokens,
    Resource::Audit,
];

/// Names of the roles of a pool.
pub fn pool_roles(pool: &str) -> impl Iterator<Item = String> {
    POOL_ROLES
        .iter()
        .map(move |role| format!("{POOL_ROLE_PREFIX}{pool}-{role}"))
}

/// Whether the name is reserved for built-in roles.
pub fn is_reserved(role: &RoleName) -> bool {
    let name = role.as_str();
    BUILT_IN_ROLES.contains(&name) || name.starts_with(POOL_ROLE_PREFIX)
}

/// The spec of a built-in role; `there` tells whether a pool exists.
pub fn built_in_role(role: &RoleName, there: impl FnOnce(&str) -> bool) -> Option<RoleSpec> {
    if let Some((description, rules)) = of_cluster(role.as_str()) {
        let description = description.to_owned();
        return Some(RoleSpec { description, rules });
    }
    let (pool, role) = role
        .as_str()
        .strip_prefix(POOL_ROLE_PREFIX)?
        .rsplit_once('-')?;
    let role = POOL_ROLES.into_iter().find(|known| *known == role)?;
    if !there(pool) {
        return None;
    }
    let (_, mut rules) = of_cluster(role)?;
    let pattern: NamePattern = pool.parse().ok()?;
    for rule in &mut rules {
        rule.pools = vec![pattern.clone()];
    }
    let description = format!("`{role}` in pool `{pool}` alone");
    Some(RoleSpec { description, rules })
}

fn of_cluster(role: &str) -> Option<(&'static str, Vec<AccessRule>)> {
    Some(match role {
        "admin" => ("everything", vec![allow(&[], &[])]),
        "operator" => (
            "looks after hosts: sees everything but output and secrets, and closes, empties, labels, moves and deletes nodes, lets hosts join and ends their access",
            operator(),
        ),
        "submitter" => (
            "submits steps, sees them and what they write, and steers them",
            submitter(),
        ),
        "viewer" => ("sees everything but secrets", vec![viewer()]),
        _ => return None,
    })
}

const READ: [Verb; 2] = [Verb::Get, Verb::List];

fn operator() -> Vec<AccessRule> {
    let mut looks = viewer();
    let output = OneOrAll::One(Resource::StepLogs);
    looks.resources.retain(|resource| *resource != output);
    vec![
        looks,
        allow(&[], &[Resource::Nodes, Resource::JoinTokens]),
        allow(&READ, &[Resource::Audit]),
    ]
}

fn submitter() -> Vec<AccessRule> {
    let own = [
        Verb::Create,
        Verb::Cancel,
        Verb::Suspend,
        Verb::Resume,
        Verb::Requeue,
        Verb::Move,
        Verb::Delete,
        Verb::Get,
        Verb::List,
    ];
    let around = [
        Resource::StepLogs,
        Resource::Pools,
        Resource::Policies,
        Resource::Platforms,
        Resource::Templates,
        Resource::Validations,
        Resource::Events,
    ];
    vec![
        allow(&own, &[Resource::Steps]),
        allow(&READ, &around),
        allow(&[Verb::Create], &[Resource::StepExec]),
    ]
}

fn viewer() -> AccessRule {
    let open = Resource::ALL.iter().copied();
    let open: Vec<Resource> = open
        .filter(|resource| !PRIVATE.contains(resource) && *resource != Resource::StepExec)
        .collect();
    allow(&READ, &open)
}

/// A rule that allows `verbs` on `resources`; an empty list means all.
fn allow(verbs: &[Verb], resources: &[Resource]) -> AccessRule {
    AccessRule {
        effect: Effect::Allow,
        verbs: or_all(verbs),
        resources: or_all(resources),
        pools: Vec::new(),
        subjects: Vec::new(),
    }
}

fn or_all<T: Copy>(words: &[T]) -> Vec<OneOrAll<T>> {
    match words {
        [] => vec![OneOrAll::All],
        words => words.iter().map(|word| OneOrAll::One(*word)).collect(),
    }
}

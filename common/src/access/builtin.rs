//! The roles that are always there: four for the whole cluster, and three for each pool, which come and go with it.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::{Effect, OrAll, Pattern, Resource, RoleTerms, Rule, Verb};
use crate::id::RoleName;

/// Those for the whole cluster, by name.
pub const BUILT_IN: [&str; 4] = ["admin", "operator", "submitter", "viewer"];

/// What the name of a role of a pool begins with.
const OF_POOL: &str = "pool-";
/// What it ends in, with the role of the whole cluster that it is for one pool alone.
const IN_POOL: [&str; 3] = ["admin", "submitter", "viewer"];

/// What nobody sees but who has a right of its own to it.
const PRIVATE: [Resource; 4] = [
    Resource::StepEnv,
    Resource::ApiTokens,
    Resource::JoinTokens,
    Resource::Audit,
];

/// The names of the roles of a pool.
pub fn per_pool(pool: &str) -> impl Iterator<Item = String> {
    IN_POOL
        .iter()
        .map(move |role| format!("{OF_POOL}{pool}-{role}"))
}

/// Whether only Sluice itself may have a role of this name.
pub fn is_reserved(role: &RoleName) -> bool {
    let name = role.as_str();
    BUILT_IN.contains(&name) || name.starts_with(OF_POOL)
}

/// What a built-in role is; `there` says which pools there are.
pub fn built_in(role: &RoleName, there: impl FnOnce(&str) -> bool) -> Option<RoleTerms> {
    if let Some((description, rules)) = of_cluster(role.as_str()) {
        let description = description.to_owned();
        return Some(RoleTerms { description, rules });
    }
    let (pool, role) = role.as_str().strip_prefix(OF_POOL)?.rsplit_once('-')?;
    let role = IN_POOL.into_iter().find(|known| *known == role)?;
    if !there(pool) {
        return None;
    }
    let (_, mut rules) = of_cluster(role)?;
    let pattern: Pattern = pool.parse().ok()?;
    for rule in &mut rules {
        rule.pools = vec![pattern.clone()];
    }
    let description = format!("`{role}` in pool `{pool}` alone");
    Some(RoleTerms { description, rules })
}

fn of_cluster(role: &str) -> Option<(&'static str, Vec<Rule>)> {
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

const LOOK: [Verb; 2] = [Verb::Get, Verb::List];

fn operator() -> Vec<Rule> {
    let mut looks = viewer();
    let output = OrAll::This(Resource::StepLogs);
    looks.resources.retain(|resource| *resource != output);
    vec![
        looks,
        allow(&[], &[Resource::Nodes, Resource::JoinTokens]),
        allow(&LOOK, &[Resource::Audit]),
    ]
}

fn submitter() -> Vec<Rule> {
    let own = [
        Verb::Create,
        Verb::Cancel,
        Verb::Suspend,
        Verb::Resume,
        Verb::Requeue,
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
        allow(&LOOK, &around),
        allow(&[Verb::Create], &[Resource::StepExec]),
    ]
}

fn viewer() -> Rule {
    let open = Resource::ALL.iter().copied();
    let open: Vec<Resource> = open
        .filter(|resource| !PRIVATE.contains(resource) && *resource != Resource::StepExec)
        .collect();
    allow(&LOOK, &open)
}

/// Where no verb or no resource is named, all.
fn allow(verbs: &[Verb], resources: &[Resource]) -> Rule {
    Rule {
        effect: Effect::Allow,
        verbs: or_all(verbs),
        resources: or_all(resources),
        pools: Vec::new(),
        subjects: Vec::new(),
    }
}

fn or_all<T: Copy>(words: &[T]) -> Vec<OrAll<T>> {
    match words {
        [] => vec![OrAll::All],
        words => words.iter().map(|word| OrAll::This(*word)).collect(),
    }
}

//! The right that each call of the API needs, one line per call. A test compares the table with the described calls,
//! and so with the router; a call without a line is always refused.

use sluice_common::access::{Resource, Verb};

/// Scope in which the right is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum ScopeKind {
    /// The step that the path names.
    Step,
    /// The subject and the pool of the service that the path names.
    Service,
    /// The pool of the node that the path names.
    Node,
    /// The pool of the join token that the path names.
    JoinToken,
    /// The pool that the path names.
    Pool,
    /// The pool that the path names; its handler checks each thing there.
    EachInPool,
    /// The pool and the subject that the path names.
    Policy,
    /// The whole cluster.
    Cluster,
    /// Each thing that the handler finds.
    Each,
    /// The contents of the body, checked and recorded by the handler.
    Body,
    /// No scope: every authenticated caller may call.
    Known,
}

/// The right that a call needs.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct CallRule {
    pub(in super::super) method: &'static str,
    pub(in super::super) path: &'static str,
    pub(in super::super) verb: Verb,
    pub(in super::super) resource: Resource,
    pub(in super::super) scope: ScopeKind,
}

const fn row(
    method: &'static str,
    path: &'static str,
    verb: Verb,
    resource: Resource,
    scope: ScopeKind,
) -> CallRule {
    CallRule {
        method,
        path,
        verb,
        resource,
        scope,
    }
}

use Resource as R;
use ScopeKind as P;
use Verb as V;

/// All calls; those of one path in the order in which `Allow` names them.
#[rustfmt::skip]
pub(in super::super) const CALLS: &[CallRule] = &[
    row("GET",    "/v1/steps",                             V::List,     R::Steps,     P::Each),
    row("POST",   "/v1/steps",                             V::Create,   R::Steps,     P::Body),
    row("POST",   "/v1/steps:batch",                       V::Create,   R::Steps,     P::Body),
    row("POST",   "/v1/steps:cancel",                      V::Cancel,   R::Steps,     P::Body),
    row("POST",   "/v1/steps:suspend",                     V::Suspend,  R::Steps,     P::Body),
    row("POST",   "/v1/steps:resume",                      V::Resume,   R::Steps,     P::Body),
    row("POST",   "/v1/steps:requeue",                     V::Requeue,  R::Steps,     P::Body),
    row("POST",   "/v1/steps:delete",                      V::Delete,   R::Steps,     P::Body),
    row("GET",    "/v1/steps/{step}",                      V::Get,      R::Steps,     P::Step),
    row("DELETE", "/v1/steps/{step}",                      V::Delete,   R::Steps,     P::Step),
    row("GET",    "/v1/steps/{step}:wait",                 V::Get,      R::Steps,     P::Step),
    row("POST",   "/v1/steps/{step}:cancel",               V::Cancel,   R::Steps,     P::Step),
    row("POST",   "/v1/steps/{step}:suspend",              V::Suspend,  R::Steps,     P::Step),
    row("POST",   "/v1/steps/{step}:resume",               V::Resume,   R::Steps,     P::Step),
    row("POST",   "/v1/steps/{step}:requeue",              V::Requeue,  R::Steps,     P::Step),
    row("POST",   "/v1/steps/{step}:move",                 V::Move,     R::Steps,     P::Step),
    row("GET",    "/v1/allocations",                       V::List,     R::Steps,     P::Each),
    row("POST",   "/v1/allocations",                       V::Create,   R::Steps,     P::Body),
    row("GET",    "/v1/allocations/{step}",                V::Get,      R::Steps,     P::Step),
    row("POST",   "/v1/allocations/{step}:renew",          V::Create,   R::Steps,     P::Step),
    row("POST",   "/v1/allocations/{step}:release",        V::Cancel,   R::Steps,     P::Step),
    row("GET",    "/v1/services",                          V::List,     R::Steps,     P::Each),
    row("GET",    "/v1/services/{service}",                V::Get,      R::Steps,     P::Service),
    row("PUT",    "/v1/services/{service}",                V::Create,   R::Steps,     P::Body),
    row("DELETE", "/v1/services/{service}",                V::Cancel,   R::Steps,     P::Service),
    row("POST",   "/v1/services/{service}:report",         V::Create,   R::Steps,     P::Service),
    row("POST",   "/v1/services/{service}:scale",          V::Create,   R::Steps,     P::Service),
    row("POST",   "/v1/services/{service}:undo",           V::Create,   R::Steps,     P::Service),
    row("GET",    "/v1/endpoints",                         V::List,     R::Steps,     P::Each),
    row("GET",    "/v1/steps/{step}/explain",              V::Get,      R::Steps,     P::Step),
    row("GET",    "/v1/steps/{step}/logs",                 V::Get,      R::StepLogs,  P::Step),
    row("GET",    "/v1/steps/{step}/exec",                 V::Create,   R::StepExec,  P::Step),
    row("GET",    "/v1/steps/{step}/input",                V::Create,   R::StepExec,  P::Step),
    row("GET",    "/v1/steps/{step}/ports/{port}",         V::Create,   R::StepExec,  P::Step),
    row("GET",    "/v1/inputs/{sha256}",                   V::Create,   R::Steps,     P::Body),
    row("PUT",    "/v1/inputs/{sha256}",                   V::Create,   R::Steps,     P::Body),
    row("GET",    "/v1/nodes",                             V::List,     R::Nodes,     P::Each),
    row("GET",    "/v1/nodes/{node}",                      V::Get,      R::Nodes,     P::Node),
    row("DELETE", "/v1/nodes/{node}",                      V::Delete,   R::Nodes,     P::Node),
    row("POST",   "/v1/nodes/{node}:cordon",               V::Cordon,   R::Nodes,     P::Node),
    row("POST",   "/v1/nodes/{node}:uncordon",             V::Uncordon, R::Nodes,     P::Node),
    row("POST",   "/v1/nodes/{node}:drain",                V::Drain,    R::Nodes,     P::Node),
    row("POST",   "/v1/nodes/{node}:move",                 V::Move,     R::Nodes,     P::Node),
    row("POST",   "/v1/nodes/{node}:revoke",               V::Revoke,   R::Nodes,     P::Node),
    row("PATCH",  "/v1/nodes/{node}/labels",               V::Label,    R::Nodes,     P::Node),
    row("GET",    "/v1/pools",                             V::List,     R::Pools,     P::Each),
    row("GET",    "/v1/pools/{pool}",                      V::Get,      R::Pools,     P::Pool),
    row("PUT",    "/v1/pools/{pool}",                      V::Update,   R::Pools,     P::Pool),
    row("DELETE", "/v1/pools/{pool}",                      V::Delete,   R::Pools,     P::Pool),
    row("GET",    "/v1/pools/{pool}/queue",                V::List,     R::Steps,     P::EachInPool),
    row("GET",    "/v1/pools/{pool}/policies",             V::List,     R::Policies,  P::EachInPool),
    row("GET",    "/v1/pools/{pool}/policies/{subject}",   V::Get,      R::Policies,  P::Policy),
    row("PUT",    "/v1/pools/{pool}/policies/{subject}",   V::Update,   R::Policies,  P::Policy),
    row("DELETE", "/v1/pools/{pool}/policies/{subject}",   V::Delete,   R::Policies,  P::Policy),
    row("GET",    "/v1/pools/{pool}/platforms",            V::List,     R::Platforms, P::Pool),
    row("GET",    "/v1/pools/{pool}/platforms/{platform}", V::Get,      R::Platforms, P::Pool),
    row("PUT",    "/v1/pools/{pool}/platforms/{platform}", V::Update,   R::Platforms, P::Pool),
    row("DELETE", "/v1/pools/{pool}/platforms/{platform}", V::Delete,   R::Platforms, P::Pool),
    row("GET",    "/v1/cluster",                           V::Get,      R::Cluster,   P::Cluster),
    row("PUT",    "/v1/cluster",                           V::Update,   R::Cluster,   P::Cluster),
    row("GET",    "/v1/topology",                          V::Get,      R::Cluster,   P::Cluster),
    row("PUT",    "/v1/topology",                          V::Update,   R::Cluster,   P::Cluster),
    row("GET",    "/v1/validations",                       V::List,     R::Validations, P::Cluster),
    row("GET",    "/v1/validations/{validation}",          V::Get,      R::Validations, P::Cluster),
    row("PUT",    "/v1/validations/{validation}",          V::Update,   R::Validations, P::Cluster),
    row("DELETE", "/v1/validations/{validation}",          V::Delete,   R::Validations, P::Cluster),
    row("GET",    "/v1/templates",                         V::List,     R::Templates, P::Cluster),
    row("GET",    "/v1/templates/{template}",              V::Get,      R::Templates, P::Cluster),
    row("PUT",    "/v1/templates/{template}",              V::Update,   R::Templates, P::Cluster),
    row("DELETE", "/v1/templates/{template}",              V::Delete,   R::Templates, P::Cluster),
    row("POST",   "/v1/apply",                             V::Update,   R::Pools,     P::Body),
    row("GET",    "/v1/events",                            V::List,     R::Events,    P::Each),
    row("GET",    "/v1/roles",                             V::List,     R::Roles,     P::Cluster),
    row("GET",    "/v1/roles/{role}",                      V::Get,      R::Roles,     P::Cluster),
    row("GET",    "/v1/bindings",                          V::List,     R::Bindings,  P::Cluster),
    row("GET",    "/v1/bindings/{binding}",                V::Get,      R::Bindings,  P::Cluster),
    row("GET",    "/v1/api-tokens",                        V::List,     R::ApiTokens, P::Cluster),
    row("POST",   "/v1/api-tokens",                        V::Create,   R::ApiTokens, P::Cluster),
    row("GET",    "/v1/api-tokens/{api_token}",                V::Get,      R::ApiTokens, P::Cluster),
    row("DELETE", "/v1/api-tokens/{api_token}",                V::Delete,   R::ApiTokens, P::Cluster),
    row("GET",    "/v1/join-tokens",                       V::List,     R::JoinTokens, P::Each),
    row("POST",   "/v1/join-tokens",                       V::Create,   R::JoinTokens, P::Body),
    row("DELETE", "/v1/join-tokens/{id}",                  V::Delete,   R::JoinTokens, P::JoinToken),
    row("GET",    "/v1/recovery",                          V::Get,      R::Cluster,   P::Cluster),
    row("DELETE", "/v1/recovery",                          V::Update,   R::Cluster,   P::Cluster),
    row("GET",    "/v1/whoami",                            V::Get,      R::Roles,     P::Known),
    row("GET",    "/v1/can-i",                             V::Get,      R::Roles,     P::Known),
];

/// Finds the rule of a route and a method; `last` is the last path segment as the caller wrote it, decoded.
pub(in super::super) fn find(
    method: &str,
    path: &str,
    last: Option<&str>,
) -> Option<&'static CallRule> {
    let method = if method == "HEAD" { "GET" } else { method };
    let called = called(path, last);
    CALLS
        .iter()
        .find(|row| row.method == method && row.path == called)
}

/// Returns the methods of a path, for the `Allow` header.
pub(in super::super) fn allowed(path: &str, last: Option<&str>) -> Option<String> {
    let called = called(path, last);
    let taken = CALLS.iter().filter(|row| row.path == called);
    let methods: Vec<&str> = taken
        .map(|row| {
            if row.method == "GET" {
                "GET,HEAD"
            } else {
                row.method
            }
        })
        .collect();
    (!methods.is_empty()).then(|| methods.join(","))
}

/// Adds the verb after the colon, if the thing has verbs.
fn called(path: &str, last: Option<&str>) -> String {
    let verb = last.and_then(|last| last.rsplit_once(':'));
    let has_verbs = || {
        let its = format!("{path}:");
        path.ends_with('}') && CALLS.iter().any(|row| row.path.starts_with(&its))
    };
    match verb {
        Some((_, verb)) if has_verbs() => format!("{path}:{verb}"),
        _ => path.to_owned(),
    }
}

//! Codes and details of the core's refusals. The messages are the core's own.

use coordinator_core::{QueueFull, Refusal};
use sluice_common::api::timestamp;
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{PlatformName, PoolName, StepId, ValidationName};
use sluice_common::reason::Detail;
use sluice_reasons::Cause;

use super::detail::{number, text, with_nearest};

/// Most steps that a detail names.
const NAMED_STEPS: usize = 100;

/// Returns the code of a refusal.
pub(super) fn code_of(refusal: &Refusal) -> ErrorCode {
    use ErrorCode as C;
    match refusal {
        Refusal::UnknownStep { .. } => C::UnknownStep,
        Refusal::UnknownPool { .. } => C::UnknownPool,
        Refusal::UnknownService { .. } => C::UnknownService,
        Refusal::ServiceDeleting { .. } => C::ServiceDeleting,
        Refusal::ServiceSubject { .. } => C::Contradiction,
        Refusal::TooManyServices { .. } => C::TooManyServices,
        Refusal::ScaleOutOfRange { .. } => C::InvalidReplicas,
        Refusal::UnknownRevision { .. } => C::UnknownRevision,
        Refusal::UnknownPolicy { .. } => C::UnknownPolicy,
        Refusal::InvalidPolicy { .. } => C::InvalidPolicy,
        Refusal::IdInUse { .. } => C::IdInUse,
        Refusal::DeadlinePassed { .. } => C::DeadlinePassed,
        Refusal::UnknownDependency { .. } => C::UnknownDependency,
        Refusal::UnknownPart { .. } => C::UnknownStep,
        Refusal::NotAnArray { .. } | Refusal::UnpairedPart { .. } => C::UnpairedPart,
        Refusal::PartNotQueued { .. } => C::CannotSuspend,
        Refusal::CannotMovePart { .. } => C::CannotMove,
        Refusal::CannotDelete { .. } | Refusal::CannotDeletePart { .. } => C::CannotDelete,
        Refusal::DependencyCycle { .. } => C::DependencyCycle,
        Refusal::UnknownNode { .. } => C::UnknownNode,
        Refusal::UnknownGpu { .. } => C::UnknownGpu,
        Refusal::CannotLookAtGpu { .. } => C::NodeUnreachable,
        Refusal::NodeLinked { .. } => C::NodeLinked,
        Refusal::NodeHoldsSteps { .. } => C::NodeHoldsSteps,
        Refusal::TooManyLabels { .. } => C::TooManyLabels,
        Refusal::VersionConflict { .. } => C::VersionConflict,
        Refusal::Twice { .. } => C::NamedTwice,
        Refusal::InUse { .. } => C::InUse,
        Refusal::PoolHasNodes { .. } => C::PoolHasNodes,
        Refusal::PoolIsDefault { .. } => C::PoolIsDefault,
        Refusal::PoolWithoutHosts { .. }
        | Refusal::StepWithoutHost { .. }
        | Refusal::PoolHostsFixed { .. }
        | Refusal::PoolHoldsAllocations { .. } => C::PoolWithoutHosts,
        Refusal::IdDeleted { .. } => C::IdInUse,
        Refusal::StepOver { .. } => C::StepOver,
        Refusal::CannotSuspend { .. } => C::CannotSuspend,
        Refusal::NotAnAllocation { .. } => C::NotAnAllocation,
        Refusal::IsAllocation { .. } => C::IsAllocation,
        Refusal::OthersAllocation { .. }
        | Refusal::NotDividable { .. }
        | Refusal::IsInside { .. } => C::InvalidInside,
        Refusal::CannotMove { .. } | Refusal::CannotMoveYet { .. } => C::CannotMove,
        Refusal::MoveRejected { .. } => C::MoveRejected,
        Refusal::PoolInMaintenance { .. } => C::PoolInMaintenance,
        Refusal::ClusterNamesPool { .. } => C::ClusterNamesPool,
        Refusal::UnknownPlatform { named: true, .. } => C::DefaultPlatformMissing,
        Refusal::UnknownPlatform { .. } => C::UnknownPlatform,
        Refusal::ReservedPlatform { .. } => C::InvalidPlatform,
        Refusal::TooManyPlatforms { .. } => C::TooManyPlatforms,
        Refusal::UnknownTemplate { .. } => C::UnknownTemplate,
        Refusal::PoolNamesTemplate { .. } => C::PoolNamesTemplate,
        Refusal::UnknownJoinToken { .. } => C::UnknownJoinToken,
        Refusal::TooManyJoinTokens { .. } => C::TooManyJoinTokens,
        Refusal::UnknownValidation { .. } => C::UnknownValidation,
        Refusal::PoolNamesValidation { .. } => C::PoolNamesValidation,
        Refusal::UnknownRole { .. } => C::UnknownRole,
        Refusal::ReservedRole { .. } => C::ReservedRole,
        Refusal::RoleInUse { .. } => C::RoleInUse,
        Refusal::UnknownBinding { .. } => C::UnknownBinding,
        Refusal::UnknownApiToken { .. } => C::UnknownApiToken,
        Refusal::ApiTokenExists { .. } => C::ApiTokenExists,
        Refusal::TooManyApiTokens { .. } => C::TooManyApiTokens,
        Refusal::QueueFull(_) => C::QueueFull,
        Refusal::NotRecovering => C::NotRecovering,
    }
}

fn of_step(step: &StepId) -> Vec<(&'static str, Detail)> {
    texts([("step", step.as_str())])
}

/// Returns the names and numbers in a refusal's message.
pub(super) fn detail_of(refusal: &Refusal) -> Vec<(&'static str, Detail)> {
    match refusal {
        Refusal::UnknownStep { step } | Refusal::IdDeleted { step } => of_step(step),
        Refusal::NotAnAllocation { step } | Refusal::IsAllocation { step } => of_step(step),
        Refusal::OthersAllocation { allocation, .. }
        | Refusal::NotDividable { allocation, .. }
        | Refusal::IsInside { allocation, .. } => texts([("allocation", allocation.as_str())]),
        Refusal::UnknownService { service }
        | Refusal::ServiceDeleting { service }
        | Refusal::ServiceSubject { service, .. }
        | Refusal::ScaleOutOfRange { service, .. }
        | Refusal::UnknownRevision { service, .. } => texts([("service", service.as_str())]),
        Refusal::TooManyServices { subject, .. } => texts([("subject", subject.as_str())]),
        Refusal::UnknownPool { pool }
        | Refusal::PoolInMaintenance { pool, .. }
        | Refusal::PoolIsDefault { pool }
        | Refusal::PoolWithoutHosts { pool }
        | Refusal::PoolHostsFixed { pool }
        | Refusal::StepWithoutHost { pool, .. }
        | Refusal::PoolHoldsAllocations { pool, .. }
        | Refusal::TooManyPlatforms { pool, .. } => texts([("pool", pool.as_str())]),
        Refusal::ClusterNamesPool { pool, field } => of_pool(pool, ("field", field)),
        Refusal::UnknownPlatform { pool, platform, .. } => {
            texts([("pool", pool.as_str()), ("platform", platform.as_str())])
        }
        Refusal::ReservedPlatform { platform } => texts([("platform", platform.as_str())]),
        Refusal::UnknownTemplate { template } => texts([("template", template.as_str())]),
        Refusal::PoolNamesTemplate { pool, template, .. } => {
            of_pool(pool, ("template", template.as_str()))
        }
        Refusal::UnknownValidation { validation } => texts([("validation", validation.as_str())]),
        Refusal::PoolNamesValidation {
            validation,
            pool,
            platform,
            nearest,
            ..
        } => of_named_validation(validation, pool, platform.as_ref(), nearest),
        Refusal::UnknownPolicy { pool, subject } | Refusal::InvalidPolicy { pool, subject, .. } => {
            texts([("pool", pool.as_str()), ("subject", subject.as_str())])
        }
        Refusal::IdInUse { step, differs } => {
            texts([("step", step.as_str()), ("differs", differs)])
        }
        Refusal::UnknownNode { node } | Refusal::NodeLinked { node } => {
            texts([("node", node.as_str())])
        }
        Refusal::UnknownGpu { node, gpu, .. } | Refusal::CannotLookAtGpu { node, gpu } => {
            texts([("node", node.as_str()), ("gpu", gpu)])
        }
        Refusal::DeadlinePassed { step, deadline } => {
            let deadline = timestamp(*deadline).to_string();
            texts([("step", step.as_str()), ("deadline", &deadline)])
        }
        Refusal::UnknownDependency { step, on }
        | Refusal::NotAnArray { step, on }
        | Refusal::UnpairedPart { step, on, .. } => {
            texts([("step", step.as_str()), ("after", on.as_str())])
        }
        Refusal::UnknownPart { array, index, .. } => {
            counted(("array", array.as_str()), ("index", *index as usize))
        }
        Refusal::PartNotQueued { step, array }
        | Refusal::CannotMovePart { step, array }
        | Refusal::CannotDeletePart { step, array } => {
            texts([("step", step.as_str()), ("array", array.as_str())])
        }
        Refusal::DependencyCycle { steps } => named(steps.iter()),
        Refusal::NodeHoldsSteps { node, steps } => {
            counted(("node", node.as_str()), ("steps", steps.len()))
        }
        Refusal::TooManyLabels { node, count, limit } => vec![
            ("node", text(node.as_str())),
            ("count", number(*count)),
            ("limit", number(*limit)),
        ],
        Refusal::VersionConflict {
            expected, version, ..
        } => of_versions(*expected, *version),
        Refusal::UnknownJoinToken { token } => texts([("token", token.as_str())]),
        Refusal::TooManyJoinTokens { .. } | Refusal::NotRecovering => Vec::new(),
        Refusal::Twice { first, .. } => vec![("first", number(*first))],
        Refusal::InUse { uses } => named(uses.iter().flat_map(|it| &it.steps)),
        Refusal::PoolHasNodes { pool, nodes } => {
            counted(("pool", pool.as_str()), ("nodes", nodes.len()))
        }
        Refusal::CannotMoveYet { step, node } => {
            texts([("step", step.as_str()), ("node", node.as_str())])
        }
        Refusal::StepOver { step, state, .. }
        | Refusal::CannotMove { step, state }
        | Refusal::CannotDelete { step, state } => {
            texts([("step", step.as_str()), ("state", state.as_str())])
        }
        Refusal::UnknownRole { role }
        | Refusal::ReservedRole { role }
        | Refusal::RoleInUse { role, .. } => texts([("role", role.as_str())]),
        Refusal::UnknownBinding { binding } => texts([("binding", binding.as_str())]),
        Refusal::UnknownApiToken { token } => texts([("token", token)]),
        Refusal::ApiTokenExists { token } => texts([("token", token.as_str())]),
        Refusal::TooManyApiTokens { limit } => vec![("limit", number(*limit))],
        Refusal::QueueFull(full) => of_queue(full),
        Refusal::MoveRejected { step, pool, reason } => of_move(step, pool, reason),
        Refusal::CannotSuspend { step, hosts } => {
            counted(("step", step.as_str()), ("hosts", *hosts as usize))
        }
    }
}

fn of_versions(expected: u64, version: u64) -> Vec<(&'static str, Detail)> {
    vec![
        ("expected", Detail::Number(expected)),
        ("version", Detail::Number(version)),
    ]
}

fn of_pool(pool: &PoolName, other: (&'static str, &str)) -> Vec<(&'static str, Detail)> {
    texts([("pool", pool.as_str()), other])
}

fn of_named_validation(
    validation: &ValidationName,
    pool: &PoolName,
    platform: Option<&PlatformName>,
    nearest: &Option<String>,
) -> Vec<(&'static str, Detail)> {
    let mut detail = with_nearest(("validation", text(validation.as_str())), nearest);
    detail.push(("pool", text(pool.as_str())));
    detail.extend(platform.map(|it| ("platform", text(it.as_str()))));
    detail
}

/// A name, and a number that belongs to it.
fn counted(
    (name, value): (&'static str, &str),
    (counts, count): (&'static str, usize),
) -> Vec<(&'static str, Detail)> {
    vec![(name, text(value)), (counts, number(count))]
}

fn texts<const N: usize>(all: [(&'static str, &str); N]) -> Vec<(&'static str, Detail)> {
    all.map(|(name, value)| (name, text(value))).into()
}

/// The first of some steps, separated by commas.
fn named<'a>(steps: impl Iterator<Item = &'a StepId>) -> Vec<(&'static str, Detail)> {
    let steps: Vec<&str> = steps.take(NAMED_STEPS).map(StepId::as_str).collect();
    texts([("steps", &steps.join(","))])
}

fn of_move(step: &StepId, pool: &PoolName, reason: &Cause) -> Vec<(&'static str, Detail)> {
    vec![
        ("step", text(step.as_str())),
        ("pool", text(pool.as_str())),
        ("reason", text(reason.code().as_str())),
    ]
}

fn of_queue(full: &QueueFull) -> Vec<(&'static str, Detail)> {
    vec![
        ("subject", text(full.subject.as_str())),
        ("bound", text(full.bound.key())),
        ("has", Detail::Number(full.has)),
        ("asked", Detail::Number(full.asked)),
        ("limit", Detail::Number(full.limit)),
    ]
}

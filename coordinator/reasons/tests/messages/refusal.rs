//! Why a call, a host or a join is refused.

use sluice_common::credential::Generation;
use sluice_common::inventory::Capability;
use sluice_common::state::StepState;
use sluice_common::time::{Span, Time};
use sluice_reasons::{
    Cause, HelloRefusal, InUse, JoinRefusal, QueueBound, QueueFull, Refusal, Rejection, Shrunk,
    Uncounted, Unenforced, Use,
};
use sluice_scheduler::PolicyError;

use crate::rejection::similar;
use crate::{Page, chain, name};

pub(crate) fn write(page: &mut Page) {
    page.heading("Why a call is refused (Refusal)");
    for refusal in chain(after) {
        page.line(&refusal.to_string());
    }
    page.heading("Why a host cannot join (JoinRefusal)");
    for refusal in chain(after_join) {
        page.line(&refusal.to_string());
    }
    page.heading("Why a linked host is refused (HelloRefusal)");
    for refusal in chain(after_hello) {
        page.line(&refusal.to_string());
    }
    page.heading("What hosts do not enforce (Unenforced)");
    for (hosts, key) in [(1, "memory_mb"), (3, "mcpu")] {
        let unenforced = Unenforced {
            capability: Capability::Memory,
            key,
            asked: 4000,
            hosts,
            lacking: 1,
            first: name("gpu-1"),
        };
        page.line(&unenforced.to_string());
    }
    page.heading("What is not counted (Uncounted)");
    for default_of in [None, Some(name("training"))] {
        let key = "memory_mb";
        page.line(&Uncounted { key, default_of }.to_string());
    }
}

fn policy(why: PolicyError) -> Refusal {
    Refusal::InvalidPolicy {
        pool: name("training"),
        subject: name("research"),
        why,
    }
}

fn after_policy_error(last: Option<&PolicyError>) -> Vec<PolicyError> {
    match last {
        None => ["gpus", "memory", "licences"]
            .map(|key| PolicyError::UnknownKey {
                key: crate::key(key),
            })
            .into(),
        Some(PolicyError::UnknownKey { .. }) => vec![PolicyError::ReservedAboveLimit {
            key: crate::key("gpu"),
            reserved: 8,
            limit: 4,
        }],
        Some(PolicyError::ReservedAboveLimit { .. }) => vec![PolicyError::Oversold {
            key: crate::key("gpu"),
            reserved: 8,
            others: 12,
            declared: 16,
        }],
        Some(PolicyError::Oversold { .. }) => Vec::new(),
    }
}

fn after_in_use(last: Option<&InUse>) -> Vec<InUse> {
    let pool = || name("training");
    match last {
        None => {
            let all = chain(after_shrunk).into_iter();
            let uses = all.map(|shrunk| InUse::Shrinks {
                pool: pool(),
                subject: (!matches!(shrunk, Shrunk::Capacity { .. })).then(|| name("research")),
                key: crate::key("gpu"),
                to: 4,
                shrunk,
            });
            uses.collect()
        }
        Some(InUse::Shrinks { .. }) => [None, Some(name("research"))]
            .map(|subject| InUse::Gone {
                pool: pool(),
                subject,
            })
            .into(),
        Some(InUse::Gone { .. }) => vec![InUse::Waiting],
        Some(InUse::Waiting) => vec![InUse::Template {
            template: name("base"),
            pool: pool(),
        }],
        Some(InUse::Template { .. }) => Vec::new(),
    }
}

fn after_shrunk(last: Option<&Shrunk>) -> Vec<Shrunk> {
    let next = match last {
        None => Shrunk::Capacity { used: 6 },
        Some(Shrunk::Capacity { .. }) => Shrunk::Limit { used: 6 },
        Some(Shrunk::Limit { .. }) => Shrunk::Reserved { used: 6 },
        Some(Shrunk::Reserved { .. }) => return Vec::new(),
    };
    vec![next]
}

fn queue_full(bound: QueueBound, scale: u64) -> Refusal {
    Refusal::QueueFull(QueueFull {
        subject: name("research"),
        bound,
        has: 190 * scale,
        asked: 20 * scale,
        limit: 200 * scale,
    })
}

fn after(last: Option<&Refusal>) -> Vec<Refusal> {
    let pool = || name("training");
    let node = || name("gpu-1");
    let step = || name("train-8");
    match last {
        None => vec![Refusal::UnknownStep { step: step() }],
        Some(Refusal::UnknownStep { .. }) => vec![Refusal::UnknownPool { pool: pool() }],
        Some(Refusal::UnknownPool { .. }) => vec![Refusal::UnknownService {
            service: name("web"),
        }],
        Some(Refusal::UnknownService { .. }) => vec![Refusal::ServiceDeleting {
            service: name("web"),
        }],
        Some(Refusal::ServiceDeleting { .. }) => vec![Refusal::ServiceSubject {
            service: name("web"),
            subject: name("research"),
        }],
        Some(Refusal::ServiceSubject { .. }) => vec![Refusal::TooManyServices {
            subject: name("research"),
            limit: 1000,
        }],
        Some(Refusal::TooManyServices { .. }) => vec![Refusal::ScaleOutOfRange {
            service: name("web"),
            count: 9,
            min: 1,
            max: 4,
        }],
        Some(Refusal::ScaleOutOfRange { .. }) => {
            let refusal = |revision| Refusal::UnknownRevision {
                service: name("web"),
                revision,
                known: vec![3, 4],
            };
            vec![refusal(Some(1)), refusal(None)]
        }
        Some(Refusal::UnknownRevision { .. }) => vec![Refusal::UnknownPolicy {
            pool: pool(),
            subject: name("research"),
        }],
        Some(Refusal::UnknownPolicy { .. }) => {
            let errors = chain(after_policy_error).into_iter();
            errors.map(policy).collect()
        }
        Some(Refusal::InvalidPolicy { .. }) => [(0, 3), (4, 3)]
            .map(|(expected, version)| Refusal::VersionConflict {
                what: "pool `training`".to_owned(),
                expected,
                version,
            })
            .into(),
        Some(Refusal::VersionConflict { .. }) => vec![Refusal::Twice {
            what: "pool `training`".to_owned(),
            first: 0,
        }],
        Some(Refusal::Twice { .. }) => {
            let uses = chain(after_in_use).into_iter();
            let refusals = uses.map(|what| {
                let steps = vec![step()];
                Refusal::InUse {
                    uses: vec![Use { what, steps }],
                }
            });
            refusals.collect()
        }
        Some(Refusal::InUse { .. }) => [0, 1, 8]
            .map(|count: usize| Refusal::UnknownGpu {
                node: node(),
                gpu: "GPU-9z".to_owned(),
                known: (0..count).map(|n| format!("GPU-{n}")).collect(),
            })
            .into(),
        Some(Refusal::UnknownGpu { .. }) => [vec![node()], vec![node(), name("gpu-2")]]
            .map(|nodes| Refusal::PoolHasNodes {
                pool: pool(),
                nodes,
            })
            .into(),
        Some(Refusal::PoolHasNodes { .. }) => vec![Refusal::PoolIsDefault {
            pool: name("default"),
        }],
        Some(Refusal::PoolIsDefault { .. }) => vec![Refusal::PoolWithoutHosts { pool: pool() }],
        Some(Refusal::PoolWithoutHosts { .. }) => vec![Refusal::StepWithoutHost {
            step: step(),
            pool: pool(),
        }],
        Some(Refusal::StepWithoutHost { .. }) => vec![Refusal::PoolHostsFixed { pool: pool() }],
        Some(Refusal::PoolHostsFixed { .. }) => [vec![step()], vec![step(), name("b")]]
            .map(|steps| Refusal::PoolHoldsAllocations {
                pool: pool(),
                steps,
            })
            .into(),
        Some(Refusal::PoolHoldsAllocations { .. }) => vec![Refusal::ClusterNamesPool {
            pool: pool(),
            field: "default_pool",
        }],
        Some(Refusal::ClusterNamesPool { .. }) => vec![Refusal::UnknownValidation {
            validation: name("images"),
        }],
        Some(Refusal::UnknownValidation { .. }) => {
            let refusal = |platform, is_deleted, nearest| Refusal::PoolNamesValidation {
                validation: name("images"),
                pool: pool(),
                platform,
                is_deleted,
                nearest,
            };
            vec![
                refusal(None, false, Some("image".to_owned())),
                refusal(Some(name("h100")), false, None),
                refusal(None, true, None),
            ]
        }
        Some(Refusal::PoolNamesValidation { .. }) => {
            let refusal = |named, known: &[&str]| Refusal::UnknownPlatform {
                pool: pool(),
                platform: name("h200"),
                known: known.iter().map(|it| name(it)).collect(),
                named,
            };
            vec![
                refusal(true, &[]),
                refusal(true, &["h100"]),
                refusal(false, &[]),
                refusal(false, &["h100"]),
            ]
        }
        Some(Refusal::UnknownPlatform { .. }) => vec![Refusal::ReservedPlatform {
            platform: name("any"),
        }],
        Some(Refusal::ReservedPlatform { .. }) => vec![Refusal::TooManyPlatforms {
            pool: pool(),
            count: 65,
        }],
        Some(Refusal::TooManyPlatforms { .. }) => vec![Refusal::UnknownTemplate {
            template: name("base"),
        }],
        Some(Refusal::UnknownTemplate { .. }) => vec![Refusal::PoolNamesTemplate {
            pool: pool(),
            template: name("bas"),
            hint: "did you mean `base`?".to_owned(),
        }],
        Some(Refusal::PoolNamesTemplate { .. }) => vec![Refusal::IdInUse {
            step: step(),
            differs: "command".to_owned(),
        }],
        Some(Refusal::IdInUse { .. }) => vec![Refusal::DeadlinePassed {
            step: step(),
            deadline: Time::from_unix_millis(1_700_000_000_000),
        }],
        Some(Refusal::DeadlinePassed { .. }) => vec![Refusal::UnknownDependency {
            step: step(),
            on: name("prep"),
        }],
        Some(Refusal::UnknownDependency { .. }) => [vec!["a"], vec!["a", "b"]]
            .map(|steps| Refusal::DependencyCycle {
                steps: steps.into_iter().map(name).collect(),
            })
            .into(),
        Some(Refusal::DependencyCycle { .. }) => ["0-999", "0-1,5,9,20,30,40-50"]
            .map(|indexes| Refusal::UnknownPart {
                array: step(),
                index: 1000,
                indexes: indexes.parse().expect("these are indexes"),
            })
            .into(),
        Some(Refusal::UnknownPart { .. }) => vec![Refusal::NotAnArray {
            step: step(),
            on: name("prep"),
        }],
        Some(Refusal::NotAnArray { .. }) => vec![Refusal::UnpairedPart {
            step: step(),
            on: name("prep"),
            index: 7,
        }],
        Some(Refusal::UnpairedPart { .. }) => vec![Refusal::PartNotQueued {
            step: name("sweep.7"),
            array: name("sweep"),
        }],
        Some(Refusal::PartNotQueued { .. }) => vec![Refusal::CannotMovePart {
            step: name("sweep.7"),
            array: name("sweep"),
        }],
        Some(Refusal::CannotMovePart { .. }) => [StepState::Running, StepState::Failed]
            .map(|state| Refusal::CannotDelete {
                step: step(),
                state,
            })
            .into(),
        Some(Refusal::CannotDelete { .. }) => vec![Refusal::CannotDeletePart {
            step: name("sweep.7"),
            array: name("sweep"),
        }],
        Some(Refusal::CannotDeletePart { .. }) => vec![Refusal::IdDeleted { step: step() }],
        Some(Refusal::IdDeleted { .. }) => [None, Some(Box::new(Cause::NotRenewed))]
            .map(|ended| Refusal::StepOver {
                step: step(),
                state: StepState::Cancelled,
                ended,
            })
            .into(),
        Some(Refusal::StepOver { .. }) => [false, true]
            .map(|named| Refusal::PoolInMaintenance {
                pool: pool(),
                message: "new switches, until 18:00".to_owned(),
                named,
            })
            .into(),
        Some(Refusal::PoolInMaintenance { .. }) => vec![Refusal::CannotSuspend {
            step: step(),
            hosts: 4,
        }],
        Some(Refusal::CannotSuspend { .. }) => vec![Refusal::NotAnAllocation { step: step() }],
        Some(Refusal::NotAnAllocation { .. }) => vec![Refusal::IsAllocation { step: step() }],
        Some(Refusal::IsAllocation { .. }) => vec![Refusal::OthersAllocation {
            allocation: name("held"),
            owner: name("research"),
            asked: name("guest"),
        }],
        Some(Refusal::OthersAllocation { .. }) => vec![Refusal::NotDividable {
            allocation: name("held"),
            what: "slices of GPUs",
        }],
        Some(Refusal::NotDividable { .. }) => vec![Refusal::IsInside {
            step: step(),
            allocation: name("held"),
        }],
        Some(Refusal::IsInside { .. }) => [StepState::Suspended, StepState::Stopping]
            .map(|state| Refusal::CannotMove {
                step: step(),
                state,
            })
            .into(),
        Some(Refusal::CannotMove { .. }) => vec![Refusal::CannotMoveYet {
            step: step(),
            node: name("gpu-1"),
        }],
        Some(Refusal::CannotMoveYet { .. }) => vec![Refusal::MoveRejected {
            step: step(),
            pool: pool(),
            reason: Box::new(Cause::rejected(Rejection::NoPolicy {
                subject: name("team"),
                pool: Some(pool()),
            })),
        }],
        Some(Refusal::MoveRejected { .. }) => vec![Refusal::UnknownNode { node: node() }],
        Some(Refusal::UnknownNode { .. }) => vec![Refusal::NodeLinked { node: node() }],
        Some(Refusal::NodeLinked { .. }) => vec![Refusal::NodeHoldsSteps {
            node: node(),
            steps: vec![step()],
        }],
        Some(Refusal::NodeHoldsSteps { .. }) => vec![Refusal::CannotLookAtGpu {
            node: node(),
            gpu: "GPU-1a2b".to_owned(),
        }],
        Some(Refusal::CannotLookAtGpu { .. }) => {
            vec![Refusal::UnknownJoinToken { token: name("t-1") }]
        }
        Some(Refusal::UnknownJoinToken { .. }) => {
            vec![Refusal::TooManyJoinTokens { limit: 1000 }]
        }
        Some(Refusal::TooManyJoinTokens { .. }) => vec![Refusal::TooManyLabels {
            node: node(),
            count: 65,
            limit: 64,
        }],
        Some(Refusal::TooManyLabels { .. }) => vec![Refusal::UnknownRole { role: name("ops") }],
        Some(Refusal::UnknownRole { .. }) => vec![Refusal::ReservedRole {
            role: name("admin"),
        }],
        Some(Refusal::ReservedRole { .. }) => vec![Refusal::RoleInUse {
            role: name("ops"),
            by: "binding `night-shift`".to_owned(),
        }],
        Some(Refusal::RoleInUse { .. }) => vec![Refusal::UnknownBinding {
            binding: name("night-shift"),
        }],
        Some(Refusal::UnknownBinding { .. }) => vec![Refusal::UnknownApiToken {
            token: "ci".to_owned(),
        }],
        Some(Refusal::UnknownApiToken { .. }) => {
            vec![Refusal::ApiTokenExists { token: name("ci") }]
        }
        Some(Refusal::ApiTokenExists { .. }) => vec![Refusal::TooManyApiTokens { limit: 1000 }],
        Some(Refusal::TooManyApiTokens { .. }) => vec![
            queue_full(QueueBound::Steps, 1000),
            queue_full(QueueBound::Bytes, 1 << 20),
        ],
        Some(Refusal::QueueFull(_)) => vec![Refusal::NotRecovering],
        Some(Refusal::NotRecovering) => Vec::new(),
    }
}

fn after_join(last: Option<&JoinRefusal>) -> Vec<JoinRefusal> {
    let token = || name("t-1");
    match last {
        None => vec![JoinRefusal::Unknown],
        Some(JoinRefusal::Unknown) => vec![JoinRefusal::Expired {
            token: token(),
            ago: Span::from_secs(7200),
        }],
        Some(JoinRefusal::Expired { .. }) => vec![JoinRefusal::UsedUp {
            token: token(),
            uses: 3,
        }],
        Some(JoinRefusal::UsedUp { .. }) => vec![JoinRefusal::Revoked { token: token() }],
        Some(JoinRefusal::Revoked { .. }) => vec![JoinRefusal::OtherNode {
            token: token(),
            only: name("gpu-1"),
            node: name("gpu-2"),
        }],
        Some(JoinRefusal::OtherNode { .. }) => vec![JoinRefusal::OtherPool {
            token: token(),
            only: name("training"),
            pool: name("batch"),
        }],
        Some(JoinRefusal::OtherPool { .. }) => vec![JoinRefusal::NodeTaken {
            node: name("gpu-1"),
        }],
        Some(JoinRefusal::NodeTaken { .. }) => vec![JoinRefusal::Ended {
            node: name("gpu-1"),
        }],
        Some(JoinRefusal::Ended { .. }) => vec![JoinRefusal::NoPool {
            token: token(),
            pool: name("training"),
        }],
        Some(JoinRefusal::NoPool { .. }) => vec![JoinRefusal::PoolWithoutHosts {
            pool: name("licences"),
        }],
        Some(JoinRefusal::PoolWithoutHosts { .. }) => vec![JoinRefusal::ReservedName {
            node: name("no-host.licences"),
        }],
        Some(JoinRefusal::ReservedName { .. }) => similar()
            .map(|near| JoinRefusal::NoSuchPool {
                token: token(),
                pool: name("trainig"),
                near,
            })
            .into(),
        Some(JoinRefusal::NoSuchPool { .. }) => Vec::new(),
    }
}

fn after_hello(last: Option<&HelloRefusal>) -> Vec<HelloRefusal> {
    let node = || name("gpu-1");
    match last {
        None => vec![HelloRefusal::AccessEnded {
            node: node(),
            wanted: Generation::new(2),
        }],
        Some(HelloRefusal::AccessEnded { .. }) => vec![HelloRefusal::OtherProtocol {
            protocol: 0,
            version: "0.1.0".to_owned(),
        }],
        Some(HelloRefusal::OtherProtocol { .. }) => {
            let [near, among] = similar();
            let refusal = |near, by_certificate| HelloRefusal::NoPool {
                pool: name("trainig"),
                near,
                by_certificate,
            };
            vec![refusal(near, false), refusal(among, true)]
        }
        Some(HelloRefusal::NoPool { .. }) => [false, true]
            .map(|by_certificate| HelloRefusal::PoolWithoutHosts {
                pool: name("licences"),
                by_certificate,
            })
            .into(),
        Some(HelloRefusal::PoolWithoutHosts { .. }) => vec![HelloRefusal::ReservedName {
            node: name("no-host.licences"),
        }],
        Some(HelloRefusal::ReservedName { .. }) => vec![HelloRefusal::OtherCluster {
            theirs: name("east"),
            ours: name("west"),
        }],
        Some(HelloRefusal::OtherCluster { .. }) => {
            vec![HelloRefusal::ImpossibleEpoch { claimed: u64::MAX }]
        }
        Some(HelloRefusal::ImpossibleEpoch { .. }) => vec![HelloRefusal::UnprovenEpoch {
            claimed: 9,
            ours: 4,
        }],
        Some(HelloRefusal::UnprovenEpoch { .. }) => vec![HelloRefusal::LinkedFromOtherBoot {
            node: node(),
            after: Span::from_secs(15),
        }],
        Some(HelloRefusal::LinkedFromOtherBoot { .. }) => {
            vec![HelloRefusal::LinkedFromOtherDirectory { node: node() }]
        }
        Some(HelloRefusal::LinkedFromOtherDirectory { .. }) => vec![HelloRefusal::OtherMachine {
            node: node(),
            lost_after: Span::from_secs(390),
        }],
        Some(HelloRefusal::OtherMachine { .. }) => Vec::new(),
    }
}

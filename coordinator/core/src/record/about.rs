//! Whom a record is about: the step, and the nodes that it names. Who reads the log asks it by these.

use sluice_common::id::{NodeName, StepId};

use super::Record;

impl Record {
    /// The step that it is about, if it is about one.
    pub fn step(&self) -> Option<&StepId> {
        match self {
            Record::StepQueued { step, .. }
            | Record::StepRejected { step, .. }
            | Record::Requeued { step, .. }
            | Record::StepEnded { step, .. }
            | Record::Nominated { step, .. }
            | Record::Withdrawn { step }
            | Record::Held { step }
            | Record::Unheld { step }
            | Record::StepForgotten { step } => Some(step),
            Record::Allocated { attempt, .. }
            | Record::Starting { attempt, .. }
            | Record::Started { attempt, .. }
            | Record::Stopping { attempt, .. }
            | Record::Checkpointed { attempt, .. }
            | Record::Ended { attempt, .. }
            | Record::Released { attempt, .. }
            | Record::Suspending { attempt, .. }
            | Record::Suspended { attempt, .. }
            | Record::Resuming { attempt, .. }
            | Record::Resumed { attempt, .. }
            | Record::NotSuspended { attempt, .. } => Some(&attempt.step),
            Record::CoordinatorStarted { .. }
            | Record::PoolPut { .. }
            | Record::ClusterPut { .. }
            | Record::TemplatePut { .. }
            | Record::TemplateDeleted { .. }
            | Record::AccessChanged { .. }
            | Record::Audited { .. }
            | Record::ValidationPut { .. }
            | Record::ValidationDeleted { .. }
            | Record::PolicyPut { .. }
            | Record::PolicyDeleted { .. }
            | Record::PlatformPut { .. }
            | Record::PlatformDeleted { .. }
            | Record::NodeReported { .. }
            | Record::NodeReady { .. }
            | Record::NodeReconciling { .. }
            | Record::NodeUnreachable { .. }
            | Record::NodeLost { .. }
            | Record::NodeCordoned { .. }
            | Record::NodeDraining { .. }
            | Record::NodeUncordoned { .. }
            | Record::NodeMoving { .. }
            | Record::NodeMoved { .. }
            | Record::NodeLabelled { .. }
            | Record::NodeLeaving { .. }
            | Record::NodeDeleted { .. }
            | Record::NodeDrained { .. }
            | Record::PoolDeleted { .. }
            | Record::GpusReported { .. }
            | Record::GpusCordoned { .. }
            | Record::GpusUncordoned { .. } => None,
        }
    }

    /// Whether it names a node: as the one that it is about, or on which units are granted, promised or returned.
    pub fn names(&self, wanted: &NodeName) -> bool {
        match self {
            Record::NodeReported { node, .. }
            | Record::NodeReady { node }
            | Record::NodeReconciling { node }
            | Record::NodeUnreachable { node }
            | Record::NodeLost { node }
            | Record::NodeCordoned { node, .. }
            | Record::NodeDraining { node, .. }
            | Record::NodeUncordoned { node }
            | Record::NodeMoving { node, .. }
            | Record::NodeMoved { node, .. }
            | Record::NodeLabelled { node, .. }
            | Record::NodeLeaving { node }
            | Record::NodeDeleted { node }
            | Record::NodeDrained { node }
            | Record::GpusReported { node, .. }
            | Record::GpusCordoned { node, .. }
            | Record::GpusUncordoned { node, .. }
            | Record::Starting { node, .. }
            | Record::Started { node, .. }
            | Record::Ended { node, .. }
            | Record::Released { node, .. }
            | Record::Suspended { node, .. }
            | Record::Resumed { node, .. }
            | Record::NotSuspended { node, .. } => node == wanted,
            Record::Allocated { placements, .. } => placements.iter().any(|p| p.node == *wanted),
            Record::Nominated { nomination, .. } => nomination.hosts.contains(wanted),
            Record::CoordinatorStarted { .. }
            | Record::ClusterPut { .. }
            | Record::TemplatePut { .. }
            | Record::TemplateDeleted { .. }
            | Record::AccessChanged { .. }
            | Record::Audited { .. }
            | Record::ValidationPut { .. }
            | Record::ValidationDeleted { .. }
            | Record::PoolPut { .. }
            | Record::PolicyPut { .. }
            | Record::PolicyDeleted { .. }
            | Record::PlatformPut { .. }
            | Record::PlatformDeleted { .. }
            | Record::PoolDeleted { .. }
            | Record::StepQueued { .. }
            | Record::StepRejected { .. }
            | Record::Withdrawn { .. }
            | Record::Stopping { .. }
            | Record::Checkpointed { .. }
            | Record::Requeued { .. }
            | Record::StepEnded { .. }
            | Record::StepForgotten { .. }
            | Record::Suspending { .. }
            | Record::Resuming { .. }
            | Record::Held { .. }
            | Record::Unheld { .. } => false,
        }
    }
}

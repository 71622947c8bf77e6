//! The core as its driver sees it: dispatches each input to its handler, collects outputs, and answers questions.

use alloc::vec::Vec;

use sluice_common::directory_refusal::DirectoryRefusal;
use sluice_common::id::{ClusterId, NodeName, PoolName, ServiceName, StepId};
use sluice_common::service::ServiceSpec;
use sluice_common::time::Time;
use sluice_reasons::StepReason;
use sluice_scheduler::Request;

use crate::arrays::advance::settle_steps;
use crate::arrays::unknown_step;
use crate::attempts::endpoint::is_ready;
use crate::attempts::hostless::follow_hostless;
use crate::attempts::launch::workdir_refused;
use crate::attempts::leases::on_lease_timer;
use crate::context::Context;
use crate::explain::holding::explain;
use crate::explain::{Explanation, reason};
use crate::handlers::access::{on_access, on_audit};
use crate::handlers::apply::on_apply;
use crate::handlers::cancel::on_cancel;
use crate::handlers::changes_due::on_changes_timer;
use crate::handlers::drain_deadline::on_drain_deadline;
use crate::handlers::heartbeat::on_heartbeat;
use crate::handlers::hello::on_node_hello;
use crate::handlers::join::{on_join, on_make_join_token, on_revoke_join_token};
use crate::handlers::message::on_from_node;
use crate::handlers::node_change::on_change_node;
use crate::handlers::preview::on_preview;
use crate::handlers::queue_timeout::on_queue_timer;
use crate::handlers::recovery_end::on_end_recovery;
use crate::handlers::renew::on_renew;
use crate::handlers::service::{foresee, on_change_service, on_report_load};
use crate::handlers::silence::on_silence;
use crate::handlers::start::on_start;
use crate::handlers::step_action::on_step_action;
use crate::handlers::step_move::on_move_step;
use crate::handlers::submit::on_submit;
use crate::handlers::suspension_timeout::on_suspension_timer;
use crate::handlers::warrant::on_warrant;
use crate::hosts::carving::{carve, nodes_to_carve};
use crate::hosts::link::on_node_gone;
use crate::input::{Input, NewStep, Settings, TimerKey};
use crate::inside::settle::settle_inside;
use crate::model::node::Node;
use crate::model::recovery::RecoveryCause;
use crate::model::step::{Attempt, Part, Step};
use crate::output::{Output, Refusal};
use crate::record::ClockJump;
use crate::record::Record;
use crate::recovery::end::check_recovery;
use crate::recovery::{recovery_lasts_until, unreported};
use crate::schedule::schedule;
use crate::services::load::LoadSummary;
use crate::services::settle_services;
use crate::state::State;
use crate::state::carving::CarveState;
use crate::submit::bounds::forget_old;
use crate::submit::effective_spec::{EffectiveStep, effective_step};
use crate::submit::route::route_of;

/// The scheduling core. See the head of this crate for how it is driven.
#[derive(Clone, Debug)]
pub struct Core {
    ctx: Context,
}

impl Core {
    /// Makes a core over the state that was restored from the log. [`Core::start`] comes next.
    pub fn recover(settings: Settings, state: State) -> Self {
        let ctx = Context::new(settings, state);
        Self { ctx }
    }

    /// Starts to speak for the cluster, under an epoch one higher than the last.
    ///
    /// No node is connected yet, so none takes work. Each has the full `lost_after`, counted from now, before it is
    /// lost.
    pub fn start(&mut self, now: Time, cluster: ClusterId) {
        self.begin(now, cluster, None);
    }

    /// Starts over a store that is older than the hosts: nothing new starts until they have reported what they run.
    pub fn start_recovering(&mut self, now: Time, cluster: ClusterId, why: RecoveryCause) {
        self.begin(now, cluster, Some(why));
    }

    fn begin(&mut self, now: Time, cluster: ClusterId, recovers: Option<RecoveryCause>) {
        self.ctx.begin(now);
        on_start(&mut self.ctx, cluster, recovers);
        self.settle();
    }

    /// Handles one input at the time `now`. An earlier time than that of the last input is replaced by the latter.
    ///
    /// # Panics
    /// [`Core::start`] was not called before.
    pub fn handle(&mut self, now: Time, input: Input) {
        self.ctx.advance(now);
        let ctx = &mut self.ctx;
        match input {
            Input::Submit { reply, steps } => on_submit(ctx, reply, steps),
            Input::Preview { reply, step } => on_preview(ctx, reply, *step),
            Input::Cancel { reply, step, grace } => on_cancel(ctx, reply, step, grace),
            Input::StepAction {
                reply,
                step,
                action,
            } => on_step_action(ctx, reply, step, action),
            Input::Renew {
                reply,
                step,
                lease,
                holder,
            } => on_renew(ctx, reply, step, lease, holder),
            Input::MoveStep {
                reply,
                step,
                target,
                dry_run,
            } => on_move_step(ctx, reply, &step, target, dry_run),
            Input::NodeHello {
                session,
                hello,
                claim,
                epoch_is_proven,
            } => on_node_hello(ctx, session, *hello, &claim, epoch_is_proven),
            Input::FromNode {
                session,
                node,
                message,
            } => on_from_node(ctx, session, &node, message),
            Input::Heartbeat {
                session,
                node,
                beat,
            } => on_heartbeat(ctx, session, &node, &beat),
            Input::NodeGone { session, node } => on_node_gone(ctx, session, &node),
            Input::ChangeService {
                reply,
                service,
                change,
                version,
            } => on_change_service(ctx, reply, &service, change, version),
            Input::ReportLoad { reply, report } => on_report_load(ctx, reply, report),
            Input::Apply {
                reply,
                changes,
                force,
                dry_run,
            } => on_apply(ctx, reply, &changes, force, dry_run),
            Input::Access { reply, change } => on_access(ctx, reply, change),
            Input::Audit { entry } => on_audit(ctx, entry),
            Input::MakeJoinToken { reply, token } => on_make_join_token(ctx, reply, token),
            Input::RevokeJoinToken { reply, token } => on_revoke_join_token(ctx, reply, token),
            Input::Join { reply, application } => on_join(ctx, reply, application),
            Input::Timer(key) => on_timer(ctx, key),
            Input::ChangeNode {
                reply,
                node,
                change,
            } => on_change_node(ctx, reply, &node, change),
            Input::Warrant {
                session,
                node,
                attempt,
                warrant,
            } => on_warrant(ctx, session, &node, &attempt, warrant),
            Input::EndRecovery { reply } => on_end_recovery(ctx, reply),
            Input::ClockJumped(by) => ctx.record(Record::ClockJumped(ClockJump { by })),
            // Excess steps are forgotten after every input.
            Input::Bounds(bounds) => ctx.set_bounds(bounds),
        }
        self.settle();
    }

    /// Starts steps that can start, and forgets old ones.
    fn settle(&mut self) {
        check_recovery(&mut self.ctx);
        settle_steps(&mut self.ctx);
        settle_services(&mut self.ctx);
        let nodes = nodes_to_carve(&self.ctx);
        // Before the scheduler, so that an idle GPU is not granted once more, and after it, because nominations end there.
        carve(&mut self.ctx, &nodes);
        schedule(&mut self.ctx);
        if carve(&mut self.ctx, &nodes) {
            schedule(&mut self.ctx);
        }
        // What was granted or rejected now may be replicas.
        if settle_services(&mut self.ctx) {
            schedule(&mut self.ctx);
        }
        // After the scheduler, which may have told an allocation to give way. Ends of steps inside may let others start.
        if settle_inside(&mut self.ctx) {
            settle_services(&mut self.ctx);
            schedule(&mut self.ctx);
        }
        forget_old(&mut self.ctx);
    }

    /// Takes the outputs since the last drain, in the order in which they must be carried out. The records of one
    /// drain must become durable together or not at all.
    pub fn outputs(&mut self) -> Vec<Output> {
        self.ctx.outputs()
    }

    /// The state with all records, also those that are not drained yet.
    pub fn state(&self) -> &State {
        self.ctx.state()
    }

    /// The settings of the driver, with the current bounds.
    pub fn settings(&self) -> &Settings {
        self.ctx.settings()
    }

    /// Time of the last message of a node in this run, if there was one.
    pub fn heard_at(&self, node: &NodeName) -> Option<Time> {
        self.ctx.contact(node)?.heard_at
    }

    /// The GPUs of a node that platforms want to be cut otherwise, and whether each can be cut now.
    pub fn carvings(&self, node: &Node) -> Vec<CarveState> {
        self.ctx.state().carvings(node, self.ctx.now())
    }

    /// Why a step is in its state now.
    pub fn reason(&self, step: &Step) -> StepReason {
        reason(&self.ctx, step)
    }

    /// Why a part that runs does not work in the directory that its step prefers, if so.
    pub fn workdir_refused(
        &self,
        step: &Step,
        attempt: &Attempt,
        part: &Part,
    ) -> Option<DirectoryRefusal> {
        workdir_refused(self.ctx.state(), (step, attempt, part))
    }

    /// Whether a part runs, is ready, and its host can be reached.
    pub fn is_ready(&self, step: &Step, attempt: &Attempt, part: &Part) -> bool {
        is_ready(self.ctx.state(), (step, attempt, part))
    }

    /// The load of a service, as it was reported in this run.
    pub fn service_load(&self, name: &ServiceName) -> Option<LoadSummary> {
        let service = self.ctx.state().services().get(name)?;
        let loads = self.ctx.service_loads(name)?;
        Some(loads.summary(service, self.ctx.now()))
    }

    /// Explains why a step is in its state; `None` if the step is not remembered. Reads the state as the last
    /// decision left it.
    pub fn explain(&self, id: &StepId) -> Option<Explanation<'_>> {
        explain(&self.ctx, id)
    }

    /// Foresees what applying a service would change: `None` if there is none of this name; else whether it would change, and
    /// whether its replicas would be replaced.
    ///
    /// # Errors
    /// The change would be refused.
    pub fn foresee_service(
        &self,
        name: &ServiceName,
        spec: &ServiceSpec,
    ) -> Result<Option<(bool, bool)>, Refusal> {
        foresee(&self.ctx, name, spec)
    }

    /// The refusal of a call about a step that is not there: of a part that its array does not have, it says which there
    /// are.
    pub fn unknown_step(&self, id: &StepId) -> Refusal {
        unknown_step(&self.ctx, id)
    }

    /// The effective spec of a step in the pool that granted it last, or else in `pool`.
    pub fn merged(&self, step: &Step, pool: Option<&PoolName>) -> EffectiveStep {
        effective_step(&self.ctx, step, pool)
    }

    /// The request that the scheduler would get for a step submitted now, after all others.
    pub fn request_of(&self, step: &NewStep) -> Request {
        let route = route_of(&self.ctx, &step.spec);
        route.send(Request::from_spec(step.id.clone(), u64::MAX, &step.spec))
    }

    /// Time at which every unreported attempt has stopped, because each lease of an earlier coordinator has expired.
    pub fn recovery_lasts_until(&self) -> Time {
        recovery_lasts_until(&self.ctx)
    }

    /// The remembered nodes that have not yet reported what they run and are not lost.
    pub fn unreported(&self) -> impl Iterator<Item = &NodeName> {
        unreported(&self.ctx)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.ctx
    }

    #[cfg(test)]
    pub(crate) fn context_mut(&mut self) -> &mut Context {
        &mut self.ctx
    }
}

/// Handles a timer, which may have fired late.
fn on_timer(ctx: &mut Context, key: TimerKey) {
    match key {
        TimerKey::NodeSilence(node) => on_silence(ctx, &node),
        TimerKey::DrainDeadline(node) => on_drain_deadline(ctx, &node),
        TimerKey::Suspension(id) => on_suspension_timer(ctx, &id),
        TimerKey::Changes(node) => on_changes_timer(ctx, &node),
        TimerKey::Queue(id) => on_queue_timer(ctx, &id),
        TimerKey::Lease(id) => on_lease_timer(ctx, &id),
        TimerKey::Hostless(id) => follow_hostless(ctx, &id),
        TimerKey::Service(service) => ctx.set_service_due(service),
        TimerKey::Pool(pool) | TimerKey::Carving(pool) => ctx.set_affected(pool),
        // The end of a recovery is checked after every input.
        TimerKey::Recovery => {}
    }
}

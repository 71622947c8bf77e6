//! Invariants after every event of a simulated cluster, and of its history as a whole.

use coordinator_core::record;
use std::collections::{BTreeMap, BTreeSet};

use coordinator_core::{LogEntry, Part, Record};
use sluice_common::id::{AttemptId, PoolName, StepId};
use sluice_common::reason::ReasonCode;
use sluice_common::state::{NodeState, StepState};
use sluice_common::supervision::Exit;

use super::super::freezer::CgroupState;
use super::{LICENCES, World};

/// Time that a step may be in a transitional state while each of its hosts is heard and has its supervisor, in
/// milliseconds: the longest grace and the longest move of memory here, and repeats of lost messages.
const LONGEST_WAY: u64 = 180_000;

impl World {
    pub(super) fn check(&mut self) {
        let (coordinator, hosts) = std::mem::take(&mut self.stirred);
        if let Some(core) = self.core.as_ref().filter(|_| coordinator) {
            coordinator_core::check(core)
                .unwrap_or_else(|broken| panic!("coordinator: {broken:?} ({self})"));
            self.no_step_stays_on_its_way();
        }
        for (host, _) in self.hosts.iter().zip(hosts).filter(|(_, stirred)| *stirred) {
            if let Some(core) = &host.core {
                agent_core::check(core)
                    .unwrap_or_else(|broken| panic!("{}: {broken:?} ({self})", host.name));
            }
        }
        self.gpus_have_one_user();
        self.what_is_called_frozen_stands_still();
        self.steps_run_once();
        self.images_run_where_a_runtime_is();
    }

    fn no_step_stays_on_its_way(&mut self) {
        let Some(core) = &self.core else {
            return;
        };
        let (state, now) = (core.state(), self.now);
        let can_act = |part: &Part| {
            let node = state.node(&part.node);
            let acts_alone = part.end.is_some() || part.node.is_of_pool();
            acts_alone || node.is_some_and(|node| node.state == NodeState::Ready)
        };
        let mut on_the_way = BTreeMap::new();
        for step in state
            .steps()
            .values()
            .filter(|step| is_on_its_way(step.state))
        {
            let live = step.live();
            if !live.is_some_and(|attempt| attempt.parts.iter().all(can_act)) {
                continue;
            }
            let since = match self.on_the_way.get(&step.id) {
                Some((before, since)) if *before == step.state => *since,
                Some(_) | None => now,
            };
            let (id, is) = (&step.id, step.state);
            // Inputs take minutes, and each agent that is started anew requests them again.
            let longest = match step.spec.inputs.is_empty() {
                true => LONGEST_WAY,
                false => 3 * LONGEST_WAY,
            };
            assert!(
                now - since <= longest,
                "{id} is {is} since {since} ({self})"
            );
            on_the_way.insert(id.clone(), (is, since));
        }
        self.on_the_way = on_the_way;
    }

    fn steps_run_once(&self) {
        let mut running: BTreeMap<&StepId, Vec<&AttemptId>> = BTreeMap::new();
        for host in &self.hosts {
            for (attempt, _) in host.procs.iter().filter(|(_, proc)| proc.runs()) {
                running.entry(&attempt.step).or_default().push(attempt);
            }
        }
        for (step, attempts) in running {
            let one = attempts.iter().all(|attempt| *attempt == attempts[0]);
            assert!(one, "{attempts:?} run at once ({self})");
            let known = self.core.as_ref().and_then(|core| core.state().step(step));
            let most = known.map_or(2, |step| step.spec.nodes as usize);
            assert!(
                attempts.len() <= most,
                "{attempts:?} on {most} hosts ({self})"
            );
        }
    }

    fn images_run_where_a_runtime_is(&self) {
        let core = self.core.as_ref();
        let steps = core.map(|core| core.state().steps());
        for host in self.hosts.iter().filter(|host| !host.runs_images) {
            for attempt in host.procs.keys() {
                let step = steps.and_then(|steps| steps.get(&attempt.step));
                let image = step.and_then(|step| step.spec.image.as_ref());
                let name = &host.name;
                assert_eq!(image, None, "{attempt} is on {name} ({self})");
            }
        }
    }

    /// An attempt that is frozen with its memory moved is no user; one that runs, or holds memory there, is.
    fn gpus_have_one_user(&self) {
        for host in &self.hosts {
            for gpu in &host.gpus {
                let users: Vec<_> = host.users(&gpu.uuid).collect();
                assert!(users.len() <= 1, "{users:?} all use {} ({self})", gpu.uuid);
            }
        }
    }

    /// A suspended step must not run before it was granted resources again, because its own are another's.
    fn what_is_called_frozen_stands_still(&self) {
        // In a recovery nothing is granted: the host has not reported yet.
        let core = self.core.as_ref();
        let Some(core) = core.filter(|core| core.state().recovery().is_none()) else {
            return;
        };
        for step in core.state().steps().values() {
            let live = step.live().filter(|attempt| attempt.is_frozen());
            let Some(live) = live.filter(|attempt| attempt.stopping.is_none()) else {
                continue;
            };
            let id = step.attempt_id(live.number);
            let procs = self.hosts.iter().filter_map(|host| host.procs.get(&id));
            for proc in procs.filter(|proc| proc.runs() && !proc.is_killed) {
                let stands_still = proc.freezer.group == CgroupState::Frozen;
                assert!(stands_still, "{id} is frozen, and runs ({self})");
            }
        }
    }

    /// A suspended step that did not come back was ended by an order, or with its host, and never with a normal exit. A
    /// restored coordinator may have lost that it came back.
    fn the_frozen_came_back_or_were_ended(&self) {
        let mut frozen: BTreeSet<AttemptId> = BTreeSet::new();
        let mut uncertain = BTreeSet::new();
        for line in &self.log {
            let stamped: LogEntry = serde_json::from_str(line).expect("a record is read back");
            match stamped.record {
                Record::Suspended(record::Suspended { attempt, .. }) => {
                    uncertain.remove(&attempt);
                    frozen.insert(attempt);
                }
                Record::RecoveryBegan { .. } => uncertain.extend(frozen.iter().cloned()),
                Record::Resuming { attempt, .. }
                | Record::Stopping(record::Stopping { attempt, .. }) => {
                    frozen.remove(&attempt);
                }
                Record::Ended(record::Ended { attempt, end, .. }) => {
                    let by_itself = matches!(end.exit, Exit::Code(_));
                    let was_frozen = frozen.remove(&attempt) && !uncertain.contains(&attempt);
                    assert!(!(was_frozen && by_itself), "{attempt}: {end:?} ({self})");
                }
                _ => {}
            }
        }
        assert!(frozen.is_empty(), "{frozen:?} are frozen for ever ({self})");
    }

    fn was_restored(&self) -> bool {
        let mut records = self.log.iter();
        records.any(|record| record.contains(r#""type":"recovery_began""#))
    }

    /// Checks the history as a whole.
    pub(crate) fn judge(&self) {
        let core = self.core.as_ref().expect("it is healed");
        let parts = core.state().steps().values();
        let parts = parts.filter(|step| step.part_of.is_some());
        for id in self.accepted.iter().chain(parts.map(|part| &part.id)) {
            let step = core.state().step(id);
            let state = step.map(|step| step.state);
            assert!(
                state.is_some_and(|state| state.is_terminal()),
                "{id} is {state:?} at the end ({self})"
            );
            let needle = format!("\"type\":\"step_ended\",\"step\":\"{id}\"");
            let ends = self
                .log
                .iter()
                .filter(|line| line.contains(&needle))
                .count();
            let wanted = usize::from(state != Some(StepState::Rejected));
            assert_eq!(ends, wanted, "ends of {id} ({self})");
            let step = step.expect("it has a state");
            // An array ends for the reasons of its parts.
            let is_array = step.spec.array.is_some();
            // An older store may have an allocation that its host has forgotten, and steps inside it that it has not.
            let is_forgotten = step.spec.lease.is_some() && self.was_restored();
            let is_unseen = step.reason.code() == ReasonCode::ExitUnknown;
            let unseen = !is_array && !is_forgotten && is_unseen;
            let orphaned = || {
                let latest = step.latest().map_or(0, |latest| latest.number);
                self.orphaned.contains(&step.attempt_id(latest))
            };
            assert!(
                !unseen || orphaned(),
                "somebody saw the end of {id} ({self})"
            );
        }
        for host in &self.hosts {
            let left: Vec<_> = host.procs.keys().collect();
            assert!(
                left.is_empty(),
                "{} still remembers {left:?} ({self})",
                host.name
            );
        }
        self.the_frozen_came_back_or_were_ended();
        let licences = core.state().used_of(&PoolName::new(LICENCES).unwrap());
        assert!(licences.is_empty(), "{licences:?} is held ({self})");
        for node in core.state().nodes().values() {
            let used = core.state().used_on(&node.name);
            let holds = used.iter().any(|(_, units)| units > 0);
            assert!(!holds, "{} holds {used:?} ({self})", node.name);
            assert!(
                node.gpus.faults.is_empty(),
                "{}: {:?} ({self})",
                node.name,
                node.gpus.faults
            );
        }
        let is_answered = |number| self.is_answered(number);
        assert!(
            (0..self.steps()).all(is_answered),
            "every submit was answered ({self})"
        );
    }
}

/// Whether a step in this state waits for an action, and its deadline.
fn is_on_its_way(state: StepState) -> bool {
    match state {
        StepState::Allocated
        | StepState::Starting
        | StepState::Stopping
        | StepState::Suspending
        | StepState::Resuming => true,
        StepState::Queued
        | StepState::Running
        | StepState::Suspended
        | StepState::Succeeded
        | StepState::Failed
        | StepState::Cancelled
        | StepState::Rejected
        | StepState::Preempted => false,
    }
}

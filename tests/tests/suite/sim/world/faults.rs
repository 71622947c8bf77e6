//! Faults of the simulated cluster, and the actions of its users and admins meanwhile.

use coordinator_core::{
    Input, LogEntry, MoveTarget, NodeChange, RecoveryCause, ReplyId, State, StepAction,
};
use sluice_common::array::part_id;
use sluice_common::id::{AttemptId, PoolName, StepId};
use sluice_common::time::Span;

use super::{Event, HOSTS, IDLE, Stream, World, is_array, step_id, uncordon};

impl World {
    pub(super) fn fault(&mut self) {
        if !self.faulty {
            return;
        }
        let next = 1000 + self.below(60_000);
        self.after(next, Event::Fault);
        let host = self.below(HOSTS as u64) as usize;
        match self.below(18) {
            0 => self.kill_coordinator(),
            1 => self.kill_agent(host),
            2 => {
                self.kill_agent(host);
                self.kill_coordinator();
            }
            3 => self.cut(host, 3000),
            4 => self.cut(host, 200_000),
            5 => {
                self.kill_agent(host);
                self.hosts[host].reboot(self.now);
            }
            6 => self.interfere(host),
            7 => self.after(0, uncordon(host)),
            8 => self.orphan(host),
            9 => self.upgrade(host),
            10 => self.trouble(host),
            11 | 12 => self.hold_streams(host),
            _ => self.use_it(),
        }
    }

    /// Loses the coordinator's disk, or replaces it by an older state. Users submit again what is no longer known.
    pub(super) fn put_back_an_older_store(&mut self) {
        let there = self.commits.len() as u64;
        let longest = if self.one_in(4) { there } else { 40 };
        let lost = self.below(longest.min(there));
        self.commits.truncate((there - lost) as usize);
        let kept = self.commits.last().expect("the first is of before all");
        self.log.truncate(*kept);
        self.restored = Some(match self.log.is_empty() {
            true => RecoveryCause::StoreLost,
            false => RecoveryCause::Restored,
        });
        self.durable = State::default();
        for line in &self.log {
            let record: LogEntry = serde_json::from_str(line).expect("a record is read back");
            self.durable.apply(&record).expect("a record fits");
        }
        for number in 0..self.steps() {
            let id = step_id(number);
            if self.durable.step(&id).is_none() && self.accepted.remove(&id) {
                self.after(0, Event::Submit(number));
            }
        }
    }

    /// Causes a fault of a GPU.
    fn trouble(&mut self, host: usize) {
        let gpus = self.hosts[host].gpus.len() as u64;
        let gpu = self.below(gpus) as usize;
        let uuid = self.hosts[host].gpus[gpu].uuid.clone();
        match self.below(4) {
            0 => self.hosts[host].gpus[gpu].lose_or_find(),
            1 => {
                let reason = None;
                let change = NodeChange::CordonGpu { gpu: uuid, reason };
                self.after(0, Event::Admin { host, change });
            }
            2 => {
                let change = NodeChange::UncordonGpu { gpu: uuid };
                self.after(0, Event::Admin { host, change });
            }
            _ => self.hosts[host].gpus[gpu].visit(9000),
        }
    }

    /// Callers act on their steps.
    fn use_it(&mut self) {
        let number = self.below(self.steps());
        let step = match is_array(number) && self.one_in(2) {
            true => part_id(&step_id(number), self.below(4) as u32),
            false => step_id(number),
        };
        if self.one_in(3) {
            let (pool, later) = ("default", self.below(200_000));
            let back = step.clone();
            self.after(later, Event::MoveStep { step: back, pool });
            let pool = "spare";
            return self.after(0, Event::MoveStep { step, pool });
        }
        let steer = match self.below(6) {
            0 => StepAction::Requeue,
            1 => StepAction::Resume,
            _ => StepAction::Suspend,
        };
        if steer == StepAction::Suspend && self.one_in(2) {
            let (step, steer, later) = (step.clone(), StepAction::Resume, self.below(300_000));
            self.after(later, Event::User { step, steer });
        }
        self.after(0, Event::User { step, steer });
    }

    /// A caller who asks until there is a coordinator.
    pub(super) fn steer(&mut self, step: StepId, steer: StepAction) {
        if self.core.is_none() {
            return self.after(1000, Event::User { step, steer });
        }
        let reply = ReplyId(3000);
        self.decide(Input::StepAction {
            reply,
            step,
            action: steer,
        });
    }

    /// A caller who moves a step to another pool, if it waits.
    pub(super) fn move_step(&mut self, step: StepId, pool: &'static str) {
        if self.core.is_none() {
            return self.after(1000, Event::MoveStep { step, pool });
        }
        let target = MoveTarget {
            pool: PoolName::new(pool).unwrap(),
            past_maintenance: false,
        };
        let dry_run = self.one_in(4);
        self.decide(Input::MoveStep {
            reply: ReplyId(5000),
            step,
            target,
            dry_run: dry_run && self.faulty,
        });
    }

    /// Repairs a host.
    pub(super) fn mend(&mut self, host: usize) {
        self.after(0, uncordon(host));
        // Again when no fault of before can close it any more, such as inputs that it could not store.
        self.after(300_000, uncordon(host));
        self.hosts[host].is_faulty = false;
        self.hosts[host].cut_until = 0;
        self.hosts[host].held.clear();
        for gpu in 0..self.hosts[host].gpus.len() {
            self.hosts[host].gpus[gpu].clear();
            let gpu = self.hosts[host].gpus[gpu].uuid.clone();
            let change = NodeChange::UncordonGpu { gpu };
            self.after(0, Event::Admin { host, change });
        }
    }

    /// An admin takes the host out of service, or deletes it.
    fn interfere(&mut self, host: usize) {
        let reason = None;
        let change = match self.below(4) {
            0 => NodeChange::Cordon { reason },
            1 => NodeChange::Drain {
                reason,
                deadline: None,
            },
            2 => NodeChange::Drain {
                reason,
                deadline: Some(Span::from_secs(self.below(60))),
            },
            _ => NodeChange::Delete { force: true },
        };
        self.after(0, Event::Admin { host, change });
    }

    /// An admin who asks until there is a coordinator; and for a repair until it is done, because a failed GPU cannot
    /// be uncordoned while nobody can look at it.
    pub(super) fn administer(&mut self, host: usize, change: NodeChange) {
        if self.core.is_some() {
            self.decide(Input::ChangeNode {
                reply: ReplyId(2000),
                node: self.hosts[host].name.clone(),
                change: change.clone(),
            });
        }
        if self.core.is_none() || (!self.faulty && self.is_still_closed(host, &change)) {
            self.after(1000, Event::Admin { host, change });
        }
    }

    fn is_still_closed(&self, host: usize, change: &NodeChange) -> bool {
        let NodeChange::UncordonGpu { gpu } = change else {
            return false;
        };
        let core = self.core.as_ref();
        let node = core.and_then(|core| core.state().node(&self.hosts[host].name));
        node.is_some_and(|node| !node.is_fit(gpu))
    }

    /// Kills and restarts the host's supervisor: exits of running attempts become unknown.
    fn orphan(&mut self, host: usize) {
        if !self.hosts[host].is_supervised {
            return;
        }
        let running = self.hosts[host]
            .procs
            .iter_mut()
            .filter(|(_, proc)| proc.runs());
        for (attempt, proc) in running {
            proc.orphaned = true;
            self.orphaned.insert(attempt.clone());
        }
        let wishes = self.hosts[host].take_up_moves(self.now, &mut self.random);
        self.grant_all(host, wishes);
        self.upgrade(host);
    }

    /// Replaces it by a newer one, which sees the exits of the meantime.
    fn upgrade(&mut self, host: usize) {
        if std::mem::replace(&mut self.hosts[host].is_supervised, false) {
            self.supervisor_is_away(host);
            let away = 50 + self.below(5000);
            self.after(away, Event::StartSupervisor { host });
        }
    }

    pub(super) fn start_supervisor(&mut self, host: usize) {
        // A boot has brought one already.
        if std::mem::replace(&mut self.hosts[host].is_supervised, true) {
            return;
        }
        self.supervisor_answers(host);
        let attempts: Vec<AttemptId> = self.hosts[host].procs.keys().cloned().collect();
        for attempt in attempts {
            self.lease(host, attempt);
        }
    }

    /// Short cuts only delay; long ones outlast the transport's timeout.
    fn cut(&mut self, host: usize, longest: u64) {
        let lasts = self.below(longest);
        self.hosts[host].cut_until = self.now + lasts;
        if let Some(link) = self.hosts[host].link.filter(|_| lasts > IDLE) {
            self.break_wire(link);
        }
    }

    /// Loses so many packets that some streams stall for minutes, and too few to break the link: messages arrive in the
    /// end, each stream at its own time.
    fn hold_streams(&mut self, host: usize) {
        let until = self.now + self.below(200_000);
        for stream in Stream::ALL {
            if !self.one_in(4) {
                let at = until + self.below(10_000);
                self.hosts[host].held.insert(stream, at);
            }
        }
    }
}

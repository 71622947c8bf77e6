//! Random lives of one host: a coordinator that may be stale, a supervisor that comes and goes, steps that
//! resist and an agent that dies. [`World`] checks the guarantees after every event, and at the end
//! everything must stop.

use std::collections::BTreeSet;

use agent_core::{Input, LinkId};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use sluice_common::amount::{Amounts, MCPU};
use sluice_common::id::AttemptId;
use sluice_common::processors::CpuMode;
use sluice_common::supervision::BootMillis;
use sluice_common::time::Span;
use sluice_common::wire::{AttemptPhase, StopReason, ToNode};

use crate::harness::{assignment, attempt, epoch, order_as, welcomed};
use crate::world::{ATTEMPTS, World};

/// One random event.
#[derive(Clone, Debug)]
enum Action {
    Dial,
    Welcome { raises: bool },
    OldWelcome,
    LoseLink,
    Acknowledge { sent_ago_millis: u64 },
    Assign(u32),
    Stop(u32, u64),
    Forget(u32),
    Suspend(u32),
    Resume(u32),
    OldOrder(u32, u64),
    Connect,
    Disconnect,
    LoseSupervisor,
    RestartAgent,
    Deliver,
    Exit(u32),
    Empty(u32),
    Pass(u64),
    GpuScan,
    FreeGpus,
    Driver { answers: bool },
}

fn act() -> impl Strategy<Value = Action> {
    let which = 1..=ATTEMPTS;
    prop_oneof![
        3 => Just(Action::Dial),
        4 => any::<bool>().prop_map(|raises| Action::Welcome { raises }),
        1 => Just(Action::OldWelcome),
        1 => Just(Action::LoseLink),
        3 => (0..20_000u64).prop_map(|sent_ago_millis| Action::Acknowledge { sent_ago_millis }),
        10 => which.clone().prop_map(Action::Assign),
        6 => (which.clone(), 0..15u64).prop_map(|(number, secs)| Action::Stop(number, secs)),
        6 => which.clone().prop_map(Action::Forget),
        4 => which.clone().prop_map(Action::Suspend),
        4 => which.clone().prop_map(Action::Resume),
        1 => (which.clone(), 0..3u64).prop_map(|(number, kind)| Action::OldOrder(number, kind)),
        4 => Just(Action::Connect),
        2 => Just(Action::Disconnect),
        1 => Just(Action::LoseSupervisor),
        1 => Just(Action::RestartAgent),
        12 => Just(Action::Deliver),
        3 => which.clone().prop_map(Action::Exit),
        3 => which.prop_map(Action::Empty),
        8 => (0..9000u64).prop_map(Action::Pass),
        3 => Just(Action::GpuScan),
        1 => Just(Action::FreeGpus),
        2 => any::<bool>().prop_map(|answers| Action::Driver { answers }),
        1 => (60_000..400_000u64).prop_map(Action::Pass),
    ]
}

/// The coordinator's side, and the world.
struct Simulation {
    world: World,
    links: u64,
    epoch: u64,
    greeted_at: u64,
    is_welcomed: bool,
    forgotten: BTreeSet<AttemptId>,
}

/// Every attempt is of a step of its own, so that a leftover id is found.
fn id(number: u32) -> AttemptId {
    attempt(&format!("step{number}.{number}"))
}

impl Simulation {
    /// Starts with supervisor and coordinator connected, so that more happens.
    fn new() -> Self {
        let mut play = Self {
            world: World::new(),
            links: 0,
            epoch: 5,
            greeted_at: 0,
            is_welcomed: false,
            forgotten: BTreeSet::new(),
        };
        play.act(&Action::Connect);
        play.act(&Action::Dial);
        play.act(&Action::Welcome { raises: false });
        play
    }

    fn act(&mut self, act: &Action) {
        match *act {
            Action::Dial => self.dial(),
            Action::Welcome { raises } => self.welcome(raises),
            Action::OldWelcome => self.old_welcome(),
            Action::LoseLink => self.lose_link(),
            Action::Acknowledge { sent_ago_millis } => self.acknowledge(sent_ago_millis),
            Action::Assign(number) => self.assign(number),
            Action::Stop(number, secs) => self.stop(number, secs),
            Action::Forget(number) => self.forget(number),
            Action::Suspend(number) => self.order(ToNode::Suspend {
                attempt: id(number),
                room_mb: 0,
            }),
            Action::Resume(number) => self.order(ToNode::Resume {
                attempt: id(number),
            }),
            Action::OldOrder(number, kind) => self.old_order(number, kind),
            Action::Connect => self.connect(),
            Action::Disconnect => self.world.disconnect(),
            Action::LoseSupervisor => self.world.lose_supervisor(),
            Action::RestartAgent => self.restart_agent(),
            Action::Deliver => _ = self.world.deliver(),
            Action::Exit(number) => self.world.exit(&id(number)),
            Action::Empty(number) => self.world.empty(&id(number)),
            Action::Pass(millis) => self.world.pass(millis),
            Action::GpuScan => self.world.look(),
            Action::FreeGpus => self.world.free_gpus(),
            Action::Driver { answers } => self.world.driver_answers = answers,
        }
    }

    fn dial(&mut self) {
        self.links += 1;
        let link = LinkId(self.links);
        self.world.link = Some(link);
        self.is_welcomed = false;
        self.greeted_at = self.world.boot;
        self.world.feed(Input::Dialled { link });
    }

    fn welcome(&mut self, raises: bool) {
        // A coordinator that follows the protocol sends nothing before its hello.
        if let Some(link) = self.world.link.filter(|_| self.world.is_connected) {
            self.epoch += u64::from(raises);
            self.world.answered = self
                .world
                .answered
                .max(self.world.boot.min(self.greeted_at));
            self.world.feed(welcomed(link, self.epoch));
            assert_eq!(self.world.link, Some(link), "let in");
            let saved = self.world.saved_epoch.as_ref();
            assert_eq!(saved, Some(&epoch(self.epoch)), "saved before it is obeyed");
            self.is_welcomed = true;
        }
    }

    fn old_welcome(&mut self) {
        let saved = self.world.saved_epoch.clone();
        if let (Some(link), Some(saved)) = (self.world.link, saved) {
            let messages = self.world.messages;
            self.world.feed(welcomed(link, saved.counter - 1));
            assert_eq!(self.world.link, None, "rejected");
            assert_eq!(self.world.messages, messages, "it renews nothing");
            self.is_welcomed = false;
        }
    }

    fn lose_link(&mut self) {
        if let Some(link) = self.world.link.take() {
            self.is_welcomed = false;
            self.world.feed(Input::LinkLost { link });
        }
    }

    fn acknowledge(&mut self, sent_ago_millis: u64) {
        if let Some(link) = self.world.link.filter(|_| self.is_welcomed) {
            let sent = self
                .world
                .boot
                .saturating_sub(sent_ago_millis)
                .max(self.greeted_at);
            self.world.answered = self.world.answered.max(sent);
            let sent = BootMillis(sent);
            self.world.feed(Input::HeartbeatAcked { link, sent });
        }
    }

    fn connect(&mut self) {
        // A hello that waited for the supervisor is sent now.
        if !self.is_welcomed {
            self.greeted_at = self.world.boot;
        }
        self.world.connect();
    }

    fn restart_agent(&mut self) {
        self.is_welcomed = false;
        self.world.restart_agent();
    }

    fn order(&mut self, order: ToNode) {
        if let Some(link) = self.world.link.filter(|_| self.is_welcomed) {
            self.world.feed(order_as(link, epoch(self.epoch), order));
        }
    }

    /// A number is not reused after the attempt was forgotten.
    fn assign(&mut self, number: u32) {
        if self.forgotten.contains(&id(number)) {
            return;
        }
        let mut assignment = assignment(&id(number).to_string());
        assignment.gpus = World::gpus_of(&assignment.attempt);
        assignment.ports = World::port_names(&assignment.attempt);
        assignment.probes = World::probes_of(&assignment.attempt);
        // Too few for all: a host may have no port left.
        self.world
            .feed(Input::FreePorts((20_000..20_006).collect()));
        if number.is_multiple_of(2) {
            assignment.cpu_mode = CpuMode::Pinned;
            assignment.resources = Amounts::new().with(MCPU, 1000);
        }
        assignment.timeout = number.is_multiple_of(2).then_some(Span::from_secs(20));
        self.order(ToNode::Assign(Box::new(assignment)));
    }

    fn stop(&mut self, number: u32, secs: u64) {
        let attempt = id(number);
        let is_open = match self.world.core.status(&attempt) {
            None | Some(AttemptPhase::Released(_)) => false,
            Some(_) => self.is_welcomed,
        };
        if is_open {
            let asked = self.world.boot + secs * 1000;
            let deadline = self.world.deadlines.entry(attempt.clone()).or_insert(asked);
            *deadline = asked.min(*deadline);
        }
        self.order(ToNode::Stop {
            attempt,
            why: StopReason::Cancelled,
            grace: Span::from_secs(secs),
        });
    }

    fn forget(&mut self, number: u32) {
        let attempt = id(number);
        let status = self.world.core.status(&attempt);
        self.order(ToNode::Forget {
            attempt: attempt.clone(),
        });
        match status {
            Some(AttemptPhase::Released(_)) if self.is_welcomed => {
                self.world.is_forgotten(&attempt);
                self.forgotten.insert(attempt);
            }
            before => assert_eq!(self.world.core.status(&attempt), before, "kept"),
        }
    }

    /// An order of an older epoch changes nothing, causes no order to the supervisor, and breaks the link.
    fn old_order(&mut self, number: u32, kind: u64) {
        let Some(link) = self.world.link.filter(|_| self.is_welcomed) else {
            return;
        };
        let attempt = id(number);
        let order = match kind {
            0 => ToNode::Assign(Box::new(assignment(&attempt.to_string()))),
            1 => ToNode::Forget { attempt },
            _ => ToNode::Stop {
                attempt,
                why: StopReason::Cancelled,
                grace: Span::ZERO,
            },
        };
        let (messages, before) = (self.world.messages, self.statuses());
        self.world
            .feed(order_as(link, epoch(self.epoch - 1), order));
        assert_eq!(self.statuses(), before);
        assert_eq!(self.world.messages, messages);
        assert_eq!(self.world.link, None, "rejected");
        self.is_welcomed = false;
    }

    fn statuses(&self) -> Vec<sluice_common::wire::AttemptStatus> {
        self.world.core.statuses().collect()
    }

    /// With every peer connected, everything stops, is released and is forgotten.
    fn come_to_rest(&mut self) {
        self.connect();
        self.dial();
        self.welcome(false);
        for number in 1..=ATTEMPTS {
            self.stop(number, 1);
        }
        for _ in 0..20 {
            while self.world.deliver() {}
            self.world.pass(1000);
        }
        self.world.driver_answers = true;
        self.world.free_gpus();
        self.world.pass(6000);
        assert_eq!(self.world.faulty(), 0, "what is free again may be granted");
        assert_eq!(self.world.alive(), 0, "everything that was stopped is gone");
        for status in self.statuses() {
            assert!(
                matches!(status.phase, AttemptPhase::Released(_)),
                "{status:?}"
            );
            self.forget(status.attempt.number);
        }
        assert_eq!(self.statuses(), []);
    }
}

proptest! {
    // A fixed seed, so that a failure is reproducible; `PROPTEST_CASES` runs more cases.
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_promise_holds_in_any_life_and_all_comes_to_rest(acts in vec(act(), 0..150)) {
        let mut play = Simulation::new();
        for act in &acts {
            play.act(act);
        }
        play.come_to_rest();
    }
}

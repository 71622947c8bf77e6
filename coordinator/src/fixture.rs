//! For tests: terms, steps, and a core whose records are real ones.

mod agent;
mod disk;
mod rig;

pub(crate) use agent::{Agent, beat, dial, open, try_dial, words};
pub(crate) use disk::Disk;
pub(crate) use rig::{Answer, Rig, answer};

use std::path::Path;
use std::time::Duration;

use coordinator_core::{Bounds, Core, Input, NewStep, Output, ReplyId, Settings, Stamped, State};
use sluice_common::environment::Environment;
use sluice_common::id::{ClusterId, StepId};
use sluice_common::limit::{
    DEFAULT_HEARTBEAT, DEFAULT_LEASE, DEFAULT_LOST_AFTER, DEFAULT_STOP_LIMIT,
    DEFAULT_UNREACHABLE_AFTER,
};
use sluice_common::request::StepRequest;
use sluice_common::time::Time;
use sluice_transport::Identity;

use crate::identity;
use crate::issuance::{Issuance, Terms, Trust};

/// The certificates of a new cluster in `dir`, and whoever issues them.
pub(crate) fn issuance(dir: &Path, cluster: &ClusterId) -> Issuance {
    let files = identity::ensure(dir, cluster).unwrap();
    let own = Identity::load(&files).unwrap();
    let terms = Terms {
        authority_key: identity::key_of(&files),
        files,
        cluster: cluster.clone(),
        ttl: Duration::from_secs(3600),
        addresses: vec!["127.0.0.1:7443".to_owned()],
    };
    let trust = Trust::read(&terms, &own).unwrap();
    Issuance::new(terms, trust)
}

/// The default terms.
pub(crate) fn settings() -> Settings {
    Settings {
        lease: DEFAULT_LEASE,
        stop_limit: DEFAULT_STOP_LIMIT,
        heartbeat: DEFAULT_HEARTBEAT,
        unreachable_after: DEFAULT_UNREACHABLE_AFTER,
        lost_after: DEFAULT_LOST_AFTER,
        bounds: Bounds {
            keep_finished: 1000,
            ..Bounds::DEFAULT
        },
    }
}

/// A step that waits, since there is no node.
pub(crate) fn step(id: &str) -> NewStep {
    let json = format!(r#"{{"command":["echo","{id}"],"resources":{{"cpu_count":0.1}}}}"#);
    let request: StepRequest = serde_json::from_str(&json).unwrap();
    NewStep::new(StepId::new(id).unwrap(), request.check().unwrap())
}

/// A core that makes records.
pub(crate) struct Scribe {
    core: Core,
    now: u64,
}

impl Scribe {
    /// Goes on from `state`, under a new epoch; the records of its start come first.
    pub(crate) fn on(state: State, cluster: ClusterId) -> (Self, Vec<Stamped>) {
        let mut core = Core::recover(settings(), state);
        core.start(Time::from_unix_millis(1000), cluster);
        let mut scribe = Self { core, now: 1000 };
        let records = scribe.drain();
        (scribe, records)
    }

    /// The records of one submit.
    pub(crate) fn submit(&mut self, id: &str) -> Vec<Stamped> {
        self.submit_with(id, Environment::default())
    }

    /// The same of a step with variables.
    pub(crate) fn submit_with(&mut self, id: &str, env: Environment) -> Vec<Stamped> {
        self.now += 1;
        let mut new = step(id);
        new.spec.env = env;
        let input = Input::Submit {
            reply: ReplyId(self.now),
            steps: vec![new],
        };
        self.core.handle(Time::from_unix_millis(self.now), input);
        self.drain()
    }

    /// The fold of all of them.
    pub(crate) fn state(&self) -> &State {
        self.core.state()
    }

    fn drain(&mut self) -> Vec<Stamped> {
        let outputs = self.core.outputs().into_iter();
        let records = outputs.filter_map(|output| match output {
            Output::Record(record) => Some(record),
            _ => None,
        });
        records.collect()
    }
}

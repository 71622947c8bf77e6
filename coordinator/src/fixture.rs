//! Test fixtures: settings, steps, and a core that makes real records.

mod agent;
mod fake_disk;
mod harness;

pub(crate) use agent::{Agent, beat, dial, open, try_dial, words};
pub(crate) use fake_disk::FakeDisk;
pub(crate) use harness::{Answer, Harness, answer};

use std::path::Path;
use std::time::Duration;

use coordinator_core::{Bounds, Core, Input, LogEntry, NewStep, Output, ReplyId, Settings, State};
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
use crate::issuance::{CertificateIssuer, IssuanceConfig, Trust};

/// Returns the certificates of a new cluster in `dir`, and their issuer.
pub(crate) fn issuance(dir: &Path, cluster: &ClusterId) -> CertificateIssuer {
    let files = identity::ensure(dir, cluster).unwrap();
    let own = Identity::load(&files).unwrap();
    let terms = IssuanceConfig {
        authority_key: identity::key_of(&files),
        files,
        cluster: cluster.clone(),
        ttl: Duration::from_secs(3600),
        addresses: vec!["127.0.0.1:7443".to_owned()],
    };
    let trust = Trust::read(&terms, &own).unwrap();
    CertificateIssuer::new(terms, trust)
}

/// Returns the default settings.
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

/// Returns a step that waits because there is no node.
pub(crate) fn step(id: &str) -> NewStep {
    let json = format!(r#"{{"command":["echo","{id}"],"resources":{{"cpu_count":0.1}}}}"#);
    let request: StepRequest = serde_json::from_str(&json).unwrap();
    NewStep::new(StepId::new(id).unwrap(), request.check().unwrap())
}

/// A core that makes records.
pub(crate) struct RecordMaker {
    core: Core,
    now: u64,
}

impl RecordMaker {
    /// Continues from `state` under a new epoch; the records of its start come first.
    pub(crate) fn on(state: State, cluster: ClusterId) -> (Self, Vec<LogEntry>) {
        let mut core = Core::recover(settings(), state);
        core.start(Time::from_unix_millis(1000), cluster);
        let mut maker = Self { core, now: 1000 };
        let records = maker.drain();
        (maker, records)
    }

    /// Returns the records of one submit.
    pub(crate) fn submit(&mut self, id: &str) -> Vec<LogEntry> {
        self.submit_with(id, Environment::default())
    }

    /// Returns the records of one submit of a step with variables.
    pub(crate) fn submit_with(&mut self, id: &str, env: Environment) -> Vec<LogEntry> {
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

    /// Returns the state after all records.
    pub(crate) fn state(&self) -> &State {
        self.core.state()
    }

    fn drain(&mut self) -> Vec<LogEntry> {
        let outputs = self.core.outputs().into_iter();
        let records = outputs.filter_map(|output| match output {
            Output::Record(record) => Some(record),
            _ => None,
        });
        records.collect()
    }
}

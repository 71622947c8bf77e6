//! A blocking client of the supervisor's socket, for tests.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_codec::{FrameBuffer, frame};
use sluice_common::carving::CarveFailure;
use sluice_common::exec::ExecId;
use sluice_common::host_health::HostHealth;
use sluice_common::id::{AttemptId, Subject};
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::lease::Challenge;
use sluice_common::supervision::{
    AttemptView, DeviceAccess, Exit, FreezerState, FromSupervisor, HostPhase, LaunchRecord,
    MAX_SUPERVISION_FRAME_BYTES, Process, ProcessEnd, ResourceLimits, SUPERVISION_VERSION,
    SpawnSpec, StopSignal, ToSupervisor,
};
use sluice_common::time::Span;

/// Time limit of every wait, generous for busy machines.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    stream: UnixStream,
    input: FrameBuffer,
    pub(crate) views: BTreeMap<AttemptId, AttemptView>,
    /// Capabilities of the last `Hello`.
    pub(crate) capabilities: BTreeMap<Capability, Mechanism>,
    /// Number of `Hello` messages.
    pub(crate) hellos: usize,
    /// Ended programs beside attempts, in order.
    pub(crate) execs: Vec<(ExecId, Exit)>,
    /// Results of orders to cut GPUs, in order.
    pub(crate) carved: Vec<Option<CarveFailure>>,
    /// Whether the host allows GPUs to be cut.
    pub(crate) carves_gpus: bool,
    /// The last reported health.
    pub(crate) health: Option<HostHealth>,
    /// The last challenge.
    challenge: Option<Challenge>,
}

impl Client {
    /// Connects and waits for `Hello`.
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the supervisor listens");
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let mut client = Self {
            stream,
            input: FrameBuffer::new(MAX_SUPERVISION_FRAME_BYTES),
            views: BTreeMap::new(),
            capabilities: BTreeMap::new(),
            hellos: 0,
            execs: Vec::new(),
            carved: Vec::new(),
            carves_gpus: false,
            health: None,
            challenge: None,
        };
        client.wait("hello", |c| (c.hellos == 1).then_some(()));
        client
    }

    pub(crate) fn send(&mut self, message: &ToSupervisor) {
        let bytes = frame(message, MAX_SUPERVISION_FRAME_BYTES).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn spawn(&mut self, spec: &SpawnSpec) {
        self.send(&ToSupervisor::Spawn(spec.clone()));
    }

    pub(crate) fn signal(&mut self, attempt: &AttemptId, signal: StopSignal) {
        let attempt = attempt.clone();
        self.send(&ToSupervisor::Signal { attempt, signal });
    }

    pub(crate) fn forget(&mut self, attempt: &AttemptId) {
        let attempt = attempt.clone();
        self.send(&ToSupervisor::Forget { attempt });
    }

    /// Draws a new challenge.
    pub(crate) fn challenge(&mut self) -> Challenge {
        self.challenge = None;
        self.send(&ToSupervisor::Challenge);
        self.wait("a challenge", |c| c.challenge)
    }

    /// All attempts that the supervisor knows now.
    pub(crate) fn list(&mut self) -> &BTreeMap<AttemptId, AttemptView> {
        let before = self.hellos;
        self.send(&ToSupervisor::List);
        self.wait("a list", |c| (c.hellos > before).then_some(()));
        &self.views
    }

    /// Reads until `found` returns a value.
    pub(crate) fn wait<T>(&mut self, what: &str, mut found: impl FnMut(&Self) -> Option<T>) -> T {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(it) = found(self) {
                return it;
            }
            assert!(Instant::now() < end, "no {what}; known: {:?}", self.views);
            assert!(self.read(), "closed while waiting for {what}");
        }
    }

    pub(crate) fn wait_running(&mut self, id: &AttemptId) -> Process {
        self.wait("running", |c| match &c.views.get(id)?.phase {
            HostPhase::Running(process) => Some(*process),
            other @ (HostPhase::Ended(_) | HostPhase::Gone(_)) => panic!("{id} is {other:?}"),
        })
    }

    pub(crate) fn wait_ended(&mut self, id: &AttemptId) -> ProcessEnd {
        self.wait("end", |c| match &c.views.get(id)?.phase {
            HostPhase::Running(_) => None,
            HostPhase::Ended(end) | HostPhase::Gone(end) => Some(end.clone()),
        })
    }

    pub(crate) fn wait_gone(&mut self, id: &AttemptId) -> ProcessEnd {
        self.wait("gone", |c| match &c.views.get(id)?.phase {
            HostPhase::Running(_) | HostPhase::Ended(_) => None,
            HostPhase::Gone(end) => Some(end.clone()),
        })
    }

    /// Freezes an attempt and waits for the result.
    pub(crate) fn freeze(&mut self, id: &AttemptId) -> FreezerState {
        let attempt = id.clone();
        self.send(&ToSupervisor::Freeze { attempt });
        self.wait("word of the freeze", |c| match &c.views.get(id)?.freezer {
            FreezerState::Thawed
            | FreezerState::Freezing
            | FreezerState::Moving
            | FreezerState::Restoring => None,
            state @ (FreezerState::Frozen | FreezerState::Moved(_) | FreezerState::Refused(_)) => {
                Some(state.clone())
            }
        })
    }

    pub(crate) fn thaw(&mut self, id: &AttemptId) {
        let attempt = id.clone();
        self.send(&ToSupervisor::Thaw { attempt });
        self.wait("thaw", |c| {
            (c.views.get(id)?.freezer == FreezerState::Thawed).then_some(())
        });
    }

    /// Spawns an attempt and waits for its exit.
    pub(crate) fn run(&mut self, spec: &SpawnSpec) -> Exit {
        self.spawn(spec);
        self.wait_gone(&spec.attempt).exit
    }

    /// Whether the other side closes the connection before the deadline.
    pub(crate) fn is_dropped(&mut self) -> bool {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            if !self.read() {
                return true;
            }
        }
        false
    }

    /// Reads once; false if the stream has ended.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 65536];
        match self.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(len) => self.input.push(&bytes[..len]),
            Err(e) if is_passing(&e) => {}
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return false,
            Err(e) => panic!("{e}"),
        }
        while let Some(message) = self.input.next().unwrap() {
            self.on_message(message);
        }
        true
    }

    fn on_message(&mut self, message: FromSupervisor) {
        match message {
            FromSupervisor::Hello {
                version,
                attempts,
                capabilities,
                carves_gpus,
                ..
            } => {
                self.carves_gpus = carves_gpus;
                self.capabilities = capabilities;
                assert_eq!(version, SUPERVISION_VERSION);
                self.hellos += 1;
                self.views = attempts
                    .into_iter()
                    .map(|view| (view.attempt.clone(), view))
                    .collect();
            }
            FromSupervisor::Health(health) => self.health = Some(health),
            FromSupervisor::Pong | FromSupervisor::Usages(_) => {}
            FromSupervisor::Carved(_, _, failure) => self.carved.push(failure),
            FromSupervisor::Challenge(challenge) => self.challenge = Some(challenge),
            FromSupervisor::ExecEnded { exec, exit } => self.execs.push((exec, exit)),
            FromSupervisor::Attempt(view) => {
                if let Some(old) = self.views.get(&view.attempt) {
                    assert!(rank(&old.phase) <= rank(&view.phase), "{old:?} -> {view:?}");
                }
                self.views.insert(view.attempt.clone(), view);
            }
        }
    }
}

/// A suspended machine interrupts a read with a time limit.
fn is_passing(e: &std::io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

fn rank(phase: &HostPhase) -> u8 {
    match phase {
        HostPhase::Running(_) => 0,
        HostPhase::Ended(_) => 1,
        HostPhase::Gone(_) => 2,
    }
}

/// A spawn order with the marks that an agent sets.
pub(crate) fn spec(id: &str, command: &[&str]) -> SpawnSpec {
    let attempt: AttemptId = id.parse().unwrap();
    let env = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("SLUICE_STEP_ID", attempt.step.as_str()),
        ("SLUICE_ATTEMPT", &attempt.number.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    SpawnSpec {
        attempt,
        command: command.iter().map(ToString::to_string).collect(),
        env: env.clone().into(),
        workdir: None,
        prefer_workdir: None,
        lease_until: None,
        lease_grace: Span::from_secs(1),
        launch_record: LaunchRecord {
            timeout: Some(Span::from_secs(77)),
            grace: Span::from_secs(7),
            gpus: vec!["GPU-a".to_owned()],
            processors: Default::default(),
            is_allocation: false,
        },
        subject: Subject::new("s").unwrap(),
        submitter: None,
        limits: ResourceLimits::default(),
        devices: DeviceAccess::default(),
        processors: Default::default(),
        hooks: sluice_common::template::launch::HooksAndLimits::default(),
        hook_env: env.into(),
        wrapper: 0,
        env_file: false,
        streams: Default::default(),
        container: None,
        inputs: None,
        keep: vec![],
    }
}

/// A spawn order for a shell script.
pub(crate) fn sh(id: &str, script: &str) -> SpawnSpec {
    spec(id, &["sh", "-c", script])
}

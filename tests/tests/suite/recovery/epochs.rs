//! Epochs that hosts claim and cannot prove, and the way back from each: real daemons on loopback.

use super::*;

/// Highest counter of an epoch.
const MAX_EPOCH: u64 = 1 << 40;

impl RecoveryCluster {
    fn stop_agent(&mut self) {
        let mut agent = self.hosts.remove(1);
        kill(agent.id(), Signal::SIGTERM);
        agent.wait().unwrap();
    }

    fn start_agent(&mut self) {
        let dir = self.path("one");
        let log = fs::File::options().append(true).open(dir.join("agent.log"));
        let agent = self
            .command("sluice-agent")
            .arg("--config")
            .arg(dir.join("agent.toml"))
            .stdin(Stdio::null())
            .stderr(log.unwrap())
            .spawn();
        self.hosts.insert(1, agent.unwrap());
    }

    fn epoch_file(&self) -> PathBuf {
        self.path("one/agent/epoch.json")
    }

    fn kept_epoch(&self) -> Value {
        serde_json::from_slice(&fs::read(self.epoch_file()).unwrap()).unwrap()
    }

    fn obeyed(&self) -> u64 {
        self.kept_epoch()["counter"].as_u64().unwrap()
    }

    fn claim(&self, counter: u64) {
        let mut kept = self.kept_epoch();
        kept["counter"] = counter.into();
        fs::write(self.epoch_file(), kept.to_string()).unwrap();
    }

    fn agent_log(&self) -> String {
        fs::read_to_string(self.path("one/agent.log")).unwrap()
    }

    fn agent_says(&self, words: &str) {
        let what = format!("the agent to say `{words}`");
        eventually(&what, || self.agent_log().contains(words).then_some(()));
    }

    fn forget_epoch(&self) -> String {
        let mut command = self.command("sluice-agent");
        command
            .arg("--config")
            .arg(self.path("one/agent.toml"))
            .arg("forget-epoch");
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn stop_coordinator(&mut self) {
        let mut child = self.coordinator.take().expect("it runs");
        kill(child.id(), Signal::SIGTERM);
        child.wait().unwrap();
    }
}

#[test]
fn a_host_that_makes_up_an_epoch_is_refused_alone_and_let_in_when_it_has_forgotten_it() {
    let mut site = RecoveryCluster::new();
    site.host("two");
    site.submit("long", "long.go");
    site.step_is("long", "running");
    let before = site.runs("long");
    // Its agent was tampered with, and the seal of the true epoch does not prove the false one.
    let obeyed = site.obeyed();
    site.stop_agent();
    site.claim(900);
    site.start_agent();
    site.agent_says("claims to have obeyed epoch 900 without a proof");
    // The others go on, and a step is placed.
    site.node_is("one", "unreachable");
    site.submit("next", "next.go");
    let placed = site.step_is("next", "running");
    assert_eq!(placed["placements"][0]["node"], "two", "{placed}");
    let events = site.sluice(&["get", "events", "-o", "json"]);
    assert_eq!(events.matches("node_refused").count(), 1, "{events}");
    assert!(!events.contains("recovery_began"), "{events}");
    // A host with an impossible number, which an earlier release believed, repairs itself.
    site.stop_agent();
    site.claim((1 << 53) + 1);
    site.start_agent();
    site.agent_says("which no coordinator can have reached: it is forgotten");
    site.node_is("one", "ready");
    eventually("the true epoch to be kept", || {
        (site.obeyed() == obeyed).then_some(())
    });
    assert_eq!(site.runs("long"), before);
    for id in ["long", "next"] {
        site.let_go(&format!("{id}.go"));
        assert_eq!(site.step_is(id, "succeeded")["attempt"], 1);
        assert_eq!(site.begun(id), 1);
    }
}

#[test]
fn a_store_whose_epoch_was_driven_up_is_repaired_and_so_are_its_hosts() {
    let mut site = RecoveryCluster::new();
    site.submit("long", "long.go");
    site.step_is("long", "running");
    let before = site.runs("long");
    site.stop_coordinator();
    site.admin(&["repair-epoch", "--above", &(MAX_EPOCH - 1).to_string()]);
    site.start();
    site.step_is("long", "running");
    eventually("the host to obey it", || {
        (site.obeyed() == MAX_EPOCH).then_some(())
    });
    site.stop_coordinator();
    // No start is left, and every check says so.
    for args in [&["check"][..], &[]] {
        let refused = site.try_admin(args);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{args:?}");
        assert!(error.contains("sluice-coordinator repair-epoch"), "{error}");
    }
    let said = site.admin(&["repair-epoch"]);
    assert!(said.contains("before-repair-"), "{said}");
    site.admin(&["check"]);
    site.start();
    site.agent_says("run `sluice-agent forget-epoch` there");
    site.stop_agent();
    let said = site.forget_epoch();
    assert!(said.contains(&format!("epoch {MAX_EPOCH}")), "{said}");
    site.start_agent();
    site.node_is("one", "ready");
    eventually("the host to obey it", || {
        (site.obeyed() < MAX_EPOCH).then_some(())
    });
    assert_eq!(site.runs("long"), before);
    site.let_go("long.go");
    assert_eq!(site.step_is("long", "succeeded")["attempt"], 1);
    assert_eq!(site.begun("long"), 1);
}

#[test]
fn a_cluster_that_lost_store_and_key_goes_above_its_hosts_by_an_admin_s_word() {
    let mut site = RecoveryCluster::new();
    site.stop_coordinator();
    site.admin(&["repair-epoch", "--above", "56"]);
    site.start();
    eventually("the host to obey it", || {
        (site.obeyed() == 57).then_some(())
    });
    site.stop_coordinator();
    lose(&site.data());
    fs::remove_file(site.data().join("warrants.key")).unwrap();
    site.start();
    site.agent_says("run `sluice-coordinator repair-epoch --above 57`");
    assert!(site.sluice(&["recovery"]).contains("was lost"));
    site.stop_coordinator();
    site.admin(&["repair-epoch", "--above", "57"]);
    site.start();
    site.node_is("one", "ready");
    eventually("the host to obey it", || {
        (site.obeyed() == 58).then_some(())
    });
    assert!(site.sluice(&["recovery"]).contains("was lost"));
}

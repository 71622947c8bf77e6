//! A cluster of real daemons on loopback, logging at `debug`, with an API token, an issuer and one joined host; callers
//! of its API; and a record of everything that it prints. The test searches that record.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{as_starter, binaries, eventually, kill};

/// The coordinator's own token.
pub(crate) const ADMIN: &str = "planted-admin-token-5Kq8";

/// Daemons of one test, all of which end with it, and everything that was printed.
pub(crate) struct SecretsCluster {
    folder: tempfile::TempDir,
    daemons: Vec<(&'static str, Child)>,
    pub(crate) http: String,
    quic: String,
    /// Printed texts, and their places.
    pub(crate) told: Vec<(String, String)>,
}

impl SecretsCluster {
    /// Makes a coordinator that knows an issuer by its keys, without a host.
    pub(crate) fn new(jwks: &str) -> Self {
        let any = "127.0.0.1:0".to_owned();
        let mut site = Self {
            folder: tempfile::tempdir().unwrap(),
            daemons: Vec::new(),
            http: any.clone(),
            quic: any,
            told: Vec::new(),
        };
        fs::write(site.path("jwks.json"), jwks).unwrap();
        sluice_transport::files::write_private(&site.path("api-token"), &format!("{ADMIN}\n"))
            .unwrap();
        site.tool(
            "sluice-coordinator",
            &["init", "--data-dir", &site.text("coordinator")],
            "",
        );
        site.coordinator();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(binaries().join(program));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SLUICE_")) {
            command.env_remove(name);
        }
        command
            .env("SLUICE_LOG", "debug")
            .env("HOME", self.folder.path());
        command
    }

    /// Starts the coordinator, after the first time at the same addresses.
    pub(crate) fn coordinator(&mut self) {
        let config = format!(
            "http = {:?}\nquic = {:?}\ndata_dir = {:?}\napi_token_file = {:?}\n\
             [oidc]\nissuer = \"https://id.example\"\naudience = \"sluice\"\njwks_file = {:?}\n",
            self.http,
            self.quic,
            self.text("coordinator"),
            self.text("api-token"),
            self.text("jwks.json")
        );
        fs::write(self.path("coordinator.toml"), config).unwrap();
        let args = ["--config", &self.text("coordinator.toml")];
        let stdout = self.daemon("sluice-coordinator", &args).stdout.take();
        let mut line = String::new();
        BufReader::new(stdout.unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready = line
            .strip_prefix("ready ")
            .unwrap_or_else(|| panic!("{line:?}"));
        let ready: Value = serde_json::from_str(ready).unwrap();
        let address = |name: &str| ready[name].as_str().unwrap().to_owned();
        (self.http, self.quic) = (address("http"), address("quic"));
    }

    pub(crate) fn supervisor(&mut self) {
        fs::write(self.path("supervisor.toml"), as_starter()).unwrap();
        let (state, config) = (self.text("supervisor"), self.text("supervisor.toml"));
        let args = ["--state-dir", &state, "--config", &config, "--stop-on-exit"];
        self.daemon("sluice-supervisor", &args);
    }

    /// Starts an agent that joins by the line in `agent/join-token`, if that exists.
    pub(crate) fn agent(&mut self) {
        let config = format!(
            "node = \"host\"\nstate_dir = {:?}\njoin_token_file = {:?}\nsupervisor_socket = {:?}\n",
            self.text("agent"),
            self.text("join-token"),
            self.text("supervisor/supervisor.sock"),
        );
        fs::write(self.path("agent.toml"), config).unwrap();
        let config = self.text("agent.toml");
        self.daemon("sluice-agent", &["--config", &config]);
    }

    fn daemon(&mut self, program: &'static str, args: &[&str]) -> &mut Child {
        let log = self.path(&format!("{program}.log"));
        let log = fs::File::options().append(true).create(true).open(log);
        let mut command = self.command(program);
        command.args(args).stdin(Stdio::null()).stderr(log.unwrap());
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        self.daemons.push((program, child));
        &mut self.daemons.last_mut().unwrap().1
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self, program: &str) {
        let at = self.daemons.iter().position(|(name, _)| *name == program);
        let (_, mut child) = self.daemons.remove(at.unwrap());
        kill(child.id(), Signal::SIGKILL);
        child.wait().unwrap();
    }

    pub(crate) fn daemons(&self) -> Vec<(&'static str, u32)> {
        let daemons = self.daemons.iter();
        daemons.map(|(name, child)| (*name, child.id())).collect()
    }

    /// Ends the daemons as an admin does.
    pub(crate) fn stop(&mut self) {
        for (_, child) in &self.daemons {
            kill(child.id(), Signal::SIGTERM);
        }
        for (_, child) in &mut self.daemons {
            child.wait().unwrap();
        }
        self.daemons.clear();
    }

    /// Runs a program to its end, with `input` on its standard input. Its output is recorded.
    pub(crate) fn tool(&mut self, program: &str, args: &[&str], input: &str) -> Output {
        let output = self.unkept(program, args, input);
        for stream in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(stream).into_owned();
            self.told
                .push((format!("{program} {}", args.join(" ")), text));
        }
        output
    }

    /// Runs a program whose output may contain a secret, which is not recorded.
    pub(crate) fn unkept(&self, program: &str, args: &[&str], input: &str) -> Output {
        let mut command = self.command(program);
        command.args(args).stdin(Stdio::piped());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // An early refusal does not read it.
        let _unread = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Writes the context of a caller.
    pub(crate) fn caller(&self, name: &str, token: &str) {
        let context = format!(
            r#"{{"http":{:?},"token":{token:?},"subject":"team"}}"#,
            self.http
        );
        fs::write(self.path(&format!("{name}.json")), context).unwrap();
    }

    /// Runs a command of a caller, recorded as his.
    pub(crate) fn sluice(&mut self, caller: &str, args: &[&str]) -> String {
        let context = self.text(&format!("{caller}.json"));
        let output = self.tool("sluice", &[&["--context", &context], args].concat(), "");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns output that an admin is shown once.
    pub(crate) fn shown_once(&self, args: &[&str]) -> String {
        let context = self.text("admin.json");
        let output = self.unkept("sluice", &[&["--context", &context], args].concat(), "");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Makes a call with this `Authorization` header; returns the status and the answer, which is recorded.
    pub(crate) fn call(
        &mut self,
        shown: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, String) {
        let answer = self.unheard(shown, method, path, body);
        self.told
            .push((format!("{method} {path} {body}"), answer.1.clone()));
        answer
    }

    /// Makes a call whose answer only its caller sees.
    pub(crate) fn unheard(
        &self,
        shown: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.http))
            .header("authorization", shown)
            .body(body.to_owned())
            .unwrap();
        let mut response = agent.run(request).unwrap();
        let status = response.status().as_u16();
        (status, response.body_mut().read_to_string().unwrap())
    }

    /// Records the head and the events of a stream, from the first to one that contains `last`.
    pub(crate) fn followed(&mut self, token: &str, last: &str) {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let request = format!(
            "GET /v1/events?since=0&follow=true HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\n\r\n",
            self.http
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&bytes).contains(last) {
            let got = stream.read(&mut part).unwrap();
            assert_ne!(got, 0, "the stream ended before {last}");
            bytes.extend_from_slice(&part[..got]);
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.told
            .push(("events that are followed".to_owned(), text));
    }

    pub(crate) fn step_is(&self, id: &str, state: &str) {
        let path = format!("/v1/steps/{id}");
        eventually(&format!("{id} to be {state}"), || {
            let (_, step) = self.unheard(&bearer(ADMIN), "GET", &path, "");
            let step: Value = serde_json::from_str(&step).unwrap();
            let is_over = ["succeeded", "failed", "rejected"]
                .iter()
                .any(|end| step["state"] == *end);
            assert!(!is_over || step["state"] == state, "{id}: {step}");
            (step["state"] == state).then_some(())
        });
    }

    pub(crate) fn host_is_ready(&self) {
        eventually("the host to be ready", || {
            let (_, node) = self.unheard(&bearer(ADMIN), "GET", "/v1/nodes/host", "");
            let node: Value = serde_json::from_str(&node).unwrap();
            (node["state"] == "ready").then_some(())
        });
    }

    /// Returns the daemons' logs so far.
    pub(crate) fn logs(&self) -> Vec<(String, String)> {
        let names = ["sluice-coordinator", "sluice-agent", "sluice-supervisor"];
        let logs = names.map(|name| (name.to_owned(), self.path(&format!("{name}.log"))));
        let read = |(name, path): (String, PathBuf)| (name, fs::read_to_string(path).unwrap());
        logs.into_iter().map(read).collect()
    }
}

impl Drop for SecretsCluster {
    fn drop(&mut self) {
        for (_, child) in &mut self.daemons {
            kill(child.id(), Signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

/// Returns the header that shows a token.
pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

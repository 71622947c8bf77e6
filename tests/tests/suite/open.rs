//! `sluice open`: connections to ports of running steps and services, with real programs at both ends.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::thread;

use serde_json::{Value, json};
use sluice_tests::{CommandOutput, Daemon, Dev, DevOptions, eventually, needs_root};

/// Sends each connection back what comes, and ends its side when the other one has ended.
const ECHO: &str = "
import os, socket, threading
def echo(c):
    while True:
        part = c.recv(65536)
        if not part:
            break
        c.sendall(part)
    c.sendall(b'END')
    c.shutdown(socket.SHUT_WR)
    c.recv(1)
    c.close()
s = socket.create_server(('', int(os.environ['SLUICE_PORT'])), backlog=200)
print('listens', flush=True)
while True:
    threading.Thread(target=echo, args=(s.accept()[0],), daemon=True).start()
";

/// A running `sluice open`, which is killed at the end of the test.
struct Opened {
    child: Child,
    port: u16,
    /// Lines of stderr so far, and the thread that reads them.
    told: std::sync::Arc<std::sync::Mutex<String>>,
}

impl Opened {
    /// Starts it, and returns it once it has printed its address.
    fn start(dev: &Dev, args: &[&str]) -> Self {
        let mut opened = Self::begin(dev, args);
        opened.port = opened.address();
        opened
    }

    /// Starts it without waiting for its address.
    fn begin(dev: &Dev, args: &[&str]) -> Self {
        let mut open = dev.command(&[&["open"], args].concat());
        let mut child = open
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let told = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let (stderr, lines) = (child.stderr.take().unwrap(), std::sync::Arc::clone(&told));
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut told = lines.lock().unwrap();
                told.push_str(&line);
                told.push('\n');
            }
        });
        Self {
            child,
            port: 0,
            told,
        }
    }

    /// Reads the address that it prints; its port.
    fn address(&mut self) -> u16 {
        let mut line = String::new();
        let mut stdout = BufReader::new(self.child.stdout.as_mut().unwrap());
        stdout.read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("http://127.0.0.1:");
        let port = port.and_then(|port| port.parse().ok());
        port.unwrap_or_else(|| panic!("{line:?}: {}", self.told()))
    }

    fn told(&self) -> String {
        self.told.lock().unwrap().clone()
    }

    fn until_told(&self, part: &str) -> String {
        eventually(&format!("{part:?} to be told"), || {
            let told = self.told();
            told.contains(part).then_some(told)
        })
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).unwrap()
    }

    /// The answer to `GET path`, or nothing if the connection is cut.
    fn get(&self, path: &str) -> Option<Vec<u8>> {
        let mut stream = self.connect();
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let begin = answer.windows(4).position(|it| it == b"\r\n\r\n")?;
        Some(answer.split_off(begin + 4))
    }

    /// Waits for its end; returns its exit code.
    fn end(mut self) -> (i32, String) {
        let code = self.child.wait().unwrap().code().unwrap();
        let told = eventually("the last line", || {
            let told = self.told();
            told.contains("error:").then_some(told)
        });
        (code, told)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn submit(dev: &Dev, request: &Value) {
    let (status, step) = dev.call("POST", "/v1/steps", Some(&request.to_string()));
    assert_eq!(status, 201, "{step}");
}

/// Submits a step that serves a folder of files at its port `http`.
fn submit_site(dev: &Dev, id: &str, workdir: &str) {
    let command = ["sh", "-c", "exec python3 -m http.server \"$SLUICE_PORT\""];
    let probes = json!({"readiness": {"tcp": "http", "period": "1s"}});
    submit(
        dev,
        &json!({"id": id, "command": command, "workdir": workdir, "ports": ["http", "spare"],
            "probes": probes, "grace_period": "1s"}),
    );
}

fn submit_echo(dev: &Dev, id: &str) {
    let probes = json!({"readiness": {"tcp": "raw", "period": "1s"}});
    submit(
        dev,
        &json!({"id": id, "command": ["python3", "-c", ECHO], "ports": ["raw"], "probes": probes,
            "grace_period": "1s"}),
    );
}

fn until_ready(dev: &Dev, id: &str) {
    eventually(&format!("{id} to be ready"), || {
        let (_, step) = dev.call("GET", &format!("/v1/steps/{id}"), None);
        (step["placements"][0]["ready"] == true).then_some(())
    });
}

/// Bytes that differ by their place and by `seed`.
fn bytes(count: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(31) ^ (at >> 8) ^ seed) as u8;
    (0..count).map(byte).collect()
}

#[test]
fn files_of_a_web_server_arrive_whole_on_many_connections_at_once() {
    let dev = Dev::start();
    let site = dev.folder().join("site");
    fs::create_dir(&site).unwrap();
    for seed in 0..8 {
        fs::write(site.join(seed.to_string()), bytes(3_000_000, seed)).unwrap();
    }
    submit_site(&dev, "site", site.to_str().unwrap());
    until_ready(&dev, "site");
    let opened = Opened::start(&dev, &["site"]);
    opened.until_told("site has several ports: this is http, the first; write the name of another after it (spare)");
    thread::scope(|scope| {
        let opened = &opened;
        for seed in 0..8 {
            scope.spawn(move || {
                let body = opened.get(&format!("/{seed}")).unwrap();
                assert!(
                    body == bytes(3_000_000, seed),
                    "{seed}: {} bytes",
                    body.len()
                );
            });
        }
    });
    // Nothing listens at its other port yet, which ends nothing.
    let spare = Opened::start(&dev, &["step/site", "spare"]);
    assert_eq!(spare.get("/0"), None);
    let told = spare.until_told("warning:");
    assert!(
        told.contains("no program listens at its port `spare` yet")
            && told.contains("`SLUICE_PORT_SPARE`"),
        "{told}"
    );
    assert_eq!(opened.get("/3").unwrap().len(), 3_000_000);
    // The audit has these calls.
    let (_, events) = dev.call("GET", "/v1/events?limit=1000", None);
    let is_exec = |event: &&Value| event["entry"]["resource"] == "steps/exec";
    let found = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(is_exec)
        .count();
    assert!(found >= 9, "{found} of the calls are in the audit");
}

#[test]
fn each_direction_ends_by_itself_and_a_slow_reader_holds_up_nobody() {
    let dev = Dev::start();
    submit_echo(&dev, "echo");
    until_ready(&dev, "echo");
    let opened = Opened::start(&dev, &["echo"]);
    // Nobody reads this one, so its program cannot send.
    let mut slow = opened.connect();
    slow.set_nonblocking(true).unwrap();
    let part = bytes(1_000_000, 9);
    let mut sent = Vec::new();
    let held = eventually("the connection to be full", || {
        match slow.write(&part[sent.len() % part.len()..]) {
            Ok(count) => {
                sent.extend_from_slice(&part[sent.len() % part.len()..][..count]);
                None
            }
            // What is on the way has a bound.
            Err(error) => (error.kind() == std::io::ErrorKind::WouldBlock
                && sent.len() > 3_000_000)
                .then_some(sent.len()),
        }
    });
    assert!(held < 100_000_000, "{held} bytes are on the way");
    let mut quick = opened.connect();
    let sent_by_quick = bytes(5_000_000, 1);
    let whole = sent_by_quick.clone();
    let mut writer = quick.try_clone().unwrap();
    let feeder = thread::spawn(move || {
        writer.write_all(&whole).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    quick.read_to_end(&mut back).unwrap();
    feeder.join().unwrap();
    let end = back.split_off(back.len() - 3);
    assert!(back == sent_by_quick, "{} bytes came back", back.len());
    assert_eq!(end, b"END", "the program did not see the end of the input");
    // The slow one gets all of it, once it reads.
    slow.set_nonblocking(false).unwrap();
    slow.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    slow.read_to_end(&mut back).unwrap();
    sent.extend(b"END");
    assert!(
        back == sent,
        "{} of {} bytes came back",
        back.len(),
        sent.len()
    );
}

#[test]
fn it_ends_with_its_step_and_outlives_a_restart_of_the_coordinator() {
    let dev = Dev::start();
    submit_echo(&dev, "echo");
    until_ready(&dev, "echo");
    let opened = Opened::start(&dev, &["echo"]);
    let round_trip = || {
        let mut stream = opened.connect();
        stream.write_all(b"hello").ok()?;
        stream.shutdown(Shutdown::Write).ok()?;
        let mut back = String::new();
        stream.read_to_string(&mut back).ok()?;
        (back == "helloEND").then_some(())
    };
    eventually("the first answer", round_trip);
    // A connection in use is cut, not ended as if all had come.
    let mut in_use = opened.connect();
    in_use.write_all(b"x").unwrap();
    in_use.read_exact(&mut [0]).unwrap();
    dev.kill(Daemon::Coordinator);
    let error = in_use.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    eventually("an answer by the next coordinator", round_trip);
    dev.ok(&["cancel", "echo"]);
    let (code, told) = opened.end();
    assert_eq!(code, 1, "{told}");
    assert!(
        told.contains("error: echo has ended (cancelled), so nothing is forwarded to it any more: `sluice logs echo`"),
        "{told}"
    );
}

fn open(dev: &Dev, args: &[&str]) -> CommandOutput {
    dev.sluice(&[&["open"], args].concat())
}

#[test]
fn what_cannot_be_opened_is_refused_with_the_way_out() {
    let dev = Dev::start();
    submit_echo(&dev, "echo");
    dev.ok(&["submit", "--id", "plain", "--", "sleep", "600"]);
    dev.ok(&["run", "--id", "over", "--port", "http", "--", "true"]);
    until_ready(&dev, "echo");
    dev.step_in("plain", &["running"]);
    for (args, told) in [
        (
            &["echo", "http"][..],
            "`http`: the ports of step `echo` are raw",
        ),
        (
            &["plain"],
            "step `plain` has no ports: submit it with `ports: [http]` (`--port http`)",
        ),
        (&["over"], "over has ended (succeeded)"),
        (&["nobody"], "there is no step and no service `nobody`"),
        (&["service/nobody"], "there is no service `nobody`"),
        (&["echo", "--rank", "1"], "the ranks of `echo` are 0 to 0"),
    ] {
        let refused = open(&dev, args);
        assert_eq!(refused.code, 1, "{args:?}: {refused:?}");
        assert!(refused.stderr.contains(told), "{args:?}: {refused:?}");
        assert_eq!(refused.stdout, "", "{args:?}");
    }
    let opened = Opened::start(&dev, &["echo"]);
    let taken = open(&dev, &["echo", "--port", &opened.port.to_string()]);
    assert!(
        taken.code == 1 && taken.stderr.contains("choose another, or leave it out"),
        "{taken:?}"
    );
    // Without the upgrade, the call says what it is.
    let (status, answer) = dev.call("GET", "/v1/steps/echo/ports/raw", None);
    assert_eq!(status, 400, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("this call is a WebSocket"), "{message}");
    let (status, answer) = dev.call("GET", "/v1/steps/over/ports/http", None);
    assert_eq!(
        (status, &answer["error"]["code"]),
        (409, &"not_running".into())
    );
}

#[test]
fn it_waits_until_a_queued_step_runs_and_says_why() {
    let dev = Dev::start();
    let (_, nodes) = dev.call("GET", "/v1/nodes", None);
    let node = nodes["items"][0]["name"].as_str().unwrap().to_owned();
    dev.ok(&["cordon", &node]);
    submit_echo(&dev, "echo");
    let mut opened = Opened::begin(&dev, &["echo"]);
    let told = opened.until_told("waiting for it, Ctrl-C ends");
    assert!(told.starts_with("echo is queued: "), "{told}");
    dev.ok(&["uncordon", &node]);
    opened.port = opened.address();
    eventually("an answer", || {
        let mut stream = opened.connect();
        stream.write_all(b"x").ok()?;
        let mut back = [0];
        stream.read_exact(&mut back).ok()?;
        (back == *b"x").then_some(())
    });
}

/// A command line with a token of a role for a subject.
fn caller(dev: &Dev, name: &str, flags: &[&str]) -> String {
    let secret = dev.ok(&[&["api-token", "create", name], flags].concat());
    let context = fs::read(&dev.context).unwrap();
    let mut context: Value = serde_json::from_slice(&context).unwrap();
    context["token"] = secret.trim().into();
    let file = dev.folder().join(name);
    fs::write(&file, context.to_string()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file.display().to_string()
}

#[test]
fn who_may_not_exec_may_not_open() {
    let dev = Dev::start();
    submit_echo(&dev, "echo");
    until_ready(&dev, "echo");
    for (name, role, subject) in [
        ("reads", "viewer", "default"),
        ("stranger", "submitter", "other"),
    ] {
        let context = caller(&dev, name, &["--role", role, "--subject", subject]);
        let exec = dev.sluice(&["--context", &context, "exec", "echo", "--", "true"]);
        assert_eq!(exec.code, 125, "{name}: {exec:?}");
        let refused = dev.sluice(&["--context", &context, "open", "echo"]);
        assert_eq!(refused.code, 1, "{name}: {refused:?}");
        assert!(refused.stderr.contains("may not"), "{name}: {refused:?}");
        assert_eq!(refused.stdout, "", "{name}");
    }
    let context = caller(
        &dev,
        "works",
        &["--role", "submitter", "--subject", "default"],
    );
    let opened = Opened::start(&dev, &["echo", "--context", &context]);
    let mut stream = opened.connect();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    // The connection ends with the right.
    dev.ok(&["api-token", "revoke", "works"]);
    assert!(stream.read(&mut [0]).is_err());
}

#[test]
fn a_step_that_runs_as_its_submitter_is_opened_by_that_user_and_admins_alone() {
    if !needs_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("supervisor.toml");
    fs::write(&config, "as_submitter = [\"daemon\", \"games\"]\n").unwrap();
    let dev = Dev::with(DevOptions {
        variables: vec![("SLUICE_SUPERVISOR_CONFIG", config.display().to_string())],
        ..DevOptions::default()
    });
    let of_user = |user: &str| {
        let flags = ["--role", "submitter", "--subject", "*", "--user", user];
        caller(&dev, user, &flags)
    };
    let (own, other) = (of_user("daemon"), of_user("games"));
    let submit = [
        "submit",
        "--id",
        "echo",
        "--port",
        "raw",
        "--ready-when",
        "raw",
        "--grace",
        "1s",
    ];
    let program = ["--", "python3", "-c", ECHO];
    dev.ok(&[&["--context", &own], &submit[..], &program].concat());
    until_ready(&dev, "echo");
    let round_trip = |opened: &Opened| {
        let mut stream = opened.connect();
        let sent = stream.write_all(b"x");
        sent.and_then(|()| stream.read_exact(&mut [0])).is_ok()
    };
    assert!(round_trip(&Opened::start(
        &dev,
        &["echo", "--context", &own]
    )));
    assert!(round_trip(&Opened::start(&dev, &["echo"])));
    let opened = Opened::start(&dev, &["echo", "--context", &other]);
    assert!(!round_trip(&opened));
    opened.until_told("nobody else may run programs as that user");
}

#[test]
fn a_service_is_opened_at_a_ready_replica_and_at_another_when_that_goes() {
    let dev = Dev::start();
    let document = json!({
        "kind": "service", "name": "web", "replicas": 2, "grace_period": "1s", "ports": ["raw"],
        "command": ["python3", "-c", ECHO.replace("b'END'", "os.environ['SLUICE_STEP_ID'].encode()")],
        "resources": {"cpu_count": 0.1}, "rollout": {"drain_timeout": "0s"},
        "probes": {"readiness": {"tcp": "raw", "period": "1s"}}
    });
    let file = dev.folder().join("web.yaml");
    fs::write(&file, document.to_string()).unwrap();
    dev.ok(&["apply", "-f", file.to_str().unwrap()]);
    let opened = Opened::start(&dev, &["web"]);
    let replica = || {
        let mut stream = opened.connect();
        stream.shutdown(Shutdown::Write).ok()?;
        let mut id = String::new();
        stream.read_to_string(&mut id).ok()?;
        (!id.is_empty()).then_some(id)
    };
    let first = eventually("an answer", replica);
    // It stays with the one that works.
    assert_eq!(replica().as_ref(), Some(&first));
    eventually("the other replica", || {
        let (_, found) = dev.call("GET", "/v1/endpoints?service=web", None);
        (found["items"].as_array().unwrap().len() == 2).then_some(())
    });
    dev.ok(&["cancel", &first]);
    eventually("another replica to answer", || {
        replica().filter(|id| *id != first)
    });
    // One replica by its id, and its service by its kind.
    let one = eventually("a replica", || replica().filter(|id| *id != first));
    let of_one = Opened::start(&dev, &[&one]);
    assert_ne!(of_one.port, opened.port);
    let by_kind = Opened::start(&dev, &["service/web", "raw"]);
    dev.ok(&["delete", "service", "web"]);
    for (opened, expected) in [
        (
            opened,
            "service/web is deleted: nothing is forwarded any more",
        ),
        (
            by_kind,
            "service/web is deleted: nothing is forwarded any more",
        ),
        (
            of_one,
            "has ended (cancelled), so nothing is forwarded to it any more",
        ),
    ] {
        let (code, told) = opened.end();
        assert_eq!(code, 1, "{told}");
        assert!(told.contains(expected), "{told}");
    }
}

const NOTEBOOK: &str = "kind: notebook
version: v0.1
job: {name: lab, namespace: dev, priority: high}
environment:
  command: [python3, -m, http.server, --bind, 127.0.0.1]
  args: ['8888']
resources: {cpu: 100m, memory: 64Mi}
";

const INFERENCE: &str = "kind: inference
version: v0.1
job: {name: chat}
environment: {command: [sh, -c, 'mkdir -p www; cd www; echo well > health; echo serves; exec python3 -m http.server 8000']}
service: {replicas: 2, port: 8000, healthCheck: /health, timeout: 5s}
resources: {cpu: 100m, memory: 64Mi}
";

#[test]
fn a_notebook_and_an_inference_of_gpuctl_are_services_that_are_opened_by_their_names() {
    let dev = Dev::start();
    let file = |name: &str, text: &str| {
        let path = dev.folder().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (notebook, inference) = (file("lab.yaml", NOTEBOOK), file("chat.yaml", INFERENCE));
    let made = dev.sluice(&["create", "-f", &notebook]);
    assert_eq!(
        (made.code, made.stdout.as_str()),
        (0, "service/lab created\n"),
        "{made:?}"
    );
    for told in [
        "warning: ",
        "service.port: each replica gets a free port of its host, which takes the place of 8888 in its program",
        "`sluice open lab` opens it here, once it is ready",
    ] {
        assert!(made.stderr.contains(told), "{made:?}");
    }
    let lab = Opened::start(&dev, &["lab"]);
    let page = String::from_utf8(lab.get("/").unwrap()).unwrap();
    assert!(page.contains("Directory listing"), "{page}");
    let again = dev.sluice(&["apply", "-f", &notebook]);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (0, "service/lab unchanged\n"),
        "{again:?}"
    );
    // A notebook has one replica, so its output has its name.
    eventually("the request in its output", || {
        let logs = dev.sluice(&["logs", "lab"]);
        logs.stderr.contains("GET / HTTP/1.0").then_some(())
    });
    let listed = dev.ok(&[
        "get",
        "steps",
        "--work",
        "notebook",
        "--columns",
        "id",
        "--no-headers",
    ]);
    assert_eq!(listed.trim(), "lab-1");

    // Steps and services of gpuctl are submitted alike, with the flags of steps for steps alone.
    let refused = dev.sluice(&["submit", "-f", &inference, "--cpus", "1"]);
    assert!(
        refused.code == 2 && refused.stderr.contains("flags are for steps"),
        "{refused:?}"
    );
    let refused = dev.sluice(&["run", "-f", &inference]);
    assert!(
        refused.stderr.contains("hand it to `sluice apply -f`"),
        "{refused:?}"
    );
    let made = dev.sluice(&["submit", "-f", &inference]);
    assert_eq!(
        (made.code, made.stdout.as_str()),
        (0, "service/chat created\n"),
        "{made:?}"
    );
    let chat = Opened::start(&dev, &["chat"]);
    assert_eq!(chat.get("/health").unwrap(), b"well\n");
    let (_, service) = dev.call("GET", "/v1/services/chat", None);
    assert_eq!(service["replicas"], 2, "{service}");
    assert!(
        dev.ok(&["get", "services", "--no-headers"])
            .contains("chat")
    );

    assert_eq!(
        dev.ok(&["delete", "-f", &notebook]),
        "service/lab deleted\n"
    );
    assert_eq!(
        dev.ok(&["delete", "service", "chat"]),
        "service/chat deleted\n"
    );
    for opened in [lab, chat] {
        assert_eq!(opened.end().0, 1);
    }
}

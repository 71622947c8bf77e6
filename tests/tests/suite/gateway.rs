//! The gateway with a real HAProxy in front of Python's HTTP server: no request is lost while replicas come and go, requests of
//! a service without a ready replica wait, and nothing old is trusted after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::Signal;
use sluice_tests::{
    Daemon, Dev, DevOptions, children_of, eventually, eventually_within, kill, left_out, run, say,
};

/// Answers each request with the id of its process and the length of the body, after a moment.
const SERVER: &str = r#"
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        length = len(self.rfile.read(int(self.headers.get('content-length', 0))))
        time.sleep(0.01)
        body = f'{os.getpid()} {length}'.encode()
        self.send_response(200)
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(('127.0.0.1', int(os.environ['SLUICE_PORT'])), Handler).serve_forever()
"#;

/// Threads that send requests.
const THREADS: usize = 4;

/// Whether HAProxy is installed. If not, lists the calling test as left out.
pub(crate) fn has_haproxy() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = dirs.map(|dir| dir.join("haproxy")).any(|it| it.is_file());
    if !found {
        left_out("haproxy is missing: apt-get install haproxy");
    }
    found
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A running `sluice gateway`. Dropping it stops it.
struct Gateway {
    child: Child,
    port: u16,
    runtime_dir: PathBuf,
}

impl Gateway {
    fn start(dev: &Dev, more: &str) -> Self {
        let runtime_dir = dev.folder().join("gateway");
        Self::start_at(dev, free_port(), runtime_dir, more)
    }

    fn start_at(dev: &Dev, port: u16, runtime_dir: PathBuf, more: &str) -> Self {
        let config = dev.folder().join("gateway.toml");
        let text = format!(
            "bind = [\"127.0.0.1:{port}\"]\nruntime_dir = {runtime_dir:?}\nmax_services = 3\nmax_replicas = 8\n{more}"
        );
        fs::write(&config, text).unwrap();
        let mut command = dev.command(&["gateway", "--config", config.to_str().unwrap()]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line}");
        Self {
            child,
            port,
            runtime_dir,
        }
    }

    fn haproxy(&self) -> u32 {
        let children = children_of(self.child.id());
        assert_eq!(children.len(), 1, "{children:?}");
        children[0]
    }

    /// Requests of the first backend that are under way or wait.
    fn waiting(&self) -> u64 {
        let mut socket = UnixStream::connect(self.runtime_dir.join("haproxy.sock")).unwrap();
        socket.write_all(b"show stat slot1 2 -1\n").unwrap();
        let mut csv = String::new();
        socket.read_to_string(&mut csv).unwrap();
        let row = csv.lines().nth(1).unwrap();
        row.split(',').nth(4).unwrap().parse().unwrap()
    }

    fn get(&self) -> io::Result<Answer> {
        request(self.port, "web.example.org", "")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It is our child, and not reaped yet.
        kill(self.child.id(), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// Sends one request on a connection of its own: a POST if it has a body.
fn request(port: u16, host: &str, body: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(50)))?;
    let method = if body.is_empty() { "GET" } else { "POST" };
    let length = body.len();
    let head = format!(
        "{method} / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "no whole answer");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok(Answer {
        status: status.ok_or_else(cut)?,
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    })
}

/// Fewest requests of a load.
fn fewest_requests() -> usize {
    let fewest = std::env::var("SLUICE_REQUESTS").ok();
    fewest.map_or(100, |text| {
        text.parse().expect("SLUICE_REQUESTS is a number")
    })
}

/// Requests that several threads send one after the other.
struct Load {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    /// Processes that answered.
    servers: Arc<Mutex<BTreeSet<String>>>,
    threads: Vec<JoinHandle<BTreeMap<String, usize>>>,
}

impl Load {
    fn start(port: u16) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let answered = Arc::new(AtomicUsize::new(0));
        let servers = Arc::new(Mutex::new(BTreeSet::new()));
        let spawn = |_| {
            let (is_over, servers) = (Arc::clone(&is_over), Arc::clone(&servers));
            let answered = Arc::clone(&answered);
            thread::spawn(move || {
                let mut outcomes = BTreeMap::new();
                while !is_over.load(Ordering::Relaxed) {
                    let outcome = match request(port, "web.example.org", "") {
                        Ok(answer) if answer.status == 200 && answer.body.ends_with(" 0") => {
                            servers.lock().unwrap().insert(answer.body);
                            answered.fetch_add(1, Ordering::Relaxed);
                            "200".to_owned()
                        }
                        Ok(answer) => format!("{} {}", answer.status, answer.body),
                        Err(error) => error.to_string(),
                    };
                    *outcomes.entry(outcome).or_insert(0) += 1;
                }
                outcomes
            })
        };
        let threads = (0..THREADS).map(spawn).collect();
        Self {
            is_over,
            answered,
            servers,
            threads,
        }
    }

    /// Waits until so many processes have answered since now.
    fn until_answered_by(&self, count: usize) {
        self.servers.lock().unwrap().clear();
        eventually(&format!("answers of {count} replicas"), || {
            (self.servers.lock().unwrap().len() == count).then_some(())
        });
    }

    /// Ends it once it has sent enough; returns how many requests had each outcome, by `200` and by what else was seen.
    fn end(self) -> (usize, BTreeMap<String, usize>) {
        let fewest = fewest_requests();
        eventually_within(Duration::from_secs(300), "enough requests", || {
            (self.answered.load(Ordering::Relaxed) >= fewest).then_some(())
        });
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = BTreeMap::new();
        for thread in self.threads {
            for (outcome, count) in thread.join().unwrap() {
                *all.entry(outcome).or_insert(0) += count;
            }
        }
        let answered = all.remove("200").unwrap_or(0);
        say(&format!("{answered} requests answered, others: {all:?}"));
        (answered, all)
    }

    /// Ends it; every request was answered.
    fn end_well(self) {
        let (answered, lost) = self.end();
        assert!(
            answered > THREADS && lost.is_empty(),
            "{answered} answered, lost: {lost:?}"
        );
    }
}

/// A service of Python's server, which starts once `start` succeeds.
fn web(dev: &Dev, start: &str, more: &str) -> String {
    let script = dev.folder().join("server.py");
    fs::write(&script, SERVER).unwrap();
    let command = format!("{start}; exec python3 {}", script.display());
    format!(
        "kind: service\nname: web\nreplicas: 1\ncommand: [sh, -c, '{command}']\nports: [http]\ngrace_period: 1s\n\
         probes: {{readiness: {{tcp: http, period: 1s}}}}\nresources: {{cpu_count: 0.1}}\n\
         rollout: {{max_surge: 1, drain_timeout: 1s}}\n{more}"
    )
}

fn apply(dev: &Dev, document: &str) {
    let file = dev.folder().join("web.yaml");
    fs::write(&file, document).unwrap();
    dev.ok(&["apply", "-f", file.to_str().unwrap()]);
}

/// Ids of the replicas that are ready.
fn ready(dev: &Dev) -> Vec<String> {
    let (status, found) = dev.call("GET", "/v1/endpoints?service=web", None);
    assert_eq!(status, 200, "{found}");
    let items = found["items"].as_array().unwrap().iter();
    items
        .map(|it| it["replica"].as_str().unwrap().to_owned())
        .collect()
}

fn until_ready(dev: &Dev, count: usize) -> Vec<String> {
    eventually(&format!("{count} ready replicas"), || {
        Some(ready(dev)).filter(|found| found.len() == count)
    })
}

/// Waits until the service has no other replicas than the ready ones: what drained has ended.
fn until_settled(dev: &Dev, count: usize) {
    eventually(&format!("{count} replicas in all"), || {
        let (_, service) = dev.call("GET", "/v1/services/web", None);
        let members = service["members"].as_array()?.len();
        (members == count && ready(dev).len() == count).then_some(())
    });
}

fn until_answered(gateway: &Gateway) -> Answer {
    eventually("an answer of a replica", || {
        gateway.get().ok().filter(|it| it.status == 200)
    })
}

#[test]
fn no_request_is_lost_while_replicas_come_and_go() {
    if !has_haproxy() {
        return;
    }
    let dev = Dev::start();
    let gateway = Gateway::start(&dev, "");
    apply(&dev, &web(&dev, "true", ""));
    until_ready(&dev, 1);
    until_answered(&gateway);

    let load = Load::start(gateway.port);
    dev.ok(&["scale", "service", "web", "4"]);
    load.until_answered_by(4);
    dev.ok(&["scale", "service", "web", "1"]);
    until_settled(&dev, 1);
    load.until_answered_by(1);
    load.end_well();

    let load = Load::start(gateway.port);
    let before = until_ready(&dev, 1);
    apply(&dev, &web(&dev, "true", "labels: {v: two}\n"));
    dev.ok(&["rollout", "status", "web", "--timeout", "50s"]);
    until_settled(&dev, 1);
    assert_ne!(ready(&dev), before);
    load.until_answered_by(1);
    load.end_well();

    dev.ok(&["scale", "service", "web", "2"]);
    let replicas = until_ready(&dev, 2);
    let load = Load::start(gateway.port);
    load.until_answered_by(2);
    let killed = dev.processes(&replicas[0]);
    killed.iter().for_each(|pid| kill(*pid, Signal::SIGKILL));
    eventually("another replica", || {
        let now = ready(&dev);
        (now.len() == 2 && now[0] != replicas[0]).then_some(())
    });
    load.until_answered_by(2);
    let (answered, lost) = load.end();
    let under_way: usize = lost.values().sum();
    assert!(
        answered > THREADS && under_way <= THREADS,
        "{answered} answered, lost: {lost:?}"
    );
}

#[test]
fn requests_wait_for_the_first_replica_within_bounds() {
    if !has_haproxy() {
        return;
    }
    let dev = Dev::start();
    let gateway = Gateway::start(&dev, "max_waiting = 2\nwait_limit = \"40s\"\n");
    let go = dev.folder().join("go");
    let start = format!(
        "until test -e {}; do read -t 0.1 _ || sleep 0.1; done",
        go.display()
    );
    apply(&dev, &web(&dev, &start, ""));
    eventually("the gateway to know the service", || {
        let unknown = request(gateway.port, "nobody.example.org", "").ok()?;
        assert!(
            unknown.status == 404 || unknown.status == 503,
            "{unknown:?}"
        );
        let map = fs_map(&gateway.runtime_dir)?;
        map.contains("web slot1/waiting").then_some(())
    });
    let port = gateway.port;
    let body = "x".repeat(2_000_000);
    let waits = ["", &body].map(|body| {
        let body = body.to_owned();
        thread::spawn(move || request(port, "web", &body).unwrap())
    });
    eventually("two requests that wait", || {
        (gateway.waiting() == 2).then_some(())
    });
    let refused = gateway.get().unwrap();
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.head.contains("\r\nretry-after: 5"), "{refused:?}");
    assert!(
        refused.body.contains("too many requests wait"),
        "{refused:?}"
    );
    fs::write(&go, "").unwrap();
    let lengths = waits.map(|wait| {
        let answer = wait.join().unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body.rsplit(' ').next().unwrap().to_owned()
    });
    assert_eq!(lengths, ["0", "2000000"]);
    let unknown = request(port, "nobody.example.org", "").unwrap();
    assert_eq!(unknown.status, 404, "{unknown:?}");
    assert!(
        unknown.body.contains("knows no such service"),
        "{unknown:?}"
    );
}

/// The map of services, as HAProxy has it now.
fn fs_map(runtime_dir: &Path) -> Option<String> {
    let mut socket = UnixStream::connect(runtime_dir.join("haproxy.sock")).ok()?;
    socket.write_all(b"show map services.map\n").ok()?;
    let mut map = String::new();
    socket.read_to_string(&mut map).ok()?;
    Some(map)
}

#[test]
fn nothing_old_is_trusted_after_a_restart() {
    if !has_haproxy() {
        return;
    }
    let dev = Dev::start();
    let mut gateway = Gateway::start(&dev, "");
    apply(&dev, &web(&dev, "true", ""));
    until_answered(&gateway);

    // Nobody says which replicas are ready.
    let coordinator = dev.daemon(Daemon::Coordinator).unwrap();
    kill(coordinator, Signal::SIGSTOP);
    let killed = gateway.haproxy();
    kill(killed, Signal::SIGKILL);
    let refused = eventually("HAProxy to be back", || {
        gateway.get().ok().filter(|it| it.status != 502)
    });
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(
        refused.body.contains("waits for the coordinator"),
        "{refused:?}"
    );
    assert_ne!(gateway.haproxy(), killed);
    kill(coordinator, Signal::SIGCONT);
    until_answered(&gateway);

    // HAProxy ends with a gateway that is killed, and another takes its port and directory.
    let orphan = gateway.haproxy();
    gateway.child.kill().unwrap();
    gateway.child.wait().unwrap();
    eventually("HAProxy to end", || {
        (!sluice_tests::is_alive(orphan)).then_some(())
    });
    assert!(TcpStream::connect(("127.0.0.1", gateway.port)).is_err());
    let next = Gateway::start_at(&dev, gateway.port, gateway.runtime_dir.clone(), "");
    until_answered(&next);

    // A directory and a port have one gateway.
    let second = dev.command(&[
        "gateway",
        "--config",
        dev.folder().join("gateway.toml").to_str().unwrap(),
    ]);
    let refused = run(second);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains("another gateway runs in"),
        "{refused:?}"
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = dev.folder().join("taken.toml");
    let other = dev.folder().join("other");
    fs::write(
        &config,
        format!("bind = [\"127.0.0.1:{port}\"]\nruntime_dir = {other:?}\n"),
    )
    .unwrap();
    let refused = run(dev.command(&["gateway", "--config", config.to_str().unwrap()]));
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.stderr.contains(&format!("127.0.0.1:{port}")),
        "{refused:?}"
    );
}

#[test]
fn a_request_wakes_a_service_by_the_gateway_of_dev() {
    if !has_haproxy() {
        return;
    }
    let dev = Dev::with(DevOptions {
        gateway: true,
        ..DevOptions::default()
    });
    let log = dev.log();
    let (_, address) = log
        .split_once("http://127.0.0.1:")
        .unwrap()
        .1
        .split_once("http://127.0.0.1:")
        .unwrap();
    let port: u16 = address.split(' ').next().unwrap().parse().unwrap();
    let sleeper = web(&dev, "true", "").replace("replicas: 1\n", "").replace(
        "{cpu_count: 0.1}",
        "{cpu_count: 0.1, min_replicas: 0, max_replicas: 2, autoscaling_metric: concurrency, autoscaling_target: 1}",
    );
    apply(&dev, &sleeper);
    until_ready(&dev, 1);
    dev.ok(&["scale", "service", "web", "0"]);
    until_settled(&dev, 0);
    let answer = eventually("the gateway to know the service", || {
        let answer = request(port, "web.localhost", "").ok()?;
        (answer.status != 404 && answer.status != 503).then_some(answer)
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(ready(&dev).len(), 1);
}

#[test]
fn gateways_side_by_side_share_the_replicas_and_add_up_their_load() {
    if !has_haproxy() {
        return;
    }
    let dev = Dev::start();
    let first = Gateway::start(&dev, "name = \"gw-1\"\n");
    let dir = dev.folder().join("gateway-2");
    let second = Gateway::start_at(&dev, free_port(), dir, "name = \"gw-2\"\n");
    let two = |more: &str| web(&dev, "true", more).replace("replicas: 1", "replicas: 2");
    apply(&dev, &two(""));
    until_ready(&dev, 2);
    let gateways = [&first, &second];
    for gateway in gateways {
        until_answered(gateway);
    }
    let loads = gateways.map(|gateway| Load::start(gateway.port));
    loads.iter().for_each(|load| load.until_answered_by(2));
    eventually("the requests of both gateways", || {
        let (_, service) = dev.call("GET", "/v1/services/web", None);
        // Each of them has one request of each of its threads at a time.
        let together = service["requests"]["concurrency"].as_f64()?;
        (together > THREADS as f64).then_some(())
    });
    apply(&dev, &two("labels: {v: two}\n"));
    dev.ok(&["rollout", "status", "web", "--timeout", "50s"]);
    until_settled(&dev, 2);
    loads.iter().for_each(|load| load.until_answered_by(2));
    loads.into_iter().for_each(Load::end_well);
    drop(first);
    assert_eq!(second.get().unwrap().status, 200, "it needs no other");
}

#[test]
fn a_gateway_with_a_certificate_speaks_tls_alone() {
    if !has_haproxy() {
        return;
    }
    let dev = Dev::start();
    let both = dev.folder().join("both.pem");
    let mut openssl = std::process::Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
    ]);
    openssl.args([
        "-addext",
        "subjectAltName=DNS:localhost",
        "-keyout",
        "-",
        "-out",
        "-",
    ]);
    let made = run(openssl);
    assert_eq!(made.code, 0, "{made:?}");
    fs::write(&both, made.stdout).unwrap();
    let gateway = Gateway::start(&dev, &format!("tls_certificate = {both:?}\n"));
    apply(&dev, &web(&dev, "true", ""));
    until_ready(&dev, 1);
    let curl = |scheme: &str| {
        let mut curl = std::process::Command::new("curl");
        let url = format!("{scheme}://localhost:{}/", gateway.port);
        curl.args([
            "-sS",
            "--cacert",
            both.to_str().unwrap(),
            "-H",
            "Sluice-Service: web",
        ]);
        curl.args(["-w", " %{http_version} %{http_code}", &url]);
        run(curl)
    };
    let answer = eventually("an answer over TLS", || {
        Some(curl("https")).filter(|ran| ran.stdout.ends_with(" 200"))
    });
    assert!(answer.stdout.ends_with(" 0 2 200"), "{answer:?}");
    let plain = curl("http");
    assert_ne!(plain.code, 0, "{plain:?}");
}

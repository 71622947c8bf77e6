//! A gateway in front of two hosts, of which one no longer hears anything: requests go on with the other. Needs root, `ip` and
//! HAProxy; says so and passes without them.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;
use sluice_tests::{binaries, eventually, left_out, say};

use crate::gateway::has_haproxy;
use crate::namespaces::Namespaces;

const HOSTS: &[&str] = &["1", "2"];

/// Threads that send requests.
const THREADS: usize = 4;

/// Answers each request with the name of its host, after a moment.
const SERVER: &str = r#"
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.01)
        body = os.environ["SLUICE_NODE"].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["SLUICE_PORT"])), Handler).serve_forever()
"#;

/// Sends requests in several threads until a file is there, and writes down what each got.
const LOAD: &str = r#"
import http.client, os, sys, threading
folder, threads = sys.argv[1], int(sys.argv[2])
def send(out):
    while not os.path.exists(f"{folder}/stop"):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=90)
            connection.request("GET", "/", headers={"Host": "web"})
            answer = connection.getresponse()
            print(answer.status, answer.read().decode(), file=out)
        except Exception as error:
            print("lost", repr(error), file=out)
outs = [open(f"{folder}/load-{n}", "w", 1) for n in range(threads)]
all = [threading.Thread(target=send, args=(out,)) for out in outs]
[it.start() for it in all]
[it.join() for it in all]
open(f"{folder}/over", "w").close()
"#;

/// Number of requests by outcome so far.
fn outcomes(net: &Namespaces) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for thread in 0..THREADS {
        let text = fs::read_to_string(net.path(&format!("load-{thread}"))).unwrap_or_default();
        for line in text.lines() {
            *all.entry(line.to_owned()).or_insert(0) += 1;
        }
    }
    all
}

/// The hosts of the replicas that are ready.
fn endpoints(net: &Namespaces) -> Vec<String> {
    let found: Value =
        serde_json::from_str(&net.sluice(&["get", "endpoints", "-o", "json"])).unwrap();
    let items = found["items"].as_array().unwrap().iter();
    items
        .map(|it| it["node"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn requests_go_on_when_a_host_is_lost() {
    if !Namespaces::can_be_made() {
        left_out("network namespaces need root and `ip`");
        return;
    }
    if !has_haproxy() {
        return;
    }
    let mut net = Namespaces::new("g", HOSTS);
    net.coordinator("");
    for host in HOSTS {
        net.host(host);
        net.node_is(&format!("host-{host}"), "ready");
    }
    let folder = net.path("");
    let folder = folder.to_str().unwrap();
    let text = |name: &str| format!("{folder}{name}");
    fs::write(net.path("server.py"), SERVER).unwrap();
    fs::write(net.path("load.py"), LOAD).unwrap();
    let service = format!(
        "kind: service\nname: web\nreplicas: 2\ncommand: [python3, {}]\nports: [http]\ngrace_period: 1s\n\
         probes: {{readiness: {{tcp: http, period: 1s}}}}\nresources: {{cpu_count: 0.1}}\n",
        text("server.py")
    );
    fs::write(net.path("web.yaml"), service).unwrap();
    net.sluice(&["apply", "-f", &text("web.yaml")]);
    eventually("a replica on each host", || {
        let mut hosts = endpoints(&net);
        hosts.sort();
        (hosts == ["host-1", "host-2"]).then_some(())
    });
    let config = format!(
        "bind = [\"127.0.0.1:8080\"]\nruntime_dir = {:?}\nmax_services = 3\nmax_replicas = 8\n",
        net.path("gateway")
    );
    fs::write(net.path("gateway.toml"), config).unwrap();
    let context = format!("SLUICE_CONTEXT={}", text("context.json"));
    let sluice = binaries().join("sluice");
    let args = [
        &context,
        sluice.to_str().unwrap(),
        "gateway",
        "--config",
        &text("gateway.toml"),
    ];
    net.daemon("c", "/usr/bin/env", &args);
    eventually("HAProxy", || {
        net.path("gateway/haproxy.sock").exists().then_some(())
    });
    let (load, threads) = (text("load.py"), THREADS.to_string());
    net.daemon("c", "/usr/bin/python3", &[&load, folder, &threads]);
    let answered_by = |host: &str| {
        outcomes(&net)
            .get(&format!("200 {host}"))
            .copied()
            .unwrap_or(0)
    };
    eventually("answers of both hosts", || {
        (answered_by("host-1") > 10 && answered_by("host-2") > 10).then_some(())
    });
    net.deafen("1");
    eventually("the endpoint of the lost host to go", || {
        (endpoints(&net) == ["host-2"]).then_some(())
    });
    let before = answered_by("host-2");
    eventually("answers of the other host", || {
        (answered_by("host-2") > before + 200).then_some(())
    });
    fs::write(net.path("stop"), "").unwrap();
    eventually("the last answers", || {
        net.path("over").exists().then_some(())
    });
    let mut all = outcomes(&net);
    all.retain(|outcome, _| !outcome.starts_with("200 "));
    let lost: usize = all.values().sum();
    let answered = answered_by("host-1") + answered_by("host-2");
    say(&format!("{answered} requests answered, others: {all:?}"));
    assert!(lost <= THREADS, "only what was under way there: {all:?}");
}

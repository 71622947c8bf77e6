//! Attacks on live daemons: thousands of connections and streams, huge lengths, halves of messages and then silence,
//! noise. The daemons' memory, processors and descriptors stay bounded, steps go on, and afterwards everything is
//! released. `SLUICE_HOSTILE_LINKS` sets how many links are made with a certificate, each of which costs both sides a
//! handshake.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use sluice_tests::{Cost, Daemon, Dev, cost, eventually, say};
use sluice_transport::{Dialer, Identity, TlsFiles};
use socket2::{Domain, Socket, Type};

/// Most additional memory of a daemon during an attack, and after it.
const MOST_MORE_KIB: u64 = 96 * 1024;

/// Longest time until a silent peer is cut, with some reserve for a busy machine.
const CUT_WITHIN: Duration = Duration::from_secs(55);

/// Checks the resources of a daemon before, during and after an attack.
struct CostWatch<'a> {
    dev: &'a Dev,
    daemon: Daemon,
    what: &'static str,
    before: Cost,
}

impl<'a> CostWatch<'a> {
    fn new(dev: &'a Dev, daemon: Daemon, what: &'static str) -> Self {
        let mut watched = Self {
            dev,
            daemon,
            what,
            before: Cost::default(),
        };
        watched.before = watched.now();
        watched
    }

    fn now(&self) -> Cost {
        let pid = self.dev.daemon(self.daemon).expect("the daemon runs");
        cost(pid).expect("the daemon runs")
    }

    /// Measures it and checks the bound.
    fn look(&self, when: &str) -> Cost {
        let now = self.now();
        say(&format!(
            "{} {when}: {} KiB (before {}), {} descriptors (before {}), {} ms of processors more",
            self.what,
            now.memory_kib,
            self.before.memory_kib,
            now.descriptors,
            self.before.descriptors,
            (now.processor_ticks - self.before.processor_ticks) * 10
        ));
        let most = self.before.memory_kib + MOST_MORE_KIB;
        assert!(now.memory_kib <= most, "{}: {now:?}", self.what);
        now
    }

    /// Checks that descriptors are released.
    fn recovers(&self) {
        eventually("descriptors to be given back", || {
            (self.now().descriptors <= self.before.descriptors + 16).then_some(())
        });
        self.look("after");
    }
}

/// Checks that an old step runs on and new ones run.
fn steps_go_on(dev: &Dev) {
    for n in 0..3 {
        assert_eq!(
            dev.ok(&["run", "--", "echo", &n.to_string()]),
            format!("{n}\n")
        );
    }
    let (_, long) = dev.call("GET", "/v1/steps/long", None);
    assert_eq!(
        (
            long["state"].as_str(),
            long["attempts"].as_array().map(Vec::len)
        ),
        (Some("running"), Some(1))
    );
}

fn dev_with_a_long_step() -> Dev {
    let dev = Dev::start();
    dev.ok(&["submit", "--id", "long", "--", "sleep", "1000"]);
    dev.step_in("long", &["running"]);
    dev
}

/// Connects from an address of the attacker's own: bounds are per address, and honest callers have another.
fn connect_from(from: Ipv4Addr, to: &str) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    let to: SocketAddr = to.parse().expect("an address of a daemon");
    socket.connect_timeout(&to.into(), Duration::from_secs(10))?;
    Ok(socket.into())
}

/// Reads until the other side closes; returns what it sent.
fn until_cut(mut stream: TcpStream, what: &str) -> String {
    stream.set_read_timeout(Some(CUT_WITHIN)).unwrap();
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
            panic!("{what}: it is not cut within {CUT_WITHIN:?}: {error}")
        }
        Ok(_) | Err(_) => String::from_utf8_lossy(&said).into_owned(),
    }
}

const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
fn ten_thousand_connections_of_half_a_call_keep_nobody_from_working() {
    let dev = dev_with_a_long_step();
    let watched = CostWatch::new(&dev, Daemon::Coordinator, "10,000 HTTP connections");
    let mut open = Vec::new();
    let half = format!(
        "POST /v1/steps HTTP/1.1\r\nhost: localhost\r\nx: {}",
        "y".repeat(16_000)
    );
    for n in 0..10_000_u32 {
        // From eight addresses in as many networks.
        let attacker = Ipv4Addr::new(127, 0, 1 + (n % 8) as u8, 2);
        let Ok(mut stream) = connect_from(attacker, &dev.http) else {
            continue;
        };
        let _cut_already = stream.write_all(half.as_bytes());
        open.push(stream);
    }
    assert!(
        open.len() > 9_000,
        "only {} connections were made",
        open.len()
    );
    eventually("connections beyond those that may wait to be cut", || {
        let now = watched.look("while");
        (now.descriptors < watched.before.descriptors + 1_100).then_some(())
    });
    steps_go_on(&dev);
    drop(open);
    watched.recovers();
    steps_go_on(&dev);
}

/// Lists malformed heads and bodies, each with the beginning of its answer, if it must have one.
fn bad_calls() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let post =
        |rest: &str| format!("POST /v1/steps HTTP/1.1\r\nhost: localhost\r\n{rest}").into_bytes();
    let noise: Vec<u8> = (0..100_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    vec![
        ("half a head", b"GET /v1/st".to_vec(), ""),
        (
            "half a body",
            post("content-length: 100\r\n\r\n{\"comm"),
            "HTTP/1.1 4",
        ),
        (
            "4 GiB announced",
            post("content-length: 4294967295\r\n\r\n{"),
            "HTTP/1.1 4",
        ),
        (
            "more than a number",
            post("content-length: 99999999999999999999\r\n\r\n"),
            "HTTP/1.1 4",
        ),
        (
            "a giant chunk",
            post("transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\nabc"),
            "HTTP/1.1 4",
        ),
        ("noise", noise, ""),
        (
            "a preface of HTTP/2 and noise",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x04\0\0\0\0\0".to_vec(),
            "",
        ),
        ("nothing", Vec::new(), ""),
    ]
}

#[test]
fn calls_that_lie_about_their_length_or_stop_halfway_are_cut() {
    let dev = dev_with_a_long_step();
    let watched = CostWatch::new(&dev, Daemon::Coordinator, "bad HTTP calls");
    let address = dev.http.as_str();
    std::thread::scope(|scope| {
        for (what, bytes, answer) in bad_calls() {
            // Several of each: one is an accident.
            for _ in 0..8 {
                let bytes = bytes.clone();
                scope.spawn(move || {
                    let mut stream = connect_from(ATTACKER, address).unwrap();
                    let _cut_already = stream.write_all(&bytes);
                    let said = until_cut(stream, what);
                    assert!(said.starts_with(answer), "{what}: {said:.200}");
                });
            }
        }
        watched.look("while");
        steps_go_on(&dev);
    });
    watched.recovers();
    steps_go_on(&dev);
}

/// Sends datagrams like the beginning of a QUIC connection, from a thousand ports, and some random ones.
#[test]
fn ten_thousand_beginnings_of_links_cost_nothing() {
    let dev = dev_with_a_long_step();
    let watched = CostWatch::new(&dev, Daemon::Coordinator, "10,000 QUIC beginnings");
    let mut packet = vec![0u8; 1200];
    // A long header of version 1 with connection ids of 8 bytes and the length of the rest; the sealed part is noise.
    packet[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
    packet[14] = 8;
    packet[24..26].copy_from_slice(&[0x44, 0x96]);
    for port in 0..1_000_u32 {
        let socket = UdpSocket::bind((ATTACKER, 0)).unwrap();
        for n in 0..10_u32 {
            packet[6..10].copy_from_slice(&port.to_le_bytes());
            packet[10..14].copy_from_slice(&n.to_le_bytes());
            if n == 9 {
                packet[0] = 0x7f;
            }
            let _lost = socket.send_to(&packet, &dev.quic);
            packet[0] = 0xc3;
        }
    }
    watched.look("while");
    steps_go_on(&dev);
    watched.recovers();
}

/// Makes a certificate of a node without a host.
fn identity(dev: &Dev, name: &str) -> Identity {
    let out = dev.folder().join(name);
    let status = std::process::Command::new(sluice_tests::binaries().join("sluice-coordinator"))
        .args(["issue-node", name, "--data-dir"])
        .arg(dev.data().join("coordinator"))
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
    let file = |name: &str| Path::new(&out).join(name);
    Identity::load(&TlsFiles {
        ca: file("ca.pem"),
        cert: file("node.pem"),
        key: file("node.key"),
    })
    .unwrap()
}

/// Returns first packets of links as a dialler sends them, each of another link: caught by a socket that answers
/// nothing.
fn beginnings(dev: &Dev, count: usize) -> Vec<Vec<u8>> {
    let trap = UdpSocket::bind("127.0.0.1:0").unwrap();
    trap.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let at = trap.local_addr().unwrap().to_string();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let identity = identity(dev, "flood");
    let dialer = runtime.block_on(async { Dialer::new(&identity).unwrap() });
    let mut caught = std::collections::BTreeMap::new();
    let mut packet = [0; 2048];
    while caught.len() < count {
        // A few at a time, so that they fit in the socket's buffer.
        for _ in 0..50 {
            let (dialer, at) = (dialer.clone(), at.clone());
            runtime.spawn(async move { dialer.dial(&at).await.map(drop) });
        }
        let wanted = caught.len() + 50;
        while caught.len() < wanted {
            let length = trap.recv(&mut packet).expect("a dialler says something");
            // An Initial of version 1, by the id of its link; a repeat has the same.
            if packet[0] & 0xf0 == 0xc0 && length >= 1200 {
                let name = packet[6..6 + usize::from(packet[5])].to_vec();
                caught
                    .entry(name)
                    .or_insert_with(|| packet[..length].to_vec());
            }
        }
    }
    runtime.shutdown_background();
    caught.into_values().collect()
}

/// Sends real first packets, each of which would cost a handshake: with a false address as well as with a true one.
#[test]
fn three_thousand_real_beginnings_of_links_cost_little_and_keep_no_host_out() {
    let dev = dev_with_a_long_step();
    let packets = beginnings(&dev, 3_000);
    let watched = CostWatch::new(&dev, Daemon::Coordinator, "3,000 real QUIC beginnings");
    let socket = UdpSocket::bind((ATTACKER, 0)).unwrap();
    for (n, packet) in packets.iter().enumerate() {
        let _lost = socket.send_to(packet, &dev.quic);
        if n % 500 == 0 {
            watched.look("while");
        }
    }
    let identity = identity(&dev, "late");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let dialer = Dialer::new(&identity).unwrap();
        dialer
            .dial(&dev.quic)
            .await
            .expect("a host is let in meanwhile");
    });
    let now = watched.look("while a host came");
    let most = watched.before.memory_kib + 32 * 1024;
    assert!(now.memory_kib <= most, "{now:?}");
    steps_go_on(&dev);
    watched.recovers();
}

fn links() -> usize {
    let said = std::env::var("SLUICE_HOSTILE_LINKS").ok();
    said.map_or(200, |text| {
        text.parse().expect("SLUICE_HOSTILE_LINKS is a number")
    })
}

/// Lists what a link sends once it is accepted, and how often it must be cut: at once, or when its silence is over.
fn bad_words() -> Vec<(&'static str, Vec<u8>)> {
    let noise: Vec<u8> = (0..50_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    vec![
        ("4 GiB announced", u32::MAX.to_le_bytes().to_vec()),
        ("noise", noise),
        ("half a frame", vec![0, 1, 0, 0, 7, 7]),
        ("nothing", Vec::new()),
        ("an unknown kind of stream", vec![4, 0, 0, 0, 9, 9, 9, 9]),
    ]
}

/// With a valid certificate, each such link is cut, and honest ones stay.
#[test]
fn links_that_are_let_in_and_then_lie_are_cut() {
    let dev = dev_with_a_long_step();
    // One node may have few links.
    const LINKS_OF_EACH: usize = 8;
    let count = links();
    let names = (0..=count / LINKS_OF_EACH).map(|n| format!("evil-{n}"));
    let evil: Vec<Identity> = names.map(|name| identity(&dev, &name)).collect();
    let greedy = identity(&dev, "greedy");
    let watched = CostWatch::new(&dev, Daemon::Coordinator, "links of members");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let evil: Vec<Dialer> = evil.iter().map(|it| Dialer::new(it).unwrap()).collect();
        let mut cut = tokio::task::JoinSet::new();
        for (n, (what, bytes)) in (0..count).zip(bad_words().into_iter().cycle()) {
            let dialer = &evil[n / LINKS_OF_EACH];
            let connection = dialer.dial(&dev.quic).await.unwrap();
            cut.spawn(async move {
                let stream = connection.open().await;
                if let Ok((mut writer, _reader)) = stream {
                    let _cut_already = writer.send_bytes(&bytes).await;
                    let why = tokio::time::timeout(CUT_WITHIN, connection.closed()).await;
                    let why = why.unwrap_or_else(|_| panic!("link {n}, {what}: it is not cut"));
                    assert!(!why.contains("panic"), "{what}: {why}");
                }
            });
        }
        // One that opens as many streams as it may.
        let dialer = Dialer::new(&greedy).unwrap();
        let greedy = dialer.dial(&dev.quic).await.unwrap();
        let mut streams = Vec::new();
        while streams.len() < 10_000 {
            let opened = tokio::time::timeout(Duration::from_millis(500), greedy.open()).await;
            match opened {
                Ok(Ok(stream)) => streams.push(stream),
                Ok(Err(_)) | Err(_) => break,
            }
        }
        assert!(streams.len() <= 8, "{} streams are open", streams.len());
        watched.look("while");
        tokio::task::block_in_place(|| steps_go_on(&dev));
        while let Some(ended) = cut.join_next().await {
            ended.unwrap();
        }
    });
    watched.recovers();
    steps_go_on(&dev);
    let (_, nodes) = dev.call("GET", "/v1/nodes", None);
    let nodes = nodes["items"].as_array().unwrap();
    assert_eq!(nodes.len(), 1, "nobody was taken for a host");
    assert_eq!(nodes[0]["state"], "ready");
}

/// Hangs up in the middle of answers, a thousand times.
#[test]
fn callers_that_hang_up_cost_nothing() {
    let dev = dev_with_a_long_step();
    let watched = CostWatch::new(&dev, Daemon::Coordinator, "1,000 callers that hang up");
    let token = dev.token();
    for n in 0..1_000 {
        let Ok(mut stream) = connect_from(ATTACKER, &dev.http) else {
            continue;
        };
        let path = match n % 3 {
            0 => "/v1/events?follow=true",
            1 => "/v1/steps/long/logs?follow=true",
            _ => "/openapi.json",
        };
        let call = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        let _cut_already = stream.write_all(call.as_bytes());
        if n % 2 == 0 {
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }
    watched.look("while");
    steps_go_on(&dev);
    watched.recovers();
}

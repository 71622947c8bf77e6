//! Peers that violate the protocol, or are not the agent.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use sluice_codec::frame;
use sluice_common::supervision::{Exit, MAX_SUPERVISION_FRAME_BYTES, ToSupervisor};

use crate::client::{DEADLINE, sh};
use crate::host::{Host, open_files, until};

fn still_works(host: &Host, id: &str) {
    assert_eq!(host.client().run(&sh(id, "exit 3")), Exit::Code(3));
}

/// Sends bytes and reads until the supervisor closes the connection.
fn is_dropped_after(socket: &Path, bytes: &[u8]) -> bool {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // The connection may be closed before all bytes are written.
    let _ = stream.write_all(bytes);
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(e) => e.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn garbage_and_giant_lengths_end_the_connection_and_nothing_else() {
    let host = Host::start();
    let noise: Vec<u8> = (0..100_000_u32).map(|n| ((n * 7919) >> 3) as u8).collect();
    let mut unknown = 4_u32.to_le_bytes().to_vec();
    unknown.extend([0xff; 4]);
    let mut lying = 64_u32.to_le_bytes().to_vec();
    lying.extend([0; 64]);
    for (n, bytes) in [
        &noise[..],
        &(1_u32 << 30).to_le_bytes(),
        &u32::MAX.to_le_bytes(),
        &unknown,
        &lying,
        &0_u32.to_le_bytes(),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(is_dropped_after(&host.socket(), bytes), "case {n}");
        still_works(&host, &format!("after.{}", n + 1));
    }
    until("it says so", || {
        host.log.lock().unwrap().contains("broke the protocol")
    });
    let log = host.log.lock().unwrap();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn an_id_that_would_climb_out_of_the_directory_is_no_message() {
    let host = Host::start();
    let good = frame(&ToSupervisor::Spawn(sh("climb-climb.1", "true")), 1 << 20).unwrap();
    let at = good.windows(11).position(|w| w == b"climb-climb").unwrap();
    let mut bad = good;
    bad[at..at + 11].copy_from_slice(b"../../climb");
    assert!(is_dropped_after(&host.socket(), &bad));
    still_works(&host, "after.1");
}

#[test]
fn half_a_message_is_waited_for_and_does_not_hold_anybody() {
    let host = Host::start();
    let whole = frame(&ToSupervisor::Spawn(sh("half.1", "exit 0")), 1 << 20).unwrap();
    let mut slow = UnixStream::connect(host.socket()).unwrap();
    slow.write_all(&whole[..whole.len() / 2]).unwrap();
    still_works(&host, "after.1");
    drop(slow);
    let mut client = host.client();
    assert!(!client.list().contains_key(&"half.1".parse().unwrap()));
}

#[test]
fn a_newer_agent_replaces_the_older() {
    let host = Host::start();
    let mut old = host.client();
    let mut new = host.client();
    assert!(old.is_dropped());
    assert_eq!(new.run(&sh("new.1", "exit 1")), Exit::Code(1));
}

#[test]
fn another_user_is_refused_and_the_configured_one_is_not() {
    if !crate::left_out::needs_root() {
        // Only root can become another user.
        return;
    }
    let host = Host::start_under(
        "agent_uid = 1234\ndefault_user = 0\nallow_root = true\n",
        &[],
    );
    let found = fs::metadata(host.socket()).unwrap();
    assert_eq!((found.mode() & 0o777, found.uid()), (0o600, 1234));

    let said = as_user(1234, host.socket());
    assert!(said.is_ok_and(|bytes| bytes > 0), "the agent is greeted");
    assert!(
        as_user(4321, host.socket()).is_err(),
        "the file keeps others out"
    );
    fs::set_permissions(host.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    let said = as_user(4321, host.socket());
    assert_eq!(
        said.unwrap(),
        0,
        "without the file's help, the supervisor does"
    );
    until("it says so", || {
        host.log.lock().unwrap().contains("uid=4321")
    });

    assert_eq!(
        host.client().run(&sh("mine.1", "echo hello")),
        Exit::Code(0)
    );
    let output = fs::metadata(host.attempt_dir(&"mine.1").join("stdout")).unwrap();
    assert_eq!(output.uid(), 1234, "the agent can read what it serves");
}

/// Connects as another user; returns the number of bytes received before the end or a moment without any.
fn as_user(uid: libc::uid_t, socket: std::path::PathBuf) -> std::io::Result<usize> {
    std::thread::spawn(move || {
        become_user(uid);
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.read(&mut [0; 4096])
    })
    .join()
    .unwrap()
}

#[expect(
    unsafe_code,
    reason = "the C library changes all threads; only the raw call changes one"
)]
fn become_user(uid: libc::uid_t) {
    // SAFETY: the call takes three integers and changes only the calling thread, which ends soon.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
    assert_eq!(done, 0);
}

/// Private memory of a process, in KiB.
fn own_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let own = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let own = own.unwrap().trim().trim_end_matches(" kB");
    own.parse().unwrap()
}

#[test]
fn ten_thousand_connections_and_halves_of_large_messages_cost_nothing() {
    let host = Host::start();
    let mut client = host.client();
    let long = sh("long.1", "exec sleep 1000");
    client.spawn(&long);
    let process = client.wait_running(&long.attempt);
    let (memory, files) = (own_memory(host.pid()), open_files(host.pid()));
    let largest = u32::try_from(MAX_SUPERVISION_FRAME_BYTES).unwrap();
    let half = vec![7; MAX_SUPERVISION_FRAME_BYTES / 2];
    let mut last = None;
    for n in 0..10_000_u32 {
        let mut stream = UnixStream::connect(host.socket()).unwrap();
        if n % 100 == 0 {
            // The connection may be closed before all bytes are written, because a newer one replaces it.
            let _ = stream.write_all(&largest.to_le_bytes());
            let _ = stream.write_all(&half);
        }
        last = Some(stream);
    }
    assert!(
        open_files(host.pid()) <= files + 8,
        "{}",
        open_files(host.pid())
    );
    drop(last);
    still_works(&host, "after.1");
    let grown = own_memory(host.pid()).saturating_sub(memory);
    assert!(grown < 32 * 1024, "{grown} KiB more");
    let mut client = host.client();
    assert!(client.list().contains_key(&long.attempt));
    assert!(crate::host::lives(process.pid));
}

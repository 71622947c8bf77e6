//! Limits of links, with reasons, and the QUIC configuration.

use std::sync::Arc;
use std::time::Duration;

use quinn::{IdleTimeout, TransportConfig, VarInt};

/// Silence after which a link is closed. Longer than the coordinator's limit for silent nodes (15 s), so that
/// heartbeats decide and this only cleans up.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(20);

/// Time between keep-alive packets on an idle link: three may be lost before the link is closed, and NAT entries stay
/// alive (they expire after 30 s).
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Time limit for dialling or a handshake. One takes a few round trips; a lost packet costs about a second.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// Delay between attempts on the addresses of one host name, so that a dead one does not delay a live one.
pub(crate) const STAGGER: Duration = Duration::from_millis(250);

/// Most addresses of one host name that are tried.
pub(crate) const MAX_ADDRESSES: usize = 8;

/// Most streams that an agent may have open at once: control, heartbeat, and some reserve.
const STREAMS_FROM_AGENT: u32 = 8;

/// Most streams that the coordinator may have open to one agent: one per transfer of output. Two per `sluice run` on a
/// host of 256 cores, four times over. Further requests wait.
const STREAMS_FROM_COORDINATOR: u32 = 2048;

/// One-way streams to the agent: the one that announces admission.
const ADMISSIONS: u32 = 1;

/// Most unread bytes of one stream. Bounds the memory for a slow reader and the throughput per stream: 50 MB/s at 20 ms
/// round trip. There is no limit over all streams of a link, because unread output must not block a heartbeat.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// Most unacknowledged bytes of one link.
const SEND_WINDOW: u64 = 8 * 1024 * 1024;

/// Most first packets waiting for the gate, which takes microseconds each. After a coordinator's restart all hosts may
/// dial at once; those turned away retry.
pub(crate) const MAX_WAITING_HANDSHAKES: usize = 4 * 1024;

/// Most bytes that one waiting handshake may hold; its first flight takes a few thousand.
pub(crate) const WAITING_HANDSHAKE_BYTES: u64 = 64 * 1024;

/// Most bytes that all waiting handshakes may hold.
pub(crate) const WAITING_BYTES: u64 = 16 * 1024 * 1024;

/// Time between two stateless resets. Each is smaller than its cause and costs microseconds; ten thousand agents must
/// get theirs within seconds of a coordinator's restart.
pub(crate) const RESET_INTERVAL: Duration = Duration::from_millis(1);

/// Requested socket buffer in bytes, subject to the kernel's limit. The default of about 200 kB overflows when many
/// agents report at once.
pub(crate) const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Longest close reason that is sent or shown, in bytes or characters.
pub(crate) const MAX_REASON: usize = 300;

/// Most bytes read from a stream at once.
pub(crate) const READ_CHUNK_BYTES: usize = 64 * 1024;

/// QUIC configuration of the listening side.
pub(crate) fn listening() -> Arc<TransportConfig> {
    let mut config = common();
    config.max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_FROM_AGENT));
    config.max_concurrent_uni_streams(VarInt::from_u32(0));
    Arc::new(config)
}

/// QUIC configuration of the dialling side, which also sends keep-alives.
pub(crate) fn dialling() -> Arc<TransportConfig> {
    let mut config = common();
    config.max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_FROM_COORDINATOR));
    config.max_concurrent_uni_streams(VarInt::from_u32(ADMISSIONS));
    config.keep_alive_interval(Some(KEEP_ALIVE));
    Arc::new(config)
}

fn common() -> TransportConfig {
    let idle = IdleTimeout::try_from(IDLE_LIMIT).expect("the idle limit is short");
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(Some(idle))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::MAX)
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None);
    config
}

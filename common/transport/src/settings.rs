//! Every bound of a link, with its reason, and how QUIC is told of them.

use std::sync::Arc;
use std::time::Duration;

use quinn::{IdleTimeout, TransportConfig, VarInt};

/// Silence after which a link is dead. Longer than the coordinator's own patience with a silent node (15 s), so that
/// heartbeats decide what a silence means and this only clears away what is left.
pub(crate) const IDLE_LIMIT: Duration = Duration::from_secs(20);

/// Between two signs of life on a link where nothing else is said: three may be lost before it counts as dead, and
/// address translators on the way keep their entry (they forget after 30 s).
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// How long dialling or a handshake may take. One takes a few round trips; a lost packet costs about a second.
pub(crate) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// Between the tries of two addresses of one host name, so that a dead one does not hold up a living one.
pub(crate) const STAGGER: Duration = Duration::from_millis(250);

/// Addresses of one host name that are tried.
pub(crate) const MAX_ADDRESSES: usize = 8;

/// Streams that an agent may have open at once: control, heartbeat, and room for what may come.
const STREAMS_FROM_AGENT: u32 = 8;

/// Streams that the coordinator may have open at once to one agent: one for each transfer of output. Two for each
/// `sluice run` on a host of 256 cores, four times over. Whoever asks beyond waits for another to end.
const STREAMS_FROM_COORDINATOR: u32 = 2048;

/// One-way streams to the agent: the one that says that it is let in.
const ADMISSIONS: u32 = 1;

/// Bytes that one stream may hold unread. It bounds what a slow reader costs; as much again for each round trip is the
/// most that one transfer of output gets, 50 MB/s over 20 ms. There is no bound over all streams of a link, because
/// output that nobody reads must not hold up a heartbeat: streams times this is the bound.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// Bytes that one link may have sent and not seen acknowledged.
const SEND_WINDOW: u64 = 8 * 1024 * 1024;

/// First packets that may wait for the gate, which looks at each in microseconds. Every host of the largest cluster may
/// dial at once after a coordinator's restart; who is turned away tries again.
pub(crate) const MAX_WAITING_HANDSHAKES: usize = 4 * 1024;

/// Bytes that one waiting handshake may hold; its first flight takes a few thousand.
pub(crate) const WAITING_HANDSHAKE_BYTES: u64 = 64 * 1024;

/// Bytes that all waiting handshakes may hold.
pub(crate) const WAITING_BYTES: u64 = 16 * 1024 * 1024;

/// Between two answers to packets of links that an earlier process had. Each is smaller than what it answers and costs
/// microseconds; ten thousand agents must hear theirs within seconds of a coordinator's restart.
pub(crate) const RESET_INTERVAL: Duration = Duration::from_millis(1);

/// What the kernel is asked to hold for us while we are busy, in bytes; it gives what its own limit allows. Its
/// default of about 200 kB overflows when many agents report at once.
pub(crate) const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Longest reason for a close that is sent or shown, in bytes or characters.
pub(crate) const MAX_REASON: usize = 300;

/// Bytes that are taken from a stream at once.
pub(crate) const READ_CHUNK_BYTES: usize = 64 * 1024;

/// For the side that listens.
pub(crate) fn listening() -> Arc<TransportConfig> {
    let mut config = common();
    config.max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_FROM_AGENT));
    config.max_concurrent_uni_streams(VarInt::from_u32(0));
    Arc::new(config)
}

/// For the side that dials, which also keeps the link alive: one side is enough.
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

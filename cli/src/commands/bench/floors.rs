//! Measures what this machine needs for the parts of a step without Sluice: a durable write, a start of a process, a
//! round trip.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::samples::{Measurement, Samples, timed};

/// Bytes of one record of a step in the coordinator's store, roughly.
const RECORD_BYTES: usize = 200;
/// Time for which processes are started for the rate.
const SPAWN_TIME: Duration = Duration::from_secs(1);

/// The floors of this machine, as rows and as what others are compared with. Times in microseconds.
#[derive(Debug)]
pub(super) struct Floors {
    pub(super) rows: Vec<Measurement>,
    pub(super) write_us: Option<f64>,
    pub(super) spawn_us: Option<f64>,
    pub(super) round_trip_us: Option<f64>,
    pub(super) spawns_per_second: Option<f64>,
}

impl Floors {
    /// Measures each floor `rounds` times.
    ///
    /// # Errors
    /// If this machine cannot write a file, start a process or connect to itself.
    pub(super) fn measure(rounds: u32) -> io::Result<Self> {
        let write = Measurement::of_times("append and fdatasync of 200 bytes", &writes(rounds)?);
        let spawn = Measurement::of_times("start and end of /bin/true", &spawns(rounds)?);
        let trip = Measurement::of_times("round trip on loopback", &round_trips(rounds)?);
        let rate = spawn_rate()?;
        Ok(Self {
            write_us: write.median_us,
            spawn_us: spawn.median_us,
            round_trip_us: trip.median_us,
            spawns_per_second: rate.per_second,
            rows: vec![write, spawn, trip, rate],
        })
    }

    /// The least that a submit needs until its step's first instruction: a durable write, a start and two round trips.
    pub(super) fn submit_us(&self) -> Option<f64> {
        Some(self.write_us? + self.spawn_us? + 2.0 * self.round_trip_us?)
    }
}

fn writes(rounds: u32) -> io::Result<Samples> {
    let mut file = tempfile::tempfile()?;
    let mut append = || -> io::Result<()> {
        file.write_all(&[7; RECORD_BYTES])?;
        File::sync_data(&file)
    };
    sample(rounds, &mut append)
}

fn spawns(rounds: u32) -> io::Result<Samples> {
    sample(rounds, &mut start_and_end)
}

fn start_and_end() -> io::Result<()> {
    let mut program = Command::new("/bin/true");
    program.stdin(Stdio::null());
    let status = program.status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("/bin/true ended with {status}"))),
    }
}

fn round_trips(rounds: u32) -> io::Result<Samples> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    client.set_nodelay(true)?;
    let (mut server, _) = listener.accept()?;
    server.set_nodelay(true)?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while server.read_exact(&mut byte).is_ok() && server.write_all(&byte).is_ok() {}
    });
    let mut trip = || -> io::Result<()> {
        client.write_all(&[7])?;
        client.read_exact(&mut [0])
    };
    let samples = sample(rounds, &mut trip);
    drop(client);
    // It ends because the connection has.
    let _ = echo.join();
    samples
}

fn spawn_rate() -> io::Result<Measurement> {
    let threads = thread::available_parallelism()?.get();
    let started = AtomicUsize::new(0);
    let begin = Instant::now();
    let work = || -> io::Result<()> {
        while begin.elapsed() < SPAWN_TIME {
            start_and_end()?;
            started.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(io::Error::other("a thread has crashed")))
        })
    })?;
    let started = started.into_inner();
    Ok(Measurement::of_rate(
        format!("starts of /bin/true by {threads} threads"),
        started,
        begin.elapsed(),
    ))
}

fn sample(rounds: u32, work: &mut dyn FnMut() -> io::Result<()>) -> io::Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..rounds {
        samples.push(timed(&mut *work)?.1);
    }
    Ok(samples)
}

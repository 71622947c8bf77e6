//! Programs that write far more output than is kept: the disk holds no more than the bound plus the output
//! between two checks, the newest part keeps its offsets, and the dropped part is reported.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use sluice_common::output::{MARK_BYTES, MARKS_FILE, read_mark};
use sluice_common::supervision::Exit;
use sluice_common::wire::LogStream;

use crate::client::spec;
use crate::host::{Host, until};
use crate::zoo::marked;

const MIB: u64 = 1 << 20;

/// Bytes of a stream that are kept.
const KEPT: u64 = 8 * MIB;

/// Bytes that are written before a pause until the oldest part is dropped.
const CHUNK: u64 = 64 * MIB;

/// A file system may use slightly more space than a file's length.
const SLACK: u64 = MIB;

/// Length of every line. A line begins with its number, so any part shows its offset.
const LINE: u64 = 1024;

/// Bytes to write, from `SLUICE_FLOOD_MIB`. The default covers two checks.
fn flood() -> u64 {
    let asked = std::env::var("SLUICE_FLOOD_MIB").ok();
    asked.map_or(128, |text| text.parse().unwrap()) * MIB
}

/// A script that writes so many bytes, waits after each chunk until little of it is on disk, and records the
/// maximum.
fn script(bytes: u64) -> String {
    let (lines, chunk, calm) = (bytes / LINE, CHUNK / LINE, KEPT + SLACK);
    let pad = "x".repeat(100);
    format!(
        "$| = 0; $most = 0; $pad = substr('{pad}' x 11, 0, {LINE} - 17); \
         for ($n = 0; $n < {lines}; $n++) {{ \
           printf('%015d %s' . \"\\n\", $n, $pad); \
           next if ($n + 1) % {chunk}; \
           $| = 1; $| = 0; \
           for (;;) {{ $held = (stat STDOUT)[12] * 512; $most = $held if $held > $most; last if $held <= {calm}; select undef, undef, undef, 0.01 }} \
         }} \
         print STDERR \"$most\\n\""
    )
}

#[test]
fn of_a_flood_the_newest_part_is_kept_where_it_was_written() {
    let config = format!(
        "default_user = 0\nallow_root = true\noutput_max = \"{}MiB\"\n",
        KEPT / MIB
    );
    let host = Host::start_under(&config, &[]);
    let mut client = host.client();
    let flood = flood();
    let spec = spec("flood.1", &["perl", "-e", &script(flood)]);
    client.spawn(&spec);
    // The script's waits end only when old output was dropped.
    until("it has written all", || {
        fs::metadata(host.attempt_dir(&spec.attempt).join("stderr")).is_ok_and(|it| it.len() > 0)
    });
    assert_eq!(client.wait_gone(&spec.attempt).exit, Exit::Code(0));
    until("its groups are gone", || host.groups().is_empty());
    assert_eq!(marked(&spec.attempt), 0);

    let dir = host.attempt_dir(&spec.attempt);
    let stdout = File::open(dir.join("stdout")).unwrap();
    let held = || stdout.metadata().unwrap().blocks() * 512;
    until("the last look was taken", || held() <= KEPT + SLACK);
    assert_eq!(stdout.metadata().unwrap().len(), flood, "offsets stay");
    let most: u64 = host.output(&spec.attempt, "stderr").trim().parse().unwrap();
    assert!(most <= KEPT + CHUNK + 2 * SLACK, "{most} bytes on the disk");

    let marks = fs::read(dir.join(MARKS_FILE)).unwrap();
    let at = usize::try_from(LogStream::Stdout.mark_at()).unwrap();
    let first_kept = read_mark(marks[at..at + MARK_BYTES].try_into().unwrap()).unwrap();
    assert!(
        (flood - KEPT - SLACK..=flood - KEPT).contains(&first_kept),
        "{first_kept} of {flood} dropped"
    );
    for n in first_kept.div_ceil(LINE)..flood / LINE {
        let mut line = [0; LINE as usize];
        stdout.read_exact_at(&mut line, n * LINE).unwrap();
        let number = std::str::from_utf8(&line[..15]).unwrap();
        assert_eq!(number.parse(), Ok(n));
        assert_eq!(line.last(), Some(&b'\n'));
    }
}

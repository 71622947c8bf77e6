//! Fuzz targets for files that the supervisor reads: its spool, and the handover of an older supervisor.
//! `fuzz/host.rs` covers what the host says, `sluice-codec` the messages of the socket.

mod host;

use std::fs::{self, File};
use std::os::fd::IntoRawFd;

use sluice_common::id::{AttemptId, BootId};
use sluice_fuzz::{Fuzz, place_for_files};

use crate::handover::Handover;
use crate::spool::{Record, Spool};

const SPOOL_WORDS: &[&str] = &[
    "\"attempt\":",
    "\"boot_id\":",
    "\"memo\":",
    "\"phase\":",
    "\"ended\":",
    "\"running\":",
    "\"gone\":",
    "\"process\":",
    "\"pid\":",
    "\"start_ticks\":",
    "\"exit\":",
    "\"lease\":",
    "\"until\":",
    "\"a.1\"",
    "\"hook_words\":",
];

/// A record file is parsed and written back unchanged, or set aside under the attempt's name.
#[test]
fn spool_files() {
    let dir = tempfile::tempdir_in(place_for_files()).unwrap();
    let spool = Spool::open(dir.path()).unwrap();
    let place = dir.path().join("spool");
    let attempt: AttemptId = "a.1".parse().unwrap();
    let boot = BootId::new("boot").unwrap();
    Fuzz::new("spool").words(SPOOL_WORDS).run(|input| {
        fs::write(place.join("renewal.json"), input).unwrap();
        let _until = spool.load_renewal(&boot);
        fs::write(place.join("a.1.json"), input).unwrap();
        let loaded = spool.load().unwrap();
        match &loaded.records[..] {
            [record] => is_kept(&spool, record),
            _ => assert_eq!(loaded.damaged, std::slice::from_ref(&attempt)),
        }
        spool.remove(&attempt).unwrap();
    });
}

fn is_kept(spool: &Spool, record: &Record) {
    assert_eq!(record.attempt.to_string(), "a.1");
    spool.save(record).unwrap();
    assert_eq!(spool.load().unwrap().records, std::slice::from_ref(record));
}

#[test]
fn handovers() {
    let words = [
        "\"format\":1",
        "\"lock\":",
        "\"listener\":",
        "\"children\":[",
        "\"attempt\":\"a.1\"",
        "\"report\":",
        "\"pipe\":",
        "\"killing\":",
        "\"seen\":",
        "\"epilogs\":",
    ];
    let dir = tempfile::tempdir_in(place_for_files()).unwrap();
    let path = dir.path().join("left");
    Fuzz::new("handover").words(&words).run(|input| {
        fs::write(&path, input).unwrap();
        let left = File::open(&path).unwrap().into_raw_fd();
        if let Ok(handover) = Handover::read(left) {
            let again = handover.write().unwrap().into_raw_fd();
            assert_eq!(Handover::read(again).unwrap(), handover);
        }
    });
}

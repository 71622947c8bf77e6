//! Fuzz tests of users' files: contexts, and scenarios for the simulator.

use std::fs;

use sluice_fuzz::{Fuzz, place_for_files};

use super::said;
use crate::client::Client;
use crate::context::{self, Context};
use crate::out::harmless;
use crate::simulate;

/// Checks that a context makes a client or is rejected with its path.
#[test]
fn contexts() {
    let words = [
        "\"http\":\"https://[::1]:8443\"",
        "\"http\":\"http://127.0.0.1:8443/\"",
        "\"token\":\"a\"",
        "\"ca\":\"ca.pem\"",
        "\"cert\":\"ca.pem\"",
        "\"key\":\"ca.pem\"",
        "\"subject\":",
        "\"dev_pid\":1",
        "\"dev_start_ticks\":",
        "\"context.json\"",
    ];
    let dir = tempfile::tempdir_in(place_for_files()).unwrap();
    let path = dir.path().join("context.json");
    Fuzz::new("context")
        .words(&words)
        .memory(4 << 20, 4096)
        .run(|input| {
            fs::write(&path, input).unwrap();
            let file = match context::read(&path) {
                Ok(file) => file,
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        error.contains("context.json"),
                        "it names a place: {error:?}"
                    );
                    assert!(!harmless(&error).contains('\u{1b}'));
                    return;
                }
            };
            assert!(file.http.contains(file.authority()));
            assert!(file.http.contains(file.host()));
            let path = path.clone();
            let context = Context { path, file };
            let _alive = context.check_alive();
            // A named file may be an endless device, or too large for the bound.
            let own = |file: &Option<std::path::PathBuf>| {
                file.as_ref().is_none_or(|file| {
                    let full = context.beside(file);
                    full.starts_with(dir.path()) && !file.to_string_lossy().contains("..")
                })
            };
            if [&context.file.ca, &context.file.cert, &context.file.key]
                .into_iter()
                .all(own)
            {
                let _made = Client::new(context);
            }
        });
}

/// Checks that a scenario is parsed or rejected with its location.
#[test]
fn scenarios() {
    let words = [
        "\"id\":\"a\"",
        "\"pools\":[",
        "\"nodes\":[",
        "\"policies\":[",
        "\"events\":[",
        "\"op\":\"submit\"",
        "\"op\":\"advance\"",
        "\"expected_any_of\":[",
        "\"capacity\":{",
        "\"sumbit\"",
    ];
    Fuzz::new("scenario-file")
        .words(&words)
        .memory(4 << 20, 4096)
        .run(|input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return;
            };
            if let Err(failure) = simulate::cases_in("s.json", text) {
                let said = said(failure);
                assert!(said.starts_with("s.json"), "it names a place: {said:?}");
                assert!(said.len() < 20_000 + 16 * text.len());
            }
        });
}

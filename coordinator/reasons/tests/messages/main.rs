//! Every sentence that `messages` can make, with plain example values, in one file that a reviewer reads:
//! `tests/messages.txt`.
//!
//! The examples of an enum are a chain: each variant names the examples of the next one in a `match` without a wildcard,
//! so a new variant does not compile before it has an example.

mod cause;
mod explanation;
mod refusal;
mod rejection;
mod wait;

use std::fmt::Write;
use std::path::Path;

use sluice_common::reason::Reason;

/// All examples of a chain; `next` returns those that follow an example, and none after the last.
fn chain<T>(next: impl Fn(Option<&T>) -> Vec<T>) -> Vec<T> {
    let mut all = Vec::new();
    loop {
        let more = next(all.last());
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

/// Parses a name.
fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("a well-formed name")
}

/// The text of the golden file.
#[derive(Default)]
struct Page(String);

impl Page {
    fn heading(&mut self, text: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        writeln!(self.0, "{gap}# {text}").expect("a string takes all");
    }

    fn line(&mut self, message: &str) {
        writeln!(self.0, "{message}").expect("a string takes all");
    }

    fn reason(&mut self, reason: &Reason) {
        self.line(&format!("{}: {}", reason.code, reason.message));
    }
}

#[test]
fn every_message_reads_as_the_golden_file_says() {
    let mut page = Page::default();
    cause::write(&mut page);
    wait::write(&mut page);
    rejection::write(&mut page);
    explanation::write(&mut page);
    refusal::write(&mut page);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages.txt");
    if std::env::var_os("SLUICE_RENEW_GOLDEN").is_some() {
        std::fs::write(&path, &page.0).expect("the file can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines = golden.lines().zip(page.0.lines());
    if golden == page.0 {
        return;
    }
    let first = lines.find(|(old, new)| old != new);
    panic!(
        "messages differ from {}, first here: {first:#?}\n\
         read the new sentences, then renew the file:\n\
         SLUICE_RENEW_GOLDEN=1 cargo test -p sluice-reasons --test messages",
        path.display()
    );
}

/// A resource key.
fn key(text: &str) -> sluice_common::amount::ResourceKey {
    sluice_common::amount::ResourceKey::new(text).expect("a well-formed key")
}

//! `docs/reference/`: each key of the daemons' configs. Keys, texts and examples are those of the files in
//! `packaging/config`, which must have each field of the types that the files are read into; defaults are what
//! `--check-config` prints for a file that sets nothing. `SLUICE_PAGES=write` writes the pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_tests::binaries;

/// A daemon and its config.
struct DaemonConfig {
    name: &'static str,
    /// The readers of the page.
    about: &'static str,
    /// The smallest valid file.
    least: &'static str,
    /// The type of each section, and the file that has it.
    types: &'static [(&'static str, &'static str, &'static str)],
}

const DAEMONS: [DaemonConfig; 3] = [
    DaemonConfig {
        name: "coordinator",
        about: "Every key of `/etc/sluice/coordinator.toml`, for whoever runs the coordinator. Flags go before variables (`SLUICE_*`, see `sluice-coordinator --help`), and these before the file. [Reload](../operations.md#reload) says which keys take effect when.",
        least: "",
        types: &[
            ("", "coordinator/src/config.rs", "RawConfig"),
            ("tls", "coordinator/src/config.rs", "RawTls"),
            (
                "http_tls",
                "coordinator/src/config/http_tls.rs",
                "RawHttpTls",
            ),
            ("oidc", "coordinator/src/config/oidc.rs", "RawOidc"),
        ],
    },
    DaemonConfig {
        name: "agent",
        about: "Every key of `/etc/sluice/agent.toml`, for whoever runs a host. Flags and variables go before the file. [Reload](../operations.md#reload) says which keys take effect when.",
        least: "node = \"n\"\ncoordinators = [\"c:1\"]\n[tls]\nca = \"/a\"\ncert = \"/b\"\nkey = \"/c\"\n",
        types: &[
            ("", "agent/src/config.rs", "RawConfig"),
            ("reserve", "agent/src/config.rs", "RawReserve"),
            ("tls", "agent/src/config.rs", "RawTls"),
        ],
    },
    DaemonConfig {
        name: "supervisor",
        about: "Every key of `/etc/sluice/supervisor.toml`, for whoever runs a host. All of them take effect at a reload. [A host](../host.md) explains users, storage and leases at length.",
        least: "",
        types: &[
            ("", "agent/helper/src/config.rs", "RawConfig"),
            ("hooks", "agent/helper/src/config.rs", "RawHooks"),
        ],
    },
];

/// Keys that stay for older files.
const OLDER: [&str; 1] = ["agent_uid"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A comment of the file and the keys below it.
#[derive(Debug, Default)]
struct Entry {
    section: String,
    text: Vec<String>,
    /// Each key with what stands behind it.
    keys: Vec<(String, String)>,
    /// Whether the keys are set, and not only shown in comments.
    is_set: bool,
}

impl Entry {
    /// Whether what stands behind the keys is what holds unless they are set.
    fn shows_defaults(&self, section: &str) -> bool {
        let text = self.text.join(" ");
        !self.is_set && !text.ends_with("An example:") && !section.ends_with("are examples.")
    }
}

/// A line that sets a key, or shows how.
fn key_of(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once(" = ")?;
    let is_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    key.chars()
        .all(is_key)
        .then(|| (key.to_owned(), value.trim().to_owned()))
}

/// The file in its entries; the first is what it says of itself.
fn entries(text: &str) -> Vec<Entry> {
    let mut found = vec![Entry::default()];
    let mut section = String::new();
    for line in text.lines() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let header = bare.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let last = found.last_mut().expect("there is always one");
        if line.is_empty() {
            found.push(Entry::default());
        } else if let Some(header) = header {
            section = header.to_owned();
            last.section.clone_from(&section);
            found.push(Entry::default());
        } else if let Some((key, value)) = key_of(bare) {
            let (value, remark) = value.split_once(" # ").unwrap_or((&value, ""));
            last.section.clone_from(&section);
            last.is_set = !line.starts_with('#');
            last.keys.push((key, value.trim().to_owned()));
            last.text
                .extend((!remark.is_empty()).then(|| remark.to_owned()));
        } else if last.keys.is_empty() {
            last.text.push(bare.to_owned());
        } else {
            found.push(Entry {
                text: vec![bare.to_owned()],
                ..Entry::default()
            });
        }
    }
    found.retain(|entry| !entry.text.is_empty() || !entry.keys.is_empty());
    found
}

/// Default values by `section.key`.
fn defaults(daemon: &DaemonConfig) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("least.toml");
    fs::write(&file, daemon.least).unwrap();
    let program = binaries().join(format!("sluice-{}", daemon.name));
    let mut command = Command::new(program);
    command.args(["--check-config", "--config"]).arg(&file);
    if daemon.name == "coordinator" {
        command.arg("--data-dir").arg(folder.path());
    }
    let variables = std::env::vars_os().map(|(name, _)| name);
    for name in variables.filter(|name| name.to_string_lossy().starts_with("SLUICE_")) {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut section = String::new();
    let mut found = BTreeMap::new();
    for line in printed.lines() {
        if let Some(header) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            section = format!("{header}.");
        } else if let Some((key, value)) = key_of(line) {
            let set = daemon.least.contains(&format!("{key} = ")) || value == "\"n\"";
            if !set && !value.contains(&*folder.path().to_string_lossy()) {
                found.insert(format!("{section}{key}"), in_units(&value));
            }
        }
    }
    found
}

/// An amount in bytes as the files write it.
fn in_units(value: &str) -> String {
    let bytes = value
        .strip_prefix('"')
        .and_then(|it| it.strip_suffix("B\""));
    match bytes.and_then(|it| it.parse::<u64>().ok()) {
        Some(bytes) if bytes > 0 && bytes % (1 << 30) == 0 => format!("\"{}GiB\"", bytes >> 30),
        Some(_) | None => value.to_owned(),
    }
}

/// The names of the fields of a type.
fn fields(file: &str, name: &str) -> BTreeSet<String> {
    let source = fs::read_to_string(root().join(file)).unwrap();
    let items = syn::parse_file(&source).unwrap().items.into_iter();
    let mut types = items.filter_map(|item| match item {
        syn::Item::Struct(it) if it.ident == name => Some(it),
        _ => None,
    });
    let found = types
        .next()
        .unwrap_or_else(|| panic!("{file} has no {name}"));
    let names = found.fields.into_iter().filter_map(|field| field.ident);
    names.map(|name| name.to_string()).collect()
}

/// The file must have every key, and none that is not one.
fn check_keys(daemon: &DaemonConfig, entries: &[Entry]) {
    for (section, file, name) in daemon.types {
        let of_section = entries.iter().filter(|entry| entry.section == *section);
        let keys = of_section.flat_map(|entry| entry.keys.iter().map(|(key, _)| key.clone()));
        let mut found: BTreeSet<String> = keys.collect();
        if section.is_empty() {
            let sections = entries.iter().map(|entry| entry.section.clone());
            found.extend(sections.filter(|section| !section.is_empty()));
        }
        let mut wanted = fields(file, name);
        wanted.retain(|key| !OLDER.contains(&key.as_str()));
        assert_eq!(
            found, wanted,
            "packaging/config/{}.toml: [{section}]",
            daemon.name
        );
    }
}

fn page(daemon: &DaemonConfig) -> String {
    let file = format!("packaging/config/{}.toml", daemon.name);
    let entries = entries(&fs::read_to_string(root().join(&file)).unwrap());
    check_keys(daemon, &entries);
    let defaults = defaults(daemon);
    let mut text = format!(
        "# {}.toml\n\n{} This page is made of `{file}` and of the program.\n",
        daemon.name, daemon.about
    );
    let (mut section, mut about) = (None, String::new());
    for entry in &entries[1..] {
        if section != Some(&entry.section) {
            match entry.section.as_str() {
                "" => text.push_str("\n## Keys\n"),
                header => write!(text, "\n## [{header}]\n").unwrap(),
            }
            section = Some(&entry.section);
            if entry.keys.is_empty() {
                about = entry.text.join(" ");
                write!(text, "\n{about}\n").unwrap();
            }
            text.push_str("\n| key | default | example | meaning |\n|---|---|---|---|\n");
        }
        if entry.keys.is_empty() {
            continue;
        }
        let prefix = if entry.section.is_empty() { "" } else { "." };
        let printed = |key: &str| defaults.get(&format!("{}{prefix}{key}", entry.section));
        let shown_too = entry.shows_defaults(&about);
        let [(key, shown)] = &entry.keys[..] else {
            panic!("{file}: one comment for each key: {:?}", entry.keys);
        };
        let default = printed(key).or(shown_too.then_some(shown));
        let example = (default != Some(shown)).then_some(shown);
        let cell = |it: Option<&String>| it.map_or("-".to_owned(), |it| format!("`{it}`"));
        let text_of = entry.text.join(" ").replace('|', "\\|");
        let meaning = text_of.trim_end_matches("An example:").trim_end();
        assert!(
            !meaning.is_empty(),
            "{file}: {:?} without a comment",
            entry.keys
        );
        let (default, example) = (cell(default), cell(example));
        writeln!(text, "| `{key}` | {default} | {example} | {meaning} |").unwrap();
    }
    text
}

#[test]
fn the_reference_of_configs_is_what_the_files_and_the_programs_say() {
    let write = std::env::var("SLUICE_PAGES").is_ok_and(|word| word == "write");
    for daemon in &DAEMONS {
        let path = root().join(format!("docs/reference/{}.md", daemon.name));
        let made = page(daemon);
        if write {
            fs::write(&path, &made).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap();
        assert!(
            written == made,
            "{} is old: renew it by SLUICE_PAGES=write cargo test -p sluice-tests --test suite reference",
            path.display()
        );
    }
}

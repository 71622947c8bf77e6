//! Checks that each page of the documentation is linked, and that its links exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::root;

/// Lists every page of the documentation.
fn pages() -> Vec<PathBuf> {
    let folders = ["docs", "docs/dev", "docs/reference"];
    let found = folders.map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let paths = found.into_iter().flatten();
    let paths = paths.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .collect()
}

/// Lists the files that a page of Markdown links to; web addresses and anchors are skipped.
fn links(page: &Path) -> Vec<(PathBuf, Option<String>)> {
    let text = fs::read_to_string(page).unwrap();
    let folder = page.parent().unwrap();
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    let targets = targets.filter(|target| !target.contains("://") && !target.contains(' '));
    let link = |target: &str| {
        let (file, heading) = match target.split_once('#') {
            Some((file, heading)) => (file, Some(heading.to_owned())),
            None => (target, None),
        };
        let path = match file {
            "" => page.to_owned(),
            file => folder.join(file),
        };
        (path, heading)
    };
    targets.map(link).collect()
}

/// The headings of a page, as links name them.
fn headings(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let named = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars();
        let kept = kept.filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-")
    };
    lines.map(named).collect()
}

#[test]
fn what_pages_link_to_is_there() {
    let own = ["README.md", "ARCHITECTURE.md"].map(|name| root().join(name));
    for page in pages().iter().chain(&own) {
        for (link, heading) in links(page) {
            assert!(link.exists(), "{}: {}", page.display(), link.display());
            let Some(heading) = heading else { continue };
            let found = headings(&link).contains(&heading);
            assert!(found, "{}: {}#{heading}", page.display(), link.display());
        }
    }
}

#[test]
fn the_index_of_the_documentation_has_every_page() {
    let index = root().join("docs/README.md");
    let linked: Vec<PathBuf> = links(&index).into_iter().map(|(path, _)| path).collect();
    for page in pages().iter().filter(|page| **page != index) {
        assert!(linked.contains(page), "{} is in no list", page.display());
    }
}

/// Pages whose blocks a test of their own runs, by the file of that test in the suite.
const OWN_TESTS: [(&str, &str); 7] = [
    ("docs/http.md", "openapi.rs"),
    ("docs/integrating.md", "openapi.rs"),
    ("docs/logging.md", "logging/page.rs"),
    ("docs/python.md", "python.rs"),
    ("docs/replay.md", "replay.rs"),
    ("docs/simulate.md", "simulate.rs"),
    ("docs/zenml.md", "python.rs"),
];

/// Name of the block that CI runs as a whole.
const RUN_BY_CI: &str = "tests/run.sh";

/// A block of a page.
struct Block {
    /// The words behind its fence.
    info: String,
    text: String,
    /// The page behind it.
    rest: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let (mut found, mut rest) = (Vec::new(), page);
    while let Some((_, behind)) = rest.split_once("```") {
        let (info, behind) = behind.split_once('\n').expect("a fence ends its line");
        let (text, behind) = behind.split_once("```").expect("a block has an end");
        found.push(Block {
            info: info.to_owned(),
            text: text.to_owned(),
            rest: behind.to_owned(),
        });
        rest = behind;
    }
    found
}

/// Returns the test that runs the commands of a page.
fn test_of(page: &str) -> Option<String> {
    let suite = |file: &str| fs::read_to_string(root().join("tests/tests/suite").join(file));
    if let Some((_, file)) = OWN_TESTS.iter().find(|(own, _)| *own == page) {
        let reads = suite(file).unwrap().contains(page);
        return reads.then(|| format!("suite {file}"));
    }
    let runs = suite("pages.rs").unwrap();
    let runs = ["run", "run_in"].map(|run| runs.contains(&format!("{run}(\"{page}\"")));
    runs.contains(&true).then(|| "suite pages.rs".to_owned())
}

/// Whether a command of a later block names the file that a block is.
fn is_used(file: &str, block: &Block) -> bool {
    let later = blocks(&block.rest);
    let commands = ["sh", "console"];
    let mut later = later.iter().filter(|it| commands.contains(&&*it.info));
    let is_named = |it: &Block| it.text.split_whitespace().any(|word| word == file);
    later.any(is_named)
}

/// Returns what runs a block; `docs/dev/testing.md` has the table.
fn run_by(page: &str, block: &Block) -> Option<String> {
    let words: Vec<&str> = block.info.split(' ').collect();
    let own = OWN_TESTS.iter().any(|(own, _)| *own == page);
    match words[..] {
        ["sh"] if block.text.trim_end() == RUN_BY_CI => {
            let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
            ci.contains(RUN_BY_CI).then(|| ".ci/run".to_owned())
        }
        ["console" | "sh"] | ["sh", "follow"] => test_of(page),
        ["text"] if page == "README.md" => test_of(page),
        ["json" | "text" | "python"] if own => test_of(page),
        ["yaml"] if page == "docs/reference/documents.md" => {
            Some("suite pages/documents.rs".to_owned())
        }
        ["toml"] => Some("suite pages/documents.rs".to_owned()),
        ["yaml" | "toml" | "json" | "bash", file] if is_used(file, block) => test_of(page),
        [_, "guest:", scenario, _] if is_run_in_the_guest(&block.info) => {
            Some(format!("guest {scenario}"))
        }
        _ => None,
    }
}

#[test]
fn each_block_is_run() {
    let mut census = BTreeMap::<(String, String), usize>::new();
    for path in pages().into_iter().chain([root().join("README.md")]) {
        let text = fs::read_to_string(&path).unwrap();
        let page = path.strip_prefix(root()).unwrap().to_str().unwrap();
        for block in blocks(&text) {
            let run_by = run_by(page, &block).unwrap_or_else(|| {
                panic!(
                    "{page}: nothing runs this block `{}`: `docs/dev/testing.md` lists the kinds of blocks and what \
                     runs them; say in prose what cannot be run\n{}",
                    block.info, block.text
                )
            });
            let mut words = block.info.split(' ');
            let kind = match (words.next(), words.next()) {
                (Some(language), None) => language.to_owned(),
                (Some(language), Some(how @ ("follow" | "guest:"))) => format!("{language} {how}"),
                (language, _) => format!("{} FILE", language.unwrap_or_default()),
            };
            *census.entry((kind, run_by)).or_default() += 1;
        }
    }
    for ((kind, run_by), blocks) in &census {
        println!("{blocks:4} blocks `{kind}`: {run_by}");
    }
    assert!(census.len() > 10, "the search is broken: {census:?}");
}

/// Whether the scenario that a fence names exists, and runs the block.
fn is_run_in_the_guest(info: &str) -> bool {
    let words: Vec<&str> = info.split(' ').collect();
    let ["sh" | "console", "guest:", scenario, name] = words[..] else {
        return false;
    };
    let script = root().join(format!("tests/guest/scenarios/{scenario}.sh"));
    let script = fs::read_to_string(script).unwrap_or_default();
    let words: Vec<&str> = script
        .split(|c: char| c.is_whitespace() || c == ';')
        .collect();
    let is_run =
        |pair: &[&str]| pair[0].ends_with("block") && pair[1].trim_end_matches(')') == name;
    let installs = |line: &str| {
        line.trim_start().starts_with("install_build ") && line.split(' ').any(|word| word == name)
    };
    words.windows(2).any(is_run) || script.lines().any(installs)
}

/// Returns the names in backquotes that end `text`, with `,` and `and` between them.
fn last_names(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.trim_end();
    while let Some((before, name)) = rest.strip_suffix('`').and_then(|it| it.rsplit_once('`')) {
        // The name of a crate ends another list.
        if !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_:".contains(c))
        {
            break;
        }
        found.push(name);
        let before = before.trim_end();
        let before = before.strip_suffix("and").unwrap_or(before).trim_end();
        rest = before.strip_suffix(',').unwrap_or(before).trim_end();
    }
    found
}

#[test]
fn tests_that_pages_name_exist() {
    let sources = super::sources();
    let exists = |name: &str| {
        let item = [format!("fn {name}("), format!("mod {name} ")];
        let is_part = |part: &str| part.trim_end_matches(".rs") == name;
        let mut files = sources.iter();
        files.any(|(path, text)| {
            path.split('/').any(is_part) || item.iter().any(|it| text.contains(it))
        })
    };
    let mut checked = 0;
    for page in ["ARCHITECTURE.md", "docs/reliability.md", "docs/security.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let before = text.match_indices(" tests of `").map(|(at, _)| &text[..at]);
        for name in before.flat_map(last_names) {
            for part in name.split("::") {
                assert!(
                    exists(part),
                    "{page} names tests `{name}`, which do not exist"
                );
                checked += 1;
            }
        }
    }
    assert!(checked > 40, "the search is broken: {checked} names");
}

#[test]
fn the_variables_that_the_page_on_tests_names_are_read() {
    let page = fs::read_to_string(root().join("docs/dev/testing.md")).unwrap();
    let words = page.split('`').skip(1).step_by(2);
    let names = words.filter_map(|word| word.split('=').next());
    for name in names.filter(|name| name.starts_with("SLUICE_")) {
        let mut grep = Command::new("git");
        grep.args(["grep", "-qwF", name, "--", "*.rs", "*.sh"]);
        let found = grep.current_dir(root()).status().unwrap();
        assert!(found.success(), "no test reads {name}");
    }
}

#[test]
fn pictures_are_what_their_texts_say() {
    let mut draw = Command::new("python3");
    let draw = draw.arg("-B").arg(root().join("docs/pictures/draw.py"));
    let drawn = draw.arg("--check").output().expect("python3 runs");
    let said = String::from_utf8_lossy(&drawn.stderr);
    assert!(drawn.status.success(), "{said}");
}

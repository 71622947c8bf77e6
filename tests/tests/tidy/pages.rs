//! Whether a reader finds each page, and what each page points to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::root;

/// Every page of the documentation.
fn pages() -> Vec<PathBuf> {
    let found = fs::read_dir(root().join("docs")).unwrap();
    let paths = found.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .collect()
}

/// The files that a page of Markdown links to; addresses of the web and places within the page are none.
fn links(page: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(page).unwrap();
    let folder = page.parent().unwrap();
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    let targets = targets.filter_map(|target| target.split('#').next());
    targets
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .map(|target| folder.join(target))
        .collect()
}

#[test]
fn what_pages_link_to_is_there() {
    let own = ["README.md", "ARCHITECTURE.md"].map(|name| root().join(name));
    for page in pages().iter().chain(&own) {
        for link in links(page) {
            assert!(link.exists(), "{}: {}", page.display(), link.display());
        }
    }
}

#[test]
fn the_index_of_the_documentation_has_every_page() {
    let index = root().join("docs/README.md");
    let linked = links(&index);
    for page in pages().iter().filter(|page| **page != index) {
        assert!(linked.contains(page), "{} is in no list", page.display());
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

//! Checks that `docs/root.md` lists what the root process asks of the kernel: each function of `nix`, `libc` and of the
//! parts of the standard library that act on the host, and each absolute path, by name. Methods of open files are not
//! seen here.

use std::collections::BTreeSet;
use std::fs;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ImplItemFn, Item, ItemMod, LitCStr, LitStr, Macro};

use super::root;
use super::tree::{File, crates, is_test_code};

/// Crates whose code in the root process calls the kernel.
const LINKED: [&str; 2] = ["sluice-cgroups", "sluice-supervisor"];

/// Modules with functions that act on the host.
const ACTING: [&str; 6] = [
    "nix::",
    "libc::",
    "std::fs::",
    "std::os::unix::fs::",
    "std::os::unix::net::",
    "std::process::",
];

/// Their other items: conversions, modules and types of the C library.
const HARMLESS: [&str; 28] = [
    "Errno::result",
    "File::from",
    "Mode::from_bits_truncate",
    "Permissions::from_mode",
    "PollFd::new",
    "PollTimeout::try_from",
    "SigSet::from_iter",
    "Signal::try_from",
    "Stdio::null",
    "TimeSpec::from_duration",
    "Uid::as_raw",
    "alarm",
    "c_int",
    "c_long",
    "c_short",
    "dqblk",
    "flock",
    "from",
    "id",
    "major",
    "minor",
    "rlim_t",
    "rusage",
    "sock_filter",
    "sock_fprog",
    "sockopt",
    "syscall",
    "timeval",
];

/// Sections of the page with the calls and the paths.
const CALLS: &str = "\n## Calls\n";
const PATHS: &str = "\n## Paths\n";

/// Texts in a file's code besides its paths.
#[derive(Default)]
pub(crate) struct CodeTexts {
    texts: Vec<String>,
    /// Names in the arguments of macros.
    in_macros: Vec<String>,
}

/// Collects the texts of a file's product code.
pub(crate) fn said(items: &[Item]) -> CodeTexts {
    let mut said = CodeTexts::default();
    items.iter().for_each(|item| said.visit_item(item));
    said
}

impl<'ast> Visit<'ast> for CodeTexts {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test_code(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test_code(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.texts.push(text.value());
    }

    fn visit_lit_cstr(&mut self, text: &'ast LitCStr) {
        self.texts.push(text.value().to_string_lossy().into_owned());
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.tokens(called.tokens.clone());
    }
}

impl CodeTexts {
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(name) => self.in_macros.push(name.to_string()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<LitStr>(&literal.to_string()) {
                        self.texts.push(text.value());
                    }
                }
                TokenTree::Punct(_) => {}
            }
        }
    }
}

/// Returns the page's name for a function of one of [`ACTING`]: `kill`, `Inotify::init`, `SYS_clone3`.
fn call(file: &File, path: &[String]) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let whole = match file.imports.get(first) {
        Some(import) => [&import[..], rest].concat(),
        None => path.to_vec(),
    };
    let text = whole.join("::");
    if !ACTING.iter().any(|place| text.starts_with(place)) {
        return None;
    }
    let (name, before) = whole.split_last()?;
    let is_type = |word: &str| word.starts_with(|c: char| c.is_ascii_uppercase());
    let is_function = name.starts_with("SYS_")
        || name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if !is_function {
        return None;
    }
    let name = match before.last() {
        Some(of) if is_type(of) || of == "alarm" => format!("{of}::{name}"),
        _ => name.clone(),
    };
    let is_value = name.ends_with("::empty") || name.ends_with("::from_raw");
    (!is_value && !HARMLESS.contains(&name.as_str())).then_some(name)
}

/// Returns a text that is a path of the host: absolute, or below the root that a test may replace.
fn place(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/_-.{}:".contains(c);
    if text.len() < 2 || !text.chars().all(is_plain) {
        return None;
    }
    let below = ["proc/", "sys/", "dev/", "etc/"];
    match below.iter().any(|top| text.starts_with(top)) {
        true => Some(format!("/{text}")),
        false => text.starts_with('/').then(|| text.to_owned()),
    }
}

/// Returns the texts in backquotes in a section of the page.
fn listed(page: &str, section: &str) -> BTreeSet<String> {
    let (_, from) = page.split_once(section).expect(section);
    let section = from.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    words.map(str::to_owned).collect()
}

#[test]
fn what_root_asks_of_the_kernel_is_listed() {
    let page = fs::read_to_string(root().join("docs/root.md")).unwrap();
    let files = crates().iter().filter(|it| LINKED.contains(&&*it.name));
    let (mut calls, mut places) = (BTreeSet::new(), BTreeSet::new());
    for file in files.flat_map(|it| &it.files) {
        calls.extend(file.paths.iter().filter_map(|path| call(file, path)));
        let in_macros = file.said.in_macros.iter();
        let named = in_macros.filter(|name| file.imports.contains_key(*name));
        calls.extend(named.filter_map(|name| call(file, std::slice::from_ref(name))));
        places.extend(file.said.texts.iter().filter_map(|text| place(text)));
    }
    assert_eq!(calls, listed(&page, CALLS), "the calls of docs/root.md");
    assert_eq!(places, listed(&page, PATHS), "the paths of docs/root.md");
}

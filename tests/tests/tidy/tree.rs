//! The product's files as the compiler sees them: found from each crate's root along its `mod` items, parsed, without
//! test code.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use syn::spanned::Spanned;
use syn::{Attribute, Item};

use super::cycles::ImportedNames;
use super::functions::Function;
use super::messages::MessageKind;
use super::privileged::CodeTexts;
use super::{cycles, functions, messages, privileged, root};

/// A product file.
pub(crate) struct File {
    /// Path from the workspace's root.
    pub(crate) path: String,
    /// Module path from the crate's root: empty for the root itself.
    pub(crate) module: Vec<String>,
    /// Lines without those of tests.
    pub(crate) lines: usize,
    pub(crate) functions: Vec<Function>,
    pub(crate) imports: ImportedNames,
    /// Every path in its code.
    pub(crate) paths: Vec<Vec<String>>,
    /// Other texts that concern the kernel.
    pub(crate) said: CodeTexts,
    /// Texts for people, in their order.
    pub(crate) messages: Vec<(MessageKind, String)>,
}

/// The product files of one crate, its root first.
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) files: Vec<File>,
}

/// Returns every crate of the product, sorted by name.
pub(crate) fn crates() -> &'static [Crate] {
    static ALL: OnceLock<Vec<Crate>> = OnceLock::new();
    ALL.get_or_init(read_all)
}

fn read_all() -> Vec<Crate> {
    let metadata = super::metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let mut found = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            let source = Path::new(target["src_path"].as_str().unwrap());
            let source = source.strip_prefix(root()).unwrap();
            if source.starts_with("tests") || !["lib", "bin"].contains(&kind) {
                continue;
            }
            // A library comes before the program beside it, which has modules of its own.
            let name = match found.contains_key(name) {
                true => format!("{name} (program)"),
                false => name.to_owned(),
            };
            found.insert(name, walk(source));
        }
    }
    let krate = |(name, files)| Crate { name, files };
    found.into_iter().map(krate).collect()
}

fn walk(source: &Path) -> Vec<File> {
    let mut files = Vec::new();
    let folder = source.parent().unwrap().to_owned();
    read(source, &folder, Vec::new(), &mut files);
    files
}

/// Reads the file of a module, and those of its submodules, which are in `folder`.
fn read(path: &Path, folder: &Path, module: Vec<String>, files: &mut Vec<File>) {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (tests, items): (Vec<Item>, Vec<Item>) = parsed.items.into_iter().partition(is_for_tests);
    let of_tests: usize = tests.iter().map(lines_of).sum();
    let children: Vec<(String, PathBuf, PathBuf)> = items
        .iter()
        .filter_map(|item| child(item, folder))
        .collect();
    files.push(File {
        path: path.to_string_lossy().into_owned(),
        module: module.clone(),
        lines: text.lines().count() - of_tests,
        functions: functions::of(&items),
        imports: cycles::imports(&items),
        paths: cycles::paths(&items),
        said: privileged::said(&items),
        messages: messages::of(&items),
    });
    for (name, path, folder) in children {
        let module = [&module[..], &[name]].concat();
        read(&path, &folder, module, files);
    }
}

/// Returns the name, the file and the folder of a module that is a file of its own.
fn child(item: &Item, folder: &Path) -> Option<(String, PathBuf, PathBuf)> {
    let Item::Mod(module) = item else { return None };
    if module.content.is_some() {
        return None;
    }
    let name = module.ident.to_string();
    let below = folder.join(&name);
    let beside = folder.join(format!("{name}.rs"));
    let path = match root().join(&beside).exists() {
        true => beside,
        false => below.join("mod.rs"),
    };
    Some((name, path, below))
}

/// Returns the lines of an item, with its attributes and comments.
fn lines_of(item: &Item) -> usize {
    let span = item.span();
    let attributes = attributes(item).iter().map(|it| it.span().start().line);
    let first = attributes.chain([span.start().line]).min().unwrap();
    span.end().line + 1 - first
}

/// Whether an item is compiled for tests alone.
fn is_for_tests(item: &Item) -> bool {
    is_test_code(attributes(item))
}

/// Whether these attributes mean that something is compiled for tests alone.
pub(crate) fn is_test_code(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        let Ok(list) = attribute.meta.require_list() else {
            return attribute.path().is_ident("test");
        };
        let text = list.tokens.to_string();
        is_cfg && (text == "test" || text.starts_with("all (test") || text.starts_with("all(test"))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::ExternCrate(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::ForeignMod(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::TraitAlias(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Union(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

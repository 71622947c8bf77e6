//! Import cycles between the files of a crate: a file that imports from another points at it, and files that reach each
//! other are one cycle.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{ImplItemFn, Item, ItemMod, ItemUse, UseTree, Visibility};

use super::tree::{Crate, File, crates, is_test_code};

/// Most files in a cycle.
const AIM: usize = 4;

/// Longest cycle of each crate that exceeds that. A number only falls.
const LONGEST: &[(&str, usize)] = &[];

/// Layers of a crate: each imports only from itself and from those after it.
const ROOMS: &[(&str, &[&str])] = &[(
    "sluice-scheduler",
    &[
        "remedy",
        "inspect",
        "decide",
        "preemption",
        "placement",
        "model",
    ],
)];

/// Longest chain of re-exports that is followed.
const DEPTH: usize = 8;

/// A module path from the crate's root.
type Module = Vec<String>;

/// Imported names, with their paths in the `use`.
pub(crate) type ImportedNames = BTreeMap<String, Vec<String>>;

/// The files of one crate by their modules.
struct Graph<'a>(BTreeMap<Module, &'a File>);

impl<'a> Graph<'a> {
    fn new(krate: &'a Crate) -> Self {
        let files = krate.files.iter();
        Self(files.map(|it| (it.module.clone(), it)).collect())
    }

    /// Returns the module that defines what a path names in `from`; `None` if it is of another crate.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (from.clone(), rest),
            "super" => (from[..from.len().checked_sub(1)?].to_vec(), rest),
            name => {
                let child = [&from[..], &[name.to_owned()]].concat();
                if self.0.contains_key(&child) {
                    (child, rest)
                } else if let Some(import) = self.0[from].imports.get(name)
                    && depth > 0
                    && import != path
                {
                    let whole = [&import[..], rest].concat();
                    return self.resolve(from, &whole, depth - 1);
                } else {
                    return None;
                }
            }
        };
        while let Some((name, more)) = rest.split_first() {
            if name == "super" {
                at.pop()?;
                rest = more;
                continue;
            }
            let child = [&at[..], std::slice::from_ref(name)].concat();
            if self.0.contains_key(&child) {
                (at, rest) = (child, more);
                continue;
            }
            // A re-exported name is defined elsewhere.
            return match self.0[&at].imports.get(name) {
                Some(import) if depth > 0 => {
                    let whole = [&import[..], more].concat();
                    self.resolve(&at, &whole, depth - 1).or(Some(at))
                }
                _ => Some(at),
            };
        }
        Some(at)
    }

    /// Returns the modules that a file needs.
    fn needs(&self, file: &File) -> BTreeSet<Module> {
        let paths = file.paths.iter();
        let found = paths.filter_map(|path| self.resolve(&file.module, path, DEPTH));
        found.filter(|module| *module != file.module).collect()
    }

    /// Returns the arrows between some files, a line each.
    fn arrows(&self, among: &[&str]) -> String {
        let mut lines = String::new();
        for file in self.0.values().filter(|it| among.contains(&&*it.path)) {
            let needed = self.needs(file);
            let needed = needed.iter().map(|it| self.0[it].path.as_str());
            for needed in needed.filter(|it| among.contains(it)) {
                lines += &format!("    {} -> {needed}\n", file.path);
            }
        }
        lines
    }

    /// Returns the files of each cycle, the longest first.
    fn cycles(&self) -> Vec<Vec<&'a str>> {
        let needs: BTreeMap<&Module, BTreeSet<Module>> = self
            .0
            .iter()
            .map(|(module, file)| (module, self.needs(file)))
            .collect();
        let reach = |from: &Module| {
            let mut seen = BTreeSet::new();
            let mut next = vec![from.clone()];
            while let Some(module) = next.pop() {
                for needed in &needs[&module] {
                    if seen.insert(needed.clone()) {
                        next.push(needed.clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&Module, BTreeSet<Module>> = self
            .0
            .keys()
            .map(|module| (module, reach(module)))
            .collect();
        let mut left: BTreeSet<&Module> = self.0.keys().collect();
        let mut cycles = Vec::new();
        while let Some(module) = left.pop_first() {
            let (there, back) = (&reached[module], |it: &&Module| {
                reached[*it].contains(module)
            });
            let others: Vec<&Module> = left
                .iter()
                .copied()
                .filter(|it| there.contains(*it))
                .filter(back)
                .collect();
            if others.is_empty() {
                continue;
            }
            left.retain(|it| !others.contains(it));
            let all = [&[module], &others[..]].concat();
            cycles.push(all.iter().map(|it| self.0[*it].path.as_str()).collect());
        }
        cycles.sort_by_key(|cycle: &Vec<&str>| std::cmp::Reverse(cycle.len()));
        cycles
    }
}

/// Returns what the `use` items of a file import, re-exports included.
pub(crate) fn imports(items: &[Item]) -> ImportedNames {
    let mut names = ImportedNames::new();
    for item in items {
        if let Item::Use(it) = item {
            flatten(&it.tree, &mut Vec::new(), &mut |name, path| {
                names.insert(name.to_owned(), path.to_vec());
            });
        }
    }
    names
}

/// Returns all paths in a file's code.
pub(crate) fn paths(items: &[Item]) -> Vec<Vec<String>> {
    let mut paths = Paths(Vec::new());
    items.iter().for_each(|item| paths.visit_item(item));
    paths.0
}

/// Returns each name that a `use` brings, with its path. A glob brings the module itself, under no name.
fn flatten(tree: &UseTree, before: &mut Vec<String>, each: &mut dyn FnMut(&str, &[String])) {
    match tree {
        UseTree::Path(it) => {
            before.push(it.ident.to_string());
            flatten(&it.tree, before, each);
            before.pop();
        }
        UseTree::Group(it) => {
            for tree in &it.items {
                flatten(tree, before, each);
            }
        }
        UseTree::Name(it) if it.ident == "self" => {
            let name = before.last().cloned().unwrap_or_default();
            each(&name, before);
        }
        UseTree::Name(it) => {
            before.push(it.ident.to_string());
            each(&it.ident.to_string(), before);
            before.pop();
        }
        UseTree::Rename(it) => {
            before.push(it.ident.to_string());
            each(&it.rename.to_string(), before);
            before.pop();
        }
        UseTree::Glob(_) => each("", before),
    }
}

struct Paths(Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Paths {
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

    /// A file does not need what it only re-exports.
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if matches!(item.vis, Visibility::Inherited) {
            flatten(&item.tree, &mut Vec::new(), &mut |_, path| {
                self.0.push(path.to_vec())
            });
        }
    }

    /// `pub(crate)` needs nothing of the crate's root.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|it| it.ident.to_string());
        self.0.push(names.collect());
        visit::visit_path(self, path);
    }
}

#[test]
fn files_that_need_each_other_are_few() {
    for krate in crates() {
        let graph = Graph::new(krate);
        let cycles = graph.cycles();
        let sizes: Vec<usize> = cycles.iter().map(Vec::len).collect();
        let lines: usize = krate.files.iter().map(|it| it.lines).sum();
        let files = krate.files.len();
        println!(
            "{}: {files} files, {lines} lines, cycles {sizes:?}",
            krate.name
        );
        let longest = cycles.first().map_or(0, Vec::len);
        let arrows = cycles.first().map(|cycle| graph.arrows(cycle));
        let arrows = arrows.filter(|_| longest > AIM).unwrap_or_default();
        print!("{arrows}");
        let known = LONGEST.iter().find(|(name, _)| *name == krate.name);
        let most = known.map_or(AIM, |(_, most)| *most);
        assert!(
            longest <= most,
            "{}: {longest} files need each other, {most} were the most:\n{arrows}",
            krate.name,
        );
        assert!(
            known.is_none() || longest == most,
            "{}: {longest} files need each other now: lower its number in LONGEST",
            krate.name
        );
    }
}

#[test]
fn rooms_import_only_from_those_below() {
    for (name, rooms) in ROOMS {
        let krate = crates().iter().find(|it| it.name == *name).unwrap();
        let graph = Graph::new(krate);
        let level = |module: &Module| {
            rooms
                .iter()
                .position(|room| module.first().is_some_and(|it| it == room))
        };
        for (module, file) in graph.0.iter().filter(|(module, _)| !module.is_empty()) {
            let own =
                level(module).unwrap_or_else(|| panic!("{} is in no room of ROOMS", file.path));
            for needed in graph.needs(file) {
                let below = level(&needed).is_some_and(|needed| needed >= own);
                assert!(
                    below,
                    "{} imports from {needed:?}, which is above it",
                    file.path
                );
            }
        }
    }
}

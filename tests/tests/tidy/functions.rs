//! Lengths of functions.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, Item, ItemFn, ItemMod, Signature, TraitItemFn};

use super::tree::{crates, is_test_code};

/// Most lines of a product function.
const MOST: usize = 80;

/// 99th percentile of the lines.
const P99: usize = 50;

/// Functions that exceed the maximum, with their lines. The list only shrinks.
const LONGER: &[(&str, usize)] = &[
    ("agent/supervisor/src/table/restore.rs open", 99),
    (
        "coordinator/core/src/record/subject.rs subject_and_effect",
        92,
    ),
    ("coordinator/core/src/state/apply.rs fold", 94),
    ("coordinator/src/engine/record_log.rs log_record", 171),
    ("coordinator/src/http/error/refusal.rs detail_of", 108),
];

/// A product function.
pub(crate) struct Function {
    pub(crate) name: String,
    /// Lines from its signature to its last bracket.
    pub(crate) lines: usize,
}

/// Returns the functions of a file.
pub(crate) fn of(items: &[Item]) -> Vec<Function> {
    let mut finder = Finder(Vec::new());
    items.iter().for_each(|item| finder.visit_item(item));
    finder.0
}

struct Finder(Vec<Function>);

impl Finder {
    fn note(&mut self, signature: &Signature, body: &Block) {
        let first = signature.span().start().line;
        self.0.push(Function {
            name: signature.ident.to_string(),
            lines: body.span().end().line + 1 - first,
        });
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test_code(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.note(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_test_code(&function.attrs) {
            self.note(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        if let Some(body) = &function.default {
            self.note(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[test]
fn functions_stay_short() {
    let files = crates().iter().flat_map(|krate| &krate.files);
    let mut all: Vec<(usize, String)> = files
        .flat_map(|file| {
            let name = |it: &Function| (it.lines, format!("{} {}", file.path, it.name));
            file.functions.iter().map(name)
        })
        .collect();
    all.sort();
    let at = |share: usize| all[all.len() * share / 100].0;
    println!(
        "{} functions: p50 {}, p90 {}, p99 {}",
        all.len(),
        at(50),
        at(90),
        at(99)
    );
    assert!(
        at(99) < P99,
        "one function in a hundred has {} lines or more",
        at(99)
    );
    let longer = all.iter().filter(|(lines, _)| *lines > MOST);
    let longer: Vec<(&str, usize)> = longer
        .map(|(lines, name)| (name.as_str(), *lines))
        .collect();
    for (name, lines) in &longer {
        let known = LONGER.iter().find(|(known, _)| known == name);
        assert!(
            known.is_some_and(|(_, most)| lines <= most),
            "{name} has {lines} lines: which step of it is a function of its own?"
        );
    }
    for (known, _) in LONGER {
        assert!(
            longer.iter().any(|(name, _)| name == known),
            "{known} is short now: take it out of LONGER"
        );
    }
}

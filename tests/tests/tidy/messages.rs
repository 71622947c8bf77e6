//! Lists every text that the programs show to people, in `tests/golden/`, so that a reviewer reads them in one place:
//! errors, log lines, and the other sentences of the code. `SLUICE_RENEW_GOLDEN=1` writes the lists.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprMethodCall, ImplItemFn, Item, ItemMod, LitStr, Macro};

use super::root;
use super::tree::{crates, is_test_code};

/// The list that a text stands in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum MessageKind {
    Error,
    Log,
    Sentence,
}

/// The files of the lists, and what each says of itself.
const LISTS: [(MessageKind, &str, &str); 3] = [
    (
        MessageKind::Error,
        "errors.txt",
        "Texts of error types. In braces: what is filled in; `0` is the cause.",
    ),
    (
        MessageKind::Log,
        "logs.txt",
        "Log lines: level, text, fields.",
    ),
    (
        MessageKind::Sentence,
        "sentences.txt",
        "All other texts of three words and more in the code: what commands print, answers of the API, reasons.",
    ),
];

/// Macros that write a log line.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Macros and methods whose texts show only if the program has a defect.
const DEFECTS: [&str; 9] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "expect",
    "panic",
    "unreachable",
];

/// Fewest words of a sentence.
const LEAST_WORDS: usize = 3;

/// Collects the texts of a file's product code, in their order.
pub(crate) fn of(items: &[Item]) -> Vec<(MessageKind, String)> {
    let mut finder = MessageCollector(Vec::new());
    items.iter().for_each(|item| finder.visit_item(item));
    finder.0
}

struct MessageCollector(Vec<(MessageKind, String)>);

impl<'ast> Visit<'ast> for MessageCollector {
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

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("error")
            && let Ok(text) = attribute.parse_args_with(|input: syn::parse::ParseStream<'_>| {
                let text = input.parse::<LitStr>();
                input.parse::<TokenStream>()?;
                text
            })
        {
            self.0.push((MessageKind::Error, text.value()));
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.visit_expr(&call.receiver);
        if !DEFECTS.contains(&call.method.to_string().as_str()) {
            call.args.iter().for_each(|it: &Expr| self.visit_expr(it));
        }
    }

    fn visit_lit_str(&mut self, text: &'ast LitStr) {
        self.sentence(&text.value());
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        let name = called.path.segments.last().map(|it| it.ident.to_string());
        self.call(&name.unwrap_or_default(), called.tokens.clone());
    }
}

impl MessageCollector {
    fn sentence(&mut self, text: &str) {
        let words = text.split_whitespace();
        let words = words.filter(|it| it.chars().any(char::is_alphabetic));
        if words.count() >= LEAST_WORDS {
            self.0.push((MessageKind::Sentence, text.to_owned()));
        }
    }

    /// Collects the texts of a macro's arguments.
    fn call(&mut self, name: &str, arguments: TokenStream) {
        if DEFECTS.contains(&name) {
            return;
        }
        match LEVELS.iter().find(|it| **it == name) {
            Some(level) => self.0.extend(log_line(level, arguments)),
            None => self.tokens(arguments),
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut name = String::new();
        for token in tokens {
            match token {
                // An attribute: a doc comment among the arguments of a macro.
                TokenTree::Group(_) if name == "#" => {}
                TokenTree::Group(group) => self.call(&name, group.stream()),
                TokenTree::Ident(word) => {
                    name = word.to_string();
                    continue;
                }
                TokenTree::Punct(mark) if mark.as_char() == '!' => continue,
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    name = String::from("#");
                    continue;
                }
                TokenTree::Literal(_) => {
                    if let Some(text) = text_of(&token) {
                        self.sentence(&text);
                    }
                }
                TokenTree::Punct(_) => {}
            }
            name.clear();
        }
    }
}

fn text_of(token: &TokenTree) -> Option<String> {
    let text = syn::parse_str::<LitStr>(&token.to_string());
    text.ok().map(|text| text.value())
}

/// Returns the line of a log macro: its level, its text, and the names of its fields.
fn log_line(level: &str, arguments: TokenStream) -> Option<(MessageKind, String)> {
    let (mut text, mut fields) = (None, Vec::new());
    let arguments: Vec<TokenTree> = arguments.into_iter().collect();
    for argument in arguments.split(|it| is_mark(it, ',')) {
        let first = argument.first()?;
        if let (None, Some(found)) = (&text, text_of(first)) {
            text = Some(found);
            continue;
        }
        if text.is_some() {
            break;
        }
        let name = argument.split(|it| is_mark(it, '=')).next()?;
        let is_name = |it: &&TokenTree| !is_mark(it, '%') && !is_mark(it, '?');
        let is_block = |it: &TokenTree| matches!(it, TokenTree::Group(it) if it.delimiter() != Delimiter::Parenthesis);
        let name: String = name
            .iter()
            .filter(is_name)
            .take_while(|it| !is_block(it))
            .map(TokenTree::to_string)
            .collect();
        fields.push(name);
    }
    let fields = match fields.is_empty() {
        true => String::new(),
        false => format!(" ({})", fields.join(", ")),
    };
    Some((MessageKind::Log, format!("{level}: {}{fields}", text?)))
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == mark)
}

/// Returns the list of a kind: texts by file, each once.
fn list(kind: MessageKind, about: &str) -> String {
    let mut page = format!("# {about}\n");
    let files = crates().iter().flat_map(|it| &it.files);
    let files: BTreeMap<&str, _> = files.map(|it| (&*it.path, &it.messages)).collect();
    for (path, messages) in files {
        let of_kind = messages.iter().filter(|(found, _)| *found == kind);
        let mut texts: Vec<String> = Vec::new();
        for (_, text) in of_kind {
            let text = text
                .escape_debug()
                .to_string()
                .replace("\\\"", "\"")
                .replace("\\'", "'");
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        if !texts.is_empty() {
            write!(page, "\n## {path}\n{}\n", texts.join("\n")).unwrap();
        }
    }
    page
}

#[test]
fn every_message_is_in_a_list() {
    let folder = root().join("tests/golden");
    for (kind, file, about) in LISTS {
        let page = list(kind, about);
        let path = folder.join(file);
        if std::env::var_os("SLUICE_RENEW_GOLDEN").is_some() {
            fs::write(&path, &page).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap_or_default();
        let new = page
            .lines()
            .filter(|line| !golden.lines().any(|it| it == *line));
        let gone = golden
            .lines()
            .filter(|line| !page.lines().any(|it| it == *line));
        assert!(
            golden == page,
            "{file} is not what the code says\nnew: {:#?}\ngone: {:#?}\n\
             read the new texts, then renew the lists:\n\
             SLUICE_RENEW_GOLDEN=1 cargo test -p sluice-tests --test tidy messages",
            new.collect::<Vec<_>>(),
            gone.collect::<Vec<_>>()
        );
    }
}

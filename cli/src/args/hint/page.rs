//! The page `docs/elsewhere.md`, made from the table of hints. `SLUICE_PAGES=write` writes it.

use std::fs;
use std::path::Path;

use super::elsewhere::{FlagsEffect, REASONS, TOOLS, elsewhere};
use super::options::OPTIONS;
use super::things::{CONDITIONS, THINGS};

const HEAD: &str = "# Commands of other tools

This page is for whoever knows another tool: what its commands are called here. It is made from the table by which `sluice` answers such a command: typed after `sluice`, with or without the name of the tool, each of these prints its equivalent. Determined's short names (`det e ls`) are read too. Scripts with `#SBATCH` lines are read as they are ([cli.md](cli.md#from-a-script)), some commands and files of other tools too ([cli.md](cli.md#files-and-commands-of-other-tools)), and the [glossary](glossary.md) has the words.

";

fn page() -> String {
    let tools: Vec<String> = TOOLS.iter().map(|tool| format!("`{tool}`")).collect();
    let mut page = String::from(HEAD);
    page += &format!(
        "Names of tools that may stand before: {}.\n\n",
        tools.join(", ")
    );
    page += "| there | here |\n|---|---|\n";
    for (phrases, here) in elsewhere() {
        page += &row(phrases, here);
    }
    page += "\n## Things\n\nAfter `get`, `describe` or `delete`:\n\n| there | get | describe | delete |\n|---|---|---|---|\n";
    for (words, thing) in &THINGS {
        let here = [thing.get, thing.describe, thing.delete].map(code);
        page += &format!("| {} | {} |\n", listed(words), here.join(" | "));
    }
    page += "\n## Options\n\n| after | there | here |\n|---|---|---|\n";
    for (commands, options) in OPTIONS {
        for (words, here) in *options {
            let here = match here {
                FlagsEffect::Same(here) => code(here),
                FlagsEffect::Needless(why) => format!("not needed: {why}"),
            };
            page += &format!("| {} | {} | {here} |\n", listed(commands), listed(words));
        }
    }
    for (value, here) in &CONDITIONS {
        page += &format!("| `wait` | `--for {value}` | `{here}` |\n");
    }
    page += "\n## Without an equivalent\n\n| there | why, and what to do |\n|---|---|\n";
    for (phrase, why) in &REASONS {
        page += &format!("| {} | {why} |\n", code(phrase));
    }
    page
}

fn row(phrases: &[&str], here: &[&str]) -> String {
    let here: Vec<String> = here.iter().map(|line| code(line)).collect();
    format!("| {} | {} |\n", listed(phrases), here.join(", or "))
}

fn listed(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| code(word)).collect();
    words.join(", ")
}

fn code(words: &str) -> String {
    format!("`{words}`")
}

#[test]
fn the_page_of_commands_of_other_tools_is_what_the_hints_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/elsewhere.md");
    let made = page();
    if std::env::var("SLUICE_PAGES").is_ok_and(|word| word == "write") {
        fs::write(path, made).expect("the page can be written");
        return;
    }
    let written = fs::read_to_string(path).expect("the page is there");
    assert!(
        written == made,
        "docs/elsewhere.md is old: renew it by SLUICE_PAGES=write cargo test -p sluice --bin sluice"
    );
}

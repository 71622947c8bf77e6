//! Compares the hints with the pages for users of other tools: `docs/coming-from-*.md`.

use std::fs;
use std::path::Path;

use super::elsewhere::TOOLS;
use super::tests::told_of;

/// Commands of Slurm, which are typed without a name of the tool.
const SLURM: [&str; 8] = [
    "sacct", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun",
];
/// Commands of which the second word says what they do.
const OF_TWO_WORDS: [&str; 13] = [
    "api-token",
    "auth",
    "config",
    "context",
    "delete",
    "describe",
    "get",
    "move",
    "resource",
    "resource-pool",
    "resource-request",
    "rollout",
    "token",
];

/// Returns a command line with each quoted word as one word.
fn unquoted(line: &str) -> String {
    let parts = line.split('\'').enumerate();
    let parts = parts.map(|(n, part)| match n % 2 {
        0 => part.to_owned(),
        _ => part.replace(' ', ""),
    });
    parts.collect()
}

/// Whether words are a command of another tool.
fn is_foreign(line: &str) -> bool {
    let mut words = line.split(' ');
    let first = words.next().unwrap_or_default();
    SLURM.contains(&first) || (TOOLS.contains(&first) && words.next().is_some())
}

/// Returns what a command of ours does: its verb, and the kind of things.
fn action(command: &str) -> String {
    let command = command.strip_prefix("help ").unwrap_or(command);
    let mut words = command.split([' ', '`', ',', ';', '\n']);
    let verb = words.next().unwrap_or_default();
    let kind = words.next().filter(|_| OF_TWO_WORDS.contains(&verb));
    let kind = kind.map(|kind| match kind.strip_suffix("ies") {
        Some(begin) => format!("{begin}y"),
        None => kind.trim_end_matches('s').to_owned(),
    });
    format!("{verb} {}", kind.unwrap_or_default())
}

/// Returns the commands of ours in a text, each from behind the name of its program on.
fn ours(text: &str) -> Vec<&str> {
    let coordinator = text.match_indices("sluice-coordinator ");
    let coordinator = coordinator.map(|(at, _)| &text[at..]);
    let cli = text
        .match_indices("sluice ")
        .map(|(at, it)| &text[at + it.len()..]);
    coordinator.chain(cli).collect()
}

/// Whether a hint names an action of the page; if it names an option alone, whether the page gives that option.
fn agrees(typed: &str, hint: &str, page: &str) -> bool {
    let there: Vec<String> = ours(page).into_iter().map(action).collect();
    let here = ours(hint);
    if here.iter().any(|it| there.contains(&action(it))) {
        return true;
    }
    if !here.is_empty() {
        return false;
    }
    match hint.split_once("`: ") {
        Some((_, options)) => options.split(", or ").any(|option| {
            let option = option.split(' ').next().unwrap_or_default();
            page.split([' ', '=', '`']).any(|word| word == option)
        }),
        // An option that is not needed, or a command that has other options here.
        None => {
            let verb = typed.split(' ').find(|word| !TOOLS.contains(word));
            let is_here = |it: &String| it.split(' ').next() == verb;
            there.iter().any(is_here)
        }
    }
}

/// Returns the foreign commands of a page, each with the text in which their equivalent is: the lines below a comment,
/// the cells of a row, or the other side of "`X` is `sluice Y`".
fn pairs(page: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let lines: Vec<&str> = page.lines().collect();
    for (n, line) in lines.iter().enumerate() {
        if let Some(comment) = line.strip_prefix("# ") {
            let ends = |line: &&&str| line.starts_with("# ") || line.starts_with("```");
            let below = lines[n + 1..].iter();
            let below: Vec<&str> = below.take_while(|line| !ends(line)).copied().collect();
            let below = below.join("\n");
            let comment = comment.split(", ").next().unwrap_or_default();
            let comment = comment.trim_end_matches([',', ' ', '\\']);
            if is_foreign(comment) && below.contains("sluice") {
                pairs.push((comment.to_owned(), below));
            }
            continue;
        }
        let parts: Vec<&str> = line.split('`').collect();
        for said in parts.windows(3).filter(|said| said[1] == " is ") {
            let (typed, ours) = match said[0].starts_with("sluice ") {
                true => (said[2], said[0]),
                false => (said[0], said[2]),
            };
            if is_foreign(typed) && ours.starts_with("sluice ") {
                pairs.push((typed.to_owned(), ours.to_owned()));
            }
        }
        if let Some((there, here)) = line.strip_prefix("| ").and_then(|it| it.split_once(" | ")) {
            let foreign = there
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|it| is_foreign(it));
            let foreign = foreign.filter(|_| here.contains("`sluice "));
            pairs.extend(foreign.map(|it| (it.to_owned(), here.to_owned())));
        }
    }
    pairs
}

#[test]
fn every_command_on_the_pages_for_users_of_other_tools_has_the_hint_that_the_page_gives() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut checked = 0;
    let mut wrong = Vec::new();
    for file in fs::read_dir(docs).unwrap().map(|it| it.unwrap().path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("coming-from-") {
            continue;
        }
        for (typed, here) in pairs(&fs::read_to_string(&file).unwrap()) {
            checked += 1;
            match told_of(&unquoted(&typed)) {
                None => wrong.push(format!("{name}: {typed}\n  has no hint")),
                Some(hint)
                    if hint.starts_with("no equivalent") || !agrees(&typed, &hint, &here) =>
                {
                    wrong.push(format!("{name}: {typed}\n  hint: {hint}\n  page: {here}"));
                }
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 150, "the search is broken: {checked} commands");
}

#[test]
fn a_hint_agrees_with_a_page_if_it_names_the_same_action() {
    for (typed, hint, page, same) in [
        (
            "a",
            "the same here: sluice get steps",
            "sluice get step x -o yaml",
            true,
        ),
        (
            "a",
            "`a`: sluice get pools, or sluice cancel STEP",
            "sluice cancel x",
            true,
        ),
        ("a", "`a`: sluice get nodes", "sluice get steps", false),
        ("a", "`a`: sluice drain NODE", "sluice uncordon x", false),
        (
            "a",
            "`--cwd`: --workdir DIR",
            "sluice submit --workdir /tmp",
            true,
        ),
        (
            "a",
            "`-n`: --pool POOL",
            "sluice get steps --subject x",
            false,
        ),
        (
            "kubectl logs a",
            "`logs` is a command here too: sluice help logs",
            "sluice logs a",
            true,
        ),
        (
            "kubectl logs a",
            "`-c` is not needed here: b",
            "sluice logs a",
            true,
        ),
        (
            "kubectl logs a",
            "`-c` is not needed here: b",
            "sluice cancel a",
            false,
        ),
    ] {
        assert_eq!(agrees(typed, hint, page), same, "{typed}: {hint}: {page}");
    }
}

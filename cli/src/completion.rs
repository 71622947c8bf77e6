//! Completes command lines for shells: the parser's own words, and the names of what there is in the cluster. A shell
//! waits for the answer, so the cluster is asked with a short time limit, and without one there are no names.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory, ValueEnum};
use clap_complete::CompletionCandidate;
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::{CompleteEnv, Shells};

use crate::args::{Args, GetKind};
use crate::client::Client;
use crate::context::{self, NamedContexts};

/// Environment variable with which a shell's script asks for completions: the shell's name.
const VARIABLE: &str = "SLUICE_COMPLETE";

/// Name of the installed command.
const NAME: &str = "sluice";

/// Longest time for each call of the cluster while a shell waits.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// Most candidates of one kind.
const MOST_NAMES: usize = 500;

/// Answers a shell's script and ends the process, if one asks.
pub(crate) fn answer() {
    let env = CompleteEnv::with_factory(|| with_names(Args::command()));
    env.var(VARIABLE).bin(NAME).completer(NAME).complete();
}

/// Returns the script by which a shell asks for completions; `None` for an unknown shell.
pub(crate) fn script(shell: &str) -> Option<String> {
    let mut text = Vec::new();
    let shells = Shells::builtins();
    let shell = shells.completer(shell)?;
    let written = shell.write_registration(VARIABLE, NAME, NAME, NAME, &mut text);
    written.ok()?;
    if shell.is("zsh") {
        text.extend_from_slice(ZSH_AUTOLOAD);
    }
    String::from_utf8(text).ok()
}

/// Completes at the first use too, if zsh loads the script as the function `_sluice` of its `fpath`.
const ZSH_AUTOLOAD: &[u8] = b"
if [ \"$funcstack[1]\" = \"_sluice\" ]; then
    _clap_dynamic_completer_sluice \"$@\"
fi
";

/// Adds completers to the arguments of a command and those below it, by the names of their values.
fn with_names(command: Command) -> Command {
    let command = command.mut_subcommands(with_names);
    command.mut_args(|arg| match completer(&arg) {
        Some(names) => arg.add(ArgValueCompleter::new(names)),
        None => arg,
    })
}

/// Returns candidates for a word.
type NameFn = fn(&OsStr) -> Vec<CompletionCandidate>;

fn completer(arg: &Arg) -> Option<NameFn> {
    let name = arg.get_value_names()?.first()?;
    let names: NameFn = match name.as_str() {
        "STEP" => |word| beginning(word, names_of(GetKind::Steps)),
        "NODE" => |word| beginning(word, names_of(GetKind::Nodes)),
        "POOL" => |word| beginning(word, names_of(GetKind::Pools)),
        "NAME|FILE" => |word| beginning(word, contexts()),
        "NAME" if !arg.is_positional() => return None,
        "NAME" => |word| beginning(word, names_of_line(&words())),
        _ => return None,
    };
    Some(names)
}

/// Returns the names that begin with a word.
fn beginning(word: &OsStr, names: Vec<String>) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    let names = names.into_iter().filter(|name| name.starts_with(&*word));
    // A shell would take control characters for its own.
    let names = names.filter(|name| !name.contains(char::is_control));
    names.map(CompletionCandidate::new).collect()
}

/// Returns the words of the command line that is completed.
fn words() -> Vec<OsString> {
    let mut words = std::env::args_os().skip_while(|word| word != "--");
    words.next();
    words.collect()
}

/// Returns the names of the kind that a command line names, such as `get nodes`.
fn names_of_line(words: &[OsString]) -> Vec<String> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    if words.contains(&"context") {
        return contexts();
    }
    let mut kinds = words
        .iter()
        .filter_map(|word| GetKind::from_str(word, false).ok());
    kinds.next().map(names_of).unwrap_or_default()
}

fn contexts() -> Vec<String> {
    NamedContexts::of_user()
        .map(|all| all.names())
        .unwrap_or_default()
}

/// Returns the names of what there is of a kind; none if the cluster does not answer in time.
fn names_of(kind: GetKind) -> Vec<String> {
    let chosen = chosen_context(&words());
    let client = context::load(chosen.as_deref());
    let client = client.and_then(|context| Client::impatient(context, ANSWER_LIMIT));
    let Ok(client) = client else {
        return Vec::new();
    };
    let path = match kind {
        GetKind::Steps => "/v1/steps",
        GetKind::Allocations => "/v1/allocations",
        GetKind::Nodes | GetKind::Labels => "/v1/nodes",
        GetKind::Services => "/v1/services",
        GetKind::Pools => "/v1/pools",
        GetKind::Templates => "/v1/templates",
        GetKind::Validations => "/v1/validations",
        GetKind::Roles => "/v1/roles",
        GetKind::Bindings => "/v1/bindings",
        GetKind::ApiTokens => "/v1/api-tokens",
        // Their names have two parts, or they have none.
        GetKind::Policies
        | GetKind::Endpoints
        | GetKind::Platforms
        | GetKind::Cluster
        | GetKind::Topology
        | GetKind::Tokens
        | GetKind::Events => return Vec::new(),
    };
    client.names(path, MOST_NAMES).unwrap_or_default()
}

/// Returns the context that a command line or the environment chooses.
fn chosen_context(words: &[OsString]) -> Option<PathBuf> {
    let texts = words.iter().map(|word| word.to_string_lossy());
    let mut after = texts.clone().skip_while(|word| word != "--context").skip(1);
    let mut joined = texts.filter_map(|word| word.strip_prefix("--context=").map(PathBuf::from));
    let flag = joined
        .next()
        .or_else(|| after.next().map(|word| PathBuf::from(&*word)));
    flag.or_else(|| std::env::var_os("SLUICE_CONTEXT").map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_has_a_script_that_asks_this_program() {
        for shell in clap_complete::Shell::value_variants() {
            let script = script(&shell.to_string()).unwrap();
            assert!(
                script.contains(VARIABLE) && script.contains("sluice"),
                "{shell}: {script}"
            );
        }
        assert_eq!(script("tcsh"), None);
    }

    #[test]
    fn a_command_line_names_its_context_and_its_kind() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let chosen = |line: &str| chosen_context(&words(line));
        assert_eq!(chosen("sluice --context lab cancel"), Some("lab".into()));
        assert_eq!(chosen("sluice cancel --context=lab"), Some("lab".into()));
        assert!(names_of_line(&words("sluice get frobs")).is_empty());
        let command = with_names(Args::command());
        let cancel = command.find_subcommand("cancel").unwrap();
        let steps = cancel.get_positionals().next().unwrap();
        assert!(steps.get::<ArgValueCompleter>().is_some());
    }

    #[test]
    fn only_harmless_names_that_begin_so_are_candidates() {
        let names = ["train", "tr\u{1b}[2J", "eval"].map(str::to_owned).to_vec();
        let found = beginning(OsStr::new("tr"), names);
        let found: Vec<_> = found.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(found, ["train"]);
    }
}

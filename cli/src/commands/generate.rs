//! `sluice completions` and `sluice man`: shell completions and man pages.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::completion;
use crate::failure::Failure;
use crate::out::Out;

/// Prints the script by which a shell asks for completions.
pub(crate) fn completions(shell: Shell, out: Out) -> Result<u8, Failure> {
    let script = completion::script(&shell.to_string());
    let script = script.ok_or_else(|| Failure::Failed(format!("no script for {shell}")))?;
    out.result(&script)?;
    Ok(0)
}

/// Writes a page for each command into `dir`, which is made if absent.
pub(crate) fn man(dir: &Path, out: Out) -> Result<u8, Failure> {
    let written =
        std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Args::command(), dir));
    written.map_err(|e| {
        Failure::Failed(format!("cannot write the pages to {}: {e}", dir.display()))
    })?;
    out.progress(&format!("the pages are in {}", dir.display()));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(hidden: bool) -> Vec<String> {
        let command = Args::command();
        let all = command.get_subcommands();
        let wanted = all.filter(|command| command.is_hide_set() == hidden);
        wanted
            .map(|command| command.get_name().to_owned())
            .collect()
    }

    #[test]
    fn every_command_that_is_not_hidden_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        let pages = dir.path().join("man1");
        man(&pages, Out::plain()).unwrap();
        assert!(pages.join("sluice.1").exists());
        for name in commands(false) {
            let page = std::fs::read_to_string(pages.join(format!("sluice-{name}.1"))).unwrap();
            assert!(
                page.contains(".SH NAME") && page.contains(&name),
                "{name}: {page}"
            );
        }
        assert!(!commands(true).is_empty());
        for name in commands(true) {
            let page = pages.join(format!("sluice-{name}.1"));
            assert!(!page.exists(), "{name} is hidden and has a page");
        }
    }
}

//! `sluice`, the command line: parses arguments, calls a cluster by its public API, prints the results.
//!
//! Modules: `commands` use `client`, `follow`, `render` and `show`, which prints in the requested format; `dev` starts
//! the daemons and uses `client` to see them ready; `gateway` runs HAProxy and follows the endpoints of services; `simulate` runs the scheduling core itself; only `out` writes to
//! the terminal; `documents` reads files, those of other tools by `elsewhere`. Nothing here decides anything about
//! scheduling.

mod args;
mod client;
mod commands;
mod completion;
mod context;
mod dev;
mod documents;
mod elsewhere;
mod env_file;
mod environment;
mod failure;
mod follow;
mod format;
#[cfg(test)]
mod fuzz;
mod gateway;
mod local_inputs;
mod out;
mod render;
mod request_builder;
mod script;
mod show;
mod signals;
mod simulate;
mod slurm_time;
mod step_source;
mod terminal;

use std::process::ExitCode;

use crate::args::{Args, Command, Format, GUIDE, MoveKind, OutputFormat, StepSelector};
use crate::client::{Client, StepAction};
use crate::failure::{Failure, USAGE};
use crate::out::Out;

fn main() -> ExitCode {
    completion::answer();
    let args = match Args::read(std::env::args_os().collect()) {
        Ok(args) => args,
        Err(mut error) => return ExitCode::from(misread(&mut error)),
    };
    let out = Out::detect(args.output.format()).with_list_format(args.output.list_format());
    let own_failure = args.command.own_failure_code();
    let dispatched = dispatch(args, out);
    terminal::restore();
    let code = match dispatched {
        Ok(code) => code,
        Err(failure) => {
            failure.print(out);
            failure.exit_code().unwrap_or(own_failure)
        }
    };
    ExitCode::from(code)
}

/// Prints a usage error, or the requested help.
fn misread(error: &mut clap::Error) -> u8 {
    let out = Out::detect(Format::Table);
    if std::env::args_os().len() == 1 {
        out.notice(GUIDE.trim_end());
        return USAGE;
    }
    let typed = std::env::args_os().skip(1);
    let typed: Vec<String> = typed
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let hint = args::hint(error, &typed);
    let text = error.render().to_string();
    if text.chars().any(|c| c != '\n' && render::is_harmful(c)) {
        // It quotes the arguments, which a terminal might obey.
        let lines: Vec<String> = text.lines().map(render::safe).collect();
        out.notice(&lines.join("\n"));
    } else {
        // A closed stream cannot be reported.
        let _ = error.print();
    }
    if let Some(hint) = hint {
        out.notice(&format!("hint: {hint}"));
    }
    u8::try_from(error.exit_code()).unwrap_or(USAGE)
}

fn dispatch(args: Args, out: Out) -> Result<u8, Failure> {
    if let Some(command) = args
        .command
        .formatless()
        .filter(|_| args.output != OutputFormat::Table)
    {
        return Err(Failure::Usage(format!(
            "--output is for commands that print what they found: leave it out of `sluice {command}`"
        )));
    }
    if out.list_format().is_some() && !matches!(args.command, Command::Get(_)) {
        return Err(Failure::Usage(
            "--output: csv and jsonl are for the lists of `sluice get`: choose json".to_owned(),
        ));
    }
    let chosen = args.context.as_deref();
    let client = || Ok::<_, Failure>(Client::new(context::load(chosen)?)?.telling(out));
    let steer = |verb, selection: &StepSelector, flags| {
        commands::step_action::run(&client()?, verb, selection, flags, out)
    };
    match args.command {
        Command::Dev(args) => dev::run(&args, out),
        Command::Run(args) => commands::run::run(&client()?, args, out),
        Command::Submit(args) => commands::elsewhere::submit(&client()?, args, out),
        Command::Allocate(args) => commands::allocate::run(&client()?, args, out),
        Command::Renew(args) => commands::allocate::renew(&client()?, &args, out),
        Command::Release(args) => commands::allocate::release(&client()?, &args, out),
        Command::Get(args) => commands::get::run(&client()?, &args, out),
        Command::Describe(args) => commands::describe::run(&client()?, &args, out),
        Command::Explain(args) => commands::explain::run(&client()?, &args, out),
        Command::Logs(args) => commands::logs::run(&client()?, &args, out),
        Command::Attach(args) => commands::run::attach(&client()?, &args, out),
        Command::Exec(args) => commands::exec::run(&client()?, &args, out),
        Command::Open(args) => commands::open::run(&client()?, &args, out),
        Command::Cp(args) => commands::cp::run(&client()?, &args, out),
        Command::Cancel(args) => {
            let cancel = StepAction::Cancel { grace: args.grace };
            steer(cancel, &args.selection, args.flags)
        }
        Command::Suspend(args) => steer(StepAction::Suspend, &args.selection, args.flags),
        Command::Resume(args) => steer(StepAction::Resume, &args.selection, args.flags),
        Command::Requeue(args) => steer(StepAction::Requeue, &args.selection, args.flags),
        Command::Cordon(args) => commands::cordon::cordon(&client()?, &args, out),
        Command::Uncordon(args) => commands::cordon::uncordon(&client()?, &args, out),
        Command::Move(args) => match args.kind {
            MoveKind::Node(args) => commands::move_nodes::run(&client()?, &args, out),
            MoveKind::Step(args) => commands::move_steps::run(&client()?, &args, out),
        },
        Command::Drain(args) => commands::drain::run(&client()?, &args, out),
        Command::Scale(args) => commands::services::scale(&client()?, &args, out),
        Command::Rollout(args) => commands::services::rollout(&client()?, &args, out),
        Command::Gateway(args) => gateway::run(&args, chosen, out),
        Command::Apply(args) => commands::apply::run(&client()?, &args, out),
        Command::Create(args) => commands::elsewhere::create(&client()?, &args, out),
        Command::Config(args) => commands::elsewhere::config(&client()?, &args, out),
        Command::ResourcePool(args) => commands::elsewhere::pool(&client()?, args, out),
        Command::ResourceRequest(_) | Command::Resource(_) => {
            unreachable!("each of them is read as a command of ours")
        }
        Command::Label(args) => commands::label::run(&client()?, &args, out),
        Command::Token(args) => commands::token::run(&client()?, args, out),
        Command::Recovery(args) => commands::recovery::run(&client()?, &args, out),
        Command::Revoke(args) => commands::token::revoke(&client()?, &args, out),
        Command::Delete(args) => commands::delete::run(&client()?, &args, out),
        Command::ApiToken(args) => commands::access::api_token(&client()?, args, out),
        Command::Login(args) => commands::login::run(chosen, &args, out),
        Command::Logout => commands::context::logout(chosen, out),
        Command::Context(args) => commands::context::run(chosen, &args.command, out),
        Command::Auth(args) => commands::access::auth(&client()?, args, out),
        Command::Completions { shell } => commands::generate::completions(shell, out),
        Command::Man { dir } => commands::generate::man(&dir, out),
        Command::Detect(args) => commands::detect::run(&args, out),
        Command::Doctor(args) => commands::doctor::run(chosen, &args, out),
        Command::Replay(args) => commands::replay::run(&args, out),
        Command::Bench(args) => commands::bench::run(&client()?, &args, out),
        Command::Simulate(args) => simulate::run(&args, out),
        Command::Wait(args) => commands::wait::run(&client()?, &args, out),
    }
}

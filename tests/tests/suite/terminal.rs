//! Terminals of steps, driven in tmux by keys and judged by what the screen shows.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::Signal;
use sluice_tests::{Daemon, Dev, eventually, kill, pids_with_environ};

/// A terminal with a shell in it.
struct Tmux {
    socket: PathBuf,
}

/// The prompt of the shell in tmux.
const PROMPT: &str = "here>";
/// The prompt of shells on the terminals of steps.
const THERE: &str = "there>";

impl Tmux {
    fn start(dev: &Dev) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let tmux = Self {
            socket: dev.folder().join(format!("tmux-{number}")),
        };
        let shell = "env -i PATH=$PATH TERM=screen bash --norc --noprofile";
        tmux.call(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "90",
            "-y",
            "24",
            shell,
        ]);
        tmux.line(&format!("PS1='{PROMPT} '; clear"));
        tmux.until(PROMPT);
        tmux
    }

    fn call(&self, args: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S")
            .arg(&self.socket)
            .args(args)
            .env_remove("TMUX");
        let output = tmux.output().expect("tmux runs: tests/run.sh installs it");
        assert!(output.status.success(), "tmux {args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types keys by tmux's names.
    fn keys(&self, keys: &[&str]) {
        self.call(&[&["send-keys"], keys].concat());
    }

    /// Types a line.
    fn line(&self, text: &str) {
        self.call(&["send-keys", "-l", text]);
        self.keys(&["Enter"]);
    }

    fn screen(&self) -> String {
        self.call(&["capture-pane", "-p"])
    }

    /// Waits until the screen shows a text; returns the screen.
    fn until(&self, text: &str) -> String {
        eventually(&format!("`{text}` on the screen"), || {
            Some(self.screen()).filter(|screen| screen.contains(text))
        })
    }

    /// Waits until the screen shows a line; returns the screen.
    fn until_line(&self, line: &str) -> String {
        eventually(&format!("the line `{line}` on the screen"), || {
            Some(self.screen()).filter(|screen| screen.lines().any(|it| it.trim_end() == line))
        })
    }

    /// Types a `sluice` command.
    fn sluice(&self, dev: &Dev, args: &str) {
        let command = dev.command(&[]);
        let set = command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        let set = set.filter(|(name, _)| *name != "TERM");
        let set: Vec<String> = set
            .map(|(name, value)| format!("{}='{}'", name.display(), value.display()))
            .collect();
        let program = Path::new(command.get_program()).display();
        let script = dev.folder().join("s");
        let text = format!("#!/bin/sh\nexec env {} {program} \"$@\"\n", set.join(" "));
        std::fs::write(&script, text).unwrap();
        self.line(&format!("sh {} {args}", script.display()));
    }

    /// Checks the code of the last command, and that the terminal is as it was.
    fn ended_with(&self, code: i32) {
        eventually("the shell's own prompt", || {
            let screen = self.screen();
            let last = screen.trim_end().lines().last()?;
            let last = last.trim_end();
            (last.ends_with(PROMPT) && !last.ends_with(THERE)).then_some(())
        });
        self.line("echo code $?, $(stty -a | grep -ow -e '-*icanon' -e '-*echo' -e '-*opost')");
        self.until(&format!("code {code}, opost icanon echo"));
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let screen = format!("--- the screen\n{}---\n", self.screen());
            let _it_only_explains = std::io::stderr().write_all(screen.as_bytes());
        }
        let mut tmux = Command::new("tmux");
        let _it_has_ended = tmux.arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

#[test]
fn a_shell_has_a_terminal_of_its_own_and_the_size_and_keys_of_the_caller() {
    let dev = Dev::start();
    let tmux = Tmux::start(&dev);
    tmux.sluice(&dev, "run -it --id a -- bash --norc --noprofile");
    tmux.line("PS1='there> '; clear; tty; stty size; echo TERM=$TERM");
    let screen = tmux.until("TERM=screen");
    assert!(
        screen.contains("/dev/pts/") && screen.contains("24 90"),
        "{screen}"
    );
    // The terminal belongs to the step's user.
    tmux.line("clear; test -O $(tty) && echo it is mine");
    tmux.until_line("it is mine");
    // Ctrl-C reaches the program on the terminal, and no one else.
    tmux.line("clear; sleep 1000");
    eventually("sleep to run", || {
        let tree = dev.processes("a");
        tree.into_iter().find(|pid| comm(*pid) == "sleep")
    });
    tmux.keys(&["C-c"]);
    tmux.line("echo was $?");
    tmux.until_line("was 130");
    tmux.call(&["resize-window", "-x", "70", "-y", "20"]);
    tmux.line("clear; stty size");
    tmux.until_line("20 70");
    tmux.line("exit 7");
    tmux.until("exit code 7");
    tmux.ended_with(7);
    assert_eq!(dev.step_in("a", &["failed"])["exit"]["code"], 7);
    assert!(dev.ok(&["logs", "a"]).contains("there> exit 7"));
}

/// The name of vim: Debian's smallest package has only the second one.
fn vim() -> &'static str {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |name: &str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    if has("vim") { "vim" } else { "vim.tiny" }
}

fn comm(pid: u32) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    comm.unwrap_or_default().trim().to_owned()
}

#[test]
fn vim_edits_a_file_and_top_draws_its_screen() {
    let dev = Dev::start();
    let tmux = Tmux::start(&dev);
    let path = dev.folder().join("text");
    let file = path.display();
    tmux.sluice(&dev, &format!("run -it -- {} -u NONE -n {file}", vim()));
    tmux.until_line("~");
    tmux.keys(&["i"]);
    tmux.call(&["send-keys", "-l", "typed in a step"]);
    tmux.until("typed in a step");
    tmux.keys(&["Escape"]);
    tmux.line(":wq");
    let wrote = || std::fs::read_to_string(&path).is_ok_and(|it| it == "typed in a step\n");
    eventually("the file", || wrote().then_some(()));
    tmux.until(PROMPT);
    tmux.ended_with(0);
    // Beside a step, with its own screen.
    dev.ok(&["submit", "--id", "a", "--", "sleep", "1000"]);
    dev.step_in("a", &["running"]);
    tmux.line("clear");
    tmux.sluice(&dev, "exec -it a -- top -d 0.5");
    tmux.until("load average");
    tmux.keys(&["q"]);
    tmux.ended_with(0);
    tmux.sluice(&dev, "exec -it a -- sh -c 'stty size; exit 3'");
    tmux.until_line("24 90");
    tmux.ended_with(3);
}

#[test]
fn a_user_leaves_by_keys_and_comes_back_to_the_same_program() {
    let dev = Dev::start();
    let tmux = Tmux::start(&dev);
    tmux.sluice(&dev, "run -it --id a -- bash --norc --noprofile");
    tmux.line("here=1; PS1='there> '; clear");
    tmux.until_line("there>");
    tmux.keys(&["Enter"]);
    tmux.call(&["send-keys", "-l", "~."]);
    tmux.until("detached from a, which runs on");
    tmux.ended_with(0);
    dev.step_in("a", &["running"]);
    tmux.line("clear");
    tmux.sluice(&dev, "attach -it a");
    tmux.line("clear; echo here=$here");
    tmux.until_line("here=1");
    // Another caller takes it over.
    let other = Tmux::start(&dev);
    other.sluice(&dev, "attach -it a");
    other.line("echo by the other");
    other.until_line("by the other");
    tmux.until("another caller sends the input of a from now on");
    other.line("exit 0");
    other.until("there> exit 0");
    dev.step_in("a", &["succeeded"]);
    other.ended_with(0);
    tmux.ended_with(0);
}

#[test]
fn the_terminal_is_given_back_on_every_way_out() {
    let dev = Dev::start();
    let tmux = Tmux::start(&dev);
    dev.ok(&["submit", "--id", "a", "--", "sleep", "1000"]);
    dev.step_in("a", &["running"]);
    let shell = "-- bash --norc --noprofile";
    let client = |mark: &str| {
        eventually("the command", || {
            let named = |pid: &u32| comm(*pid) == "sluice";
            pids_with_environ(mark).into_iter().find(named)
        })
    };
    let context = dev.command(&[]);
    let context = context
        .get_envs()
        .find(|(name, _)| *name == "SLUICE_CONTEXT");
    let mark = format!("SLUICE_CONTEXT={}", context.unwrap().1.unwrap().display());
    // Killed by a signal.
    tmux.sluice(&dev, &format!("exec -it a {shell}"));
    tmux.line("PS1='there> '; clear");
    tmux.until_line("there>");
    kill(client(&mark), Signal::SIGTERM);
    tmux.ended_with(128 + 15);
    // By its keys, which end what runs beside a step.
    tmux.line("clear");
    tmux.sluice(&dev, &format!("exec -it a {shell}"));
    tmux.line("PS1='there> '; clear");
    tmux.until_line("there>");
    tmux.call(&["send-keys", "-l", "~."]);
    tmux.ended_with(125);
    // The link dies.
    tmux.line("clear");
    tmux.sluice(&dev, &format!("exec -it a {shell}"));
    tmux.line("PS1='there> '; clear");
    tmux.until_line("there>");
    dev.kill(Daemon::Coordinator);
    tmux.until("error:");
    tmux.ended_with(125);
    // The own step is cancelled, as by any signal; its shell hears that the terminal has gone.
    tmux.line("clear");
    tmux.sluice(&dev, &format!("run -it --id b {shell}"));
    tmux.line("PS1='there> '; clear");
    tmux.until_line("there>");
    kill(client(&mark), Signal::SIGTERM);
    tmux.until("b cancelled");
    tmux.ended_with(128 + 1);
}

#[test]
fn keys_survive_the_death_of_an_agent() {
    let dev = Dev::start();
    let tmux = Tmux::start(&dev);
    tmux.sluice(&dev, "run -it --id a -- bash --norc --noprofile");
    tmux.line("PS1='there> '; clear");
    tmux.until_line("there>");
    let agent = dev.kill(Daemon::Agent);
    tmux.line("clear; echo after the death");
    tmux.until_line("after the death");
    assert_ne!(dev.daemon(Daemon::Agent), Some(agent));
    tmux.line("exit");
    tmux.ended_with(0);
}

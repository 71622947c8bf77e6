//! Runs a program by bubblewrap, and waits for it. bubblewrap waits for the program itself, but a signal that is meant
//! for the step ends bubblewrap and not the program. So this process adopts what bubblewrap leaves, and ends as the
//! program does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::prctl::{set_child_subreaper, set_name};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::Deserialize;

use super::arguments::is_only_inside;
use super::program::ContainerProgram;
use super::root_view;
use super::start_report::StartReport;
use crate::streams::end_like;

/// Directories of the host that each container shows as they are. Devices are limited by the step's groups.
const OF_HOST: [(&str, &str); 3] = [
    ("--dev-bind", "/dev"),
    ("--bind", "/proc"),
    ("--ro-bind", "/sys"),
];
/// Files of the host by which names of the network are looked up.
const OF_NETWORK: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];

/// First line that bubblewrap writes to its status descriptor.
#[derive(Deserialize)]
struct RuntimeStatus {
    #[serde(rename = "child-pid")]
    child_pid: i32,
}

/// Starts the program, and ends as it does. Returns only if it does not start.
pub(super) fn run(
    program: &ContainerProgram,
    report: &mut StartReport,
) -> Result<ExitCode, String> {
    let failed = |e: io::Error| format!("the host could not start a container: {e}");
    let _it_is_a_name = set_name(c"sluice-contain");
    set_child_subreaper(true).map_err(|e| failed(e.into()))?;
    let (status, to_us) = io::pipe().map_err(failed)?;
    fcntl(&to_us, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|e| failed(e.into()))?;
    let env = program.env.iter().filter(|(name, _)| !is_only_inside(name));
    let runtime = Command::new(&program.runtime_path)
        .args(arguments(program, to_us.as_raw_fd())?)
        .env_clear()
        .envs(env)
        .spawn();
    let runtime = runtime.map_err(|e| program.unstartable(&e))?;
    drop(to_us);
    // The program gets each signal too, as a member of the step.
    let all = SigSet::all();
    let _a_signal_ends_both = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&all), None);
    let runtime = Pid::from_raw(runtime.id().cast_signed());
    let mut status = BufReader::new(File::from(OwnedFd::from(status)));
    let Some(child) = read_child(&mut status) else {
        let ended = waitpid(runtime, None);
        return Err(not_started(program, ended));
    };
    report.started();
    end_like(wait(runtime, child))
}

fn read_child(status: &mut impl BufRead) -> Option<Pid> {
    let mut line = String::new();
    status.read_line(&mut line).ok()?;
    let status: RuntimeStatus = serde_json::from_str(&line).ok()?;
    Some(Pid::from_raw(status.child_pid))
}

fn not_started(program: &ContainerProgram, ended: nix::Result<WaitStatus>) -> String {
    let how = match ended {
        Ok(WaitStatus::Exited(_, code)) => format!("it exited with {code}"),
        Ok(WaitStatus::Signaled(_, signal, _)) => format!("it was killed by {signal}"),
        Ok(_) | Err(_) => "it has ended".to_owned(),
    };
    format!(
        "{} could not make the container ({how}): its message is at the end of the step's stderr",
        program.runtime_path.display()
    )
}

/// Waits for bubblewrap, which ends as the program does, or for the program itself if a signal has ended bubblewrap.
fn wait(runtime: Pid, child: Pid) -> WaitStatus {
    let mut killed = None;
    loop {
        match waitpid(None, None) {
            Ok(status @ WaitStatus::Exited(pid, _)) if pid == runtime => return status,
            Ok(status @ WaitStatus::Signaled(pid, ..)) if pid == runtime => killed = Some(status),
            Ok(status @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)))
                if pid == child =>
            {
                return status;
            }
            Ok(_) | Err(Errno::EINTR) => {}
            // bubblewrap had waited for the program before it was killed.
            Err(_) => return killed.unwrap_or(WaitStatus::Exited(runtime, 1)),
        }
    }
}

fn arguments(program: &ContainerProgram, status: i32) -> Result<Vec<OsString>, String> {
    let image = Path::new(program.container.image.as_str());
    let network = OF_NETWORK.map(Path::new);
    let network = network.into_iter().filter(|path| path.exists());
    let host = OF_HOST.iter().map(|(_, path)| Path::new(path));
    let targets: Vec<&Path> = (program.mounts.keys().map(AsRef::as_ref))
        .chain(host)
        .chain(network.clone())
        .collect();
    let status = status.to_string();
    let mut args: Vec<OsString> = ["--unshare-user", "--json-status-fd", &status]
        .map(Into::into)
        .into();
    args.extend(root_view::arguments(image, &targets)?);
    let mut bind = |option: &str, source: &Path, target: &Path| {
        args.extend([option.into(), source.into(), target.into()]);
    };
    for (option, path) in OF_HOST {
        bind(option, Path::new(path), Path::new(path));
    }
    for path in network {
        bind("--ro-bind", path, path);
    }
    for (target, mount) in &program.mounts {
        let option = if mount.read_only {
            "--ro-bind"
        } else {
            "--bind"
        };
        bind(option, Path::new(&mount.source), target);
    }
    let inside = program.env.iter().filter(|(name, _)| is_only_inside(name));
    for (name, value) in inside {
        args.extend(["--setenv".into(), name.into(), value.into()]);
    }
    args.extend([
        "--chdir".into(),
        program.workdir.clone().into(),
        "--".into(),
    ]);
    args.extend(program.command.iter().cloned());
    Ok(args)
}

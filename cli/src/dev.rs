//! `sluice dev`: runs a whole cluster on this machine until it is stopped.
//!
//! The command reads what to start (`plan`: this machine as a host, or simulated ones by `declared_host`), makes folder and
//! credentials (`layout`), starts the daemons (`host` for those of each host, `gateway`) and restarts them when they die
//! (`daemons`), writes the context file (`announce`), and stops them in order.

mod announce;
mod banner;
mod daemon_process;
mod daemons;
mod declared_host;
mod gateway;
mod host;
mod layout;
mod plan;

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_common::api::NodeView;

use crate::args::DevArgs;
use crate::client::Client;
use crate::context::{Context, ContextFile, start_ticks};
use crate::failure::Failure;
use crate::out::Out;

use announce::Announcement;
use banner::Facts;
use daemons::{Addresses, Daemons, DevEnd};
use gateway::DevGateway;
use layout::{Layout, LayoutError, Programs};
use plan::Plan;

use declared_host::POOL;
pub(crate) use declared_host::{DeclaredHost, HostDocument};

/// Subject of the command line's steps.
const SUBJECT: &str = "dev";
/// Time that the daemons may take to be ready. Each starts in well under a second on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Characters of the API token: 160 bits.
const TOKEN_CHARS: usize = 32;

pub(crate) fn run(args: &DevArgs, out: Out) -> Result<u8, Failure> {
    let programs = Programs::find().map_err(refused)?;
    let layout = Layout::open(args.data.as_deref()).map_err(refused)?;
    if nix::unistd::geteuid().is_root() {
        out.warning("started as root, so steps run as root too");
    }
    let plan = Plan::of(args, &layout)?;
    let cluster = DevCluster::new(&programs, &layout, args.verbose)?;
    let mut daemons = Daemons::new(out, layout.was_left_unclean())?;
    let outcome = live(args, plan, &cluster, &mut daemons, out);
    daemons.stop();
    layout.close().map_err(refused)?;
    match outcome {
        Err(DevEnd::Failed(message)) => Err(Failure::Failed(message)),
        Err(DevEnd::Told(_)) | Ok(()) if daemons.were_ready() => Ok(0),
        Err(DevEnd::Told(signal)) => Ok(crate::signals::exit_code(signal)),
        Ok(()) => Ok(0),
    }
}

fn refused(error: LayoutError) -> Failure {
    Failure::Failed(error.to_string())
}

fn live(
    args: &DevArgs,
    plan: Plan,
    cluster: &DevCluster<'_>,
    daemons: &mut Daemons,
    out: Out,
) -> Result<(), DevEnd> {
    cluster.prepare()?;
    let addresses = daemons.start_coordinator(cluster.coordinator(args), |fixed| {
        cluster.coordinator_args(fixed)
    })?;
    let context = cluster.write_context(&addresses)?;
    let client = Client::new(Context {
        path: cluster.layout.context_file(),
        file: context.clone(),
    })
    .map_err(|error| DevEnd::Failed(error.to_string()))?;
    cluster.until(daemons, "the coordinator", || client.is_ready())?;
    plan.put_terms(&client).map_err(DevEnd::Failed)?;
    for host in &plan.hosts {
        host.start(cluster, daemons, &addresses)?;
    }
    let mut nodes = Vec::new();
    cluster.until(daemons, "every host", || {
        nodes = client.nodes().unwrap_or_default();
        plan.are_ready(&nodes)
    })?;
    plan.submit(&client).map_err(DevEnd::Failed)?;
    let announcement = Announcement::make(&context, &cluster.layout.context_file(), out);
    let gateway = match args.no_gateway {
        true => DevGateway::Unwanted,
        false => DevGateway::start(cluster, daemons)?,
    };
    cluster.greet(&addresses, &plan, &nodes, &announcement, &gateway, out);
    let told = daemons.keep_alive();
    announcement.withdraw();
    told
}

/// Paths and settings of all daemons.
struct DevCluster<'a> {
    programs: &'a Programs,
    layout: &'a Layout,
    verbose: bool,
    token: String,
}

impl<'a> DevCluster<'a> {
    fn new(programs: &'a Programs, layout: &'a Layout, verbose: bool) -> Result<Self, Failure> {
        Ok(Self {
            programs,
            layout,
            verbose,
            token: crate::request_builder::random_text(TOKEN_CHARS)?,
        })
    }

    fn program(
        &self,
        name: &'static str,
        path: &Path,
        log: &str,
        args: Vec<OsString>,
    ) -> daemon_process::DaemonCommand {
        let log = self.layout.logs_dir().join(format!("{log}.log"));
        daemon_process::DaemonCommand {
            name,
            path: path.to_owned(),
            args,
            log: (!self.verbose).then_some(log),
        }
    }

    /// Makes the cluster if there is none, and the token.
    fn prepare(&self) -> Result<(), DevEnd> {
        if !self.layout.coordinator_dir().join("tls").is_dir() {
            self.tool("init", &[])?;
        }
        let token = format!("{}\n", self.token);
        self.write(&self.layout.token_file(), &token)
    }

    /// Runs a command of the coordinator's program on the cluster's data.
    fn tool(&self, verb: &str, more: &[OsString]) -> Result<(), DevEnd> {
        let tool = self.program(
            "sluice-coordinator",
            &self.programs.coordinator,
            "",
            Vec::new(),
        );
        let data = self.layout.coordinator_dir().into_os_string();
        let mut args = words([verb, "--data-dir"], [data]);
        args.extend_from_slice(more);
        tool.run_once(&args).map_err(DevEnd::Failed)
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), DevEnd> {
        self.layout
            .write_private(path, text)
            .map_err(|e| DevEnd::Failed(e.to_string()))
    }

    fn coordinator(&self, args: &DevArgs) -> daemon_process::DaemonCommand {
        let asked = Addresses {
            http: args.http.to_string(),
            quic: args.quic.to_string(),
        };
        self.program(
            "sluice-coordinator",
            &self.programs.coordinator,
            "coordinator",
            self.coordinator_args(&asked),
        )
    }

    fn coordinator_args(&self, at: &Addresses) -> Vec<OsString> {
        let mut args = words(
            ["--data-dir"],
            [self.layout.coordinator_dir().into_os_string()],
        );
        args.extend(words(
            ["--http", &at.http, "--quic", &at.quic, "--api-token-file"],
            [],
        ));
        args.push(self.layout.token_file().into_os_string());
        args.push("--exit-with-stdin".into());
        args
    }

    fn write_context(&self, addresses: &Addresses) -> Result<ContextFile, DevEnd> {
        let context = ContextFile {
            http: addresses.http.clone(),
            token: Some(self.token.clone()),
            subject: Some(SUBJECT.into()),
            dev_pid: Some(std::process::id()),
            dev_start_ticks: start_ticks(std::process::id()),
            ..ContextFile::default()
        };
        let path = self.layout.context_file();
        let failed = |e| DevEnd::Failed(format!("cannot write {}: {e}", path.display()));
        context.write(&path).map_err(failed)?;
        Ok(context)
    }

    /// Waits until `what` is ready.
    fn until(
        &self,
        daemons: &mut Daemons,
        what: &str,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), DevEnd> {
        let deadline = Instant::now() + START_LIMIT;
        while !ready() {
            if Instant::now() > deadline {
                let logs = self.layout.logs_dir();
                return Err(DevEnd::Failed(format!(
                    "the daemons run, but {what} did not become ready within {}s: run again with --data DIR and read \
                     the logs in it, or with --verbose ({})",
                    START_LIMIT.as_secs(),
                    logs.display()
                )));
            }
            daemons.pause()?;
        }
        Ok(())
    }

    fn greet(
        &self,
        addresses: &Addresses,
        plan: &Plan,
        nodes: &[NodeView],
        announcement: &Announcement,
        gateway: &DevGateway,
        out: Out,
    ) {
        let program = std::env::args().next().unwrap_or_default();
        let here = plan
            .this_host()
            .and_then(|name| nodes.iter().find(|node| node.name == name));
        let text = banner::banner(
            &Facts {
                http: &addresses.http,
                quic: &addresses.quic,
                gateway: gateway.row().as_deref(),
                here,
                made: if here.is_some() { &[] } else { nodes },
                data: self.layout.root(),
                temporary: self.layout.is_temporary(),
                program: if program.contains('/') {
                    &program
                } else {
                    "sluice"
                },
                context: announcement.needed_flag(),
            },
            out,
        );
        out.notice(&text);
        let ready = serde_json::json!({
            "http": addresses.http,
            "quic": addresses.quic,
            "context": self.layout.context_file(),
        });
        // The parent may not read it.
        let _ = out.result(&format!("ready {ready}"));
    }
}

fn words<const N: usize, const M: usize>(texts: [&str; N], paths: [OsString; M]) -> Vec<OsString> {
    texts.into_iter().map(OsString::from).chain(paths).collect()
}

/// Quotes a text for TOML. JSON's escapes are among TOML's; the one character that only TOML escapes is added.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_strings_hold_any_text() {
        assert_eq!(
            toml_string("/a \"b\"\\c\n\u{1}\u{7f}"),
            r#""/a \"b\"\\c\n\u0001\u007f""#
        );
    }
}

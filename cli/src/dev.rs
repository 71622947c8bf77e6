//! `sluice dev`: a whole cluster on this machine, for as long as this command runs.
//!
//! It makes folder and credentials (`layout`), starts the daemons and starts them again when they die (`family`), tells
//! the command line where they are (`announce`), and stops them in order. It decides nothing that the daemons decide.

mod announce;
mod banner;
mod child;
mod family;
mod layout;

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_common::api::{NodeView, PolicyRequest};
use sluice_common::state::NodeState;

use crate::args::DevArgs;
use crate::client::Client;
use crate::context::{Context, ContextFile, start_ticks};
use crate::failure::Failure;
use crate::out::Out;

use announce::Announcement;
use banner::Facts;
use family::{Addresses, Family, Halt, Member};
use layout::{Layout, LayoutError, Programs};

/// The pool that the node joins.
const POOL: &str = "default";
/// On whose behalf the command line submits.
const SUBJECT: &str = "dev";
/// How long the daemons may take to be ready. Each starts in well under a second on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Characters of the token that API calls must carry: 160 bits.
const TOKEN_CHARS: usize = 32;

/// Runs the command.
pub(crate) fn run(args: &DevArgs, out: Out) -> Result<u8, Failure> {
    let programs = Programs::beside_us().map_err(refused)?;
    let layout = Layout::open(args.data.as_deref()).map_err(refused)?;
    if nix::unistd::geteuid().is_root() {
        out.warning("started as root, so steps run as root too");
    }
    let mut family = Family::new(out, layout.was_left_unclean())?;
    let outcome = live(args, &programs, &layout, &mut family, out);
    family.stop();
    layout.close().map_err(refused)?;
    match outcome {
        Err(Halt::Failed(message)) => Err(Failure::Failed(message)),
        Err(Halt::Told(_)) | Ok(()) if family.was_raised() => Ok(0),
        Err(Halt::Told(signal)) => Ok(crate::signals::exit_code(signal)),
        Ok(()) => Ok(0),
    }
}

fn refused(error: LayoutError) -> Failure {
    Failure::Failed(error.to_string())
}

fn live(
    args: &DevArgs,
    programs: &Programs,
    layout: &Layout,
    family: &mut Family,
    out: Out,
) -> Result<(), Halt> {
    let host = Host::new(programs, layout, args.verbose)?;
    host.prepare()?;
    let addresses = family.start_coordinator(host.coordinator(args)?, |fixed| {
        host.coordinator_args(fixed)
    })?;
    host.write_agent_config(&addresses)?;
    family.start(Member::Supervisor, host.supervisor())?;
    family.start(Member::Agent, host.agent())?;
    let context = host.write_context(&addresses)?;
    let client = Client::new(Context {
        path: layout.context_file(),
        file: context.clone(),
    });
    let node = host.until_ready(family, &client)?;
    let announcement = Announcement::make(&context, &layout.context_file(), out);
    host.greet(&addresses, &node, &announcement, out);
    let told = family.keep_alive();
    announcement.withdraw();
    told
}

/// What this host is called and where its daemons keep what.
struct Host<'a> {
    programs: &'a Programs,
    layout: &'a Layout,
    verbose: bool,
    node: String,
    token: String,
}

impl<'a> Host<'a> {
    fn new(programs: &'a Programs, layout: &'a Layout, verbose: bool) -> Result<Self, Halt> {
        let host = nix::unistd::gethostname().unwrap_or_default();
        Ok(Self {
            programs,
            layout,
            verbose,
            node: layout::node_name(&host),
            token: crate::order::random_text(TOKEN_CHARS)
                .map_err(|e| Halt::Failed(e.to_string()))?,
        })
    }

    fn program(&self, name: &'static str, path: &Path, args: Vec<OsString>) -> child::Program {
        let log = self
            .layout
            .logs_dir()
            .join(name.trim_start_matches("sluice-"))
            .with_extension("log");
        child::Program {
            name,
            path: path.to_owned(),
            args,
            log: (!self.verbose).then_some(log),
        }
    }

    /// Makes the cluster where there is none, the node's certificate and the token.
    fn prepare(&self) -> Result<(), Halt> {
        let tool = self.program("sluice-coordinator", &self.programs.coordinator, Vec::new());
        let data = self.layout.coordinator_dir().into_os_string();
        if !self.layout.coordinator_dir().join("tls").is_dir() {
            tool.run_once(&words(["init", "--data-dir"], [data.clone()]))
                .map_err(Halt::Failed)?;
        }
        let mut issue = words(["issue-node", &self.node, "--data-dir"], [data]);
        issue.extend(words(["--out"], [self.layout.agent_tls().into_os_string()]));
        tool.run_once(&issue).map_err(Halt::Failed)?;
        let token = format!("{}\n", self.token);
        self.write(&self.layout.token_file(), &token)
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), Halt> {
        self.layout
            .write_private(path, text)
            .map_err(|e| Halt::Failed(e.to_string()))
    }

    fn coordinator(&self, args: &DevArgs) -> Result<child::Program, Halt> {
        let asked = Addresses {
            http: args.http.to_string(),
            quic: args.quic.to_string(),
        };
        Ok(self.program(
            "sluice-coordinator",
            &self.programs.coordinator,
            self.coordinator_args(&asked),
        ))
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

    fn supervisor(&self) -> child::Program {
        let mut args = words(
            ["--state-dir"],
            [self.layout.supervisor_dir().into_os_string()],
        );
        args.extend(words(["--exit-with-stdin", "--stop-on-exit"], []));
        self.program("sluice-supervisor", &self.programs.supervisor, args)
    }

    fn agent(&self) -> child::Program {
        let mut args = words(["--config"], [self.layout.agent_config().into_os_string()]);
        args.extend(words(["--exit-with-stdin"], []));
        self.program("sluice-agent", &self.programs.agent, args)
    }

    fn write_agent_config(&self, addresses: &Addresses) -> Result<(), Halt> {
        let tls = |file: &str| toml_string(&self.layout.agent_tls().join(file).to_string_lossy());
        let path = std::env::var("PATH").ok().filter(|path| !path.is_empty());
        let path = path.map_or(String::new(), |path| {
            format!("path = {}\n", toml_string(&path))
        });
        let text = format!(
            "# Written by `sluice dev` at each start.\n\
             coordinators = [{}]\nnode = {}\npool = {}\nstate_dir = {}\nsupervisor_socket = {}\n{path}\
             tls = {{ ca = {}, cert = {}, key = {} }}\n",
            toml_string(&addresses.quic),
            toml_string(&self.node),
            toml_string(POOL),
            toml_string(&self.layout.agent_dir().to_string_lossy()),
            toml_string(&self.layout.supervisor_socket().to_string_lossy()),
            tls("ca.pem"),
            tls("node.pem"),
            tls("node.key"),
        );
        self.write(&self.layout.agent_config(), &text)
    }

    fn write_context(&self, addresses: &Addresses) -> Result<ContextFile, Halt> {
        let context = ContextFile {
            http: addresses.http.clone(),
            token: Some(self.token.clone()),
            subject: Some(SUBJECT.into()),
            local: true,
            dev_pid: Some(std::process::id()),
            dev_start_ticks: start_ticks(std::process::id()),
        };
        let path = self.layout.context_file();
        let failed = |e| Halt::Failed(format!("cannot write {}: {e}", path.display()));
        context.write(&path).map_err(failed)?;
        Ok(context)
    }

    /// Waits until the coordinator takes calls and this node takes work.
    fn until_ready(&self, family: &mut Family, client: &Client) -> Result<NodeView, Halt> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if client.is_ready()
                && let Ok(node) = client.node(&self.node)
                && node.state == NodeState::Ready
                && client
                    .put_policy(POOL, SUBJECT, &PolicyRequest::default())
                    .is_ok()
            {
                return Ok(node);
            }
            if Instant::now() > deadline {
                let logs = self.layout.logs_dir();
                return Err(Halt::Failed(format!(
                    "the daemons run, but this node did not become ready within {}s: run again with --data DIR and \
                     read the logs in it, or with --verbose ({})",
                    START_LIMIT.as_secs(),
                    logs.display()
                )));
            }
            family.pause()?;
        }
    }

    fn greet(&self, addresses: &Addresses, node: &NodeView, announcement: &Announcement, out: Out) {
        let program = std::env::args().next().unwrap_or_default();
        let text = banner::banner(
            &Facts {
                http: &addresses.http,
                quic: &addresses.quic,
                node: &node.name,
                inventory: &node.inventory,
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
        // Nobody has to read it.
        let _ = out.result(&format!("ready {ready}"));
    }
}

fn words<const N: usize, const M: usize>(texts: [&str; N], paths: [OsString; M]) -> Vec<OsString> {
    texts.into_iter().map(OsString::from).chain(paths).collect()
}

/// A text as TOML writes it. JSON's escapes are among TOML's; the one character that only TOML escapes is added.
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

//! Starts the supervisor and the agent of one host, with the agent's credentials and config.

use std::collections::BTreeMap;

use sluice_common::inventory::Inventory;

use super::daemons::{Addresses, DaemonKind, Daemons, DevEnd};
use super::declared_host::DeclaredHost;
use super::layout::HostPaths;
use super::{DevCluster, POOL, daemon_process, toml_string, words};

/// Config with which root permits steps as root. Other users' steps run as themselves by default.
const AS_ROOT: &str = "# Written by `sluice dev` at each start: steps run as whoever started it.\n\
    default_user = 0\nallow_root = true\n";

/// Whether root must permit it here; a named config has permitted it already.
fn must_say_root() -> bool {
    nix::unistd::geteuid().is_root() && std::env::var_os("SLUICE_SUPERVISOR_CONFIG").is_none()
}

/// A host to be started.
#[derive(Debug)]
pub(super) struct DevHost {
    pub(super) name: String,
    pool: String,
    labels: BTreeMap<String, String>,
    paths: HostPaths,
    /// Inventory to report instead of the machine's.
    declared: Option<Inventory>,
}

impl DevHost {
    /// Makes the host that is this machine.
    pub(super) fn this(name: String, paths: HostPaths) -> Self {
        Self {
            name,
            pool: POOL.to_owned(),
            labels: BTreeMap::new(),
            paths,
            declared: None,
        }
    }

    /// Makes a declared host.
    pub(super) fn made(host: DeclaredHost, paths: HostPaths) -> Self {
        Self {
            name: host.name.to_string(),
            pool: host.pool.to_string(),
            labels: host.labels,
            paths,
            declared: Some(host.inventory),
        }
    }

    /// Starts both daemons.
    pub(super) fn start(
        &self,
        cluster: &DevCluster<'_>,
        daemons: &mut Daemons,
        addresses: &Addresses,
    ) -> Result<(), DevEnd> {
        let out = self.paths.agent_tls().into_os_string();
        cluster.tool("issue-node", &words([&self.name, "--out"], [out]))?;
        cluster.write(&self.paths.agent_config(), &self.config(addresses))?;
        if let Some(declared) = &self.declared {
            let json =
                serde_json::to_string(declared).map_err(|e| DevEnd::Failed(e.to_string()))?;
            cluster.write(&self.paths.declared(), &json)?;
        }
        if must_say_root() {
            cluster.write(&self.paths.supervisor_config(), AS_ROOT)?;
        }
        daemons.start(DaemonKind::Supervisor, self.supervisor(cluster))?;
        daemons.start(DaemonKind::Agent, self.agent(cluster))
    }

    fn supervisor(&self, cluster: &DevCluster<'_>) -> daemon_process::DaemonCommand {
        let mut args = words(
            ["--state-dir"],
            [self.paths.supervisor_dir().into_os_string()],
        );
        args.extend(words(["--exit-with-stdin", "--stop-on-exit"], []));
        if must_say_root() {
            let config = self.paths.supervisor_config().into_os_string();
            args.extend(words(["--config"], [config]));
        }
        let path = &cluster.programs.supervisor;
        let log = self.paths.log("supervisor");
        cluster.program("sluice-supervisor", path, &log, args)
    }

    fn agent(&self, cluster: &DevCluster<'_>) -> daemon_process::DaemonCommand {
        let mut args = words(["--config"], [self.paths.agent_config().into_os_string()]);
        args.extend(words(["--exit-with-stdin"], []));
        if self.declared.is_some() {
            let declared = self.paths.declared().into_os_string();
            args.extend(words(["--declared"], [declared]));
        }
        let path = &cluster.programs.agent;
        cluster.program("sluice-agent", path, &self.paths.log("agent"), args)
    }

    fn config(&self, addresses: &Addresses) -> String {
        let tls = |file: &str| toml_string(&self.paths.agent_tls().join(file).to_string_lossy());
        let path = std::env::var("PATH").ok().filter(|path| !path.is_empty());
        let path = path.map_or(String::new(), |path| {
            format!("path = {}\n", toml_string(&path))
        });
        let labels = self.labels.iter();
        let labels: Vec<String> = labels
            .map(|(key, value)| format!("{} = {}", toml_string(key), toml_string(value)))
            .collect();
        format!(
            "# Written by `sluice dev` at each start.\n\
             coordinators = [{}]\nnode = {}\naddress = \"127.0.0.1\"\npool = {}\nlabels = {{ {} }}\nstate_dir = {}\nsupervisor_socket = {}\n\
             {path}tls = {{ ca = {}, cert = {}, key = {} }}\n",
            toml_string(&addresses.quic),
            toml_string(&self.name),
            toml_string(&self.pool),
            labels.join(", "),
            toml_string(&self.paths.agent_dir().to_string_lossy()),
            toml_string(&self.paths.supervisor_socket().to_string_lossy()),
            tls("ca.pem"),
            tls("node.pem"),
            tls("node.key"),
        )
    }

    pub(super) fn pool(&self) -> &str {
        &self.pool
    }

    pub(super) fn is_made(&self) -> bool {
        self.declared.is_some()
    }
}

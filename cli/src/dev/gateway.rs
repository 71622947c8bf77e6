//! The gateway of `sluice dev`: started at a free port of this machine if HAProxy is installed.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::Path;

use super::daemons::{DaemonKind, Daemons, DevEnd};
use super::{DevCluster, toml_string, words};
use crate::gateway::find_haproxy;

/// Most services and replicas: enough for one machine.
const LIMITS: &str = "max_services = 16\nmax_replicas = 32\n";

/// The gateway, or the reason that there is none.
#[derive(Debug)]
pub(super) enum DevGateway {
    /// The user wants none.
    Unwanted,
    /// Services are reached at this address.
    Started(String),
    /// HAProxy cannot be used, for this reason.
    Missing(String),
}

impl DevGateway {
    /// Starts it. It is not waited for: `dev` restarts it like every daemon.
    pub(super) fn start(cluster: &DevCluster<'_>, daemons: &mut Daemons) -> Result<Self, DevEnd> {
        let program = match find_haproxy(Path::new("haproxy")) {
            Ok(program) => program,
            Err(error) => return Ok(Self::Missing(error.to_string())),
        };
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = match free {
            Ok(address) => address.to_string(),
            Err(error) => return Ok(Self::Missing(format!("no port is free: {error}"))),
        };
        let root = cluster.layout.root();
        let path = |path: &Path| toml_string(&path.to_string_lossy());
        let config = root.join("gateway.toml");
        let text = format!(
            "name = \"dev\"\nbind = [{}]\nhaproxy = {}\nruntime_dir = {}\n{LIMITS}",
            toml_string(&address),
            path(&program),
            path(&root.join("gateway"))
        );
        cluster.write(&config, &text)?;
        let own = std::env::current_exe()
            .map_err(|e| DevEnd::Failed(format!("cannot find our own program: {e}")))?;
        let context = cluster.layout.context_file().into_os_string();
        let mut args: Vec<OsString> = words(["--context"], [context]);
        args.extend(words(
            ["gateway", "--exit-with-stdin", "--config"],
            [config.into_os_string()],
        ));
        let program = cluster.program("sluice gateway", &own, "gateway", args);
        daemons.start(DaemonKind::Gateway, program)?;
        Ok(Self::Started(address))
    }

    /// Text for the banner.
    pub(super) fn row(&self) -> Option<String> {
        match self {
            Self::Unwanted => None,
            Self::Started(address) => Some(format!(
                "http://{address} (services by host name, or by the header Sluice-Service)"
            )),
            Self::Missing(why) => Some(format!("none: {why}")),
        }
    }
}

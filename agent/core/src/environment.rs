//! Builds the environment of a step. Pure. The supervisor adds only what it alone knows: paths of the notice
//! and checkpoint files, and `HOME`, `USER`, `LOGNAME` and `SHELL` of the step's user, unless the step sets
//! them.

use alloc::borrow::ToOwned;
use alloc::string::ToString;

use sluice_common::container::Container;
use sluice_common::environment::Environment;
use sluice_common::image::ImageKind;
use sluice_common::port::{PORT_VARIABLE, PortName};
use sluice_common::wire::Assignment;

use crate::input::Settings;

/// Merges, from lowest to highest precedence: a default `PATH` and a gang's default rendezvous, the
/// templates' variables, the step's own variables, and the variables about its placement.
///
/// The last cannot be overridden: a program that could set its own `CUDA_VISIBLE_DEVICES` would reach its
/// neighbours' GPUs. Without GPUs that variable is empty, which hides every device; if it were unset, all
/// would be visible.
///
/// An image that brings variables of its own has its own `PATH`, unless the templates or the step set it.
pub(crate) fn environment(
    assignment: &Assignment,
    ports: &[u16],
    settings: &Settings,
) -> Environment {
    let mut env = built(assignment, ports, settings, assignment.env.clone());
    let brings_path = |container: &Container| container.image.form() != ImageKind::Directory;
    let is_set = assignment.env.contains_key("PATH") || assignment.launch.env.contains_key("PATH");
    if assignment.container.as_ref().is_some_and(brings_path) && !is_set {
        env.remove("PATH");
    }
    env
}

/// The environment of templates' wrappers and hooks: the same without the step's own variables, so that its
/// `PATH` or `LD_PRELOAD` cannot affect an admin's program.
pub(crate) fn around(assignment: &Assignment, ports: &[u16], settings: &Settings) -> Environment {
    built(assignment, ports, settings, Environment::default())
}

/// `ports` has the number of each of the assignment's ports, in their order.
fn built(
    assignment: &Assignment,
    ports: &[u16],
    settings: &Settings,
    own: Environment,
) -> Environment {
    let mut env = Environment::from([("PATH".to_owned(), settings.path.clone())]);
    let gang = &assignment.gang;
    if let (Some(port), Some(first)) = (gang.port, gang.hosts.first()) {
        env.insert("MASTER_ADDR".to_owned(), first.clone());
        env.insert("MASTER_PORT".to_owned(), port.to_string());
    }
    env.extend(assignment.launch.env.clone());
    env.extend(own);
    env.extend(
        [
            ("SLUICE_STEP_ID", assignment.attempt.step.to_string()),
            ("SLUICE_ATTEMPT", assignment.attempt.number.to_string()),
            ("SLUICE_POOL", assignment.pool.to_string()),
            ("SLUICE_NODE", settings.node.to_string()),
            ("SLUICE_NODE_RANK", gang.rank.to_string()),
            ("SLUICE_NODES", gang.hosts.len().to_string()),
            ("SLUICE_HOSTS", gang.hosts.join(",")),
            ("CUDA_VISIBLE_DEVICES", assignment.gpus.join(",")),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    let first = ports.first().map(|port| (PORT_VARIABLE.to_owned(), port));
    let named = assignment.ports.iter().map(PortName::variable).zip(ports);
    let numbers = first.into_iter().chain(named);
    env.extend(numbers.map(|(name, port)| (name, port.to_string())));
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;
    use sluice_common::amount::Amounts;
    use sluice_common::id::{NodeName, PoolName, Subject};
    use sluice_common::time::Span;
    use sluice_common::wire::Gang;

    fn assignment(env: &[(&str, &str)], gpus: &[&str]) -> Assignment {
        Assignment {
            streams: Default::default(),
            container: None,
            inputs: vec![],
            keep: vec![],
            ports: vec![],
            probes: Default::default(),
            is_measured: false,
            attempt: "train.3".parse().unwrap(),
            pool: PoolName::new("big").unwrap(),
            command: vec!["true".to_owned()],
            env: env
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            workdir: None,
            prefer_workdir: None,
            gpus: gpus.iter().map(|uuid| (*uuid).to_owned()).collect(),
            timeout: None,
            grace: Span::from_secs(30),
            gang: Gang::single("host-7"),
            subject: Subject::new("s").unwrap(),
            submitter: None,
            resources: Amounts::new(),
            cpu_mode: Default::default(),
            launch: sluice_common::template::launch::Launch::default(),
            warrant: Default::default(),
        }
    }

    fn settings(path: &str) -> Settings {
        Settings {
            node: NodeName::new("host-7").unwrap(),
            path: path.to_owned(),
            gpu_release_timeout: Span::from_secs(30),
            respect_foreign: true,
            gpus_are_declared: false,
            attempts_dir: "/attempts".to_owned(),
            inputs_dir: "/inputs".to_owned(),
            suspend_limit: Span::from_secs(120),
            topology: Default::default(),
            ports: Default::default(),
        }
    }

    fn built(env: &[(&str, &str)], gpus: &[&str]) -> Environment {
        environment(&assignment(env, gpus), &[], &settings("/usr/bin:/bin"))
    }

    #[test]
    fn a_step_gets_these_variables_and_no_others() {
        let env = built(&[("LR", "0.1")], &["GPU-a", "GPU-b"]);
        let expected = [
            ("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"),
            ("LR", "0.1"),
            ("PATH", "/usr/bin:/bin"),
            ("SLUICE_ATTEMPT", "3"),
            ("SLUICE_HOSTS", "host-7"),
            ("SLUICE_NODE", "host-7"),
            ("SLUICE_NODES", "1"),
            ("SLUICE_NODE_RANK", "0"),
            ("SLUICE_POOL", "big"),
            ("SLUICE_STEP_ID", "train"),
        ];
        let pairs: vec::Vec<_> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, expected);
    }

    #[test]
    fn a_step_may_bring_its_own_path() {
        assert_eq!(built(&[("PATH", "/opt/bin")], &[])["PATH"], "/opt/bin");
    }

    #[test]
    fn an_image_keeps_its_own_path_unless_the_step_sets_one() {
        let settings = settings("/usr/bin:/bin");
        for (image, own, expected) in [
            ("docker.io/library/python:3", None, None),
            ("docker.io/library/python:3", Some("/opt"), Some("/opt")),
            ("/images/rootfs", None, Some("/usr/bin:/bin")),
        ] {
            let own = own.map(|path| ("PATH", path));
            let mut assignment = assignment(own.as_slice(), &[]);
            assignment.container = Some(Container {
                image: image.parse().unwrap(),
                runtime: None,
                mounts: vec![],
            });
            let env = environment(&assignment, &[], &settings);
            assert_eq!(env.get("PATH").map(String::as_str), expected, "{image}");
        }
    }

    #[test]
    fn a_step_cannot_choose_its_gpus_or_its_name() {
        let lies = [
            ("CUDA_VISIBLE_DEVICES", "0,1"),
            ("SLUICE_STEP_ID", "other"),
            ("SLUICE_NODE", "other"),
        ];
        let env = built(&lies, &["GPU-a"]);
        assert_eq!(env["CUDA_VISIBLE_DEVICES"], "GPU-a");
        assert_eq!(env["SLUICE_STEP_ID"], "train");
        assert_eq!(env["SLUICE_NODE"], "host-7");
    }

    #[test]
    fn the_parts_of_a_gang_know_each_other_and_where_to_meet() {
        let mut part = assignment(&[("MASTER_PORT", "1"), ("SLUICE_NODES", "9")], &[]);
        part.gang = Gang {
            rank: 1,
            hosts: vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()],
            port: Some(29_501),
        };
        let env = environment(&part, &[], &settings(""));
        assert_eq!(env["SLUICE_NODE_RANK"], "1");
        assert_eq!(env["SLUICE_NODES"], "2");
        assert_eq!(env["SLUICE_HOSTS"], "10.0.0.1,10.0.0.2");
        assert_eq!(env["MASTER_ADDR"], "10.0.0.1");
        assert_eq!(env["MASTER_PORT"], "1", "it may bring its own");
        assert!(!built(&[], &[]).contains_key("MASTER_ADDR"));
    }

    #[test]
    fn a_step_is_told_its_ports_and_cannot_change_them() {
        let mut assignment = assignment(&[("SLUICE_PORT", "1")], &[]);
        assignment.ports = vec!["http".parse().unwrap(), "grpc-web".parse().unwrap()];
        let settings = settings("");
        for env in [
            environment(&assignment, &[20_000, 20_007], &settings),
            around(&assignment, &[20_000, 20_007], &settings),
        ] {
            assert_eq!(env["SLUICE_PORT"], "20000");
            assert_eq!(env["SLUICE_PORT_HTTP"], "20000");
            assert_eq!(env["SLUICE_PORT_GRPC_WEB"], "20007");
        }
    }

    #[test]
    fn a_step_without_gpus_sees_none() {
        assert_eq!(built(&[], &[])["CUDA_VISIBLE_DEVICES"], "");
    }
}

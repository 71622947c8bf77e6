//! Device filters of a real supervisor: attempts cannot open stand-in GPUs that they were not granted, by
//! each mechanism; a host without one reports that.

use std::path::Path;

use sluice_common::device::DeviceNumber;
use sluice_common::inventory::{Capability, Mechanism};
use sluice_common::supervision::{DeviceAccess, Exit, SpawnSpec};

use crate::client::sh;
use crate::fences::{FIRST, SECOND, nodes};
use crate::host::Host;

/// A supervisor with this config, whose steps run as root.
fn host(filter: &str, gpus: &[&Path]) -> Host {
    let gpus: Vec<String> = gpus.iter().map(|path| format!("{path:?}")).collect();
    let config = format!(
        "default_user = \"root\"\nallow_root = true\ndevice_filter = \"{filter}\"\ngpu_devices = [{}]\n",
        gpus.join(", ")
    );
    Host::start_under(&config, &[])
}

fn granted(id: &str, script: &str, granted: &[DeviceNumber], fenced: &[DeviceNumber]) -> SpawnSpec {
    SpawnSpec {
        devices: DeviceAccess {
            granted: granted.to_vec(),
            all_gpus: fenced.to_vec(),
        },
        ..sh(id, script)
    }
}

fn opens(path: &Path) -> String {
    format!("(exec 3<>{})", path.display())
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

const BY_EACH: [(&str, Mechanism); 2] = [
    ("cgroup2", Mechanism::Cgroup2),
    ("cgroup1", Mechanism::Cgroup1),
];

#[test]
fn an_attempt_opens_what_it_was_granted_and_no_other_gpu() {
    if !crate::left_out::needs_root() {
        // This user's groups cannot filter devices: see the last test.
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = nodes(dir.path());
    for (filter, mechanism) in BY_EACH {
        let host = host(filter, &[&first, &second]);
        let mut client = host.client();
        assert_eq!(client.capabilities[&Capability::Devices], mechanism);
        let script = format!(
            "unset CUDA_VISIBLE_DEVICES; {} && ! {} 2>/dev/null && exec setsid -w sh -c '{} && ! {} 2>/dev/null \
             && exec 3<>/dev/null 4</dev/urandom 5<>/dev/ptmx'",
            opens(&first),
            opens(&second),
            opens(&first),
            opens(&second),
        );
        let spec = granted("first.1", &script, &[FIRST], &[]);
        assert_eq!(client.run(&spec), Exit::Code(0), "{filter}");
        let neither = format!("! {} && ! {}", opens(&first), opens(&second));
        assert_eq!(
            client.run(&sh("none.1", &neither)),
            Exit::Code(0),
            "{filter}"
        );
    }
}

#[test]
fn what_the_supervisor_knows_to_be_a_gpu_no_agent_can_leave_out() {
    if !crate::left_out::needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = nodes(dir.path());
    let real = dir.path().join("nvidia7");
    crate::fences::node(&real, DeviceNumber::new(195, 7));
    for (filter, _) in BY_EACH {
        // The config names only the first; the agent adds the second.
        let host = host(filter, &[&first]);
        let mut client = host.client();
        let why = |path: &Path| format!("{} 2>&1 | grep -q 'not permitted'", opens(path));
        let script = format!("{} && {} && {}", why(&first), why(&second), why(&real));
        let spec = granted("adds.1", &script, &[], &[SECOND]);
        assert_eq!(client.run(&spec), Exit::Code(0), "{filter}");
        // The second is not named here, so it is no GPU; the others are denied although the agent named none.
        let script = format!("{} && {} && {}", why(&first), opens(&second), why(&real));
        assert_eq!(
            client.run(&sh("silent.1", &script)),
            Exit::Code(0),
            "{filter}"
        );
    }
}

#[test]
fn instances_of_one_gpu_share_its_device_and_not_their_own() {
    if !crate::left_out::needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [gpu, instance] = nodes(dir.path());
    let host = host("auto", &[&gpu, &instance]);
    let mut client = host.client();
    let both = format!("{} && {} && sleep 1000", opens(&gpu), opens(&instance));
    let holder = granted("holder.1", &both, &[FIRST, SECOND], &[]);
    client.spawn(&holder);
    client.wait_running(&holder.attempt);
    let script = format!("{} && ! {}", opens(&gpu), opens(&instance));
    let beside = granted("beside.1", &script, &[FIRST], &[]);
    assert_eq!(client.run(&beside), Exit::Code(0));
}

#[test]
fn a_fence_outlives_the_supervisor_that_made_it() {
    if !crate::left_out::needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = nodes(dir.path());
    let mut host = host("auto", &[&first, &second]);
    let mut client = host.client();
    let go = dir.path().join("go");
    let script = format!(
        "until test -e {}; do sleep 0.01; done; ! {}; echo $?",
        go.display(),
        opens(&second)
    );
    let spec = granted("waits.1", &script, &[FIRST], &[]);
    client.spawn(&spec);
    client.wait_running(&spec.attempt);
    host.kill();
    host.restart();
    std::fs::write(&go, "").unwrap();
    host.client().wait_gone(&spec.attempt);
    assert_eq!(host.output(&spec.attempt, "stdout"), "0\n");
}

#[test]
fn a_host_that_fences_nobody_says_so() {
    let host = match is_root() {
        true => host("none", &[]),
        false => Host::start(),
    };
    let mut client = host.client();
    assert_eq!(client.capabilities[&Capability::Devices], Mechanism::None);
    assert_eq!(client.run(&sh("runs.1", "exit 3")), Exit::Code(3));
    let log = host.log.lock().unwrap();
    assert!(log.contains("devices=none"), "{log}");
}

#[test]
fn an_attempt_that_cannot_be_fenced_is_not_started_and_leaves_nothing() {
    if !crate::left_out::needs_root() {
        return;
    }
    let host = host("auto", &[]);
    let mut client = host.client();
    let too_many = vec![FIRST; 5000];
    match client.run(&granted("many.1", "true", &[], &too_many)) {
        Exit::HostFailed(why) => {
            assert!(
                why.contains("5000 device nodes of GPUs are listed"),
                "{why}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(client.run(&sh("next.1", "exit 3")), Exit::Code(3));
}

#[test]
fn fences_that_are_used_again_are_those_that_were_asked_for() {
    if !crate::left_out::needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = nodes(dir.path());
    let host = host("auto", &[&first, &second]);
    let mut client = host.client();
    let files = |pid| crate::host::open_files(pid);
    let mut most = 0;
    for round in 1..=30 {
        // Each round grants another device too, so that filters are replaced.
        let other = DeviceNumber::new(195, round);
        for (name, grant, open, closed) in [
            ("a", FIRST, &first, &second),
            ("b", SECOND, &second, &first),
        ] {
            let script = format!("{} && ! {}", opens(open), opens(closed));
            let spec = granted(&format!("{name}.{round}"), &script, &[grant, other], &[]);
            assert_eq!(client.run(&spec), Exit::Code(0), "{name}.{round}");
            client.forget(&spec.attempt);
        }
        if round == 20 {
            most = files(host.pid());
        }
    }
    assert!(
        files(host.pid()) <= most + 2,
        "no descriptor is kept for ever"
    );
}

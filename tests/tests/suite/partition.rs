//! A real network partition: three network namespaces, a coordinator and two hosts, and a cut cable. Needs root and
//! `ip`; says so and passes without them.

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_tests::{eventually, kill};

use crate::namespaces::Namespaces;

const HOSTS: &[&str] = &["1", "2"];

/// Timeouts so short that the test need not wait for minutes; `lost_after` is the least that they allow.
const TERMS: &str = "lease = \"2s\"\nstop_limit = \"1s\"\nheartbeat = \"300ms\"\nunreachable_after = \"2s\"\nlost_after = \"23s\"\n";

/// Timeouts under which a silent host is lost long after its leases have expired.
const PATIENT: &str = "lease = \"10s\"\nstop_limit = \"5s\"\nheartbeat = \"1s\"\nunreachable_after = \"8s\"\nlost_after = \"60s\"\n";

#[test]
fn a_step_behind_a_partition_stops_before_it_is_started_elsewhere() {
    if !Namespaces::can_be_made() {
        sluice_tests::left_out("network namespaces need root and `ip`");
        return;
    }
    let mut net = Namespaces::new("", HOSTS);
    net.coordinator(TERMS);
    let (_, agent) = net.host("1");
    net.node_is("host-1", "ready");
    net.sluice(&[
        "submit",
        "--id",
        "wanderer",
        "--workdir",
        "/",
        "--grace",
        "100ms",
        "--",
        "sh",
        "-c",
        "trap '' TERM; while :; do sleep 0.1; done",
    ]);
    eventually("the first attempt", || {
        (!net.running("wanderer", 1).is_empty()).then_some(())
    });
    net.host("2");
    net.node_is("host-2", "ready");

    net.cable("1", "down");
    // Without an agent the supervisor enforces the lease by itself.
    kill(agent, Signal::SIGKILL);
    net.node_is("host-1", "unreachable");
    assert_eq!(
        net.step("wanderer")["attempt"],
        1,
        "silence alone starts nothing elsewhere"
    );
    eventually("the second attempt", || {
        let second = net.running("wanderer", 2);
        let first = net.running("wanderer", 1);
        assert!(
            second.is_empty() || first.is_empty(),
            "two copies: {first:?} and {second:?}"
        );
        (!second.is_empty()).then_some(())
    });
    let step = net.step("wanderer");
    assert_eq!(
        (&step["attempt"], &step["placements"][0]["node"]),
        (&Value::from(2), &Value::from("host-2")),
        "{step}"
    );
    net.node_is("host-1", "lost");

    net.cable("1", "up");
    let config = net.path("host-1/agent.toml");
    net.daemon("1", "sluice-agent", &["--config", config.to_str().unwrap()]);
    net.node_is("host-1", "ready");
    assert_eq!(
        net.step("wanderer")["attempt"],
        2,
        "what was started elsewhere stays there"
    );
    net.sluice(&["cancel", "wanderer"]);
    eventually("its end", || {
        net.running("wanderer", 2).is_empty().then_some(())
    });
}

#[test]
fn what_a_host_that_hears_nothing_was_told_to_start_goes_elsewhere_before_it_is_lost() {
    if !Namespaces::can_be_made() {
        eprintln!("skipped: network namespaces need root and `ip`");
        return;
    }
    let mut net = Namespaces::new("d", HOSTS);
    net.coordinator(PATIENT);
    net.host("1");
    net.node_is("host-1", "ready");
    net.deafen("1");
    let submit = "submit --id unheard --workdir / -- sleep 1000";
    net.sluice(&submit.split(' ').collect::<Vec<_>>());
    assert_eq!(
        net.step("unheard")["attempt"],
        1,
        "it was sent before anybody knew"
    );
    net.node_is("host-1", "unreachable");
    net.host("2");
    net.node_is("host-2", "ready");
    eventually("the second attempt", || {
        assert_eq!(
            net.running("unheard", 1),
            [0_u32; 0],
            "the order did not arrive"
        );
        (!net.running("unheard", 2).is_empty()).then_some(())
    });
    // Its link has not broken yet, or only now: no test waited for the host to be lost.
    net.node_is("host-1", "unreachable");
    net.sluice(&["cancel", "unheard"]);
    eventually("its end", || {
        net.running("unheard", 2).is_empty().then_some(())
    });
}

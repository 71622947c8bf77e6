//! Tests of the backends: what follows from each change of the endpoints.

use super::*;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

/// A service with ready replicas, by port, and others that have not ended.
fn service(ready: &[(&str, u16)], others: &[&str]) -> DesiredService {
    let replicas = ready
        .iter()
        .map(|(name, port)| ((*name).to_owned(), address(*port)));
    let members = ready
        .iter()
        .map(|(name, _)| *name)
        .chain(others.iter().copied());
    DesiredService {
        max_concurrency: 0,
        replicas: replicas.collect(),
        members: members.map(str::to_owned).collect(),
    }
}

fn web(service: DesiredService) -> DesiredServices {
    DesiredServices::from([("web".to_owned(), service)])
}

/// Applies everything that follows; returns the commands.
fn follow(backends: &mut Backends, desired: &DesiredServices) -> Vec<String> {
    let mut commands = Vec::new();
    let removals = backends.removals(desired);
    for change in removals {
        commands.extend(backends.commands(&change));
        backends.apply(change);
    }
    for change in backends.additions(desired).changes {
        commands.extend(backends.commands(&change));
        backends.apply(change);
    }
    commands
}

fn backends() -> Backends {
    Backends::new(2, 3, String::new())
}

#[test]
fn a_replica_gets_requests_and_then_its_service_is_found() {
    let mut backends = backends();
    let desired = web(DesiredService {
        max_concurrency: 4,
        ..service(&[("web-1", 80)], &["web-2"])
    });
    let commands = follow(&mut backends, &desired);
    let expected = [
        "set server slot1/s1 addr 10.0.0.1 port 80",
        "set maxconn server slot1/s1 4",
        "set server slot1/s1 state ready",
        "add map services.map web slot1",
    ];
    assert_eq!(commands, expected);
    assert_eq!(
        follow(&mut backends, &desired),
        [""; 0],
        "only differences are applied"
    );
    let more = web(service(&[("web-1", 80)], &[]));
    assert_eq!(
        follow(&mut backends, &more),
        ["set maxconn server slot1/s1 0"]
    );
}

#[test]
fn what_leaves_drains_before_others_come_and_is_freed_when_it_has_ended() {
    let mut backends = backends();
    follow(
        &mut backends,
        &web(service(&[("web-1", 80), ("web-2", 81)], &[])),
    );
    let next = web(service(&[("web-2", 81), ("web-3", 82)], &["web-1"]));
    let commands = follow(&mut backends, &next);
    assert_eq!(commands[0], "set server slot1/s1 state drain");
    assert_eq!(commands[1], "set server slot1/s3 addr 10.0.0.1 port 82");
    assert_eq!(backends.draining(), [(0, 0)]);
    assert_eq!(follow(&mut backends, &next), [""; 0], "its requests go on");
    let later = web(service(&[("web-2", 81), ("web-3", 82)], &[]));
    let expected = [
        "set server slot1/s1 state maint",
        "shutdown sessions server slot1/s1",
    ];
    assert_eq!(follow(&mut backends, &later), expected);
    assert_eq!(backends.draining(), []);
}

#[test]
fn requests_wait_from_before_the_last_replica_leaves() {
    let mut backends = backends();
    follow(&mut backends, &web(service(&[("web-1", 80)], &[])));
    let commands = follow(&mut backends, &web(service(&[], &["web-1"])));
    let expected = [
        "set map services.map web slot1/waiting",
        "set server slot1/s1 state drain",
    ];
    assert_eq!(commands, expected);
    let commands = follow(&mut backends, &web(service(&[("web-2", 81)], &[])));
    assert_eq!(commands.last().unwrap(), "set map services.map web slot1");
    let asleep = DesiredServices::from([("idle".to_owned(), service(&[], &[]))]);
    let commands = follow(&mut self::backends(), &asleep);
    assert_eq!(commands, ["add map services.map idle slot1/waiting"]);
}

#[test]
fn an_attempt_elsewhere_is_another_server() {
    let mut backends = backends();
    follow(&mut backends, &web(service(&[("web-1", 80)], &[])));
    let moved = web(service(&[("web-1", 90)], &[]));
    let commands = follow(&mut backends, &moved);
    assert_eq!(commands[1], "set server slot1/s1 state drain");
    assert_eq!(commands[2], "set server slot1/s2 addr 10.0.0.1 port 90");
    let commands = follow(&mut backends, &moved);
    assert_eq!(
        commands[0], "set server slot1/s1 state maint",
        "the first attempt has ended"
    );
}

#[test]
fn a_deleted_service_is_not_found_and_its_backend_is_given_again_once_it_is_empty() {
    let mut backends = Backends::new(1, 2, ".example.org".to_owned());
    follow(&mut backends, &web(service(&[("web-1", 80)], &[])));
    let other = DesiredServices::from([("Other".to_owned(), service(&[("other-1", 90)], &[]))]);
    let removals = backends.removals(&other);
    assert_eq!(
        backends.commands(&removals[0]),
        ["del map services.map web.example.org"]
    );
    removals
        .into_iter()
        .for_each(|change| backends.apply(change));
    let plan = backends.additions(&other);
    assert_eq!(plan.changes, []);
    let shortage = plan.shortages.first().unwrap();
    assert!(
        shortage.contains("`Other`") && shortage.contains("raise max_services"),
        "{shortage}"
    );
    let commands = follow(&mut backends, &other);
    assert_eq!(commands[0], "set server slot1/s1 state maint");
    assert_eq!(
        commands.last().unwrap(),
        "add map services.map other.example.org slot1"
    );
}

#[test]
fn replicas_beyond_the_servers_are_told_and_come_later() {
    let mut backends = Backends::new(1, 1, String::new());
    let both = web(service(&[("web-1", 80), ("web-2", 81)], &[]));
    let plan = backends.additions(&both);
    assert_eq!(plan.changes.len(), 2);
    assert!(
        plan.shortages
            .first()
            .unwrap()
            .contains("raise max_replicas")
    );
    follow(&mut backends, &both);
    let commands = follow(&mut backends, &web(service(&[("web-2", 81)], &[])));
    assert_eq!(
        commands,
        [
            "set map services.map web slot1/waiting",
            "set server slot1/s1 state drain"
        ]
    );
    let commands = follow(&mut backends, &web(service(&[("web-2", 81)], &[])));
    assert_eq!(commands[0], "set server slot1/s1 state maint");
    assert_eq!(commands.last().unwrap(), "set map services.map web slot1");
}

#[test]
fn a_change_that_failed_is_planned_again() {
    let mut backends = backends();
    let desired = web(service(&[("web-1", 80)], &[]));
    let first = backends.additions(&desired).changes;
    assert_eq!(backends.additions(&desired).changes, first);
    // The server was added, the route was not; the service may go before it comes.
    backends.apply(first[0].clone());
    assert_eq!(backends.additions(&desired).changes, first[1..]);
    let gone = DesiredServices::new();
    let commands = follow(&mut backends, &gone);
    assert_eq!(commands, ["set server slot1/s1 state drain"]);
    follow(&mut backends, &gone);
    assert_eq!(backends.services().count(), 0);
}

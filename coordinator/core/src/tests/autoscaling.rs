//! Services whose number of replicas follows their load.

use sluice_common::id::ReporterName;
use sluice_common::pool::PolicySpec;
use sluice_common::service::{RequestLoad, ScaleMetric, ScaleSpec};
use sluice_common::time::Span;
use sluice_common::usage::UsageReport;
use sluice_common::wire::FromNode;

use super::harness::*;
use super::services::{known, phases, put, range, run_all, service, stop_all, web};
use crate::record::Record;
use crate::{Answer, Input, Refusal, ReplyId, ServiceReport};

/// Two requests at once for each replica.
fn by_concurrency(min: u32, max: u32) -> ScaleSpec {
    ScaleSpec {
        metric: Some(ScaleMetric::Concurrency),
        target_milli: Some(2000),
        down_after: Span::from_secs(60),
        ..range(min, max)
    }
}

fn report(harness: &mut Harness, reporter: &str, concurrency: u64) -> Result<(), Refusal> {
    let effects = harness.feed(Input::ReportLoad {
        reply: ReplyId(9),
        report: ServiceReport {
            service: web(),
            reporter: ReporterName::new(reporter).unwrap(),
            load: RequestLoad {
                concurrency_milli: concurrency * 1000,
                rps_milli: 0,
            },
        },
    });
    match &effects.answers[..] {
        [Answer::Changed(answer)] => answer.clone(),
        other => panic!("{other:?}"),
    }
}

/// Reports the same every 5 seconds, while the host is heard.
fn report_for(harness: &mut Harness, concurrency: u64, secs: u64) {
    for _ in 0..secs / 5 {
        harness.pass(5);
        harness.heartbeat("n");
        report(harness, "g", concurrency).unwrap();
        run_all(harness);
        stop_all(harness);
    }
}

#[test]
fn replicas_follow_the_requests_that_gateways_count() {
    let mut harness = Harness::one_node(4, 16);
    put(&mut harness, service(by_concurrency(1, 6)));
    run_all(&mut harness);
    let version = known(&harness).version;
    report(&mut harness, "a", 3).unwrap();
    assert_eq!(known(&harness).count, 2);
    report(&mut harness, "b", 2).unwrap();
    assert_eq!(known(&harness).count, 3, "the reports of both are added");
    run_all(&mut harness);
    assert_eq!(phases(&harness), "1 serves, 2 serves, 3 serves");
    assert_eq!(known(&harness).version, version, "nobody changed it");
    report_for(&mut harness, 1, 90);
    assert_eq!(known(&harness).count, 1);
    let scaled = harness.log.iter().filter_map(|entry| {
        let Record::ServiceScaled(it) = &entry.record else {
            return None;
        };
        Some((it.count, it.load.unwrap().total_milli))
    });
    let scaled: alloc::vec::Vec<_> = scaled.collect();
    assert_eq!(scaled[..2], [(2, Some(3000)), (3, Some(5000))]);
}

#[test]
fn a_report_counts_for_a_while_and_silence_changes_nothing() {
    let mut harness = Harness::one_node(4, 16);
    put(&mut harness, service(by_concurrency(1, 6)));
    report(&mut harness, "a", 7).unwrap();
    assert_eq!(known(&harness).count, 4);
    harness.pass(300);
    assert_eq!(known(&harness).count, 4);
    assert_eq!(harness.core.service_load(&web()).unwrap().requests, None);
    report(&mut harness, "b", 2).unwrap();
    let load = harness.core.service_load(&web()).unwrap();
    assert_eq!((load.total_milli, load.needed), (Some(2000), Some(1)));
    assert_eq!(known(&harness).count, 4, "not before a minute of it");
}

#[test]
fn a_service_sleeps_and_wakes() {
    let mut harness = Harness::one_node(4, 16);
    put(&mut harness, service(by_concurrency(0, 6)));
    run_all(&mut harness);
    report_for(&mut harness, 0, 90);
    assert_eq!((known(&harness).count, phases(&harness).as_str()), (0, ""));
    report(&mut harness, "g", 1).unwrap();
    assert_eq!(known(&harness).count, 1);
}

#[test]
fn the_limit_of_the_policy_bounds_the_number() {
    let mut harness = Harness::one_node(4, 16);
    let subject = service(range(1, 2)).replica.subject;
    let policy = PolicySpec {
        limit: [amount("mcpu", 3000)].into(),
        ..PolicySpec::default()
    };
    harness.put_policy("default", subject.as_str(), policy);
    put(&mut harness, service(by_concurrency(1, 6)));
    report(&mut harness, "g", 100).unwrap();
    assert_eq!(known(&harness).count, 3);
}

#[test]
fn after_a_restart_nothing_shrinks_before_a_whole_while() {
    let mut harness = Harness::one_node(4, 16);
    put(&mut harness, service(by_concurrency(1, 6)));
    report(&mut harness, "g", 8).unwrap();
    assert_eq!(known(&harness).count, 4);
    harness.restart(0);
    report_for(&mut harness, 1, 60);
    assert_eq!(known(&harness).count, 4);
    report_for(&mut harness, 1, 5);
    assert_eq!(known(&harness).count, 2);
}

#[test]
fn a_service_that_is_unknown_or_deleted_takes_no_report() {
    let mut harness = Harness::one_node(4, 16);
    let refused = report(&mut harness, "g", 1).unwrap_err();
    assert!(matches!(refused, Refusal::UnknownService { .. }));
    assert_eq!(harness.core.service_load(&web()), None);
}

/// Half of its core for each replica.
fn by_cpu(min: u32, max: u32) -> ScaleSpec {
    ScaleSpec {
        metric: Some(ScaleMetric::Cpu),
        target_milli: Some(50_000),
        ..by_concurrency(min, max)
    }
}

fn use_cores(harness: &mut Harness, on: &str, attempts: &[(&str, u64)]) {
    let reports = attempts.iter().map(|(attempt, mcpu)| UsageReport {
        attempt: super::harness::attempt(attempt),
        mcpu: Some(*mcpu),
        memory_bytes: Some(7),
    });
    harness.say(on, FromNode::Usages(reports.collect()));
}

#[test]
fn replicas_follow_the_cores_that_their_hosts_measure() {
    let mut harness = Harness::one_node(4, 16);
    put(&mut harness, service(by_cpu(1, 6)));
    use_cores(&mut harness, "n", &[("web-1.1", 1000)]);
    harness.pass(1);
    run_all(&mut harness);
    use_cores(&mut harness, "n", &[("web-1.1", 1000), ("other.1", 9000)]);
    assert_eq!(known(&harness).count, 1, "it used that to get ready");
    use_cores(&mut harness, "n", &[("web-1.1", 1000), ("other.1", 9000)]);
    assert_eq!(known(&harness).count, 2);
    run_all(&mut harness);
    use_cores(&mut harness, "n", &[("web-1.1", 1000)]);
    let total = |harness: &Harness| harness.core.service_load(&web()).unwrap().total_milli;
    assert_eq!(total(&harness), Some(150_000), "nobody measured the second");
    use_cores(&mut harness, "n", &[("web-1.1", 1000), ("web-2.1", 900)]);
    use_cores(&mut harness, "n", &[("web-1.1", 1000), ("web-2.1", 900)]);
    assert_eq!((total(&harness), known(&harness).count), (Some(190_000), 4));
    harness.pass(300);
    assert_eq!((total(&harness), known(&harness).count), (None, 4));
}

#[test]
fn a_host_is_believed_about_its_own_replicas_and_within_what_it_has() {
    let mut harness = Harness::one_node(4, 16);
    harness.hello(hello("m", 0, 2));
    put(&mut harness, service(by_cpu(1, 100)));
    run_all(&mut harness);
    let on = harness.placed("web-1").0;
    let other = if on == "n" { "m" } else { "n" };
    use_cores(&mut harness, other, &[("web-1.1", 1000)]);
    use_cores(&mut harness, &on, &[("web-1.2", 1000), ("nobody.1", 1)]);
    assert_eq!(known(&harness).count, 1);
    use_cores(&mut harness, &on, &[("web-1.1", 0)]);
    use_cores(&mut harness, &on, &[("web-1.1", u64::MAX)]);
    let cores = if on == "n" { 16 } else { 2 };
    let load = harness.core.service_load(&web()).unwrap();
    assert_eq!(load.total_milli, Some(cores * 100_000));
}

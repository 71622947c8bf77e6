//! Services whose number of replicas follows their load.

use alloc::borrow::ToOwned;
use alloc::string::ToString;

use sluice_common::id::ReporterName;
use sluice_common::metric::MetricReading;
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
        Some((it.count, it.load.as_ref().unwrap().total_milli))
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
        mcpu: Some(*mcpu),
        memory_bytes: Some(7),
        ..UsageReport::empty(super::harness::attempt(attempt))
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

fn by_queue() -> ScaleSpec {
    ScaleSpec {
        metric: Some(ScaleMetric::Named("queue".parse().unwrap())),
        target_milli: Some(4000),
        ..by_concurrency(1, 6)
    }
}

fn serve_metric(harness: &mut Harness, attempt: &str, name: &str, value: Result<u64, &str>) {
    let report = UsageReport {
        mcpu: Some(9000),
        metric: Some(MetricReading {
            name: name.parse().unwrap(),
            value: value.map_err(ToOwned::to_owned),
        }),
        ..UsageReport::empty(super::harness::attempt(attempt))
    };
    harness.say("n", FromNode::Usages(alloc::vec![report]));
}

#[test]
fn replicas_follow_a_metric_that_they_serve() {
    let mut harness = Harness::one_node(4, 16);
    put(&mut harness, service(by_queue()));
    run_all(&mut harness);
    serve_metric(&mut harness, "web-1.1", "queue", Ok(7000));
    assert_eq!(known(&harness).count, 2);
    run_all(&mut harness);
    let load = |harness: &Harness| harness.core.service_load(&web()).unwrap();
    serve_metric(&mut harness, "web-2.1", "queue", Ok(1000));
    assert_eq!(load(&harness).total_milli, Some(8000));
    serve_metric(&mut harness, "web-1.1", "other", Ok(99_000));
    assert_eq!(load(&harness).total_milli, Some(8000), "of another version");
    serve_metric(&mut harness, "web-1.1", "queue", Err("it is NaN"));
    let found = load(&harness);
    assert_eq!(
        found.total_milli,
        Some(5000),
        "the first counts as the target"
    );
    let unread = found.unread.map(|(step, why)| (step.to_string(), why));
    assert_eq!(unread, Some(("web-1".into(), "it is NaN".into())));
    serve_metric(&mut harness, "web-2.1", "queue", Ok(u64::MAX));
    assert_eq!(
        (load(&harness).total_milli, known(&harness).count),
        (None, 2)
    );
    serve_metric(&mut harness, "web-1.1", "queue", Ok(0));
    assert_eq!(load(&harness).total_milli, Some(4000));
}

#[test]
fn values_of_another_metric_are_forgotten() {
    let mut harness = Harness::one_node(4, 16);
    put(&mut harness, service(by_cpu(1, 6)));
    run_all(&mut harness);
    use_cores(&mut harness, "n", &[("web-1.1", 500)]);
    put(&mut harness, service(by_queue()));
    assert_eq!(harness.core.service_load(&web()).unwrap().total_milli, None);
    assert_eq!(known(&harness).count, 1);
}

#[test]
fn busy_gpus_count_at_most_as_all_of_them() {
    let mut harness = Harness::one_node(4, 16);
    let scale = ScaleSpec {
        metric: Some(ScaleMetric::Gpu),
        ..by_cpu(1, 6)
    };
    put(&mut harness, service(scale));
    run_all(&mut harness);
    let busy = |gpu_milli| UsageReport {
        gpu_milli,
        ..UsageReport::empty(super::harness::attempt("web-1.1"))
    };
    for (told, total, count) in [
        (None, None, 1),
        // It may have been busy to get ready.
        (Some(90_000), None, 1),
        (Some(40_000), Some(40_000), 1),
        (Some(u64::MAX), Some(100_000), 2),
    ] {
        harness.say("n", FromNode::Usages(alloc::vec![busy(told)]));
        let load = harness.core.service_load(&web());
        assert_eq!(load.and_then(|load| load.total_milli), total);
        assert_eq!(known(&harness).count, count);
    }
}

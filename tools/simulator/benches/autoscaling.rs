//! Draws how the number of replicas of a service follows its requests: `cargo bench -p sluice-simulator --bench
//! autoscaling [FILE.svg]` prints a table of terms against a service that always has as many replicas as its highest load
//! needs, and writes the curve of the first of them.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it found")]

use std::fs;

use sluice_common::service::{ScaleMetric, ScaleSpec};
use sluice_common::time::Span;
use sluice_simulator::{RequestPoint, ServiceTerms, busy_hour, request_svg};

/// Requests per second that one replica serves.
const SERVED: f64 = 10.0;

fn model(metric: ScaleMetric, down_after: u64) -> ServiceTerms {
    let target_milli = match metric {
        ScaleMetric::Rps => 7000,
        _ => 2000,
    };
    ServiceTerms {
        scale: ScaleSpec {
            min: 0,
            max: 100,
            fixed: false,
            metric: Some(metric),
            target_milli: Some(target_milli),
            down_after: Span::from_secs(down_after),
            ..ScaleSpec::fixed(0)
        },
        served: SERVED,
        request_secs: 0.2,
        start: Span::from_secs(10),
    }
}

fn main() {
    let offered = busy_hour();
    let highest = offered.iter().copied().fold(0.0, f64::max);
    let always = (highest / SERVED).ceil() * offered.len() as f64;
    println!(
        "terms                            replica-seconds  of always  mean wait s  most waiting  changes"
    );
    let mut drawn = None;
    for (metric, down_after) in [
        (ScaleMetric::Concurrency, 120),
        (ScaleMetric::Concurrency, 300),
        (ScaleMetric::Rps, 120),
        (ScaleMetric::Rps, 300),
    ] {
        let points = model(metric.clone(), down_after).run(&offered);
        let used: f64 = points.iter().map(|it| f64::from(it.replicas)).sum();
        let requests: f64 = points.iter().map(|it| it.offered).sum();
        let waited: f64 = points.iter().map(|it| it.waiting).sum();
        let most = points.iter().map(|it| it.waiting).fold(0.0, f64::max);
        let is_change = |it: &&[RequestPoint]| it[0].replicas != it[1].replicas;
        let changes = points.windows(2).filter(is_change).count();
        println!(
            "{metric:<12} down_after {down_after:>4} s     {used:>15.0}  {:>8.0}%  {:>11.2}  {most:>12.0}  {changes:>7}",
            100.0 * used / always,
            waited / requests,
        );
        drawn.get_or_insert(points);
    }
    if let Some(file) = std::env::args().nth(1).filter(|it| it.ends_with(".svg")) {
        let title = "A service from zero through a day in an hour, with two bursts";
        let svg = request_svg(title, SERVED, &drawn.unwrap_or_default());
        fs::write(&file, svg).expect("the curve can be written");
        println!("wrote {file}");
    }
}

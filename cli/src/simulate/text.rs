//! Renders a report as text.

use std::collections::BTreeMap;

use sluice_simulator::{Report, Waiting};

use crate::out::Out;
use crate::render::table::{Cell, Column, Table};
use crate::render::{age, safe};

const BY_SUBJECT: [Column; 8] = columns("SUBJECT");
const BY_GPUS: [Column; 8] = columns("GPUS");

/// The columns of waiting times, of which `first` names the groups of jobs.
const fn columns(first: &'static str) -> [Column; 8] {
    [
        Column::new(first, 9),
        Column::new("JOBS", 8),
        Column::new("AT ONCE", 5),
        Column::new("P50", 7),
        Column::new("P95", 7),
        Column::new("P99", 7),
        Column::new("LONGEST", 6),
        Column::new("NEVER", 4),
    ]
}

/// Renders the whole report.
pub(super) fn text(report: &Report, title: &str, out: Out) -> String {
    let mut text = format!("{title}\n\n");
    for (name, words) in lines(report) {
        text += &format!("{name:16}  {words}\n");
    }
    text += "\nWaiting from arrival to first start:\n";
    let subjects = report.waiting_by_subject.iter();
    let mut rows: Vec<Vec<Cell>> = subjects.map(|(name, waiting)| row(name, waiting)).collect();
    if rows.len() > 1 {
        rows.push(row("all", &report.waiting));
    }
    text += &Table::new(&BY_SUBJECT, out).whole(&rows);
    if report.waiting_by_gpus.len() > 1 {
        let sizes = report.waiting_by_gpus.iter();
        let rows: Vec<Vec<Cell>> = sizes
            .map(|size| row(&format!("up to {}", size.gpus_at_most), &size.waiting))
            .collect();
        text += "\n";
        text += &Table::new(&BY_GPUS, out).whole(&rows);
    }
    for note in &report.notes {
        text += &format!("\n- {note}");
    }
    text
}

fn lines(report: &Report) -> [(&'static str, String); 6] {
    [
        ("Cluster", cluster(report)),
        ("Jobs", jobs(report)),
        ("GPU allocation", allocation(report)),
        ("Preemptions", preemptions(report)),
        ("Promises", promises(report)),
        ("Simulated", simulated(report)),
    ]
}

/// Formats the size of the cluster.
pub(super) fn cluster(report: &Report) -> String {
    let cluster = &report.cluster;
    let hosts = counted(cluster.hosts, "host");
    format!("{hosts} with {}", gpus(cluster.gpus))
}

fn jobs(report: &Report) -> String {
    let jobs = &report.jobs;
    let each = |word: &str, counts: &BTreeMap<&'static str, usize>| -> String {
        let counts = counts.iter();
        counts
            .map(|(code, count)| format!(", {count} {word} ({code})"))
            .collect()
    };
    let (rejected, failed) = (
        each("rejected", &jobs.rejected),
        each("failed", &jobs.failed),
    );
    format!(
        "{} came in {}: {} finished, {} run, {} wait{failed}{rejected}",
        jobs.arrived,
        time(jobs.arrivals_s),
        jobs.finished,
        jobs.running,
        jobs.waiting
    )
}

fn allocation(report: &Report) -> String {
    let allocation = &report.allocation;
    format!(
        "{:.1} % on average while jobs came, {:.1} % when the last one had, {:.1} % at most ({})",
        allocation.mean_pct,
        allocation.at_last_arrival_pct,
        allocation.peak_pct,
        gpus(allocation.peak_gpus)
    )
}

fn preemptions(report: &Report) -> String {
    let preemptions = &report.preemptions;
    if preemptions.count == 0 {
        return "none".to_owned();
    }
    format!(
        "{} of {}; {:.1} GPU-hours of work lost, {:.2} % of what was granted",
        preemptions.count,
        counted(preemptions.jobs, "job"),
        preemptions.gpu_hours_lost,
        preemptions.lost_pct
    )
}

fn promises(report: &Report) -> String {
    let promises = &report.in_share;
    if promises.jobs == 0 {
        return "no job was within a reserved share".to_owned();
    }
    let jobs = counted(promises.jobs, "job");
    let kept = format!("{jobs} came within their reserved share");
    if promises.late == 0 {
        return format!("{kept}, and all started at once");
    }
    let never = match promises.never {
        0 => String::new(),
        never => format!(", {never} never"),
    };
    format!(
        "{kept}: {} started late{never}, by {} (p50), {} (p95), {} (longest); of that their share had room for them {} (p50), {} (p95), {} (longest)",
        promises.late,
        time(promises.late_p50_s),
        time(promises.late_p95_s),
        time(promises.late_longest_s),
        time(promises.kept_p50_s),
        time(promises.kept_p95_s),
        time(promises.kept_longest_s)
    )
}

fn simulated(report: &Report) -> String {
    format!(
        "{} in {:.1} s ({} events, {:.0} a second)",
        time(report.jobs.simulated_s),
        report.run.seconds,
        report.run.events,
        report.run.events_per_second
    )
}

fn row(subject: &str, waiting: &Waiting) -> Vec<Cell> {
    let at_once = 100.0 * waiting.at_once as f64 / waiting.jobs.max(1) as f64;
    let texts = [
        safe(subject),
        waiting.jobs.to_string(),
        format!("{at_once:.1}%"),
        time(waiting.p50_s),
        time(waiting.p95_s),
        time(waiting.p99_s),
        time(waiting.longest_s),
        (waiting.jobs - waiting.started).to_string(),
    ];
    texts.into_iter().map(Cell::from).collect()
}

fn gpus(n: u64) -> String {
    counted(usize::try_from(n).unwrap_or(usize::MAX), "GPU")
}

fn counted(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        _ => format!("{n} {what}s"),
    }
}

/// Formats a duration with its significant units.
fn time(seconds: f64) -> String {
    age::seconds(seconds.round() as i64)
}

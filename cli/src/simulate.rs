//! `sluice simulate`: runs the scheduler on paper, without a cluster.
//!
//! `scenario` plays files of cases and compares their ends with the expected ones. The rest runs a trace of jobs by
//! `sluice-simulator`: `hosts` and `cluster` read its cluster, `text` renders the report.

mod cluster;
mod hosts;
mod scenario;
mod text;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use sluice_common::time::Time;
use sluice_simulator::{
    ClusterFigures, CsvTable, Driver, JobRequest, Log, Report, Trace, TraceJob, arrivals, svg,
};

use crate::args::{Format, SimulateArgs, TraceFlags};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::safe;
use crate::show;

use self::cluster::ClusterFiles;

pub(crate) fn run(args: &SimulateArgs, out: Out) -> Result<u8, Failure> {
    match &args.trace.jobs {
        Some(jobs) => run_trace(jobs, &args.trace, out),
        None => scenario::run(&args.files, &args.case, out),
    }
}

fn run_trace(path: &Path, flags: &TraceFlags, out: Out) -> Result<u8, Failure> {
    show::check_report_format(out)?;
    let cluster = ClusterFiles::read(&flags.hosts, flags.policies.as_deref())?;
    let mut trace = Trace::of(&CsvTable::read(path)?)?;
    if let Some(of_hundred) = flags.arrivals {
        trace.jobs = arrivals(&trace.jobs, cluster.gpus(), of_hundred, flags.seed);
    }
    let asked = asked(&trace.jobs, &cluster, flags);
    let figures = ClusterFigures {
        hosts: cluster.hosts(),
        gpus: cluster.gpus(),
    };
    let mut notes = cluster.notes();
    let blind = !cluster.says_models();
    let subjects: BTreeSet<_> = trace.jobs.iter().map(|job| &job.subject).collect();
    let run = cluster.build(subjects)?;
    let begin = Instant::now();
    let until = flags.until.map(|until| Time::default() + until);
    let log = Driver::new(run, &asked).run(until);
    let log = log.map_err(|e| Failure::Usage(format!("{}: {e}", path.display())))?;
    let took = begin.elapsed();
    notes.splice(0..0, self::notes(&trace, &asked, &log, flags, blind));
    let report = Report::new(figures, &asked, &log, notes, took);
    let title = title(path, &report);
    if let Some(path) = &flags.plot {
        let svg = svg(&title, &report.allocation.series);
        let written = fs::write(path, svg);
        written
            .map_err(|e| Failure::Failed(format!("{}: cannot be written: {e}", path.display())))?;
    }
    match out.format() {
        Format::Table | Format::Wide | Format::Name => {
            out.result(&text::text(&report, &title, out))?
        }
        Format::Json | Format::Yaml => show::value(&report, out)?,
    }
    Ok(0)
}

fn title(path: &Path, report: &Report) -> String {
    let file = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    format!("{} on {}", safe(&file), text::cluster(report))
}

/// Returns the jobs as they are submitted: a job with more GPUs than a host has runs on as few hosts as possible.
fn asked(jobs: &[TraceJob], cluster: &ClusterFiles, flags: &TraceFlags) -> Vec<JobRequest> {
    let largest = cluster.gpus_of_largest().max(1);
    let blind = !cluster.says_models();
    let asked = jobs.iter().map(|job| {
        let nodes = job.gpus.div_ceil(largest).max(1);
        let mut job = job.clone();
        if blind {
            job.platforms.clear();
        }
        JobRequest {
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            gpus: job.gpus.div_ceil(nodes),
            preemptible: !flags.non_preemptible.contains(&job.subject),
            job,
        }
    });
    asked.collect()
}

/// Returns the assumptions behind the figures.
fn notes(
    trace: &Trace,
    asked: &[JobRequest],
    log: &Log,
    flags: &TraceFlags,
    blind: bool,
) -> Vec<String> {
    let gangs = asked.iter().filter(|asked| asked.nodes > 1).count();
    let named = trace.jobs.iter().filter(|job| !job.platforms.is_empty());
    let mut notes = Vec::new();
    if flags.policies.is_none() {
        let open = "without --policies one pool is open to every subject, and nothing is reserved";
        notes.push(open.to_owned());
    }
    if log.has_preemptions() {
        let over = "a preempted job starts over: nothing is known of its checkpoints";
        notes.push(over.to_owned());
    }
    let counted = [
        (
            gangs,
            [
                "asks for more GPUs than a host has, and runs on several at once",
                "ask for more GPUs than a host has, and run on several at once",
            ],
        ),
        (
            trace.rounded_up,
            [
                "asks for a part of a GPU, and gets a whole one",
                "ask for a part of a GPU, and get a whole one",
            ],
        ),
        (
            if blind { named.count() } else { 0 },
            [
                "names a GPU model, which is ignored, because the hosts name none",
                "name a GPU model, which is ignored, because the hosts name none",
            ],
        ),
    ];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0);
    notes.extend(counted.map(|(count, [one, several])| match count {
        1 => format!("1 job {one}"),
        _ => format!("{count} jobs {several}"),
    }));
    if let Some(of_hundred) = flags.arrivals {
        let seed = flags.seed;
        notes.push(format!(
            "jobs came in random order (seed {seed}) and none ended, until {of_hundred} % of the GPUs were asked for"
        ));
    }
    notes
}

/// Counts the jobs in a text, for fuzz tests.
#[cfg(test)]
pub(crate) fn jobs_in(file: &str, text: &str) -> Result<usize, Failure> {
    let sheet = CsvTable::parse(file.to_owned(), text)?;
    Ok(Trace::of(&sheet)?.jobs.len())
}

/// Counts the cases in a text, for fuzz tests.
#[cfg(test)]
pub(crate) fn cases_in(file: &str, text: &str) -> Result<usize, Failure> {
    scenario::of_text(file, text).map(|cases| cases.len())
}

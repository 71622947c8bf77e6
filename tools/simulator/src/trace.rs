//! Reads job traces: arrival, subject, resources and run time of each job. Two published formats are recognised by
//! the columns of their headers.
//!
//! | form | columns | subject |
//! |---|---|---|
//! | openb | `name,cpu_milli,memory_mib,num_gpu,gpu_milli`, and where known `qos,creation_time,deletion_time,scheduled_time` in seconds | `qos` |
//! | philly | `timestamp,duration,num_gpus,cluster` | `cluster` |
//!
//! Both may have a column `time_limit`, the declared limit of the job's run time in seconds.

use jiff::civil::DateTime;
use sluice_common::id::Subject;
use sluice_common::platform::slug;
use sluice_common::time::Span;

use crate::csv_table::{CsvTable, Row, Unreadable};

const OPENB: [&str; 5] = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];
const PHILLY: [&str; 4] = ["timestamp", "duration", "num_gpus", "cluster"];

/// The subject of jobs that name none.
const NOBODY: &str = "default";
/// Thousandths of a whole GPU.
const WHOLE: u64 = 1000;

/// A job of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceJob {
    /// Arrival, after the beginning of the trace.
    pub at: Span,
    /// Run time; `None` for a job that never ends.
    pub lasts: Option<Span>,
    /// Longest run time that it declares.
    pub time_limit: Option<Span>,
    pub subject: Subject,
    /// GPUs on all of its hosts.
    pub gpus: u64,
    /// Thousandths of a core, on all of its hosts.
    pub mcpu: u64,
    /// Memory in units of 10^6 bytes, on all of its hosts.
    pub memory_mb: u64,
    /// Platforms of the GPU models that it accepts; any if empty.
    pub platforms: Vec<String>,
}

/// A trace, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub jobs: Vec<TraceJob>,
    /// Number of jobs that asked for a part of a GPU, and get a whole one here.
    pub rounded_up: usize,
}

impl Trace {
    /// Reads a trace of either format.
    ///
    /// # Errors
    /// The table has neither format, or some row has an error.
    pub fn of(csv_table: &CsvTable) -> Result<Self, Unreadable> {
        if csv_table.has(&PHILLY) {
            return philly(csv_table);
        }
        if csv_table.has(&OPENB) {
            return openb(csv_table);
        }
        Err(Unreadable(format!(
            "{}: its header `{}` is not that of a known trace: write `{}` or `{}`",
            csv_table.file(),
            csv_table.header().escape_debug(),
            OPENB.join(","),
            PHILLY.join(",")
        )))
    }

    fn new(mut jobs: Vec<TraceJob>) -> Self {
        let begin = jobs.iter().map(|job| job.at).min().unwrap_or_default();
        for job in &mut jobs {
            job.at = job.at - begin;
        }
        jobs.sort_by_key(|job| job.at);
        Self {
            jobs,
            ..Self::default()
        }
    }
}

fn openb(csv_table: &CsvTable) -> Result<Trace, Unreadable> {
    let rows = csv_table.each(|row| {
        let part = row.number("gpu_milli")?;
        let gpus = row.number("num_gpu")?;
        let job = TraceJob {
            at: seconds(row, "creation_time")?.unwrap_or_default(),
            lasts: lifetime(row)?,
            time_limit: seconds(row, "time_limit")?,
            subject: subject(row, "qos")?,
            gpus,
            mcpu: row.number("cpu_milli")?,
            memory_mb: megabytes(row.number("memory_mib")?),
            platforms: platforms(row.text("gpu_spec")),
        };
        let rounded = gpus > 0 && part < WHOLE;
        Ok((job, rounded))
    })?;
    let rounded_up = rows.iter().filter(|(_, rounded)| *rounded).count();
    Ok(Trace {
        rounded_up,
        ..Trace::new(rows.into_iter().map(|(job, _)| job).collect())
    })
}

/// The platforms of models that are separated by `|`.
fn platforms(models: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for platform in models.split('|').map(slug) {
        if !platform.is_empty() && !found.contains(&platform) {
            found.push(platform);
        }
    }
    found
}

/// The time from its start, or from its submission if it never started, to its end.
fn lifetime(row: Row<'_>) -> Result<Option<Span>, String> {
    let Some(end) = seconds(row, "deletion_time")? else {
        return Ok(None);
    };
    let created = seconds(row, "creation_time")?.unwrap_or_default();
    let start = seconds(row, "scheduled_time")?.unwrap_or(created);
    Ok(Some(end - start))
}

fn philly(csv_table: &CsvTable) -> Result<Trace, Unreadable> {
    let jobs = csv_table.each(|row| {
        let at: DateTime = row.value("timestamp", "a time such as 2017-10-09 07:01:55")?;
        let since = at.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0));
        let millis = u64::try_from(since.as_millis());
        let millis = millis.map_err(|_| row.wrong("timestamp", "it is before 1970"))?;
        Ok(TraceJob {
            at: Span::from_millis(millis),
            lasts: seconds(row, "duration")?,
            time_limit: seconds(row, "time_limit")?,
            subject: subject(row, "cluster")?,
            gpus: row.number("num_gpus")?,
            mcpu: 0,
            memory_mb: 0,
            platforms: Vec::new(),
        })
    })?;
    Ok(Trace::new(jobs))
}

/// Seconds with or without a fraction; `None` if the column is empty.
fn seconds(row: Row<'_>, column: &str) -> Result<Option<Span>, String> {
    if row.text(column).is_empty() {
        return Ok(None);
    }
    let what = "a number of seconds from 0";
    let seconds: f64 = row.value(column, what)?;
    let span = std::time::Duration::try_from_secs_f64(seconds).ok();
    let millis = span.and_then(|span| u64::try_from(span.as_millis()).ok());
    let millis = millis.ok_or_else(|| row.wrong(column, format!("`{seconds}` is not {what}")))?;
    Ok(Some(Span::from_millis(millis)))
}

fn subject(row: Row<'_>, column: &str) -> Result<Subject, String> {
    let text = row.text(column).to_lowercase();
    let text = if text.is_empty() { NOBODY } else { &text };
    Subject::new(text).map_err(|e| row.wrong(column, e))
}

/// Converts units of 2^20 bytes to units of 10^6, rounded up.
pub fn megabytes(mib: u64) -> u64 {
    mib.saturating_mul(1 << 20).div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, String> {
        let csv_table = CsvTable::parse("t.csv".to_owned(), text);
        let read = csv_table.and_then(|csv_table| Trace::of(&csv_table));
        read.map_err(|e| e.to_string())
    }

    #[test]
    fn a_philly_trace_is_read_in_the_order_of_arrival() {
        let trace = read(
            "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.5,8,528.0,11cb48\n\
             2017-10-09 07:00:55,2951.0,1,2951.0,6214e9\n",
        );
        let jobs = trace.unwrap().jobs;
        let (first, second) = (&jobs[0], &jobs[1]);
        assert_eq!(
            (first.at, first.gpus, first.subject.as_str()),
            (Span::ZERO, 1, "6214e9")
        );
        assert_eq!((second.at, second.gpus), (Span::from_secs(60), 8));
        assert_eq!(second.lasts, Some(Span::from_millis(66_500)));
    }

    #[test]
    fn a_trace_of_either_form_may_declare_time_limits() {
        let philly = "timestamp,duration,num_gpus,cluster,time_limit\n2017-10-09 07:01:55,66,8,a,3600\n2017-10-09 07:01:56,6,8,a,\n";
        let openb = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,time_limit\na,1,1,1,1000,90.5\n";
        let limits = |text: &str| {
            let jobs = read(text).unwrap().jobs;
            jobs.iter().map(|job| job.time_limit).collect::<Vec<_>>()
        };
        assert_eq!(limits(philly), [Some(Span::from_secs(3600)), None]);
        assert_eq!(limits(openb), [Some(Span::from_millis(90_500))]);
    }

    #[test]
    fn an_openb_trace_runs_from_start_to_deletion_and_parts_of_a_gpu_are_whole_ones() {
        let trace = read(
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time\n\
             a,12000,1000,1,460,,LS,10,100,20\nb,500,1,0,0,,BE,5,50,\nc,1,1,8,1000,T4|V100M16|T4,,7,,7\n",
        );
        let trace = trace.unwrap();
        assert_eq!(trace.rounded_up, 1);
        let lasts: Vec<Option<u64>> = trace
            .jobs
            .iter()
            .map(|j| j.lasts.map(|l| l.millis() / 1000))
            .collect();
        assert_eq!(lasts, [Some(45), None, Some(80)]);
        let subjects: Vec<&str> = trace.jobs.iter().map(|j| j.subject.as_str()).collect();
        assert_eq!(subjects, ["be", "default", "ls"]);
        assert_eq!(
            (
                trace.jobs[2].gpus,
                trace.jobs[2].mcpu,
                trace.jobs[2].memory_mb
            ),
            (1, 12_000, 1049)
        );
        assert_eq!(trace.jobs[1].platforms, ["t4", "v100m16"]);
        let without_times =
            read("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1000\n").unwrap();
        assert_eq!(without_times.jobs[0].lasts, None);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_the_way_out() {
        for (text, words) in [
            (
                "a,b\n1,2\n",
                "t.csv: its header `a,b` is not that of a known trace: write `name,cpu_milli",
            ),
            (
                "timestamp,duration,num_gpus,cluster\nyesterday,1,1,c\n",
                "t.csv, line 2, column `timestamp`: `yesterday` is not a time such as",
            ),
            (
                "timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,-1,1,c\n",
                "t.csv, line 2, column `duration`: `-1` is not a number of seconds",
            ),
            (
                "timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,1,one,c\n",
                "t.csv, line 2, column `num_gpus`: `one` is not a whole number",
            ),
            (
                "timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,1,1,a b\n",
                "t.csv, line 2, column `cluster`: `a b` is not a valid subject",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
    }
}

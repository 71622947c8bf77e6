//! `sluice bench`: how fast this machine and a cluster are, each measurement beside what the machine needs without Sluice.
//!
//! `floors` measures the machine, `load` the cluster, `samples` holds what was measured. Steps are real, so they take
//! their turn in the queue and stay in the history; they have the label `sluice-bench`.

mod floors;
mod load;
mod samples;

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use serde::Serialize;

use super::hear_ending;
use super::submit::own_subject;
use crate::args::{BenchArgs, Format};
use crate::client::Client;
use crate::failure::Failure;
use crate::out::Out;
use crate::render::table::{Cell, Column, Table};
use crate::request_builder::fresh_id;
use crate::{show, signals};
use floors::Floors;
use load::Load;
use samples::{Floor, Measurement};

/// The report as data.
#[derive(Serialize)]
struct BenchReport {
    /// The machine without Sluice.
    machine: Vec<Measurement>,
    cluster: Vec<Measurement>,
}

pub(crate) fn run(client: &Client, args: &BenchArgs, out: Out) -> Result<u8, Failure> {
    show::check_report_format(out)?;
    let subject = match &args.subject {
        Some(subject) => Some(subject.clone()),
        None => own_subject(client, out)?,
    };
    let signal = Arc::new(AtomicI32::new(0));
    let heard = Arc::clone(&signal);
    hear_ending(move |signal| heard.swap(signal, Ordering::Relaxed) == 0)?;
    out.progress("measuring this machine");
    let floors = Floors::measure(args.rounds)
        .map_err(|e| Failure::Failed(format!("this machine cannot be measured: {e}")))?;
    let load = Load {
        client,
        args,
        subject,
        id: format!("bench-{}", fresh_id()?),
        signal: &signal,
    };
    let measured = load.measure(&floors, |what| out.progress(what));
    let cancelled = load.clean_up();
    let number = signal.load(Ordering::Relaxed);
    if number != 0 {
        out.progress(&format!("stopped; {} steps are cancelled", cancelled?));
        return Ok(signals::exit_code(number));
    }
    let cluster = measured?;
    cancelled?;
    let report = BenchReport {
        machine: floors.rows,
        cluster,
    };
    match out.format() {
        Format::Json | Format::Yaml => show::value(&report, out)?,
        Format::Table | Format::Wide | Format::Name => out.result(&text(&report, out))?,
    }
    Ok(0)
}

static COLUMNS: [Column; 6] = [
    Column::new("MEASURED", 9),
    Column::new("COUNT", 1),
    Column::new("MEDIAN", 8),
    Column::new("P99", 7),
    Column::new("PER SECOND", 6),
    Column::new("BESIDE", 5),
];

fn text(report: &BenchReport, out: Out) -> String {
    let rows = report.machine.iter().chain(&report.cluster).map(row);
    Table::new(&COLUMNS, out).whole(&rows.collect::<Vec<_>>())
}

fn row(measured: &Measurement) -> Vec<Cell> {
    let time =
        |micros: Option<f64>| micros.map_or_else(String::new, |us| format!("{:.2}ms", us / 1e3));
    let rate = measured
        .per_second
        .map_or_else(String::new, |rate| format!("{rate:.0}"));
    let beside = measured.floor.as_ref().map_or_else(String::new, |floor| {
        let Floor { what, ratio, .. } = floor;
        format!("{ratio:.2}x {what}")
    });
    [
        measured.what.clone(),
        measured.count.to_string(),
        time(measured.median_us),
        time(measured.p99_us),
        rate,
        beside,
    ]
    .map(Cell::from)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::time::Duration;

    #[test]
    fn a_measurement_is_a_row_of_what_is_known_of_it() {
        let rate =
            |what, count, millis| Measurement::of_rate(what, count, Duration::from_millis(millis));
        let report = BenchReport {
            machine: vec![rate("starts of /bin/true", 500, 1_000)],
            cluster: vec![
                rate("the batch", 1_000, 4_000).beside("starts by all cores", Some(500.0)),
                Measurement {
                    median_us: Some(1_234.0),
                    p99_us: Some(45_000.0),
                    ..rate("submits", 10, 100)
                },
            ],
        };
        assert_eq!(
            text(&report, Out::plain()),
            "MEASURED             COUNT  MEDIAN  P99      PER SECOND  BESIDE\n\
             starts of /bin/true  500                     500\n\
             the batch            1000                    250         0.50x starts by all cores\n\
             submits              10     1.23ms  45.00ms  100\n"
        );
    }
}

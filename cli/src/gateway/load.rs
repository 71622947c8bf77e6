//! The load of each service: HAProxy's statistics, and the reports that follow from them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_common::api::RequestsView;

/// Time between two reports of a load that does not change: a report counts for 15 seconds.
const REPEAT: Duration = Duration::from_secs(5);

/// Counters of one backend or server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HaproxyCounters {
    /// Requests under way, those that wait included.
    pub(super) current: u64,
    /// Requests since HAProxy started.
    pub(super) total: u64,
}

/// Reads the CSV of `show stat` by the names of its fields: counters by backend and server. Rows that are not understood are
/// left out.
pub(super) fn parse_counters(csv: &str) -> BTreeMap<(String, String), HaproxyCounters> {
    let csv = csv.trim_start_matches(['#', ' ']);
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(csv.as_bytes());
    let Ok(names) = reader.headers().cloned() else {
        return BTreeMap::new();
    };
    let column = |name: &str| names.iter().position(|it| it == name);
    let (Some(backend), Some(server), Some(current)) =
        (column("pxname"), column("svname"), column("scur"))
    else {
        return BTreeMap::new();
    };
    let total = column("req_tot");
    let rows = reader.records().map_while(Result::ok).filter_map(|row| {
        let number = |at: usize| row.get(at).and_then(|text| text.parse().ok());
        let counters = HaproxyCounters {
            current: number(current)?,
            total: total.and_then(number).unwrap_or(0),
        };
        Some((
            (row.get(backend)?.to_owned(), row.get(server)?.to_owned()),
            counters,
        ))
    });
    rows.collect()
}

/// State of one service between two readings.
#[derive(Debug)]
struct LoadHistory {
    read_at: Instant,
    total: u64,
    reported: Option<(Instant, RequestsView)>,
}

/// Turns counters into loads, and decides which are reported.
#[derive(Debug, Default)]
pub(super) struct LoadMeter {
    services: BTreeMap<String, LoadHistory>,
}

impl LoadMeter {
    /// Takes in the counters of all services; returns the loads to report: those that changed, and each after a while.
    pub(super) fn read(
        &mut self,
        now: Instant,
        counters: &BTreeMap<String, HaproxyCounters>,
    ) -> Vec<(String, RequestsView)> {
        self.services
            .retain(|service, _| counters.contains_key(service));
        let mut due = Vec::new();
        for (service, counters) in counters {
            let history = self.services.entry(service.clone()).or_insert(LoadHistory {
                read_at: now,
                total: counters.total,
                reported: None,
            });
            let load = RequestsView {
                concurrency: counters.current as f64,
                rps: history.rate(now, counters.total),
            };
            let is_due = history
                .reported
                .is_none_or(|(at, last)| last != load || now - at >= REPEAT);
            if is_due {
                history.reported = Some((now, load));
                due.push((service.clone(), load));
            }
        }
        due
    }
}

impl LoadHistory {
    /// Requests per second since the last reading, in tenths. A HAProxy that was started again counts from 0.
    fn rate(&mut self, now: Instant, total: u64) -> f64 {
        let seconds = (now - self.read_at).as_secs_f64();
        let count = total.checked_sub(self.total).unwrap_or(total);
        (self.read_at, self.total) = (now, total);
        match seconds > 0.0 {
            true => (count as f64 / seconds * 10.0).round() / 10.0,
            false => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_the_names_of_fields() {
        let csv = "# pxname,svname,qcur,scur,new,req_tot,\nslot1,BACKEND,0,3,x,12,\nslot1,s1,,2,,,\nslot2,BACKEND,0,?,x,12,\n\n";
        let counters = parse_counters(csv);
        let of = |backend: &str, server: &str| {
            counters
                .get(&(backend.to_owned(), server.to_owned()))
                .map(|it| (it.current, it.total))
        };
        assert_eq!(of("slot1", "BACKEND"), Some((3, 12)));
        assert_eq!(of("slot1", "s1"), Some((2, 0)));
        assert_eq!(of("slot2", "BACKEND"), None);
        assert_eq!(parse_counters("Permission denied\n").len(), 0);
        assert_eq!(parse_counters("").len(), 0);
    }

    #[test]
    fn a_load_is_reported_when_it_changes_and_now_and_then() {
        let mut meter = LoadMeter::default();
        let start = Instant::now();
        let mut read = |millis: u64, current: u64, total: u64| {
            let counters = BTreeMap::from([("web".to_owned(), HaproxyCounters { current, total })]);
            let due = meter.read(start + Duration::from_millis(millis), &counters);
            due.first().map(|(_, load)| (load.concurrency, load.rps))
        };
        assert_eq!(
            read(0, 2, 100),
            Some((2.0, 0.0)),
            "what came before is of no time"
        );
        assert_eq!(read(2_000, 2, 125), Some((2.0, 12.5)));
        assert_eq!(read(3_000, 2, 125), Some((2.0, 0.0)));
        assert_eq!(read(4_000, 2, 125), None);
        assert_eq!(read(7_900, 2, 125), None);
        assert_eq!(read(8_000, 2, 125), Some((2.0, 0.0)), "it still holds");
        assert_eq!(
            read(9_000, 0, 5),
            Some((0.0, 5.0)),
            "HAProxy was started again"
        );
    }

    #[test]
    fn a_service_that_is_gone_is_forgotten() {
        let mut meter = LoadMeter::default();
        let now = Instant::now();
        let one = BTreeMap::from([("web".to_owned(), HaproxyCounters::default())]);
        assert_eq!(meter.read(now, &one).len(), 1);
        assert_eq!(meter.read(now, &BTreeMap::new()).len(), 0);
        assert_eq!(meter.read(now, &one).len(), 1);
    }
}

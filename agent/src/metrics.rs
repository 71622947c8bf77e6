//! Reads the metrics that attempts serve themselves, each time the agent measures what they use. The requests are made at
//! once and end after [`READ_WITHIN`], so one that hangs delays no other.
//!
//! What an attempt answers is not trusted: its answer is bounded and is not kept, no redirect is followed, and a value that
//! cannot be is unknown.

mod text;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent_core::{MetricTarget, ProbeOutcome};
use futures_util::future::join_all;
use sluice_common::id::AttemptId;
use sluice_common::metric::MetricReading;
use sluice_common::usage::UsageReport;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};
use tracing::{info, warn};

use crate::event::{Event, UsageEvent};
use crate::probes::{ask, broken, status};
pub(crate) use text::MetricParser;

/// Time limit of one request: shorter than the time between two measurements.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// Most bytes of an answer, in which there is room for ten thousand series.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// Most bytes of the lines before an answer's text.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Reads metrics of the attempts of this host.
pub(crate) struct MetricReader {
    events: mpsc::WeakSender<Event>,
    /// Why metrics were unknown last, so that each reason is logged once. Locked while requests are under way.
    unknown: Arc<Mutex<BTreeMap<AttemptId, String>>>,
}

impl MetricReader {
    pub(crate) fn new(events: mpsc::WeakSender<Event>) -> Self {
        Self {
            events,
            unknown: Arc::default(),
        }
    }

    /// Begins to read these metrics; the engine gets [`UsageEvent::Metrics`] at the end. Does nothing while earlier requests are
    /// under way.
    pub(crate) fn begin(&self, targets: Vec<MetricTarget>) {
        let Some(events) = self.events.upgrade().filter(|_| !targets.is_empty()) else {
            return;
        };
        let Ok(mut unknown) = Arc::clone(&self.unknown).try_lock_owned() else {
            return;
        };
        tokio::spawn(async move {
            let reports = join_all(targets.iter().map(report)).await;
            tell(&reports, &mut unknown);
            let _the_agent_stops = events
                .send(Event::Usage(UsageEvent::Metrics(reports)))
                .await;
        });
    }
}

async fn report(target: &MetricTarget) -> UsageReport {
    let MetricTarget { port, path, .. } = target;
    let value = match tokio::time::timeout(READ_WITHIN, read(target)).await {
        Ok(value) => value,
        Err(_) => {
            let secs = READ_WITHIN.as_secs();
            Err(format!(
                "`{path}` at port {port} did not answer within {secs}s"
            ))
        }
    };
    let name = target.name.clone();
    UsageReport {
        metric: Some(MetricReading { name, value }),
        ..UsageReport::empty(target.attempt.clone())
    }
}

/// Logs each new reason for which a metric is unknown, and that it is known again.
fn tell(reports: &[UsageReport], unknown: &mut BTreeMap<AttemptId, String>) {
    let before = std::mem::take(unknown);
    for UsageReport {
        attempt, metric, ..
    } in reports
    {
        let Some(MetricReading { name, value }) = metric else {
            continue;
        };
        let AttemptId { step, number } = attempt;
        let last = before.get(attempt);
        match value {
            Err(why) => {
                if last != Some(why) {
                    warn!(%step, attempt = number, "the metric {name} is unknown: {why}");
                }
                unknown.insert(attempt.clone(), why.clone());
            }
            Ok(_) if last.is_some() => {
                info!(%step, attempt = number, "the metric {name} is known again");
            }
            Ok(_) => {}
        }
    }
}

/// The value in thousandths; the error is a clause for people.
async fn read(target: &MetricTarget) -> Result<u64, String> {
    let MetricTarget {
        name, port, path, ..
    } = target;
    // An answer to HTTP/1.0 comes in one piece, up to the end of the connection.
    let stream = ask(*port, path, "HTTP/1.0").await;
    let stream = stream.map_err(|outcome| match outcome {
        ProbeOutcome::Failed(why) => why,
        ProbeOutcome::Succeeded | ProbeOutcome::Unknown => {
            "the host has no connection left for it".to_owned()
        }
    })?;
    let of_answer = |why: String| format!("`{path}` at port {port}: {why}");
    sum(stream, name.as_str(), *port).await.map_err(of_answer)
}

async fn sum(mut stream: TcpStream, name: &str, port: u16) -> Result<u64, String> {
    let broken = |error: std::io::Error| broken(port, &error);
    let mut part = [0; 8 * 1024];
    let mut head = Vec::new();
    let body = loop {
        let count = stream.read(&mut part).await.map_err(broken)?;
        head.extend(&part[..count]);
        if let Some(at) = head.windows(4).position(|it| it == b"\r\n\r\n") {
            break head.split_off(at + 4);
        }
        if count == 0 || head.len() > MAX_HEAD_BYTES {
            return Err("it does not answer in HTTP".to_owned());
        }
    };
    match status(&head) {
        Some(200) => {}
        Some(status) => return Err(format!("it answered {status}")),
        None => return Err("it does not answer in HTTP".to_owned()),
    }
    let length = content_length(&head);
    let mut left = length.unwrap_or(MAX_ANSWER_BYTES + 1);
    let mut sum = MetricParser::new(name);
    let mut piece = &body[..];
    loop {
        left = left.saturating_sub(piece.len() as u64);
        if length.unwrap_or(0) > MAX_ANSWER_BYTES || (length.is_none() && left == 0) {
            return Err(format!("it has more than {MAX_ANSWER_BYTES} bytes"));
        }
        sum.push(piece)?;
        if left == 0 {
            return sum.end();
        }
        match stream.read(&mut part).await.map_err(broken)? {
            0 if length.is_some() => return Err("it ended early".to_owned()),
            0 => return sum.end(),
            count => piece = &part[..count],
        }
    }
}

/// The length of the text that follows, if the lines before it tell it.
fn content_length(head: &[u8]) -> Option<u64> {
    let head = String::from_utf8_lossy(head);
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next()?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests;

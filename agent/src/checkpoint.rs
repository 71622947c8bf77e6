//! Checks whether steps have saved their work, by the change time of each step's checkpoint file, and reports
//! it. A report may be lost with a link, so it is repeated periodically.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sluice_common::attempt_dir::{CHECKPOINT_FILE, STEP_DIR};
use sluice_common::id::AttemptId;
use sluice_common::time::Span;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::event::Event;
use crate::logs::WritingAttempts;

/// Time between two checks, as for heartbeats: one system call for each attempt.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);
/// Time between two reports of the same checkpoint.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The last report for each attempt with a checkpoint.
#[derive(Default)]
struct ReportedCheckpoints(BTreeMap<AttemptId, (SystemTime, Instant)>);

/// Runs until the engine is gone.
pub(crate) async fn watch(
    attempts_dir: PathBuf,
    live: Arc<WritingAttempts>,
    events: mpsc::Sender<Event>,
) {
    let mut told = ReportedCheckpoints::default();
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let (dir, attempts) = (attempts_dir.clone(), live.all());
        // A slow disk must not block the runtime.
        let Ok(found) = spawn_blocking(move || look(&dir, attempts)).await else {
            continue;
        };
        for (attempt, ago) in told.news(found, SystemTime::now(), Instant::now()) {
            if events
                .send(Event::Checkpoint { attempt, ago })
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

/// Change time of each existing checkpoint file.
fn look(attempts_dir: &Path, attempts: Vec<AttemptId>) -> BTreeMap<AttemptId, SystemTime> {
    let saved = |id: AttemptId| {
        let dir = attempts_dir.join(id.to_string()).join(STEP_DIR);
        // Not through a link, because the time of another file means nothing.
        let found = fs::symlink_metadata(dir.join(CHECKPOINT_FILE)).ok()?;
        Some((id, found.modified().ok()?))
    };
    attempts.into_iter().filter_map(saved).collect()
}

impl ReportedCheckpoints {
    /// The checkpoints to report: new ones, and those reported long ago.
    fn news(
        &mut self,
        found: BTreeMap<AttemptId, SystemTime>,
        wall: SystemTime,
        now: Instant,
    ) -> Vec<(AttemptId, Span)> {
        self.0.retain(|id, _| found.contains_key(id));
        let mut news = Vec::new();
        for (id, saved) in found {
            let old = self.0.get(&id).is_some_and(|(told, at)| {
                *told == saved && now.duration_since(*at) < REPORT_INTERVAL
            });
            if !old {
                // A time in the future counts as now.
                let ago = wall.duration_since(saved).unwrap_or_default();
                let ago = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
                news.push((id.clone(), Span::from_millis(ago)));
                self.0.insert(id, (saved, now));
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_and_again_after_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other]: [AttemptId; 2] = ["a.1", "b.1"].map(|id| id.parse().unwrap());
        let own = dir.path().join("a.1").join(STEP_DIR);
        fs::create_dir_all(&own).unwrap();
        let file = fs::File::create(own.join(CHECKPOINT_FILE)).unwrap();
        let (wall, now) = (SystemTime::now(), Instant::now());
        file.set_modified(wall - Duration::from_secs(5)).unwrap();
        let found = || look(dir.path(), vec![one.clone(), other.clone()]);
        let mut told = ReportedCheckpoints::default();
        let five = vec![(one.clone(), Span::from_secs(5))];
        assert_eq!(told.news(found(), wall, now), five);
        assert_eq!(told.news(found(), wall, now), []);
        file.set_modified(wall + Duration::from_secs(5)).unwrap();
        let just_now = vec![(one.clone(), Span::ZERO)];
        assert_eq!(told.news(found(), wall, now), just_now);
        assert_eq!(told.news(found(), wall, now + REPORT_INTERVAL), just_now);
        fs::remove_file(own.join(CHECKPOINT_FILE)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", own.join(CHECKPOINT_FILE)).unwrap();
        assert_ne!(
            found().get(&one),
            Some(&fs::metadata("/etc/passwd").unwrap().modified().unwrap())
        );
    }
}

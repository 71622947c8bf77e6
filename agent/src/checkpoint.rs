//! Looks whether steps have saved their work, by the change time of the file that each was given for that, and tells the
//! loop. What is told may be lost with a link, so it is told again from time to time.

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

use crate::engine::Event;
use crate::logs::Live;

/// Between two looks: the pace of heartbeats, one call of the kernel for each attempt.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Between two tellings of the same.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// What was told of each attempt that has saved its work.
#[derive(Default)]
struct Told(BTreeMap<AttemptId, (SystemTime, Instant)>);

/// Looks until the loop is gone.
pub(crate) async fn watch(attempts_dir: PathBuf, live: Arc<Live>, events: mpsc::Sender<Event>) {
    let mut told = Told::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let (dir, attempts) = (attempts_dir.clone(), live.all());
        // The disk may stall; the loop of this process must not.
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

/// When each last saved its work, of those that did.
fn look(attempts_dir: &Path, attempts: Vec<AttemptId>) -> BTreeMap<AttemptId, SystemTime> {
    let saved = |id: AttemptId| {
        let dir = attempts_dir.join(id.to_string()).join(STEP_DIR);
        // Not through a link: the time of somebody else's file says nothing.
        let found = fs::symlink_metadata(dir.join(CHECKPOINT_FILE)).ok()?;
        Some((id, found.modified().ok()?))
    };
    attempts.into_iter().filter_map(saved).collect()
}

impl Told {
    /// What is worth telling of what was found; the rest was told not long ago.
    fn news(
        &mut self,
        found: BTreeMap<AttemptId, SystemTime>,
        wall: SystemTime,
        now: Instant,
    ) -> Vec<(AttemptId, Span)> {
        self.0.retain(|id, _| found.contains_key(id));
        let mut news = Vec::new();
        for (id, saved) in found {
            let old = self
                .0
                .get(&id)
                .is_some_and(|(told, at)| *told == saved && now.duration_since(*at) < TELL_AGAIN);
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
        let mut told = Told::default();
        let five = vec![(one.clone(), Span::from_secs(5))];
        assert_eq!(told.news(found(), wall, now), five);
        assert_eq!(told.news(found(), wall, now), []);
        file.set_modified(wall + Duration::from_secs(5)).unwrap();
        let just_now = vec![(one.clone(), Span::ZERO)];
        assert_eq!(told.news(found(), wall, now), just_now);
        assert_eq!(told.news(found(), wall, now + TELL_AGAIN), just_now);
        fs::remove_file(own.join(CHECKPOINT_FILE)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", own.join(CHECKPOINT_FILE)).unwrap();
        assert_ne!(
            found().get(&one),
            Some(&fs::metadata("/etc/passwd").unwrap().modified().unwrap())
        );
    }
}

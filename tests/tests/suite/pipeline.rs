//! A pipeline of one file, in a running cluster: parts, some of which fail and are tried again, then a step over all of
//! them, then reports; and the daemons are killed meanwhile.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use sluice_tests::{Daemon, Dev, eventually_within};

use super::crash::ends;

const PARTS: usize = 40;

/// A part writes its number. One in twenty fails the first time.
fn part(number: usize, results: &str) -> String {
    let fails = match number % 20 {
        7 => r#"test $SLUICE_ATTEMPT -gt 1 && "#,
        _ => "",
    };
    format!(
        "kind: step\nname: part-{number}\nretries: 9\nresources: {{cpu_count: 0.01}}\n\
         command: [sh, -c, '{fails}echo {number} > {results}/{number}']\n---\n"
    )
}

fn pipeline(results: &str) -> String {
    let mut file = String::new();
    let parts: Vec<String> = (0..PARTS).map(|number| format!("part-{number}")).collect();
    // Those that come last stand first.
    write!(
        file,
        "kind: step\nname: mend\nafter: ['sum:failed']\ncommand: ['true']\n---\n\
         kind: step\nname: never\nafter: [mend]\ncommand: ['true']\n---\n\
         kind: step\nname: report\nafter: ['sum:any']\nretries: 9\ncommand: [cp, {results}/sum, {results}/report]\n---\n\
         kind: step\nname: sum\nafter: [{}]\nretries: 9\ncommand: [sh, -c, 'cat {results}/[0-9]* | sort -n > {results}/sum']\n---\n",
        parts.join(", ")
    )
    .unwrap();
    for number in 0..PARTS {
        file += &part(number, results);
    }
    file.trim_end_matches("---\n").to_owned()
}

#[test]
fn each_stage_starts_after_the_one_before_whichever_daemon_is_killed() {
    let dev = Dev::start();
    let results = tempfile::tempdir().unwrap();
    let file = results.path().join("pipeline.yaml");
    fs::write(&file, pipeline(results.path().to_str().unwrap())).unwrap();
    let ids = dev.ok(&["submit", "-f", file.to_str().unwrap()]);
    let ids: Vec<&str> = ids.lines().collect();
    assert_eq!(ids.len(), PARTS + 4);
    let [mend, never, report, sum, ..] = ids[..] else {
        panic!("{ids:?}");
    };
    for daemon in [Daemon::Coordinator, Daemon::Agent, Daemon::Supervisor] {
        std::thread::sleep(Duration::from_millis(200));
        dev.kill(daemon);
    }
    let end = |id: &str| {
        let path = format!("/v1/steps/{id}");
        eventually_within(
            Duration::from_secs(120),
            &format!("the end of {id}"),
            || {
                let (status, step) = dev.try_call("GET", &path, None)?;
                let over = ["succeeded", "failed", "cancelled"];
                let ended = over.iter().any(|state| step["state"] == **state);
                (status == 200 && ended).then_some(step)
            },
        )
    };
    for id in ids.iter().filter(|id| ![mend, never].contains(id)) {
        let step = end(id);
        assert_eq!(step["state"], "succeeded", "{step}");
    }
    for (id, cause) in [(mend, sum), (never, mend)] {
        let step = end(id);
        assert_eq!(step["reason"]["code"], "dependency_failed", "{step}");
        let message = step["reason"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("`{cause}`")), "{message}");
        assert!(
            message.ends_with(&format!("`sluice explain {sum}` says why")),
            "{message}"
        );
        assert_eq!(step["attempts"], serde_json::json!([]), "it never ran");
    }
    let all: String = (0..PARTS).map(|number| format!("{number}\n")).collect();
    let reported = fs::read_to_string(results.path().join("report")).unwrap();
    assert_eq!(reported, all, "the sum was made of all parts, and reported");
    let before = |id: &str, field: &str| end(id)[field].as_str().unwrap().to_owned();
    assert!(before(sum, "allocated_at") <= before(report, "allocated_at"));
    let ends = ends(&dev);
    for id in &ids {
        assert_eq!(ends.get(*id), Some(&1), "ends of {id}");
    }
}

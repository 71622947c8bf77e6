//! A pipeline of one file, in a running cluster: an array of parts, some of which fail and are tried again, then a step over
//! all of them, then reports; and the daemons are killed meanwhile.

use std::fs;
use std::time::Duration;

use sluice_tests::{Daemon, Dev, eventually_within};

use super::crash::ends;

const PARTS: usize = 1000;

/// Each part writes its number; one in twenty fails the first time. Those that come last stand first.
fn pipeline(results: &str) -> String {
    let last = PARTS - 1;
    format!(
        "kind: step\nid: mend\nafter: ['sum:failed']\ncommand: ['true']\n---\n\
         kind: step\nid: never\nafter: [mend]\ncommand: ['true']\n---\n\
         kind: step\nid: report\nafter: ['sum:any']\nretries: 9\ncommand: [cp, {results}/sum, {results}/report]\n---\n\
         kind: step\nid: sum\nafter: [parts]\nretries: 9\ncommand: [sh, -c, 'cat {results}/[0-9]* | sort -n > {results}/sum']\n---\n\
         kind: step\nid: parts\narray: 0-{last}\nretries: 9\nresources: {{cpu_count: 0.01, memory: 1MB}}\n\
         command: [sh, -c, '{{ [ $((SLUICE_ARRAY_INDEX % 20)) != 7 ] || [ $SLUICE_ATTEMPT -gt 1 ]; }} && \
         echo $SLUICE_ARRAY_INDEX > {results}/$SLUICE_ARRAY_INDEX']\n"
    )
}

#[test]
fn each_stage_starts_after_the_one_before_whichever_daemon_is_killed() {
    let dev = Dev::start();
    let results = tempfile::tempdir().unwrap();
    let file = results.path().join("pipeline.yaml");
    fs::write(&file, pipeline(results.path().to_str().unwrap())).unwrap();
    let ids = dev.ok(&["submit", "-f", file.to_str().unwrap()]);
    assert_eq!(ids, "mend\nnever\nreport\nsum\nparts\n");
    for daemon in [Daemon::Coordinator, Daemon::Agent, Daemon::Supervisor] {
        std::thread::sleep(Duration::from_millis(500));
        dev.kill(daemon);
    }
    let end = |id: &str| {
        let path = format!("/v1/steps/{id}");
        eventually_within(
            Duration::from_secs(240),
            &format!("the end of {id}"),
            || {
                let (status, step) = dev.try_call("GET", &path, None)?;
                let over = ["succeeded", "failed", "cancelled"];
                let ended = over.iter().any(|state| step["state"] == **state);
                (status == 200 && ended).then_some(step)
            },
        )
    };
    for id in ["parts", "sum", "report"] {
        let step = end(id);
        assert_eq!(step["state"], "succeeded", "{step}");
    }
    assert_eq!(end("parts")["array"]["parts"]["succeeded"], PARTS);
    for (id, cause) in [("mend", "sum"), ("never", "mend")] {
        let step = end(id);
        assert_eq!(step["reason"]["code"], "dependency_failed", "{step}");
        let message = step["reason"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("`{cause}`")), "{message}");
        assert!(
            message.ends_with("`sluice explain sum` says why"),
            "{message}"
        );
        assert_eq!(step["attempts"], serde_json::json!([]), "it never ran");
    }
    let all: String = (0..PARTS).map(|number| format!("{number}\n")).collect();
    let reported = fs::read_to_string(results.path().join("report")).unwrap();
    assert_eq!(reported, all, "the sum was made of all parts, and reported");
    let before = |id: &str, field: &str| end(id)[field].as_str().unwrap().to_owned();
    assert!(before("sum", "allocated_at") <= before("report", "allocated_at"));
    let ends = ends(&dev);
    let parts = (0..PARTS).map(|index| format!("parts.{index}"));
    let steps = ["mend", "never", "report", "sum", "parts"].map(str::to_owned);
    for id in parts.chain(steps) {
        assert_eq!(ends.get(&id), Some(&1), "ends of {id}");
    }
}

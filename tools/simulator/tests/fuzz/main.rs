//! Hostile scenarios for the scheduler: whatever pools, hosts, policies and events a file tells of, a case is refused in
//! words or played to its end. Corpora and engine are `sluice-fuzz`'s.

use sluice_fuzz::Fuzz;
use sluice_simulator::scenario::Case;

#[test]
fn cases_of_scenarios() {
    let words = [
        "\"id\":\"a\"",
        "\"pools\":[",
        "\"nodes\":[",
        "\"policies\":[",
        "\"events\":[",
        "\"op\":\"submit\"",
        "\"op\":\"finish\"",
        "\"op\":\"advance\"",
        "\"op\":\"suspend\"",
        "\"op\":\"lose\"",
        "\"gpus\":",
        "\"capacity\":",
        "\"reserved\":",
        "\"max\":",
        "\"priority\":",
        "\"subject\":",
        "\"pool\":",
        "\"preemptible\":",
        "\"nodes\":",
        "\"expected_any_of\":[",
    ];
    Fuzz::new("scenario")
        .words(&words)
        .memory(8 << 20, 4096)
        .run(|input| {
            let Ok(case) = serde_json::from_slice::<Case>(input) else {
                return;
            };
            match case.play() {
                Ok(end) => assert_eq!(
                    case.play().ok().map(|end| format!("{end:?}")),
                    Some(format!("{end:?}"))
                ),
                Err(fault) => assert!(!fault.to_string().is_empty()),
            }
        });
}

//! Hostile warrants: what a host shows for an attempt. The seal is made right first, as an earlier release or this
//! cluster's own past would have made it; without one nothing is read at all.

use sluice_fuzz::Fuzz;

use super::*;

fn sealed_around(seal: &Seal, attempt: &AttemptId, json: &str) -> SealedWarrant {
    let tag = hmac::sign(&seal.0.tags, &sealed_text(attempt, json));
    SealedWarrant::new(format!("{} {json}", hex::encode(tag.as_ref())))
}

#[test]
fn warrants() {
    let words = [
        "\"told_at\":{",
        "\"epoch\":",
        "\"seq\":",
        "\"submitted_at\":",
        "\"spec\":{",
        "\"command\":[",
        "\"barred\":[",
        "\"home\":{",
        "\"grounds\":{",
        "\"retries_spent\":",
        "\"pool\":",
        "\"placements\":[",
        "\"gpus\":[",
        "\"port\":",
    ];
    let seal = Seal::drawn().unwrap();
    let attempt = attempt("a.1");
    Fuzz::new("warrant")
        .words(&words)
        .memory(4 << 20, 4096)
        .run(|input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return;
            };
            let shown = SealedWarrant::new(text.to_owned());
            assert_eq!(seal.open(&attempt, &shown), None, "nobody sealed it");
            let earlier = sealed_around(&seal, &attempt, text);
            let Some(sealed) = seal.seal_text(&attempt, input.to_vec()) else {
                return;
            };
            assert_eq!(seal.open(&attempt, &sealed), seal.open(&attempt, &earlier));
            if let Some(warrant) = seal.open(&attempt, &sealed) {
                let again = seal.seal(&attempt, &warrant);
                assert_eq!(seal.open(&attempt, &again), Some(warrant));
            }
        });
}

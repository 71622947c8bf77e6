//! `/metrics`, checked by Prometheus' own tool.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use sluice_tests::{Dev, DevOptions, binaries, eventually};

fn page(dev: &Dev) -> String {
    let (status, body) = dev.call("GET", "/metrics", None);
    assert_eq!(status, 200);
    body.as_str().unwrap().to_owned()
}

/// Returns the values of the samples of a family whose labels contain all of these.
fn values(page: &str, family: &str, labels: &[&str]) -> Vec<f64> {
    let lines = page
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(family));
    let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn prometheus_finds_hosts_gpus_pools_and_steps_and_nothing_to_complain_of() {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("nvml/hosts/mixed.json");
    let dev = Dev::with(DevOptions {
        gpus: Some((binaries().join("libsluice_nvml_standin.so"), host)),
        ..DevOptions::default()
    });
    dev.ok(&["run", "--", "true"]);
    dev.ok(&[
        "submit", "--id", "holds", "--gpus", "4", "--", "sleep", "1000",
    ]);
    dev.ok(&["submit", "--id", "waits", "--gpus", "3", "--", "true"]);
    dev.step_in("holds", &["running"]);
    let page = eventually("readings", || {
        Some(page(&dev)).filter(|page| page.contains("sluice_gpu_power_watts"))
    });
    assert_eq!(values(&page, "sluice_nodes", &["state=\"ready\""]), [1.0]);
    assert_eq!(
        values(&page, "sluice_node_ready", &["pool=\"default\""]),
        [1.0]
    );
    assert_eq!(values(&page, "sluice_steps", &["state=\"running\""]), [1.0]);
    assert_eq!(
        values(&page, "sluice_steps", &["state=\"succeeded\""]),
        [1.0]
    );
    assert_eq!(
        values(&page, "sluice_pool_queued_steps", &["default"]),
        [1.0]
    );
    assert_eq!(values(&page, "sluice_pool_used", &["key=\"gpu\""]), [4.0]);
    assert_eq!(
        values(&page, "sluice_gpu_granted", &[]).iter().sum::<f64>(),
        4.0
    );
    let foreign = ["platform=\"l40s\"", "reason=\"foreign\""];
    assert_eq!(values(&page, "sluice_gpu_unfit", &foreign), [1.0]);
    let fit = values(&page, "sluice_gpu_fit", &[]);
    assert_eq!((fit.len(), fit.iter().sum::<f64>()), (5, 4.0));
    assert_eq!(values(&page, "sluice_pool_grantable_gpus", &[]), [4.0]);
    assert_eq!(
        values(
            &page,
            "sluice_gpu_temperature_celsius",
            &["platform=\"l40s\""]
        )
        .len(),
        2
    );
    let a100s = ["compute_capability=\"8.0\"", "serial=", "vbios="];
    assert_eq!(values(&page, "sluice_gpu_info", &a100s), [1.0, 1.0]);
    assert_eq!(values(&page, "sluice_gpu_info", &[]).len(), 5);
    let of_a100 = |family: &str| values(&page, family, &["a100"])[0];
    assert_eq!(of_a100("sluice_gpu_memory_clock_hertz"), 1_593e6);
    assert_eq!(of_a100("sluice_gpu_pcie_generation"), 4.0);
    assert_eq!(of_a100("sluice_gpu_nvlinks"), 12.0);
    for family in [
        "sluice_gpu_persistence_enabled",
        "sluice_gpu_slowed_by_heat",
        "sluice_gpu_correctable_remapped_rows",
    ] {
        assert_eq!(values(&page, family, &[]).len(), 5, "{family}");
    }
    assert_eq!(
        values(&page, "sluice_gpu_ecc_corrected_errors_total", &["a100"])
            .iter()
            .sum::<f64>(),
        3.0
    );
    let (decided, committed) = (
        "sluice_decision_seconds_count",
        "sluice_commit_seconds_count",
    );
    assert!(values(&page, decided, &[])[0] > 0.0 && values(&page, committed, &[])[0] > 0.0);
    let submits = ["route=\"/v1/steps\"", "method=\"POST\"", "status=\"201\""];
    assert_eq!(values(&page, "sluice_http_requests_total", &submits), [3.0]);
    let secret = dev.token();
    assert!(!page.contains(&secret));
    judge(&page);
}

/// Checks the page with `promtool check metrics`.
fn judge(page: &str) {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| {
        panic!("promtool cannot be run: {error}. `apt-get install prometheus` brings it")
    });
    child
        .stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let words = [output.stdout, output.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    assert!(
        output.status.success() && words.trim().is_empty(),
        "{words}\n{page}"
    );
}

#[test]
fn ten_thousand_steps_cost_no_walk() {
    let dev = Dev::start();
    let step = serde_json::json!({"command": ["true"], "resources": {"gpu_count": 1}, "allow_pending": true});
    let steps: Vec<Value> = vec![step; 10_000];
    let body = serde_json::json!({ "steps": steps }).to_string();
    assert_eq!(dev.call("POST", "/v1/steps:batch", Some(&body)).0, 200);
    let page = page(&dev);
    assert_eq!(values(&page, "sluice_steps", &["queued"]), [10_000.0]);
    assert_eq!(
        values(&page, "sluice_pool_queued_steps", &["default"]),
        [10_000.0]
    );
}

//! GPUs that are to be cut into slices: what this host refuses, and a helper that fails or hangs. The suite's `carving`
//! tests cut GPUs of the stand-in.

use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sluice_common::carving::{CarveFailure, GpuLayout};
use sluice_common::supervision::ToSupervisor;

use crate::client::Client;
use crate::host::Host;

/// Orders a layout, and waits for the failure.
fn refusal(client: &mut Client, gpu: &str, layout: &str) -> CarveFailure {
    let before = client.carved.len();
    client.send(&ToSupervisor::Carve(
        gpu.to_owned(),
        layout.parse().unwrap(),
    ));
    client
        .wait("the answer", |c| c.carved.get(before).cloned())
        .expect("no GPU is cut here")
}

fn allowing(library: &Path) -> Host {
    let library = library.display();
    let config =
        format!("carve_gpus = true\ncarve_timeout = \"1s\"\nnvml_library = \"{library}\"\n");
    Host::start_under(&config, &[])
}

#[test]
fn a_host_cuts_nothing_unless_its_config_allows_it() {
    let host = Host::start();
    let mut client = host.client();
    assert!(!client.carves_gpus);
    let refused = refusal(&mut client, "GPU-0", "3g.40gb");
    assert_eq!(refused, CarveFailure::NotAllowed);
}

#[test]
fn what_is_no_gpu_or_no_layout_reaches_no_helper() {
    let host = allowing(Path::new("/no/such/libnvidia-ml.so.1"));
    let mut client = host.client();
    assert!(client.carves_gpus);
    for (gpu, layout) in [
        ("0", "3g.40gb"),
        ("GPU-0 --library /tmp/x", "whole"),
        (
            "GPU-0",
            "1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb,1g.5gb",
        ),
        ("GPU-0", "1c.3g.40gb"),
    ] {
        let CarveFailure::Refused(why) = refusal(&mut client, gpu, layout) else {
            panic!("{gpu} {layout}")
        };
        assert!(why.contains("names no GPU"), "{why}");
    }
    let CarveFailure::Refused(why) = refusal(&mut client, "GPU-0", "3g.40gb") else {
        panic!("there is no library")
    };
    assert!(
        why.contains("/no/such/libnvidia-ml.so.1 cannot be opened"),
        "{why}"
    );
}

#[test]
fn a_helper_that_hangs_is_killed_and_the_next_order_is_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    // The loader waits for a writer for ever.
    let library = folder.path().join("libnvidia-ml.so.1");
    mkfifo(&library, Mode::S_IRWXU).unwrap();
    let host = allowing(&library);
    let mut client = host.client();
    let order = |layout: GpuLayout| ToSupervisor::Carve("GPU-0".to_owned(), layout);
    client.send(&order("3g.40gb".parse().unwrap()));
    client.send(&order("3g.40gb".parse().unwrap()));
    client.send(&order(GpuLayout::Whole));
    client.wait("both answers", |c| (c.carved.len() == 2).then_some(()));
    assert_eq!(
        client.carved,
        [Some(CarveFailure::TimedOut), Some(CarveFailure::TimedOut)]
    );
}

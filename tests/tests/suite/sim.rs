//! Both cores in one simulated cluster, with everything that can go wrong going wrong: messages late, links cut, daemons
//! killed between any two effects, hosts rebooted, admins who drain and delete. Time is simulated, so hours pass in milliseconds, and one seed gives
//! one history. Checked after every event: the invariants of both cores, and that no step runs twice at once.
//!
//! `SLUICE_SIM_SEEDS` sets how many seeds are tried (20 unless set), `SLUICE_SIM_SEED` tries one.

mod host;
mod world;

use world::World;

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("SLUICE_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("SLUICE_SIM_SEEDS").unwrap_or(20)).collect(),
    }
}

#[test]
fn every_accepted_step_ends_once_and_never_runs_twice_whatever_fails() {
    for seed in seeds() {
        let mut world = World::new(seed);
        world.run_with_faults();
        world.heal_and_finish();
        world.judge();
    }
}

#[test]
fn one_seed_gives_one_history() {
    let history = |seed| {
        let mut world = World::new(seed);
        world.run_with_faults();
        world.heal_and_finish();
        world.log().to_vec()
    };
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8), "the seed matters");
    for deed in [
        "node_cordoned",
        "node_drained",
        "node_uncordoned",
        "node_deleted",
    ] {
        let done = |seed| history(seed).iter().any(|record| record.contains(deed));
        assert!((1..=20).any(done), "no admin's `{deed}` in twenty lives");
    }
}

#[test]
fn a_supervisor_that_ignores_leases_is_found_out() {
    let caught = (1..=60).any(|seed| {
        std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.break_leases();
            world.run_with_faults();
        })
        .is_err()
    });
    assert!(caught, "the simulation does not see two copies of a step");
}

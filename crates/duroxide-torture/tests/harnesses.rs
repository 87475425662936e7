//! The harnesses find nothing in a short run, and each catches its twins, which are broken on purpose.
//!
//! `soak` and `scale` are not here: they measure the memory of their process, which these tests share. The short tier runs them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;
use std::time::Duration;

use duroxide_torture::harness::{ALL, Harness, Tier, kill9};
#[cfg(target_os = "linux")]
use duroxide_torture::sim::alone::simulate_alone;

/// The workers of some harnesses are processes of the program.
fn set_program() {
    kill9::PROGRAM.get_or_init(|| PathBuf::from(env!("CARGO_BIN_EXE_duroxide-torture")));
}

fn run(name: &str, trials: u64, twin: Option<&str>) -> duroxide_torture::report::Report {
    set_program();
    let tier = Tier { trials, time_limit: Duration::MAX };
    Harness::named(name).unwrap().run(1, tier, twin)
}

fn assert_sound(name: &str, trials: u64) {
    let report = run(name, trials, None);
    assert!(report.is_good(), "{}\n{}", report.line(), report.reproductions().join("\n"));
}

fn assert_caught(name: &str, trials: u64) {
    for twin in Harness::named(name).unwrap().twins {
        let report = run(name, trials, Some(twin));
        assert!(report.is_good(), "{name}: {twin} was not caught in {trials} trials");
    }
}

#[test]
fn every_harness_has_a_twin() {
    let without: Vec<&str> =
        ALL.iter().filter(|harness| harness.twins.is_empty()).map(|harness| harness.name).collect();
    assert_eq!(without, [""; 0]);
}

#[test]
fn the_simulation_finds_nothing_and_catches_its_twins() {
    assert_sound("sim", 12);
    assert_caught("sim", 24);
}

#[cfg(target_os = "linux")]
#[test]
fn a_seed_of_the_simulation_does_the_same_again() {
    set_program();
    for seed in 1..=20 {
        let [once, again] = [(); 2].map(|()| simulate_alone(seed, None, true).lines);
        assert!(once.len() > 20, "seed {seed}: {once:?}");
        let place = once.iter().zip(&again).position(|(one, other)| one != other);
        assert!(once == again, "seed {seed}: {:?}", place.map(|place| (&once[place], &again[place])));
    }
}

#[test]
fn a_simulation_reaches_every_kind_of_trouble() {
    let report = run("sim", 40, None);
    for figure in [
        "activities_delivered_again",
        "answers",
        "attempts_given_back",
        "clock_jumps",
        "completions_from_elsewhere",
        "deaths",
        "dropped_calls",
        "failed_after",
        "failed_before",
        "late_answers",
        "late_effects",
        "power_cuts",
        "refused_writes",
        "shutdowns",
        "step_conflicts",
        "steps",
        "turns_delivered_again",
    ] {
        assert!(report.figures.get(figure).is_some_and(|count| *count > 0), "{figure}: {:?}", report.figures);
    }
}

#[test]
fn no_schedule_of_the_concurrent_parts_loses_a_wake_up_but_of_twins() {
    assert_sound("interleave", 28);
    assert_caught("interleave", 20);
}

#[test]
fn programs_with_crashes_end_right_and_broken_ones_are_caught() {
    assert_sound("programs", 3);
    assert_caught("programs", 6);
}

#[test]
fn the_stores_are_like_the_reference_and_a_broken_one_is_not() {
    assert_sound("model", 2);
    assert!(run("model", 12, Some("loses-messages")).is_good());
}

#[test]
fn power_cuts_lose_nothing_but_of_twins() {
    assert_sound("powerloss", 4);
    assert_caught("powerloss", 6);
}

#[test]
fn errors_of_the_disk_lose_nothing_but_of_a_twin() {
    assert_sound("ioerr", 30);
    assert_caught("ioerr", 40);
}

#[test]
fn damage_is_loud_except_in_a_twin() {
    assert_sound("corrupt", 8);
    assert_caught("corrupt", 6);
}

#[test]
fn killed_workers_lose_nothing_but_of_a_twin() {
    assert_sound("kill9", 1);
    assert_caught("kill9", 1);
}

#[test]
fn workers_that_were_stopped_write_nothing_but_in_a_twin() {
    assert_sound("zombie", 1);
    assert_caught("zombie", 3);
}

/// Every seed that once found a bug is told in the documents, with what it found.
#[test]
fn every_regression_is_told() {
    let told = include_str!("../../../docs/reliability.md");
    let regressions = include_str!("../regressions.txt");
    let seeds = regressions.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    for line in seeds {
        let (harness, seed) = line.split_once(' ').unwrap();
        let name = format!("`{harness} --seed {seed}`");
        assert!(told.contains(&name), "docs/reliability.md does not tell what {name} found");
    }
}

//! Tests of the tiers, on harnesses that do nothing.

use std::time::Duration;

use super::*;
use crate::checker::{Invariant, Violation};
use crate::report::{Figures, Trial};

fn works(_: u64, twin: Option<&str>) -> Trial {
    let found = twin.map(|_| Violation::of_store(Invariant::Liveness, "broken on purpose"));
    Trial::new(found.into_iter().collect(), Figures::new())
}

fn fails_once(seed: u64, _: Option<&str>) -> Trial {
    works(seed, (seed == 1).then_some("broken"))
}

const HARNESS: Harness = Harness {
    name: "nothing",
    about: "",
    trial: works,
    twins: &["broken"],
    twin_trials: 1,
    ci: Tier { trials: 20, time_limit: Duration::from_secs(10) },
    nightly: Tier { trials: 200, time_limit: Duration::from_secs(1_000) },
    is_parallel: false,
};

fn plan(length: Length) -> Plan {
    Plan { length, harnesses: vec![HARNESS], seed: 1, trials: None, time_limit: None, share: 1.0 }
}

/// Runs something, and returns whether it was good, the trials of its runs, and the table.
fn watched(work: impl FnOnce(&mut Runs) -> bool) -> (bool, Vec<u64>, String) {
    let mut trials = Vec::new();
    let mut tell = |report: &Report| trials.push(report.trials);
    let mut runs = Runs::new(&mut tell);
    let is_good = work(&mut runs);
    let table = runs.table();
    (is_good, trials, table)
}

#[test]
fn a_harness_whose_time_has_passed_runs_its_least_and_is_judged_by_that() {
    let (tier, least, _) = plan(Length::Short).limits(&HARNESS, Duration::ZERO);
    assert_eq!((tier.time_limit, least), (Duration::ZERO, 2));
    let (is_good, trials, _) = watched(|runs| runs.run_at_least(&HARNESS, 1, tier, least));
    assert!(is_good);
    assert_eq!(trials, [2]);
}

#[test]
fn what_the_first_trials_found_counts_beside_those_that_follow() {
    let broken = Harness { trial: fails_once, ..HARNESS };
    let (is_good, ..) = watched(|runs| runs.run_at_least(&broken, 1, ONE, 3));
    assert!(!is_good);
    let (is_good, trials, _) = watched(|runs| runs.run_at_least(&HARNESS, 1, ONE, 3));
    assert!(is_good);
    assert_eq!(trials, [1, 2]);
}

#[test]
fn the_limits_of_the_long_tier_are_limits() {
    let (tier, least, _) = plan(Length::Long).limits(&HARNESS, Duration::ZERO);
    assert_eq!((tier.trials, tier.time_limit, least), (200, Duration::from_secs(1_000), 1));
    let asked = Plan { time_limit: Some(Duration::from_secs(7)), ..plan(Length::Long) };
    let (tier, least, _) = asked.limits(&HARNESS, Duration::ZERO);
    assert_eq!((tier.trials, tier.time_limit, least), (200, Duration::from_secs(7), 1));
}

#[test]
fn a_share_scales_trials_and_time() {
    let (tier, ..) = Plan { share: 0.25, ..plan(Length::Long) }.limits(&HARNESS, Duration::ZERO);
    assert_eq!((tier.trials, tier.time_limit), (50, Duration::from_secs(250)));
    let (tier, ..) = Plan { share: 0.001, ..plan(Length::Long) }.limits(&HARNESS, Duration::ZERO);
    assert_eq!(tier.trials, 1);
}

#[test]
fn the_table_tells_trials_violations_and_twins_and_what_failed() {
    let (is_good, _, table) = watched(|runs| runs.tier(&plan(Length::Short), &[(HARNESS, 9)]));
    assert!(is_good);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[1], row[2], &row[4..]), ("nothing", "21", "0", &["1", "of", "1"][..]));
    let broken = Plan { harnesses: vec![Harness { trial: fails_once, ..HARNESS }], ..plan(Length::Short) };
    let (is_good, _, table) = watched(|runs| runs.tier(&broken, &[]));
    assert!(!is_good);
    assert!(table.ends_with("FAILED"), "{table}");
}

/// Is caught if panics of other threads are not printed meanwhile.
fn is_quiet_elsewhere(_: u64, twin: Option<&str>) -> Trial {
    let is_quiet = std::thread::spawn(crate::panics::is_quiet).join().unwrap();
    works(0, twin.filter(|_| is_quiet))
}

#[test]
fn panics_of_a_twin_are_not_printed_on_whatever_thread() {
    let quiet = Harness { trial: is_quiet_elsewhere, ..HARNESS };
    assert!(watched(|runs| runs.twins(&quiet, 1, Duration::from_secs(10))).0);
}

#[test]
fn failures_name_the_harness_the_seed_and_the_reason() {
    let broken = Harness { trial: fails_once, twins: &[], ..HARNESS };
    let mut tell = |_: &Report| {};
    let mut runs = Runs::new(&mut tell);
    assert!(!runs.run(&broken, 1, ONE, None).is_good());
    assert!(
        !runs.run(&Harness { trial: |_, _| works(0, None), ..HARNESS }, 5, ONE, Some("broken")).is_good()
    );
    let [failed, missed] = runs.failures() else { panic!("{:?}", runs.failures()) };
    let lines: Vec<&str> = failed.lines().collect();
    assert!(lines[0].starts_with("FAILED: nothing with seed 1: ") && lines[0].ends_with("broken on purpose"));
    assert!(lines[1].contains("nothing --seed 1 --trials 1"), "{failed}");
    assert_eq!(missed, "FAILED: nothing did not catch the twin broken in 1 trials from seed 5 on");
}

#[test]
fn harnesses_are_chosen_by_name_and_keep_their_order() {
    let names = |text: &str| text.split(',').map(str::to_string).collect::<Vec<_>>();
    let found = chosen(&names("soak,sim")).unwrap();
    assert_eq!(found.iter().map(|harness| harness.name).collect::<Vec<_>>(), ["sim", "soak"]);
    assert_eq!(chosen(&[]).unwrap().len(), ALL.len());
    assert_eq!(chosen(&names("sim,sin")).err().unwrap(), "there is no harness sin");
}

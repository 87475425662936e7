//! The bodies of the fuzz targets, on their seeds and on damaged copies of them.

use duroxide_torture::fuzz::TARGETS;
use duroxide_torture::shared::random::Random;

const DAMAGED: u64 = 2_000;

#[test]
fn every_target_takes_its_seeds_and_what_is_left_of_them() {
    for target in TARGETS {
        let seeds = target.seeds();
        assert!(seeds.len() > 1, "{} has seeds", target.name);
        seeds.iter().for_each(|seed| (target.run)(seed));
        let mut dice = Random::new(1);
        (0..DAMAGED).for_each(|_| target.run_damaged(&seeds, &mut dice));
    }
}

#[test]
fn every_target_takes_noise() {
    let mut dice = Random::new(2);
    for target in TARGETS {
        for _ in 0..DAMAGED {
            let bytes: Vec<u8> = (0..dice.below(200)).map(|_| dice.below(256) as u8).collect();
            (target.run)(&bytes);
        }
    }
}

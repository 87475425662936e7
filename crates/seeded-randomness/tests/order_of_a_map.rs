//! The order of a hash map is what the seed says, in every thread that begins after that.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;

fn order() -> Vec<u32> {
    let order = || (0..100).map(|n| (n, ())).collect::<HashMap<u32, ()>>().into_keys().collect();
    std::thread::spawn(order).join().unwrap()
}

#[test]
fn the_same_seed_gives_the_same_order_and_another_one_another() {
    let [first, second] = [order(), order()];
    assert_ne!(first, second, "without a seed the system decides");
    let of_seed = |seed| {
        seeded_randomness::decide_by(seed);
        order()
    };
    assert_eq!(of_seed(7), of_seed(7));
    assert_ne!(of_seed(7), of_seed(8));
}

//! Generated orchestrations decide alike, however the runtime keeps their executions.
//!
//! The test runs a generated program turn by turn in a small world that answers its requests in some order. Four
//! executions take every turn: one that stays in memory, one rebuilt from the stored history, one that replays the
//! events it missed instead of taking the turn, and `ReplayEngine`. All must record the same events, to the byte, and
//! reach the same result; and the history with the new turn must replay to the same place without anything new.

mod program;
mod world;

use proptest::prelude::*;

use program::{Step, steps};
use world::World;

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn live_and_replayed_turns_decide_alike_resident_or_rebuilt(
        program in steps(),
        choices in prop::collection::vec(any::<u16>(), 1..60),
    ) {
        World::new(program, choices).run();
    }
}

#[test]
fn lazily_created_dequeues_decide_alike_live_and_replayed() {
    let branch = |queue: &str| vec![Step::Activity("gate".into()), Step::Dequeue(queue.into())];
    let program = vec![Step::Select(branch("q1"), branch("q2")), Step::Activity("after".into())];
    for choices in [vec![0], vec![1], vec![7, 3, 9, 1, 4]] {
        World::new(program.clone(), choices).run();
    }
}

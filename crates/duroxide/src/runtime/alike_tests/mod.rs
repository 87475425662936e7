//! Generated orchestrations decide alike, however their executions are kept.
//!
//! A generated program is run turn by turn in a small world that answers its requests in some order. Every turn is taken
//! four times: by an execution that stays in memory, by one that is rebuilt from the stored history, by one that is fed
//! the events it missed instead of taking the turn, and by `ReplayEngine`. All must record the same events to the byte
//! and come to the same result; and the history with the new turn must replay to the same place without anything new.

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

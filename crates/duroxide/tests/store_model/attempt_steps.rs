//! The calls that came after the first ones: attempts, blocked instances, timers and leases as causes of steps, marks.
//!
//! They are a part of their own, so that a seed that once found a bug among the first calls still makes the same sequence
//! ([`first_sequence`](super::first_sequence)).

use duroxide::model::ActivityProgress;

use super::*;

/// A few calls that belong together, or one.
pub fn part() -> BoxedStrategy<Vec<Step>> {
    prop_oneof![
        10 => step().prop_map(|step| vec![step]),
        2 => whole_attempt(),
        2 => whole_start_by(),
        1 => whole_block(),
        2 => whole_timer(),
        2 => whole_lease(),
    ]
    .boxed()
}

fn step() -> BoxedStrategy<Step> {
    prop_oneof![
        4 => prop_oneof![4 => queue_message(), 1 => message()].prop_map(|message| Step::SendIfAlive { message }),
        5 => (token(), progress(), option::of(time())).prop_map(|(token, progress, give_back_ms)| Step::StoreProgress {
            token,
            progress,
            give_back_ms,
        }),
        4 => (token(), completion(), option::weighted(0.1, Just(()))).prop_map(|(token, completion, other)| {
            Step::CompleteActivity { token, completion, is_other_entry: other.is_some() }
        }),
        4 => activity_identity().prop_map(|activity| Step::FailUnbegun { activity }),
        2 => token().prop_map(|token| Step::Block { token }),
        2 => instance().prop_map(|instance| Step::Unblock { instance }),
        4 => (0..3usize, turn(), claim(), held())
            .prop_map(|(timer, turn, claim, held)| Step::StoreTimerAndTurn { timer, turn: sound(turn), claim, held }),
        6 => (token(), turn(), option::weighted(0.6, follows()), claim(), held())
            .prop_map(|(token, turn, follows, claim, held)| Step::StoreLeaseAndTurns {
                token,
                turn: sound(turn),
                follows,
                claim,
                held,
            }),
        4 => (token(), turn(), time(), claim()).prop_map(|(token, turn, start_by, claim)| Step::StoreTurn {
            token,
            turn: Turn { start_by_ms: Some(start_by), ..turn },
            claim,
        }),
        3 => (token(), any::<bool>()).prop_map(|(token, is_turn)| Step::Begin { token, is_turn }),
    ]
    .boxed()
}

/// An activity that fails, is given back, and is tried again or ended from elsewhere.
fn whole_attempt() -> BoxedStrategy<Vec<Step>> {
    (activity(), claimant(), progress(), time(), completion(), any::<bool>())
        .prop_map(|(item, claimant, progress, ms, completion, is_elsewhere)| {
            let open = TokenPick::Open(0);
            let claimant = Claimant { tags: TagFilter::Any, owner: Some(OWNERS[0]), ..claimant };
            let end = match is_elsewhere {
                true => vec![Step::CompleteActivity { token: open, completion, is_other_entry: false }],
                false => vec![
                    Step::StoreProgress { token: open, progress, give_back_ms: Some(ms) },
                    Step::Advance { ms },
                    Step::ClaimWork { max: 1, claimant: claimant.clone() },
                    Step::AckWork { token: open, completion },
                ],
            };
            let begin = vec![Step::EnqueueActivity { item }, Step::ClaimWork { max: 1, claimant }];
            [begin, end].concat()
        })
        .boxed()
}

/// An activity that has to be begun by a certain time, and perhaps was.
fn whole_start_by() -> BoxedStrategy<Vec<Step>> {
    (start(), turn(), activity(), time(), option::of(claimant()), any::<bool>())
        .prop_map(|(message, turn, item, ms, claimant, is_given_back)| {
            let WorkItem::ActivityExecute { instance, execution_id, id, .. } = &item else {
                unreachable!("an activity")
            };
            let activity = ScheduledActivityIdentifier {
                instance: instance.clone(),
                execution_id: *execution_id,
                activity_id: *id,
            };
            let turn = Turn { worker_items: vec![item], start_by_ms: Some(ms), ..sound(turn) };
            let mut steps = vec![
                Step::Enqueue { message, delay_ms: None },
                Step::FetchTurn { lock_ms: 30_000, filter: None },
                Step::StoreTurn { token: TokenPick::Open(0), turn, claim: None },
            ];
            steps.extend(claimant.map(|claimant| Step::ClaimWork { max: 1, claimant }));
            if is_given_back {
                let token = TokenPick::Open(0);
                steps.push(Step::AbandonWork { token, delay_ms: None, ignore_attempt: true });
            }
            steps.push(Step::FailUnbegun { activity });
            steps
        })
        .boxed()
}

/// An instance that is blocked, gets a message, and is free again.
fn whole_block() -> BoxedStrategy<Vec<Step>> {
    (start(), message(), instance())
        .prop_map(|(start, message, instance)| {
            vec![
                Step::Enqueue { message: start, delay_ms: None },
                Step::ClaimInstances { max: 1, lock_ms: 30_000 },
                Step::Block { token: TokenPick::Open(0) },
                Step::Enqueue { message, delay_ms: None },
                Step::ClaimInstances { max: 3, lock_ms: 5_000 },
                Step::Unblock { instance },
                Step::ClaimInstances { max: 3, lock_ms: 5_000 },
            ]
        })
        .boxed()
}

/// A start whose turn sets a timer, and the timer with its turn.
fn whole_timer() -> BoxedStrategy<Vec<Step>> {
    (start(), turn(), turn(), time(), any::<bool>(), claim())
        .prop_map(|(start, first, second, ms, is_early, claim)| {
            let WorkItem::StartOrchestration { instance, .. } = &start else { unreachable!("a start") };
            let set = vec![timer(instance, ms)];
            let first = Turn { execution_step: 0, orchestrator_items: set, ..sound(first) };
            let (timer, held) = (0, HeldPick::Truth);
            vec![
                Step::StoreStartAndTurn { start, turn: first, claim: None, held: HeldPick::Free },
                Step::Advance { ms: ms.saturating_sub(u64::from(is_early)) },
                Step::StoreTimerAndTurn { timer, turn: sound(second), claim, held },
            ]
        })
        .boxed()
}

/// A leased turn whose next execution, or whose child's first turn, is stored with it.
fn whole_lease() -> BoxedStrategy<Vec<Step>> {
    (start(), turn(), follows(), claim())
        .prop_map(|(message, turn, follows, claim)| {
            let (token, turn, held) = (TokenPick::Open(0), sound(turn), HeldPick::Truth);
            vec![
                Step::Enqueue { message, delay_ms: None },
                Step::ClaimInstances { max: 1, lock_ms: 30_000 },
                Step::StoreLeaseAndTurns { token, turn, follows: Some(follows), claim, held },
            ]
        })
        .boxed()
}

fn follows() -> BoxedStrategy<(Turn, Option<&'static str>)> {
    (turn(), option::of(instance())).prop_map(|(turn, of)| (sound(turn), of)).boxed()
}

fn sound(turn: Turn) -> Turn {
    Turn { defect: None, ..turn }
}

fn claim() -> BoxedStrategy<Option<(usize, Claimant)>> {
    option::weighted(0.8, (0..4usize, claimant())).boxed()
}

fn progress() -> BoxedStrategy<ActivityProgress> {
    (0..3u32, option::of(any::<u8>()), option::of(time()))
        .prop_map(|(failed_attempts, heartbeat, until)| ActivityProgress {
            failed_attempts,
            last_error: (failed_attempts > 0).then(|| "kein \"Erfolg\"".to_string()),
            last_failed_at_ms: (failed_attempts > 0).then_some(7),
            heartbeat: heartbeat.map(|beat| beat.to_string()),
            awaited_until_ms: until,
        })
        .boxed()
}

/// The same sequence on a machine on which the process dies now and then, a few times.
///
/// With `marks`, only calls are made that tell what runs: a plain fetch does not, and every attempt of its process counts.
#[allow(dead_code, reason = "not every user of this file lets processes die")]
pub fn with_crashes(sequence: Vec<Step>, most: usize, marks: bool) -> Vec<Step> {
    let between = sequence.len() / (most + 1) + 1;
    let mut steps = Vec::new();
    for (position, step) in sequence.into_iter().enumerate() {
        if position > 0 && position % between == 0 {
            steps.push(Step::Crash);
        }
        steps.push(match step {
            Step::FetchTurn { lock_ms, .. } if marks => Step::ClaimInstances { max: 1, lock_ms },
            Step::FetchWork { claimant } if marks => Step::ClaimWork { max: 1, claimant },
            step => step,
        });
    }
    steps
}

/// The same sequence for a store that takes no steps that a lease causes: the first of their turns comes alone.
#[allow(dead_code, reason = "not every user of this file has such a store")]
pub fn without_leased_steps(sequence: Vec<Step>) -> Vec<Step> {
    let alone = |step| match step {
        Step::StoreLeaseAndTurns { token, turn, claim, .. } => Step::StoreTurn { token, turn, claim },
        step => step,
    };
    sequence.into_iter().map(alone).collect()
}

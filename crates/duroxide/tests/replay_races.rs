//! All small races.
//!
//! Every race of one to three arms out of two queues, a signal, a timer, an activity and a child, in one or two rounds,
//! with the answers of a round in one batch in every order, requested at once or lazily. For executions from 0.1.31 on:
//! each turn replays to the same decisions (the driver checks it), the code reads queues in order and to the end, and
//! signals in order without repetition, and the engine cancels exactly the losers. Legacy executions take the same
//! turns without failing, and the same way each time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support;

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::WorkItem;
use duroxide::{EventKind, OrchestrationContext, OrchestrationHandler};
use support::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Arm {
    Queue,
    Queue2,
    Signal,
    Timer,
    Activity,
    Child,
}

const ARMS: [Arm; 6] = [Arm::Queue, Arm::Queue2, Arm::Signal, Arm::Timer, Arm::Activity, Arm::Child];

type Boxed = Pin<Box<dyn Future<Output = String> + Send>>;

/// Requests one step; its future yields the name of the arm and what it read.
fn request(ctx: &OrchestrationContext, arm: Arm) -> Boxed {
    match arm {
        Arm::Queue => Box::pin(ctx.dequeue_event("q").map(|data| format!("q={data}"))),
        Arm::Queue2 => Box::pin(ctx.dequeue_event("q2").map(|data| format!("q2={data}"))),
        Arm::Signal => Box::pin(ctx.schedule_wait("s").map(|data| format!("s={data}"))),
        Arm::Timer => Box::pin(ctx.schedule_timer(Duration::ZERO).map(|()| "t=".to_string())),
        Arm::Activity => Box::pin(ctx.schedule_activity("A", "").map(|_| "a=".to_string())),
        Arm::Child => Box::pin(ctx.schedule_sub_orchestration("C", "").map(|_| "c=".to_string())),
    }
}

fn make(ctx: &OrchestrationContext, arm: Arm, lazy: bool) -> Boxed {
    if !lazy {
        return request(ctx, arm);
    }
    let ctx = ctx.clone();
    Box::pin(async move { request(&ctx, arm).await })
}

/// Races the arms for some rounds, then reads the rest of the queues.
fn racing(arms: Vec<Arm>, rounds: usize, lazy: bool) -> Arc<dyn OrchestrationHandler> {
    code(move |ctx, _| {
        let arms = arms.clone();
        async move {
            let mut log = Vec::new();
            for _ in 0..rounds {
                let mut futures: Vec<Boxed> = arms.iter().map(|arm| make(&ctx, *arm, lazy)).collect();
                let none = || -> Boxed { Box::pin(std::future::pending()) };
                futures.resize_with(3, none);
                let (c, b, a) = (futures.pop().unwrap(), futures.pop().unwrap(), futures.pop().unwrap());
                let (_, won) = ctx.select3(a, b, c).await.into_tuple();
                log.push(won);
            }
            ctx.set_custom_status(log.join(";"));
            loop {
                let (_, read) =
                    ctx.select2(request(&ctx, Arm::Queue), request(&ctx, Arm::Queue2)).await.into_tuple();
                if read.ends_with("stop") {
                    return Ok(log.join(";"));
                }
                log.push(read);
            }
        }
    })
}

/// The answers to the open requests of a round, one for each arm.
fn answers(live: &Live, arms: &[Arm], round: usize) -> Vec<WorkItem> {
    let open = |wanted: &str| {
        let found = live.history.iter().rev().find(|event| type_of(&event.kind) == wanted);
        found.unwrap().event_id
    };
    arms.iter()
        .map(|arm| match arm {
            Arm::Queue => msg::queue("q", &format!("m{round}")),
            Arm::Queue2 => msg::queue("q2", &format!("n{round}")),
            Arm::Signal => msg::signal("s", &format!("s{round}")),
            Arm::Timer => msg::timer(open("TimerCreated")),
            Arm::Activity => msg::activity(open("ActivityScheduled"), ""),
            Arm::Child => msg::child(open("SubOrchestrationScheduled"), ""),
        })
        .collect()
}

fn permutations<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![vec![]];
    }
    let with_first = |i: usize| {
        let mut rest = items.to_vec();
        let first = rest.remove(i);
        permutations(&rest).into_iter().map(move |mut tail| {
            tail.insert(0, first.clone());
            tail
        })
    };
    (0..items.len()).flat_map(with_first).collect()
}

fn arm_sets() -> Vec<Vec<Arm>> {
    let sets = (1..64_u8).filter(|bits| bits.count_ones() <= 3);
    sets.map(|bits| {
        ARMS.into_iter().enumerate().filter(|(i, _)| bits & (1 << i) != 0).map(|(_, arm)| arm).collect()
    })
    .collect()
}

/// Plays one case to its end: a round is answered in one batch, if `split` in two.
fn play(arms: &[Arm], rounds: usize, lazy: bool, order: &[Arm], split: bool, stamp: &str) -> Live {
    let start = History::started().stamped(stamp);
    let mut live = Live::from_start(racing(arms.to_vec(), rounds, lazy), start, vec![]);
    for round in 0..rounds {
        if live.last().text() != "Continue" {
            return live;
        }
        let mut batch = answers(&live, order, round);
        let rest = if split { batch.split_off(1) } else { vec![] };
        live.turn(batch);
        // Winning in the first batch, the next round opens before the rest arrives.
        if !rest.is_empty() && live.last().text() == "Continue" {
            live.turn(rest);
        }
    }
    live
}

fn every_case(stamp: &str, mut check: impl FnMut(&[Arm], usize, Live)) -> usize {
    let mut cases = 0;
    for arms in arm_sets() {
        for order in permutations(&arms) {
            for (rounds, lazy, split) in
                [(1, false, false), (1, true, false), (2, false, false), (2, true, false), (2, false, true)]
            {
                check(&arms, rounds, play(&arms, rounds, lazy, &order, split, stamp));
                cases += 1;
            }
        }
    }
    cases
}

/// The reads from a queue or signal, according to the log.
fn read<'a>(log: &'a str, from: &str) -> Vec<&'a str> {
    log.split(';').filter_map(|entry| entry.strip_prefix(from)).collect()
}

#[test]
fn every_small_race_replays_reads_in_order_and_cancels_exactly_the_losers() {
    let cases = every_case("0.1.31", |arms, rounds, mut live| {
        let what = format!("{arms:?} {rounds} {:#?}", kinds(&live.history));
        assert_eq!(live.last().text(), "Continue", "{what}");
        // A stop in each queue lets the program read to the end and report its reads.
        live.turn(vec![msg::queue("q", "stop"), msg::queue("q2", "stop")]);
        let text = live.last().text();
        let log = text.strip_prefix("Completed: ").unwrap_or_else(|| panic!("{text} {what}"));

        for (queue, prefix) in [("q=", "m"), ("q2=", "n")] {
            let messages = read(log, queue);
            let in_order: Vec<String> = (0..messages.len()).map(|i| format!("{prefix}{i}")).collect();
            assert_eq!(messages, in_order, "{what}");
        }
        let signals = read(log, "s=");
        assert!(signals.windows(2).all(|pair| pair[0] < pair[1]), "{log} {what}");

        let cancelled: BTreeSet<u64> = cancel_rows(&live);
        let losers: BTreeSet<u64> = open_requests(&live);
        assert!(cancelled.is_subset(&losers), "{cancelled:?} {losers:?} {what}");
    });
    assert!(cases > 700, "{cases}");
}

/// The requests whose cancellation was recorded.
fn cancel_rows(live: &Live) -> BTreeSet<u64> {
    let rows = live.history.iter().filter(|event| {
        matches!(
            event.kind,
            EventKind::ActivityCancelRequested { .. }
                | EventKind::SubOrchestrationCancelRequested { .. }
                | EventKind::ExternalSubscribedCancelled { .. }
                | EventKind::QueueSubscriptionCancelled { .. }
        )
    });
    let sources: Vec<u64> = rows.map(|event| event.source_event_id.unwrap()).collect();
    let unique: BTreeSet<u64> = sources.iter().copied().collect();
    assert_eq!(sources.len(), unique.len(), "a row for each at most");
    unique
}

/// The requests that can be cancelled.
fn open_requests(live: &Live) -> BTreeSet<u64> {
    let requests = live.history.iter().filter(|event| {
        matches!(
            event.kind,
            EventKind::ActivityScheduled { .. }
                | EventKind::SubOrchestrationScheduled { .. }
                | EventKind::ExternalSubscribed { .. }
                | EventKind::QueueSubscribed { .. }
        )
    });
    requests.map(|event| event.event_id).collect()
}

#[test]
fn every_small_race_cancels_all_requests_but_the_winners() {
    every_case("0.1.31", |arms, rounds, live| {
        let status = live.history.iter().rev().find_map(|event| match &event.kind {
            EventKind::CustomStatusUpdated { status } => status.clone(),
            _ => None,
        });
        // Only looked at where all rounds are over: then each round kept one request, and the reader has two open ones
        // or has read from one queue since.
        let Some(status) = status else { return };
        let won = status.split(';').filter(|winner| !winner.starts_with("t=")).count();
        assert_eq!(status.split(';').count(), rounds);
        let raced = rounds * arms.iter().filter(|arm| **arm != Arm::Timer).count();
        let requests: Vec<u64> = open_requests(&live).into_iter().take(raced).collect();
        let cancelled = cancel_rows(&live);
        let lost = requests.iter().filter(|id| cancelled.contains(id)).count();
        assert_eq!(lost, raced - won, "{arms:?} {status} {:#?}", kinds(&live.history));
    });
}

#[test]
fn legacy_races_take_their_turns_the_same_way_each_time() {
    let mut first = Vec::new();
    every_case(LEGACY, |_, _, live| first.push((live.last().text(), kinds(&live.history))));
    let mut next = first.into_iter();
    every_case(LEGACY, |arms, rounds, live| {
        assert_eq!(next.next().unwrap(), (live.last().text(), kinds(&live.history)), "{arms:?} {rounds}");
    });
}

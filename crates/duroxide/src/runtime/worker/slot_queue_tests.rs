//! The queue: which claim gets a slot, which waits, and how much a caller may claim.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails may panic")]

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::claim::ClaimedActivity;
use super::slot_queue::{Put, SlotQueue, Start};

/// The slots of every queue here.
const ALL: Range<usize> = 0..10;

fn open_queue(slots: usize) -> Arc<SlotQueue> {
    let queue = Arc::new(SlotQueue::new(slots));
    queue.open();
    queue
}

/// A queue whose user code takes no time at all, so that the runtime claims much ahead.
fn quick_queue(slots: usize) -> Arc<SlotQueue> {
    let queue = open_queue(slots);
    queue.pace.record(Duration::ZERO);
    queue
}

fn put(queue: &Arc<SlotQueue>, id: u64) -> Option<Start> {
    match queue.put(ClaimedActivity::of_nobody(id)) {
        Put::Start(start) => Some(*start),
        Put::Waits => None,
        Put::Refused(claim) => panic!("{} was refused", claim.work.id),
    }
}

fn ids(claims: &[ClaimedActivity]) -> Vec<u64> {
    claims.iter().map(|claim| claim.work.id).collect()
}

/// Tells whether a future is done without waiting for it.
async fn is_done(future: impl Future<Output = ()>) -> bool {
    tokio::select! { biased; () = future => true, () = std::future::ready(()) => false }
}

#[test]
fn a_queue_that_was_not_opened_or_was_closed_takes_nothing() {
    let queue = Arc::new(SlotQueue::new(2));
    assert!(queue.reserve(1).is_none());
    assert!(matches!(queue.put(ClaimedActivity::of_nobody(1)), Put::Refused(_)));
    queue.open();
    assert!(queue.reserve(1).is_some());
    queue.close();
    assert!(queue.reserve(1).is_none());
    assert!(matches!(queue.put(ClaimedActivity::of_nobody(1)), Put::Refused(_)));
    assert_eq!(queue.free(&ALL).len(), 2, "what was refused takes no slot");
}

#[test]
fn closing_returns_what_waits_in_order_and_leaves_what_runs_alone() {
    let queue = open_queue(1);
    let running = put(&queue, 1).unwrap();
    assert!(put(&queue, 2).is_none() && put(&queue, 3).is_none());
    assert_eq!(ids(&queue.close()), [2, 3]);
    assert!(queue.is_empty());
    assert!(queue.next_in(running.slot).is_none());
    assert_eq!(queue.free(&ALL).len(), 1);
}

#[test]
fn no_more_is_reserved_than_there_are_slots_until_the_pace_is_known() {
    let queue = open_queue(2);
    let both = queue.reserve(10).unwrap();
    assert_eq!(both.count, 2);
    assert!(queue.reserve(1).is_none(), "both slots are spoken for");
    drop(both);
    let one = queue.reserve(1).unwrap();
    assert_eq!(one.count, 1, "no more than wanted");
    assert_eq!(queue.reserve(10).unwrap().count, 1, "what is left");
    drop(one);
    assert_eq!(queue.reserve(10).unwrap().count, 2, "what is dropped is free again");
}

#[test]
fn what_runs_waits_or_is_on_its_way_takes_room() {
    let queue = quick_queue(2);
    let most = queue.reserve(usize::MAX).unwrap().count;
    assert!(most > 2, "quick work is claimed ahead");
    let running = (put(&queue, 1).unwrap(), put(&queue, 2).unwrap());
    assert!(put(&queue, 3).is_none());
    let on_its_way = queue.reserve(4).unwrap();
    assert_eq!(queue.reserve(usize::MAX).unwrap().count, most - 2 - 1 - 4);
    drop(on_its_way);
    queue.clear();
    drop(running);
    assert_eq!(queue.reserve(usize::MAX).unwrap().count, most);
}

#[test]
fn an_activity_is_under_way_until_its_result_is_stored() {
    let queue = quick_queue(1);
    let mut permits = Vec::new();
    while queue.reserve(1).is_some() {
        permits.push(queue.permit());
        assert!(permits.len() < 100_000, "there is a limit to what is under way");
    }
    assert!(permits.len() > 1, "a slot is free long before its result is stored");
    permits.pop();
    assert_eq!(queue.reserve(10).unwrap().count, 1);
    drop(permits);
    assert!(queue.reserve(10).unwrap().count > 1);
}

#[test]
fn claims_start_while_slots_are_free_and_wait_then() {
    let queue = open_queue(2);
    let (first, second) = (put(&queue, 1).unwrap(), put(&queue, 2).unwrap());
    assert_eq!((first.slot.index(), second.slot.index()), (0, 1));
    assert!(put(&queue, 3).is_none());
    assert!(!queue.is_empty());
    assert!(queue.next().is_none(), "no slot is free");
    drop(second);
    assert_eq!(queue.next().unwrap().claim.work.id, 3);
    assert!(queue.is_empty());
}

#[test]
fn a_new_claim_does_not_overtake_one_that_waits() {
    let queue = open_queue(1);
    let running = put(&queue, 1).unwrap();
    assert!(put(&queue, 2).is_none());
    drop(running.slot);
    assert!(put(&queue, 3).is_none(), "a slot is free, but another waits for it");
    let next = queue.next().unwrap();
    assert_eq!((next.claim.work.id, next.slot.index()), (2, 0));
    let next = queue.next_in(next.slot).unwrap();
    assert_eq!((next.claim.work.id, next.slot.index()), (3, 0));
    assert!(queue.next_in(next.slot).is_none());
    assert_eq!(queue.free(&ALL).into_iter().collect::<Vec<_>>(), [0], "a slot that nobody needs is free");
}

#[test]
fn a_claim_for_a_held_slot_starts_there_unless_others_wait() {
    let queue = open_queue(2);
    let held = queue.take(1).unwrap();
    let Put::Start(start) = queue.put_in(held, ClaimedActivity::of_nobody(1)) else { panic!("it waits") };
    assert_eq!(start.slot.index(), 1, "although another is free");
    let held = queue.take(0).unwrap();
    assert!(put(&queue, 2).is_none(), "both slots are in use");
    assert!(matches!(queue.put_in(held, ClaimedActivity::of_nobody(3)), Put::Waits));
    assert_eq!(queue.next().unwrap().claim.work.id, 2, "in the slot that was held");
    queue.close();
    drop(start);
    let held = queue.take(1).unwrap();
    assert!(matches!(queue.put_in(held, ClaimedActivity::of_nobody(4)), Put::Refused(_)));
    assert_eq!(queue.free(&ALL).len(), 2, "what was refused takes no slot");
}

#[tokio::test]
async fn those_who_serve_some_slots_wait_for_those() {
    let queue = open_queue(2);
    let _running = put(&queue, 1).unwrap();
    assert!(is_done(queue.until_room(&ALL)).await && is_done(queue.until_room(&(1..2))).await);
    assert!(!is_done(queue.until_room(&(0..1))).await, "this slot is in use");
    let known = [1].into();
    assert!(!is_done(queue.until_more_free_than(&known, &ALL)).await);
    let none = Default::default();
    assert!(!is_done(queue.until_more_free_than(&none, &(0..1))).await);
    assert!(is_done(queue.until_more_free_than(&none, &(1..2))).await);
    assert!(queue.free(&(0..1)).is_empty());
}

#[test]
fn a_slot_is_taken_once() {
    let queue = open_queue(2);
    let taken = queue.take(1).unwrap();
    assert!(queue.take(1).is_none());
    assert_eq!(put(&queue, 1).unwrap().slot.index(), 0);
    drop(taken);
    assert_eq!(put(&queue, 2).unwrap().slot.index(), 0, "the first of the free ones");
    assert!(queue.take(9).is_none(), "there is no such slot");
}

#[tokio::test]
async fn those_who_wait_are_told_of_every_change() {
    let queue = open_queue(1);
    assert!(is_done(queue.until_room(&ALL)).await && is_done(queue.until_empty()).await);
    assert!(!is_done(queue.until_any_wait()).await);
    let running = put(&queue, 1).unwrap();
    assert!(!is_done(queue.until_room(&ALL)).await);

    let told = async |change: &dyn Fn(), what: &str, waiting: &mut (dyn Future<Output = ()> + Unpin)| {
        assert!(!is_done(&mut *waiting).await, "{what}: too early");
        change();
        assert!(is_done(waiting).await, "{what}: not told");
    };
    let added = || drop(put(&queue, 2));
    told(&added, "a claim was added", &mut Box::pin(queue.until_any_wait())).await;
    let emptied = || drop(queue.clear());
    told(&emptied, "all was taken away", &mut Box::pin(queue.until_empty())).await;
    let slot = std::cell::Cell::new(Some(running.slot));
    let freed = || drop(slot.take());
    let none = Default::default();
    told(&freed, "a slot came free", &mut Box::pin(queue.until_more_free_than(&none, &ALL))).await;
    assert!(is_done(queue.until_room(&ALL)).await);
}

#[tokio::test]
async fn room_that_comes_back_is_noticed() {
    let queue = quick_queue(1);
    let mut permits = Vec::new();
    while is_done(queue.until_room(&ALL)).await {
        permits.push(queue.permit());
    }
    let mut waiting = Box::pin(queue.until_room(&ALL));
    assert!(!is_done(&mut waiting).await);
    permits.pop();
    assert!(is_done(waiting).await);
}

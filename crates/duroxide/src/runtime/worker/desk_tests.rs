//! The desk: who gets a slot, who waits, and how much may be claimed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails may panic")]

use std::sync::Arc;
use std::time::Duration;

use super::claim::ClaimedActivity;
use super::desk::{Desk, Put, Start};

fn open_desk(slots: usize) -> Arc<Desk> {
    let desk = Arc::new(Desk::new(slots));
    desk.open();
    desk
}

/// A desk whose user code takes no time at all, so that much is claimed ahead.
fn quick_desk(slots: usize) -> Arc<Desk> {
    let desk = open_desk(slots);
    desk.pace.record(Duration::ZERO);
    desk
}

fn put(desk: &Arc<Desk>, id: u64) -> Option<Start> {
    match desk.put(ClaimedActivity::of_nobody(id)) {
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
fn a_desk_that_was_not_opened_or_was_closed_takes_nothing() {
    let desk = Arc::new(Desk::new(2));
    assert!(desk.reserve(1).is_none());
    assert!(matches!(desk.put(ClaimedActivity::of_nobody(1)), Put::Refused(_)));
    desk.open();
    assert!(desk.reserve(1).is_some());
    desk.close();
    assert!(desk.reserve(1).is_none());
    assert!(matches!(desk.put(ClaimedActivity::of_nobody(1)), Put::Refused(_)));
    assert_eq!(desk.free().len(), 2, "what was refused takes no slot");
}

#[test]
fn closing_returns_what_waits_in_order_and_leaves_what_runs_alone() {
    let desk = open_desk(1);
    let running = put(&desk, 1).unwrap();
    assert!(put(&desk, 2).is_none() && put(&desk, 3).is_none());
    assert_eq!(ids(&desk.close()), [2, 3]);
    assert!(desk.is_clear());
    assert!(desk.next_in(running.slot).is_none());
    assert_eq!(desk.free().len(), 1);
}

#[test]
fn no_more_is_reserved_than_there_are_slots_until_the_pace_is_known() {
    let desk = open_desk(2);
    let both = desk.reserve(10).unwrap();
    assert_eq!(both.places, 2);
    assert!(desk.reserve(1).is_none(), "both slots are spoken for");
    drop(both);
    let one = desk.reserve(1).unwrap();
    assert_eq!(one.places, 1, "no more than wanted");
    assert_eq!(desk.reserve(10).unwrap().places, 1, "what is left");
    drop(one);
    assert_eq!(desk.reserve(10).unwrap().places, 2, "what is dropped is free again");
}

#[test]
fn what_runs_waits_or_is_on_its_way_takes_places() {
    let desk = quick_desk(2);
    let most = desk.reserve(usize::MAX).unwrap().places;
    assert!(most > 2, "quick work is claimed ahead");
    let running = (put(&desk, 1).unwrap(), put(&desk, 2).unwrap());
    assert!(put(&desk, 3).is_none());
    let on_its_way = desk.reserve(4).unwrap();
    assert_eq!(desk.reserve(usize::MAX).unwrap().places, most - 2 - 1 - 4);
    drop(on_its_way);
    desk.clear();
    drop(running);
    assert_eq!(desk.reserve(usize::MAX).unwrap().places, most);
}

#[test]
fn a_place_is_taken_until_the_result_is_stored() {
    let desk = quick_desk(1);
    let mut places = Vec::new();
    while desk.reserve(1).is_some() {
        places.push(desk.place());
        assert!(places.len() < 100_000, "there is a limit to what is under way");
    }
    assert!(places.len() > 1, "a slot is free long before its result is stored");
    places.pop();
    assert_eq!(desk.reserve(10).unwrap().places, 1);
    drop(places);
    assert!(desk.reserve(10).unwrap().places > 1);
}

#[test]
fn claims_start_while_slots_are_free_and_wait_then() {
    let desk = open_desk(2);
    let (first, second) = (put(&desk, 1).unwrap(), put(&desk, 2).unwrap());
    assert_eq!((first.slot.index(), second.slot.index()), (0, 1));
    assert!(put(&desk, 3).is_none());
    assert!(!desk.is_clear());
    assert!(desk.next().is_none(), "no slot is free");
    drop(second);
    assert_eq!(desk.next().unwrap().claim.work.id, 3);
    assert!(desk.is_clear());
}

#[test]
fn a_new_claim_does_not_overtake_one_that_waits() {
    let desk = open_desk(1);
    let running = put(&desk, 1).unwrap();
    assert!(put(&desk, 2).is_none());
    drop(running.slot);
    assert!(put(&desk, 3).is_none(), "a slot is free, but another waits for it");
    let next = desk.next().unwrap();
    assert_eq!((next.claim.work.id, next.slot.index()), (2, 0));
    let next = desk.next_in(next.slot).unwrap();
    assert_eq!((next.claim.work.id, next.slot.index()), (3, 0));
    assert!(desk.next_in(next.slot).is_none());
    assert_eq!(desk.free().into_iter().collect::<Vec<_>>(), [0], "a slot that nobody needs is free");
}

#[test]
fn a_slot_is_taken_once() {
    let desk = open_desk(2);
    let taken = desk.take(1).unwrap();
    assert!(desk.take(1).is_none());
    assert_eq!(put(&desk, 1).unwrap().slot.index(), 0);
    drop(taken);
    assert_eq!(put(&desk, 2).unwrap().slot.index(), 0, "the first of the free ones");
    assert!(desk.take(9).is_none(), "there is no such slot");
}

#[tokio::test]
async fn those_who_wait_are_told_of_every_change() {
    let desk = open_desk(1);
    assert!(is_done(desk.has_room()).await && is_done(desk.is_cleared()).await);
    assert!(!is_done(desk.is_laid()).await);
    let running = put(&desk, 1).unwrap();
    assert!(!is_done(desk.has_room()).await && !is_done(desk.is_free(0)).await);

    let told = async |change: &dyn Fn(), what: &str, waiting: &mut (dyn Future<Output = ()> + Unpin)| {
        assert!(!is_done(&mut *waiting).await, "{what}: too early");
        change();
        assert!(is_done(waiting).await, "{what}: not told");
    };
    let laid = || drop(put(&desk, 2));
    told(&laid, "a claim was laid down", &mut Box::pin(desk.is_laid())).await;
    let cleared = || drop(desk.clear());
    told(&cleared, "all was taken away", &mut Box::pin(desk.is_cleared())).await;
    let slot = std::cell::Cell::new(Some(running.slot));
    let freed = || drop(slot.take());
    let none = Default::default();
    told(&freed, "a slot came free", &mut Box::pin(desk.more_free_than(&none))).await;
    assert!(is_done(desk.has_room()).await && is_done(desk.is_free(0)).await);
}

#[tokio::test]
async fn room_that_comes_back_is_noticed() {
    let desk = quick_desk(1);
    let mut places = Vec::new();
    while is_done(desk.has_room()).await {
        places.push(desk.place());
    }
    let mut waiting = Box::pin(desk.has_room());
    assert!(!is_done(&mut waiting).await);
    places.pop();
    assert!(is_done(waiting).await);
}

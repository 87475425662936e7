//! A dispatcher that waits for instances may get them from the commit that enqueues a message.

use std::collections::HashSet;

use semver::Version;

use super::super::support::{Commit, Store, named, raised, start_item};
use super::super::{ExecutionMetadata, ProviderFactory};
use super::{PATIENCE, instances, names};
use crate::providers::{
    DispatcherCapabilityFilter, ExtendedProvider, InstanceClaim, InstanceRequest, SemverRange, StartOutcome,
    WorkQueue,
};

/// Acts like a dispatcher: marks, claims, and waits if there is nothing, until there is something.
async fn await_instances(
    extended: &dyn ExtendedProvider,
    request: &InstanceRequest<'_>,
) -> Vec<InstanceClaim> {
    let mut signal = extended.work_signal(WorkQueue::Orchestrator);
    let looking = async {
        loop {
            signal.mark_seen();
            let claims = extended.claim_instances(request).await.expect("claim_instances should work");
            if !claims.is_empty() {
                return claims;
            }
            let claims = extended.wait_for_instances(request, &mut signal).await;
            if !claims.is_empty() {
                return claims;
            }
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("what was enqueued should be found")
}

/// A message reaches a waiting dispatcher, once, and is a claim like any other.
pub async fn whoever_waits_gets_what_is_enqueued(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let request = instances(10, None);
    let (claims, ()) = tokio::join!(await_instances(extended, &request), store.start("i"));
    let [claim] = claims.as_slice() else { panic!("one instance should be claimed; got {claims:?}") };
    assert_eq!((claim.instance.as_str(), claim.attempt_count), ("i", 1));
    assert!(claim.is_fresh(), "nothing but its start is stored");
    store.expect_no_turn("the only instance with messages is claimed").await;
    store.try_ack(&claim.lock_token, Commit::creating("i")).await.expect("a claim can be acked");

    let (claims, ()) = tokio::join!(await_instances(extended, &request), store.send(raised("i", "n", "1")));
    let [claim] = claims.as_slice() else { panic!("one instance should be claimed; got {claims:?}") };
    assert_eq!(claim.messages, [raised("i", "n", "1")]);
    assert_eq!(claim.last_event_id, 1);
    let given_back = store.provider.abandon_orchestration_item(&claim.lock_token, None, false).await;
    given_back.expect("a claim can be given back");
    assert_eq!(store.turn_of("i").await.attempts, 2, "the claim should count as an attempt");
}

/// So does a start, if its id is free.
pub async fn whoever_waits_gets_what_is_started(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let request = instances(10, None);
    let begin = extended.enqueue_start_if_absent(start_item("i"));
    let (claims, outcome) = tokio::join!(await_instances(extended, &request), begin);
    assert_eq!(outcome.expect("a start should work"), StartOutcome::New);
    assert_eq!(names(&claims), ["i"]);
    let again = extended.enqueue_start_if_absent(start_item("i")).await;
    assert_eq!(again.expect("a start should work"), StartOutcome::Existing);
    store.expect_no_turn("the only instance with messages is claimed").await;
    store.try_ack(&claims[0].lock_token, Commit::creating("i")).await.expect("a claim can be acked");
}

/// A dispatcher that stops waiting holds nothing back, whether the message comes later or at the same time.
pub async fn whoever_stops_waiting_gets_nothing(factory: &dyn ProviderFactory) {
    const INSTANCES: usize = 20;
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let request = instances(INSTANCES, None);
    for number in 0..INSTANCES {
        let mut signal = extended.work_signal(WorkQueue::Orchestrator);
        signal.mark_seen();
        let start = start_item(&format!("i-{number}"));
        let enqueued_and_waited = async {
            let enqueue = store.provider.enqueue_for_orchestrator(start, None);
            tokio::join!(extended.wait_for_instances(&request, &mut signal), enqueue)
        };
        let a_moment = async {
            for _ in 0..number {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            (claims, _) = enqueued_and_waited => {
                for claim in claims {
                    let given_back = store.provider.abandon_orchestration_item(&claim.lock_token, None, true).await;
                    given_back.expect("a claim can be given back");
                }
            }
            () = a_moment => {}
        }
    }
    // Instances whose enqueue was dropped get another start, too.
    for number in 0..INSTANCES {
        store.start(&format!("i-{number}")).await;
    }
    let mut claimed = HashSet::new();
    while claimed.len() < INSTANCES {
        let turn = store.turn().await;
        assert_eq!(turn.attempts, 1, "nobody took a turn of {}", turn.item.instance);
        store.ack(&turn, Commit::creating(&turn.item.instance)).await;
        claimed.insert(turn.item.instance);
    }
    store.expect_no_turn("everything was claimed").await;
}

/// The store claims for a dispatcher only what it can replay.
pub async fn whoever_waits_gets_only_what_they_can_replay(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    for (instance, major) in [("v2", 2), ("v1", 1)] {
        let pinned = Some(Version::new(major, 0, 0));
        let metadata = ExecutionMetadata { pinned_duroxide_version: pinned, ..named() };
        store.start_and_ack(instance, Commit { metadata, ..Commit::creating(instance) }).await;
    }
    let range = SemverRange::new(Version::new(1, 0, 0), Version::new(1, 9, 9));
    let first = DispatcherCapabilityFilter { supported_duroxide_versions: vec![range] };
    let request = instances(10, Some(&first));
    let send = async {
        store.send(raised("v2", "n", "")).await;
        store.send(raised("v1", "n", "")).await;
    };
    let (claims, ()) = tokio::join!(await_instances(extended, &request), send);
    assert_eq!(names(&claims), ["v1"], "the other one is of another version");
    assert_eq!(store.turn_of("v2").await.attempts, 1, "what was left out should not be counted");
}

/// Several dispatchers wait and several callers enqueue: the store claims every instance once.
pub async fn what_is_enqueued_goes_to_one_of_those_who_wait(factory: &dyn ProviderFactory) {
    const INSTANCES: usize = 40;
    let store = Store::new(factory).await;
    let Some(extended) = store.extended() else { return };
    let request = instances(3, None);
    let claimed = std::cell::RefCell::new(Vec::new());
    let done = tokio::sync::Notify::new();
    let wait = async || loop {
        tokio::select! {
            () = done.notified() => return,
            claims = await_instances(extended, &request) => {
                claimed.borrow_mut().extend(claims.into_iter().map(|claim| claim.instance));
                if claimed.borrow().len() >= INSTANCES {
                    done.notify_waiters();
                    return;
                }
            }
        }
    };
    let enqueue = async |from: usize| {
        for number in (from..INSTANCES).step_by(2) {
            store.start(&format!("i-{number}")).await;
        }
    };
    tokio::join!(wait(), wait(), enqueue(0), enqueue(1));
    let claimed = claimed.into_inner();
    let different: HashSet<&String> = claimed.iter().collect();
    assert_eq!((claimed.len(), different.len()), (INSTANCES, INSTANCES), "each should be claimed once");
    store.expect_no_turn("all are claimed").await;
}

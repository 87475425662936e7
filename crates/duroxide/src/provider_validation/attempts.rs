//! What a store keeps beside an activity: its options, and what its attempts leave behind; and activities that are
//! completed from elsewhere.
//!
//! A store that does not keep attempts says so and passes.

use std::time::Duration;

use super::ProviderFactory;
use super::support::{
    Commit, Store, WORK_LEASE, activity, activity_scheduled, assert_refused, completion_of, named, owner,
    scheduled, session_activity, started,
};
use crate::model::{ActivityOptions, ActivityProgress, StoredRetry, WorkItem};
use crate::providers::{
    AttemptToStore, ExtendedProvider, SessionFetchConfig, StoreLimits, TagFilter, TurnToStore,
    UnbegunOutcome, WorkClaim, WorkRequest, refusal,
};

const A_MINUTE: Duration = Duration::from_secs(60);

/// The abilities of a store that keeps attempts.
fn able<'s>(store: &'s Store<'_>) -> Option<&'s dyn ExtendedProvider> {
    store.extended().filter(|extended| extended.keeps_attempts())
}

fn options() -> ActivityOptions {
    let retry = StoredRetry::attempts(7).give_up_on("\"quoted\": {");
    ActivityOptions::new().retry(retry).heartbeat(A_MINUTE).start_to_close(A_MINUTE).scheduled_at(5)
}

fn failed(times: u32, error: &str) -> ActivityProgress {
    let heartbeat = Some("{\"row\":3}".to_string());
    ActivityProgress {
        failed_attempts: times,
        last_error: Some(error.to_string()),
        heartbeat,
        ..Default::default()
    }
}

/// Creates an instance that schedules these activities; the first one has options.
async fn create(
    store: &Store<'_>,
    instance: &str,
    work: Vec<WorkItem>,
    claim: Option<&WorkRequest<'_>>,
) -> Vec<WorkClaim> {
    create_with(store, instance, work, &[(2, options())], claim).await
}

async fn create_with(
    store: &Store<'_>,
    instance: &str,
    work: Vec<WorkItem>,
    activity_options: &[(u64, ActivityOptions)],
    claim: Option<&WorkRequest<'_>>,
) -> Vec<WorkClaim> {
    store.start(instance).await;
    let turn = store.turn_of(instance).await;
    let commit = Commit {
        events: vec![started(instance, 1), activity_scheduled(instance, 2), activity_scheduled(instance, 3)],
        metadata: named(),
        work,
        ..Commit::default()
    };
    let stored = able(store).unwrap().store_turn(
        TurnToStore {
            lock_token: &turn.token,
            execution_id: 1,
            history_delta: &commit.events,
            worker_items: &commit.work,
            activity_options,
            orchestrator_items: &[],
            metadata: &commit.metadata,
            cancelled_activities: &[],
        },
        claim,
    );
    stored.await.expect("store_turn should work").claims
}

fn request<'a>(lock_timeout: Duration, session: Option<&'a SessionFetchConfig>) -> WorkRequest<'a> {
    WorkRequest { max: 1, lock_timeout, session, tag_filter: &TagFilter::Any }
}

async fn claim(extended: &dyn ExtendedProvider) -> Option<WorkClaim> {
    extended.claim_work(&request(WORK_LEASE, None)).await.expect("claim_work should work").pop()
}

fn report<'a>(claim: &'a WorkClaim, progress: &'a ActivityProgress) -> AttemptToStore<'a> {
    let (lock_token, item, options) = (&*claim.lock_token, &claim.item, claim.record.options.as_deref());
    AttemptToStore { lock_token, item, options, progress }
}

/// The options of a turn come with its activity and no other, also if the turn's commit claims it, and in every delivery.
pub async fn options_come_with_every_claim(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    let both = WorkRequest { max: 2, ..request(WORK_LEASE, None) };
    let claims = create(&store, "a", vec![activity("a", 2), activity("a", 3)], Some(&both)).await;
    assert_eq!(claims.len(), 2, "the commit should claim both");
    let first = &claims[0].record;
    assert_eq!(first.options.as_deref(), Some(&options()), "the options should come with the claim");
    assert_eq!(first.progress, None, "there was no attempt yet");
    assert_eq!(claims[1].record.options, None, "an activity without options should have none");
    assert!(
        first.entry > 0 && first.entry != claims[1].record.entry,
        "entries should differ; got {claims:?}"
    );

    store.provider.abandon_work_item(&claims[0].lock_token, None, false).await.unwrap();
    let again = claim(extended).await.expect("the activity was given back");
    assert_eq!((&again.record, again.attempt_count), (first, 2), "a delivery should change nothing");
    store.provider.ack_work_item(&again.lock_token, Some(completion_of(&again.item, "x"))).await.unwrap();
}

/// What an attempt leaves behind comes with the next claim of the activity, whole and as it was.
pub async fn what_an_attempt_leaves_behind_comes_with_the_next(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    create(&store, "a", vec![activity("a", 2), activity("a", 3)], None).await;
    for id in [2, 3] {
        let first = claim(extended).await.expect("the activity is ready");
        let mut before = first.clone();
        for times in 1..=2 {
            let progress = failed(times, "quotes \" and \\ and {\"options\":{}} and \u{1e}");
            extended.store_progress(report(&before, &progress), Some(Duration::ZERO)).await.unwrap();
            before = claim(extended).await.expect("an attempt without a pause is ready at once");
            assert_eq!(before.record.progress.as_deref(), Some(&progress), "activity {id}, attempt {times}");
        }
        assert_eq!((&before.item, &before.record.options), (&first.item, &first.record.options));
        assert_eq!(before.record.entry, first.record.entry, "the entry should stay the same");
        store.provider.ack_work_item(&before.lock_token, None).await.unwrap();
    }
}

/// A given-back attempt is not counted, and the activity cannot be claimed before its pause is over.
pub async fn an_attempt_that_is_given_back_waits_and_does_not_count(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    create(&store, "a", vec![activity("a", 2)], None).await;
    let first = claim(extended).await.expect("the activity is ready");
    let pause = Duration::from_millis(1_500);
    extended.store_progress(report(&first, &failed(1, "x")), Some(pause)).await.unwrap();
    assert!(claim(extended).await.is_none(), "the pause is not over");
    let late = store.provider.ack_work_item(&first.lock_token, Some(completion_of(&first.item, "x"))).await;
    assert_refused(late, "the lease has ended with the report");
    store.pass(pause + Duration::from_millis(100)).await;
    let second = claim(extended).await.expect("the pause is over");
    assert_eq!(second.attempt_count, 1, "the reported attempt should not be counted");
    // One that ends without a report is.
    store.provider.abandon_work_item(&second.lock_token, None, false).await.unwrap();
    assert_eq!(claim(extended).await.expect("it was given back").attempt_count, 2);
}

/// Data that is stored while the attempt runs is there after its end without a report, and the lease goes on.
pub async fn heartbeats_keep_the_lease(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    create(&store, "a", vec![activity("a", 2)], None).await;
    let lease = store.lease();
    let first =
        extended.claim_work(&request(lease, None)).await.unwrap().pop().expect("the activity is ready");
    for row in 1..=3 {
        let progress = ActivityProgress { heartbeat: Some(row.to_string()), ..Default::default() };
        extended.store_progress(report(&first, &progress), None).await.unwrap();
    }
    assert!(claim(extended).await.is_none(), "the attempt goes on");
    store.provider.renew_work_item_lock(&first.lock_token, lease).await.expect("the lease is held");
    store.outlive_lease().await;
    let second = claim(extended).await.expect("the lease has run out");
    assert_eq!(second.record.progress.unwrap().heartbeat.as_deref(), Some("3"));
    assert_eq!(second.attempt_count, 2, "an attempt without a report should be counted");
}

/// A holder that lost the activity can report nothing: another took over, it ended, or it was cancelled.
pub async fn the_report_of_a_lost_attempt_is_refused(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    create(&store, "a", vec![activity("a", 2)], None).await;
    let stale = extended.claim_work(&request(store.lease(), None)).await.unwrap().pop().expect("it is ready");
    store.outlive_lease().await;
    let fresh = claim(extended).await.expect("the lease has run out");
    for give_back in [None, Some(Duration::ZERO)] {
        let refused = extended.store_progress(report(&stale, &failed(9, "stale")), give_back).await;
        let error = refused.expect_err("another worker has taken over");
        assert!(refusal::is_unknown_work_token(&error), "the store should say so; got {error}");
    }
    extended.store_progress(report(&fresh, &failed(1, "fresh")), Some(Duration::ZERO)).await.unwrap();
    let next = claim(extended).await.expect("it was given back");
    assert_eq!(next.record.progress.as_deref(), Some(&failed(1, "fresh")));

    store.send(super::support::raised("a", "n", "")).await;
    let commit = Commit { cancelled: vec![scheduled("a", 2)], ..Commit::default() };
    store.next_turn("a", commit).await;
    let refused = extended.store_progress(report(&next, &failed(2, "late")), Some(Duration::ZERO)).await;
    assert!(refusal::is_unknown_work_token(&refused.expect_err("it was cancelled")));
    assert!(claim(extended).await.is_none(), "a cancelled activity should stay away");
}

/// A report that is too large is refused, and the attempt goes on as if nothing had been reported.
pub async fn a_report_beyond_the_limits_changes_nothing(factory: &dyn ProviderFactory) {
    let limits = StoreLimits { max_payload_bytes: 4_000, ..StoreLimits::default() };
    let Some(provider) = factory.create_limited_provider(limits).await else { return };
    let store = Store { factory, provider };
    let Some(extended) = able(&store) else { return };
    create(&store, "a", vec![activity("a", 2)], None).await;
    let first = claim(extended).await.expect("the activity is ready");
    let large = failed(1, &"x".repeat(5_000));
    let error = extended.store_progress(report(&first, &large), Some(Duration::ZERO)).await;
    let error = error.expect_err("the report is too large");
    assert!(!error.retryable && !refusal::is_unknown_work_token(&error), "got {error}");
    extended.store_progress(report(&first, &failed(1, "x")), Some(Duration::ZERO)).await.expect("it is held");
}

/// An activity that nobody runs is completed from elsewhere: its instance hears of it once.
pub async fn an_activity_is_completed_from_elsewhere_once(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    create(&store, "a", vec![activity("a", 2)], None).await;
    let held = claim(extended).await.expect("the activity is ready");
    let progress = ActivityProgress { awaited_until_ms: Some(0), ..Default::default() };
    extended.store_progress(report(&held, &progress), Some(A_MINUTE)).await.unwrap();
    let completion = completion_of(&held.item, "from elsewhere");
    let (one, other) = tokio::join!(
        extended.complete_activity(held.record.entry, completion.clone()),
        extended.complete_activity(held.record.entry, completion.clone())
    );
    assert!(one.unwrap() ^ other.unwrap(), "one of two should complete it");
    let turn = store.turn_of("a").await;
    assert_eq!(turn.item.messages, std::slice::from_ref(&completion), "the completion should come once");
    store.ack(&turn, Commit::default()).await;
    assert!(!extended.complete_activity(held.record.entry, completion).await.unwrap(), "it is over");
    store.expect_no_turn("nothing was sent").await;
    store.pass(A_MINUTE.min(store.lease())).await;
    assert!(claim(extended).await.is_none(), "the activity is gone");
}

/// If a worker runs the activity meanwhile, it can no longer report anything.
pub async fn a_running_activity_is_completed_from_elsewhere(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    create(&store, "a", vec![activity("a", 2)], None).await;
    let held = claim(extended).await.expect("the activity is ready");
    let completion = completion_of(&held.item, "from elsewhere");
    assert!(extended.complete_activity(held.record.entry, completion.clone()).await.unwrap());
    let late = store.provider.ack_work_item(&held.lock_token, Some(completion_of(&held.item, "late"))).await;
    assert_refused(late, "the activity has ended");
    let late = extended.store_progress(report(&held, &failed(1, "late")), Some(Duration::ZERO)).await;
    assert!(refusal::is_unknown_work_token(&late.expect_err("the activity has ended")));
    assert_eq!(store.turn_of("a").await.item.messages, [completion], "only the completion should come");
}

/// The entry and the step must both fit: neither another step nor a later instance of the same id is completed.
pub async fn another_entry_is_not_completed(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    create(&store, "a", vec![activity("a", 2), activity("a", 3)], None).await;
    let held = claim(extended).await.expect("the activity is ready");
    let entry = held.record.entry;
    for (entry, item) in [
        (entry, activity("a", 3)),
        (entry, activity("b", 2)),
        (entry + 1, activity("a", 2)),
        (0, activity("a", 2)),
        (u64::MAX, activity("a", 2)),
    ] {
        let completion = completion_of(&item, "x");
        let done =
            extended.complete_activity(entry, completion).await.expect("complete_activity should work");
        assert!(!done, "entry {entry} of {item:?} should not be completed");
    }
    store.admin().delete_instance("a", true).await.expect("the instance can be deleted");
    assert!(!extended.complete_activity(entry, completion_of(&held.item, "x")).await.unwrap(), "it is gone");
    create(&store, "a", vec![activity("a", 2)], None).await;
    let done = extended.complete_activity(entry, completion_of(&held.item, "x")).await.unwrap();
    assert!(!done, "another instance of the same id should not be reached");
    store.expect_no_turn("nothing was sent").await;
    assert_ne!(claim(extended).await.expect("the activity is ready").record.entry, entry);
}

/// Anything but the completion or failure of an activity is refused.
pub async fn only_completions_come_from_elsewhere(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    create(&store, "a", vec![activity("a", 2)], None).await;
    let held = claim(extended).await.expect("the activity is ready");
    for message in [activity("a", 2), super::support::raised("a", "n", "")] {
        let refused = extended.complete_activity(held.record.entry, message).await;
        assert_refused(refused.map(drop), "it is no completion");
    }
    store.provider.renew_work_item_lock(&held.lock_token, WORK_LEASE).await.expect("nothing has changed");
}

/// The next activity of the session has its turn.
pub async fn an_activity_of_a_session_is_completed_from_elsewhere(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    let work = vec![session_activity("a", 2, "s"), session_activity("a", 3, "s")];
    create(&store, "a", work, None).await;
    let me = owner("me", WORK_LEASE);
    let request = request(WORK_LEASE, Some(&me));
    let first =
        extended.claim_work(&request).await.unwrap().pop().expect("the first of the session is ready");
    let entry = first.record.entry;
    store.provider.abandon_work_item(&first.lock_token, None, true).await.unwrap();
    assert!(extended.complete_activity(entry, completion_of(&first.item, "x")).await.unwrap());
    let second = extended.claim_work(&request).await.unwrap().pop().expect("the second has its turn");
    assert_eq!(second.item, session_activity("a", 3, "s"));
}

/// Options of an activity that a worker must begin within a minute.
fn urgent() -> ActivityOptions {
    ActivityOptions::new().schedule_to_start(A_MINUTE).scheduled_at(5)
}

/// Fails an activity that nobody has begun; `None` if the store cannot do that.
async fn fail_unbegun(extended: &dyn ExtendedProvider, instance: &str, id: u64) -> Option<UnbegunOutcome> {
    match extended.fail_unbegun(&scheduled(instance, id)).await {
        Ok(outcome) => Some(outcome),
        Err(error) if refusal::is_not_supported(&error) => None,
        Err(error) => panic!("fail_unbegun should work: {error}"),
    }
}

/// The failure of an activity that nobody has begun comes once, and the activity is gone.
pub async fn an_activity_that_nobody_begins_fails_once(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    create_with(&store, "a", vec![activity("a", 2), activity("a", 3)], &[(2, urgent())], None).await;
    if fail_unbegun(extended, "b", 2).await.is_none() {
        return;
    }
    // Other activities, and one without a deadline, stay as they are.
    for (instance, id) in [("b", 2), ("a", 3), ("a", 4), ("a", u64::MAX)] {
        let outcome = fail_unbegun(extended, instance, id).await;
        assert_eq!(outcome, Some(UnbegunOutcome::Settled), "activity {id} of {instance}");
    }
    let activity = scheduled("a", 2);
    let (one, other) = tokio::join!(extended.fail_unbegun(&activity), extended.fail_unbegun(&activity));
    let mut outcomes = [one.unwrap(), other.unwrap()];
    outcomes.sort_by_key(|outcome| *outcome != UnbegunOutcome::Failed);
    assert_eq!(outcomes, [UnbegunOutcome::Failed, UnbegunOutcome::Settled], "one of two should fail it");
    let turn = store.turn_of("a").await;
    let [WorkItem::ActivityFailed { instance, execution_id: 1, id: 2, details }] = &*turn.item.messages
    else {
        panic!("only the failure should come; got {:?}", turn.item.messages);
    };
    assert_eq!(instance, "a");
    let text = details.display_message();
    assert!(text.contains("schedule to start"), "the failure should say why; got {text}");
    store.ack(&turn, Commit::default()).await;
    let left = claim(extended).await.expect("the other activity is still there");
    assert_eq!(left.item, super::support::activity("a", 3));
    assert!(claim(extended).await.is_none(), "the activity that failed is gone");
}

/// Whoever has begun an activity keeps it: as long as its first lease lasts, and whatever its attempt left behind.
pub async fn an_activity_that_was_begun_is_not_failed(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    create_with(&store, "a", vec![activity("a", 2)], &[(2, urgent())], None).await;
    let held = claim(extended).await.expect("the activity is ready");
    let Some(outcome) = fail_unbegun(extended, "a", 2).await else { return };
    assert!(matches!(outcome, UnbegunOutcome::Held { entered_at_ms: 1.. }), "got {outcome:?}");
    // A heartbeat, an attempt that failed, a result that comes from elsewhere.
    let awaited = ActivityProgress { awaited_until_ms: Some(0), ..Default::default() };
    let alive = ActivityProgress { heartbeat: Some("1".into()), ..Default::default() };
    extended.store_progress(report(&held, &alive), None).await.unwrap();
    assert_eq!(fail_unbegun(extended, "a", 2).await, Some(UnbegunOutcome::Settled));
    extended.store_progress(report(&held, &failed(1, "x")), Some(Duration::ZERO)).await.unwrap();
    assert_eq!(fail_unbegun(extended, "a", 2).await, Some(UnbegunOutcome::Settled));
    let held = claim(extended).await.expect("it was given back");
    extended.store_progress(report(&held, &awaited), Some(Duration::ZERO)).await.unwrap();
    assert_eq!(fail_unbegun(extended, "a", 2).await, Some(UnbegunOutcome::Settled));
    let held = claim(extended).await.expect("it was given back");
    store.provider.ack_work_item(&held.lock_token, Some(completion_of(&held.item, "x"))).await.unwrap();
    assert_eq!(fail_unbegun(extended, "a", 2).await, Some(UnbegunOutcome::Settled), "it is over");
    let turn = store.turn_of("a").await;
    assert_eq!(turn.item.messages, [completion_of(&held.item, "x")], "only the result should come");
}

/// A claim that is given back unused has begun nothing; one that counts has.
pub async fn a_claim_that_is_given_back_unused_begins_nothing(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = able(&store) else { return };
    let work = vec![session_activity("a", 2, "s"), session_activity("a", 3, "s")];
    create_with(&store, "a", work, &[(2, urgent()), (3, urgent())], None).await;
    let me = owner("me", WORK_LEASE);
    let request = request(WORK_LEASE, Some(&me));
    let first =
        extended.claim_work(&request).await.unwrap().pop().expect("the first of the session is ready");
    store.provider.abandon_work_item(&first.lock_token, None, true).await.unwrap();
    let Some(outcome) = fail_unbegun(extended, "a", 2).await else { return };
    assert_eq!(outcome, UnbegunOutcome::Failed, "nobody has begun it");
    let second = extended.claim_work(&request).await.unwrap().pop().expect("the second has its turn");
    assert_eq!(second.item, session_activity("a", 3, "s"));
    store.provider.abandon_work_item(&second.lock_token, Some(A_MINUTE), false).await.unwrap();
    assert_eq!(fail_unbegun(extended, "a", 3).await, Some(UnbegunOutcome::Settled), "that was an attempt");
}

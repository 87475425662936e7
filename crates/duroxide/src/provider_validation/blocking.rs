//! A store blocks instances whose turn and failure it cannot take, until an operator unblocks them.
//!
//! A store without this ability passes.

use super::ProviderFactory;
use super::support::*;
use crate::providers::{BlockedInstance, ExtendedProvider};

const REASON: &str = "ack_orchestration_item: too large";

/// The store's abilities, if blocking is one of them.
async fn blocking<'s>(store: &'s Store<'_>) -> Option<&'s dyn ExtendedProvider> {
    let extended = store.extended()?;
    let refusal = assert_refused(extended.block_instance("nobody's", REASON).await, "an unknown token");
    (!refusal.message.contains("no such ability")).then_some(extended)
}

async fn block(store: &dyn ExtendedProvider, turn: &Turn) {
    store.block_instance(&turn.token, REASON).await.expect("block_instance should work");
}

async fn blocked(store: &dyn ExtendedProvider, limit: usize) -> Vec<BlockedInstance> {
    store.list_blocked(limit).await.expect("list_blocked should work")
}

async fn unblock(store: &dyn ExtendedProvider, instance: &str) -> bool {
    store.unblock_instance(instance).await.expect("unblock_instance should work")
}

/// No caller can claim a blocked instance, whatever time passes and whatever arrives; the store lists it with reason
/// and time.
pub async fn a_blocked_instance_is_listed_and_not_claimed(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = blocking(&store).await else { return };
    for instance in ["first", "second"] {
        store.create(instance).await;
        store.send(raised(instance, "go", "")).await;
        let turn = store.turn_for(store.lease()).await;
        assert_eq!(turn.item.instance, instance);
        block(extended, &turn).await;
        // The lease is over: its holder can neither commit nor give back nor renew.
        assert_refused(store.try_ack(&turn.token, Commit::default()).await, "an ack after the block");
        let abandoned = store.provider.abandon_orchestration_item(&turn.token, None, false).await;
        assert_refused(abandoned, "giving back after the block");
        let renewed = store.provider.renew_orchestration_item_lock(&turn.token, store.lease()).await;
        assert_refused(renewed, "a renewal after the block");
        assert_refused(extended.block_instance(&turn.token, "again").await, "a second block");
        store.send(raised(instance, "more", "")).await;
        store.pass(ms(2)).await;
    }
    store.create("free").await;
    store.outlive_lease().await;
    store.send(raised("free", "go", "")).await;
    let free = store.turn_of("free").await;
    store.expect_no_turn("blocked instances must not be claimed").await;
    store.ack(&free, Commit::default()).await;
    let listed = blocked(extended, 10).await;
    let texts: Vec<_> = listed.iter().map(|row| (row.instance.as_str(), row.reason.as_str())).collect();
    assert_eq!(texts, [("first", REASON), ("second", REASON)], "longest blocked first");
    let created_at = extended.read_metadata("first").await.expect("read_metadata should work");
    let created_at = created_at.expect("the instance has a row").created_at;
    assert!(listed.iter().all(|row| row.blocked_at >= created_at), "{listed:?} since {created_at}");
    assert_eq!(blocked(extended, 1).await, listed[..1], "no more than asked for");
    let info = store.admin().get_instance_info("first").await.expect("get_instance_info should work");
    assert_eq!(info.status, "Running", "a blocked instance counts as running");
}

/// An unblocked instance gets all its messages, in order, and none of them counts as delivered before.
pub async fn an_unblocked_instance_is_claimed_as_if_for_the_first_time(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = blocking(&store).await else { return };
    store.create("i").await;
    store.send(raised("i", "one", "")).await;
    for _ in 0..3 {
        let turn = store.turn_of("i").await;
        store.abandon(&turn).await;
    }
    let turn = store.turn_of("i").await;
    assert_eq!(turn.attempts, 4);
    block(extended, &turn).await;
    store.send(raised("i", "two", "")).await;
    assert!(!unblock(extended, "other").await, "an instance that is not blocked");
    assert!(unblock(extended, "i").await, "a blocked instance");
    assert!(!unblock(extended, "i").await, "an instance that is no longer blocked");
    assert_eq!(blocked(extended, 10).await, []);
    let turn = store.turn_of("i").await;
    assert_eq!(turn.attempts, 1, "attempts before the block do not count");
    assert_eq!(turn.item.messages, [raised("i", "one", ""), raised("i", "two", "")]);
    store.ack(&turn, Commit::default()).await;
    store.expect_no_turn("all messages were delivered").await;
}

/// An instance of which the store has only the start can be blocked and unblocked too.
pub async fn an_instance_that_never_began_can_be_blocked(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = blocking(&store).await else { return };
    store.start("i").await;
    let turn = store.turn_of("i").await;
    block(extended, &turn).await;
    store.expect_no_turn("blocked instances must not be claimed").await;
    assert_eq!(blocked(extended, 10).await.len(), 1);
    assert!(unblock(extended, "i").await);
    let turn = store.turn_of("i").await;
    assert_eq!((turn.attempts, turn.item.messages.len()), (1, 1));
    store.ack(&turn, Commit::creating("i")).await;
}

/// A lease that has run out, or that another caller has taken over, does not let its former holder block the instance.
pub async fn a_lost_lease_does_not_block_an_instance(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = blocking(&store).await else { return };
    store.create("i").await;
    store.send(raised("i", "go", "")).await;
    let lost = store.turn_for(store.lease()).await;
    store.outlive_lease().await;
    let held = store.turn_for(store.lease()).await;
    assert_refused(extended.block_instance(&lost.token, REASON).await, "a lost lease");
    assert_eq!(blocked(extended, 10).await, []);
    store.outlive_lease().await;
    assert_refused(extended.block_instance(&held.token, REASON).await, "a lease that has run out");
    assert_eq!(blocked(extended, 10).await, []);
    store.abandon(&held).await;
    store.turn_of("i").await;
}

/// A blocked instance can be deleted, and an instance of the same id that is made later is not blocked.
pub async fn a_deleted_instance_is_blocked_no_longer(factory: &dyn ProviderFactory) {
    let store = Store::new(factory).await;
    let Some(extended) = blocking(&store).await else { return };
    store.create("i").await;
    store.send(raised("i", "go", "")).await;
    let turn = store.turn_of("i").await;
    block(extended, &turn).await;
    store.admin().delete_instance("i", true).await.expect("a blocked instance can be deleted with force");
    assert_eq!(blocked(extended, 10).await, []);
    store.create("i").await;
    store.send(raised("i", "again", "")).await;
    let turn = store.turn_of("i").await;
    assert_eq!((turn.attempts, turn.item.messages), (1, vec![raised("i", "again", "")]));
}

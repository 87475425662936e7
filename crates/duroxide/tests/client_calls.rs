//! The client: which calls it refuses, what it returns, and how it waits.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails may panic")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::Client;
use duroxide::client::{ClientError, StartOptions};
use duroxide::providers::memory::MemoryProvider;
use duroxide::providers::{Provider, ProviderError, QuarantinePurge, QuarantineRetry, StartOutcome};
use duroxide::{ActivityContext, InstanceFilter, OrchestrationContext, OrchestrationStatus, PruneOptions};
use runtime_support::faulty::Call;
use runtime_support::{SOON, World, activities, faulty_world, orchestrations, plain_world};

fn code() -> duroxide::OrchestrationRegistryBuilder {
    orchestrations()
        .register("Echo", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .register("Fails", |_: OrchestrationContext, _: String| async move { Err("oops".to_string()) })
        .register("Waits", |ctx: OrchestrationContext, _: String| async move {
            ctx.set_kv_value("state", "waiting");
            ctx.set_custom_status("waiting");
            let data = ctx.schedule_wait("go").await;
            ctx.set_kv_value_typed("answer", &vec![1, 2, 3]);
            ctx.set_custom_status("told");
            ctx.schedule_wait("end").await;
            Ok(data)
        })
        .register_typed("Double", |_: OrchestrationContext, n: u32| async move { Ok::<_, String>(n * 2) })
}

#[tokio::test]
async fn ids_of_children_cannot_be_started() {
    let world = World::new();
    for id in ["sub::1", "a::sub::1", "a::sub::b::c"] {
        for result in [
            world.client.start_orchestration(id, "Echo", "").await,
            world.client.start_orchestration_versioned(id, "Echo", "1.0.0", "").await,
            world.client.start_orchestration_typed(id, "Echo", 1).await,
            world.client.start_orchestration_versioned_typed(id, "Echo", "1.0.0", 1).await,
            world.client.start_orchestration_with(id, "Echo", "", StartOptions::new()).await.map(|_| ()),
        ] {
            let error = result.unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "Invalid input: instance id '{id}' uses the reserved sub-orchestration marker 'sub::'"
                )
            );
            assert!(!error.is_retryable());
        }
    }
    assert_eq!(world.client.get_queue_depths().await.unwrap().orchestrator_queue, 0);
    world.client.start_orchestration("tenant-7::order", "Echo", "").await.unwrap();
}

#[tokio::test]
async fn a_start_with_options_tells_whether_the_instance_is_new_and_gives_its_result() {
    let world = World::new();
    let first =
        world.client.start_orchestration_with("i", "Echo", "first", StartOptions::new()).await.unwrap();
    assert!(first.is_new());
    let queued =
        world.client.start_orchestration_with("i", "Echo", "second", StartOptions::new()).await.unwrap();
    assert_eq!((queued.outcome(), queued.instance_id()), (StartOutcome::Existing, "i"));
    let runtime = world.start(activities(), code()).await;
    let status = queued.wait(SOON).await.unwrap();
    assert!(matches!(status, OrchestrationStatus::Completed { output, .. } if output == "first"));
    let third = StartOptions::new().version("9.9.9");
    let third = world.client.start_orchestration_with("i", "Echo", "third", third).await.unwrap();
    assert!(!third.is_new());
    assert!(
        matches!(third.wait(SOON).await.unwrap(), OrchestrationStatus::Completed { output, .. } if output == "first")
    );
    world.client.delete_instance("i", false).await.unwrap();
    let again =
        world.client.start_orchestration_with("i", "Echo", "again", StartOptions::new()).await.unwrap();
    assert!(again.is_new());
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_store_that_cannot_tell_whether_an_id_is_free_says_so() {
    let (world, _) = plain_world();
    let runtime = world.start(activities(), code()).await;
    let start = |input| world.client.start_orchestration_with("i", "Echo", input, StartOptions::new());
    let first = start("first").await.unwrap();
    assert_eq!(first.outcome(), StartOutcome::Unknown);
    first.wait(SOON).await.unwrap();
    assert_eq!(start("second").await.unwrap().outcome(), StartOutcome::Existing);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn an_instance_is_pending_from_its_start_to_its_first_turn() {
    let world = World::new();
    let info = || world.client.get_instance_info("i");
    assert!(info().await.unwrap_err().to_string().contains("not found"));
    world.client.start_orchestration_versioned("i", "Waits", "1.0.0", "").await.unwrap();
    let pending = info().await.unwrap();
    assert_eq!((pending.status.as_str(), pending.orchestration_name.as_str()), ("Pending", "Waits"));
    assert_eq!((pending.orchestration_version.as_str(), pending.created_at), ("1.0.0", world.now_ms()));
    let runtime = world.start(activities(), code()).await;
    world.waits_for("i", "go").await;
    assert_eq!(info().await.unwrap().status, "Running");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_status_follows_the_life_of_an_instance() {
    let world = World::new();
    world.client.start_orchestration("i", "Waits", "").await.unwrap();
    let status = || world.client.get_orchestration_status("i");
    assert_eq!(status().await.unwrap(), OrchestrationStatus::NotFound);
    let runtime = world.start(activities(), code()).await;
    let running = world.client.wait_for_status_change("i", 0, Duration::ZERO, SOON).await.unwrap();
    let expected =
        OrchestrationStatus::Running { custom_status: Some("waiting".into()), custom_status_version: 1 };
    assert_eq!(running, expected);
    assert_eq!(status().await.unwrap(), expected);
    world.client.raise_event("i", "go", "data").await.unwrap();
    let told = world.client.wait_for_status_change("i", 1, Duration::ZERO, SOON).await.unwrap();
    assert!(matches!(told, OrchestrationStatus::Running { custom_status_version: 2, .. }));
    world.client.raise_event("i", "end", "").await.unwrap();
    let done = world.end("i").await;
    assert_eq!(
        done,
        OrchestrationStatus::Completed {
            output: "data".into(),
            custom_status: Some("told".into()),
            custom_status_version: 2
        }
    );
    // Nothing will change any more, and the client says so at once.
    let last = world.client.wait_for_status_change("i", 2, Duration::ZERO, SOON).await.unwrap();
    assert_eq!(last, done);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_failure_is_found_behind_the_rows_of_many_activities() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            orchestrations().register("Wide", |ctx: OrchestrationContext, count: String| async move {
                for i in 0..count.parse::<usize>().unwrap() {
                    std::mem::forget(ctx.schedule_activity("Nobody", i.to_string()));
                }
                Err("wide".to_string())
            }),
        )
        .await;
    for count in ["0", "10", "100", "2000"] {
        world.client.start_orchestration(count, "Wide", count).await.unwrap();
        assert_eq!(world.failure(count).await, "wide");
    }
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_wait_ends_by_the_machines_clock_on_a_store_whose_time_stands_still() {
    for world in [World::new(), plain_world().0] {
        let timeout = Duration::from_millis(5);
        let ended = world.client.wait_for_orchestration("nobody", timeout).await;
        assert!(matches!(ended, Err(ClientError::Timeout)));
        let changed = world.client.wait_for_status_change("nobody", 0, Duration::ZERO, timeout).await;
        assert!(matches!(changed, Err(ClientError::Timeout)));
        let value = world.client.wait_for_kv_value("nobody", "key", timeout).await;
        assert!(matches!(value, Err(ClientError::Timeout)));
    }
}

#[tokio::test]
async fn waiting_ends_with_a_timeout_also_for_an_unknown_instance() {
    let world = World::new();
    let client = world.client.clone().with_clock(world.clock.clone());
    let wait =
        tokio::spawn(async move { client.wait_for_orchestration("nobody", Duration::from_secs(5)).await });
    let client = world.client.clone().with_clock(world.clock.clone());
    let wait_kv =
        tokio::spawn(async move { client.wait_for_kv_value("nobody", "k", Duration::from_secs(5)).await });
    tokio::task::yield_now().await;
    world.clock.advance(Duration::from_secs(5));
    let error = wait.await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Timeout) && error.is_retryable());
    assert_eq!(error.to_string(), "Operation timed out");
    assert!(matches!(wait_kv.await.unwrap(), Err(ClientError::Timeout)));
    let nothing = world.client.wait_for_status_change("nobody", 0, Duration::ZERO, Duration::ZERO).await;
    assert!(matches!(nothing, Err(ClientError::Timeout)));
}

#[tokio::test]
async fn a_read_error_that_may_go_away_does_not_end_a_wait() {
    let (world, faulty) = plain_world();
    faulty.fail(Call::Read, vec![ProviderError::retryable("read", "busy"); 3]);
    let runtime = world.start(activities(), code()).await;
    assert!(matches!(world.run("i", "Echo", "x").await, OrchestrationStatus::Completed { .. }));
    faulty.fail(Call::Read, [ProviderError::permanent("read", "broken")]);
    let error = world.client.wait_for_orchestration("i", SOON).await.unwrap_err();
    assert_eq!(error.to_string(), "read: broken");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_wait_on_a_store_that_signals_also_outlives_a_read_error() {
    let (world, faulty) = faulty_world();
    let runtime = world.start(activities(), code()).await;
    world.client.start_orchestration("i", "Waits", "").await.unwrap();
    faulty.fail(Call::KvValue, vec![ProviderError::retryable("get_kv_value", "busy"); 2]);
    let client = world.client.clone().with_clock(world.clock.clone());
    let wait = tokio::spawn(async move { client.wait_for_kv_value("i", "state", SOON).await });
    while !wait.is_finished() {
        world.clock.advance(Duration::from_millis(5));
        tokio::task::yield_now().await;
    }
    assert_eq!(wait.await.unwrap().unwrap(), "waiting");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn values_of_an_instance_can_be_read_and_waited_for() {
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    world.client.start_orchestration("i", "Waits", "").await.unwrap();
    assert_eq!(world.client.wait_for_kv_value("i", "state", SOON).await.unwrap(), "waiting");
    let client = world.client.clone();
    let answer =
        tokio::spawn(async move { client.wait_for_kv_value_typed::<Vec<u8>>("i", "answer", SOON).await });
    tokio::task::yield_now().await;
    world.client.raise_event_typed("i", "go", &"now").await.unwrap();
    assert_eq!(answer.await.unwrap().unwrap(), [1, 2, 3]);
    assert_eq!(world.client.get_kv_all_values("i").await.unwrap().len(), 2);
    assert_eq!(world.client.get_kv_value("nobody", "k").await.unwrap(), None);
    let error = world.client.get_kv_value_typed::<Vec<u8>>("i", "state").await.unwrap_err();
    assert!(error.to_string().starts_with("Invalid input: KV deserialization error: "), "{error}");
    let stats = world.client.get_orchestration_stats("i").await.unwrap().unwrap();
    assert_eq!(stats.kv_user_key_count, 2);
    assert!(world.client.get_orchestration_stats("nobody").await.unwrap().is_none());
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn typed_results_come_back_as_values_or_as_the_text_of_the_failure() {
    let world = World::new();
    let runtime = world.start(activities(), code()).await;
    world.client.start_orchestration_typed("d", "Double", 21u32).await.unwrap();
    assert_eq!(world.client.wait_for_orchestration_typed::<u32>("d", SOON).await.unwrap(), Ok(42));
    let error = world.client.wait_for_orchestration_typed::<Vec<u32>>("d", SOON).await.unwrap_err();
    assert!(error.to_string().starts_with("Invalid input: decode failed: "), "{error}");
    world.client.start_orchestration("f", "Fails", "").await.unwrap();
    let failed = world.client.wait_for_orchestration_typed::<u32>("f", SOON).await.unwrap();
    assert_eq!(failed, Err("oops".to_string()));
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_value_that_does_not_encode_is_refused_and_nothing_is_sent() {
    struct Unencodable;
    impl serde::Serialize for Unencodable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("cannot"))
        }
    }
    let world = World::new();
    let refused = [
        world.client.start_orchestration_typed("i", "Echo", Unencodable).await,
        world.client.raise_event_typed("i", "go", &Unencodable).await,
        world.client.enqueue_event_typed("i", "inbox", &Unencodable).await,
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().to_string(), "Invalid input: encode: cannot");
    }
    assert_eq!(world.client.get_queue_depths().await.unwrap().orchestrator_queue, 0);
}

#[tokio::test]
async fn deletion_says_what_is_in_its_way() {
    let world = World::new();
    let runtime = world
        .start(
            activities().register("Echo", |_: ActivityContext, text: String| async move { Ok(text) }),
            code().register("Parent", |ctx: OrchestrationContext, _: String| async move {
                ctx.schedule_sub_orchestration("Waits", "").await
            }),
        )
        .await;
    world.client.start_orchestration("p", "Parent", "").await.unwrap();
    world.client.wait_for_kv_value("p::sub::2", "state", SOON).await.unwrap();
    let delete = |id, force| world.client.delete_instance(id, force);
    assert!(matches!(delete("nobody", false).await, Err(ClientError::InstanceNotFound { .. })));
    assert!(matches!(delete("p", false).await, Err(ClientError::InstanceStillRunning { .. })));
    assert!(matches!(delete("p::sub::2", true).await, Err(ClientError::CannotDeleteSubOrchestration { .. })));
    let tree = world.client.get_instance_tree("p").await.unwrap();
    assert_eq!(tree.size(), 2);
    assert_eq!(delete("p", true).await.unwrap().instances_deleted, 2);
    // The runtime goes on, and so can the id.
    world.client.start_orchestration("p", "Echo", "new").await.unwrap();
    assert_eq!(world.output("p").await, "new");
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn management_lists_inspects_prunes_and_deletes() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            code().register("Rounds", |ctx: OrchestrationContext, round: String| async move {
                let round: u32 = round.parse().unwrap();
                if round < 3 { ctx.continue_as_new((round + 1).to_string()).await } else { Ok("over".into()) }
            }),
        )
        .await;
    world.run("r", "Rounds", "0").await;
    world.run("e", "Echo", "x").await;
    let client = &world.client;
    assert!(client.has_management_capability());
    let mut all = client.list_all_instances().await.unwrap();
    all.sort();
    assert_eq!(all, ["e", "r"]);
    assert_eq!(client.list_instances_by_status("Completed").await.unwrap().len(), 2);
    assert_eq!(client.list_executions("r").await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(client.get_execution_info("r", 2).await.unwrap().status, "ContinuedAsNew");
    assert_eq!(client.read_execution_history("r", 4).await.unwrap().len(), 2);
    assert_eq!(client.get_system_metrics().await.unwrap().completed_instances, 2);
    let pruned =
        client.prune_executions("r", PruneOptions { keep_last: Some(1), ..Default::default() }).await;
    assert_eq!(pruned.unwrap().executions_deleted, 3);
    let filter = InstanceFilter { instance_ids: Some(vec!["e".into()]), ..Default::default() };
    client.prune_executions_bulk(filter.clone(), PruneOptions::default()).await.unwrap();
    assert_eq!(client.delete_instance_bulk(filter).await.unwrap().instances_deleted, 1);
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_store_without_management_says_so() {
    let (world, _) = plain_world();
    let error = world.client.list_all_instances().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Management features not available - provider doesn't implement ProviderAdmin"
    );
    assert!(!world.client.has_management_capability() && !error.is_retryable());
}

// semantics: MGMT-11
#[tokio::test]
async fn quarantined_rows_are_listed_retried_and_purged() {
    let store = std::sync::Arc::new(MemoryProvider::default());
    let client = Client::new(store.clone());
    for instance in ["a", "b"] {
        client.start_orchestration(instance, "Echo", "").await.unwrap();
        store.corrupt_messages(instance);
    }
    let lease = Duration::from_secs(30);
    assert!(store.fetch_orchestration_item(lease, Duration::ZERO, None).await.unwrap().is_none());
    let listed = client.list_quarantined(0, 10).await.unwrap();
    let [first, _] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!(client.list_quarantined(first.id, 10).await.unwrap(), listed[1..]);
    let kept = client.retry_quarantined(&[first.id]).await.unwrap();
    assert!(matches!(&kept[..], [QuarantineRetry::Kept { .. }]), "{kept:?}");
    assert_eq!(client.purge_quarantined(QuarantinePurge::Ids(&[first.id])).await.unwrap(), 1);
    assert_eq!(client.retry_quarantined(&[first.id]).await.unwrap(), [QuarantineRetry::NotFound]);
    assert_eq!(client.purge_quarantined(QuarantinePurge::SetAsideBefore(u64::MAX)).await.unwrap(), 1);

    let (plain, _) = plain_world();
    let refused = plain.client.list_quarantined(0, 10).await.unwrap_err();
    assert!(matches!(refused, ClientError::ManagementNotAvailable));
}

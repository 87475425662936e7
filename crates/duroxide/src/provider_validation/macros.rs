//! Turns the kit into tests.

use std::future::Future;
use std::pin::Pin;

/// Makes one test of each check of the kit.
///
/// `factory` is an expression that makes a [`ProviderFactory`](crate::provider_validation::ProviderFactory); each test
/// evaluates it once, in an async block. `polling` is `short` for a store whose fetches return at once, `long` for one
/// whose fetches wait for work. `runtime: yes` includes the checks that run a whole runtime on the store.
///
/// Each module of the kit becomes a module of tests, so `cargo test sessions` runs those of that module. The tests
/// bring their own tokio runtime, with several threads.
///
/// ```
/// use std::sync::Arc;
///
/// use duroxide::provider_validation::ProviderFactory;
/// use duroxide::providers::Provider;
/// use duroxide::providers::memory::MemoryProvider;
///
/// struct MyFactory;
///
/// #[async_trait::async_trait]
/// impl ProviderFactory for MyFactory {
///     async fn create_provider(&self) -> Arc<dyn Provider> {
///         Arc::new(MemoryProvider::default())
///     }
/// }
///
/// duroxide::provider_validation_tests! { factory: MyFactory, polling: short }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! provider_validation_tests {
    (factory: $factory:expr, polling: $polling:ident $(,)?) => {
        $crate::provider_validation_tests! { factory: $factory, polling: $polling, runtime: no }
    };
    (factory: $factory:expr, polling: $polling:ident, runtime: no $(,)?) => {
        $crate::__validation_of_the_contract! { $factory }
        $crate::__validation_of_our_own! { $factory }
        $crate::__validation_of_polling! { $factory; $polling }
    };
    (factory: $factory:expr, polling: $polling:ident, runtime: yes $(,)?) => {
        $crate::provider_validation_tests! { factory: $factory, polling: $polling, runtime: no }
        $crate::__validation_with_a_runtime! { $factory }
    };
}

/// Makes a module of tests, one for each of these checks.
#[doc(hidden)]
#[macro_export]
macro_rules! __validation_module {
    ($factory:expr; $module:ident; $($check:ident),+ $(,)?) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[test]
                fn $check() {
                    $crate::provider_validation::run_check(Box::pin(async {
                        let factory = $factory;
                        $crate::provider_validation::$module::$check(&factory).await;
                    }));
                }
            )+
        }
    };
}

/// The published checks of stores.
#[doc(hidden)]
#[macro_export]
macro_rules! __validation_of_the_contract {
    ($factory:expr) => {
        $crate::__validation_module! { $factory; atomicity;
            test_atomicity_failure_rollback, test_multi_operation_atomic_ack,
            test_lock_released_only_on_successful_ack, test_concurrent_ack_prevention,
        }
        $crate::__validation_module! { $factory; error_handling;
            test_invalid_lock_token_on_ack, test_duplicate_event_id_rejection,
            test_missing_instance_metadata, test_corrupted_serialization_data,
            test_lock_expiration_during_ack, test_read_corrupted_history_returns_error,
            test_read_with_execution_corrupted_history_returns_error,
        }
        $crate::__validation_module! { $factory; instance_locking;
            test_exclusive_instance_lock, test_lock_token_uniqueness, test_invalid_lock_token_rejection,
            test_concurrent_instance_fetching, test_completions_arriving_during_lock_blocked,
            test_cross_instance_lock_isolation, test_message_tagging_during_lock,
            test_ack_only_affects_locked_messages, test_multi_threaded_lock_contention,
            test_multi_threaded_no_duplicate_processing, test_multi_threaded_lock_expiration_recovery,
        }
        $crate::__validation_module! { $factory; lock_expiration;
            test_lock_expires_after_timeout, test_abandon_releases_lock_immediately,
            test_lock_renewal_on_ack, test_concurrent_lock_attempts_respect_expiration,
            test_worker_lock_renewal_success, test_worker_lock_renewal_invalid_token,
            test_worker_lock_renewal_after_expiration, test_worker_lock_renewal_extends_timeout,
            test_worker_lock_renewal_after_ack, test_abandon_work_item_releases_lock,
            test_abandon_work_item_with_delay, test_worker_ack_fails_after_lock_expiry,
            test_orchestration_lock_renewal_after_expiration,
        }
        $crate::__validation_module! { $factory; instance_creation;
            test_instance_creation_via_metadata, test_no_instance_creation_on_enqueue,
            test_null_version_handling, test_sub_orchestration_instance_creation,
        }
        $crate::__validation_module! { $factory; multi_execution;
            test_execution_isolation, test_latest_execution_detection, test_execution_id_sequencing,
            test_continue_as_new_creates_new_execution, test_execution_history_persistence,
        }
        $crate::__validation_module! { $factory; queue_semantics;
            test_worker_queue_fifo_ordering, test_worker_peek_lock_semantics, test_worker_ack_atomicity,
            test_timer_delayed_visibility, test_lost_lock_token_handling,
            test_worker_item_immediate_visibility, test_worker_delayed_visibility_skips_future_items,
            test_orphan_queue_messages_dropped,
        }
        $crate::__validation_module! { $factory; management;
            test_list_instances, test_list_instances_by_status, test_list_executions,
            test_get_instance_info, test_get_execution_info, test_get_system_metrics,
            test_get_queue_depths, test_get_instance_stats_nonexistent, test_get_instance_stats_history,
            test_get_instance_stats_kv, test_get_instance_stats_carry_forward,
            test_get_instance_stats_kv_delta_only, test_get_instance_stats_kv_merged,
        }
        $crate::__validation_module! { $factory; poison_message;
            orchestration_attempt_count_starts_at_one, orchestration_attempt_count_increments_on_refetch,
            worker_attempt_count_starts_at_one, worker_attempt_count_increments_on_lock_expiry,
            attempt_count_is_per_message, abandon_work_item_ignore_attempt_decrements,
            abandon_orchestration_item_ignore_attempt_decrements, ignore_attempt_never_goes_negative,
            max_attempt_count_across_message_batch, orchestration_ignore_attempt_preserves_hidden_start,
            orchestration_delayed_abandon_preserves_unlocked_rows,
        }
        $crate::__validation_module! { $factory; cancellation;
            test_fetch_returns_running_state_for_active_orchestration,
            test_fetch_returns_terminal_state_when_orchestration_completed,
            test_fetch_returns_terminal_state_when_orchestration_failed,
            test_fetch_returns_terminal_state_when_orchestration_continued_as_new,
            test_fetch_returns_missing_state_when_instance_deleted,
            test_renew_returns_running_when_orchestration_active,
            test_renew_returns_terminal_when_orchestration_completed,
            test_renew_returns_missing_when_instance_deleted,
            test_ack_work_item_none_deletes_without_enqueue,
            test_cancelled_activities_deleted_from_worker_queue,
            test_ack_work_item_fails_when_entry_deleted, test_renew_fails_when_entry_deleted,
            test_cancelling_nonexistent_activities_is_idempotent,
            test_batch_cancellation_deletes_multiple_activities,
            test_same_activity_in_worker_items_and_cancelled_is_noop,
            test_orphan_activity_after_instance_force_deletion,
        }
        $crate::__validation_module! { $factory; deletion;
            test_delete_terminal_instances, test_delete_running_rejected_force_succeeds,
            test_delete_nonexistent_instance, test_delete_cleans_queues_and_locks,
            test_cascade_delete_hierarchy, test_force_delete_prevents_ack_recreation, test_list_children,
            test_delete_get_parent_id, test_delete_get_instance_tree, test_delete_instances_atomic,
            test_delete_instances_atomic_force, test_delete_instances_atomic_orphan_detection,
            test_stale_activity_after_delete_recreate,
        }
        $crate::__validation_module! { $factory; bulk_deletion;
            test_delete_instance_bulk_filter_combinations, test_delete_instance_bulk_safety_and_limits,
            test_delete_instance_bulk_completed_before_filter,
            test_delete_instance_bulk_cascades_to_children,
        }
        $crate::__validation_module! { $factory; prune;
            test_prune_options_combinations, test_prune_safety, test_prune_bulk,
            test_prune_bulk_includes_running_instances,
        }
        $crate::__validation_module! { $factory; capability_filtering;
            test_fetch_with_filter_none_returns_any_item, test_fetch_with_compatible_filter_returns_item,
            test_fetch_with_incompatible_filter_skips_item,
            test_fetch_filter_skips_incompatible_selects_compatible,
            test_fetch_filter_does_not_lock_skipped_instances,
            test_fetch_filter_null_pinned_version_always_compatible, test_fetch_filter_boundary_versions,
            test_pinned_version_stored_via_ack_metadata, test_pinned_version_immutable_across_ack_cycles,
            test_continue_as_new_execution_gets_own_pinned_version,
            test_filter_with_empty_supported_versions_returns_nothing,
            test_concurrent_filtered_fetch_no_double_lock,
            test_ack_stores_pinned_version_via_metadata_update,
            test_provider_updates_pinned_version_when_told,
            test_fetch_corrupted_history_filtered_vs_unfiltered,
            test_fetch_deserialization_error_increments_attempt_count,
            test_fetch_deserialization_error_eventually_reaches_poison,
            test_fetch_filter_applied_before_history_deserialization,
            test_fetch_single_range_only_uses_first_range, test_ack_appends_event_to_corrupted_history,
        }
        $crate::__validation_module! { $factory; sessions;
            test_non_session_items_fetchable_by_any_worker, test_session_item_claimable_when_no_session,
            test_session_affinity_same_worker, test_session_affinity_blocks_other_worker,
            test_different_sessions_different_workers, test_mixed_session_and_non_session_items,
            test_session_claimable_after_lock_expiry, test_none_session_skips_session_items,
            test_some_session_returns_all_items, test_renew_session_lock_active,
            test_renew_session_lock_skips_idle, test_renew_session_lock_no_sessions,
            test_cleanup_removes_expired_no_items, test_cleanup_keeps_sessions_with_pending_items,
            test_cleanup_keeps_active_sessions, test_ack_updates_session_last_activity,
            test_renew_work_item_updates_session_last_activity, test_session_items_processed_in_order,
            test_non_session_items_returned_with_session_config,
            test_shared_worker_id_any_caller_can_fetch_owned_session,
            test_concurrent_session_claim_only_one_wins, test_session_takeover_after_lock_expiry,
            test_cleanup_then_new_item_recreates_session, test_abandoned_session_item_retryable,
            test_abandoned_session_item_ignore_attempt, test_renew_session_lock_after_expiry_returns_zero,
            test_original_worker_reclaims_expired_session,
            test_activity_lock_expires_session_lock_valid_same_worker_refetches,
            test_session_lock_expires_new_owner_gets_redelivery,
            test_session_lock_expires_same_worker_reacquires,
            test_both_locks_expire_different_worker_claims,
            test_session_lock_expires_activity_lock_valid_ack_succeeds,
            test_session_lock_renewal_extends_past_original_timeout,
        }
        $crate::__validation_module! { $factory; custom_status;
            test_custom_status_set, test_custom_status_clear, test_custom_status_none_preserves,
            test_custom_status_version_increments, test_custom_status_polling_no_change,
            test_custom_status_nonexistent_instance, test_custom_status_default_on_new_instance,
        }
        $crate::__validation_module! { $factory; tag_filtering;
            test_default_only_fetches_untagged, test_tags_fetches_only_matching,
            test_default_and_fetches_untagged_and_matching, test_none_filter_returns_nothing,
            test_multi_tag_filter, test_tag_round_trip_preservation, test_any_filter_fetches_everything,
            test_tag_survives_abandon_and_refetch, test_multi_runtime_tag_isolation,
            test_tag_preserved_through_ack_orchestration_item,
        }
        $crate::__validation_module! { $factory; kv_store;
            test_kv_set_and_get, test_kv_overwrite, test_kv_clear_single, test_kv_clear_all,
            test_kv_get_nonexistent, test_kv_snapshot_in_fetch, test_kv_snapshot_after_clear_single,
            test_kv_snapshot_after_clear_all, test_kv_execution_id_tracking,
            test_kv_cross_execution_overwrite, test_kv_cross_execution_remove_readd,
            test_kv_prune_preserves_overwritten, test_kv_prune_preserves_all_keys,
            test_kv_instance_isolation, test_kv_delete_instance_cascades, test_kv_clear_nonexistent_key,
            test_kv_get_unknown_instance, test_kv_set_after_clear, test_kv_empty_value,
            test_kv_large_value, test_kv_special_chars_in_key, test_kv_snapshot_empty,
            test_kv_snapshot_cross_execution, test_kv_prune_current_execution_protected,
            test_kv_delete_instance_with_children, test_kv_clear_isolation,
            test_kv_delta_snapshot_excludes_current_execution,
            test_kv_delta_snapshot_includes_completed_execution, test_kv_delta_client_reads_merged,
            test_kv_delta_tombstone_overrides_store, test_kv_delta_clear_all_tombstones_store,
            test_kv_delta_merged_on_completion, test_kv_delta_merged_on_can,
            test_kv_delta_delete_instance_cascades, test_kv_delta_prune_untouched_key_survives,
        }
    };
}

/// The checks of our own stores' promises beyond the published contract.
#[doc(hidden)]
#[macro_export]
macro_rules! __validation_of_our_own {
    ($factory:expr) => {
        $crate::__validation_module! { $factory; bad_input;
            tokens_of_the_other_kind_are_refused, empty_and_huge_ids_are_refused,
            empty_and_huge_ids_are_refused_in_an_ack, huge_sessions_and_tags_are_refused,
            odd_payloads_come_back, large_and_empty_payloads_come_back,
        }
        $crate::__validation_module! { $factory; batch_fetch;
            instances_come_oldest_first_and_at_most_max, claims_describe_their_instances,
            claimed_instances_have_leases_of_their_own, claims_honour_the_capability_filter,
            activities_come_in_order_and_at_most_max, claimed_activities_have_leases_of_their_own,
            at_most_one_session_activity_per_batch, claims_honour_the_tag_filter,
        }
        $crate::__validation_module! { $factory; blocking;
            a_blocked_instance_is_listed_and_not_claimed, an_unblocked_instance_is_claimed_as_if_for_the_first_time,
            an_instance_that_never_began_can_be_blocked, a_lost_lease_does_not_block_an_instance,
            a_deleted_instance_is_blocked_no_longer,
        }
        $crate::__validation_module! { $factory; bounded_turns;
            a_turn_gets_so_many_messages, delayed_messages_are_bounded_too, a_turn_gets_so_many_bytes,
            an_instance_with_a_backlog_keeps_its_place, only_what_was_in_the_turn_was_attempted,
            a_start_behind_a_backlog_comes_first, a_continuation_behind_a_backlog_comes_first,
            a_claim_of_many_is_bounded_too, damaged_messages_do_not_hide_the_rest,
        }
        $crate::__validation_module! { $factory; clock_steps;
            backward_step_hides_nothing, backward_step_hides_nothing_that_was_released,
            order_survives_a_backward_step, a_message_that_is_hidden_again_gives_no_place,
            forward_step_ends_delays,
        }
        $crate::__validation_module! { $factory; concurrency;
            every_message_is_handled_once, every_activity_is_run_once, losers_of_a_race_find_other_work,
            an_activity_is_acked_once, ack_and_abandon_exclude_each_other, dropped_fetches_lose_nothing,
            dropped_acks_are_all_or_nothing, dropped_work_acks_are_all_or_nothing,
            dropped_enqueues_happen_once_or_not_at_all,
        }
        $crate::__validation_module! { $factory; ended_instances;
            a_timer_of_an_ended_instance_goes_with_it, messages_for_an_ended_instance_go_with_it,
            a_start_for_an_ended_instance_stays, messages_after_the_end_are_delivered,
            a_continued_execution_leaves_its_timers_behind, the_end_of_an_older_execution_takes_nothing,
            activities_of_an_ended_instance_go_with_it,
            activities_that_nobody_cancels_outlive_their_instance,
        }
        $crate::__validation_module! { $factory; attempts;
            options_come_with_every_claim, what_an_attempt_leaves_behind_comes_with_the_next,
            an_attempt_that_is_given_back_waits_and_does_not_count, heartbeats_keep_the_lease,
            the_report_of_a_lost_attempt_is_refused, a_report_beyond_the_limits_changes_nothing,
            an_activity_is_completed_from_elsewhere_once, a_running_activity_is_completed_from_elsewhere,
            another_entry_is_not_completed, only_completions_come_from_elsewhere,
            an_activity_of_a_session_is_completed_from_elsewhere, an_activity_that_nobody_begins_fails_once,
            an_activity_that_was_begun_is_not_failed, a_claim_that_is_given_back_unused_begins_nothing,
        }
        $crate::__validation_module! { $factory; deliveries;
            a_parked_queue_message_comes_with_the_start,
            a_message_that_may_wait_is_delivered_at_once_if_it_can_be,
            only_signals_and_queue_messages_may_wait, an_expired_message_is_listed_as_dropped,
            dropped_messages_are_counted_and_listed, what_nobody_misses_is_not_listed_as_dropped,
            the_list_of_dropped_messages_is_bounded, a_message_brings_the_start_along,
            parked_messages_come_with_a_start_that_a_message_brings, an_ended_instance_takes_no_message,
            a_refused_start_with_a_message_leaves_nothing, of_many_messages_at_once_one_brings_the_start,
            a_message_goes_only_to_an_instance_that_can_take_it, only_signals_and_queue_messages_look_first,
            a_message_comes_before_the_end_or_not_at_all,
        }
        $crate::__validation_module! { $factory; extended_reads;
            metadata_describes_an_instance, a_queued_start_is_described_as_pending,
            a_message_alone_is_not_pending, awaited_instances_are_looked_at_together,
            recent_events_are_the_newest,
            start_if_absent_sees_every_way_to_be_taken, start_if_absent_after_a_signal_is_new,
            start_if_absent_takes_starts_only, start_if_absent_is_won_once,
            running_instances_are_counted_by_orchestration,
        }
        $crate::__validation_module! { $factory; figures;
            queue_depths_count_messages_that_nobody_holds, queue_depths_count_activities_that_nobody_holds,
            queue_depths_count_what_is_not_due_yet, deletion_counts_what_was_removed,
            deletion_does_not_count_what_was_not_there, sizes_are_counted_in_bytes,
            key_value_figures_describe_what_readers_see, totals_follow_the_current_execution,
        }
        $crate::__validation_module! { $factory; inspection;
            a_listing_pages_through_all_instances, a_cursor_of_another_listing_is_refused,
            a_listing_selects_by_state, a_failure_that_looks_like_a_cancellation_is_a_failure,
            a_listing_selects_by_what_instances_are, a_listing_follows_the_times_of_instances,
            a_queued_start_is_listed_as_pending, a_blocked_instance_is_listed_with_its_reason,
            a_detail_has_events_messages_and_activities, events_are_read_by_range_with_their_texts_cut,
            executions_and_values_are_listed, queues_tell_what_is_ready_leased_and_delayed,
            rates_count_instances_that_begin_and_end, workers_are_listed_while_they_report,
            obstacles_block_instances_until_they_are_over, a_deleted_instance_is_listed_no_more,
        }
        $crate::__validation_module! { $factory; listed_starts;
            a_queued_start_is_found_by_what_it_says, a_count_is_exact_up_to_its_bound,
        }
        $crate::__validation_module! { $factory; overviews;
            ready_activities_of_a_tag_are_listed, totals_tell_cancelled_instances_from_failed_ones, what_is_due_is_ready_before_anybody_fetches,
            a_tag_without_ready_activities_is_told,
        }
        $crate::__validation_module! { $factory; hand_over;
            a_turn_claims_the_activity_that_it_schedules,
            activities_claimed_with_a_turn_are_claims_like_any_other,
            an_older_activity_is_claimed_before_the_turns_own, what_a_turn_claims_keeps_its_place,
            a_turn_claims_at_most_max_activities,
            a_turn_claims_only_what_the_caller_may_run, a_turn_does_not_claim_what_it_cancels,
            a_refused_turn_claims_and_stores_nothing, a_stored_turn_names_the_incarnation,
            turns_stored_together_claim_each_activity_once, a_result_claims_the_instance_that_it_is_for,
            instances_claimed_with_a_result_are_claims_like_any_other,
            an_instance_with_an_older_message_is_claimed_first, a_result_claims_at_most_max_instances,
            an_instance_in_a_turn_is_not_claimed, a_result_claims_only_what_the_caller_can_replay,
            a_refused_result_claims_and_enqueues_nothing,
            a_result_without_completion_only_removes_the_activity, a_result_becomes_durable_by_itself,
            results_stored_together_claim_each_instance_once, whoever_waits_gets_what_is_enqueued,
            whoever_waits_gets_what_is_started, whoever_stops_waiting_gets_nothing, whoever_waits_gets_only_what_they_can_replay,
            what_is_enqueued_goes_to_one_of_those_who_wait,
        }
        $crate::__validation_module! { $factory; identity;
            instance_without_row_has_its_real_execution, cancellation_goes_by_instance_execution_and_id,
        }
        $crate::__validation_module! { $factory; large_batches;
            ten_thousand_activities_are_cancelled_at_once, thousands_of_messages_keep_their_order,
            thousands_of_events_in_one_turn,
        }
        $crate::__validation_module! { $factory; lease_details;
            renewed_turn_outlives_its_first_lease, renewed_turn_expires, sub_second_renewals_count,
            expired_leases_can_be_abandoned,
            leases_end_on_the_millisecond, delays_end_on_the_millisecond,
        }
        $crate::__validation_module! { $factory; lease_recovery;
            expired_leases_are_taken_up_again, a_vain_fetch_takes_nothing_over,
            leases_that_were_taken_over_are_lost, leases_that_ended_are_lost, live_leases_are_extended,
        }
        $crate::__validation_module! { $factory; partial_history;
            load_returns_the_events_after, load_works_after_a_fetch, full_load_brings_the_kv_snapshot,
            incarnation_differs_after_recreation, load_needs_a_live_token, load_of_a_new_instance_is_empty,
            load_reports_a_damaged_history,
        }
        $crate::__validation_module! { $factory; queued_children;
            a_queued_start_goes_with_its_parent, queued_starts_go_with_a_tree_that_has_ended,
            a_child_in_its_first_turn_is_lost_with_its_parent, messages_for_a_queued_child_go_with_its_start,
            starts_by_others_stay, a_start_that_came_with_a_message_goes_with_its_parent,
            a_start_for_a_taken_id_goes_with_its_parent,
            the_turn_of_a_deleted_parent_starts_no_child,
        }
        $crate::__validation_module! { $factory; refusals;
            an_invented_token_is_refused_everywhere, a_used_token_is_refused_everywhere,
            a_token_that_was_taken_over_is_refused_everywhere, items_of_the_other_queue_are_refused,
            a_turn_with_a_misplaced_item_changes_nothing,
            a_wrong_completion_is_refused_and_the_activity_kept, an_event_without_an_id_is_refused,
            a_taken_event_id_is_refused, a_refused_turn_changes_no_status_and_no_values,
            unknown_instances_are_not_found, reading_about_unknown_instances_is_empty,
            starts_create_no_instance, half_a_name_creates_no_instance,
        }
        $crate::__validation_module! { $factory; removal;
            a_missing_parent_does_not_fail_its_child,
            an_instance_between_executions_is_not_deleted_without_force,
            a_refused_deletion_names_the_first_in_its_way, bulk_deletion_skips_instances_between_executions,
            a_deletion_and_a_turn_exclude_each_other,
            pruning_beside_a_turn_keeps_the_current_execution, pruning_keeps_executions_that_run,
            pruning_conditions_are_combined, bulk_deletion_selects_roots, concurrent_deletions_agree,
            late_messages_of_a_deleted_instance_are_not_in_the_way, a_session_outlives_its_instance,
        }
        $crate::__validation_module! { $factory; signals;
            enqueued_message_wakes, a_short_claim_wakes_for_what_it_left, start_if_absent_wakes,
            start_with_a_message_wakes, message_that_may_wait_wakes, enqueued_activity_wakes, items_of_an_ack_wake,
            released_instance_wakes, completion_wakes, abandon_wakes, abandon_with_delay_wakes_when_due,
            expired_lease_wakes, due_message_wakes, due_timer_wakes, freed_session_wakes,
            signals_rest_while_nothing_can_be_fetched, watch_wakes_on_ack, watch_wakes_on_delete,
        }
        $crate::__validation_module! { $factory; session_heads;
            a_late_renewal_leaves_the_next_activity_its_turn, a_late_end_leaves_the_next_activity_its_turn,
        }
        $crate::__validation_module! { $factory; state_details;
            last_custom_status_of_a_turn_counts, custom_status_survives_executions, all_values_are_merged,
            snapshot_has_the_times_of_the_values, state_events_stay_in_the_history,
        }
        $crate::__validation_module! { $factory; steps;
            a_result_is_stored_with_its_turn, the_long_way_goes_on_after_a_step,
            activities_entered_as_leased_are_claims_like_any_other, several_results_are_stored_with_one_turn,
            a_step_can_end_its_instance, a_step_after_an_end_counts_its_instance_once,
            messages_of_later_do_not_hold_a_step_up,
            a_result_in_a_step_keeps_its_session_awake, a_lease_on_the_instance_keeps_a_step_out,
            a_message_that_waits_comes_before_a_step, a_blocked_instance_takes_no_step,
            a_step_needs_the_last_event, a_step_needs_the_execution_and_the_incarnation,
            a_step_needs_the_lease_of_its_activity, a_refused_step_leaves_nothing_behind,
            steps_at_the_same_time_exclude_each_other, a_start_is_stored_with_its_first_turn,
            a_step_does_not_take_an_older_activity_for_its_own,
            an_instance_may_end_with_its_start, a_start_needs_a_free_id, starts_of_one_id_exclude_each_other,
            a_due_timer_is_stored_with_its_turn, a_timer_that_is_not_alone_goes_the_long_way,
            a_child_begins_in_the_step_of_its_parent, a_step_of_several_turns_is_stored_wholly_or_not_at_all,
            a_later_turn_sees_what_an_earlier_one_did, a_parent_goes_on_in_the_step_of_its_child,
            an_instance_continues_as_new_in_one_step, a_step_hands_its_own_activities_over_first,
            a_step_does_not_overtake_for_long, a_step_that_may_not_overtake_hands_over_its_own_last,
            a_step_hands_over_only_what_the_caller_may_run,
            a_step_does_not_hand_over_what_it_cancels,
        }
        $crate::__validation_module! { $factory; times;
            times_are_milliseconds_since_the_epoch, a_running_execution_has_no_completion_time,
            every_end_has_a_completion_time, continued_executions_can_be_pruned_by_age,
            an_end_at_the_cut_off_is_not_before_it, instances_are_listed_newest_first,
        }
        $crate::__validation_module! { $factory; undecodable_rows;
            damaged_message_blocks_nobody, damaged_message_is_left_out_of_the_batch,
            damaged_activity_blocks_nobody, damaged_rows_are_stepped_over_in_batches,
            repaired_message_is_delivered, repaired_activity_is_handed_out, quarantined_rows_are_purged,
        }
        $crate::__validation_module! { $factory; unknown_instances;
            signals_for_unknown_instances_block_nobody, parked_messages_come_with_the_start,
            parked_messages_come_with_a_start_by_ack, queue_messages_beside_a_signal_survive,
            completions_for_unknown_instances_are_dropped,
            queue_messages_for_unknown_instances_are_dropped,
            completions_for_deleted_instances_are_dropped, parked_messages_are_listed,
            parked_messages_expire, appending_nothing_makes_no_instance,
        }
        $crate::__validation_module! { $factory; version_ranges;
            large_version_numbers_are_compared_by_component, every_range_of_a_filter_counts,
            a_version_counts_also_if_the_name_comes_later,
            the_ended_execution_decides_between_executions, a_skipped_instance_makes_no_attempt,
            many_skipped_instances_do_not_hide_one_behind,
        }
        $crate::__validation_module! { $factory; visibility;
            the_oldest_message_comes_first_whenever_it_became_visible,
            a_batch_keeps_the_order_of_enqueueing, equal_messages_are_all_delivered,
            a_timer_waits_for_the_later_of_due_time_and_delay, a_timer_of_a_turn_is_delivered_when_due,
            endless_durations_do_not_wrap, a_renewal_never_shortens_a_lease,
            a_history_is_ordered_by_event_id, events_are_stored_under_the_turn_as_they_are,
            cleanup_ignores_the_idle_time, session_and_tag_are_both_required, only_an_end_settles_values,
        }
    };
}

/// The checks of how long a fetch takes: two that depend on the store, and one for all.
#[doc(hidden)]
#[macro_export]
macro_rules! __validation_of_polling {
    ($factory:expr; short) => {
        $crate::__validation_of_polling! { $factory; with |provider, factory| {
            test_short_poll_returns_immediately(provider, factory.short_poll_threshold()),
            test_short_poll_work_item_returns_immediately(provider, factory.short_poll_threshold()),
            test_fetch_respects_timeout_upper_bound(provider),
        } }
    };
    ($factory:expr; long) => {
        $crate::__validation_of_polling! { $factory; with |provider, factory| {
            test_long_poll_waits_for_timeout(provider),
            test_long_poll_work_item_waits_for_timeout(provider),
            test_fetch_respects_timeout_upper_bound(provider),
        } }
    };
    ($factory:expr; with |$provider:ident, $made:ident| {
        $($check:ident ( $($argument:expr),* )),+ $(,)?
    }) => {
        mod long_polling {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[test]
                #[allow(unused_variables)]
                fn $check() {
                    $crate::provider_validation::run_check(Box::pin(async {
                        let $made = &$factory;
                        let $made: &dyn $crate::provider_validation::ProviderFactory = $made;
                        let provider = $made.create_provider().await;
                        let $provider = &*provider;
                        $crate::provider_validation::long_polling::$check($($argument),*).await;
                    }));
                }
            )+
        }
    };
}

/// The checks that run a whole runtime on the store.
#[doc(hidden)]
#[macro_export]
macro_rules! __validation_with_a_runtime {
    ($factory:expr) => {
        $crate::__validation_module! { $factory; race_replay;
            test_duplicate_start_preserves_pinned_handler, test_continue_as_new_unregistered_backoff,
            test_continue_as_new_poisoned_successor_is_own_execution, test_continue_as_new_duplicate_start,
            test_queue_race_cancellation_replay, test_continue_as_new_queue_race_replay,
            test_queue_replay_version_stamp_roundtrip, test_positional_wait_race_replay,
            test_legacy_queue_race_decision_preserved,
        }

        mod race_replay_transition {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn test_continue_as_new_transition_delivery_before_0_1_31() {
                $crate::provider_validation::run_check(Box::pin(async {
                    let factory = $factory;
                    $crate::provider_validation::race_replay::test_continue_as_new_transition_delivery(
                        &factory, "0.1.30",
                    )
                    .await;
                }));
            }

            #[test]
            fn test_continue_as_new_transition_delivery_since_0_1_31() {
                $crate::provider_validation::run_check(Box::pin(async {
                    let factory = $factory;
                    $crate::provider_validation::race_replay::test_continue_as_new_transition_delivery(
                        &factory, "0.1.31",
                    )
                    .await;
                }));
            }
        }
    };
}

/// Runs one check to its end, on a runtime of its own with several threads.
///
/// Takes any future behind a pointer, so that rustc compiles tokio's machinery once and not for each of the checks.
#[doc(hidden)]
pub fn run_check(check: Pin<Box<dyn Future<Output = ()> + '_>>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a check needs a tokio runtime")
        .block_on(check);
}

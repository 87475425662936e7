//! The key-value store, the custom status, and log lines.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::runtime_support::logs::{Line, Logs};
use crate::support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::KvEntry;
use duroxide::runtime::replay_engine::ReplayEngine;
use duroxide::{Action, BackoffStrategy, EventKind, OrchestrationContext, OrchestrationHandler, RetryPolicy};
use support::*;

fn snapshot(entries: &[(&str, &str, u64)]) -> HashMap<String, KvEntry> {
    let entry = |value: &str, ms| KvEntry { value: value.into(), last_updated_at_ms: ms };
    entries.iter().map(|(key, value, ms)| (key.to_string(), entry(value, *ms))).collect()
}

fn over(
    snapshot: HashMap<String, KvEntry>,
    history: History,
    handler: &Arc<dyn OrchestrationHandler>,
) -> Turn {
    let engine = ReplayEngine::new(INSTANCE.into(), 1, history.events).with_kv_snapshot(snapshot);
    turn(engine, handler, vec![])
}

fn kv_set(key: &str, value: &str, ms: u64) -> EventKind {
    EventKind::KeyValueSet { key: key.into(), value: value.into(), last_updated_at_ms: ms }
}

// --- key-value store

#[test]
fn writes_are_seen_at_once_and_reads_record_nothing() {
    let handler = code(|ctx, _| async move {
        ctx.set_kv_value("b", "2");
        ctx.set_kv_value("", "empty key");
        ctx.set_kv_value("a", "1");
        let seen =
            (ctx.get_kv_value("a"), ctx.get_kv_value("none"), ctx.get_kv_all_keys(), ctx.get_kv_length());
        ctx.clear_kv_value("a");
        let all = ctx.get_kv_all_values();
        ctx.clear_all_kv_values();
        Ok(format!("{seen:?} {} {}", all.len(), ctx.get_kv_length()))
    });
    let turn = History::started().replay(&handler);
    assert_eq!(turn.text(), r#"Completed: (Some("1"), None, ["", "a", "b"], 3) 2 0"#);
    assert_eq!(
        turn.kinds(),
        ["KeyValueSet", "KeyValueSet", "KeyValueSet", "KeyValueCleared", "KeyValuesCleared"]
    );
}

#[test]
fn typed_values_are_plain_json() {
    let handler = code(|ctx, _| async move {
        ctx.set_kv_value_typed("text", &"quoted");
        ctx.set_kv_value_typed("list", &vec![1, 2]);
        ctx.set_kv_value("bad", "{");
        let list: Option<Vec<u8>> = ctx.get_kv_value_typed("list")?;
        let none: Option<u8> = ctx.get_kv_value_typed("none")?;
        let bad = ctx.get_kv_value_typed::<u8>("bad").unwrap_err();
        Ok(format!("{:?} {list:?} {none:?} {bad}", ctx.get_kv_value("text")))
    });
    let text = History::started().replay(&handler).text();
    let expected =
        r#"Completed: Some("\"quoted\"") Some([1, 2]) None KV deserialization error for key 'bad': "#;
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn the_snapshot_is_what_earlier_executions_left() {
    let handler = code(|ctx, _| async move {
        let before = ctx.get_kv_value("k");
        ctx.set_kv_value("k", "new");
        ctx.clear_kv_value("gone");
        Ok(format!("{before:?} {:?} {:?}", ctx.get_kv_value("k"), ctx.get_kv_value("gone")))
    });
    let turn = over(snapshot(&[("k", "old", 1), ("gone", "x", 1)]), History::started(), &handler);
    assert_eq!(turn.text(), r#"Completed: Some("old") Some("new") None"#);
}

fn counter() -> Arc<dyn OrchestrationHandler> {
    code(|ctx, _| async move {
        loop {
            let n: u32 = ctx.get_kv_value("n").map_or(0, |text| text.parse().unwrap());
            ctx.set_kv_value("n", (n + 1).to_string());
            ctx.schedule_timer(Duration::ZERO).await;
        }
    })
}

#[test]
fn read_modify_write_replays_over_the_snapshot_of_earlier_executions_only() {
    let recorded = |values: [&str; 3]| {
        let mut history = History::started();
        for value in values {
            history = history.push(None, kv_set("n", value, 1)).timer();
            let timer = history.events.last().unwrap().event_id;
            history = history.timer_fired(timer);
        }
        History { events: history.events[..9].to_vec(), execution_id: 1 }
    };
    let turn = over(HashMap::new(), recorded(["1", "2", "3"]), &counter());
    assert_eq!((turn.text().as_str(), turn.delta.len()), ("Continue", 0));
    let turn = over(snapshot(&[("n", "5", 1)]), recorded(["6", "7", "8"]), &counter());
    assert_eq!((turn.text().as_str(), turn.delta.len()), ("Continue", 0));
    over(snapshot(&[("n", "5", 1)]), recorded(["1", "2", "3"]), &counter())
        .assert_nondeterminism("kv set mismatch");
}

#[test]
fn pruning_removes_older_keys_in_key_order() {
    let handler = code(|ctx, _| async move {
        let pruned = ctx.prune_kv_values_updated_before(100);
        Ok(format!("{pruned} {:?}", ctx.get_kv_all_keys()))
    });
    let store = snapshot(&[("d", "", 99), ("b", "", 1), ("c", "", 100), ("a", "", 7)]);
    let turn = over(store, History::started(), &handler);
    assert_eq!(turn.text(), r#"Completed: 3 ["c"]"#);
    let keys: Vec<_> = turn
        .actions
        .iter()
        .map(|action| match action {
            Action::ClearKeyValue { key } => key.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(keys, ["a", "b", "d"]);
}

#[test]
fn pruning_includes_keys_of_the_same_turn() {
    let handler = code(|ctx, _| async move {
        ctx.set_kv_value("a", "");
        ctx.set_kv_value("b", "");
        let none = ctx.prune_kv_values_updated_before(0);
        Ok(format!("{none} {}", ctx.prune_kv_values_updated_before(u64::MAX)))
    });
    assert_eq!(History::started().replay(&handler).text(), "Completed: 0 2");
}

#[test]
fn pruning_by_age_decides_by_the_recorded_times_in_every_replay() {
    let handler = code(|ctx, _| async move {
        ctx.set_kv_value("old", "");
        ctx.schedule_timer(Duration::ZERO).await;
        ctx.set_kv_value("new", "");
        // In the same poll as the write, before its event is reached.
        let pruned = ctx.prune_kv_values_updated_before(1_000);
        ctx.schedule_activity("A", format!("pruned {pruned}, left {:?}", ctx.get_kv_all_keys())).await
    });
    // "old" was written at 500 and "new" at 1500; a replay at today's time must not take both for new.
    let history = History::started().push(None, kv_set("old", "", 500)).timer().timer_fired(3);
    let history = history.push(None, kv_set("new", "", 1_500));
    let history = history.push(None, EventKind::KeyValueCleared { key: "old".into() });
    let history = history.activity("A", r#"pruned 1, left ["new"]"#);
    let turn = history.turn(&handler, vec![msg::activity(7, "ok")]);
    assert_eq!(turn.text(), "Completed: ok");
}

#[test]
fn writes_in_branches_loops_and_between_steps_are_recorded_in_the_order_they_were_made() {
    let handler = code(|ctx, _| async move {
        let branch = |name: &'static str| {
            let ctx = ctx.clone();
            async move {
                ctx.set_kv_value(name, "begun");
                ctx.schedule_wait(name).await;
                ctx.set_kv_value(name, "done");
            }
        };
        ctx.select2(branch("a"), branch("b")).await;
        for i in 0..2 {
            ctx.set_kv_value("loop", i.to_string());
            ctx.schedule_timer(Duration::ZERO).await;
        }
        Ok(format!("{:?} {:?}", ctx.get_kv_value("a"), ctx.get_kv_value("b")))
    });
    let mut live = Live::start(handler);
    live.turn(vec![msg::signal("b", "")]);
    let first =
        live.last().delta.iter().find(|event| type_of(&event.kind) == "TimerCreated").unwrap().event_id;
    live.turn(vec![msg::timer(first)]);
    let second = live.history.last().unwrap().event_id;
    let turn = live.turn(vec![msg::timer(second)]);
    assert_eq!(turn.text(), r#"Completed: Some("begun") Some("done")"#);
    let writes: Vec<_> = live
        .history
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::KeyValueSet { key, value, .. } => Some(format!("{key}={value}")),
            _ => None,
        })
        .collect();
    assert_eq!(writes, ["a=begun", "b=begun", "b=done", "loop=0", "loop=1"]);
}

#[test]
fn a_written_value_carries_the_time_of_its_turn() {
    let handler = code(|ctx, _| async move {
        ctx.set_kv_value("k", "v");
        Ok(String::new())
    });
    let live = Live::start(handler);
    let turn = live.last();
    let EventKind::KeyValueSet { last_updated_at_ms, .. } = turn.delta[0].kind else { panic!() };
    assert_eq!(last_updated_at_ms, turn.delta[0].timestamp_ms);
    assert!(last_updated_at_ms > 1_600_000_000_000);
}

#[test]
fn a_value_of_another_instance_is_read_by_an_activity() {
    let handler = code(|ctx, _| async move {
        let text = ctx.get_kv_value_from_instance("other", "k").await?;
        let none = ctx.get_kv_value_from_instance("other", "k").await?;
        let list = ctx.get_kv_value_from_instance_typed::<Vec<u8>>("other", "k").await?;
        let bad = ctx.get_kv_value_from_instance("other", "k").await.unwrap_err();
        let typed = ctx.get_kv_value_from_instance_typed::<u8>("other", "k").await.unwrap_err();
        Ok(format!("{text:?} {none:?} {list:?}|{bad}|{typed}"))
    });
    let mut live = Live::start(handler);
    let EventKind::ActivityScheduled { name, input, .. } = &live.last().delta[0].kind else { panic!() };
    assert_eq!(name, "__duroxide_syscall:get_kv_value");
    assert_eq!(input, r#"{"instance_id":"other","key":"k"}"#);
    for (id, result) in [(2, "\"text\""), (4, "null"), (6, "\"[1,2,3]\""), (8, "{"), (10, "\"x\"")] {
        live.turn(vec![msg::activity(id, result)]);
    }
    let text = live.last().text();
    assert!(text.starts_with(r#"Completed: Some("text") None Some([1, 2, 3])|get_kv_value_from_instance deserialization error: "#), "{text}");
    assert!(text.contains("|get_kv_value_from_instance_typed deserialization error: "), "{text}");
}

// --- custom status

#[test]
fn the_status_is_seen_at_once_and_every_change_is_recorded() {
    let handler = code(|ctx, _| async move {
        let none = ctx.get_custom_status();
        ctx.set_custom_status("one");
        ctx.set_custom_status("two");
        let two = ctx.get_custom_status();
        ctx.reset_custom_status();
        Ok(format!("{none:?} {two:?} {:?} {:?}", ctx.get_custom_status(), ctx.get_system_stats()))
    });
    let turn = History::started().replay(&handler);
    assert_eq!(turn.text(), r#"Completed: None Some("two") None None"#);
    assert_eq!(turn.kinds(), ["CustomStatusUpdated"; 3]);
}

// --- log lines

/// What was logged meanwhile: level, target, fields.
fn lines_of(run: impl FnOnce()) -> Vec<String> {
    let (logs, _guard) = Logs::keep();
    run();
    let show = |line: &Line| {
        let fields =
            line.fields.iter().fold(String::new(), |all, (name, value)| format!("{all} {name}={value}"));
        format!("{} {} message={}{fields}", line.level, line.target, line.message)
    };
    logs.all().iter().map(show).collect()
}

#[test]
fn log_lines_name_the_orchestration_and_nothing_is_recorded_of_them() {
    let ctx = OrchestrationContext::new(vec![], 4, "inst".into(), "Orch".into(), "1.2.0".into(), None);
    ctx.set_is_replaying(false);
    let lines = lines_of(|| {
        ctx.trace_info("i");
        ctx.trace_warn("w");
        ctx.trace_error("e");
        ctx.trace_debug("d");
        ctx.trace("iNfO", "mixed");
        ctx.trace("loud", "odd");
    });
    let levels: Vec<_> = lines.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(levels, ["INFO", "WARN", "ERROR", "DEBUG", "INFO", "TRACE"]);
    for field in
        ["instance_id=inst", "execution_id=4", "orchestration_name=Orch", "orchestration_version=1.2.0"]
    {
        assert!(lines.iter().all(|line| line.contains(field)), "{field} {lines:?}");
    }
    assert!(lines[0].contains("duroxide::orchestration") && lines[0].contains("message=i"));
    assert!(lines[5].contains("level=loud"));
    assert!(ctx.get_emitted_actions().is_empty());
}

#[test]
fn log_lines_are_written_once_and_not_in_every_replay() {
    let handler = code(|ctx, _| async move {
        ctx.trace_info("begun");
        let both = vec![ctx.schedule_activity("A", ""), ctx.schedule_activity("B", "")];
        for activity in both {
            activity.await?;
            ctx.trace_info("one more");
        }
        Ok(String::new())
    });
    let lines = lines_of(|| {
        let first =
            ReplayEngine::new(INSTANCE.into(), 1, History::started().events).with_persisted_history_len(0);
        let mut history = turn(first, &handler, vec![]).history;
        for id in [2, 3] {
            let engine = ReplayEngine::new(INSTANCE.into(), 1, history);
            history = turn(engine, &handler, vec![msg::activity(id, "")]).history;
        }
    });
    let ours: Vec<_> = lines.iter().filter(|line| line.contains("duroxide::orchestration")).collect();
    assert_eq!(ours.len(), 3, "{ours:?}");
}

#[test]
fn a_retry_is_announced() {
    let handler = code(|ctx, _| async move {
        let policy = RetryPolicy::new(2).with_backoff(BackoffStrategy::None);
        let _ = ctx.schedule_activity_with_retry("A", "", policy.clone()).await;
        ctx.schedule_activity_with_retry_on_session("B", "", policy, "s1").await
    });
    let history = History::started().activity("A", "");
    let lines = lines_of(|| {
        let mut live = Live {
            handler: handler.clone(),
            history: history.events,
            execution_id: 1,
            kv: HashMap::new(),
            turns: vec![],
        };
        live.turn(vec![msg::activity_failed(2, app_error("no"))]);
        live.turn(vec![msg::activity(4, "")]);
        let session = live.history.last().unwrap().event_id;
        live.turn(vec![msg::activity_failed(session, app_error("no"))]);
    });
    let has = |text: &str| lines.iter().any(|line| line.starts_with("WARN") && line.contains(text));
    assert!(has("Activity 'A' attempt 1/2 failed: no. Retrying..."), "{lines:?}");
    assert!(has("Activity 'B' (session=s1) attempt 1/2 failed: no. Retrying..."), "{lines:?}");
}

#[test]
fn an_orchestration_that_awaits_something_not_durable_is_reported_by_name() {
    let (sender, receiver) = tokio::sync::watch::channel(());
    let handler = code(move |_, _| {
        let mut receiver = receiver.clone();
        async move {
            receiver.changed().await.ok();
            Ok(String::new())
        }
    });
    let lines = lines_of(|| assert_eq!(History::started().replay(&handler).text(), "Continue"));
    let reported = |line: &&String| line.contains("not durable") && line.contains("instance=inst");
    assert_eq!(lines.iter().filter(reported).count(), 1, "{lines:?}");
    drop(sender);
}

#[test]
fn warnings_name_the_instance() {
    let handler = code(|ctx, _| async move { Ok(ctx.schedule_wait("w").await) });
    let lines = lines_of(|| {
        History::started().stamped("no version").turn(&handler, vec![msg::signal("other", "")]);
        History::started().stamped("0.1.30").replay(&handler);
    });
    let invalid: Vec<_> = lines.iter().filter(|line| line.contains("Invalid pinned version; ")).collect();
    assert_eq!(invalid.len(), 1, "{lines:?}");
    assert!(invalid[0].contains("instance=inst") && invalid[0].contains("version=no version"));
    let skipped =
        "skipping ExternalEvent delivery: no pending subscription slot (event remains in history for audit)";
    let skipped: Vec<_> = lines.iter().filter(|line| line.contains(skipped)).collect();
    assert!(skipped.len() == 1 && skipped[0].contains("event_name=other"), "{lines:?}");
}

#[test]
fn orchestration_code_has_no_client() {
    trait Lacks {
        fn get_client(&self) -> &'static str {
            "none"
        }
    }
    impl Lacks for OrchestrationContext {}
    let ctx = OrchestrationContext::new(vec![], 1, INSTANCE.into(), "Orch".into(), "1.0.0".into(), None);
    // A method of the type itself would be taken instead.
    assert_eq!(ctx.get_client(), "none");
}

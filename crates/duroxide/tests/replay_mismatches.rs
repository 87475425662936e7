//! The error when code does not make the recorded request: enough to find the place, and no payload.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::logs;
use crate::support;

use std::sync::Arc;

use duroxide::{ErrorDetails, EventKind, OrchestrationHandler};
use logs::Logs;
use support::*;
use tracing::Level;

const RECORDED: &str = r#"{"card":"4111-1111"}"#;
const NOW: &str = r#"{"card":"5500-0000"}"#;

fn charge(input: &'static str) -> Arc<dyn OrchestrationHandler> {
    code(move |ctx, _| async move { ctx.schedule_activity("Charge", input).await })
}

fn message(turn: &Turn) -> String {
    match &turn.result {
        duroxide::runtime::replay_engine::TurnResult::Failed(ErrorDetails::Configuration {
            message, ..
        }) => message.clone().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn assert_holds_no_payload(text: &str) {
    assert!(!text.contains("4111-1111") && !text.contains("5500-0000"), "{text}");
}

#[test]
fn an_input_that_differs_is_told_by_length_hash_and_place() {
    let text = message(&History::started().activity("Charge", RECORDED).replay(&charge(NOW)));
    assert_holds_no_payload(&text);
    assert!(
        text.starts_with("schedule mismatch: action=CallActivity { scheduling_event_id: 0, name: \"Charge\"")
    );
    let hint = "(event 2 recorded activity 'Charge'; the code now asks for activity 'Charge' at ";
    assert!(text.contains(hint) && text.contains("replay_mismatches.rs:"), "{text}");
    assert!(text.contains("; only the input differs: 20 bytes, hash "), "{text}");
    assert!(text.ends_with(" now; the first difference is at byte 9)"), "{text}");
}

#[test]
fn every_payload_of_a_mismatch_is_left_out() {
    let code_of: Vec<Arc<dyn OrchestrationHandler>> = vec![
        charge(NOW),
        code(|ctx, _| async move { ctx.schedule_sub_orchestration("Child", NOW).await }),
        code(|ctx, _| async move {
            ctx.schedule_orchestration("Other", "other", NOW);
            std::future::pending().await
        }),
        code(|ctx, _| async move {
            ctx.set_custom_status(NOW);
            std::future::pending().await
        }),
        code(|ctx, _| async move {
            ctx.set_kv_value("key", NOW);
            std::future::pending().await
        }),
    ];
    let recorded = [
        EventKind::ActivityScheduled {
            name: "Charge".into(),
            input: RECORDED.into(),
            session_id: None,
            tag: None,
        },
        EventKind::SubOrchestrationScheduled {
            name: "Child".into(),
            instance: "sub::2".into(),
            input: RECORDED.into(),
        },
        EventKind::OrchestrationChained {
            name: "Other".into(),
            instance: "other".into(),
            input: RECORDED.into(),
        },
        EventKind::CustomStatusUpdated { status: Some(RECORDED.into()) },
        EventKind::KeyValueSet { key: "key".into(), value: RECORDED.into(), last_updated_at_ms: 1 },
    ];
    let mut mismatches = 0;
    let mut hints = 0;
    for (asked, handler) in code_of.iter().enumerate() {
        for (found, event) in recorded.iter().enumerate() {
            let turn = History::started().push(None, event.clone()).replay(handler);
            if turn.text() == "Continue" {
                assert_eq!((asked, found), (3, 3), "only a status may change its text");
                continue;
            }
            let text = message(&turn);
            assert_holds_no_payload(&text);
            assert!(text.contains("bytes, hash "), "{text}");
            mismatches += 1;
            hints += usize::from(text.contains("differs: "));
            assert_eq!(text.contains("differs: "), asked == found, "{text}");
        }
    }
    assert_eq!((mismatches, hints), (24, 4));
}

#[test]
fn a_mismatch_in_more_than_the_input_is_not_called_one_of_the_input() {
    let handler = code(|ctx, _| async move { ctx.schedule_activity("Charge", NOW).with_tag("gpu").await });
    let text = message(&History::started().activity("Charge", RECORDED).replay(&handler));
    assert!(!text.contains("differs: "), "{text}");
    let text = message(&History::started().activity("Charge", NOW).replay(&handler));
    assert!(!text.contains("differs: "), "{text}");
}

#[test]
fn the_log_shows_payloads_of_a_mismatch_at_trace_only() {
    for stamp in ["0.1.100", LEGACY] {
        let (logs, _guard) = Logs::keep();
        History::started().activity("Charge", RECORDED).stamped(stamp).replay(&charge(NOW));
        let showing: Vec<_> =
            logs.all().into_iter().filter(|line| format!("{line:?}").contains("4111")).collect();
        assert!(!showing.is_empty(), "{stamp}");
        for line in &showing {
            assert_eq!((line.level, line.target.as_str()), (Level::TRACE, "duroxide::payload"), "{line:?}");
            assert!(line.field("asked").contains("5500-0000"));
        }
    }
}

#[test]
fn legacy_executions_record_the_published_text() {
    let turn = History::started().stamped(LEGACY).activity("Charge", RECORDED).replay(&charge(NOW));
    let text = message(&turn);
    assert!(text.contains("4111-1111") && text.contains("5500-0000"), "{text}");
}

/// Passes on why a result does not decode.
fn reporting() -> Arc<dyn OrchestrationHandler> {
    code(|ctx, _| async move {
        let reason = ctx.schedule_activity_typed::<_, u8>("Charge", &1).await.unwrap_err();
        ctx.schedule_activity("Report", reason).await
    })
}

#[test]
fn executions_of_older_versions_go_on_hearing_the_published_words() {
    let published = r#"invalid type: string "no number", expected u8"#;
    let old = |stamp: &str| {
        let history = History::started().stamped(stamp).activity("Charge", "1").activity_done(2, "no number");
        history.activity("Report", published).replay(&reporting())
    };
    for stamp in ["0.1.30", "0.1.32", "no version"] {
        assert_eq!(old(stamp).text(), "Continue", "{stamp}");
    }
    old("0.1.100").assert_nondeterminism("only the input differs");
}

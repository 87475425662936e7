//! The second family of signals, with topics. It exists only with the feature `replay-version-test`.
#![cfg(feature = "replay-version-test")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support;

use duroxide::EventKind;
use duroxide::providers::WorkItem;
use support::*;

fn raised(name: &str, topic: &str, data: &str) -> WorkItem {
    let (name, topic, data) = (name.into(), topic.into(), data.into());
    WorkItem::ExternalRaised2 { instance: INSTANCE.into(), name, topic, data }
}

#[test]
fn a_signal_on_a_topic_reaches_the_wait_for_name_and_topic() {
    let handler = code(|ctx, _| async move {
        let (a, b) = ctx.join2(ctx.schedule_wait2("n", "t1"), ctx.schedule_wait2("n", "t2")).await;
        Ok(format!("{a},{b}"))
    });
    let mut live = Live::start(handler);
    assert_eq!(live.last().kinds(), ["ExternalSubscribed2", "ExternalSubscribed2"]);
    live.turn(vec![raised("n", "t2", "second"), raised("n", "nobody", "lost"), msg::signal("n", "plain")]);
    assert_eq!(live.last().kinds(), ["ExternalEvent2", "ExternalEvent"]);
    assert_eq!(live.turn(vec![raised("n", "t1", "first")]).text(), "Completed: first,second");
}

#[test]
fn a_topic_is_part_of_the_match() {
    let handler = code(|ctx, _| async move { Ok(ctx.schedule_wait2("n", "t").await) });
    let recorded = |topic: &str| EventKind::ExternalSubscribed2 { name: "n".into(), topic: topic.into() };
    assert_eq!(History::started().push(None, recorded("t")).replay(&handler).text(), "Continue");
    History::started()
        .push(None, recorded("other"))
        .replay(&handler)
        .assert_nondeterminism("schedule mismatch");
}

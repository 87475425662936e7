//! A payload that does not decode: the error gives serde's reason and names the payload and its step, and no error
//! holds the payload's text.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use crate::runtime_support;

use std::time::Duration;

use duroxide::{ActivityContext, Client, OrchestrationContext};
use runtime_support::*;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    name: String,
    amount: u32,
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "only decoded")]
#[serde(deny_unknown_fields)]
struct Strict {
    kind: Kind,
}

#[derive(Debug, Deserialize)]
enum Kind {
    Small,
}

const SECRET: &str = "4111-1111-1111-1111";

/// Lacks the field `name`.
fn nameless() -> String {
    format!(r#"{{"amount":1,"card":"{SECRET}"}}"#)
}

fn assert_says(text: &str, fragments: &[&str]) {
    for fragment in fragments {
        assert!(text.contains(fragment), "{fragment:?} is not in: {text}");
    }
    assert!(!text.contains(SECRET), "{text}");
}

/// Runs an orchestration as `order-7`, and returns its output.
async fn say<F, Fut>(input: &str, body: F) -> String
where
    F: Fn(OrchestrationContext, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, String>> + Send + 'static,
{
    let world = World::new();
    let activities =
        echo().register_typed("Charge", |_: ActivityContext, order: Order| async move { Ok(order) });
    let children = orchestrations()
        .register("Body", body)
        .register_typed("Child", |_: OrchestrationContext, order: Order| async move { Ok(order.name) })
        .register("EchoChild", |_: OrchestrationContext, text: String| async move { Ok(text) });
    let runtime = world.start(activities, children).await;
    world.client.start_orchestration("order-7", "Body", input).await.unwrap();
    let output = world.output("order-7").await;
    runtime.shutdown(None).await;
    output
}

#[tokio::test]
async fn an_activity_whose_input_does_not_decode_says_which_step_and_why() {
    let text = say(&nameless(), |ctx, input| async move {
        ctx.schedule_activity("Echo", "").await?;
        Ok(ctx.schedule_activity("Charge", input).await.unwrap_err())
    })
    .await;
    let what = "input of activity 'Charge' (step 4 of 'order-7') does not decode: missing field `name`";
    assert_says(&text, &[what, &format!("({} bytes)", nameless().len())]);
}

#[tokio::test]
async fn an_activity_whose_result_does_not_decode_says_which_step_and_why() {
    let text = say(&nameless(), |ctx, input| async move {
        Ok(ctx.schedule_activity_typed::<_, Order>("Echo", &input).await.unwrap_err())
    })
    .await;
    assert_says(
        &text,
        &["result of activity 'Echo' (step 2 of 'order-7') does not decode: missing field `name`"],
    );
    let text = say(&nameless(), |ctx, input| async move {
        let policy = duroxide::RetryPolicy::new(1);
        Ok(ctx.schedule_activity_with_retry_typed::<_, Order>("Echo", &input, policy).await.unwrap_err())
    })
    .await;
    assert_says(&text, &["result of activity 'Echo' (of 'order-7') does not decode: missing field `name`"]);
}

#[tokio::test]
async fn children_whose_input_or_result_does_not_decode_say_which_and_why() {
    let text = say(&nameless(), |ctx, input| async move {
        Ok(ctx.schedule_sub_orchestration_with_id("Child", "child-1", input).await.unwrap_err())
    })
    .await;
    assert_says(
        &text,
        &["input of orchestration 'Child' (of 'child-1') does not decode: missing field `name`"],
    );
    let text = say(&nameless(), |ctx, input| async move {
        Ok(ctx.schedule_sub_orchestration_typed::<_, Order>("EchoChild", &input).await.unwrap_err())
    })
    .await;
    let what = "result of child orchestration 'EchoChild' (step 2 of 'order-7') does not decode: missing field `name`";
    assert_says(&text, &[what]);
}

#[tokio::test]
async fn a_message_or_a_signal_that_does_not_decode_can_be_received_as_an_error() {
    let world = World::new();
    let body = orchestrations().register("Body", |ctx: OrchestrationContext, _: String| async move {
        let signal = ctx.try_schedule_wait_typed::<Order>("approve").await.unwrap_err();
        let message = ctx.try_dequeue_event_typed::<Order>("inbox").await.unwrap_err();
        let good: Order = ctx.try_dequeue_event_typed("inbox").await?;
        Ok(format!("{signal}|{message}|{}", good.name))
    });
    let runtime = world.start(activities(), body).await;
    world.client.start_orchestration("order-7", "Body", "").await.unwrap();
    world.waits_for("order-7", "approve").await;
    world.client.raise_event("order-7", "approve", nameless()).await.unwrap();
    world.client.enqueue_event("order-7", "inbox", nameless()).await.unwrap();
    world
        .client
        .enqueue_event_typed("order-7", "inbox", &Order { name: "next".into(), amount: 1 })
        .await
        .unwrap();
    let text = world.output("order-7").await;
    assert_says(
        &text,
        &[
            "signal 'approve' (step 2 of 'order-7') does not decode: missing field `name`",
            "|message from queue 'inbox' (step ",
            "of 'order-7') does not decode: missing field `name`",
            "|next",
        ],
    );
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn a_typed_wait_and_a_typed_dequeue_panic_with_the_same_words() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            orchestrations()
                .register("Wait", |ctx: OrchestrationContext, _: String| async move {
                    Ok(ctx.schedule_wait_typed::<Order>("approve").await.name)
                })
                .register("Dequeue", |ctx: OrchestrationContext, _: String| async move {
                    Ok(ctx.dequeue_event_typed::<Order>("inbox").await.name)
                }),
        )
        .await;
    world.client.start_orchestration("order-7", "Wait", "").await.unwrap();
    world.waits_for("order-7", "approve").await;
    world.client.raise_event("order-7", "approve", nameless()).await.unwrap();
    let text = world.failure("order-7").await;
    assert_says(
        &text,
        &["panicked", "signal 'approve' (step 2 of 'order-7') does not decode: missing field `name`"],
    );

    world.client.start_orchestration("order-8", "Dequeue", "").await.unwrap();
    world.recorded("order-8", |kind| matches!(kind, duroxide::EventKind::QueueSubscribed { .. })).await;
    world.client.enqueue_event("order-8", "inbox", nameless()).await.unwrap();
    let text = world.failure("order-8").await;
    assert_says(
        &text,
        &["panicked", "message from queue 'inbox' (step 2 of 'order-8') does not decode: missing"],
    );
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn values_of_the_key_value_store_that_do_not_decode_say_which_and_why() {
    let world = World::new();
    let runtime = world
        .start(
            activities(),
            orchestrations().register("Keep", |ctx: OrchestrationContext, input: String| async move {
                ctx.set_kv_value("last", input);
                let own = ctx.get_kv_value_typed::<Order>("last").unwrap_err();
                let done = ctx.get_kv_value_from_instance_typed::<Order>("order-6", "last").await;
                Ok(format!("{own}|{done:?}"))
            }),
        )
        .await;
    let own = "KV deserialization error for key 'last': missing field `name`";
    let text = output(world.run("order-6", "Keep", &nameless()).await);
    assert_says(&text, &[own, "bytes, of 'order-6')"]);
    let text = output(world.run("order-7", "Keep", &nameless()).await);
    let other = "get_kv_value_from_instance_typed deserialization error: missing field `name`";
    assert_says(&text, &[own, other, "bytes, key 'last' of 'order-6')"]);

    let error = world.client.get_kv_value_typed::<Order>("order-6", "last").await.unwrap_err().to_string();
    assert_says(
        &error,
        &["Invalid input: KV deserialization error: missing field `name`", "key 'last' of 'order-6')"],
    );
    let error = typed_output(&world.client, "order-7").await;
    assert_says(
        &error,
        &["Invalid input: decode failed: output of 'order-7' does not decode: invalid type: string"],
    );
    runtime.shutdown(None).await;
}

async fn typed_output(client: &Client, instance: &str) -> String {
    client.wait_for_orchestration_typed::<Order>(instance, Duration::ZERO).await.unwrap_err().to_string()
}

/// The error of `Charge` about an input.
async fn reason(input: &str) -> String {
    let text =
        say(input, |ctx, input| async move { Ok(ctx.schedule_activity("Charge", input).await.unwrap_err()) })
            .await;
    assert_says(&text, &["input of activity 'Charge' (step 2 of 'order-7') does not decode: "]);
    text
}

#[tokio::test]
async fn the_reason_never_quotes_a_value() {
    let wrong_type = reason(&format!(r#"{{"name":"x","amount":"{SECRET}"}}"#)).await;
    assert_says(&wrong_type, &["invalid type: string, expected u32 at line 1 column "]);
    // The value imitates the end of serde's sentence.
    let sly = reason(&format!(r#"{{"name":"x","amount":"a\", expected {SECRET}"}}"#)).await;
    assert_says(&sly, &["invalid type: string, expected u32"]);
    let number = reason(r#"{"name":"x","amount":41111111111}"#).await;
    assert_says(&number, &["invalid value: integer, expected u32"]);
    assert!(!number.contains("41111111111"), "{number}");
    let plain = reason(SECRET).await;
    assert_says(&plain, &["invalid type: string, expected struct Order (19 bytes)"]);
    let truncated = reason(&format!(r#"{{"name":"{SECRET}","amount""#)).await;
    assert_says(&truncated, &["EOF while parsing an object at line 1 column "]);
    let list = reason(&format!(r#" ["{SECRET}"]"#)).await;
    assert_says(&list, &["invalid length 1, expected struct Order with 2 elements"]);
}

#[tokio::test]
async fn names_that_only_the_payload_knows_are_not_quoted_either() {
    let text = say(&format!(r#"{{"kind":"{SECRET}"}}"#), |ctx, input| async move {
        Ok(ctx.schedule_activity_typed::<_, Strict>("Echo", &input).await.unwrap_err())
    })
    .await;
    assert_says(&text, &["unknown variant, expected `Small`"]);
    let text = say(&format!(r#"{{"{SECRET}":1}}"#), |ctx, input| async move {
        Ok(ctx.schedule_activity_typed::<_, Strict>("Echo", &input).await.unwrap_err())
    })
    .await;
    assert_says(&text, &["unknown field, expected `kind`"]);
}

//! Ids, names and payloads that try to run as script in whoever shows them, in every place that is shown; and rows that do not
//! decode.

use std::time::Duration;

use duroxide::Client;
use duroxide::client::StartOptions;
use duroxide::prelude::*;
use duroxide::providers::sqlite::SqliteProvider;

use crate::Failure;

/// What each would do if it ran: set a mark on the window that the test looks for.
const TEMPLATES: [&str; 20] = [
    "<script>pwned=1</script>",
    "<img src=x onerror=pwned=1>",
    "<svg onload=pwned=1>",
    "\"><script>pwned=1</script>",
    "'><img src=x onerror=pwned=1>",
    "javascript:pwned=1",
    "<iframe srcdoc='<script>parent.pwned=1</script>'>",
    "<details open ontoggle=pwned=1>",
    "<body onload=pwned=1>",
    "{{constructor.constructor('pwned=1')()}}",
    "${pwned=1}",
    "<a href=\"javascript:pwned=1\">x</a>",
    "<input autofocus onfocus=pwned=1>",
    "<math><mtext></mtext><script>pwned=1</script></math>",
    "</textarea><script>pwned=1</script>",
    "</title><script>pwned=1</script>",
    "--><script>pwned=1</script>",
    "\\u003cscript\\u003epwned=1\\u003c/script\\u003e",
    "<style>@import'javascript:pwned=1';</style>",
    "<object data=\"data:text/html,<script>opener.pwned=1</script>\">",
];

/// Puts its input wherever a text of the code goes, and then waits, or fails with it.
pub async fn everywhere(ctx: OrchestrationContext, input: String) -> Result<String, String> {
    let text = input.trim_start_matches("fail ").to_string();
    ctx.set_custom_status(&text);
    ctx.set_kv_value(&text, &text);
    if text.len() < input.len() {
        return Err(text);
    }
    // Nobody runs this activity, nobody has this child's code, and nobody sends these.
    let child = format!("{}/{text}", ctx.instance_id());
    let child = ctx.schedule_sub_orchestration_with_id(&text, child, &text);
    let activity = ctx.schedule_activity(&text, &text).with_tag(&text);
    let (signal, message) = (ctx.schedule_wait(&text), ctx.dequeue_event(&text));
    let (activity, child, ..) = tokio::join!(activity, child, signal, message);
    activity.and(child)
}

/// Instances whose every text is hostile: names and ids of children, activities, tags, events, queues, keys, values, custom
/// statuses, errors and versions.
pub async fn begin_everywhere(client: &Client) -> Result<(), Failure> {
    for (number, text) in TEMPLATES.into_iter().enumerate() {
        let id = format!("everywhere-{number}");
        client.start_orchestration(&id, "Everywhere", text).await?;
        client.enqueue_event(&id, format!("unread {text}"), text).await?;
        client.start_orchestration(format!("error-{number}"), "Everywhere", format!("fail {text}")).await?;
        let version = StartOptions::new().version(text);
        client.start_orchestration_with(format!("version-{number}"), "Everywhere", text, version).await?;
    }
    // Their children are there, too, so that whatever starts next is on top of the list.
    for number in 0..TEMPLATES.len() {
        let (often, patience) = (Duration::from_millis(20), Duration::from_secs(60));
        client.wait_for_status_change(&format!("everywhere-{number}"), 0, often, patience).await?;
    }
    Ok(())
}

/// A worker with such names.
pub async fn report(store: &SqliteProvider) -> Result<(), Failure> {
    for (number, text) in TEMPLATES.into_iter().enumerate().take(4) {
        let info = serde_json::json!({
            "id": format!("{number}{text}"), "name": text, "host": text, "version": text, "interval_ms": 3_600_000,
            "activities": [text], "orchestrations": [{ "name": text, "versions": [text] }],
        });
        let quoted = |text: &str| text.replace('\'', "''");
        store
            .execute_sql(&format!(
                "INSERT INTO workers (worker_id, last_seen_at, info) \
                 VALUES ('{}', (unixepoch() + 3600) * 1000, '{}')",
                quoted(&format!("{number}{text}")),
                quoted(&info.to_string())
            ))
            .await?;
    }
    Ok(())
}

/// Sixty of them: in the id, in the name of the orchestration, and in every payload.
pub async fn begin(client: &Client) -> Result<(), Failure> {
    for (number, text) in TEMPLATES.into_iter().enumerate() {
        client.start_orchestration(format!("x{number} {text}"), "Expense", text).await?;
        client.start_orchestration(format!("name-{number}"), text, text).await?;
        let id = format!("payload-{number}");
        client.start_orchestration(&id, "Hello", text).await?;
        client.raise_event(&id, text, text).await?;
        client.raise_event(format!("parked-{text}"), text, text).await?;
    }
    Ok(())
}

/// Rows that do not decode, whose text is script as well.
pub async fn spoil(store: &SqliteProvider) -> Result<(), Failure> {
    for (number, text) in TEMPLATES.into_iter().take(5).enumerate() {
        let quoted = text.replace('\'', "''");
        store
            .execute_sql(&format!(
                "INSERT INTO quarantine (queue, instance_id, work_item, reason, quarantined_at) \
                 VALUES ('orchestrator', 'lost-{number}', '{{\"ActivityExecute\":\"{quoted}\"', '{quoted} at line 1', 1763400000000)"
            ))
            .await?;
    }
    Ok(())
}

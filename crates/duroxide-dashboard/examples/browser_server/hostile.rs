//! Ids, names and payloads that try to run as script in whoever shows them, and rows that do not decode.

use duroxide::Client;
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

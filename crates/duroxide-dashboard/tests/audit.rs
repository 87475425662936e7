//! An audit line for every action: who, what, and how it ended.
//!
//! A program of its own: `tracing` remembers whether somebody listens to a line, and here nobody but this test decides that.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "../../duroxide/tests/runtime_support/logs.rs"]
mod logs;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use duroxide::providers::memory::MemoryProvider;
use duroxide_dashboard::Dashboard;
use logs::Logs;
use tower::ServiceExt;

async fn act(router: &Router, action: &str, body: &'static str) -> StatusCode {
    let request = Request::post(format!("/api/v1/actions/{action}"))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("x-duroxide-action", "1")
        .header("x-forwarded-user", "grace")
        .body(Body::from(body))
        .unwrap();
    router.clone().oneshot(request).await.unwrap().status()
}

/// Takes an action, and has one refused, on a thread whose log nobody reads. So the lines are reached there first.
async fn reach_the_lines_elsewhere(router: Router) {
    let elsewhere = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            assert!(act(&router, "delete", "{\"instance\":\"nobody\"}").await.is_client_error());
            let start = "{\"orchestration\":\"Order\",\"instance\":\"zero\"}";
            assert_eq!(act(&router, "start", start).await, StatusCode::OK);
        });
    };
    tokio::task::spawn_blocking(elsewhere).await.unwrap();
}

// semantics: DASH-4
#[tokio::test]
async fn every_action_leaves_an_audit_line_with_who_and_what_and_no_payload() {
    let (logs, _guard) = Logs::keep();
    let router = Dashboard::new(Arc::new(MemoryProvider::new()))
        .operator_header("X-Forwarded-User")
        .crash_button(|| async { Ok("killed 7".to_string()) })
        .into_router();
    reach_the_lines_elsewhere(router.clone()).await;
    let actions = [
        ("start", "{\"orchestration\":\"Order\",\"instance\":\"one\",\"input\":\"sesame\"}"),
        ("raise", "{\"instance\":\"one\",\"name\":\"go\",\"data\":\"sesame\"}"),
        ("enqueue", "{\"instance\":\"one\",\"queue\":\"q\",\"data\":\"sesame\"}"),
        ("cancel", "{\"instance\":\"one\",\"reason\":\"enough\"}"),
        ("retry", "{\"instance\":\"one\"}"),
        ("prune", "{\"instance\":\"one\",\"keep_last\":1}"),
        ("delete", "{\"instance\":\"nobody\"}"),
        ("release", "{\"rows\":[1]}"),
        ("drop", "{\"rows\":[1]}"),
        ("crash", "{}"),
        ("bulk", "{\"action\":\"cancel\",\"instances\":[\"two\"]}"),
    ];
    for (action, body) in actions {
        let status = act(&router, action, body).await;
        assert!(!status.is_server_error(), "{action}: {status}");
    }
    let audit = logs.of_target("duroxide::audit");
    assert_eq!(audit.len(), actions.len(), "{audit:#?}");
    for ((action, _), line) in actions.iter().zip(&audit) {
        let action = if *action == "bulk" { "cancel" } else { action };
        assert_eq!((line.field("action"), line.field("who")), (action, "grace"), "{line:?}");
    }
    assert!(
        audit.iter().any(|line| line.field("outcome") == "refused" && line.field("instance") == "nobody"),
        "{audit:#?}"
    );
    let all = logs.all();
    assert!(!format!("{all:?}").contains("sesame"), "{all:#?}");
}

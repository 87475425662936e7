//! Bounds on bodies, pages and streams; refusals in the API's own form; an audit line for every action.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use duroxide::Client;
use duroxide::providers::memory::MemoryProvider;
use duroxide_dashboard::Dashboard;
use tower::ServiceExt;

async fn get(router: &Router, path: &str) -> Response {
    let request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
    router.clone().oneshot(request).await.unwrap()
}

async fn post(router: &Router, path: &str, body: impl Into<Body>) -> Response {
    let request = Request::post(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("x-duroxide-action", "1")
        .body(body.into())
        .unwrap();
    router.clone().oneshot(request).await.unwrap()
}

async fn json(response: Response) -> serde_json::Value {
    serde_json::from_slice(&to_bytes(response.into_body(), usize::MAX).await.unwrap()).unwrap()
}

// semantics: DASH-5
#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let router = Dashboard::new(Arc::new(MemoryProvider::new())).max_body_bytes(1000).into_router();
    let body = |size| format!("{{\"instance\":\"a\",\"name\":\"e\",\"data\":\"{}\"}}", "x".repeat(size));
    assert_eq!(
        post(&router, "/api/v1/actions/raise", body(2000)).await.status(),
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert_eq!(post(&router, "/api/v1/actions/raise", body(10)).await.status(), StatusCode::OK);
}

// semantics: DASH-5
#[tokio::test]
async fn wrong_parameters_are_refused_with_a_sentence() {
    let router = Dashboard::new(Arc::new(MemoryProvider::new())).into_router();
    for path in [
        "/api/v1/instances?limit=99999999",
        "/api/v1/instances?state=sleeping",
        "/api/v1/instances?cursor=nonsense",
        "/api/v1/instances?q=%00",
        "/api/v1/instance",
        "/api/v1/instance?id=",
        "/api/v1/instance/events?id=a&order=sideways",
        "/api/v1/instance/payload?id=a&what=value",
    ] {
        let response = get(&router, path).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{path}");
        assert!(json(response).await["error"].as_str().is_some_and(|error| error.len() > 5), "{path}");
    }
    for (path, body) in [
        ("/api/v1/actions/raise", "{"),
        ("/api/v1/actions/raise", "{\"instance\":\"\",\"name\":\"x\"}"),
        ("/api/v1/actions/raise", "{\"instance\":\"a\",\"name\":\"\"}"),
        ("/api/v1/actions/start", "{\"orchestration\":\"\"}"),
        ("/api/v1/actions/release", "{\"rows\":[18446744073709551615]}"),
        ("/api/v1/actions/bulk", "{\"action\":\"burn\",\"instances\":[]}"),
    ] {
        assert_eq!(post(&router, path, body).await.status(), StatusCode::BAD_REQUEST, "{path} {body}");
    }
    let many: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    let body = serde_json::json!({ "action": "cancel", "instances": many }).to_string();
    assert_eq!(post(&router, "/api/v1/actions/bulk", body).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(get(&router, "/api/v1/instance?id=nobody").await.status(), StatusCode::NOT_FOUND);
}

// semantics: DASH-5
#[tokio::test]
async fn no_more_streams_are_open_than_allowed() {
    let router = Dashboard::new(Arc::new(MemoryProvider::new())).max_streams(2).into_router();
    let first = get(&router, "/api/v1/stream").await;
    let second = get(&router, "/api/v1/stream?instance=a").await;
    assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::OK));
    assert_eq!(get(&router, "/api/v1/stream").await.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(first);
    assert_eq!(get(&router, "/api/v1/stream").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_id_may_hold_anything_that_a_url_cannot() {
    let store = Arc::new(MemoryProvider::new());
    let client = Client::new(store.clone());
    let router = Dashboard::new(store).into_router();
    for (id, encoded) in [("..", ".."), ("a/b?c#d", "a%2Fb%3Fc%23d"), ("ü \"<>", "%C3%BC%20%22%3C%3E")] {
        client.start_orchestration(id, "Order", "7").await.unwrap();
        let about = json(get(&router, &format!("/api/v1/instance?id={encoded}")).await).await;
        assert_eq!(about["id"], id);
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

// semantics: DASH-4
#[tokio::test]
async fn every_action_leaves_an_audit_line_with_who_and_what_and_no_payload() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let router = Dashboard::new(Arc::new(MemoryProvider::new()))
        .operator_header("X-Forwarded-User")
        .crash_button(|| async { Ok("killed 7".to_string()) })
        .into_router();
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
        let request = Request::post(format!("/api/v1/actions/{action}"))
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("x-duroxide-action", "1")
            .header("x-forwarded-user", "grace")
            .body(Body::from(body))
            .unwrap();
        let status = router.clone().oneshot(request).await.unwrap().status();
        assert!(!status.is_server_error(), "{action}: {status}");
    }
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let audit: Vec<&str> = text.lines().filter(|line| line.contains("duroxide::audit")).collect();
    assert_eq!(audit.len(), actions.len(), "{text}");
    for ((action, _), line) in actions.iter().zip(&audit) {
        let action = if *action == "bulk" { "cancel" } else { action };
        assert!(line.contains(&format!("action=\"{action}\"")) && line.contains("who=\"grace\""), "{line}");
    }
    assert!(
        audit.iter().any(|line| line.contains("outcome=\"refused\"") && line.contains("nobody")),
        "{text}"
    );
    assert!(!text.contains("sesame"), "{text}");
}

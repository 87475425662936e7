//! Bounds on bodies, pages and streams; refusals in the API's own form.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use duroxide::prelude::*;
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
    let store = Arc::new(MemoryProvider::new());
    Client::new(store.clone()).start_orchestration("a", "Order", "").await.unwrap();
    let router = Dashboard::new(store).max_body_bytes(1000).into_router();
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
        "/api/v1/instances?limit=501",
        "/api/v1/quarantine?limit=0",
        "/api/v1/instance/executions?id=a&limit=0",
        "/api/v1/instance/events?id=a&limit=1001",
        "/api/v1/instance/events?id=a&cut=65537",
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
    let trace = Request::builder().method("TRACE").uri("/api/v1/meta").header("host", "localhost");
    let answer = router.clone().oneshot(trace.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(
        answer.status(),
        StatusCode::METHOD_NOT_ALLOWED,
        "it changes nothing, and needs no content type"
    );
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

// semantics: DASH-7
#[tokio::test]
async fn whoever_sends_to_nobody_or_to_an_instance_that_has_ended_hears_of_it() {
    let store = Arc::new(MemoryProvider::new());
    let client = Client::new(store.clone());
    let router = Dashboard::new(store.clone()).into_router();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Short", |_: OrchestrationContext, _: String| async move { Ok(String::new()) })
        .build_result()
        .unwrap();
    let runtime = Runtime::start_with_store(store, ActivityRegistry::default(), orchestrations).await;
    client.start_orchestration("ended", "Short", "").await.unwrap();
    client.wait_for_orchestration("ended", Duration::from_secs(60)).await.unwrap();
    runtime.shutdown(None).await;
    client.start_orchestration("queued", "Short", "").await.unwrap();
    for (id, status) in
        [("nobody", StatusCode::NOT_FOUND), ("ended", StatusCode::CONFLICT), ("queued", StatusCode::OK)]
    {
        for (action, name) in [("raise", "name"), ("enqueue", "queue")] {
            let body = serde_json::json!({ "instance": id, name: "news", "data": "as it is" });
            let response = post(&router, &format!("/api/v1/actions/{action}"), body.to_string()).await;
            assert_eq!(response.status(), status, "{action} {id}");
            let said = json(response).await;
            assert_eq!(said["error"].is_string(), status != StatusCode::OK, "{said}");
        }
        // The start of the queued one is a message, too.
        let sent = client.list_queued_messages(id, 10, 1_000).await.unwrap();
        assert_eq!(sent.len(), if id == "queued" { 3 } else { 0 }, "{sent:?}");
    }
    assert!(client.list_parked_messages(10).await.unwrap().is_empty());
}

//! Every route with every token, origin, host and content type: who gets in, and what with.
//!
//! The routes come from the OpenAPI document, which is made of the router itself, so a new route is tested without a
//! word here.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use duroxide::providers::memory::MemoryProvider;
use duroxide_dashboard::Dashboard;
use tower::ServiceExt;

fn router(configure: impl FnOnce(Dashboard) -> Dashboard) -> Router {
    configure(Dashboard::new(Arc::new(MemoryProvider::new()))).into_router()
}

/// Method and path of every documented call.
fn routes() -> Vec<(String, String)> {
    let document = duroxide_dashboard::openapi();
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone()))
        })
        .collect()
}

#[derive(Clone)]
struct Call {
    method: String,
    path: String,
    token: Option<&'static str>,
    origin: Option<&'static str>,
    host: Option<&'static str>,
    content_type: Option<&'static str>,
    has_action_header: bool,
}

impl Call {
    /// A call as our own pages make it, with the full token.
    fn good(method: &str, path: &str) -> Self {
        Self {
            method: method.to_string(),
            path: path.to_string(),
            token: Some("Bearer full"),
            origin: Some("http://localhost:7777"),
            host: Some("localhost:7777"),
            content_type: Some("application/json"),
            has_action_header: true,
        }
    }

    async fn send(&self, router: &Router) -> (StatusCode, HeaderMap) {
        let mut request = Request::builder().method(self.method.as_str()).uri(&self.path);
        let headers = [
            ("authorization", self.token),
            ("origin", self.origin),
            ("host", self.host),
            ("content-type", self.content_type),
            ("x-duroxide-action", self.has_action_header.then_some("1")),
        ];
        for (name, value) in headers {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let response = router.clone().oneshot(request.body(Body::from("{}")).unwrap()).await.unwrap();
        (response.status(), response.headers().clone())
    }
}

/// Whether a request got as far as the handler: whatever that said, it was no refusal of the guard.
fn is_let_in(status: StatusCode) -> bool {
    ![
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::MISDIRECTED_REQUEST,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
    ]
    .contains(&status)
}

// semantics: DASH-1, DASH-2
#[tokio::test]
async fn every_route_lets_in_who_may_and_nobody_else() {
    let tokens = router(|dashboard| dashboard.token("full").read_only_token("look"));
    let read_only = router(|dashboard| dashboard.token("full").read_only_token("look").read_only());
    let mut checked = 0;
    let routes = routes();
    assert!(routes.len() >= 26, "{}", routes.len());
    for (method, path) in routes {
        let changes = method == "POST";
        let good = Call::good(&method, &path);
        for (server, is_read_only) in [(&tokens, false), (&read_only, true)] {
            let holders = [
                (None, None),
                (Some("Bearer wrong"), None),
                (Some("Bearer "), None),
                (Some("Bearer fullx"), None),
                (Some("Basic full"), None),
                (Some("full"), None),
                (Some("Bearer look"), Some(false)),
                (Some("Bearer full"), Some(!is_read_only)),
            ];
            for (token, may_act) in holders {
                for (origin, host) in [
                    (Some("http://localhost:7777"), Some("localhost:7777")),
                    (None, Some("127.0.0.1:7777")),
                    (Some("http://evil.example"), Some("localhost:7777")),
                    (Some("null"), Some("localhost:7777")),
                    (Some("http://localhost:1"), Some("localhost:7777")),
                    (Some("http://evil.example"), Some("evil.example")),
                    (None, Some("evil.example:7777")),
                    (None, None),
                ] {
                    for content_type in [
                        Some("application/json"),
                        Some("application/json; charset=utf-8"),
                        Some("text/plain"),
                        Some("application/x-www-form-urlencoded"),
                        None,
                    ] {
                        for has_action_header in [true, false] {
                            let call =
                                Call { token, origin, host, content_type, has_action_header, ..good.clone() };
                            let is_json =
                                content_type.is_some_and(|kind| kind.starts_with("application/json"));
                            let expected = match (host, origin, may_act) {
                                (None, ..) => Some(StatusCode::BAD_REQUEST),
                                (Some(host), ..) if host.starts_with("evil") => {
                                    Some(StatusCode::MISDIRECTED_REQUEST)
                                }
                                (_, Some(origin), _) if origin != "http://localhost:7777" => {
                                    Some(StatusCode::FORBIDDEN)
                                }
                                (_, _, None) => Some(StatusCode::UNAUTHORIZED),
                                (_, _, Some(false)) if changes => Some(StatusCode::FORBIDDEN),
                                _ if changes && !is_json => Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
                                _ if changes && !has_action_header => Some(StatusCode::FORBIDDEN),
                                _ => None,
                            };
                            let (status, _) = call.send(server).await;
                            let said = format!(
                                "{method} {path} {token:?} {origin:?} {host:?} {content_type:?} {has_action_header}: {status}"
                            );
                            match expected {
                                Some(expected) => assert_eq!(status, expected, "{said}"),
                                None => assert!(is_let_in(status) && !status.is_server_error(), "{said}"),
                            }
                            checked += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(checked > 30_000, "{checked}");
}

// semantics: DASH-1
#[tokio::test]
async fn without_a_token_everybody_on_this_machine_may_act_unless_it_is_read_only() {
    for (server, may_act) in
        [(router(|dashboard| dashboard), true), (router(|dashboard| dashboard.read_only()), false)]
    {
        for (method, path) in routes() {
            let call = Call { token: None, ..Call::good(&method, &path) };
            let (status, _) = call.send(&server).await;
            let is_open = method == "GET" || may_act;
            assert_eq!(is_let_in(status), is_open, "{method} {path}: {status}");
        }
    }
}

// semantics: DASH-1
#[tokio::test]
async fn a_token_for_looking_alone_lets_nobody_act_and_an_empty_token_lets_nobody_in() {
    let looking = router(|dashboard| dashboard.read_only_token("look"));
    let call = Call { token: Some("Bearer look"), ..Call::good("GET", "/api/v1/meta") };
    assert_eq!(call.send(&looking).await.0, StatusCode::OK);
    let call = Call { token: None, ..call };
    assert_eq!(call.send(&looking).await.0, StatusCode::UNAUTHORIZED);
    let empty = router(|dashboard| dashboard.token(""));
    for token in [None, Some("Bearer "), Some("Bearer")] {
        let call = Call { token, ..Call::good("GET", "/api/v1/meta") };
        assert_eq!(call.send(&empty).await.0, StatusCode::UNAUTHORIZED);
    }
}

// semantics: DASH-2
#[tokio::test]
async fn names_that_were_allowed_are_answered_and_others_are_not() {
    let server = router(|dashboard| dashboard.allow_host("Ops.example.com"));
    let call = |host, origin| Call { host: Some(host), origin, ..Call::good("GET", "/api/v1/meta") };
    assert_eq!(
        call("ops.example.com", Some("https://ops.example.com")).send(&server).await.0,
        StatusCode::OK
    );
    assert_eq!(
        call("ops.example.com", Some("https://example.com")).send(&server).await.0,
        StatusCode::FORBIDDEN
    );
    assert_eq!(call("other.example.com", None).send(&server).await.0, StatusCode::MISDIRECTED_REQUEST);
}

// semantics: DASH-3
#[tokio::test]
async fn every_answer_carries_the_policy_and_pages_need_no_token() {
    let server = router(|dashboard| dashboard.token("full"));
    let mut paths: Vec<(String, String)> = routes();
    paths.extend(
        ["/", "/app.js", "/app.css", "/icon.svg", "/nothing", "/../etc/passwd", "/api/v1/nothing", "/api"]
            .map(|path| ("GET".to_string(), path.to_string())),
    );
    for (method, path) in paths {
        let call = Call { token: None, ..Call::good(&method, &path) };
        let (status, headers) = call.send(&server).await;
        let expected = match path.as_str() {
            "/" | "/app.js" | "/app.css" | "/icon.svg" => StatusCode::OK,
            path if path.starts_with("/api") => StatusCode::UNAUTHORIZED,
            _ => StatusCode::NOT_FOUND,
        };
        assert_eq!(status, expected, "{method} {path}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert_eq!(headers["x-frame-options"], "DENY");
        if path.starts_with("/api") {
            assert_eq!(headers["cache-control"], "no-store");
        }
    }
}

/// Inline script would need a policy that allows it.
#[test]
fn the_page_holds_no_inline_script_or_style() {
    let page = include_str!("../assets/index.html");
    assert!(page.contains("src=\"./app.js\"") && page.contains("href=\"./app.css\""), "{page}");
    assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" on"), "{page}");
    assert_eq!(page.matches("<script").count(), 1, "{page}");
}

// semantics: DASH-1, DASH-2
#[tokio::test]
async fn a_route_of_the_application_stands_behind_the_same_guard() {
    use axum::routing::get;
    let routed = router(|dashboard| {
        let handler = get(|| async { "7" }).post(|| async { "8" });
        dashboard
            .token("full")
            .read_only_token("look")
            .allow_host("ops.example.com")
            .route("/orders/{id}", handler)
    });
    let call = |method| Call { token: Some("Bearer full"), ..Call::good(method, "/orders/7") };
    let status = async |call: Call| call.send(&routed).await.0;
    assert_eq!(status(call("GET")).await, StatusCode::OK);
    assert_eq!(status(Call { token: Some("Bearer look"), ..call("GET") }).await, StatusCode::OK);
    assert_eq!(status(Call { token: None, ..call("GET") }).await, StatusCode::UNAUTHORIZED);
    let from_evil = Call { origin: Some("http://evil.example"), ..call("GET") };
    assert_eq!(status(from_evil).await, StatusCode::FORBIDDEN);
    for host in ["a.localhost", "localhost.", "ops.example.com:443"] {
        assert_eq!(
            status(Call { host: Some(host), origin: None, ..call("GET") }).await,
            StatusCode::OK,
            "{host}"
        );
    }
    let elsewhere = Call { host: Some("evil.example"), origin: None, ..call("GET") };
    assert_eq!(status(elsewhere).await, StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(status(call("POST")).await, StatusCode::OK);
    assert_eq!(status(Call { token: Some("Bearer look"), ..call("POST") }).await, StatusCode::FORBIDDEN);
    assert_eq!(status(Call { has_action_header: false, ..call("POST") }).await, StatusCode::FORBIDDEN);
}

//! The live stream: what changes arrives, a stream that was cut goes on where it was, and one task looks for all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[allow(dead_code, reason = "other tests restart, crash and copy servers")]
#[path = "../../duroxide-pg/tests/support/cluster.rs"]
mod cluster;
#[path = "../../duroxide-pg/tests/support/database.rs"]
mod database;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use duroxide::prelude::*;
use duroxide::providers::Provider;
use duroxide::providers::memory::MemoryProvider;
use duroxide_dashboard::Dashboard;
use futures_util::StreamExt;
use tokio::time::timeout;
use tower::ServiceExt;

const PATIENCE: Duration = Duration::from_secs(30);

struct Events {
    body: axum::body::BodyDataStream,
    text: String,
    last_id: String,
}

impl Events {
    async fn open(router: &Router, path: &str, last_id: Option<&str>) -> Self {
        let mut request = Request::get(path).header("host", "localhost");
        if let Some(id) = last_id {
            request = request.header("last-event-id", id);
        }
        let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body().into_data_stream(), text: String::new(), last_id: String::new() }
    }

    /// The next event of this kind that the check accepts.
    async fn until(&mut self, kind: &str, accepts: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        timeout(PATIENCE, self.next(kind, accepts)).await.expect("an event in time")
    }

    async fn next(&mut self, kind: &str, accepts: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let field =
                    |name: &str| block.lines().find_map(|line| line.strip_prefix(name).map(str::trim));
                if let Some(id) = field("id:") {
                    self.last_id = id.to_string();
                }
                if field("event:") != Some(kind) {
                    continue;
                }
                let data: serde_json::Value = serde_json::from_str(field("data:").unwrap()).unwrap();
                if accepts(&data) {
                    return data;
                }
            }
            let part = self.body.next().await.expect("more of the stream").unwrap();
            self.text.push_str(std::str::from_utf8(&part).unwrap());
        }
    }
}

async fn started() -> (Arc<MemoryProvider>, Arc<Runtime>, Router) {
    let store = Arc::new(MemoryProvider::new());
    let activities = ActivityRegistry::builder().build_result().unwrap();
    let waits =
        |ctx: OrchestrationContext, _: String| async move { Ok::<_, String>(ctx.dequeue_event("go").await) };
    let orchestrations = OrchestrationRegistry::builder().register("Wait", waits).build_result().unwrap();
    let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
    let router = Dashboard::new(store.clone()).into_router();
    (store, runtime, router)
}

fn holds(data: &serde_json::Value, id: &str, state: &str) -> bool {
    data["rows"]
        .as_array()
        .is_some_and(|rows| rows.iter().any(|row| row["id"] == id && row["state"] == state))
}

// semantics: DASH-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_figures_arrive_as_they_change_and_a_cut_stream_goes_on() {
    let (store, runtime, router) = started().await;
    let client = Client::new(store);
    let mut events = Events::open(&router, "/api/v1/stream", None).await;
    events.until("overview", |overview| overview["instances"] == 0).await;
    client.start_orchestration("one", "Wait", "").await.unwrap();
    events.until("instances", |data| holds(data, "one", "waiting")).await;
    let last_id = events.last_id.clone();
    let mut other = Events::open(&router, "/api/v1/stream", None).await;
    drop(events);

    client.enqueue_event("one", "go", "x").await.unwrap();
    // What it would have missed is sent before anything else.
    other.until("instances", |data| holds(data, "one", "completed")).await;
    let mut resumed = Events::open(&router, "/api/v1/stream", Some(&last_id)).await;
    resumed.until("instances", |data| holds(data, "one", "completed")).await;

    // An id of an earlier process is worth nothing: everything has to be read again.
    let mut stranger = Events::open(&router, "/api/v1/stream", Some("00000000-7")).await;
    stranger.until("reset", |_| true).await;
    runtime.shutdown(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_an_instance_hears_of_it_and_of_no_other() {
    let (store, runtime, router) = started().await;
    let client = Client::new(store);
    for id in ["one", "two"] {
        client.start_orchestration(id, "Wait", "").await.unwrap();
    }
    let mut events = Events::open(&router, "/api/v1/stream?instance=one", None).await;
    events.until("overview", |_| true).await;
    client.enqueue_event("two", "go", "").await.unwrap();
    client.wait_for_orchestration("two", PATIENCE).await.unwrap();
    client.enqueue_event("one", "go", "").await.unwrap();
    let told = events.until("instance", |_| true).await;
    assert_eq!(told["id"], "one");
    runtime.shutdown(None).await;
}

// semantics: DASH-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_process_deletes_makes_a_page_read_everything_again() {
    let (store, runtime, router) = started().await;
    let client = Client::new(store);
    let mut events = Events::open(&router, "/api/v1/stream", None).await;
    events.until("overview", |overview| overview["instances"] == 0).await;
    client.start_orchestration("one", "Wait", "").await.unwrap();
    events.until("instances", |data| holds(data, "one", "waiting")).await;
    client.delete_instance("one", true).await.unwrap();
    events.until("reset", |_| true).await;
    runtime.shutdown(None).await;
}

// semantics: DASH-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_an_old_instance_arrives_among_more_than_a_list_shows() {
    let (store, runtime, router) = started().await;
    let client = Client::new(store);
    for number in 0..400 {
        client.start_orchestration(format!("i-{number}"), "Wait", "").await.unwrap();
    }
    let waiting = |overview: &serde_json::Value| {
        let states = overview["states"].as_array().unwrap();
        states.iter().any(|state| state["state"] == "waiting" && state["count"] == 400)
    };
    let mut events = Events::open(&router, "/api/v1/stream", None).await;
    events.until("overview", waiting).await;
    client.enqueue_event("i-0", "go", "x").await.unwrap();
    events.until("instances", |data| holds(data, "i-0", "completed")).await;
    runtime.shutdown(None).await;
}

#[tokio::test]
async fn streams_end_with_the_server() {
    let (end, ended) = tokio::sync::watch::channel(false);
    let router = Dashboard::new(Arc::new(MemoryProvider::new())).shutdown(ended).into_router();
    let mut events = Events::open(&router, "/api/v1/stream", None).await;
    events.until("overview", |_| true).await;
    end.send(true).unwrap();
    let rest = async { while events.body.next().await.is_some() {} };
    timeout(PATIENCE, rest).await.expect("the stream ends");
}

/// One handle on a store acts, and another on the same store serves the pages: as an application and `duroxide serve` do.
/// The pages are never read by the clock, so what arrives was signalled from one handle to the other.
async fn what_another_handle_does_arrives_by_the_signal(
    acting: Arc<dyn Provider>,
    serving: Arc<dyn Provider>,
) {
    let client = Client::new(acting.clone());
    let router = Dashboard::new(serving).look_every(Duration::from_secs(24 * 60 * 60)).into_router();
    let mut list = Events::open(&router, "/api/v1/stream", None).await;
    list.until("overview", |overview| overview["instances"] == 0).await;
    client.start_orchestration("one", "Wait", "").await.unwrap();
    list.until("instances", |data| holds(data, "one", "pending")).await;

    let waits =
        |ctx: OrchestrationContext, _: String| async move { Ok::<_, String>(ctx.dequeue_event("go").await) };
    let orchestrations = OrchestrationRegistry::builder().register("Wait", waits).build_result().unwrap();
    let activities = ActivityRegistry::builder().build_result().unwrap();
    let runtime = Runtime::start_with_store(acting, activities, orchestrations).await;
    list.until("instances", |data| holds(data, "one", "waiting")).await;
    let mut page = Events::open(&router, "/api/v1/stream?instance=one", None).await;
    page.until("overview", |_| true).await;
    client.enqueue_event("one", "go", "x").await.unwrap();
    assert_eq!(page.until("instance", |_| true).await["id"], "one");
    list.until("instances", |data| holds(data, "one", "completed")).await;
    runtime.shutdown(None).await;
}

// semantics: DASH-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_handle_on_a_file_does_arrives_by_the_signal() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("live.db").display());
    let open = async || Arc::new(SqliteProvider::new(&url, None).await.unwrap());
    what_another_handle_does_arrives_by_the_signal(open().await, open().await).await;
}

// semantics: DASH-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_handle_on_a_postgresql_schema_does_arrives_by_the_signal() {
    let database = database::Database::new().await;
    let open = async || duroxide_pg::open(database.url()).await.unwrap();
    what_another_handle_does_arrives_by_the_signal(open().await, open().await).await;
}

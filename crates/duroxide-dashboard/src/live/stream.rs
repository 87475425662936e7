//! The stream of one browser, as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State as Shares};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::hub::OpenStream;
use super::ring::Missed;
use crate::Shared;
use crate::api::check_id;
use crate::api::error::ApiError;

/// A proxy that sees nothing for a minute may close the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Changes of an instance come in bursts; a page hears of them at most this often.
const BURST: Duration = Duration::from_millis(100);

/// What to hear of.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamParams {
    /// Also of changes of this instance.
    instance: Option<String>,
}

/// What changes, as it changes: `overview` (the whole of it), `instances` (changed rows, and ids of deleted ones),
/// `instance` (the watched one changed: read it again), `reset` (something was missed: read everything again). Each has
/// an id; with `Last-Event-ID` a stream goes on where it was cut.
#[utoipa::path(get, path = "/stream", params(StreamParams), responses(
    (status = 200, description = "Server-sent events.", content_type = "text/event-stream", body = String),
    (status = 429, description = "Too many streams are open.", body = crate::api::error::Refusal)))]
pub(crate) async fn stream(
    Shares(shared): Shares<Arc<Shared>>,
    Query(params): Query<StreamParams>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let instance = params.instance.filter(|id| !id.is_empty());
    if let Some(id) = &instance {
        check_id(id)?;
    }
    let open = shared.hub.open(instance);
    let open =
        open.ok_or_else(|| ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too many live streams are open"))?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let reader = Reader::new(open, last, shared.settings.shutdown.clone());
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// What one browser has been sent.
struct Reader {
    open: OpenStream,
    shutdown: Option<watch::Receiver<bool>>,
    /// The number of the last message that it knows.
    number: u64,
    waiting: VecDeque<Event>,
}

impl Reader {
    fn new(open: OpenStream, last_id: Option<&str>, shutdown: Option<watch::Receiver<bool>>) -> Self {
        let (overview, newest) = open.latest();
        let mut reader = Self { open, shutdown, number: newest, waiting: VecDeque::new() };
        let known = last_id.map(|id| reader.number_of(id));
        match known {
            // It goes on where it was; what it missed follows with the next look into the ring.
            Some(Some(number)) if matches!(reader.open.after(number), Missed::Kept(_)) => {
                reader.number = number
            }
            Some(_) => reader.waiting.push_back(reader.event("reset", "{}")),
            None => {}
        }
        if let Some(overview) = overview {
            reader.waiting.push_back(reader.event("overview", &overview));
        } else if reader.waiting.is_empty() {
            // Headers reach a browser with the first byte, so there is one at once.
            reader.waiting.push_back(Event::default().comment("open"));
        }
        reader
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let (boot, number) = id.split_once('-')?;
        if boot != self.open.boot() {
            return None;
        }
        number.parse().ok()
    }

    fn event(&self, event: &str, data: &str) -> Event {
        Event::default().event(event).id(format!("{}-{}", self.open.boot(), self.number)).data(data)
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            self.take();
            if !self.waiting.is_empty() {
                continue;
            }
            let is_instance = tokio::select! {
                is_instance = self.open.changed() => is_instance,
                () = closed(&mut self.shutdown) => return None,
            };
            if is_instance {
                tokio::time::sleep(BURST).await;
                let data = serde_json::json!({ "id": self.open.instance() }).to_string();
                self.waiting.push_back(self.event("instance", &data));
            }
        }
    }

    /// Takes over what the hub has told since.
    fn take(&mut self) {
        match self.open.after(self.number) {
            Missed::Kept(messages) => {
                for message in messages {
                    self.number = message.number;
                    self.waiting.push_back(self.event(message.event, &message.data));
                }
            }
            Missed::Lost => {
                self.number = self.open.latest().1;
                self.waiting.push_back(self.event("reset", "{}"));
            }
        }
    }
}

/// Waits for the end of the server; for ever if nobody tells.
async fn closed(shutdown: &mut Option<watch::Receiver<bool>>) {
    let is_told = match shutdown {
        Some(shutdown) => shutdown.wait_for(|is_over| *is_over).await.is_ok(),
        None => false,
    };
    if !is_told {
        std::future::pending().await
    }
}

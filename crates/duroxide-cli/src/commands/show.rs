//! `duroxide show`

use std::time::Duration;

use clap::Args;
use duroxide::client::InstanceDescription;
use duroxide::model::{EventView, Wait};
use duroxide::providers::{EventRequest, InstanceRow};
use serde::Serialize;

use super::watching::Watching;
use super::{events, waits};
use crate::failure::{Failure, Outcome};
use crate::output::{
    Look, Output, Page, Paint, counted, duration, grouped, parse_duration, printable, since,
};
use crate::store::Store;

/// How long a follower waits between two looks at most.
const LOOK: Duration = Duration::from_millis(500);
/// To how many bytes texts are cut, unless all is asked for.
const CUT: usize = 2_000;
/// How many events a call reads.
const EVENTS_AT_ONCE: usize = 1_000;

/// Arguments of `duroxide show`.
#[derive(Debug, Args)]
pub struct Show {
    /// Id of the instance
    #[arg(value_name = "INSTANCE")]
    id: String,
    /// Show its history, too
    #[arg(long)]
    history: bool,
    /// Show only what it waits for
    #[arg(long, conflicts_with_all = ["history", "follow"])]
    waiting: bool,
    /// Print its history as it grows, until it ends
    #[arg(short, long)]
    follow: bool,
    /// Stop following after so long
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "follow")]
    timeout: Option<Duration>,
    /// Show the history of this execution instead of the latest
    #[arg(long, value_name = "NUMBER", requires = "history")]
    execution: Option<u64>,
    /// How many of the newest events to show
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    events: usize,
    /// Do not cut payloads
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    watching: Watching,
}

/// What programs get.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    description: InstanceDescription,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Vec<EventView>>,
    /// Which execution was asked for.
    #[serde(skip)]
    execution: Option<u64>,
}

impl Show {
    pub async fn run(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        if self.follow {
            return self.follow(store, output).await;
        }
        self.watching.draw(output, async |output| self.draw(store, output).await).await
    }

    async fn draw(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let description = store.client.describe(&self.id, self.cut()).await?;
        if self.waiting {
            return self.waits(&description, output);
        }
        let events = if self.history { Some(self.newest(store).await?) } else { None };
        let shown = Shown { description, events, execution: self.execution };
        output.one(&shown, page)
    }

    fn cut(&self) -> usize {
        if self.full { usize::MAX / 2 } else { CUT }
    }

    fn waits(&self, description: &InstanceDescription, output: &mut Output<'_>) -> Outcome {
        if let (Some(blocked), false) = (&description.blocked, output.is_for_programs()) {
            output.warn(&format!("blocked: {}", printable(&blocked.reason.sentence())))?;
        }
        let nothing = match description.row.state.is_ended() {
            true => "it has ended and waits for nothing",
            false if description.blocked.is_some() => "it waits for nothing else",
            false => "it waits for nothing: its next turn is about to come",
        };
        let id = &description.row.instance;
        output.rows(&description.waits, nothing, |waits: &[Wait], look| waits::table(waits, id, look))
    }

    /// The newest events, ascending.
    async fn newest(&self, store: &Store) -> Outcome<Vec<EventView>> {
        let mut found: Vec<EventView> = Vec::new();
        while found.len() < self.events {
            let wanted = (self.events - found.len()).min(EVENTS_AT_ONCE);
            let mut request = EventRequest::of(&self.id).newest_first().limit(wanted).cut(self.cut());
            request.execution_id = self.execution;
            request.before_event_id = found.last().map(|event| event.event_id);
            let events = store.client.read_events(&request).await?;
            let is_last = events.len() < wanted;
            found.extend(events);
            if is_last {
                break;
            }
        }
        found.reverse();
        match (found.is_empty(), self.execution) {
            (true, Some(execution)) => Err(Failure::not_found(format!(
                "instance '{}' has no execution {execution}",
                printable(&self.id)
            ))),
            _ => Ok(found),
        }
    }

    /// Prints events as they come, and those of the next execution after the last of the one before.
    async fn follow(&self, store: &Store, output: &mut Output<'_>) -> Outcome {
        let deadline = self.timeout.map(|timeout| output.console.clock.monotonic() + timeout);
        let mut seen = Seen::default();
        loop {
            // Described first: what ended before it was read has all its events.
            let description = store.client.describe(&self.id, self.cut()).await?;
            if !seen.has_begun {
                self.begin(&description, output)?;
                seen.has_begun = true;
            }
            self.print_new(store, &mut seen, description.row.execution_id, output).await?;
            if description.row.state.is_ended() {
                return self.end(&description, output);
            }
            if deadline.is_some_and(|deadline| output.console.clock.monotonic() >= deadline) {
                return Err(Failure::timed_out(format!("'{}' has not ended yet", printable(&self.id))));
            }
            // Ends early when the instance does.
            let _ = store.client.wait_for_orchestration(&self.id, LOOK).await;
        }
    }

    fn begin(&self, description: &InstanceDescription, output: &mut Output<'_>) -> Outcome {
        let row = &description.row;
        output.note(&format!(
            "following {} ({} {})",
            printable(&row.instance),
            printable(&row.name),
            printable(&row.version)
        ))
    }

    async fn print_new(
        &self,
        store: &Store,
        seen: &mut Seen,
        latest: u64,
        output: &mut Output<'_>,
    ) -> Outcome {
        if seen.execution == 0 {
            seen.execution = latest;
            let request =
                EventRequest::of(&self.id).execution(latest).newest_first().limit(self.events).cut(0);
            let first = store.client.read_events(&request).await?.last().map(|event| event.event_id);
            seen.event = first.map_or(0, |first| first.saturating_sub(1));
        }
        loop {
            let request = EventRequest::of(&self.id)
                .execution(seen.execution)
                .from_event(seen.event + 1)
                .limit(EVENTS_AT_ONCE)
                .cut(self.cut());
            let new = store.client.read_events(&request).await?;
            for event in &new {
                output.one(event, events::line)?;
                seen.event = event.event_id;
            }
            if new.is_empty() && seen.execution < latest {
                seen.execution += 1;
                seen.event = 0;
            } else if new.len() < EVENTS_AT_ONCE {
                return Ok(());
            }
        }
    }

    fn end(&self, description: &InstanceDescription, output: &mut Output<'_>) -> Outcome {
        let row = &description.row;
        let took = row.completed_at_ms.unwrap_or(row.updated_at_ms).saturating_sub(row.created_at_ms);
        output.note(&format!("{} after {}", row.state.as_str(), duration(took)))
    }
}

/// How far a follower has come.
#[derive(Default)]
struct Seen {
    has_begun: bool,
    execution: u64,
    event: u64,
}

fn page(shown: &Shown, look: Look) -> String {
    let description = &shown.description;
    let row = &description.row;
    let mut page = Page::new(look);
    page.heading(&printable(&row.instance));
    head(&mut page, description, look);
    if let Some(blocked) = &description.blocked {
        page.heading("Blocked");
        page.painted("reason", blocked.reason.sentence(), Paint::Magenta);
        page.value("since", since(blocked.since_ms, look.now_ms));
        match blocked.next_try_ms {
            Some(next) => page.value("next try", crate::output::until(next, look.now_ms)),
            None => page.value("next try", format!("when you say so: duroxide retry {}", row.instance)),
        }
    }
    if !description.waits.is_empty() {
        page.heading("Waits for");
        page.table(&waits::table(&description.waits, &row.instance, look));
        if !description.waits_are_complete {
            page.line("… and perhaps more: its history is too long to look through");
        }
    }
    if !description.last_errors.is_empty() {
        page.heading("Last errors");
        for error in &description.last_errors {
            page.line(&look.style.paint(Paint::Red, &crate::output::payload(error, 200)));
        }
    }
    if let Some(events) = &shown.events {
        page.heading(&match shown.execution {
            Some(execution) => format!("History of execution {execution}"),
            None => format!(
                "History ({} of {})",
                grouped(events.len() as u64),
                counted(description.event_count, "event")
            ),
        });
        page.table(&events::table(events));
    }
    page.finish()
}

fn head(page: &mut Page, description: &InstanceDescription, look: Look) {
    let row = &description.row;
    page.painted("state", row.state.as_str(), Paint::of_state(row.state));
    let version = if row.version == "unknown" { "" } else { row.version.as_str() };
    page.value("orchestration", format!("{} {version}", row.name).trim_end());
    page.maybe("custom status", row.custom_status.as_deref());
    page.value("created", since(row.created_at_ms, look.now_ms));
    match row.completed_at_ms {
        Some(ended) => {
            page.value("ended", format!("{}, after {}", since(ended, look.now_ms), took(row, ended)))
        }
        None if row.incarnation == 0 => page.value("last turn", "none yet"),
        None => page.value("last turn", since(row.updated_at_ms, look.now_ms)),
    }
    if row.execution_id > 1 {
        page.value("execution", grouped(row.execution_id));
    }
    page.maybe("parent", row.parent.as_deref());
    page.maybe("root", row.root.as_deref().filter(|root| row.parent.as_deref() != Some(root)));
    page.maybe("input", description.input.as_deref());
    match &description.error {
        Some(error) => page.painted("error", error, Paint::Red),
        None => page.maybe("output", row.output.as_deref()),
    }
    page.value("events", grouped(description.event_count));
    if description.queued_messages > 0 {
        page.value("queued", counted(description.queued_messages, "message"));
    }
    if description.attempts > 1 {
        page.painted(
            "attempts",
            format!("{} at this turn", grouped(description.attempts.into())),
            Paint::Yellow,
        );
    }
}

fn took(row: &InstanceRow, ended: u64) -> String {
    duration(ended.saturating_sub(row.created_at_ms))
}

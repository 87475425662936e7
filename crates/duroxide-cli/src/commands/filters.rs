//! Which instances: the conditions that several commands take.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use duroxide::InstanceState;
use duroxide::providers::{InstancePage, InstanceQuery, InstanceRow};

use crate::failure::Outcome;
use crate::output::{Since, parse_duration};
use crate::store::Store;

/// Rows of a page of a listing that reads on.
const PAGE: usize = 500;

/// What `--status` takes: a state, or all in which an instance has not ended.
#[derive(Debug, Clone, Copy)]
enum Status {
    In(InstanceState),
    Live,
}

impl Status {
    fn states(self) -> Vec<InstanceState> {
        match self {
            Self::In(state) => vec![state],
            Self::Live => InstanceState::ALL.into_iter().filter(|state| !state.is_ended()).collect(),
        }
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("live") {
            return Ok(Self::Live);
        }
        InstanceState::from_str(text)
            .map(Self::In)
            .map_err(|error| format!("{error}, and live for all that have not ended"))
    }
}

/// Conditions; all must hold.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which instances")]
pub struct Filters {
    /// In one of these states: pending, running, waiting, blocked, completed, failed, cancelled, continued; or live: in any but
    /// completed, failed and cancelled
    #[arg(long = "status", short = 's', value_name = "STATE,...", value_delimiter = ',', value_parser = Status::from_str)]
    states: Vec<Status>,
    /// Of this orchestration
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Of this version
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,
    /// Created since: 2h, 7d, 2026-11-17T18:30:00Z
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    since: Option<Since>,
    /// Created before
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    until: Option<Since>,
    /// Without a turn for so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    idle_for: Option<Duration>,
    /// With a turn in the last so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    active_in: Option<Duration>,
    /// With an id that begins with this
    #[arg(long, value_name = "PREFIX")]
    id: Option<String>,
    /// With an id that contains this
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Children of this instance
    #[arg(long, value_name = "INSTANCE")]
    parent: Option<String>,
    /// Descendants of this instance
    #[arg(long, value_name = "INSTANCE")]
    root: Option<String>,
    /// With this custom status
    #[arg(long, value_name = "TEXT")]
    custom_status: Option<String>,
}

impl Filters {
    /// Whether there is any condition.
    pub fn is_empty(&self) -> bool {
        self.query(0) == InstanceQuery::new()
    }

    /// Whether the states are given.
    pub fn has_states(&self) -> bool {
        !self.states.is_empty()
    }

    /// The conditions as a query.
    pub fn query(&self, now_ms: u64) -> InstanceQuery {
        let ago = |duration: Option<Duration>| duration.map(|duration| Since::Ago(duration).at_ms(now_ms));
        let mut query = InstanceQuery::new();
        query.states = self.states.iter().copied().flat_map(Status::states).collect();
        query.states.sort_unstable();
        query.states.dedup();
        query.name = self.name.clone();
        query.version = self.version.clone();
        query.created_from_ms = self.since.map(|since| since.at_ms(now_ms));
        query.created_before_ms = self.until.map(|until| until.at_ms(now_ms));
        query.updated_before_ms = ago(self.idle_for);
        query.updated_from_ms = ago(self.active_in);
        query.id_prefix = self.id.clone();
        query.id_contains = self.contains.clone();
        query.parent = self.parent.clone();
        query.root = self.root.clone();
        query.custom_status = self.custom_status.clone();
        query
    }
}

/// Reads up to `limit` rows, over as many pages as it takes.
pub async fn read(store: &Store, mut query: InstanceQuery, limit: usize) -> Outcome<InstancePage> {
    let mut found = InstancePage::default();
    loop {
        query.limit = (limit - found.rows.len()).min(InstanceQuery::MOST_ROWS);
        let page = store.client.list(&query).await?;
        found.rows.extend(page.rows);
        found.next_cursor = page.next_cursor;
        match &found.next_cursor {
            Some(cursor) if found.rows.len() < limit => query.cursor = Some(cursor.clone()),
            _ => return Ok(found),
        }
    }
}

/// Reads all rows, page by page.
pub struct AllRows {
    query: InstanceQuery,
    is_done: bool,
}

impl AllRows {
    /// Reads the rows of a query.
    pub fn of(query: InstanceQuery) -> Self {
        Self { query: query.limit(PAGE), is_done: false }
    }

    /// The next rows; `None` if there are no more. May be empty.
    pub async fn next(&mut self, store: &Store) -> Outcome<Option<Vec<InstanceRow>>> {
        if self.is_done {
            return Ok(None);
        }
        let page = store.client.list(&self.query).await?;
        self.is_done = page.next_cursor.is_none();
        self.query.cursor = page.next_cursor;
        Ok(Some(page.rows))
    }
}

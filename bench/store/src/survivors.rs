//! What was promised, and whether it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use duroxide::Event;
use duroxide::providers::WorkItem;
use rusqlite::{Connection, OptionalExtension, params};

use crate::{Outcome, life};

/// Everything that the store has answered, by instance.
#[derive(Default)]
pub struct Ledger {
    promises: BTreeMap<String, Promise>,
    pub answered: u64,
}

/// What the store has answered for one instance. Its operations come one after the other, so the last of a kind
/// implies those before.
#[derive(Default)]
struct Promise {
    enqueued: bool,
    last_event: u64,
    ended: bool,
    last_activity: u64,
}

impl Ledger {
    /// Takes note of a line of the child.
    pub fn note(&mut self, line: &str) -> Outcome<()> {
        let fields: Vec<&str> = line.split(' ').collect();
        self.answered += 1;
        match fields.as_slice() {
            ["E", instance] => self.promise(instance).enqueued = true,
            ["T", instance, last_event, ended] => {
                let promise = self.promise(instance);
                promise.last_event = promise.last_event.max(last_event.parse()?);
                promise.ended |= *ended == "1";
            }
            ["W", instance, activity] => {
                let promise = self.promise(instance);
                promise.last_activity = promise.last_activity.max(activity.parse()?);
            }
            _ => return Err(format!("the child said '{line}'").into()),
        }
        Ok(())
    }

    fn promise(&mut self, instance: &str) -> &mut Promise {
        self.promises.entry(instance.to_string()).or_default()
    }

    pub fn instances(&self) -> usize {
        self.promises.len()
    }
}

/// What a look at the file found.
pub struct Found {
    pub integrity: String,
    /// What is lost, doubled or out of reach.
    pub problems: Vec<String>,
}

/// Damages that a check has to notice, each a statement that deletes one row.
pub const DAMAGES: [(&str, &str); 5] = [
    (
        "the last event of an instance",
        "DELETE FROM history WHERE (instance_id, event_id) =
            (SELECT instance_id, max(event_id) FROM history GROUP BY instance_id ORDER BY max(event_id) DESC LIMIT 1)",
    ),
    (
        "an event in the middle",
        "DELETE FROM history WHERE event_id = 2 AND instance_id = (SELECT max(instance_id) FROM history)",
    ),
    ("a message", "DELETE FROM orchestrator_queue WHERE id = (SELECT min(id) FROM orchestrator_queue)"),
    ("an activity", "DELETE FROM worker_queue WHERE id = (SELECT min(id) FROM worker_queue)"),
    (
        "the schedule of an instance with a message",
        "DELETE FROM instance_schedule WHERE instance_id = (SELECT min(instance_id) FROM orchestrator_queue)",
    ),
];

/// Looks for everything that was promised.
pub fn check(file: &Path, ledger: &Ledger) -> Outcome<Found> {
    look(&Connection::open(file)?, ledger)
}

/// Deletes something, looks, and undoes it; returns also how many rows were deleted.
pub fn check_with_damage(file: &Path, ledger: &Ledger, sql: &str) -> Outcome<(usize, Found)> {
    let mut connection = Connection::open(file)?;
    let transaction = connection.transaction()?;
    let rows = transaction.execute(sql, [])?;
    let found = look(&transaction, ledger)?;
    transaction.rollback()?;
    Ok((rows, found))
}

fn look(connection: &Connection, ledger: &Ledger) -> Outcome<Found> {
    let integrity = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    let nothing = Promise::default();
    let mut problems = Vec::new();
    // Also what was begun and never answered must be there wholly or not at all.
    let stored = column::<String>(
        connection,
        "SELECT instance_id FROM history UNION SELECT instance_id FROM orchestrator_queue
         UNION SELECT instance_id FROM worker_queue",
        "",
    )?;
    let instances: BTreeSet<&str> =
        stored.iter().map(String::as_str).chain(ledger.promises.keys().map(String::as_str)).collect();
    for instance in instances {
        let promise = ledger.promises.get(instance).unwrap_or(&nothing);
        let state = State::read(connection, instance)?;
        problems.extend(state.problems(promise).into_iter().map(|text| format!("{instance}: {text}")));
    }
    Ok(Found { integrity, problems })
}

/// What the file says about an instance.
struct State {
    events: Vec<Event>,
    status: Option<String>,
    messages: Vec<WorkItem>,
    activities: Vec<u64>,
    is_scheduled: bool,
}

impl State {
    fn read(connection: &Connection, instance: &str) -> Outcome<Self> {
        let events = column::<String>(
            connection,
            "SELECT event_data FROM history WHERE instance_id = ?1 AND execution_id = 1 ORDER BY event_id",
            instance,
        )?;
        let messages = column::<String>(
            connection,
            "SELECT work_item FROM orchestrator_queue WHERE instance_id = ?1 ORDER BY id",
            instance,
        )?;
        let status = connection
            .prepare_cached("SELECT status FROM executions WHERE instance_id = ?1 AND execution_id = 1")?
            .query_row([instance], |row| row.get(0))
            .optional()?;
        let is_scheduled = connection
            .prepare_cached("SELECT 1 FROM instance_schedule WHERE instance_id = ?1")?
            .exists([instance])?;
        let activities = column::<i64>(
            connection,
            "SELECT activity_id FROM worker_queue WHERE instance_id = ?1",
            instance,
        )?;
        Ok(Self {
            events: events.iter().map(|text| serde_json::from_str(text)).collect::<Result<_, _>>()?,
            status,
            messages: messages.iter().map(|text| serde_json::from_str(text)).collect::<Result<_, _>>()?,
            activities: activities.into_iter().map(u64::try_from).collect::<Result<_, _>>()?,
            is_scheduled,
        })
    }

    fn problems(&self, promise: &Promise) -> Vec<String> {
        let last_event = self.events.len() as u64;
        let whole = self.events.iter().zip(1..).all(|(event, id)| event.event_id == id);
        let ended = self.events.last().is_some_and(Event::is_terminal);
        let has_completion = |activity: u64| {
            let completes = |message: &WorkItem| matches!(message, WorkItem::ActivityCompleted { id, .. } if *id == activity);
            self.messages.iter().any(completes)
        };
        let has_start = self.messages.iter().any(|m| matches!(m, WorkItem::StartOrchestration { .. }));
        let queued = self.messages.len() + self.activities.len();
        let expected = usize::from(!ended);

        let mut problems = Vec::new();
        let mut lost = |is_lost: bool, text: String| {
            if is_lost {
                problems.push(text);
            }
        };
        lost(
            !whole || !last_event.is_multiple_of(life::EVENTS_PER_TURN),
            format!("history has gaps, {last_event} events"),
        );
        lost(
            last_event < promise.last_event,
            format!("{last_event} events, but event {} was acknowledged", promise.last_event),
        );
        lost(promise.enqueued && last_event == 0 && !has_start, "its start is gone".into());
        lost(promise.ended && !ended, "it was ended and is not".into());
        lost(
            ended != (self.status.as_deref() == Some("Completed")),
            format!("its status is {:?}, its history {}", self.status, if ended { "ended" } else { "open" }),
        );
        let activity = promise.last_activity;
        lost(
            activity > 0 && last_event <= activity && !has_completion(activity),
            format!("the completion of activity {activity} is gone"),
        );
        lost(
            activity > 0 && self.activities.contains(&activity),
            format!("activity {activity} is queued again"),
        );
        lost(
            queued != expected,
            format!("{queued} messages and activities where there should be {expected}"),
        );
        lost(!self.messages.is_empty() && !self.is_scheduled, "it has a message and is not scheduled".into());
        problems
    }
}

/// Reads one column; a query without a parameter ignores `instance`.
fn column<T: rusqlite::types::FromSql>(
    connection: &Connection,
    sql: &str,
    instance: &str,
) -> Outcome<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let read = |row: &rusqlite::Row<'_>| row.get(0);
    let rows: Result<Vec<T>, _> = match statement.parameter_count() {
        0 => statement.query_map([], read)?.collect(),
        _ => statement.query_map(params![instance], read)?.collect(),
    };
    Ok(rows?)
}

//! Instances in trouble, and rows that nobody can use.

use duroxide::InstanceState;
use duroxide::providers::{InstanceQuery, ListSort};

use super::MINUTE;
use super::finding::{Finding, NAMED, named};
use crate::commands::filters::AllRows;
use crate::failure::Outcome;
use crate::output::{counted, duration};
use crate::store::Store;

/// An instance that could take a turn and took none for so long is stuck.
const STUCK_MS: u64 = 10 * MINUTE;
/// How many of a kind are looked at.
const MOST: usize = 1_000;
/// How many pages of failed instances are looked through.
const MOST_PAGES: usize = 20;

/// A number of things of which no more than one beyond [`MOST`] were read.
fn up_to_most(count: u64, thing: &str) -> String {
    match count > MOST as u64 {
        true => format!("more than {}", counted(MOST as u64, thing)),
        false => counted(count, thing),
    }
}

/// Instances that cannot go on.
pub(super) async fn blocked(store: &Store) -> Outcome<Finding> {
    let blocked = store.client.list_blocked_instances(MOST + 1).await?;
    let obstacles = store.client.list_obstacles(MOST + 1).await?;
    let mut ids: Vec<&str> = blocked.iter().map(|blocked| blocked.instance.as_str()).collect();
    ids.extend(obstacles.iter().map(|obstacle| obstacle.instance.as_str()));
    ids.sort_unstable();
    ids.dedup();
    let Some(first) = ids.first() else {
        return Ok(Finding::ok("blocked", "no instance is blocked"));
    };
    let reason =
        match store.client.describe(first, 1_000).await.ok().and_then(|description| description.blocked) {
            Some(blocked) => blocked.reason.sentence(),
            None => "it goes on by now".to_string(),
        };
    Ok(Finding::problem(
        "blocked",
        format!(
            "{} cannot go on: {}; the reason of the first: {reason}",
            up_to_most(ids.len() as u64, "instance"),
            named(&ids)
        ),
        "mend the cause; `duroxide show ID` names it, `duroxide retry ID` lets a blocked one go on",
    ))
}

/// Instances that have messages and take no turn.
pub(super) async fn stuck(store: &Store, now: u64) -> Outcome<Finding> {
    let query = InstanceQuery::new()
        .state(InstanceState::Pending)
        .state(InstanceState::Running)
        .updated_before_ms(now.saturating_sub(STUCK_MS));
    let count = store.client.count(&query, MOST as u64).await?;
    if count.value == 0 {
        return Ok(Finding::ok("stuck", "every instance that can take a turn took one lately"));
    }
    let page = store.client.list(&query.limit(NAMED)).await?;
    let ids: Vec<&str> = page.rows.iter().map(|row| row.instance.as_str()).collect();
    Ok(Finding::problem(
        "stuck",
        format!("{count} could take a turn and took none for {}: {}", duration(STUCK_MS), named(&ids)),
        "start a worker that has their orchestrations registered; `duroxide workers --long` shows who has what",
    ))
}

/// Instances that failed of late because their messages were delivered too often.
pub(super) async fn poison(store: &Store, now: u64) -> Outcome<Finding> {
    const DAY: u64 = 24 * 60 * MINUTE;
    let query = InstanceQuery::new()
        .state(InstanceState::Failed)
        .updated_from_ms(now.saturating_sub(DAY))
        .sort(ListSort::Updated)
        .cut(32);
    let is_poison = |output: &Option<String>| output.as_ref().is_some_and(|text| text.starts_with("poison"));
    let mut found = Vec::new();
    let mut rows = AllRows::of(query);
    let mut is_all = false;
    for _ in 0..MOST_PAGES {
        let Some(page) = rows.next(store).await? else {
            is_all = true;
            break;
        };
        found.extend(page.into_iter().filter(|row| is_poison(&row.output)).map(|row| row.instance));
    }
    let ids: Vec<&str> = found.iter().map(String::as_str).collect();
    let at_least = if is_all { "" } else { "at least " };
    Ok(match ids.len() as u64 {
        0 if is_all => Finding::ok("poison", "no instance was given up as poison in the last day"),
        0 => Finding::ok("poison", "none of the instances that failed last was given up as poison"),
        count => Finding::problem(
            "poison",
            format!(
                "{at_least}{} given up as poison in the last day: {}",
                counted(count, "instance"),
                named(&ids)
            ),
            "`duroxide show ID` tells what was missing or crashed its workers; start it anew once that is mended",
        ),
    })
}

/// Rows that could not be decoded.
pub(super) async fn quarantine(store: &Store) -> Outcome<Finding> {
    let rows = store.client.list_quarantined(0, MOST + 1).await?;
    Ok(match rows.len() as u64 {
        0 => Finding::ok("quarantine", "nothing is in quarantine"),
        count => Finding::problem(
            "quarantine",
            format!("{} could not be decoded", up_to_most(count, "row")),
            "`duroxide quarantine list` shows them; release them once a worker knows them",
        ),
    })
}

/// Messages for instances that did not exist.
pub(super) async fn dropped(store: &Store) -> Outcome<Finding> {
    let dropped = store.client.list_dropped_messages(1).await?;
    Ok(match dropped.total {
        0 => Finding::ok("dropped", "no message was dropped"),
        count => Finding::warning(
            "dropped",
            format!("{} dropped so far, because their instances did not exist", counted(count, "message")),
            "send messages after the start, along with it, or parked (`duroxide enqueue --park`)",
        ),
    })
}

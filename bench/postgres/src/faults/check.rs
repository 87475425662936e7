//! The histories of all instances, compared with what the load started and with what the activities wrote down.

use std::collections::{BTreeMap, BTreeSet};

use duroxide::{Event, EventKind};
use tokio_postgres::Client;

use super::ledger::Ledger;
use super::load::{Job, Jobs};
use super::shapes::name_of;
use crate::Outcome;

/// Instances whose histories are read at once.
const PAGE: usize = 500;

/// What is wrong with histories.
#[derive(Debug, Default)]
pub struct Findings {
    /// Steps that are in a history twice, scheduled or ended.
    pub doubled: Vec<String>,
    /// Anything else.
    pub wrong: Vec<String>,
    pub events: usize,
}

/// The events of an execution.
type Histories = BTreeMap<(String, i64), Vec<Event>>;

/// Checks the histories of all jobs that have ended.
pub async fn histories(sql: &Client, jobs: &Jobs, ledger: &Ledger) -> Outcome<Findings> {
    let mut findings = Findings::default();
    let ended: Vec<&Job> = jobs.ended.iter().map(|ended| &ended.job).collect();
    for page in ended.chunks(PAGE) {
        let ids: Vec<&str> = page.iter().map(|job| job.instance.as_str()).collect();
        let rows = sql
            .query(
                "SELECT h.instance_id, h.execution_id, h.event_data FROM history h
                 WHERE h.instance_id IN (SELECT instance_id FROM instances
                     WHERE instance_id = ANY ($1::text[]) OR parent_instance_id = ANY ($1::text[]))
                 ORDER BY 1, 2, h.event_id",
                &[&ids],
            )
            .await?;
        let mut histories = Histories::new();
        for row in rows {
            let event: Event = serde_json::from_str(row.get(2))?;
            histories.entry((row.get(0), row.get(1))).or_default().push(event);
            findings.events += 1;
        }
        for ((instance, _), events) in &histories {
            check_order(instance, events, &mut findings);
            check_steps(instance, events, ledger, &mut findings);
        }
        for job in page {
            check_all_there(job, &histories, &mut findings);
        }
    }
    Ok(findings)
}

/// Events are numbered without a gap, and the last is the end.
fn check_order(instance: &str, events: &[Event], findings: &mut Findings) {
    let ids = events.iter().map(|event| event.event_id);
    if !ids.eq(1..=events.len() as u64) {
        findings.wrong.push(format!("{instance} has gaps in its history"));
    }
    let last = events.last().map(|event| &event.kind);
    if !matches!(last, Some(EventKind::OrchestrationCompleted { .. })) {
        findings.wrong.push(format!("{instance} ends with {last:?}"));
    }
}

/// No step is there twice, and each result is that of a run.
fn check_steps(instance: &str, events: &[Event], ledger: &Ledger, findings: &mut Findings) {
    let (mut scheduled, mut names, mut ended) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for event in events {
        if let Some(source) = event.source_event_id
            && !ended.insert(source)
        {
            findings.doubled.push(format!("{instance}: what event {source} began ended twice"));
        }
        match &event.kind {
            EventKind::ActivityScheduled { input, .. } => {
                let name = name_of(input);
                scheduled.insert(event.event_id, name);
                if !names.insert(name) {
                    findings.doubled.push(format!("{instance}: {name} is scheduled twice"));
                }
            }
            EventKind::ActivityCompleted { result } => {
                let step = event.source_event_id.and_then(|source| scheduled.get(&source).copied());
                let run = result.split(' ').nth(1).unwrap_or_default();
                let is_known = ledger.runs(instance, name_of(result)).iter().any(|known| known.name == run);
                if step != Some(name_of(result)) || !is_known {
                    findings.wrong.push(format!("{instance}: nobody ran {step:?} with the result {result}"));
                }
            }
            EventKind::ActivityFailed { details } => {
                findings.wrong.push(format!("{instance}: an activity failed: {details:?}"));
            }
            _ => {}
        }
    }
}

/// All steps of a job and of its children have ended.
fn check_all_there(job: &Job, histories: &Histories, findings: &mut Findings) {
    let mut done = Vec::new();
    let children = format!("{}::", job.instance);
    for ((instance, _), events) in histories {
        if *instance == job.instance || instance.starts_with(&children) {
            done.extend(events.iter().filter_map(|event| match &event.kind {
                EventKind::ActivityCompleted { result } => Some(name_of(result)),
                _ => None,
            }));
        }
    }
    let (expected, found): (BTreeSet<&str>, BTreeSet<&str>) =
        (job.shape.steps().iter().copied().collect(), done.into_iter().collect());
    if expected != found {
        findings.wrong.push(format!("{} ({:?}) has the steps {found:?}", job.instance, job.shape));
    }
}

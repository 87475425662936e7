//! What this store can do beyond the documented contract.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::batch::read_row;
use super::claims::{self, Known, StoredClaim};
use super::encode::leased_by;
use super::error::StoreError;
use super::held::Held;
use super::inbox::JobClass;
use super::messages::StoredMessage;
use super::quarantine::{self, BadRow, Queue};
use super::shared::clamp_ms;
use super::work::{self, StoredWork, WorkOrder};
use super::{SqliteProvider, encode, history, kv, messages, reads};
use crate::model::{Clock, Event, WorkItem, whole_ms};
use crate::providers::inspect::{self, Origin};
use crate::providers::{
    ExtendedProvider, HistoryPart, InstanceClaim, InstanceMetadata, InstanceRequest, InstanceWatch,
    ParkedMessage, ProviderError, QuarantinedRow, RunningMark, StartOutcome, WorkClaim, WorkQueue,
    WorkRequest, WorkSignal, refusal,
};

#[async_trait]
impl ExtendedProvider for SqliteProvider {
    fn clock(&self) -> Arc<dyn Clock> {
        self.shared.clock.clone()
    }

    fn work_signal(&self, queue: WorkQueue) -> WorkSignal {
        match queue {
            WorkQueue::Orchestrator => self.shared.orchestrator_signal.subscribe(),
            WorkQueue::Worker => self.shared.worker_signal.subscribe(),
        }
    }

    fn watch_instance(&self, instance: &str) -> InstanceWatch {
        self.shared.watchers.watch(instance)
    }

    async fn claim_instances(
        &self,
        request: &InstanceRequest<'_>,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        let (claims, held) = self.claim("claim_instances", request).await?;
        held.hand_over();
        Ok(claims)
    }

    async fn load_history(
        &self,
        lock_token: &str,
        after_event_id: u64,
    ) -> Result<HistoryPart, ProviderError> {
        self.load("load_history", lock_token, after_event_id).await
    }

    async fn claim_work(&self, request: &WorkRequest<'_>) -> Result<Vec<WorkClaim>, ProviderError> {
        self.claim_activities("claim_work", request).await
    }

    async fn read_metadata(&self, instance: &str) -> Result<Option<InstanceMetadata>, ProviderError> {
        let instance = instance.to_string();
        self.read("read_metadata", move |connection| Ok(reads::metadata(connection, &instance)?)).await
    }

    async fn read_recent(&self, instance: &str, limit: usize) -> Result<Vec<Event>, ProviderError> {
        const OPERATION: &str = "read_recent";
        let instance = instance.to_string();
        let texts = self
            .read(OPERATION, move |connection| {
                let execution_id = history::latest_execution(connection, &instance)?;
                Ok(history::read_recent(connection, &instance, execution_id, row_limit(limit))?)
            })
            .await?;
        reads::decode(&texts).map_err(|reason| refusal::undecodable_history(OPERATION, &reason))
    }

    async fn enqueue_start_if_absent(&self, start: WorkItem) -> Result<StartOutcome, ProviderError> {
        const OPERATION: &str = "enqueue_start_if_absent";
        if !matches!(start, WorkItem::StartOrchestration { .. }) {
            return Err(refusal::wrong_queue(OPERATION));
        }
        let message = encode::message(&self.shared.limits, OPERATION, &start)?;
        self.writer
            .submit(OPERATION, JobClass::Data, move |batch| {
                let taken = batch.row(
                    "SELECT 1 WHERE EXISTS (SELECT 1 FROM instances WHERE instance_id = ?1)
                     OR EXISTS (SELECT 1 FROM history WHERE instance_id = ?1)",
                    [&message.instance],
                    |_| Ok(()),
                )?;
                if taken.is_some() || messages::has_start(batch, &message.instance)? {
                    return Ok(StartOutcome::Existing);
                }
                let now = batch.now_ms();
                messages::insert(batch, &message, 0, now)?;
                Ok(StartOutcome::New)
            })
            .await
    }

    async fn list_quarantined(&self, limit: usize) -> Result<Vec<QuarantinedRow>, ProviderError> {
        self.read("list_quarantined", move |connection| Ok(reads::quarantined(connection, row_limit(limit))?))
            .await
    }

    async fn list_parked(&self, limit: usize) -> Result<Vec<ParkedMessage>, ProviderError> {
        let parking_ms = clamp_ms(whole_ms(self.shared.parking_time));
        self.read("list_parked", move |connection| {
            Ok(reads::parked(connection, parking_ms, row_limit(limit))?)
        })
        .await
    }

    fn mark_running(&self, lock_token: &str) -> RunningMark {
        let marked = self.shared.owners.as_ref().and_then(|owners| Some((owners.mark(lock_token)?, owners)));
        let Some((slot, owners)) = marked else { return RunningMark::none() };
        let owners = owners.clone();
        RunningMark::new(move || owners.erase(slot))
    }
}

impl SqliteProvider {
    /// Leases instances and decodes their messages. What does not decode is set aside; if nothing is left of a lease
    /// after that, the next instance takes its place.
    ///
    /// The leases are given back unless the caller hands them over.
    pub(super) async fn claim(
        &self,
        operation: &'static str,
        request: &InstanceRequest<'_>,
    ) -> Result<(Vec<InstanceClaim>, Held), ProviderError> {
        let mut claimed = Vec::new();
        let mut held = Held::new(Queue::Orchestrator, Vec::new(), self.writer.errands());
        if request.filter.is_some_and(|filter| filter.supported_duroxide_versions.is_empty()) {
            return Ok((claimed, held));
        }
        while claimed.len() < request.max {
            let (max, lock_timeout) = (request.max - claimed.len(), request.lock_timeout);
            let (filter, errands) = (request.filter.cloned(), self.writer.errands());
            let (stored, leases) = self
                .writer
                .submit(operation, JobClass::Lease, move |batch| {
                    let stored = claims::claim(batch, max, lock_timeout, filter.as_ref())?;
                    let tokens = stored.claims.iter().map(|claim| claim.token.clone()).collect();
                    Ok((stored, Held::new(Queue::Orchestrator, tokens, errands)))
                })
                .await?;
            held.add(leases);
            let (before, leased) = (claimed.len(), stored.claims.len());
            for claim in stored.claims {
                claimed.extend(self.decoded(operation, claim).await?);
            }
            if claimed.len() - before == leased && !stored.unfinished {
                break;
            }
        }
        Ok((claimed, held))
    }

    /// Decodes a claim; `None` if none of its messages could be decoded, and the lease is over.
    async fn decoded(
        &self,
        operation: &'static str,
        claim: StoredClaim,
    ) -> Result<Option<InstanceClaim>, ProviderError> {
        let StoredClaim { instance, token, known, messages: stored } = claim;
        let (good, bad) = decode_messages(stored);
        if !bad.is_empty() {
            let (token, over) = (token.clone(), good.is_empty());
            self.writer
                .submit(operation, JobClass::Lease, move |batch| {
                    quarantine::set_aside(batch, Queue::Orchestrator, &bad)?;
                    if over {
                        super::turns::abandon(batch, &token, None, true)?;
                    }
                    Ok(())
                })
                .await?;
            if over {
                return Ok(None);
            }
        }
        let attempt_count = good.iter().map(|(attempts, _)| *attempts).max().unwrap_or(0).saturating_add(1);
        let messages: Vec<WorkItem> = good.into_iter().map(|(_, item)| item).collect();
        Ok(Some(describe(instance, token, known, messages, attempt_count)))
    }

    /// Loads the history of a leased instance.
    pub(super) async fn load(
        &self,
        operation: &'static str,
        lock_token: &str,
        after_event_id: u64,
    ) -> Result<HistoryPart, ProviderError> {
        let (token, now) = (lock_token.to_string(), self.shared.now_ms());
        let after = clamp_ms(after_event_id);
        let (texts, kv_snapshot) = self
            .read(operation, move |connection| {
                let instance = live_lease(connection, operation, &token, now)?;
                let execution_id = current_execution(connection, instance)?;
                let texts = history::read(connection, instance, execution_id, after)?;
                let snapshot = (after == 0).then(|| kv::snapshot(connection, instance)).transpose()?;
                Ok((texts, snapshot))
            })
            .await?;
        Ok(match reads::decode(&texts) {
            Ok(events) => HistoryPart { events, history_error: None, kv_snapshot },
            Err(reason) => HistoryPart {
                events: Vec::new(),
                history_error: Some(refusal::history_error(&reason)),
                kv_snapshot: kv_snapshot.map(|_| Default::default()),
            },
        })
    }

    /// Leases activities and decodes them. What does not decode is set aside, and the next takes its place.
    pub(super) async fn claim_activities(
        &self,
        operation: &'static str,
        request: &WorkRequest<'_>,
    ) -> Result<Vec<WorkClaim>, ProviderError> {
        if *request.tag_filter == crate::providers::TagFilter::None {
            return Ok(Vec::new());
        }
        let mut claimed = Vec::new();
        let mut held = Held::new(Queue::Worker, Vec::new(), self.writer.errands());
        while claimed.len() < request.max {
            let order = WorkOrder {
                max: request.max - claimed.len(),
                lock_timeout: request.lock_timeout,
                session: request.session.cloned(),
                tag_filter: request.tag_filter.clone(),
            };
            let errands = self.writer.errands();
            let (stored, leases) = self
                .writer
                .submit(operation, JobClass::Lease, move |batch| {
                    let stored = work::claim(batch, &order)?;
                    let tokens = stored.claims.iter().map(|work| work.token.clone()).collect();
                    Ok((stored, Held::new(Queue::Worker, tokens, errands)))
                })
                .await?;
            held.add(leases);
            let (good, bad) = decode_work(stored.claims);
            claimed.extend(good);
            if bad.is_empty() {
                if stored.unfinished {
                    continue;
                }
                break;
            }
            self.writer
                .submit(operation, JobClass::Lease, move |batch| {
                    Ok(quarantine::set_aside(batch, Queue::Worker, &bad)?)
                })
                .await?;
        }
        held.hand_over();
        Ok(claimed)
    }
}

fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Checks that a token stands for a live lease and returns the instance that it leases.
fn live_lease<'t>(
    connection: &Connection,
    operation: &str,
    token: &'t str,
    now: i64,
) -> Result<&'t str, StoreError> {
    let unknown = || refusal::unknown_turn_token(operation);
    let instance = leased_by(token).ok_or_else(unknown)?;
    let locked_until: Option<i64> = read_row(
        connection,
        "SELECT locked_until FROM instance_schedule WHERE instance_id = ?1 AND lock_token = ?2",
        params![instance, token],
        |row| row.get(0),
    )?;
    match locked_until {
        Some(until) if until > now => Ok(instance),
        Some(_) => Err(ProviderError::permanent(operation, "Instance lock expired").into()),
        None => Err(unknown().into()),
    }
}

/// The execution whose history a turn needs: the row's, or the highest that there is anything of.
fn current_execution(connection: &Connection, instance: &str) -> rusqlite::Result<i64> {
    let current = read_row(
        connection,
        "SELECT current_execution_id FROM instances WHERE instance_id = ?1",
        [instance],
        |row| row.get(0),
    )?;
    match current {
        Some(execution_id) => Ok(execution_id),
        None => history::highest_execution(connection, instance),
    }
}

fn decode_messages(stored: Vec<StoredMessage>) -> (Vec<(u32, WorkItem)>, Vec<BadRow>) {
    let (mut good, mut bad) = (Vec::with_capacity(stored.len()), Vec::new());
    for message in stored {
        match serde_json::from_slice(&message.text) {
            Ok(item) => good.push((message.attempts, item)),
            Err(error) => bad.push(BadRow { id: message.id, reason: error.to_string() }),
        }
    }
    (good, bad)
}

fn decode_work(stored: Vec<StoredWork>) -> (Vec<WorkClaim>, Vec<BadRow>) {
    let (mut good, mut bad) = (Vec::with_capacity(stored.len()), Vec::new());
    for work in stored {
        match serde_json::from_slice(&work.text) {
            Ok(item @ WorkItem::ActivityExecute { .. }) => {
                good.push(WorkClaim { item, lock_token: work.token, attempt_count: work.attempts });
            }
            Ok(_) => bad.push(BadRow { id: work.id, reason: "not an activity".into() }),
            Err(error) => bad.push(BadRow { id: work.id, reason: error.to_string() }),
        }
    }
    (good, bad)
}

/// Puts together what a caller is told about an instance that it leased.
fn describe(
    instance: String,
    lock_token: String,
    known: Known,
    messages: Vec<WorkItem>,
    attempt_count: u32,
) -> InstanceClaim {
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let (origin, execution_id, incarnation, last_event_id, status) = match known {
        Known::Row(row) => {
            let origin = Origin { name: row.name, version: Some(row.version) };
            (Some(origin), row.execution_id, row.incarnation, row.last_event_id, row.status)
        }
        Known::NoRow { execution_id, last_event_id, status, start_event } => {
            // A start event that does not decode shows when the history is loaded; the name may still be in a message.
            let event = start_event.and_then(|text| serde_json::from_slice::<Event>(&text).ok());
            let origin = event
                .and_then(|event| inspect::origin_in_history(std::slice::from_ref(&event)))
                .or_else(|| inspect::origin_in_messages(&messages));
            (origin, execution_id, 0, last_event_id, status)
        }
    };
    let origin = origin.unwrap_or_else(|| Origin { name: "unknown".into(), version: None });
    InstanceClaim {
        instance,
        orchestration_name: origin.name,
        version: origin.version.unwrap_or_else(|| "unknown".into()),
        execution_id: positive(execution_id),
        incarnation: positive(incarnation),
        last_event_id: positive(last_event_id),
        status,
        messages,
        lock_token,
        attempt_count,
    }
}

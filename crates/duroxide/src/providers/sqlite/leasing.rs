//! Leases on their way out: taken in a transaction, decoded outside it.
//!
//! What does not decode is set aside, so that it is in nobody's way, and the next takes its place.

use std::time::Duration;

use super::SqliteProvider;
use super::batch::Batch;
use super::claims::{self, Claimed, Known, StoredClaim};
use super::error::StoreError;
use super::held::Held;
use super::inbox::JobClass;
use super::messages::StoredMessage;
use super::quarantine::{self, BadRow, Queue};
use super::work::{self, StoredWork, WorkOrder};
use super::writer::Errands;
use crate::model::{Event, WorkItem};
use crate::providers::inspect::{self, Origin};
use crate::providers::{
    DispatcherCapabilityFilter, InstanceClaim, InstanceRequest, ProviderError, TagFilter, WorkClaim,
    WorkRequest,
};

/// Which instances a claim may take.
pub(super) struct TurnOrder {
    max: usize,
    lock_timeout: Duration,
    filter: Option<DispatcherCapabilityFilter>,
}

impl TurnOrder {
    /// Takes over a request; `None` if it can find nothing.
    pub(super) fn new(request: &InstanceRequest<'_>) -> Option<Self> {
        if request.max == 0
            || request.filter.is_some_and(|filter| filter.supported_duroxide_versions.is_empty())
        {
            return None;
        }
        Some(Self { max: request.max, lock_timeout: request.lock_timeout, filter: request.filter.cloned() })
    }
}

impl WorkOrder {
    /// Takes over a request; `None` if it can find nothing.
    pub(super) fn new(request: &WorkRequest<'_>) -> Option<Self> {
        if request.max == 0 || *request.tag_filter == TagFilter::None {
            return None;
        }
        Some(Self {
            max: request.max,
            lock_timeout: request.lock_timeout,
            session: request.session.cloned(),
            tag_filter: request.tag_filter.clone(),
        })
    }
}

/// What was leased in a transaction. Given back when it is dropped, unless somebody takes it over.
pub(super) struct Leased<C> {
    claims: Vec<C>,
    /// Nothing was found so far, but there is more to look at.
    unfinished: bool,
    held: Held,
}

impl Leased<StoredClaim> {
    /// No instances yet.
    pub(super) fn no_turns(errands: Errands) -> Self {
        Self {
            claims: Vec::new(),
            unfinished: false,
            held: Held::new(Queue::Orchestrator, Vec::new(), errands),
        }
    }

    /// Leases instances.
    pub(super) fn take(&mut self, batch: &mut Batch<'_, '_>, order: &TurnOrder) -> Result<(), StoreError> {
        let Claimed { claims, unfinished } =
            claims::claim(batch, order.max, order.lock_timeout, order.filter.as_ref())?;
        self.held.note(claims.iter().map(|claim| claim.token.clone()));
        (self.claims, self.unfinished) = (claims, unfinished);
        Ok(())
    }
}

impl Leased<StoredWork> {
    /// No activities yet.
    pub(super) fn no_work(errands: Errands) -> Self {
        Self { claims: Vec::new(), unfinished: false, held: Held::new(Queue::Worker, Vec::new(), errands) }
    }

    /// Leases activities.
    pub(super) fn take(&mut self, batch: &mut Batch<'_, '_>, order: &WorkOrder) -> Result<(), StoreError> {
        let Claimed { claims, unfinished } = work::claim(batch, order)?;
        self.held.note(claims.iter().map(|work| work.token.clone()));
        (self.claims, self.unfinished) = (claims, unfinished);
        Ok(())
    }
}

impl SqliteProvider {
    /// Leases instances and decodes their messages; if nothing is left of a lease after that, the next instance takes
    /// its place. The leases are given back unless the caller hands them over.
    pub(super) async fn claim_turns(
        &self,
        operation: &'static str,
        request: &InstanceRequest<'_>,
    ) -> Result<(Vec<InstanceClaim>, Held), ProviderError> {
        let mut claimed = Vec::new();
        let mut held = Held::new(Queue::Orchestrator, Vec::new(), self.writer.errands());
        while let Some(order) =
            TurnOrder::new(&InstanceRequest { max: request.max - claimed.len(), ..*request })
        {
            let none = Leased::no_turns(self.writer.errands());
            let claim =
                move |batch: &mut Batch<'_, '_>, leased: &mut Leased<StoredClaim>| leased.take(batch, &order);
            let leased =
                self.writer.submit_and_claim(operation, JobClass::Lease, |_| Ok(none), claim).await?;
            let (wanted, unfinished) = (leased.claims.len(), leased.unfinished);
            let (decoded, leases) = self.decode_turns(operation, leased).await?;
            let all_are_good = decoded.len() == wanted;
            claimed.extend(decoded);
            held.add(leases);
            if all_are_good && !unfinished {
                break;
            }
        }
        Ok((claimed, held))
    }

    /// Leases activities and decodes them.
    pub(super) async fn claim_activities(
        &self,
        operation: &'static str,
        request: &WorkRequest<'_>,
    ) -> Result<Vec<WorkClaim>, ProviderError> {
        let mut claimed = Vec::new();
        let mut held = Held::new(Queue::Worker, Vec::new(), self.writer.errands());
        while let Some(order) = WorkOrder::new(&WorkRequest { max: request.max - claimed.len(), ..*request })
        {
            let none = Leased::no_work(self.writer.errands());
            let claim =
                move |batch: &mut Batch<'_, '_>, leased: &mut Leased<StoredWork>| leased.take(batch, &order);
            let leased =
                self.writer.submit_and_claim(operation, JobClass::Lease, |_| Ok(none), claim).await?;
            let (wanted, unfinished) = (leased.claims.len(), leased.unfinished);
            let (decoded, leases) = self.decode_work(operation, leased).await?;
            let all_are_good = decoded.len() == wanted;
            claimed.extend(decoded);
            held.add(leases);
            if all_are_good && !unfinished {
                break;
            }
        }
        held.hand_over();
        Ok(claimed)
    }

    /// Decodes leased instances.
    pub(super) async fn decode_turns(
        &self,
        operation: &'static str,
        leased: Leased<StoredClaim>,
    ) -> Result<(Vec<InstanceClaim>, Held), ProviderError> {
        let Leased { claims, held, .. } = leased;
        let mut decoded = Vec::with_capacity(claims.len());
        for claim in claims {
            decoded.extend(self.decoded(operation, claim).await?);
        }
        Ok((decoded, held))
    }

    /// Decodes leased activities.
    pub(super) async fn decode_work(
        &self,
        operation: &'static str,
        leased: Leased<StoredWork>,
    ) -> Result<(Vec<WorkClaim>, Held), ProviderError> {
        let Leased { claims, held, .. } = leased;
        let (good, bad) = decode_work(claims);
        if !bad.is_empty() {
            self.writer
                .submit(operation, JobClass::Lease, move |batch| {
                    Ok(quarantine::set_aside(batch, Queue::Worker, &bad)?)
                })
                .await?;
        }
        Ok((good, held))
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

//! Leases on their way out: the writer takes them in a transaction, and the caller's task decodes them outside it.
//!
//! The store sets aside rows that do not decode, so that they hold up no others, and leases the next rows in their
//! place.

use std::time::Duration;

use super::SqliteProvider;
use super::claims::{self, Claimed, StoredClaim, StoredInstance};
use super::error::StoreError;
use super::give_backs::GiveBacks;
use super::inbox::JobClass;
use super::quarantine;
use super::work::{self, StoredWork, WorkOrder};
use super::write_transaction::WriteTransaction;
use crate::providers::inspect::Origin;
use crate::providers::rows::{self, DecodedMessages, LeasedInstance, UndeliveredLeases};
use crate::providers::{
    DispatcherCapabilityFilter, InstanceClaim, InstanceRequest, ProviderError, TagFilter, WorkClaim,
    WorkQueue, WorkRequest,
};

/// Which instances a claim may take.
pub(super) struct TurnOrder {
    max: usize,
    lock_timeout: Duration,
    filter: Option<DispatcherCapabilityFilter>,
}

impl TurnOrder {
    /// Copies a request; `None` if no instance can match it.
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
    /// Copies a request; `None` if no activity can match it.
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

/// A lease on an instance, for a turn, or on an activity. This is its stored form; the caller gets a decoded one.
pub(super) trait Leasable: Sized + Send + 'static {
    type Order: Send + 'static;
    type Claim: Send;
    const QUEUE: WorkQueue;

    /// Takes the leases that an order asks for.
    fn lease(tx: &mut WriteTransaction<'_, '_>, order: &Self::Order) -> Result<Claimed<Self>, StoreError>;

    fn token(&self) -> &str;

    /// Decodes leases. Ends a lease of which nothing decodes.
    fn decode(
        store: &SqliteProvider,
        operation: &'static str,
        leases: Vec<Self>,
    ) -> impl Future<Output = Result<Vec<Self::Claim>, ProviderError>> + Send;
}

impl Leasable for StoredClaim {
    type Order = TurnOrder;
    type Claim = InstanceClaim;
    const QUEUE: WorkQueue = WorkQueue::Orchestrator;

    fn lease(tx: &mut WriteTransaction<'_, '_>, order: &TurnOrder) -> Result<Claimed<Self>, StoreError> {
        claims::claim(tx, order.max, order.lock_timeout, order.filter.as_ref())
    }

    fn token(&self) -> &str {
        &self.token
    }

    async fn decode(
        store: &SqliteProvider,
        operation: &'static str,
        leases: Vec<Self>,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        let mut decoded = Vec::with_capacity(leases.len());
        for lease in leases {
            decoded.extend(store.decoded(operation, lease).await?);
        }
        Ok(decoded)
    }
}

impl Leasable for StoredWork {
    type Order = WorkOrder;
    type Claim = WorkClaim;
    const QUEUE: WorkQueue = WorkQueue::Worker;

    fn lease(tx: &mut WriteTransaction<'_, '_>, order: &WorkOrder) -> Result<Claimed<Self>, StoreError> {
        work::claim(tx, order)
    }

    fn token(&self) -> &str {
        &self.token
    }

    async fn decode(
        store: &SqliteProvider,
        operation: &'static str,
        leases: Vec<Self>,
    ) -> Result<Vec<WorkClaim>, ProviderError> {
        let (mut good, mut bad) = (Vec::with_capacity(leases.len()), Vec::new());
        for StoredWork { id, token, attempts, text, .. } in leases {
            let decoding = store.mark_activity(&token, text.len());
            match rows::decode_activity(id, token, attempts, text) {
                Ok(claim) => good.push(claim),
                Err(row) => bad.push(row),
            }
            drop(decoding);
        }
        if !bad.is_empty() {
            store
                .writer
                .submit(operation, JobClass::Lease, move |tx| {
                    Ok(quarantine::set_aside(tx, WorkQueue::Worker, &bad)?)
                })
                .await?;
        }
        Ok(good)
    }
}

/// The leases of one transaction. Dropping this gives them back, unless a caller has taken them over.
pub(super) struct Leased<L> {
    leases: Vec<L>,
    /// The transaction found nothing so far, but there is more to look at.
    unfinished: bool,
    undelivered: UndeliveredLeases<GiveBacks>,
}

impl<L: Leasable> Leased<L> {
    /// Makes one without leases.
    pub(super) fn nothing(give_backs: GiveBacks) -> Self {
        Self {
            leases: Vec::new(),
            unfinished: false,
            undelivered: UndeliveredLeases::none(L::QUEUE, give_backs),
        }
    }

    /// Notes leases that the caller knows by other means. They too are given back if no caller takes them over.
    pub(super) fn note(&mut self, tokens: impl IntoIterator<Item = String>) {
        self.undelivered.extend(tokens);
    }

    /// Takes the leases that an order asks for, if there is an order.
    pub(super) fn take(
        &mut self,
        tx: &mut WriteTransaction<'_, '_>,
        order: Option<&L::Order>,
    ) -> Result<(), StoreError> {
        let Some(order) = order else { return Ok(()) };
        let Claimed { claims, unfinished } = L::lease(tx, order)?;
        self.undelivered.extend(claims.iter().map(|lease| lease.token().to_string()));
        (self.leases, self.unfinished) = (claims, unfinished);
        Ok(())
    }
}

impl SqliteProvider {
    /// Leases instances and decodes their messages. Gives the leases back unless the caller hands them over.
    pub(super) async fn claim_turns(
        &self,
        operation: &'static str,
        request: &InstanceRequest<'_>,
    ) -> Result<(Vec<InstanceClaim>, UndeliveredLeases<GiveBacks>), ProviderError> {
        let order = |max| TurnOrder::new(&InstanceRequest { max, ..*request });
        self.claim_up_to::<StoredClaim>(operation, request.max, order).await
    }

    /// Leases activities and decodes them.
    pub(super) async fn claim_activities(
        &self,
        operation: &'static str,
        request: &WorkRequest<'_>,
    ) -> Result<Vec<WorkClaim>, ProviderError> {
        let order = |max| WorkOrder::new(&WorkRequest { max, ..*request });
        let (claims, undelivered) = self.claim_up_to::<StoredWork>(operation, request.max, order).await?;
        undelivered.hand_over();
        Ok(claims)
    }

    /// Takes leases until there are enough or no more: the next row replaces one that does not decode.
    async fn claim_up_to<L: Leasable>(
        &self,
        operation: &'static str,
        max: usize,
        order: impl Fn(usize) -> Option<L::Order>,
    ) -> Result<(Vec<L::Claim>, UndeliveredLeases<GiveBacks>), ProviderError> {
        let mut claimed = Vec::new();
        let mut undelivered = UndeliveredLeases::none(L::QUEUE, self.writer.give_backs());
        while let Some(order) = order(max - claimed.len()) {
            let nothing = Leased::nothing(self.writer.give_backs());
            let claim = move |tx: &mut WriteTransaction<'_, '_>, leased: &mut Leased<L>| {
                leased.take(tx, Some(&order))
            };
            let leased =
                self.writer.submit_and_claim(operation, JobClass::Lease, |_| Ok(nothing), claim).await?;
            let (wanted, unfinished) = (leased.leases.len(), leased.unfinished);
            undelivered.add(leased.undelivered);
            let decoded = L::decode(self, operation, leased.leases).await?;
            let all_are_good = decoded.len() == wanted;
            claimed.extend(decoded);
            if all_are_good && !unfinished {
                break;
            }
        }
        Ok((claimed, undelivered))
    }

    /// Decodes the leases of a commit that also stored a turn or a result. The caller must learn that it is stored,
    /// whatever happens to the leases; so this gives back those that it cannot hand over.
    pub(super) async fn hand_over<L: Leasable>(
        &self,
        operation: &'static str,
        leased: Leased<L>,
    ) -> Vec<L::Claim> {
        match L::decode(self, operation, leased.leases).await {
            Ok(claims) => {
                leased.undelivered.hand_over();
                claims
            }
            Err(error) => {
                tracing::warn!(target: "duroxide::providers::sqlite", %error, "claims given back");
                Vec::new()
            }
        }
    }

    /// Decodes a claim; `None` if none of its messages decodes, in which case the lease has ended.
    async fn decoded(
        &self,
        operation: &'static str,
        claim: StoredClaim,
    ) -> Result<Option<InstanceClaim>, ProviderError> {
        let StoredClaim { instance, token, stored, messages, bytes } = claim;
        let decoding = self.mark_messages(&token, &instance, bytes);
        let rows = messages.into_iter().map(|message| (message.id, message.attempts, message.text));
        let DecodedMessages { messages, attempts, undecodable } = rows::decode_messages(rows);
        drop(decoding);
        if !undecodable.is_empty() {
            let (token, over) = (token.clone(), messages.is_empty());
            self.writer
                .submit(operation, JobClass::Lease, move |tx| {
                    quarantine::set_aside(tx, WorkQueue::Orchestrator, &undecodable)?;
                    if over {
                        super::turns::abandon(tx, &token, None, true)?;
                    }
                    Ok(())
                })
                .await?;
            if over {
                return Ok(None);
            }
        }
        Ok(Some(leased(instance, token, stored).into_claim(messages, attempts.saturating_add(1))))
    }
}

/// The store's knowledge of a leased instance.
fn leased(instance: String, lock_token: String, stored: StoredInstance) -> LeasedInstance {
    match stored {
        StoredInstance::Row(row) => LeasedInstance {
            instance,
            lock_token,
            origin: Some(Origin { name: row.name, version: Some(row.version) }),
            start_event: None,
            execution_id: row.execution_id,
            incarnation: u64::try_from(row.incarnation).unwrap_or(0),
            last_event_id: row.last_event_id,
            status: row.status,
        },
        StoredInstance::NoRow { execution_id, last_event_id, status, start_event } => LeasedInstance {
            instance,
            lock_token,
            origin: None,
            start_event,
            execution_id,
            incarnation: 0,
            last_event_id,
            status,
        },
    }
}

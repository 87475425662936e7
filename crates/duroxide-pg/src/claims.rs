//! Leasing instances and activities, and decoding their messages.

use std::collections::BTreeSet;

use duroxide::providers::inspect::Origin;
use duroxide::providers::rows::{self, DecodedMessages, LeasedInstance, UndecodableRow};
use duroxide::providers::{
    DispatcherCapabilityFilter, InstanceClaim, InstanceRequest, ProviderError, TagFilter, WorkClaim,
    WorkItem, WorkQueue, WorkRequest,
};

use crate::PostgresProvider;
use crate::encode::route;
use crate::error::StoreError;
use crate::fetch::{Fetched, FetchedWork, InstanceOrder, StoredClaim, StoredWork, WorkOrder};
use crate::functions::{Function, params};
use crate::give_backs::UndeliveredLeases;
use crate::server_identity::incarnation;
use crate::session::METRICS;
use crate::shared::{positive, whole_ms};
use crate::text::{original, stored};

static QUARANTINE_MESSAGES: Function = Function::value("quarantine_messages_1");
static QUARANTINE_WORK: Function = Function::value("quarantine_work_1");

impl PostgresProvider {
    /// Leases instances and decodes their messages. Moves messages that do not decode to the quarantine; if none is
    /// left of a lease after that, the next instance takes its place.
    ///
    /// Dropping the leases gives them back, unless the caller hands them over.
    pub(crate) async fn claim(
        &self,
        operation: &'static str,
        request: &InstanceRequest<'_>,
    ) -> Result<(Vec<InstanceClaim>, UndeliveredLeases), ProviderError> {
        let mut claimed = Vec::new();
        let mut held = UndeliveredLeases::none(WorkQueue::Orchestrator, self.returner.clone());
        if request.filter.is_some_and(|filter| filter.supported_duroxide_versions.is_empty()) {
            return Ok((Vec::new(), held));
        }
        self.shared.holder.be_visible(whole_ms(request.lock_timeout)).await;
        while claimed.len() < request.max {
            let fetched = self
                .fetch_instances(request.max - claimed.len(), request)
                .await
                .map_err(|error| error.into_provider_error(operation))?;
            held.add(fetched.held);
            let (before, leased) = (claimed.len(), fetched.claims.len());
            for claim in fetched.claims {
                let oldest_message = claim.ids.iter().min().copied();
                let decoded = self.decoded(operation, claim).await?;
                claimed.extend(decoded.map(|claim| (oldest_message, claim)));
            }
            let all_decoded = claimed.len() - before == leased;
            if !all_decoded || fetched.unfinished || !fetched.unknown_classes.is_empty() {
                continue;
            }
            // Another call may just be giving back what this one looks for.
            if claimed.is_empty() && self.returner.give_backs.finish().await {
                continue;
            }
            break;
        }
        claimed.sort_by_key(|(oldest_message, _)| *oldest_message);
        Ok((claimed.into_iter().map(|(_, claim)| claim).collect(), held))
    }

    async fn fetch_instances(
        &self,
        max: usize,
        request: &InstanceRequest<'_>,
    ) -> Result<Fetched, StoreError> {
        let order = self.instance_order(max, request);
        let gatherer = self.instance_claims.clone();
        let fetched = self.returner.give_backs.see_through(async move { gatherer.ask(order).await }).await?;
        self.learn_classes(&fetched);
        Ok(fetched)
    }

    /// Makes the order for a request.
    pub(crate) fn instance_order(&self, max: usize, request: &InstanceRequest<'_>) -> InstanceOrder {
        let classes = request.filter.map(|filter| {
            let known: Vec<String> = self.classes().iter().cloned().collect();
            let allowed = known.iter().filter(|class| is_compatible(filter, class)).cloned().collect();
            (known, allowed)
        });
        let lease_ms = whole_ms(request.lock_timeout);
        InstanceOrder { max, lease_ms, seed: self.shared.holder.seed(lease_ms), classes }
    }

    /// Makes the order for a request.
    pub(crate) fn work_order(&self, request: &WorkRequest<'_>) -> WorkOrder {
        let lease_ms = whole_ms(request.lock_timeout);
        let owner = request.session.map(|session| stored(&session.owner_id).into_owned());
        owner.iter().for_each(|owner| self.shared.holder.note_owner(owner));
        WorkOrder {
            max: request.max,
            lease_ms,
            seed: self.shared.holder.seed(lease_ms),
            owner,
            session_ms: request.session.map_or(0, |session| whole_ms(session.lock_timeout)),
            routes: routes(request.tag_filter),
        }
    }

    fn learn_classes(&self, fetched: &Fetched) {
        if !fetched.unknown_classes.is_empty() {
            self.classes().extend(fetched.unknown_classes.iter().cloned());
        }
    }

    /// Decodes instances that a commit leased.
    pub(crate) async fn take_instances(
        &self,
        operation: &'static str,
        fetched: Fetched,
    ) -> Result<Vec<InstanceClaim>, ProviderError> {
        self.learn_classes(&fetched);
        let mut claimed = Vec::with_capacity(fetched.claims.len());
        for claim in fetched.claims {
            claimed.extend(self.decoded(operation, claim).await?);
        }
        fetched.held.hand_over();
        Ok(claimed)
    }

    /// Decodes activities that a commit leased.
    pub(crate) async fn take_work(
        &self,
        operation: &'static str,
        fetched: FetchedWork,
    ) -> Result<Vec<WorkClaim>, ProviderError> {
        let (good, bad) = self.decode_work(fetched.claims).await;
        if !bad.is_empty() {
            self.set_aside(operation, WorkQueue::Worker, &bad).await?;
        }
        fetched.held.hand_over();
        Ok(good)
    }

    /// Decodes a claim; if none of its messages decodes, ends the lease and returns `None`.
    async fn decoded(
        &self,
        operation: &'static str,
        claim: StoredClaim,
    ) -> Result<Option<InstanceClaim>, ProviderError> {
        let counts = claim.attempts.iter().map(|attempts| u32::try_from(*attempts).unwrap_or(u32::MAX));
        let stored =
            claim.ids.iter().zip(counts).zip(&claim.texts).map(|((id, tried), text)| (*id, tried, text));
        let decoding = self.decoding_messages(&claim).await;
        let DecodedMessages { messages, attempts, undecodable } = rows::decode_messages(stored);
        if let Some(decoding) = decoding {
            decoding.end().await;
        }
        if !undecodable.is_empty() {
            self.set_aside(operation, WorkQueue::Orchestrator, &undecodable).await?;
            if messages.is_empty() {
                let over =
                    self.returner.give_back_patiently(WorkQueue::Orchestrator, &claim.token, 0, true).await;
                over.map_err(|error| error.into_provider_error(operation))?;
                return Ok(None);
            }
        }
        let attempt_count = attempts.saturating_add(1);
        self.shared.holder.note_attempt(&claim.token, attempt_count);
        let server = self.shared.server_identity.number();
        Ok(Some(claim.describe(messages, attempt_count, server)))
    }

    /// Leases activities and decodes them. Moves those that do not decode to the quarantine, and the next take their
    /// place.
    pub(crate) async fn claim_activities(
        &self,
        operation: &'static str,
        request: &WorkRequest<'_>,
    ) -> Result<Vec<WorkClaim>, ProviderError> {
        let mut claimed = Vec::new();
        if *request.tag_filter == TagFilter::None {
            return Ok(claimed);
        }
        self.shared.holder.be_visible(whole_ms(request.lock_timeout)).await;
        let mut held = UndeliveredLeases::none(WorkQueue::Worker, self.returner.clone());
        while claimed.len() < request.max {
            let FetchedWork { claims: stored, held: leases, unfinished } = self
                .fetch_work(request.max - claimed.len(), request)
                .await
                .map_err(|error| error.into_provider_error(operation))?;
            held.add(leases);
            let (good, bad) = self.decode_work(stored).await;
            claimed.extend(good);
            if !bad.is_empty() {
                self.set_aside(operation, WorkQueue::Worker, &bad).await?;
                continue;
            }
            if unfinished || (claimed.is_empty() && self.returner.give_backs.finish().await) {
                continue;
            }
            break;
        }
        held.hand_over();
        Ok(claimed)
    }

    async fn fetch_work(&self, max: usize, request: &WorkRequest<'_>) -> Result<FetchedWork, StoreError> {
        let order = WorkOrder { max, ..self.work_order(request) };
        let gatherer = self.work_claims.clone();
        self.returner.give_backs.see_through(async move { gatherer.ask(order).await }).await
    }

    async fn decode_work(&self, stored: Vec<StoredWork>) -> (Vec<WorkClaim>, Vec<UndecodableRow>) {
        let (mut good, mut bad) = (Vec::with_capacity(stored.len()), Vec::new());
        for work in stored {
            let decoding = self.decoding_activity(&work).await;
            let StoredWork { id, token, attempts, text } = work;
            let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
            let decoded = rows::decode_activity(id, token, attempts, text);
            if let Some(decoding) = decoding {
                decoding.end().await;
            }
            match decoded {
                Ok(claim) => {
                    self.shared.holder.note_attempt(&claim.lock_token, claim.attempt_count);
                    good.push(claim);
                }
                Err(row) => bad.push(row),
            }
        }
        (good, bad)
    }

    /// Moves rows that do not decode to the quarantine, out of the way of later claims.
    async fn set_aside(
        &self,
        operation: &'static str,
        queue: WorkQueue,
        undecodable: &[UndecodableRow],
    ) -> Result<(), ProviderError> {
        let function: &'static Function = match queue {
            WorkQueue::Orchestrator => &QUARANTINE_MESSAGES,
            WorkQueue::Worker => &QUARANTINE_WORK,
        };
        let ids: Vec<i64> = undecodable.iter().map(|row| row.id).collect();
        let reasons: Vec<&str> = undecodable.iter().map(|row| row.reason.as_str()).collect();
        let now = self.shared.time.given_ms();
        let (sql, values) = function.call(params![p_now: now, p_id: ids, p_reason: reasons]);
        let moved = self.returner.connection.query(sql, &values).await;
        moved.map_err(|failure| StoreError::from(failure).into_provider_error(operation))?;
        for row in undecodable {
            row.report(rows::table_of(queue));
            METRICS.quarantined(rows::name_of(queue));
        }
        Ok(())
    }

    fn classes(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.known_classes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Tells whether the filter takes a class: the version that an execution is pinned to; '' if to none.
fn is_compatible(filter: &DispatcherCapabilityFilter, class: &str) -> bool {
    if class.is_empty() {
        // A dispatcher that supports no version takes nothing.
        return !filter.supported_duroxide_versions.is_empty();
    }
    semver::Version::parse(class).is_ok_and(|version| filter.is_compatible(&version))
}

/// Returns the routes that a filter lets through; `None` for all.
fn routes(filter: &TagFilter) -> Option<Vec<String>> {
    let tagged = |tags: &std::collections::HashSet<String>| {
        let mut routes: Vec<String> = tags.iter().map(|tag| route(Some(tag))).collect();
        // A set has no order, and equal filters should look alike.
        routes.sort();
        routes
    };
    match filter {
        TagFilter::Any => None,
        TagFilter::None => Some(Vec::new()),
        TagFilter::DefaultOnly => Some(vec![route(None)]),
        TagFilter::Tags(tags) => Some(tagged(tags)),
        TagFilter::DefaultAnd(tags) => {
            let mut routes = tagged(tags);
            routes.push(route(None));
            Some(routes)
        }
    }
}

impl StoredClaim {
    /// Makes the claim that a caller gets of an instance that it leased.
    fn describe(self, messages: Vec<WorkItem>, attempt_count: u32, server: u64) -> InstanceClaim {
        let leased = LeasedInstance {
            instance: original(self.instance),
            lock_token: self.token,
            origin: self.name.map(|name| Origin { name, version: self.version }),
            start_event: self.start_event.map(String::into_bytes),
            execution_id: self.execution_id,
            incarnation: incarnation(server, positive(self.incarnation)),
            last_event_id: self.last_event_id,
            status: self.status.map(original),
        };
        leased.into_claim(messages, attempt_count)
    }
}

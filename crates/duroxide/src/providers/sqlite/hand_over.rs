//! Storing something and claiming what it leads to, in one transaction.

use super::SqliteProvider;
use super::batch::Batch;
use super::claims::StoredClaim;
use super::encode::{self, NewMessage};
use super::inbox::JobClass;
use super::leasing::{Leased, TurnOrder};
use super::turns::{self, TurnCommit};
use super::work::{self, StoredWork, WorkOrder};
use crate::model::WorkItem;
use crate::providers::{
    InstanceRequest, ProviderError, StoredResult, StoredTurn, TurnToStore, WorkRequest, inspect, refusal,
};

const ACK_TURN: &str = "ack_orchestration_item";
const ACK_WORK: &str = "ack_work_item";

impl SqliteProvider {
    /// Stores a turn; claims activities, new ones too, if the caller has room for them.
    pub(super) async fn store_turn_and_claim(
        &self,
        turn: TurnToStore<'_>,
        claim: Option<&WorkRequest<'_>>,
    ) -> Result<StoredTurn, ProviderError> {
        let turn = self.encode_turn(turn)?;
        let order = claim.and_then(WorkOrder::new);
        let none = Leased::no_work(self.writer.errands());
        let store = move |batch: &mut Batch<'_, '_>| Ok((turns::ack(batch, &turn)?, none));
        let claim = move |batch: &mut Batch<'_, '_>, stored: &mut (i64, Leased<StoredWork>)| match &order {
            Some(order) => stored.1.take(batch, order),
            None => Ok(()),
        };
        let (incarnation, leased) =
            self.writer.submit_and_claim(ACK_TURN, JobClass::Data, store, claim).await?;
        // The turn is stored: whatever happens to the claims, that must be said.
        let claims = match self.decode_work(ACK_TURN, leased).await {
            Ok((claims, held)) => {
                held.hand_over();
                claims
            }
            Err(_) => Vec::new(),
        };
        Ok(StoredTurn { incarnation: u64::try_from(incarnation).unwrap_or(0), claims })
    }

    /// Stores the result of an activity; claims instances, its own too, if the caller has room for their turns.
    pub(super) async fn store_result_and_claim(
        &self,
        lock_token: &str,
        completion: Option<WorkItem>,
        claim: Option<&InstanceRequest<'_>>,
    ) -> Result<StoredResult, ProviderError> {
        let (token, arrived_ms) = (lock_token.to_string(), self.shared.now_ms());
        let completion = self.encode_result(completion)?;
        let order = claim.and_then(TurnOrder::new);
        let none = Leased::no_turns(self.writer.errands());
        let store = move |batch: &mut Batch<'_, '_>| {
            work::ack(batch, &token, arrived_ms, completion.as_ref())?;
            Ok(none)
        };
        let claim = move |batch: &mut Batch<'_, '_>, leased: &mut Leased<StoredClaim>| match &order {
            Some(order) => leased.take(batch, order),
            None => Ok(()),
        };
        let (leased, durable) = self.writer.submit_ahead(ACK_WORK, store, claim).await?;
        let claims = match self.decode_turns(ACK_WORK, leased).await {
            Ok((claims, held)) => {
                held.hand_over();
                claims
            }
            Err(_) => Vec::new(),
        };
        Ok(StoredResult { claims, durable })
    }

    fn encode_turn(&self, turn: TurnToStore<'_>) -> Result<TurnCommit, ProviderError> {
        let limits = &self.shared.limits;
        let pinned = turn.metadata.pinned_duroxide_version.as_ref();
        Ok(TurnCommit {
            token: turn.lock_token.to_string(),
            arrived_ms: self.shared.now_ms(),
            execution_id: encode::id(ACK_TURN, "execution id", turn.execution_id)?,
            events: encode::events(limits, ACK_TURN, turn.history_delta)?,
            changes: inspect::delta_changes(turn.history_delta),
            activities: encode::activities(limits, ACK_TURN, turn.worker_items)?,
            messages: encode::messages(limits, ACK_TURN, turn.orchestrator_items)?,
            pinned: pinned.map(|version| encode::PinnedVersion::new(ACK_TURN, version)).transpose()?,
            metadata: turn.metadata.clone(),
            cancelled: turn.cancelled_activities.to_vec(),
        })
    }

    pub(super) fn encode_result(
        &self,
        completion: Option<WorkItem>,
    ) -> Result<Option<NewMessage>, ProviderError> {
        if completion.as_ref().is_some_and(|item| !inspect::is_activity_completion(item)) {
            return Err(refusal::wrong_completion());
        }
        completion.map(|item| encode::message(&self.shared.limits, ACK_WORK, &item)).transpose()
    }
}

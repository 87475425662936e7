//! Storing something and claiming what it leads to, in one transaction.

use super::SqliteProvider;
use super::claims::StoredClaim;
use super::encode::{self, NewMessage};
use super::inbox::JobClass;
use super::leasing::{Leased, TurnOrder};
use super::turns::{self, TurnCommit};
use super::work::{self, StoredWork, WorkOrder};
use super::write_transaction::WriteTransaction;
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
        let nothing = Leased::nothing(self.writer.give_backs());
        let store = move |tx: &mut WriteTransaction<'_, '_>| Ok((turns::ack(tx, &turn)?, nothing));
        let claim = move |tx: &mut WriteTransaction<'_, '_>, stored: &mut (i64, Leased<StoredWork>)| {
            stored.1.take(tx, order.as_ref())
        };
        let (incarnation, leased) =
            self.writer.submit_and_claim(ACK_TURN, JobClass::Data, store, claim).await?;
        let claims = self.hand_over(ACK_TURN, leased).await;
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
        let nothing = Leased::nothing(self.writer.give_backs());
        let store = move |tx: &mut WriteTransaction<'_, '_>| {
            work::ack(tx, &token, arrived_ms, completion.as_ref())?;
            Ok(nothing)
        };
        let claim = move |tx: &mut WriteTransaction<'_, '_>, leased: &mut Leased<StoredClaim>| {
            leased.take(tx, order.as_ref())
        };
        let (leased, durable) = self.writer.submit_ahead(ACK_WORK, store, claim).await?;
        let claims = self.hand_over(ACK_WORK, leased).await;
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

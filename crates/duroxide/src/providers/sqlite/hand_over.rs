//! Stores a turn or a result, and claims the work that it leads to, in one transaction.

use super::SqliteProvider;
use super::claims::StoredClaim;
use super::inbox::JobClass;
use super::leasing::{Leased, TurnOrder};
use super::turns::{self, TurnCommit};
use super::work::{self, StoredWork, WorkOrder};
use super::write_transaction::WriteTransaction;
use crate::model::WorkItem;
use crate::providers::rows::{ActivityRow, EventRow, MessageRow, PinnedVersion, row_number};
use crate::providers::{
    InstanceRequest, ProviderError, StoredResult, StoredTurn, TurnToStore, WorkRequest, inspect, refusal,
};

const ACK_TURN: &str = "ack_orchestration_item";
const ACK_WORK: &str = "ack_work_item";

impl SqliteProvider {
    /// Stores a turn. Claims activities, including its new ones, if the caller has room for them.
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

    /// Stores the result of an activity. Claims instances, including its own, if the caller has room for their turns.
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

    pub(super) fn encode_turn(&self, turn: TurnToStore<'_>) -> Result<TurnCommit, ProviderError> {
        let limits = &self.shared.limits;
        let pinned = turn.metadata.pinned_duroxide_version.as_ref();
        let activity = |item| ActivityRow::encode_with(limits, ACK_TURN, item, turn.options_of(item), None);
        let message = |item| MessageRow::encode(limits, ACK_TURN, item);
        Ok(TurnCommit {
            token: turn.lock_token.to_string(),
            arrived_ms: self.shared.now_ms(),
            execution_id: row_number(ACK_TURN, "execution id", turn.execution_id)?,
            events: EventRow::encode_all(limits, ACK_TURN, turn.history_delta)?,
            changes: inspect::delta_changes(turn.history_delta),
            activities: turn.worker_items.iter().map(activity).collect::<Result<_, _>>()?,
            messages: turn.orchestrator_items.iter().map(message).collect::<Result<_, _>>()?,
            pinned: pinned.map(|version| PinnedVersion::encode(ACK_TURN, version)).transpose()?,
            metadata: turn.metadata.clone(),
            cancelled: turn.cancelled_activities.to_vec(),
        })
    }

    pub(super) fn encode_result(
        &self,
        completion: Option<WorkItem>,
    ) -> Result<Option<MessageRow>, ProviderError> {
        if completion.as_ref().is_some_and(|item| !inspect::is_activity_completion(item)) {
            return Err(refusal::wrong_completion());
        }
        completion.map(|item| MessageRow::encode(&self.shared.limits, ACK_WORK, &item)).transpose()
    }
}

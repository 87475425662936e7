//! Blocked instances: no worker claims them, because the store could keep neither their turn nor their failure.

use duroxide::providers::{BlockedInstance, ProviderError, refusal};
use tokio_postgres::Row;

use crate::PostgresProvider;
use crate::encode::leased_by;
use crate::functions::{Function, params};
use crate::reads::{named, number, row_limit, text};
use crate::shared::Effects;
use crate::text::stored;

static BLOCK: Function = Function::value("block_instance_1");
static UNBLOCK: Function = Function::value("unblock_instance_1");
const LIST: &str = "SELECT instance_id, blocked_reason, blocked_at FROM instance_schedule
    WHERE blocked_at IS NOT NULL ORDER BY blocked_at, instance_id LIMIT $1";

impl PostgresProvider {
    /// Ends a turn and keeps workers from claiming its instance.
    pub(crate) async fn block(&self, lock_token: &str, reason: &str) -> Result<(), ProviderError> {
        const OPERATION: &str = "block_instance";
        let unknown = || refusal::unknown_turn_token(OPERATION);
        let instance = leased_by(lock_token).ok_or_else(unknown)?;
        let (now, reason) = (self.shared.time.given_ms(), stored(reason));
        let reason = reason.as_ref();
        let params = params![p_now: now, p_instance: instance, p_token: lock_token, p_reason: reason];
        let (sql, values) = BLOCK.call(params);
        let rows = self.returner.connection.query(sql, &values).await.map_err(named(OPERATION))?;
        match rows.first().is_some_and(|row| row.get(0)) {
            true => Ok(()),
            false => Err(unknown()),
        }
    }

    /// Lets workers claim an instance again; tells whether it was blocked.
    pub(crate) async fn unblock(&self, instance: &str) -> Result<bool, ProviderError> {
        let instance = stored(instance).into_owned();
        let (sql, values) = UNBLOCK.call(params![p_instance: instance]);
        let rows = self.returner.connection.query(sql, &values).await;
        let rows = rows.map_err(named("unblock_instance"))?;
        let was_blocked = rows.first().is_some_and(|row| row.get(0));
        if was_blocked {
            self.shared.announce(Effects { instances_touched: true, ..Effects::default() });
        }
        Ok(was_blocked)
    }

    /// Lists blocked instances, beginning with the one that has been blocked longest.
    pub(crate) async fn blocked(&self, limit: usize) -> Result<Vec<BlockedInstance>, ProviderError> {
        let rows = self.listing("list_blocked", LIST, &[&row_limit(limit)]).await?;
        let read = |row: &Row| BlockedInstance {
            instance: text(row, "instance_id"),
            reason: text(row, "blocked_reason"),
            blocked_at: number(row, "blocked_at"),
        };
        Ok(rows.iter().map(read).collect())
    }
}

//! Instances that no caller can claim, because the store could take neither their turn nor their failure.

use super::state::State;
use crate::providers::{BlockedInstance, ProviderError, refusal};

impl State {
    /// Ends a turn and blocks its instance. The lease must be live: a turn that the store refused because its lease had
    /// run out is no reason to block anything.
    pub fn block_instance(&mut self, lock_token: &str, reason: &str, now: u64) -> Result<(), ProviderError> {
        const OPERATION: &str = "block_instance";
        let (instance, lease) =
            self.turn(lock_token).ok_or_else(|| refusal::unknown_turn_token(OPERATION))?;
        if !lease.is_live(now) {
            return Err(ProviderError { operation: OPERATION.to_string(), ..refusal::turn_lease_expired() });
        }
        let (instance, reason) = (instance.to_string(), reason.to_string());
        self.turn_leases.remove(&instance);
        for message in self.messages.iter_mut().filter(|message| message.instance == instance) {
            message.taken_by = None;
        }
        self.blocked.push(BlockedInstance { instance, reason, blocked_at: now });
        Ok(())
    }

    /// Makes an instance claimable again, as if its messages had never been delivered.
    pub fn unblock_instance(&mut self, instance: &str) -> bool {
        let blocked = self.blocked.len();
        self.blocked.retain(|blocked| blocked.instance != instance);
        if self.blocked.len() == blocked {
            return false;
        }
        for message in self.messages.iter_mut().filter(|message| message.instance == instance) {
            message.attempts = 0;
        }
        true
    }

    /// Tells whether an instance is blocked.
    pub fn is_blocked(&self, instance: &str) -> bool {
        self.blocked.iter().any(|blocked| blocked.instance == instance)
    }
}

//! The engine's side of a context, for tests that drive a context by hand.

use crate::model::Action;
use crate::orchestration::OrchestrationContext;
use crate::replay::CompletionResult;

#[doc(hidden)]
impl OrchestrationContext {
    /// Sets what [`is_replaying`](Self::is_replaying) returns.
    pub fn set_is_replaying(&self, is_replaying: bool) {
        self.shared_state().set_replaying(is_replaying);
    }

    /// Puts a wait at the end of the queue for its name.
    pub fn bind_external_subscription(&self, schedule_id: u64, name: &str) {
        self.shared_state().bind_wait(schedule_id, (name.to_string(), None));
    }

    /// Offers a signal to the waits for its name.
    pub fn deliver_external_event(&self, name: String, data: String) {
        self.shared_state().deliver_signal(&(name, None), data);
    }

    /// Puts a dequeue at the end of its queue.
    pub fn bind_queue_subscription(&self, schedule_id: u64, name: &str) {
        self.shared_state().bind_dequeue(schedule_id, name);
    }

    /// Puts a message into a queue.
    pub fn deliver_queue_message(&self, name: String, data: String) {
        self.shared_state().deliver_message(&name, data);
    }

    /// Takes the actions asked for so far, each with its token.
    pub fn drain_emitted_actions(&self) -> Vec<(u64, Action)> {
        let emitted = self.shared_state().drain_emitted().into_iter();
        emitted.map(|emitted| (emitted.token, emitted.action)).collect()
    }

    /// Returns the actions asked for so far, each with its token.
    pub fn get_emitted_actions(&self) -> Vec<(u64, Action)> {
        self.shared_state().emitted()
    }

    /// Ties a token to the event that records its request.
    pub fn bind_token(&self, token: u64, schedule_id: u64) {
        self.shared_state().bind(token, schedule_id);
    }

    /// Stores the outcome of a scheduled step.
    pub fn deliver_result(&self, schedule_id: u64, result: CompletionResult) {
        if !self.shared_state().deliver(schedule_id, result) {
            tracing::warn!(
                instance_id = %self.instance_id(),
                schedule_id,
                "a result was delivered for a step that no token is bound to"
            );
        }
    }
}

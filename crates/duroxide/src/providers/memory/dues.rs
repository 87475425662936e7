//! Which work is ready now, and when the next will be: the facts behind the work signals.

use super::orphans::parked_until;
use super::state::{Activity, Message, State, StoredLease};

impl State {
    /// Tells whether a fetch may find an instance.
    pub fn has_ready_messages(&self, now: u64) -> bool {
        self.messages.iter().any(|message| {
            message.parked_at.is_none()
                && self.message_ready_at(message) <= now
                && !self.is_blocked(&message.instance)
        })
    }

    /// Returns the next moment at which a fetch may find an instance that it would not find now.
    ///
    /// The end of a parking time counts too: a fetch has to come and clear the message away.
    pub fn next_message_due(&self, now: u64) -> Option<u64> {
        let waiting = self.messages.iter().filter(|message| !self.is_blocked(&message.instance));
        let dues = waiting.filter_map(|message| match parked_until(message, self.parking_ms) {
            Some(until) => Some(until),
            None => Some(self.message_ready_at(message)).filter(|ready_at| *ready_at > now),
        });
        dues.min()
    }

    /// A message is ready when it is visible and no turn holds its instance.
    fn message_ready_at(&self, message: &Message) -> u64 {
        let lease = self.turn_leases.get(&message.instance);
        message.visible_at.max(lease.map_or(0, StoredLease::excludes_others_until))
    }

    /// Tells whether a fetch may find an activity.
    pub fn has_ready_activities(&self, now: u64) -> bool {
        self.activities.iter().any(|activity| activity_ready_at(activity) <= now)
    }

    /// Returns the next moment at which a fetch may find an activity that it would not find now.
    ///
    /// An activity of a session is ready for the session's owner first, and for every worker once the session is free.
    pub fn next_activity_due(&self, now: u64) -> Option<u64> {
        let dues = self.activities.iter().flat_map(|activity| {
            let session = activity.session_id.as_ref().and_then(|id| self.sessions.get(id));
            let ready_at = activity_ready_at(activity);
            [ready_at, ready_at.max(session.map_or(0, |session| session.locked_until))]
        });
        dues.filter(|due| *due > now).min()
    }
}

pub(super) fn activity_ready_at(activity: &Activity) -> u64 {
    activity.visible_at.max(activity.lease.as_ref().map_or(0, StoredLease::excludes_others_until))
}

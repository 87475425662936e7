//! Which dequeue reads a queue message: by name, first in, first out.

use std::collections::{HashMap, VecDeque};

use super::RacePolicy;

/// The mailboxes of an execution.
#[derive(Debug)]
pub(crate) enum Queues {
    Prompt(PromptQueues),
    Legacy(LegacyQueues),
}

impl Queues {
    pub(crate) fn new(policy: RacePolicy) -> Self {
        match policy {
            RacePolicy::Prompt => Self::Prompt(PromptQueues::default()),
            RacePolicy::Legacy => Self::Legacy(LegacyQueues::default()),
        }
    }

    /// Puts a dequeue at the end of its queue. `dropped` says that the code has dropped its future. Adds the dequeues
    /// that may have become ready to `ready`.
    pub(crate) fn bind(&mut self, name: &str, schedule_id: u64, dropped: bool, ready: &mut Vec<u64>) {
        match self {
            Self::Prompt(_) if dropped => {}
            Self::Prompt(queues) => queues.bind(name, schedule_id, ready),
            Self::Legacy(queues) => {
                queues.bind(name, schedule_id, ready);
                if dropped {
                    queues.dropped.push(schedule_id);
                }
            }
        }
    }

    /// Adds a message to a mailbox.
    pub(crate) fn deliver(&mut self, name: &str, data: String, ready: &mut Vec<u64>) {
        match self {
            Self::Prompt(queues) => queues.deliver(name, data, ready),
            Self::Legacy(queues) => queues.deliver(name, data, ready),
        }
    }

    /// Reads the message that belongs to a dequeue.
    pub(crate) fn take(&mut self, schedule_id: u64) -> Option<String> {
        match self {
            Self::Prompt(queues) => queues.take(schedule_id),
            Self::Legacy(queues) => queues.take(schedule_id),
        }
    }

    /// Handles the drop of a dequeue's future.
    pub(crate) fn drop_dequeue(&mut self, schedule_id: u64, ready: &mut Vec<u64>) {
        match self {
            Self::Prompt(queues) => queues.cancel(schedule_id, ready),
            Self::Legacy(queues) => queues.dropped.push(schedule_id),
        }
    }

    /// Frees, in legacy executions, the places of dropped dequeues: all events of the turn have been applied.
    pub(crate) fn end_of_history(&mut self) {
        if let Self::Legacy(queues) = self {
            for schedule_id in std::mem::take(&mut queues.dropped) {
                queues.cancel(schedule_id);
            }
        }
    }

    /// Applies a recorded cancellation row.
    pub(crate) fn cancel_by_row(&mut self, schedule_id: u64, ready: &mut Vec<u64>) {
        match self {
            Self::Prompt(queues) => queues.cancel(schedule_id, ready),
            Self::Legacy(queues) => queues.cancel(schedule_id),
        }
    }

    /// The unread messages with their names, in the order of arrival; `None` if the policy cannot tell.
    pub(crate) fn unread(&self) -> Option<Vec<(String, String)>> {
        match self {
            Self::Prompt(queues) => Some(queues.unread()),
            Self::Legacy(_) => None,
        }
    }
}

/// The n-th open dequeue of a name reads the n-th unread message. Reading takes both out.
#[derive(Debug, Default)]
pub(crate) struct PromptQueues {
    boxes: HashMap<String, Mailbox>,
    name_of: HashMap<u64, String>,
    arrivals: u64,
}

#[derive(Debug, Default)]
struct Mailbox {
    /// Dequeues that have read nothing yet, in the order in which they were bound.
    open: VecDeque<u64>,
    unread: VecDeque<Message>,
}

#[derive(Debug)]
struct Message {
    arrival: u64,
    data: String,
}

impl PromptQueues {
    fn bind(&mut self, name: &str, schedule_id: u64, ready: &mut Vec<u64>) {
        self.name_of.insert(schedule_id, name.to_string());
        let mailbox = self.boxes.entry(name.to_string()).or_default();
        mailbox.open.push_back(schedule_id);
        if mailbox.open.len() <= mailbox.unread.len() {
            ready.push(schedule_id);
        }
    }

    fn deliver(&mut self, name: &str, data: String, ready: &mut Vec<u64>) {
        self.arrivals += 1;
        let mailbox = self.boxes.entry(name.to_string()).or_default();
        mailbox.unread.push_back(Message { arrival: self.arrivals, data });
        ready.extend(mailbox.last_served());
    }

    fn take(&mut self, schedule_id: u64) -> Option<String> {
        let mailbox = self.boxes.get_mut(self.name_of.get(&schedule_id)?)?;
        let served = mailbox.open.iter().take(mailbox.unread.len());
        let rank = served.copied().position(|open| open == schedule_id)?;
        mailbox.open.remove(rank);
        self.name_of.remove(&schedule_id);
        mailbox.unread.remove(rank).map(|message| message.data)
    }

    fn cancel(&mut self, schedule_id: u64, ready: &mut Vec<u64>) {
        let Some(name) = self.name_of.remove(&schedule_id) else { return };
        let Some(mailbox) = self.boxes.get_mut(&name) else { return };
        mailbox.open.retain(|open| *open != schedule_id);
        ready.extend(mailbox.last_served());
    }

    fn unread(&self) -> Vec<(String, String)> {
        let mut unread: Vec<(u64, &str, &str)> = self
            .boxes
            .iter()
            .flat_map(|(name, mailbox)| {
                mailbox.unread.iter().map(move |m| (m.arrival, name.as_str(), m.data.as_str()))
            })
            .collect();
        unread.sort_unstable();
        unread.into_iter().map(|(_, name, data)| (name.to_string(), data.to_string())).collect()
    }
}

impl Mailbox {
    /// The last open dequeue for which there is a message: the dequeue that gets a new message or profits from a freed
    /// place.
    fn last_served(&self) -> Option<u64> {
        self.unread.len().checked_sub(1).and_then(|last| self.open.get(last)).copied()
    }
}

/// A dequeue reads the arrival whose number is the count of earlier dequeues that are not cancelled.
#[derive(Debug, Default)]
pub(crate) struct LegacyQueues {
    boxes: HashMap<String, LegacyMailbox>,
    name_of: HashMap<u64, String>,
    /// Dequeues whose futures were dropped in this turn; their places are still taken.
    dropped: Vec<u64>,
}

#[derive(Debug, Default)]
struct LegacyMailbox {
    dequeues: Vec<LegacyDequeue>,
    arrivals: Vec<String>,
}

#[derive(Debug)]
struct LegacyDequeue {
    schedule_id: u64,
    cancelled: bool,
}

impl LegacyQueues {
    fn bind(&mut self, name: &str, schedule_id: u64, ready: &mut Vec<u64>) {
        self.name_of.insert(schedule_id, name.to_string());
        let mailbox = self.boxes.entry(name.to_string()).or_default();
        mailbox.dequeues.push(LegacyDequeue { schedule_id, cancelled: false });
        ready.push(schedule_id);
    }

    fn deliver(&mut self, name: &str, data: String, ready: &mut Vec<u64>) {
        let mailbox = self.boxes.entry(name.to_string()).or_default();
        mailbox.arrivals.push(data);
        ready.extend(mailbox.dequeues.iter().map(|dequeue| dequeue.schedule_id));
    }

    fn take(&mut self, schedule_id: u64) -> Option<String> {
        let mailbox = self.boxes.get(self.name_of.get(&schedule_id)?)?;
        let raw_index = mailbox.dequeues.iter().position(|dequeue| dequeue.schedule_id == schedule_id)?;
        if mailbox.dequeues[raw_index].cancelled {
            return None;
        }
        let place = mailbox.dequeues[..raw_index].iter().filter(|dequeue| !dequeue.cancelled).count();
        mailbox.arrivals.get(place).cloned()
    }

    fn cancel(&mut self, schedule_id: u64) {
        let Some(mailbox) = self.name_of.get(&schedule_id).and_then(|name| self.boxes.get_mut(name)) else {
            return;
        };
        for dequeue in mailbox.dequeues.iter_mut().filter(|dequeue| dequeue.schedule_id == schedule_id) {
            dequeue.cancelled = true;
        }
    }
}

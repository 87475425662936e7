//! The instances whose next turn is being stored together with its cause, and the results that wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::results::OfferedResult;
use crate::runtime::orchestrator::residents::{Resident, Residents};

/// The instances of a runtime that have a turn on the short path.
#[derive(Default)]
pub(super) struct UnderWay {
    instances: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    execution_id: u64,
    /// Results that came meanwhile.
    waiting: Vec<WaitingResult>,
    /// Turns that were leased meanwhile and need the instance.
    leased: Vec<oneshot::Sender<()>>,
    /// A message has been put into the queue of the instance meanwhile.
    has_mail: bool,
}

/// A result that waits until the turn before it is stored.
pub(super) struct WaitingResult {
    pub result: OfferedResult,
    pub answer: oneshot::Sender<WaitOutcome>,
}

/// What becomes of a result that waited.
pub(super) enum WaitOutcome {
    /// A turn has taken it, and is stored.
    Stored,
    /// The result is stored nowhere, and has to go through the queue.
    NotTaken,
    /// The result is the first of those that wait: the worker that offers it takes the next turn, with all of them.
    Lead(Lead),
}

/// The right to take the next turn of an instance.
pub(super) struct Lead {
    pub resident: Box<Resident>,
    pub claim: Hold,
}

/// How an offered result goes on.
pub(super) enum Entered {
    /// The instance is in memory and idle.
    Lead(Lead),
    /// Another turn of the instance is under way.
    Waits(oneshot::Receiver<WaitOutcome>),
    /// The instance is not here.
    NotHere,
}

impl UnderWay {
    /// Takes an instance out of memory for a turn with this result, or lets the result wait for the turn under way.
    pub(super) fn enter(
        self: &Arc<Self>,
        residents: &Residents,
        result: &OfferedResult,
        now: std::time::Duration,
    ) -> Entered {
        let (instance, execution_id) = (result.instance(), result.execution_id());
        let mut instances = self.lock();
        if let Some(entry) = instances.get_mut(instance) {
            if entry.execution_id != execution_id {
                return Entered::NotHere;
            }
            let (answer, receiver) = oneshot::channel();
            entry.waiting.push(WaitingResult { result: result.clone(), answer });
            return Entered::Waits(receiver);
        }
        let Some(resident) = residents.take_idle(instance, execution_id, now) else {
            return Entered::NotHere;
        };
        instances.insert(instance.to_string(), Entry::new(execution_id));
        Entered::Lead(Lead { resident, claim: self.hold(instance) })
    }

    /// Takes an instance out of memory for a turn with a message that is stored nowhere; `None` if it is not here, or not
    /// idle.
    pub(super) fn enter_alone(
        self: &Arc<Self>,
        residents: &Residents,
        instance: &str,
        execution_id: u64,
        now: std::time::Duration,
    ) -> Option<Lead> {
        let mut instances = self.lock();
        if instances.contains_key(instance) {
            return None;
        }
        let resident = residents.take_idle(instance, execution_id, now)?;
        instances.insert(instance.to_string(), Entry::new(execution_id));
        Some(Lead { resident, claim: self.hold(instance) })
    }

    /// Notes that a message for an instance is about to be put into its queue.
    pub(super) fn note_message(&self, residents: &Residents, instance: &str) {
        let mut instances = self.lock();
        match instances.get_mut(instance) {
            Some(entry) => entry.has_mail = true,
            None => residents.note_mail(instance),
        }
    }

    /// Notes that a message for this execution of an instance is in its queue, if a turn of it is under way.
    pub(super) fn note_message_for(&self, instance: &str, execution_id: u64) {
        if let Some(entry) = self.lock().get_mut(instance) {
            entry.has_mail |= entry.execution_id == execution_id;
        }
    }

    /// Waits until no turn of the instance is under way here.
    pub(super) async fn until_idle(&self, instance: &str) {
        let idle = {
            let mut instances = self.lock();
            let Some(entry) = instances.get_mut(instance) else { return };
            let (sender, receiver) = oneshot::channel();
            entry.leased.push(sender);
            receiver
        };
        // The sender is dropped with its entry.
        let _ = idle.await;
    }

    fn hold(self: &Arc<Self>, instance: &str) -> Hold {
        Hold { under_way: self.clone(), instance: instance.to_string(), is_over: false }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(execution_id: u64) -> Self {
        Self { execution_id, waiting: Vec::new(), leased: Vec::new(), has_mail: false }
    }
}

/// An instance with a turn under way. If this is dropped, the results that wait go the long way.
pub(super) struct Hold {
    under_way: Arc<UnderWay>,
    instance: String,
    is_over: bool,
}

impl Hold {
    /// Takes up to `most` of the results that wait.
    pub(super) fn take_waiting(&self, most: usize) -> Vec<WaitingResult> {
        let mut instances = self.under_way.lock();
        let Some(entry) = instances.get_mut(&self.instance) else { return Vec::new() };
        let count = most.min(entry.waiting.len());
        entry.waiting.drain(..count).collect()
    }

    /// Ends a turn that is stored. The first of the results that wait takes the next one; without any, the instance stays
    /// in memory. Returns how many instances have lost their place there.
    pub(super) fn end(
        mut self,
        residents: &Residents,
        resident: Box<Resident>,
        now: std::time::Duration,
    ) -> usize {
        self.is_over = true;
        let under_way = self.under_way.clone();
        let mut lead = Lead { resident, claim: under_way.hold(&self.instance) };
        loop {
            let next = {
                let mut instances = under_way.lock();
                match instances.get_mut(&self.instance) {
                    Some(entry) if entry.can_go_on(&lead.resident) => entry.waiting.remove(0),
                    entry => {
                        lead.resident.has_mail = entry.is_some_and(|entry| entry.has_mail);
                        // With the lock held: a result that comes now finds the instance either here or there.
                        lead.claim.is_over = true;
                        let entry = instances.remove(&self.instance);
                        let (left, outcast) =
                            residents.keep_or_return(self.instance.clone(), lead.resident, now);
                        drop(instances);
                        drop(outcast);
                        entry.into_iter().for_each(Entry::release);
                        return left;
                    }
                }
            };
            match next.answer.send(WaitOutcome::Lead(lead)) {
                Ok(()) => return 0,
                // That one went away.
                Err(WaitOutcome::Lead(back)) => lead = back,
                Err(_) => return 0,
            }
        }
    }
}

impl Entry {
    /// Tells whether the results that wait can be taken at once: nothing else waits for the instance, and it is
    /// still the execution that they are for.
    fn can_go_on(&self, resident: &Resident) -> bool {
        !self.waiting.is_empty()
            && self.leased.is_empty()
            && !self.has_mail
            && self.execution_id == resident.execution_id
    }

    /// Sends the results that wait the long way.
    fn release(self) {
        for waiting in self.waiting {
            let _ = waiting.answer.send(WaitOutcome::NotTaken);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let entry = self.under_way.lock().remove(&self.instance);
        entry.into_iter().for_each(Entry::release);
    }
}

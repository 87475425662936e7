//! The last messages of the stream, numbered, so that a browser that was cut off goes on where it was.

use std::collections::VecDeque;
use std::sync::Arc;

/// How many messages are kept.
const KEPT: usize = 256;

/// One message of the stream.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) number: u64,
    /// The kind: `overview`, `instances` or `instance`.
    pub(super) event: &'static str,
    /// JSON.
    pub(super) data: String,
    /// Only for those who look at this instance.
    pub(super) instance: Option<String>,
}

/// The messages from `first` on that are still kept; or that some of them are lost.
#[derive(Debug)]
pub(super) enum Missed {
    Kept(Vec<Arc<Message>>),
    Lost,
}

#[derive(Debug, Default)]
pub(super) struct Ring {
    kept: VecDeque<Arc<Message>>,
    last: u64,
}

impl Ring {
    pub(super) fn push(&mut self, event: &'static str, data: String, instance: Option<String>) -> u64 {
        self.last += 1;
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Arc::new(Message { number: self.last, event, data, instance }));
        self.last
    }

    /// The number of the newest message; 0 if there was none.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn after(&self, number: u64) -> Missed {
        if number > self.last {
            return Missed::Lost;
        }
        let oldest = self.kept.front().map_or(self.last + 1, |message| message.number);
        if number + 1 < oldest {
            return Missed::Lost;
        }
        Missed::Kept(self.kept.iter().filter(|message| message.number > number).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(missed: Missed) -> Option<Vec<u64>> {
        match missed {
            Missed::Kept(messages) => Some(messages.iter().map(|message| message.number).collect()),
            Missed::Lost => None,
        }
    }

    #[test]
    fn a_reader_goes_on_where_it_was_or_learns_that_it_missed_something() {
        let mut ring = Ring::default();
        assert_eq!(numbers(ring.after(0)), Some(vec![]));
        assert_eq!(numbers(ring.after(7)), None);
        for _ in 0..KEPT + 10 {
            ring.push("overview", String::new(), None);
        }
        let last = ring.last();
        assert_eq!(numbers(ring.after(last)), Some(vec![]));
        assert_eq!(numbers(ring.after(last - 2)), Some(vec![last - 1, last]));
        assert_eq!(numbers(ring.after(10)).map(|numbers| numbers.len()), Some(KEPT));
        assert_eq!(numbers(ring.after(9)), None);
    }
}

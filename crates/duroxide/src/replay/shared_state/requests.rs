//! Which requests the code has taken and answered: each id is handled once.

use crate::model::requests::{ANSWERS_KEPT, OPEN_KEPT, OPEN_REQUESTS, answer_key};

use super::SharedState;
use super::state::State;

/// The ids of requests that the code has taken and not answered, oldest first.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    ids: Vec<String>,
    /// Set once the ids that earlier executions left have been read.
    read: bool,
}

impl SharedState {
    /// Takes a request, unless one of this id was taken or answered before; tells whether it did.
    pub(crate) fn take_request(&self, id: &str) -> bool {
        let mut state = self.lock();
        state.read_open_requests();
        let is_known =
            state.kv.get(&answer_key(id)).is_some() || state.open_requests.ids.iter().any(|open| open == id);
        if !is_known {
            state.open_requests.ids.push(id.to_string());
        }
        !is_known
    }

    /// Keeps the answer to a request, unless there is one already; tells whether it did.
    #[track_caller]
    pub(crate) fn answer_request(&self, id: &str, answer: String) -> bool {
        let key = answer_key(id);
        {
            let mut state = self.lock();
            state.read_open_requests();
            state.open_requests.ids.retain(|open| open != id);
            if state.kv.get(&key).is_some() {
                return false;
            }
        }
        // The oldest go before the new one comes: its time need not be the latest, for clocks are set back.
        for old in self.read_kv(|kv| kv.answers_beyond(ANSWERS_KEPT - 1)) {
            self.clear_kv(old);
        }
        self.set_kv(key, answer);
        true
    }

    /// Tells the next execution which requests are open.
    #[track_caller]
    pub(crate) fn hand_open_requests_over(&self) {
        let (open, before) = {
            let mut state = self.lock();
            state.read_open_requests();
            let ids = &state.open_requests.ids;
            let newest = &ids[ids.len().saturating_sub(OPEN_KEPT)..];
            (serde_json::json!(newest).to_string(), state.kv.get(OPEN_REQUESTS).map(str::to_string))
        };
        match before {
            Some(before) if before == open => {}
            Some(_) if open == "[]" => self.clear_kv(OPEN_REQUESTS.to_string()),
            None if open == "[]" => {}
            _ => self.set_kv(OPEN_REQUESTS.to_string(), open),
        }
    }
}

impl State {
    /// Reads, the first time, which requests earlier executions left open.
    fn read_open_requests(&mut self) {
        if std::mem::replace(&mut self.open_requests.read, true) {
            return;
        }
        // The library wrote it; a text that is no list leaves nothing open.
        let left = self.kv.get(OPEN_REQUESTS).and_then(|text| serde_json::from_str(text).ok());
        self.open_requests.ids = left.unwrap_or_default();
    }
}

//! How requests travel to an instance, and answers back: as messages of a queue, and as values of the instance.
//!
//! A request is a message of the queue that its name gives it. Its answer is a value of the instance under a key made of the
//! request's id. So both are stored with what a turn stores anyway, survive continue-as-new and the end of the instance, and
//! every store has them. A client that asks again with the same id finds the answer, or waits for the one on its way.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How the keys begin under which an instance keeps what concerns requests. The code's own values are under others.
const RESERVED: &str = "duroxide::requests::";

/// The key of the requests that earlier executions took and did not answer.
pub(crate) const OPEN_REQUESTS: &str = "duroxide::requests::open";

/// How many answers an instance keeps; the oldest go first.
pub(crate) const ANSWERS_KEPT: usize = 1_000;

/// How many unanswered requests the next execution hears of; the oldest are left out.
pub(crate) const OPEN_KEPT: usize = 256;

/// The longest id of a request, in bytes.
pub(crate) const MAX_REQUEST_ID_BYTES: usize = 200;

/// Tells whether a key holds what concerns requests.
pub(crate) fn is_reserved(key: &str) -> bool {
    key.starts_with(RESERVED)
}

/// The key of an answer.
pub(crate) fn answer_key(id: &str) -> String {
    format!("{RESERVED}answer::{id}")
}

/// Tells whether a key holds an answer.
pub(crate) fn is_answer(key: &str) -> bool {
    key.strip_prefix(RESERVED).is_some_and(|rest| rest.starts_with("answer::"))
}

/// The queue of the requests of a name.
pub(crate) fn queue(name: &str) -> String {
    format!("duroxide::request::{name}")
}

/// Tells what is wrong with the id of a request. An id becomes part of a key, so it holds nothing that a store refuses.
pub(crate) fn fault_of_id(id: &str) -> Option<String> {
    match id.len() {
        0 => Some("the id of a request is empty".to_string()),
        bytes if bytes > MAX_REQUEST_ID_BYTES => {
            Some(format!("the id of a request has {bytes} bytes; it may have {MAX_REQUEST_ID_BYTES}"))
        }
        _ if id.chars().any(char::is_control) => {
            Some("the id of a request has a control character".to_string())
        }
        _ => None,
    }
}

/// A request on its way: the text of a queue message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestMessage {
    pub(crate) id: String,
    pub(crate) request: Value,
}

impl RequestMessage {
    /// Reads a message of a queue of requests. `None` if it is none: a client put another message there.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let message: Self = serde_json::from_str(text).ok()?;
        fault_of_id(&message.id).is_none().then_some(message)
    }
}

/// An answer, as the instance keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RequestAnswer {
    Reply(Value),
    /// There is no reply, for this reason.
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_keeps_its_shape() {
        let message = RequestMessage { id: "a-1".to_string(), request: serde_json::json!({"by": "Ada"}) };
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(text, r#"{"id":"a-1","request":{"by":"Ada"}}"#);
        assert_eq!(RequestMessage::read(&text), Some(message));
        let answers = [RequestAnswer::Reply(serde_json::json!(7)), RequestAnswer::Refused("no".to_string())];
        let texts = answers.map(|answer| serde_json::to_string(&answer).unwrap());
        assert_eq!(texts, [r#"{"reply":7}"#, r#"{"refused":"no"}"#]);
        assert_eq!(queue("approve"), "duroxide::request::approve");
        assert_eq!(answer_key("a-1"), "duroxide::requests::answer::a-1");
    }

    #[test]
    fn an_id_that_a_store_would_refuse_is_no_id() {
        for bad in ["", "a\0b", "line\nbreak", &"x".repeat(MAX_REQUEST_ID_BYTES + 1)] {
            assert!(fault_of_id(bad).is_some(), "{bad:?}");
            let text = serde_json::json!({"id": bad, "request": 1}).to_string();
            assert_eq!(RequestMessage::read(&text), None);
        }
        assert_eq!(fault_of_id(&"x".repeat(MAX_REQUEST_ID_BYTES)), None);
    }

    #[test]
    fn only_keys_of_requests_are_reserved() {
        assert!(is_reserved(OPEN_REQUESTS) && is_reserved(&answer_key("x")));
        assert!(is_answer(&answer_key("x")) && !is_answer(OPEN_REQUESTS));
        assert!(!is_reserved("duroxide") && !is_reserved("requests::open"));
    }
}

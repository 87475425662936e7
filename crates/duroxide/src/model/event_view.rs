//! An event as people look at it, with long payloads cut.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Event;

/// One event of a history, for people to look at: long texts are cut, and an event of a kind that this build does not
/// know is shown like any other.
///
/// ```
/// use duroxide::model::EventView;
/// use duroxide::{AppErrorKind, ErrorDetails, Event, EventKind};
///
/// let fired = Event::with_event_id(5, "order-7", 1, Some(4), EventKind::TimerFired { fire_at_ms: 1_000 });
/// let view = EventView::of(&fired, 200);
/// assert_eq!((view.kind.as_str(), view.source_event_id), ("TimerFired", Some(4)));
/// assert_eq!((view.number("fire_at_ms"), view.text("name")), (Some(1_000), None));
///
/// let kind = AppErrorKind::Cancelled { reason: "the customer called".to_string() };
/// let details = ErrorDetails::Application { kind, message: String::new(), retryable: false };
/// let failed = Event::with_event_id(6, "order-7", 1, None, EventKind::OrchestrationFailed { details });
/// // As a store has it: the text, or the beginning of a long one, and the size of the whole.
/// let stored = serde_json::to_string(&failed).unwrap();
/// let view = EventView::of_stored(6, stored.as_bytes(), stored.len() as u64, 200);
/// assert!(view.is_cancellation());
/// assert_eq!(view.error_text().as_deref(), Some("canceled: the customer called"));
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EventView {
    /// Position in the execution, from 1.
    pub event_id: u64,
    /// For completions and cancellations: the event that scheduled what ended.
    pub source_event_id: Option<u64>,
    /// The execution.
    pub execution_id: u64,
    /// When the event was made, in milliseconds since the epoch.
    pub timestamp_ms: u64,
    /// The kind of the event as it is stored: `ActivityScheduled`, for example.
    pub kind: String,
    /// The version of the package that made it.
    pub duroxide_version: String,
    /// The other fields of the event, as a JSON object; texts are cut.
    pub data: Value,
    /// The size of the stored event in bytes.
    pub size_bytes: u64,
    /// Whether some of its texts were cut.
    pub is_cut: bool,
    /// Why the stored text is not an event, if it is not.
    pub damage: Option<String>,
}

impl EventView {
    /// Makes the view of an event.
    pub fn of(event: &Event, cut: usize) -> Self {
        match serde_json::to_string(event) {
            Ok(text) => Self::of_stored(event.event_id, text.as_bytes(), text.len() as u64, cut),
            Err(error) => Self::damaged(event.event_id, 0, error.to_string()),
        }
    }

    /// Makes the view of a stored event, from its text or the beginning of its text, and the size of the whole.
    pub fn of_stored(event_id: u64, beginning: &[u8], size_bytes: u64, cut: usize) -> Self {
        let parsed = match beginning.len() as u64 >= size_bytes {
            true => serde_json::from_slice(beginning)
                .map_err(|error| super::codec::without_values(&error.to_string())),
            false => parse_beginning(&String::from_utf8_lossy(beginning)),
        };
        let mut fields: Map<String, Value> = match parsed {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return Self::damaged(event_id, size_bytes, "not a JSON object".into()),
            Err(reason) => return Self::damaged(event_id, size_bytes, reason),
        };
        let text = |value: Option<Value>| match value {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let number = |value: Option<Value>| value.and_then(|value| value.as_u64());
        fields.remove("event_id");
        fields.remove("instance_id");
        let mut view = Self {
            event_id,
            source_event_id: number(fields.remove("source_event_id")),
            execution_id: number(fields.remove("execution_id")).unwrap_or_default(),
            timestamp_ms: number(fields.remove("timestamp_ms")).unwrap_or_default(),
            kind: text(fields.remove("type")),
            duroxide_version: text(fields.remove("duroxide_version")),
            data: Value::Null,
            size_bytes,
            is_cut: (beginning.len() as u64) < size_bytes,
            damage: None,
        };
        let mut data = Value::Object(fields);
        view.is_cut |= cut_texts(&mut data, cut);
        view.data = data;
        view
    }

    fn damaged(event_id: u64, size_bytes: u64, reason: String) -> Self {
        Self {
            event_id,
            size_bytes,
            damage: Some(reason),
            data: Value::Object(Map::new()),
            ..Self::default()
        }
    }

    /// Returns one of the other fields, if it is a text.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.data.get(field).and_then(Value::as_str)
    }

    /// Returns one of the other fields, if it is a number.
    pub fn number(&self, field: &str) -> Option<u64> {
        self.data.get(field).and_then(Value::as_u64)
    }

    /// Returns the error of an event that records a failure, as text.
    pub fn error_text(&self) -> Option<String> {
        let details = self.data.get("details")?;
        match serde_json::from_value::<super::ErrorDetails>(details.clone()) {
            Ok(details) => Some(details.display_message()),
            Err(_) => Some(details.to_string()),
        }
    }

    /// Tells whether the event records that its execution ended because a caller cancelled it.
    pub fn is_cancellation(&self) -> bool {
        self.kind == "OrchestrationFailed"
            && self.data.pointer("/details/Application/kind/Cancelled").is_some()
    }
}

/// Cuts a text to at most `cut` bytes, never inside a character. Returns whether it was longer.
///
/// ```
/// use duroxide::model::cut_text;
///
/// let mut text = "zwölf".to_string();
/// assert!(cut_text(&mut text, 3));
/// assert_eq!(text, "zw"); // the third byte is the first half of the ö
/// ```
pub fn cut_text(text: &mut String, cut: usize) -> bool {
    if text.len() <= cut {
        return false;
    }
    let end = (0..=cut).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    true
}

/// Cuts all texts in a JSON value; tells whether any was longer.
fn cut_texts(value: &mut Value, cut: usize) -> bool {
    match value {
        Value::String(text) => cut_text(text, cut),
        // Every element is visited: `any` would stop at the first that was cut.
        Value::Array(values) => values.iter_mut().fold(false, |is_cut, value| cut_texts(value, cut) | is_cut),
        Value::Object(fields) => {
            fields.values_mut().fold(false, |is_cut, value| cut_texts(value, cut) | is_cut)
        }
        _ => false,
    }
}

/// Parses the beginning of a JSON text: closes what is open, and leaves out what is not whole.
fn parse_beginning(text: &str) -> Result<Value, String> {
    let mut open = Vec::new();
    let (mut in_string, mut escaped) = (false, false);
    // The last place at which a value was whole, and what was open there.
    let mut whole = (0, Vec::new());
    for (at, character) in text.char_indices() {
        if in_string {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match character {
            '"' => in_string = true,
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                open.pop();
            }
            ',' => whole = (at, open.clone()),
            _ => {}
        }
    }
    let close =
        |text: &str, open: &[char]| -> String { text.chars().chain(open.iter().rev().copied()).collect() };
    // The cut went through a text: keeps what is left of the text, without an escape that the cut has broken.
    if in_string {
        for cut in 0..7.min(text.len()) {
            let Some(kept) = text.get(..text.len() - cut) else { continue };
            if let Ok(value) = serde_json::from_str(&close(&format!("{kept}\""), &open)) {
                return Ok(value);
            }
        }
    }
    let kept = text.get(..whole.0).unwrap_or_default();
    serde_json::from_str(&close(kept, &whole.1))
        .map_err(|error| super::codec::without_values(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AppErrorKind, ErrorDetails, EventKind};

    fn event(kind: EventKind) -> Event {
        Event::with_event_id(7, "i", 2, Some(3), kind)
    }

    #[test]
    fn a_view_has_the_fields_of_its_event_and_says_what_it_cut() {
        let long = "ü".repeat(100);
        let scheduled = event(EventKind::ActivityScheduled {
            name: "Charge".into(),
            input: long.clone(),
            session_id: None,
            tag: None,
        });
        let view = EventView::of(&scheduled, 11);
        assert_eq!((view.event_id, view.source_event_id, view.execution_id), (7, Some(3), 2));
        assert_eq!((view.kind.as_str(), view.text("name")), ("ActivityScheduled", Some("Charge")));
        assert_eq!((view.text("input"), view.is_cut), (Some("üüüüü"), true));
        let whole = EventView::of(&scheduled, 1_000);
        assert_eq!((whole.text("input"), whole.is_cut), (Some(long.as_str()), false));
    }

    #[test]
    fn the_beginning_of_a_stored_event_is_enough_wherever_it_ends() {
        let stored = serde_json::to_string(&event(EventKind::ActivityScheduled {
            name: "Charge \"me\" \\ \u{1}ü".into(),
            input: "x\"y\n".repeat(50),
            session_id: Some("s".into()),
            tag: None,
        }))
        .unwrap();
        let from = stored.find("\"type\"").unwrap() + 30;
        for end in from..stored.len() {
            let view = EventView::of_stored(7, &stored.as_bytes()[..end], stored.len() as u64, 1_000);
            assert_eq!((view.damage.clone(), view.kind.as_str()), (None, "ActivityScheduled"), "{end}");
            assert!(view.is_cut);
        }
        for end in 0..from {
            EventView::of_stored(7, &stored.as_bytes()[..end], stored.len() as u64, 1_000);
        }
    }

    #[test]
    fn a_text_that_is_no_event_is_shown_with_the_reason() {
        for damaged in ["", "7", "{\"event_id\":", "nonsense"] {
            let view = EventView::of_stored(9, damaged.as_bytes(), damaged.len() as u64, 10);
            assert!(view.damage.is_some() && view.event_id == 9, "{view:?}");
        }
    }

    #[test]
    fn a_cancellation_is_told_from_a_failure_with_the_same_text() {
        let failed = |kind| {
            let details = ErrorDetails::Application { kind, message: "canceled: x".into(), retryable: false };
            EventView::of(&event(EventKind::OrchestrationFailed { details }), 100)
        };
        assert!(failed(AppErrorKind::Cancelled { reason: "x".into() }).is_cancellation());
        let plain = failed(AppErrorKind::OrchestrationFailed);
        assert!(!plain.is_cancellation());
        assert_eq!(plain.error_text().as_deref(), Some("canceled: x"));
    }
}

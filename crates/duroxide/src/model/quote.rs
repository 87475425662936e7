//! Quotes texts of any length in records that have to stay small.

/// The most bytes that a quoted text takes in a stored event or message.
///
/// A store must be able to take a failure whatever the failure quotes, so this is far below the limits of stores.
pub(crate) const QUOTE_LIMIT: usize = 4 * 1024;

/// The part of the limit that is kept for saying how long a text was.
const NOTE_BYTES: usize = 40;

/// Cuts a text so that it takes at most `limit` bytes inside a JSON string, and says how long it was.
///
/// A failure quotes messages that are JSON themselves, so storing the failure escapes their quotation marks once more.
/// The limit is on the length after that. A text that fits comes back unchanged.
pub(crate) fn quote(text: &str, limit: usize) -> String {
    if fitting(text, limit) == text.len() {
        return text.to_string();
    }
    let kept = fitting(text, limit.saturating_sub(NOTE_BYTES));
    format!("{}... ({} bytes in all)", &text[..kept], text.len())
}

/// How many bytes of a text fit into `limit` bytes of a JSON string; never a part of a character.
fn fitting(text: &str, limit: usize) -> usize {
    let mut taken = 0;
    let first_beyond = text.char_indices().find(|(_, character)| {
        taken += escaped_len(*character);
        taken > limit
    });
    first_beyond.map_or(text.len(), |(at, _)| at)
}

fn escaped_len(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        control if control < ' ' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a text takes inside a JSON string.
    fn stored_len(text: &str) -> usize {
        serde_json::to_string(text).unwrap_or_default().len() - 2
    }

    #[test]
    fn a_text_that_fits_is_quoted_as_it_is() {
        for text in ["", "short", "[{\"a\":\"b\"}]", "\u{1}\u{2}", "grüße 🦀"] {
            assert_eq!(quote(text, stored_len(text)), text);
            assert_eq!(fitting(text, stored_len(text)), text.len());
        }
    }

    #[test]
    fn a_text_that_does_not_fit_is_cut_between_characters_and_its_length_is_said() {
        assert_eq!(quote(&"x".repeat(100), 50), format!("{}... (100 bytes in all)", "x".repeat(10)));
        assert_eq!(quote(&"ü".repeat(100), 45), "üü... (200 bytes in all)");
    }

    #[test]
    fn what_is_escaped_when_it_is_stored_counts_as_often_as_it_takes() {
        for text in ["\"\\".repeat(5_000), "\u{1}".repeat(5_000), "🦀\n\t\u{7f}".repeat(5_000)] {
            for limit in [50, 1_000, QUOTE_LIMIT] {
                let quoted = quote(&text, limit);
                assert!(stored_len(&quoted) <= limit, "{} of {limit}", stored_len(&quoted));
                assert!(stored_len(&quoted) > limit - NOTE_BYTES - 6, "{} of {limit}", stored_len(&quoted));
            }
        }
    }
}

//! Texts on their way into columns and back.
//!
//! PostgreSQL's `text` holds every character but NUL. Payloads are JSON, which escapes it; ids, keys, values and
//! statuses are stored as they are, so there a NUL becomes `␀0`, and the sign itself `␀␀`.

use std::borrow::Cow;

const SIGN: char = '\u{2400}';

/// Returns a text as a column can hold it.
pub(crate) fn stored(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', SIGN]) {
        return Cow::Borrowed(text);
    }
    let mut stored = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\0' => stored.extend([SIGN, '0']),
            SIGN => stored.extend([SIGN, SIGN]),
            other => stored.push(other),
        }
    }
    Cow::Owned(stored)
}

/// Returns a text as a column can hold it, without a copy if the text needs no change.
pub(crate) fn stored_owned(text: String) -> String {
    match stored(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(stored) => stored,
    }
}

/// Returns a text as it was before it was stored.
pub(crate) fn original(stored: String) -> String {
    if !stored.contains(SIGN) {
        return stored;
    }
    let mut text = String::with_capacity(stored.len());
    let mut letters = stored.chars();
    while let Some(letter) = letters.next() {
        match letter {
            SIGN => match letters.next() {
                Some('0') => text.push('\0'),
                Some(other) => text.push(other),
                None => text.push(SIGN),
            },
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_and_none_holds_a_nul() {
        for text in ["", "plain", "a\0b", "\0", "\u{2400}", "\u{2400}0", "x\0\u{2400}\0\0y", "日本\0"] {
            let there = stored(text);
            assert!(!there.contains('\0'), "{there:?}");
            assert_eq!(original(there.into_owned()), text);
        }
    }
}

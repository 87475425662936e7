//! What a log or an error may say about a payload.
//!
//! Inputs, outputs, messages, statuses and values belong to the customer. Errors and logs give a length and a hash in
//! their place; the text itself appears only at the level `trace`, under the target `duroxide::payload`.

/// The target of the only log lines that show payloads. All of them are of the level `trace`.
pub(crate) const PAYLOAD_TARGET: &str = "duroxide::payload";

/// Gives the length of a payload, and a hash that tells it from another.
pub(crate) fn summary(payload: &str) -> String {
    format!("{} bytes, hash {:016x}", payload.len(), hash(payload))
}

/// Says how two payloads differ, without showing either.
pub(crate) fn difference(recorded: &str, now: &str) -> String {
    let same = recorded.bytes().zip(now.bytes()).take_while(|(one, other)| one == other).count();
    format!("{} then; {} now; the first difference is at byte {same}", summary(recorded), summary(now))
}

/// FNV-1a: the same in every process and version, so that lines of different logs can be compared. It hides nothing
/// from a reader who can guess the payload.
fn hash(payload: &str) -> u64 {
    payload
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_told_by_its_length_and_its_hash() {
        assert_eq!(summary(""), "0 bytes, hash cbf29ce484222325");
        assert_eq!(summary("foobar"), "6 bytes, hash 85944171f73967e8");
    }

    #[test]
    fn a_difference_is_shown_by_its_place() {
        let text = difference(r#"{"name":"Ann"}"#, r#"{"name":"Bob"}"#);
        assert!(text.ends_with("now; the first difference is at byte 9"), "{text}");
        assert!(!text.contains("Ann") && !text.contains("Bob"));
        assert!(difference("ab", "abc").ends_with("at byte 2"));
    }
}

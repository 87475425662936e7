//! Tokens of leases. A token names the leased row, so that a store finds the lease without a search, and holds 122
//! random bits, so that no caller can guess it.

use uuid::Uuid;

const PREFIX: &str = "lock_";
/// A UUID without hyphens.
const RANDOM_DIGITS: usize = 32;

/// Makes the token of a lease.
pub fn new(leased: impl std::fmt::Display) -> String {
    format!("{PREFIX}{}_{leased}", Uuid::new_v4().simple())
}

/// Returns the leased row that a token names; `None` if the token is not one of ours.
pub fn leased_by(token: &str) -> Option<&str> {
    token.strip_prefix(PREFIX)?.get(RANDOM_DIGITS..)?.strip_prefix('_')
}

/// Returns the random part of a token; `None` if the token is not one of ours.
pub fn random_part(token: &str) -> Option<[u8; 16]> {
    let digits = token.strip_prefix(PREFIX)?.get(..RANDOM_DIGITS)?;
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_what_it_leases() {
        for name in ["order-1", "", "a_b_c", "日本"] {
            assert_eq!(leased_by(&new(name)), Some(name));
        }
    }

    #[test]
    fn the_random_part_of_a_token_tells_it_from_others() {
        let (one, two) = (new("a"), new("a"));
        assert!(random_part(&one).is_some() && random_part(&one) != random_part(&two));
    }

    #[test]
    fn foreign_tokens_name_nothing_and_do_not_panic() {
        for token in
            ["", "lock_", "invalid-token", "lock_日本日本日本日本日本日本日本日本日本日本日本", "lock_x_y"]
        {
            assert_eq!(leased_by(token), None, "{token}");
            assert_eq!(random_part(token), None, "{token}");
        }
    }
}

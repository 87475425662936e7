//! I5: once a lease was granted to somebody else, no write by its former holder is accepted.

use std::collections::BTreeMap;

use super::{Invariant, Violation};

/// Who holds what, as the answers of a store say.
#[derive(Debug, Default)]
pub struct Fences {
    /// The token that was granted last, by what it leases: an instance, or an activity.
    latest: BTreeMap<String, String>,
    /// What a token leases.
    leased: BTreeMap<String, String>,
}

impl Fences {
    /// Notes that the store granted a lease.
    pub fn granted(&mut self, what: &str, token: &str) {
        self.latest.insert(what.to_string(), token.to_string());
        self.leased.insert(token.to_string(), what.to_string());
    }

    /// Notes that the store accepted a write under a lease; returns the breach, if the lease was replaced before.
    pub fn accepted(&mut self, token: &str, write: &str) -> Option<Violation> {
        let what = self.leased.get(token)?;
        let is_current = self.latest.get(what).is_some_and(|latest| latest == token);
        let text = format!("{write} was accepted from a holder whose lease on {what} had gone to another");
        (!is_current).then(|| Violation::new(Invariant::Fencing, what.clone(), text))
    }
}

//! The reason that the store keeps with an instance whose code cannot take it further: a word for the cause, who met it, and a
//! sentence. Runtimes read it to tell whether they can let the instance go on; descriptions read it to tell people why it stopped.

use std::fmt;

use super::{QUOTE_LIMIT, quote};

/// Why a runtime blocked an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockCause {
    /// Its code does not fit its history, or does not decide alike twice.
    Mismatch,
    /// Its code waits for something that is not durable.
    ForeignWait,
    /// Its orchestration is not registered.
    Unregistered,
}

impl BlockCause {
    pub const ALL: [Self; 3] = [Self::Mismatch, Self::ForeignWait, Self::Unregistered];

    /// How the stored reason begins.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mismatch => "mismatch",
            Self::ForeignWait => "foreign wait",
            Self::Unregistered => "unregistered",
        }
    }
}

/// The reason that the store keeps with a blocked instance, for people and for the runtimes that look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockReason {
    pub cause: BlockCause,
    pub name: String,
    /// Empty if any version would do.
    pub version: String,
    pub build: String,
    pub text: String,
}

impl fmt::Display for BlockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = serde_json::json!([self.name, self.version, self.build]);
        write!(f, "{} {who}: {}", self.cause.word(), self.text)
    }
}

impl BlockReason {
    /// The reason as it is stored.
    pub fn stored(&self) -> String {
        let limit = QUOTE_LIMIT + self.name.len() + self.version.len() + self.build.len();
        quote(&self.to_string(), limit)
    }

    /// Reads a stored reason; `None` if it is of another kind, such as a store's refusal.
    pub fn parse(reason: &str) -> Option<Self> {
        let cause = BlockCause::ALL.into_iter().find(|cause| reason.starts_with(cause.word()))?;
        let rest = reason.strip_prefix(cause.word())?.strip_prefix(' ')?;
        let mut who = serde_json::Deserializer::from_str(rest).into_iter::<(String, String, String)>();
        let (name, version, build) = who.next()?.ok()?;
        let text = rest.get(who.byte_offset()..)?.strip_prefix(": ")?.to_string();
        Some(Self { cause, name, version, build, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(cause: BlockCause) -> BlockReason {
        BlockReason {
            cause,
            name: "Order \"x\", (1)]: \n".into(),
            version: "1.0.0".into(),
            build: "b1".into(),
            text: "event 5 recorded activity 'Charge': so what".into(),
        }
    }

    #[test]
    fn a_stored_reason_is_read_back_whatever_the_names_are() {
        for cause in BlockCause::ALL {
            assert_eq!(BlockReason::parse(&reason(cause).stored()), Some(reason(cause)));
        }
        assert_eq!(BlockReason::parse("neither its turn nor its failure can be stored: full"), None);
        assert_eq!(BlockReason::parse("mismatch of something else"), None);
    }
}

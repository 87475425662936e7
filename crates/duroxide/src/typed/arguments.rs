//! Several arguments as one payload: none as `null`, one as itself, several as a JSON array.

use crate::model::codec::{self, DecodeError};

use super::Payload;

/// The arguments of a function as a tuple of owned values. Tuples of up to eight payloads are such lists.
pub trait ArgList: Sized + Send + 'static {
    /// Reads the arguments from the recorded text.
    ///
    /// # Errors
    /// The reason, without the values.
    #[doc(hidden)]
    fn decode(text: &str) -> Result<Self, BadArguments>;
}

/// Why the recorded text is not the arguments.
#[doc(hidden)]
#[derive(Debug)]
pub struct BadArguments(pub(super) DecodeError);

/// A function without arguments takes any text: what it was started with does not matter to it.
impl ArgList for () {
    fn decode(_: &str) -> Result<Self, BadArguments> {
        Ok(())
    }
}

impl<A: Payload> ArgList for (A,) {
    fn decode(text: &str) -> Result<Self, BadArguments> {
        codec::decode(text).map(|argument| (argument,)).map_err(BadArguments)
    }
}

macro_rules! lists {
    ($(($($argument:ident),+))+) => {$(
        impl<$($argument: Payload),+> ArgList for ($($argument,)+) {
            fn decode(text: &str) -> Result<Self, BadArguments> {
                codec::decode(text).map_err(BadArguments)
            }
        }
    )+};
}

lists! {
    (A, B)
    (A, B, C)
    (A, B, C, D)
    (A, B, C, D, E)
    (A, B, C, D, E, F)
    (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
}

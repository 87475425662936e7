//! What the API answers, as types. The OpenAPI document and the front end's types come from here.

mod common;
mod history;
mod instance;
mod listing;
mod overview;
mod store;
mod waits;

pub(crate) use common::*;
pub(crate) use history::*;
pub(crate) use instance::*;
pub(crate) use listing::*;
pub(crate) use overview::*;
pub(crate) use store::*;
pub(crate) use waits::*;

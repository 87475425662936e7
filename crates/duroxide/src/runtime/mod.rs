//! The machinery that runs orchestrations and activities.

#[cfg(test)]
mod alike_tests;
mod handlers;
mod history;
mod program;
#[cfg(test)]
mod program_tests;
pub mod replay_engine;
mod work_item_reader;

pub use crate::model::limits;
pub use handlers::{ActivityHandler, FnActivity, FnOrchestration, OrchestrationHandler, kind_of};
pub use history::HistoryManager;
pub use work_item_reader::WorkItemReader;

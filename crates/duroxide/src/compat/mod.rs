//! Types that exist only because programs and tests for the 0.1 interface name them.
//!
//! The crate itself uses nothing of this. The runtime takes its turns with `replay` and `runtime::orchestrator`; the
//! types here offer the same steps under their published names. Other modules re-export them at their published paths.

mod context_hooks;
mod history_manager;
pub mod replay_engine;
mod single_turn;
mod work_item_reader;

pub use history_manager::HistoryManager;
pub use work_item_reader::WorkItemReader;

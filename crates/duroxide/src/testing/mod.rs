//! Tests of your own orchestrations: without waiting, with crashes, and against recorded histories.
//!
//! [`TestEnv`] runs the real engine on a store in memory. Its time skips ahead whenever nothing is left to do, so that a
//! workflow of 30 days takes milliseconds. Activities are yours or [mocks](Mock), and every call is recorded.
//!
//! ```
//! use std::time::Duration;
//! use duroxide::OrchestrationContext;
//! use duroxide::testing::{Mock, TestEnv};
//!
//! async fn remind(ctx: OrchestrationContext, customer: String) -> Result<String, String> {
//!     ctx.schedule_timer(Duration::from_secs(30 * 24 * 60 * 60)).await;
//!     ctx.schedule_activity("SendMail", customer).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let env = TestEnv::builder()
//!     .orchestration("Remind", remind)
//!     .mock("SendMail", Mock::returns("sent"))
//!     .start()
//!     .await;
//! env.start("r-1", "Remind", "ada").await;
//! assert_eq!(env.output("r-1").await, "sent");
//! assert_eq!(env.calls("SendMail")[0].input, "ada");
//! assert_eq!(env.elapsed(), Duration::from_secs(30 * 24 * 60 * 60));
//! # }
//! ```
//!
//! [`TestEnv::of`] takes the functions of an application as the program registers them, and [`mock_with`](TestEnvBuilder::mock_with)
//! and [`calls`](TestEnv::calls) take `#[activity]` functions, with their types.
//!
//! Time passes only inside the calls that wait: [`output`](TestEnv::output), [`failure`](TestEnv::failure),
//! [`end`](TestEnv::end), [`sleep`](TestEnv::sleep), [`settle`](TestEnv::settle) and [`run`](TestEnv::run). It never passes
//! while a turn or an activity runs. An activity that takes long is a [mock](Mock::after) that does.
//!
//! [`crash_everywhere`] runs a test again and again, each time with a crash at another place, and says where that changes
//! the outcome. [`replay`] checks recorded histories against the code of today.

mod builder;
mod calls;
mod clock;
mod crash;
mod driver;
mod env;
mod history;
mod mock;
mod replay;
mod script;
mod typed;

pub use builder::TestEnvBuilder;
pub use calls::ActivityCall;
pub use crash::{CrashFinding, CrashReport, crash_everywhere};
pub use env::TestEnv;
pub use history::RecordedHistory;
pub use mock::Mock;
pub use replay::{ReplayDifference, replay};
pub use typed::{ActivityName, Arguments, ByFunction, ByText, TypedCall};

//! Drawing again and again, for those who watch.

use std::time::Duration;

use clap::Args;

use crate::failure::Outcome;
use crate::output::{Output, parse_duration};

/// Clears a terminal and puts the cursor at its top.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// The argument `--watch`.
#[derive(Debug, Clone, Args)]
pub struct Watching {
    /// Show it again every 2 seconds, or as often as given
    #[arg(long, value_name = "EVERY", value_parser = parse_duration, num_args = 0..=1, default_missing_value = "2s")]
    watch: Option<Duration>,
}

impl Watching {
    /// Draws once, or until somebody stops it.
    pub async fn draw(
        &self,
        output: &mut Output<'_>,
        mut once: impl AsyncFnMut(&mut Output<'_>) -> Outcome,
    ) -> Outcome {
        let Some(every) = self.watch else { return once(output).await };
        let mut left = output.console.most_drawings;
        loop {
            if output.console.stdout_is_terminal && !output.is_for_programs() {
                output.text(CLEAR)?;
            }
            once(output).await?;
            left = left.map(|left| left.saturating_sub(1));
            if left == Some(0) {
                return Ok(());
            }
            output.console.clock.sleep(every.max(Duration::from_millis(100))).await;
        }
    }
}

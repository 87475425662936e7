//! How far bulk work has come: a line on a terminal that is drawn again and again, and nothing elsewhere.

use std::io::Write;

use super::text::grouped;
use super::when::duration;
use super::{Output, Paint};

const BAR: usize = 24;
/// A terminal is not drawn more often than this, in milliseconds.
const PAUSE_MS: u64 = 100;

/// Shows how far bulk work has come.
pub struct Progress {
    what: String,
    total: u64,
    done: u64,
    began_ms: u64,
    drawn_ms: u64,
    is_shown: bool,
}

impl Output<'_> {
    /// Begins to show progress, if a person is there to see it.
    pub fn progress(&self, what: impl Into<String>, total: u64) -> Progress {
        let now = now(self);
        let is_shown = self.console.stderr_is_terminal && !self.is_quiet;
        Progress { what: what.into(), total, done: 0, began_ms: now, drawn_ms: 0, is_shown }
    }
}

impl Progress {
    /// Adds `more` to what is done, and draws the bar anew now and then.
    pub fn advance(&mut self, output: &mut Output<'_>, more: u64) {
        self.done = self.done.saturating_add(more);
        let now = now(output);
        if self.is_shown && (now.saturating_sub(self.drawn_ms) >= PAUSE_MS || self.done >= self.total) {
            self.drawn_ms = now;
            let line = self.line(now);
            // Whether the bar can be drawn decides nothing.
            let bar = output.aside.paint(Paint::Dim, &line);
            let _ = write!(output.console.stderr, "\r{bar}\u{1b}[K");
            let _ = output.console.stderr.flush();
        }
    }

    /// Wipes the line away.
    pub fn finish(self, output: &mut Output<'_>) {
        if self.is_shown {
            let _ = write!(output.console.stderr, "\r\u{1b}[K");
            let _ = output.console.stderr.flush();
        }
    }

    fn line(&self, now_ms: u64) -> String {
        let total = self.total.max(self.done).max(1);
        let filled = usize::try_from(self.done.saturating_mul(BAR as u64) / total).unwrap_or(BAR);
        let elapsed = now_ms.saturating_sub(self.began_ms);
        let left = match self.done {
            0 => String::new(),
            done if done >= total => String::new(),
            done => format!(", {} left", duration(elapsed.saturating_mul(total - done) / done)),
        };
        let bar = format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled));
        format!("{} {bar} {} of {}{left}", self.what, grouped(self.done), grouped(total))
    }
}

fn now(output: &Output<'_>) -> u64 {
    u64::try_from(output.console.clock.monotonic().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_says_how_much_is_done_and_how_long_the_rest_takes() {
        let progress = Progress {
            what: "deleting".into(),
            total: 4_000,
            done: 1_000,
            began_ms: 0,
            drawn_ms: 0,
            is_shown: true,
        };
        assert_eq!(progress.line(5_000), "deleting ██████░░░░░░░░░░░░░░░░░░ 1,000 of 4,000, 15s left");
    }
}

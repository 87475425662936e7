//! Asks before something is destroyed.

use std::io::{BufRead, Write};

use super::{Output, Paint};
use crate::failure::{Failure, Outcome};

impl Output<'_> {
    /// Asks whether to do what cannot be undone; `what` says it with its count. Does not ask if `is_agreed`.
    ///
    /// # Errors
    /// If the answer is no, or nobody is there to ask.
    pub fn confirm(&mut self, what: &str, is_agreed: bool) -> Outcome {
        if is_agreed {
            return Ok(());
        }
        if !self.console.stdin_is_terminal {
            return Err(Failure::usage(format!("not done, because nobody is there to agree: {what}"))
                .hint("say --yes if you mean it"));
        }
        let question = self.aside.paint(Paint::Yellow, what);
        write!(self.console.stderr, "{question}? Type yes to go on: ")?;
        self.console.stderr.flush()?;
        let mut answer = String::new();
        if self.console.stdin.read_line(&mut answer)? == 0 {
            // Nobody has ended the line of the question.
            writeln!(self.console.stderr)?;
        }
        match answer.trim().eq_ignore_ascii_case("yes") {
            true => Ok(()),
            false => Err(Failure::failed("nothing was changed")),
        }
    }
}

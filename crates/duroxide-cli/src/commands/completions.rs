//! `duroxide completions`

use clap::Args;
use clap_complete::Shell;

use crate::failure::Outcome;
use crate::output::Output;

/// Arguments of `duroxide completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "For example: duroxide completions bash > ~/.local/share/bash-completion/completions/duroxide"
)]
pub struct Completions {
    /// Shell
    shell: Shell,
}

impl Completions {
    pub fn run(&self, output: &mut Output<'_>) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "duroxide", &mut script);
        output.text(&String::from_utf8_lossy(&script))
    }
}

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
        clap_complete::generate(self.shell, &mut shown(), "duroxide", &mut script);
        output.text(&String::from_utf8_lossy(&script))
    }
}

/// The command without what is not for people, which shells would offer all the same.
fn shown() -> clap::Command {
    let all = crate::command();
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    clap::Command::new("duroxide")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .subcommands(commands)
}

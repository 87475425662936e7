//! What is logged, on standard error.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::arguments::Command;
use crate::console::Console;
use crate::output::{Colours, Style};

/// Shows warnings, and more if asked for. A server also tells who changed what.
pub fn show(verbose: u8, command: &Command, console: &Console) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let mut targets = Targets::new().with_default(level);
    match command {
        Command::Serve(_) | Command::Dev(_) => {
            targets = targets.with_target("duroxide::audit", LevelFilter::INFO)
        }
        // The samples fail on purpose, and nobody wants to read of it twice.
        Command::DevWorker(_) if verbose == 0 => targets = Targets::new().with_default(LevelFilter::ERROR),
        _ => {}
    }
    let style = Style::choose(Colours::Auto, console.stderr_is_terminal, console.variable);
    let lines =
        tracing_subscriber::fmt::layer().compact().with_ansi(style.is_coloured).with_writer(std::io::stderr);
    // If there is one already, it stays.
    let _ = tracing_subscriber::registry().with(targets).with(lines).try_init();
}

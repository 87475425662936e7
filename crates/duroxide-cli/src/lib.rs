//! The command line of duroxide: the binary `duroxide`.
//!
//! It works on any store by its URL, without the application's code. `duroxide help` lists the commands;
//! `docs/operate.md` in the repository describes them with the formats that programs may rely on.
//!
//! | module | what it holds |
//! |---|---|
//! | `arguments`, `commands` | the commands, one a file |
//! | `console`, `output`, `failure` | streams, tables and JSON, errors and exit codes |
//! | `store` | opening a store by its URL |
//! | `serve` | the dashboard and the metrics, over HTTP |
//! | `dev` | the sample application, its worker, and what keeps it alive |

mod arguments;
mod commands;
mod console;
mod dev;
mod failure;
mod logs;
mod output;
mod serve;
mod store;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

use arguments::Arguments;
pub use console::Console;
pub use failure::Exit;
use output::Output;

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let exit = runtime.block_on(run(std::env::args_os(), &mut Console::of_process()));
    // A read that still blocks its thread must not keep the command from ending.
    runtime.shutdown_background();
    ExitCode::from(exit as u8)
}

/// Runs a command. The first argument is the name of the program.
pub async fn run(arguments: impl IntoIterator<Item = OsString>, console: &mut Console) -> Exit {
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error, console),
    };
    let general = &arguments.general;
    if console.shows_logs {
        logs::show(general.verbose, &arguments.command, console);
    }
    let mut output = Output::new(console, general.output, general.color, general.quiet);
    match commands::run(&arguments, &mut output).await {
        Ok(()) => Exit::Ok,
        Err(failure) if failure.exit == Exit::Ok => Exit::Ok,
        Err(failure) => {
            output.failure(&failure);
            failure.exit
        }
    }
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let matches = command().try_get_matches_from(arguments)?;
    let mut arguments = Arguments::from_arg_matches(&matches)?;
    arguments.general.is_db_from_environment = matches.value_source("db") == Some(ValueSource::EnvVariable);
    Ok(arguments)
}

/// The command with all its arguments, for help and completions.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Prints help, or what is wrong with the arguments.
fn explain(error: &clap::Error, console: &mut Console) -> Exit {
    let style = output::Style::choose(
        output::Colours::Auto,
        if error.use_stderr() { console.stderr_is_terminal } else { console.stdout_is_terminal },
        console.variable,
    );
    let text = error.render();
    let text = if style.is_coloured { text.ansi().to_string() } else { text.to_string() };
    let (stream, exit) = match error.use_stderr() {
        true => (&mut console.stderr, Exit::Usage),
        false => (&mut console.stdout, Exit::Ok),
    };
    // If nobody reads it, there is nobody to tell.
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
    exit
}

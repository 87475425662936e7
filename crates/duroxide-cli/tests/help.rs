//! The whole help tree, as it is printed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use support::{compare, run_alone};

/// Adds the help of a command and of all below it.
fn collect(command: &mut clap::Command, path: &str, text: &mut String) {
    let path = format!("{path}{}", command.get_name());
    text.push_str(&format!("## {path}\n\n{}\n", command.clone().term_width(100).render_long_help()));
    let mut below: Vec<clap::Command> = command.get_subcommands().cloned().collect();
    for command in below.iter_mut().filter(|command| command.get_name() != "help") {
        collect(command, &format!("{path} "), text);
    }
}

#[test]
fn the_help_tree_is_as_it_was() {
    let mut command = duroxide_cli::command();
    command.build();
    let mut text = String::new();
    collect(&mut command, "", &mut text);
    compare("help", &text);
}

#[test]
fn every_first_line_is_short_and_has_no_full_stop() {
    fn check(command: &clap::Command) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(
            !about.is_empty() && !about.ends_with('.') && about.len() <= 80,
            "{}: {about}",
            command.get_name()
        );
        for argument in command.get_arguments() {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                !help.is_empty() && !help.ends_with('.'),
                "{} {}: {help}",
                command.get_name(),
                argument.get_id()
            );
        }
        command.get_subcommands().filter(|command| command.get_name() != "help").for_each(check);
    }
    check(&duroxide_cli::command());
    duroxide_cli::command().debug_assert();
}

#[tokio::test]
async fn short_help_without_a_command_and_for_a_typing_error() {
    let run = run_alone("").await;
    assert_eq!(run.exit as u8, 2);
    assert!(run.stdout.is_empty() && run.stderr.contains("duroxide dev"));
    let run = run_alone("lits").await;
    assert_eq!(run.exit as u8, 2);
    assert!(run.stderr.contains("'list'"), "{}", run.stderr);
    let run = run_alone("--version").await;
    assert_eq!((run.exit as u8, run.stdout), (0, format!("duroxide {}\n", env!("CARGO_PKG_VERSION"))));
}

#[tokio::test]
async fn completions_know_the_commands() {
    let commands = duroxide_cli::command();
    let mut heads = String::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = run_alone(&format!("completions {shell}")).await;
        assert_eq!(run.exit as u8, 0);
        assert!(run.stderr.is_empty());
        for command in commands.get_subcommands() {
            let name = command.get_name();
            assert_eq!(run.stdout.contains(name), !command.is_hide_set(), "{name} in {shell}");
        }
        assert!(run.stdout.contains("backup"), "{shell}: the commands of a command");
        let head: Vec<&str> = run.stdout.lines().take(4).map(str::trim_end).collect();
        heads.push_str(&format!("$ duroxide completions {shell}\n{}\n...\n", head.join("\n")));
    }
    compare("completions", &heads);
}

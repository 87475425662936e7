//! Payloads that are given as arguments: the text itself, a file, or standard input.

use std::io::Read;

use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Reads a payload: `@file` from a file, `-` from standard input, anything else is the payload itself.
pub fn read(argument: &str, output: &mut Output<'_>) -> Outcome<String> {
    let text = if argument == "-" {
        let mut text = String::new();
        output.console.stdin.read_to_string(&mut text).map(|_| text).map_err(|error| (argument, error))
    } else if let Some(file) = argument.strip_prefix('@') {
        std::fs::read_to_string(file).map_err(|error| (file, error))
    } else {
        return Ok(argument.to_string());
    };
    // Editors and `echo` end a file with a line break that nobody means.
    text.map(|text| text.strip_suffix('\n').map(str::to_string).unwrap_or(text)).map_err(|(place, error)| {
        Failure::usage(format!("cannot read the payload from '{place}': {error}"))
            .hint("payloads are UTF-8 text; a text that begins with @ can come from standard input (-)")
    })
}

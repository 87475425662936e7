//! The binary `duroxide`; everything is in the library, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    duroxide_cli::main()
}

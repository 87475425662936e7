//! Programs that must not compile, with the messages that a newcomer gets. `TRYBUILD=overwrite` writes them anew; read the
//! difference before you commit it.
//!
//! What the macros say themselves is in `compile_fail/macros`, and is the same for every compiler. What the compiler says of
//! types is in `compile_fail/types`; each of its releases words that a little differently, so these run on one of them.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

/// The compiler whose words are recorded.
const COMPILER: &str = "rustc 1.95.";

fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let told = std::process::Command::new(rustc).arg("--version").output().expect("there is a compiler");
    String::from_utf8_lossy(&told.stdout).into_owned()
}

#[test]
fn mistakes_are_told_in_words_that_a_newcomer_understands() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_pass/*.rs");
    cases.compile_fail("tests/compile_fail/macros/*.rs");
    match compiler() {
        compiler if compiler.starts_with(COMPILER) => cases.compile_fail("tests/compile_fail/types/*.rs"),
        other => {
            eprintln!("the messages of types are those of {COMPILER}, and were not compared with {other}")
        }
    }
}

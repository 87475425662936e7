//! The benchmark of this directory's `src`, linked with the crate that this package names. What differs between the two
//! crates is in `shim`.

#[path = "../../src/bench.rs"]
mod bench;
mod shim;

fn main() -> std::process::ExitCode {
    bench::main()
}

//! The benchmark of this directory's `src`, linked with the store that this package names. What differs between the
//! stores is in `shim`.

#[path = "../../src/bench.rs"]
mod bench;
#[path = "../../src/database.rs"]
mod database;
mod shim;

fn main() -> std::process::ExitCode {
    bench::main()
}

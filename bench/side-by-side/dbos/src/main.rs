//! The workloads of `src/peer.rs` on dbos.

#[path = "../../src/peer.rs"]
mod peer;
mod shim;

fn main() -> std::process::ExitCode {
    peer::main::<shim::Dbos>()
}

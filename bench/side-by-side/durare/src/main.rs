//! The workloads of `src/peer.rs` on durare.

#[path = "../../src/peer.rs"]
mod peer;
mod shim;

fn main() -> std::process::ExitCode {
    peer::main::<shim::Durare>()
}

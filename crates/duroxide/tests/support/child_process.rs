//! Tests that start this program again, to run another of its tests in a process that may be killed.

use std::process::{Child, Command, Stdio};

/// Returns a command that runs the test `name` of the module whose `module_path!()` is `module`, alone.
pub fn run_alone(module: &str, name: &str) -> Command {
    // The harness leaves the name of the program out of its names.
    let test = match module.split_once("::") {
        Some((_, module)) => format!("{module}::{name}"),
        None => name.to_owned(),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &test, "--nocapture"]);
    command
}

/// A process that works until this is dropped; then it is killed (SIGKILL).
pub struct Victim(Child);

impl Victim {
    pub fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

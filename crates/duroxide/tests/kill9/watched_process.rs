//! A child process whose output shows how far it has come.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The process, and the lines that it has written.
pub struct WatchedProcess {
    process: Child,
    progress: Receiver<usize>,
}

impl WatchedProcess {
    pub fn spawn(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = process.stdout.take().unwrap();
        let (sender, progress) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                let lines = buffer[..count].iter().filter(|byte| **byte == b'\n').count();
                let _ = sender.send(lines);
            }
        });
        Self { process, progress }
    }

    /// Waits until so many lines were written, or nothing has come for this long; tells whether they were written.
    pub fn progress(&self, lines: u64, quiet: Duration) -> bool {
        let mut seen = 0;
        while seen < lines {
            match self.progress.recv_timeout(quiet) {
                Ok(more) => seen += more as u64,
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => panic!("the worker ended by itself"),
            }
        }
        true
    }

    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Lets it shut down.
    pub fn finish(mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait().unwrap();
        assert!(status.success(), "the last worker: {status}");
    }
}

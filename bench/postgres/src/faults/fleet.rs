//! The worker processes of a run, and what they have written.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::worker;
use crate::Outcome;

/// Worker processes, as long as this lives.
pub struct Fleet {
    workers: Vec<Worker>,
    directory: PathBuf,
}

struct Worker {
    name: String,
    process: Child,
    /// How much of its log was read.
    read: usize,
}

/// What workers have logged since the last look.
#[derive(Debug, Default, Clone, Copy)]
pub struct Logged {
    pub warnings: u64,
    pub errors: u64,
}

impl Fleet {
    /// Starts a worker for each of the addresses; logs and ledgers are in the directory.
    pub fn start(directory: &Path, schema: &str, urls: &[String]) -> Outcome<Self> {
        let mut fleet = Self { workers: Vec::new(), directory: directory.to_path_buf() };
        for (number, url) in urls.iter().enumerate() {
            let name = format!("w{}", number + 1);
            let process = spawn(&std::env::current_exe()?, directory, url, schema, &name)?;
            fleet.workers.push(Worker { name, process, read: 0 });
        }
        Ok(fleet)
    }

    fn log(&self, worker: &str) -> PathBuf {
        log_of(&self.directory, worker)
    }

    fn ledger(&self, worker: &str) -> PathBuf {
        ledger_of(&self.directory, worker)
    }

    /// The ledgers of all workers that have one.
    pub fn ledgers(&self) -> Outcome<Vec<String>> {
        let files = self.workers.iter().map(|worker| self.ledger(&worker.name));
        Ok(files.filter(|file| file.exists()).map(fs::read_to_string).collect::<Result<_, _>>()?)
    }

    /// Says which workers have ended, which none should.
    pub fn ended(&mut self) -> Outcome<Vec<String>> {
        let mut ended = Vec::new();
        for worker in &mut self.workers {
            if let Some(status) = worker.process.try_wait()? {
                ended.push(format!("the worker {} has ended: {status}", worker.name));
            }
        }
        Ok(ended)
    }

    /// Counts what was logged since the last look.
    pub fn logged(&mut self) -> Outcome<Logged> {
        let mut logged = Logged::default();
        for number in 0..self.workers.len() {
            let text = fs::read_to_string(self.log(&self.workers[number].name))?;
            let worker = &mut self.workers[number];
            for line in text.get(worker.read..).unwrap_or_default().lines() {
                // The level follows the time; both may be coloured.
                let is_of = |level: &str| line.split_whitespace().take(3).any(|word| word.contains(level));
                logged.warnings += u64::from(is_of("WARN"));
                logged.errors += u64::from(is_of("ERROR"));
            }
            worker.read = text.len();
        }
        Ok(logged)
    }

    /// Lets all workers come to their end.
    pub fn stop(mut self) -> Outcome<()> {
        for worker in &mut self.workers {
            drop(worker.process.stdin.take());
            worker.process.wait()?;
        }
        Ok(())
    }
}

/// Starts a program as a worker, whose log and ledger are in the directory.
pub fn spawn(program: &Path, directory: &Path, url: &str, schema: &str, name: &str) -> Outcome<Child> {
    let log = File::create(log_of(directory, name))?;
    let process = Command::new(program)
        .args([worker::PROGRAM, "--url", url, "--schema", schema, "--name", name, "--ledger"])
        .arg(ledger_of(directory, name))
        .stdin(Stdio::piped())
        .stderr(log.try_clone()?)
        .stdout(log)
        .spawn()?;
    Ok(process)
}

pub fn log_of(directory: &Path, worker: &str) -> PathBuf {
    directory.join(format!("{worker}.log"))
}

pub fn ledger_of(directory: &Path, worker: &str) -> PathBuf {
    directory.join(format!("{worker}.ledger"))
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            // It may have ended already.
            let _ = worker.process.kill();
            let _ = worker.process.wait();
        }
    }
}

//! The command line of this and of the `postgres` benchmark: a program, then `--name value` or `--flag`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Outcome;

/// Options that take no value.
const FLAGS: [&str; 4] = ["json", "self-test", "no-op", "no-leases"];
const OPTIONS: [&str; 25] = [
    "dir",
    "callers",
    "rounds",
    "seconds",
    "steps-per-instance",
    "samples",
    "scale",
    "only",
    "kills",
    "seed",
    "bare",
    "file",
    "life",
    "batch",
    "size",
    "keep",
    "page",
    "minutes",
    "rate",
    "url",
    "schema",
    "ledger",
    "name",
    "phases",
    "before",
];

/// What the program was asked to do.
pub struct Args {
    pub program: String,
    given: BTreeMap<String, String>,
}

impl Args {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let program = arguments.next().unwrap_or_else(|| "help".into());
        let mut given = BTreeMap::new();
        while let Some(argument) = arguments.next() {
            let name = argument.strip_prefix("--").ok_or_else(|| format!("unexpected '{argument}'"))?;
            let value = if FLAGS.contains(&name) {
                String::new()
            } else if OPTIONS.contains(&name) {
                arguments.next().ok_or_else(|| format!("--{name} needs a value"))?
            } else {
                return Err(format!("there is no option --{name}").into());
            };
            given.insert(name.to_string(), value);
        }
        Ok(Self { program, given })
    }

    pub fn flag(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.given.get(name).map(String::as_str)
    }

    /// The value of an option, or what it is when it is not given.
    pub fn value<T: FromStr>(&self, name: &str, default: T) -> Outcome<T> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("--{name} cannot be '{text}'").into()),
        }
    }

    /// A list with commas, or what it is when it is not given.
    pub fn list<T: FromStr + Clone>(&self, name: &str, default: &[T]) -> Outcome<Vec<T>> {
        match self.text(name) {
            None => Ok(default.to_vec()),
            Some(text) => text
                .split(',')
                .map(|part| part.trim().parse().map_err(|_| format!("--{name} cannot be '{text}'").into()))
                .collect(),
        }
    }

    /// A directory for this run, removed at its end: in `--dir`, or beside the program, which is on a disk.
    pub fn work_dir(&self) -> Outcome<tempfile::TempDir> {
        let parent = match self.text("dir") {
            Some(dir) => PathBuf::from(dir),
            None => {
                let program = std::env::current_exe()?;
                program.parent().ok_or("the program is in no directory")?.to_path_buf()
            }
        };
        Ok(tempfile::Builder::new().prefix("store-bench-").tempdir_in(parent)?)
    }
}

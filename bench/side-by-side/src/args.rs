//! `WORKLOAD --file PATH --size N --cap SECONDS --sync full|normal --seconds N --workers N`

use std::path::PathBuf;
use std::time::Duration;

use super::Outcome;

/// What one run is asked to do.
pub struct Args {
    pub workload: String,
    /// The database, which must not exist.
    pub file: PathBuf,
    /// How much there is to do; each workload says of what.
    pub size: u64,
    /// When a run gives up, and reports what it has got.
    pub cap: Duration,
    pub sync: String,
    /// How long a runtime without work is watched.
    pub watched: Duration,
    /// Processes that do the work of `scaling`.
    pub workers: u64,
}

impl Args {
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut args = Self {
            workload: arguments.next().ok_or("no workload given")?,
            file: PathBuf::new(),
            size: 1,
            cap: Duration::from_secs(60),
            sync: "full".to_string(),
            watched: Duration::from_secs(5),
            workers: 1,
        };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--file" => args.file = PathBuf::from(value),
                "--size" => args.size = value.parse()?,
                "--cap" => args.cap = Duration::from_secs(value.parse()?),
                "--sync" => args.sync = value,
                "--seconds" => args.watched = Duration::from_secs(value.parse()?),
                "--workers" => args.workers = value.parse()?,
                other => return Err(format!("there is no option {other}").into()),
            }
        }
        if args.file.as_os_str().is_empty() {
            return Err("--file is missing".into());
        }
        Ok(args)
    }

    /// The name of the database that both crates understand.
    pub fn url(&self) -> String {
        format!("sqlite:{}?mode=rwc", self.file.display())
    }
}

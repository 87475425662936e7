//! Facts about where the figures come from, measured in the run that prints them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::report::Report;
use crate::stats::{median, now};
use crate::{Outcome, life};

const SYNC_SAMPLES: usize = 200;

/// Puts what decides the figures at the head of a report.
pub fn describe(report: &mut Report, dir: &Path) -> Outcome<()> {
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
    report.setting("cores", cores);
    report.setting("SQLite", rusqlite::version());
    report.setting("sync level", "full: every commit with data is synced; one with only leases is not");
    report.setting("directory", dir.display().to_string());
    report.setting("fdatasync p50 (us)", sync_p50_us(dir)?);
    report.setting("payload (bytes)", life::PAYLOAD_BYTES);
    Ok(())
}

/// How long the disk takes to make one page durable.
fn sync_p50_us(dir: &Path) -> Outcome<f64> {
    let mut file = File::create(dir.join("sync-probe"))?;
    let page = [0x5a_u8; 4096];
    let mut samples = Vec::with_capacity(SYNC_SAMPLES);
    for _ in 0..SYNC_SAMPLES {
        file.write_all(&page)?;
        let began = now();
        file.sync_data()?;
        samples.push((now() - began).as_secs_f64() * 1e6);
    }
    std::fs::remove_file(dir.join("sync-probe"))?;
    Ok(median(&samples))
}

/// Counts the commits of a database, whoever makes them.
///
/// SQLite keeps a counter in the header of the index of its write-ahead log, which goes up with every transaction that
/// wrote something.
pub struct CommitCounter(PathBuf);

impl CommitCounter {
    const COUNTER_OFFSET: u64 = 8;

    pub fn new(database: &Path) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-shm");
        Self(path.into())
    }

    pub fn read(&self) -> Outcome<u32> {
        let mut file = File::open(&self.0)?;
        file.seek(SeekFrom::Start(Self::COUNTER_OFFSET))?;
        let mut counter = [0; 4];
        file.read_exact(&mut counter)?;
        Ok(u32::from_ne_bytes(counter))
    }
}

//! What the operating system knows about this process and its database. Linux only; elsewhere the figures are 0.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Ticks of `/proc/self/stat` in a second, the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Milliseconds since the epoch.
#[allow(clippy::disallowed_methods, reason = "a benchmark measures with the machine's own clock")]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The most memory that this process has had, in MB.
pub fn peak_memory_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()).and_then(|text| text.parse().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}

/// Processor time of this process so far.
#[derive(Clone, Copy)]
pub struct CpuTime {
    /// From `stat`: complete, but in ticks of 10 ms.
    ticks: f64,
    /// From `schedstat`: exact, but without threads that have ended.
    threads: f64,
}

impl CpuTime {
    pub fn read() -> Self {
        Self { ticks: ticks() / TICKS_PER_SECOND, threads: threads().as_secs_f64() }
    }

    /// Seconds used since `earlier`. The exact figure is taken unless the other shows that it misses something.
    pub fn since(&self, earlier: &Self) -> f64 {
        let (ticks, threads) = (self.ticks - earlier.ticks, self.threads - earlier.threads);
        if ticks > threads + 2.0 / TICKS_PER_SECOND { ticks } else { threads }
    }
}

fn ticks() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program may hold spaces, so fields are counted from behind it.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum()
}

fn threads() -> Duration {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let used = |path: PathBuf| -> u64 {
        let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
    };
    Duration::from_nanos(threads.flatten().map(|thread| used(thread.path())).sum())
}

/// Counts the commits of a database, whoever makes them: SQLite keeps a counter in the header of the index of its
/// write-ahead log, which goes up with every transaction that wrote something.
pub fn commits(database: &Path) -> u32 {
    const COUNTER_OFFSET: u64 = 8;
    let mut path = database.as_os_str().to_owned();
    path.push("-shm");
    let read = || -> std::io::Result<u32> {
        let mut file = File::open(PathBuf::from(path))?;
        file.seek(SeekFrom::Start(COUNTER_OFFSET))?;
        let mut counter = [0; 4];
        file.read_exact(&mut counter)?;
        Ok(u32::from_ne_bytes(counter))
    };
    read().unwrap_or(0)
}

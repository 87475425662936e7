//! The machine that the figures come from, and a directory for the run.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Outcome;

const SYNC_SAMPLES: usize = 60;

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, |cores| cores.get())
}

/// Today, as year, month and day.
pub fn today() -> String {
    let days = now_since_epoch().as_secs() / 86_400;
    let (year, month, day) = date_of(days);
    format!("{year}-{month:02}-{day:02}")
}

/// The Gregorian date of a day counted from 1970, by the usual count of eras of 400 years from a first of March.
fn date_of(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures with the machine's own clock")]
fn now_since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures with the machine's own clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Where the databases of a comparison are; removed at its end.
pub struct WorkDir(PathBuf);

impl WorkDir {
    /// Makes it in `parent`, or beside this program, which is on a disk.
    pub fn new(parent: Option<&Path>) -> Outcome<Self> {
        let parent = match parent {
            Some(parent) => parent.to_path_buf(),
            None => std::env::current_exe()?.parent().ok_or("the program is in no directory")?.to_path_buf(),
        };
        let dir = std::path::absolute(parent)?.join(format!("side-by-side-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The name of a database that no run has used.
    pub fn fresh_database(&self, number: usize) -> PathBuf {
        self.0.join(format!("run-{number}.db"))
    }

    /// Removes what a run has left.
    pub fn clear(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }

    /// How long the disk takes to make one page durable, in microseconds: the median of a few.
    pub fn sync_us(&self) -> Outcome<f64> {
        let path = self.0.join("sync-probe");
        let mut file = File::create(&path)?;
        let mut samples = Vec::with_capacity(SYNC_SAMPLES);
        for _ in 0..SYNC_SAMPLES {
            file.write_all(&[0x5a; 4096])?;
            let began = now();
            file.sync_data()?;
            samples.push(began.elapsed().as_secs_f64() * 1e6);
        }
        fs::remove_file(path)?;
        Ok(median(&samples))
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The middle of some values; 0 without any.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(date_of(0), (1970, 1, 1));
        assert_eq!(date_of(19_782), (2024, 2, 29));
        assert_eq!(date_of(20_772), (2026, 11, 15));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
    }
}

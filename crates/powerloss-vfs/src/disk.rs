//! The disk: its files, its faults, and power cuts.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use crate::file::File;
use crate::vfs;

/// The live disks of this process, by their directories.
static DISKS: LazyLock<Mutex<Disks>> = LazyLock::new(Mutex::default);

type Disks = HashMap<PathBuf, Weak<Disk>>;

/// A directory whose files a test can see as they would be after a power cut.
#[derive(Debug)]
pub struct Disk {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, File>,
    /// How many syncs there were so far.
    syncs: u64,
    /// The numbers of the syncs that fail.
    failing: Range<u64>,
    /// Whether a page that could not be written is read from the disk from then on.
    forgets_what_it_could_not_write: bool,
    /// How many calls of SQLite there were so far: reads, writes, truncations and syncs.
    calls: u64,
    /// Which of them fail, and how.
    faulty: Option<(Range<u64>, CallFault)>,
}

/// How a call of SQLite to the disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// The call does nothing, and reports an error of the device.
    IoError,
    /// A write stores the first half of its bytes, and reports an error. Any other call is as with `IoError`.
    ShortWrite,
    /// A write or truncation does nothing, and reports that the disk is full. Any other call succeeds.
    DiskFull,
}

/// Which unsynced changes survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survivors {
    /// Nothing.
    Nothing,
    /// The first changes of each file.
    FirstChanges {
        /// Picks how many.
        seed: u64,
    },
    /// Any sectors of any changes.
    TornChanges {
        /// Picks which.
        seed: u64,
    },
}

impl Disk {
    /// Watches a directory from now on. Open the databases in it with [`VFS_NAME`](crate::VFS_NAME).
    ///
    /// # Panics
    /// If the directory does not exist.
    pub fn new(directory: &Path) -> Arc<Self> {
        vfs::register();
        #[expect(clippy::expect_used, reason = "for tests, which make the directory")]
        let directory = directory.canonicalize().expect("the directory exists");
        let disk = Arc::new(Self { directory: directory.clone(), state: Mutex::default() });
        disks().insert(directory, Arc::downgrade(&disk));
        disk
    }

    /// Returns how many syncs there were so far, failed ones included.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Makes syncs fail: those with these numbers, counted from now on; 0 is the next one.
    pub fn fail_syncs(&self, which: Range<u64>) {
        let mut state = self.state();
        state.failing = state.syncs + which.start..state.syncs.saturating_add(which.end);
    }

    /// Returns how many calls of SQLite there were so far, failed ones included.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Makes calls fail: those with these numbers, counted from now on; 0 is the next one.
    pub fn fail_calls(&self, which: Range<u64>, fault: CallFault) {
        let mut state = self.state();
        state.faulty = Some((state.calls + which.start..state.calls.saturating_add(which.end), fault));
    }

    /// Counts a call; returns how it fails, if it does.
    pub(crate) fn next_call(&self) -> Option<CallFault> {
        let mut state = self.state();
        let number = state.calls;
        state.calls += 1;
        state.faulty.as_ref().filter(|(which, _)| which.contains(&number)).map(|(_, fault)| *fault)
    }

    /// From now on, the system's memory does not keep a page that could not be written either: every reader gets what
    /// is on the disk.
    pub fn forget_what_cannot_be_written(&self) {
        self.state().forgets_what_it_could_not_write = true;
    }

    /// Writes the files as a power cut would leave them into another directory. The disk itself goes on.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub fn cut_power(&self, image: &Path, survivors: Survivors) -> io::Result<()> {
        let mut random = Random(match survivors {
            Survivors::Nothing => 1,
            Survivors::FirstChanges { seed } | Survivors::TornChanges { seed } => spread(seed),
        });
        let state = self.state();
        for (path, file) in &state.files {
            let content = match survivors {
                Survivors::Nothing => file.durable(),
                // A sync of the directory may have recorded its removal, or not.
                _ if file.is_unlinked && random.below(2) == 0 => continue,
                Survivors::FirstChanges { .. } => file.with_first_changes(&mut random),
                Survivors::TornChanges { .. } => file.with_torn_changes(&mut random),
            };
            let name = path.file_name().map(Path::new).unwrap_or(path);
            if !content.is_empty() {
                std::fs::write(image.join(name), content)?;
            }
        }
        Ok(())
    }

    /// Writes to a file past SQLite, as any program can.
    ///
    /// # Errors
    /// If the system cannot write it.
    pub fn write(&self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        use std::io::{Seek, SeekFrom, Write};
        let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)?;
        self.with_file(path, |file| file.write(position(offset), bytes));
        Ok(())
    }

    /// Syncs a file past SQLite, through a newly opened handle.
    ///
    /// # Errors
    /// If this sync has to fail.
    pub fn sync(&self, path: &Path) -> io::Result<()> {
        let mut heard = self.with_file(path, |file| file.failures);
        self.sync_handle(path, &mut heard).map_err(|SyncFailed| io::Error::other("the disk failed to sync"))
    }

    /// Syncs a file; `heard` counts the failures that its handle has reported.
    pub(crate) fn sync_handle(&self, path: &Path, heard: &mut u64) -> Result<(), SyncFailed> {
        let mut state = self.state();
        let number = state.syncs;
        state.syncs += 1;
        let (fails, forgets) = (state.failing.contains(&number), state.forgets_what_it_could_not_write);
        let file = state.files.entry(path.to_path_buf()).or_default();
        match fails {
            false => file.sync(),
            true if forgets => {
                file.fail_to_sync();
                // Best effort, like everything at this point; a test that needs it checks whether it worked.
                let _ = std::fs::write(path, file.drop_memory());
            }
            true => file.fail_to_sync(),
        }
        let syncs_directory = !fails && std::mem::take(&mut file.is_new);
        let had_heard = std::mem::replace(heard, file.failures);
        let has_failed = had_heard != file.failures;
        if syncs_directory {
            state.files.retain(|_, file| !file.is_unlinked);
        }
        if has_failed { Err(SyncFailed) } else { Ok(()) }
    }

    /// Finds the disk of a file, if one watches it.
    pub(crate) fn of(path: &Path) -> Option<Arc<Self>> {
        disks().get(path.parent()?)?.upgrade()
    }

    /// Notes that a file was opened; returns how many failures its handle has reported.
    pub(crate) fn open(&self, path: &Path) -> u64 {
        let content = std::fs::read(path).unwrap_or_default();
        let mut state = self.state();
        let file = state.files.entry(path.to_path_buf()).or_insert_with(|| File::found(content));
        if file.is_unlinked {
            *file = File::found(Vec::new());
        }
        file.failures
    }

    /// Notes that a file was removed, and whether its directory was synced.
    pub(crate) fn unlink(&self, path: &Path, is_synced: bool) {
        let mut state = self.state();
        match is_synced {
            true => drop(state.files.remove(path)),
            false => state.files.entry(path.to_path_buf()).or_default().is_unlinked = true,
        }
    }

    pub(crate) fn with_file<T>(&self, path: &Path, change: impl FnOnce(&mut File) -> T) -> T {
        change(self.state().files.entry(path.to_path_buf()).or_default())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory, as SQLite names it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// The system reported that a sync failed.
#[derive(Debug)]
pub(crate) struct SyncFailed;

fn disks() -> MutexGuard<'static, Disks> {
    DISKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts an offset to a position in memory.
pub(crate) fn position(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Makes a seed from any number.
fn spread(seed: u64) -> u64 {
    seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

/// Numbers that look random and are the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (bound.max(1) as u64)).unwrap_or(0)
    }
}

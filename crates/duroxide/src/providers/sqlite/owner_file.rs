//! The lock file of an owner of leases: the owner lives as long as it is locked, and the file lists the user code that
//! the owner runs.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 255 | on which boot of which host the owner runs, as text |
//! | 256 to 263 | a time, little-endian, in milliseconds: no lease of the owner ends later |
//! | 264 | 1 if some of its leases were taken by callers who do not say what they run, otherwise 0 |
//! | from 272 on | 16 bytes for each piece of user code that is running: the random part of its lease's token, or zeros |
//!
//! The operating system releases the lock when the process ends, however it ends. The store never syncs this file:
//! after a power cut the boot is another one, and the content of the file no longer matters.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const HEADER_BYTES: usize = 256;
const MAGIC: &[u8] = b"duroxide owner 1\n";
const HORIZON_AT: u64 = 256;
const UNMARKED_AT: u64 = 264;
const MARKS_AT: usize = 272;
/// A page, so that most marks overwrite bytes that exist.
const FIRST_SIZE: usize = 4096;
/// More than any owner writes.
const LARGEST_SIZE: u64 = 1 << 20;
/// How far to set the horizon ahead of the lease that needs it, so that the owner writes it only now and then.
const HORIZON_STEP_MS: i64 = 60_000;

/// The random part of a token, which identifies the lease.
pub(super) type Mark = [u8; 16];

/// The boot and the host on which a process runs, as its file states them. Processes of one host and boot share a
/// kernel, which knows all their locks.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct HostBoot([u8; HEADER_BYTES]);

impl HostBoot {
    /// Describes where this process runs; `None` if the system does not tell.
    pub(super) fn here() -> Option<Self> {
        let told = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
        let boot = told("/proc/sys/kernel/random/boot_id").filter(|id| !id.is_empty())?;
        let host = told("/proc/sys/kernel/hostname").filter(|name| !name.is_empty())?;
        Self::new(&boot, &host)
    }

    fn new(boot: &str, host: &str) -> Option<Self> {
        let text = [MAGIC, b"boot ", boot.as_bytes(), b"\nhost ", host.as_bytes(), b"\n"].concat();
        let mut header = [0; HEADER_BYTES];
        header.get_mut(..text.len())?.copy_from_slice(&text);
        Some(Self(header))
    }
}

/// The file of this live owner.
pub(super) struct OwnerFile {
    file: File,
    path: PathBuf,
    horizon: AtomicI64,
    has_unmarked: AtomicBool,
    slots: Mutex<Slots>,
}

/// The slots for marks that are in use.
#[derive(Default)]
struct Slots {
    freed: Vec<u32>,
    used: u32,
}

impl OwnerFile {
    /// Makes the file, readable and writable as `mode` says, and locks it.
    pub(super) fn create(path: PathBuf, host_boot: &HostBoot, mode: u32) -> io::Result<Self> {
        // The file gets its name once it is locked and complete: no other process ever finds it in another state.
        let unnamed = path.with_extension("new");
        let file = create_new(&unnamed, mode)?;
        let completed = complete(&file, host_boot).and_then(|()| fs::rename(&unnamed, &path));
        if let Err(error) = completed {
            let _ = fs::remove_file(&unnamed);
            return Err(error);
        }
        Ok(Self {
            file,
            path,
            horizon: AtomicI64::new(0),
            has_unmarked: AtomicBool::new(false),
            slots: Mutex::default(),
        })
    }

    /// Notes that a lease ends at this time. Only the writer calls this.
    pub(super) fn note_lease(&self, until: i64) {
        if until > self.horizon.load(Ordering::Relaxed) {
            let horizon = until.saturating_add(HORIZON_STEP_MS);
            // If the write fails, leases beyond the old horizon run out in their own time.
            if write_at(&self.file, &horizon.to_le_bytes(), HORIZON_AT).is_ok() {
                self.horizon.store(horizon, Ordering::Relaxed);
            }
        }
    }

    /// Notes that a caller takes leases without marking what it runs.
    pub(super) fn note_unmarked(&self) {
        if !self.has_unmarked.load(Ordering::Relaxed) && write_at(&self.file, &[1], UNMARKED_AT).is_ok() {
            self.has_unmarked.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that the user's code of a lease is about to run; returns the slot of the mark.
    pub(super) fn mark(&self, mark: Mark) -> u32 {
        let slot = self.slots().take();
        // If a mark cannot be written, it is missing after a crash: then the store counts one attempt too few.
        let _ = write_at(&self.file, &mark, offset(slot));
        slot
    }

    /// Notes that the user's code has ended.
    pub(super) fn erase(&self, slot: u32) {
        let _ = write_at(&self.file, &Mark::default(), offset(slot));
        self.slots().freed.push(slot);
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OwnerFile {
    fn drop(&mut self) {
        // Another process may have opened the file and wait for its lock. An empty file belongs to no owner, so that
        // process does not take this owner for dead. The leases that this owner still holds run out.
        let _ = self.file.set_len(0);
        let _ = fs::remove_file(&self.path);
    }
}

impl Slots {
    fn take(&mut self) -> u32 {
        self.freed.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        })
    }
}

/// An owner that died. This keeps its file locked, so that no other process releases the same leases.
pub(super) struct DeadOwner {
    _lock: File,
    path: PathBuf,
    /// No lease of the owner ends later.
    pub(super) horizon: i64,
    running: HashSet<Mark>,
    /// Whether the owner ran user code that is not in `running`.
    has_unmarked: bool,
}

impl DeadOwner {
    /// Looks at the file of another owner; `None` if the owner lives, if this process cannot tell, or if there is
    /// nothing left to release.
    pub(super) fn find(path: &Path, host_boot: &HostBoot, now: i64) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut content = Vec::new();
        (&file).take(LARGEST_SIZE).read_to_end(&mut content)?;
        let horizon = content.get(HORIZON_AT as usize..).and_then(|rest| rest.first_chunk());
        let horizon = horizon.map_or(0, |bytes| i64::from_le_bytes(*bytes));
        if !content.starts_with(&host_boot.0) {
            // The file is from another boot, or from another host that shares the disk: there leases run out.
            // Afterwards the file is litter.
            if content.is_empty() || content.starts_with(MAGIC) && horizon < now {
                fs::remove_file(path)?;
            }
            return Ok(None);
        }
        let (marks, _) = content.get(MARKS_AT..).unwrap_or_default().as_chunks();
        let running = marks.iter().copied().filter(|mark| *mark != Mark::default()).collect();
        let has_unmarked = content.get(UNMARKED_AT as usize) == Some(&1);
        Ok(Some(Self { _lock: file, path: path.to_path_buf(), horizon, running, has_unmarked }))
    }

    /// Tells whether the user's code of a lease was running when the owner died, or may have been.
    pub(super) fn ran(&self, mark: Mark) -> bool {
        self.has_unmarked || self.running.contains(&mark)
    }

    /// Removes the file of an owner that holds nothing any more.
    pub(super) fn remove(self) {
        // If the removal fails, a later look finds the file again, with nothing to release.
        let _ = fs::remove_file(&self.path);
    }
}

fn offset(slot: u32) -> u64 {
    MARKS_AT as u64 + u64::from(slot) * size_of::<Mark>() as u64
}

fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let file = options.open(path)?;
    // The umask does not apply here: these files go with a file that already exists.
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    Ok(file)
}

fn complete(file: &File, host_boot: &HostBoot) -> io::Result<()> {
    file.try_lock()?;
    let mut content = host_boot.0.to_vec();
    content.resize(FIRST_SIZE, 0);
    write_at(file, &content, 0)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

/// Only systems that tell their boot have owner files so far, and those can write in place.
#[cfg(not(unix))]
fn write_at(_file: &File, _bytes: &[u8], _at: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "helpers of tests, too")]
mod tests {
    use super::*;

    const NOW: i64 = 1_757_400_000_000;

    fn host_boot(host: &str) -> HostBoot {
        HostBoot::new("b", host).unwrap()
    }

    fn found(path: &Path, host_boot: &HostBoot) -> Option<DeadOwner> {
        DeadOwner::find(path, host_boot, NOW).unwrap()
    }

    /// Leaves the file of an owner as a killed process does.
    fn left_behind(path: &Path, owner: OwnerFile) {
        let content = fs::read(path).unwrap();
        drop(owner);
        fs::write(path, content).unwrap();
    }

    #[test]
    fn an_owner_that_lives_is_never_found_dead() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let owner = OwnerFile::create(path.clone(), &host_boot("h"), 0o600).unwrap();
        assert!(found(&path, &host_boot("h")).is_none());
        drop(owner);
        assert_eq!(
            DeadOwner::find(&path, &host_boot("h"), NOW).err().unwrap().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn a_dead_owner_tells_what_it_was_running_and_until_when_it_leased() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let owner = OwnerFile::create(path.clone(), &host_boot("h"), 0o600).unwrap();
        owner.note_lease(NOW);
        let slots: Vec<u32> = (1..=600u128).map(|n| owner.mark(n.to_le_bytes())).collect();
        for slot in &slots[..598] {
            owner.erase(*slot);
        }
        assert!(owner.mark(1000u128.to_le_bytes()) < 600, "slots are used again");
        left_behind(&path, owner);
        let dead = found(&path, &host_boot("h")).unwrap();
        assert!(dead.horizon >= NOW);
        let expected = [599u128, 600, 1000].map(u128::to_le_bytes);
        assert_eq!(dead.running, HashSet::from(expected));
        assert!(expected.into_iter().all(|mark| dead.ran(mark)) && !dead.ran(1u128.to_le_bytes()));
        assert!(found(&path, &host_boot("h")).is_none(), "somebody is dealing with it");
        dead.remove();
        assert!(!path.exists());
    }

    #[test]
    fn of_an_owner_that_did_not_always_say_what_it_runs_everything_may_have_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let owner = OwnerFile::create(path.clone(), &host_boot("h"), 0o600).unwrap();
        owner.note_unmarked();
        left_behind(&path, owner);
        assert!(found(&path, &host_boot("h")).unwrap().ran(1u128.to_le_bytes()));
    }

    #[test]
    fn the_owner_of_another_boot_or_host_is_left_to_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        for (elsewhere, until) in [(host_boot("other"), NOW), (HostBoot::new("c", "h").unwrap(), NOW)] {
            let owner = OwnerFile::create(path.clone(), &elsewhere, 0o600).unwrap();
            owner.note_lease(until);
            left_behind(&path, owner);
            assert!(found(&path, &host_boot("h")).is_none());
            assert!(path.exists(), "its leases may still run");
            let later = NOW + HORIZON_STEP_MS + 1;
            assert!(DeadOwner::find(&path, &host_boot("h"), later).unwrap().is_none());
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_file_that_is_not_ours_is_left_alone_and_a_cut_one_read_as_far_as_it_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        fs::write(&path, "somebody else's").unwrap();
        assert!(found(&path, &host_boot("h")).is_none() && path.exists());
        fs::write(&path, host_boot("h").0).unwrap();
        let dead = found(&path, &host_boot("h")).unwrap();
        assert_eq!((dead.horizon, dead.running.len()), (0, 0));
    }

    #[test]
    fn a_name_too_long_for_the_header_names_no_host() {
        assert!(HostBoot::new("b", &"h".repeat(300)).is_none());
    }
}

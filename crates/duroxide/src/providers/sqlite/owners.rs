//! Owners of leases, and the release of a dead owner's leases.
//!
//! An owner is an open store handle. It holds a lock on a file of its own, next to the database in `NAME-owners`, and
//! its leases carry its id. When another handle finds that lock free, the process has died, and the handle releases the
//! dead owner's leases at once instead of letting them run out. The attempt counts for work that was running, which may
//! have been the cause, and does not count for work that was only leased. Callers of the plain contract do not mark
//! what they run: with such a caller, every attempt counts.
//!
//! Where this is impossible (the directory cannot be made, or the system does not tell its boot), and for owners on
//! another host, leases simply run out.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rusqlite::params;
use uuid::Uuid;

use super::error::StoreError;
use super::owner_file::{DeadOwner, HostBoot, OwnerFile};
use super::write_transaction::{WriteTransaction, shown_text};
use super::{sessions, turns, work};
use crate::providers::rows::lease_token;

const TARGET: &str = "duroxide::providers::sqlite";

/// How often to try to make a file while other processes, which close the same store, remove the directory.
const CREATE_ATTEMPTS: usize = 10;

/// After this many looks at the others, list their directory again even if it seems unchanged.
const LOOKS_PER_LISTING: u32 = 10;

/// This handle as one of the owners of leases on its database.
pub(super) struct Owners {
    id: String,
    // `None` only while this is dropped: the file must go before its directory can be removed.
    file: Option<OwnerFile>,
    directory: PathBuf,
    host_boot: HostBoot,
    others: Mutex<Others>,
}

impl Owners {
    /// Joins the owners; `None` where the death of a process cannot be noticed.
    pub(super) fn join(database: &Path) -> Option<Self> {
        let host_boot = HostBoot::here()?;
        let joined = Self::try_join(database, host_boot);
        let report = |error: &io::Error| {
            tracing::warn!(target: TARGET, database = %database.display(), %error,
                "no lock file beside the database: if this process dies, its leases run out instead of being released");
        };
        joined.inspect_err(report).ok()
    }

    fn try_join(database: &Path, host_boot: HostBoot) -> io::Result<Self> {
        // A process that opens the database through another link must find the same directory.
        let database = std::fs::canonicalize(database)?;
        let mode = mode(&database)?;
        let mut directory = database.into_os_string();
        directory.push("-owners");
        let directory = PathBuf::from(directory);
        let id = new_id();
        let path = directory.join(&id).with_extension(EXTENSION);
        let mut attempts = 0;
        let file = loop {
            attempts += 1;
            make_directory(&directory, mode)?;
            match OwnerFile::create(path.clone(), &host_boot, mode) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempts < CREATE_ATTEMPTS => {}
                created => break created?,
            }
        };
        Ok(Self { id, file: Some(file), directory, host_boot, others: Mutex::default() })
    }

    /// The id that the leases of this handle carry.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Notes that this handle takes a lease until then.
    pub(super) fn note_lease(&self, until: i64) {
        if let Some(file) = &self.file {
            file.note_lease(until);
        }
    }

    /// Notes that this handle leases work to a caller that does not mark what it runs.
    pub(super) fn note_unmarked(&self) {
        if let Some(file) = &self.file {
            file.note_unmarked();
        }
    }

    /// Notes that the user's code of a lease is about to run; returns the slot of the mark, if the token is one of
    /// ours.
    pub(super) fn mark(&self, token: &str) -> Option<u32> {
        Some(self.file.as_ref()?.mark(lease_token::random_part(token)?))
    }

    /// Notes that the user's code has ended.
    pub(super) fn erase(&self, slot: u32) {
        if let Some(file) = &self.file {
            file.erase(slot);
        }
    }

    /// Tells whether the last look found no other owners.
    pub(super) fn are_alone(&self) -> bool {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).files.is_empty()
    }

    /// Finds owners that have died.
    pub(super) fn dead(&self, now: i64) -> Vec<(String, DeadOwner)> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.update(&self.directory, &self.id);
        let find = |(id, path): &(String, PathBuf)| {
            // A failed look is no reason to stop: leases run out all the same.
            Some((id.clone(), DeadOwner::find(path, &self.host_boot, now).ok()??))
        };
        others.files.iter().filter_map(find).collect()
    }
}

/// The files of the other owners, as of the last listing.
#[derive(Default)]
struct Others {
    files: Vec<(String, PathBuf)>,
    /// When the directory had last changed at that time.
    changed: Option<SystemTime>,
    looks_since: u32,
}

impl Others {
    /// Lists the directory again if it has changed, and now and then in any case, because its time of change is coarse.
    fn update(&mut self, directory: &Path, own_id: &str) {
        let changed = std::fs::metadata(directory).and_then(|metadata| metadata.modified()).ok();
        self.looks_since += 1;
        if changed.is_some() && changed == self.changed && self.looks_since < LOOKS_PER_LISTING {
            return;
        }
        let entries = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
        let paths = entries.map(|entry| entry.path());
        let files = paths.filter_map(|path| Some((owner_of(&path)?.to_string(), path)));
        self.files = files.filter(|(id, _)| id != own_id).collect();
        (self.changed, self.looks_since) = (changed, 0);
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.file = None;
        // Only the last owner succeeds: the directory must be empty.
        let _ = std::fs::remove_dir(&self.directory);
    }
}

const EXTENSION: &str = "lock";

/// Sixteen hex digits, of which fifteen are random.
fn new_id() -> String {
    let mut id = Uuid::new_v4().simple().to_string();
    id.truncate(16);
    id
}

/// The owner whose file this is, if it is an owner's file.
fn owner_of(path: &Path) -> Option<&str> {
    let id = path.file_stem()?.to_str()?;
    let is_id = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_id && path.extension() == Some(OsStr::new(EXTENSION))).then_some(id)
}

/// The mode for files beside the database: the users that may read and write the database may do so here, and no
/// others.
#[cfg(unix)]
fn mode(database: &Path) -> io::Result<u32> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::metadata(database)?.permissions().mode() & 0o666)
}

#[cfg(not(unix))]
fn mode(_database: &Path) -> io::Result<u32> {
    Ok(0)
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    // A user that may read a file in the directory may enter it.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode | (mode & 0o444) >> 2);
    #[cfg(not(unix))]
    let _ = mode;
    match builder.create(path) {
        // The umask does not apply here: these files go with a file that already exists.
        #[cfg(unix)]
        Ok(()) => {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode | (mode & 0o444) >> 2);
            std::fs::set_permissions(path, mode)
        }
        // A link could lead anywhere, and the store removes files there.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match std::fs::symlink_metadata(path)?.is_dir() {
                true => Ok(()),
                false => Err(error),
            }
        }
        made => made,
    }
}

/// Releases all leases of an owner that died.
pub(super) fn release(
    tx: &mut WriteTransaction<'_, '_>,
    owner: &str,
    dead: &DeadOwner,
) -> Result<(), StoreError> {
    let leases = |sql| tx.rows(sql, params![dead.horizon, owner], |row| shown_text(row, 0));
    let instances = leases(
        "SELECT lock_token FROM instance_schedule WHERE due_at <= ?1 AND owner = ?2 AND lock_token IS NOT NULL",
    )?;
    let activities = leases(
        "SELECT lock_token FROM worker_queue WHERE due_at <= ?1 AND owner = ?2 AND lock_token IS NOT NULL",
    )?;
    let sessions = leases("SELECT session_id FROM sessions WHERE due_at <= ?1 AND owner = ?2")?;
    for token in &instances {
        unless_gone(turns::abandon(tx, token, None, !ran(dead, token)))?;
    }
    // Frees the sessions first, so that their activities are ready for any worker.
    for session in &sessions {
        sessions::free(tx, session)?;
    }
    for token in &activities {
        unless_gone(work::abandon(tx, token, None, !ran(dead, token)))?;
    }
    tracing::info!(target: TARGET, owner, instances = instances.len(), activities = activities.len(),
        sessions = sessions.len(), "released the leases of a process that died");
    Ok(())
}

/// A token that stands for no lease was damaged from outside; its row becomes free when its time is over.
fn unless_gone(abandoned: Result<(), StoreError>) -> Result<(), StoreError> {
    match abandoned {
        Ok(()) | Err(StoreError::Refused(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

fn ran(dead: &DeadOwner, token: &str) -> bool {
    lease_token::random_part(token).is_none_or(|mark| dead.ran(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_the_name_of_an_owner_are_looked_at() {
        let id = new_id();
        assert_eq!(owner_of(Path::new(&format!("/x/{id}.lock"))), Some(id.as_str()));
        for name in
            ["/x/0123456789abcdef", "/x/0123456789abcdef.new", "/x/notes.lock", "/x/0123456789abcdeg.lock"]
        {
            assert_eq!(owner_of(Path::new(name)), None, "{name}");
        }
    }
}

//! A consistent copy of the file, made while it is in use.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::SqliteProvider;
use super::readers::Readers;
use crate::providers::{ProviderError, refusal};

const OPERATION: &str = "backup";

impl SqliteProvider {
    /// Copies the store into a new file, and returns its size in bytes.
    ///
    /// The copy is the store as it was at one moment; meanwhile the application reads and writes on. It is compact, is on
    /// the disk when this returns, and appears under its name only then. It is readable by its owner only. Opened as a
    /// store, it goes on where it stands: leases of that moment run out.
    ///
    /// The log of the store cannot begin anew while it is copied, so it grows if much is written meanwhile.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use duroxide::providers::sqlite::SqliteProvider;
    ///
    /// let store = SqliteProvider::new("sqlite:orders.db", None).await?;
    /// let bytes = store.backup("/backup/orders-2026-11-17.db").await?;
    /// println!("{bytes} bytes are safe");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the target exists or cannot be written, the file is damaged, or the store is in memory.
    pub async fn backup(&self, target: impl AsRef<Path>) -> Result<u64, ProviderError> {
        let Some(readers) = self.readers.clone() else { return Err(refusal::not_supported(OPERATION)) };
        let target = target.as_ref().to_path_buf();
        let task = tokio::task::spawn_blocking(move || copy(&readers, &target));
        task.await.unwrap_or_else(|_| Err(ProviderError::permanent(OPERATION, "the copying thread is gone")))
    }
}

fn copy(readers: &Readers, target: &Path) -> Result<u64, ProviderError> {
    if target.exists() {
        return Err(ProviderError::permanent(OPERATION, format!("{} exists", target.display())));
    }
    let unfinished = Unfinished::create(target)?;
    let text = unfinished.path.to_str().ok_or_else(|| {
        ProviderError::permanent(OPERATION, format!("{} is not UTF-8", unfinished.path.display()))
    })?;
    let source =
        readers.open_apart().map_err(|error| ProviderError::retryable(OPERATION, error.to_string()))?;
    source.execute("VACUUM INTO ?1", [text]).map_err(|error| super::error::classify(OPERATION, &error))?;
    verify(&unfinished.path)?;
    let bytes = unfinished.publish(target).map_err(cannot_write(target))?;
    Ok(bytes)
}

/// Looks through the copy, so that a damaged file is not taken for a backup.
fn verify(copy: &Path) -> Result<(), ProviderError> {
    let check = || -> rusqlite::Result<String> {
        let copy = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
    };
    match check() {
        Ok(answer) if answer == "ok" => Ok(()),
        Ok(fault) => Err(ProviderError::permanent(OPERATION, format!("the copy is damaged: {fault}"))),
        Err(error) => Err(super::error::classify(OPERATION, &error)),
    }
}

/// A copy under another name; it is removed unless it becomes the backup.
struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// Makes an empty file for its owner's eyes beside the target; SQLite fills it.
    fn create(target: &Path) -> Result<Self, ProviderError> {
        let mut name = target.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".unfinished-{}", std::process::id()));
        let path = target.with_file_name(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&path).map_err(cannot_write(&path))?;
        Ok(Self { path })
    }

    /// Syncs the copy, which SQLite does not, and gives it its name unless another file has it.
    fn publish(self, target: &Path) -> io::Result<u64> {
        let file = File::open(&self.path)?;
        file.sync_all()?;
        let bytes = file.metadata()?.len();
        match fs::hard_link(&self.path, target) {
            Ok(()) => fs::remove_file(&self.path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // Some file systems have no links.
            Err(_) => fs::rename(&self.path, target)?,
        }
        sync_directory(target)?;
        Ok(bytes)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Gone already if it became the backup.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes the name durable. Only Unix lets a program sync a directory.
fn sync_directory(target: &Path) -> io::Result<()> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> ProviderError {
    let path = path.display().to_string();
    move |error| ProviderError::permanent(OPERATION, format!("cannot write {path}: {error}"))
}

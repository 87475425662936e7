//! The VFS: SQLite's default one, except that the [`Disk`] hears of every change and does every sync.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rusqlite::ffi;

use crate::disk::{CallFault, Disk, position};

/// The name by which SQLite knows the VFS: `file:PATH?vfs=powerloss`.
pub const VFS_NAME: &str = "powerloss";
const C_NAME: &CStr = c"powerloss";

/// SQLite's default VFS.
struct Default(*mut ffi::sqlite3_vfs);
// SAFETY: the pointer is to a VFS that is registered for the life of the process, and SQLite calls its methods from any
// thread.
unsafe impl Send for Default {}
// SAFETY: as above; the struct is only read.
unsafe impl Sync for Default {}

static DEFAULT: OnceLock<Default> = OnceLock::new();

/// What SQLite allocates for an open file: `szOsFile` bytes, of which the last are the default VFS's own.
#[repr(C)]
struct OpenFile {
    base: ffi::sqlite3_file,
    /// Made by `open`, freed by `close`; null if the disk does not watch the file.
    watched: *mut Watched,
    real: ffi::sqlite3_file,
}

/// A handle on a file that a disk watches.
struct Watched {
    disk: Arc<Disk>,
    path: PathBuf,
    /// How many failures of syncs this handle has reported.
    heard: u64,
}

/// Registers the VFS, once.
pub(crate) fn register() {
    DEFAULT.get_or_init(|| {
        // SAFETY: null asks for the default VFS, which there always is on the systems that have this test.
        let default = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
        assert!(!default.is_null(), "SQLite has a default VFS");
        // SAFETY: the pointer was just checked, and a registered VFS is not changed.
        let mut vfs = unsafe { *default };
        vfs.zName = C_NAME.as_ptr();
        vfs.pNext = std::ptr::null_mut();
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        let own = c_int::try_from(size_of::<OpenFile>()).unwrap_or(c_int::MAX);
        vfs.szOsFile += own;
        // SAFETY: the VFS lives for ever, for it is leaked, and its functions are those below.
        let registered = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 0) };
        assert_eq!(registered, ffi::SQLITE_OK, "SQLite takes the VFS");
        Default(default)
    });
}

fn default_vfs() -> *mut ffi::sqlite3_vfs {
    DEFAULT.get().map_or(std::ptr::null_mut(), |default| default.0)
}

/// # Safety
/// `file` must have been opened by this VFS.
unsafe fn real(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: by the contract, `file` is the start of an `OpenFile`.
    unsafe { &raw mut (*file.cast::<OpenFile>()).real }
}

/// # Safety
/// `file` must have been opened by this VFS, and SQLite must be in a method of it: it never is in two at a time.
unsafe fn watched<'a>(file: *mut ffi::sqlite3_file) -> Option<&'a mut Watched> {
    // SAFETY: by the contract; the pointer is null or was made by `open` and not yet freed.
    unsafe { (*file.cast::<OpenFile>()).watched.as_mut() }
}

/// Calls the same method of the default VFS.
macro_rules! forward {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: SQLite calls methods only on files that `open` has opened, and then the real file has its methods.
        unsafe {
            let real = real($file);
            match (*(*real).pMethods).$method {
                Some(method) => method(real $(, $argument)*),
                None => ffi::SQLITE_IOERR,
            }
        }
    }};
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let default = default_vfs();
    let opened = file.cast::<OpenFile>();
    // SAFETY: SQLite gives `szOsFile` bytes for the file, which is enough for ours and the default's part.
    let rc = unsafe {
        (*opened).base.pMethods = std::ptr::null();
        (*opened).watched = std::ptr::null_mut();
        match (*default).xOpen {
            Some(open) => open(default, name, &raw mut (*opened).real, flags, out_flags),
            None => ffi::SQLITE_CANTOPEN,
        }
    };
    if rc != ffi::SQLITE_OK {
        return rc;
    }
    let is_kept =
        flags & (ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
    // SAFETY: a name that is not null is a path that ends with a zero byte and lives as long as the file is open.
    let path = unsafe { (is_kept && !name.is_null()).then(|| path(name)) };
    let found = path.and_then(|path| Some((Disk::of(path)?, path)));
    let watched = found.map_or(std::ptr::null_mut(), |(disk, path)| {
        let heard = disk.open(path);
        Box::into_raw(Box::new(Watched { disk, path: path.to_path_buf(), heard }))
    });
    // SAFETY: as above; from here on SQLite calls the methods, and `close` in the end.
    unsafe {
        (*opened).watched = watched;
        (*opened).base.pMethods = &raw const METHODS;
    }
    ffi::SQLITE_OK
}

/// # Safety
/// `name` must point to text that ends with a zero byte and outlives `'a`.
unsafe fn path<'a>(name: *const c_char) -> &'a Path {
    // SAFETY: by the contract.
    let name = unsafe { CStr::from_ptr(name) };
    // The paths of tests are UTF-8, so no disk has another.
    Path::new(name.to_str().unwrap_or_default())
}

unsafe extern "C" fn delete(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    let default = default_vfs();
    // SAFETY: SQLite gives a path that ends with a zero byte; the default VFS is registered for ever.
    let (path, rc) = unsafe {
        let rc = match (*default).xDelete {
            Some(delete) => delete(default, name, 0),
            None => ffi::SQLITE_IOERR_DELETE,
        };
        (path(name), rc)
    };
    if let Some(disk) = Disk::of(path).filter(|_| rc == ffi::SQLITE_OK) {
        disk.unlink(path, sync_directory != 0);
    }
    rc
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let rc = forward!(file, xClose);
    // SAFETY: SQLite closes a file once and does not use it any more.
    unsafe {
        let closed = file.cast::<OpenFile>();
        let watched = std::mem::replace(&mut (*closed).watched, std::ptr::null_mut());
        if !watched.is_null() {
            drop(Box::from_raw(watched));
        }
    }
    rc
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite is in a method of a file that `open` opened.
    match unsafe { fault(file) } {
        Some(CallFault::IoError | CallFault::ShortWrite) => ffi::SQLITE_IOERR_READ,
        Some(CallFault::DiskFull) | None => forward!(file, xRead, to, length, offset),
    }
}

/// Counts a call to the disk of a file; returns how it fails, if it does.
///
/// # Safety
/// As for [`watched`].
unsafe fn fault(file: *mut ffi::sqlite3_file) -> Option<CallFault> {
    // SAFETY: by the contract.
    unsafe { watched(file) }?.disk.next_call()
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite is in a method of a file that `open` opened.
    let (length, failure) = match unsafe { fault(file) } {
        None => (length, None),
        Some(CallFault::ShortWrite) => (length / 2, Some(ffi::SQLITE_IOERR_WRITE)),
        Some(CallFault::IoError) => return ffi::SQLITE_IOERR_WRITE,
        Some(CallFault::DiskFull) => return ffi::SQLITE_FULL,
    };
    let rc = forward!(file, xWrite, from, length, offset);
    // SAFETY: SQLite is in a method of a file that `open` opened.
    let watched = unsafe { watched(file) };
    if let (Some(watched), ffi::SQLITE_OK) = (watched, rc) {
        // SAFETY: SQLite gives `length` bytes to write.
        let bytes =
            unsafe { std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(length).unwrap_or(0)) };
        let offset = position(u64::try_from(offset).unwrap_or(0));
        watched.disk.with_file(&watched.path, |file| file.write(offset, bytes));
    }
    failure.unwrap_or(rc)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: SQLite is in a method of a file that `open` opened.
    match unsafe { fault(file) } {
        Some(CallFault::IoError | CallFault::ShortWrite) => return ffi::SQLITE_IOERR_TRUNCATE,
        Some(CallFault::DiskFull) => return ffi::SQLITE_FULL,
        None => {}
    }
    let rc = forward!(file, xTruncate, length);
    // SAFETY: SQLite is in a method of a file that `open` opened.
    let watched = unsafe { watched(file) };
    if let (Some(watched), ffi::SQLITE_OK) = (watched, rc) {
        let length = position(u64::try_from(length).unwrap_or(0));
        watched.disk.with_file(&watched.path, |file| file.truncate(length));
    }
    rc
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite is in a method of a file that `open` opened.
    let Some(watched) = (unsafe { watched(file) }) else { return forward!(file, xSync, flags) };
    if let Some(CallFault::IoError | CallFault::ShortWrite) = watched.disk.next_call() {
        // The system reports it once, and takes the pages for clean from then on.
        watched.disk.fail_syncs(0..1);
    }
    // The real file is not synced: it only stands for the system's memory.
    match watched.disk.sync_handle(&watched.path, &mut watched.heard) {
        Ok(()) => ffi::SQLITE_OK,
        Err(_) => ffi::SQLITE_IOERR_FSYNC,
    }
}

unsafe extern "C" fn size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    forward!(file, xFileSize, size)
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    forward!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    forward!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, is_held: *mut c_int) -> c_int {
    forward!(file, xCheckReservedLock, is_held)
}

unsafe extern "C" fn control(file: *mut ffi::sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    // A size hint would make the file longer without telling the disk.
    if operation == ffi::SQLITE_FCNTL_SIZE_HINT {
        return ffi::SQLITE_OK;
    }
    forward!(file, xFileControl, operation, argument)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    forward!(file, xSectorSize)
}

unsafe extern "C" fn characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    forward!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn map_shared(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    at: *mut *mut c_void,
) -> c_int {
    forward!(file, xShmMap, region, size, extend, at)
}

unsafe extern "C" fn lock_shared(
    file: *mut ffi::sqlite3_file,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    forward!(file, xShmLock, first, count, flags)
}

unsafe extern "C" fn barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: as in `forward!`, for a method that answers nothing.
    unsafe {
        let real = real(file);
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

unsafe extern "C" fn unmap_shared(file: *mut ffi::sqlite3_file, is_deleted: c_int) -> c_int {
    forward!(file, xShmUnmap, is_deleted)
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(map_shared),
    xShmLock: Some(lock_shared),
    xShmBarrier: Some(barrier),
    xShmUnmap: Some(unmap_shared),
    xFetch: None,
    xUnfetch: None,
};

//! The write-ahead log as a file: measures its length, and writes it again in place.
//!
//! SQLite holds no lock on this file (it locks the database and the log's index), so opening and closing it here
//! disturbs no other connection.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::disk::{Disk, WriterFault};

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The last bit of the first word gives the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;
/// How many bytes to copy at once.
const COPY_BYTES: usize = 1 << 20;

/// SQLite draws a new one when it begins the log anew: frames that do not carry it are older.
pub(super) type Salt = [u8; 8];

/// The last commit that the log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogEnd {
    pub(super) salt: Salt,
    pub(super) frames: u64,
}

/// The log of a database.
pub(super) struct Log {
    path: PathBuf,
    disk: Disk,
    /// Opened when first needed, because SQLite makes the file. SQLite does not replace it while the database is open.
    file: Option<File>,
    /// The size of a frame in bytes, once known.
    frame_bytes: Option<u64>,
}

impl Log {
    /// Tells whether a test wants the writer to be wrong in this way.
    pub(super) fn has_fault(&self, fault: WriterFault) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.writer_fault() == Some(fault))
    }

    /// Finds the log of the database at `path`.
    pub(super) fn of(path: &Path, disk: Disk) -> io::Result<Self> {
        // SQLite follows links, too.
        let mut path = OsString::from(path.canonicalize()?);
        path.push("-wal");
        Ok(Self { path: path.into(), disk, file: None, frame_bytes: None })
    }

    /// How large its file is.
    pub(super) fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// Tells whether there is nothing in it, and never was since its file was made.
    pub(super) fn is_blank(&self) -> bool {
        std::fs::metadata(&self.path).map_or(true, |file| file.len() == 0)
    }

    /// Tells whether it has this many frames since SQLite last began it anew, and if so, which salt they carry.
    pub(super) fn reaches(&mut self, frames: u64) -> io::Result<Option<Salt>> {
        let Some(frame_bytes) = self.frame_bytes()? else { return Ok(None) };
        let file = self.file()?;
        let (mut frame, mut header) = (Salt::default(), Salt::default());
        let at = HEADER_BYTES as u64 + frames.saturating_sub(1) * frame_bytes;
        let are_there = read_at(file, at + 8, &mut frame)? && read_at(file, 16, &mut header)?;
        Ok((are_there && frame == header).then_some(header))
    }

    /// Finds the last commit in it; `None` if it holds none.
    pub(super) fn end(&mut self) -> io::Result<Option<LogEnd>> {
        let mut file = self.file()?;
        file.seek(SeekFrom::Start(0))?;
        let Some(mut frames) = Frames::begin(BufReader::with_capacity(COPY_BYTES, file))? else {
            return Ok(None);
        };
        let (mut read, mut last_commit) = (0, None);
        while let Some(frame) = frames.next()? {
            read += 1;
            if frame == Frame::Commit {
                last_commit = Some(LogEnd { salt: frames.salt, frames: read });
            }
        }
        Ok(last_commit)
    }

    /// Writes all committed frames again, in place, and syncs them: this makes pages dirty again that a failed sync
    /// left marked as clean. No other connection may write meanwhile; a reader finds the same bytes at any time.
    pub(super) fn write_again(&mut self) -> io::Result<()> {
        let (Some(end), Some(frame_bytes)) = (self.end()?, self.frame_bytes()?) else { return Ok(()) };
        let length = HEADER_BYTES as u64 + end.frames * frame_bytes;
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = 0;
        while at < length {
            let rest = usize::try_from(length - at).unwrap_or(COPY_BYTES);
            let piece = &mut buffer[..rest.min(COPY_BYTES)];
            if !read_at(self.file()?, at, piece)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.write_at(at, piece)?;
            at += piece.len() as u64;
        }
        match &self.disk {
            Some(disk) => disk.sync(&self.path),
            None => self.file()?.sync_all(),
        }
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(disk) = &self.disk {
            return disk.write(&self.path, offset, bytes);
        }
        let mut file = self.file()?;
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)
    }

    /// Returns the size of a frame in bytes; `None` if the log was never written.
    fn frame_bytes(&mut self) -> io::Result<Option<u64>> {
        if self.frame_bytes.is_none() {
            let mut header = [0; HEADER_BYTES];
            let is_there = read_at(self.file()?, 0, &mut header)?;
            self.frame_bytes = is_there.then(|| FRAME_HEADER_BYTES as u64 + u64::from(page_size(&header)));
        }
        Ok(self.frame_bytes)
    }

    fn file(&mut self) -> io::Result<&File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => Ok(none.insert(OpenOptions::new().read(true).write(true).open(&self.path)?)),
        }
    }
}

/// Fills the buffer; tells whether the file is long enough.
#[cfg(unix)]
fn read_at(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
    is_full(std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset))
}

/// Fills the buffer; tells whether the file is long enough.
#[cfg(not(unix))]
fn read_at(mut file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<bool> {
    file.seek(SeekFrom::Start(offset))?;
    is_full(file.read_exact(buffer))
}

fn is_full(read: io::Result<()>) -> io::Result<bool> {
    match read {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn page_size(header: &[u8; HEADER_BYTES]) -> u32 {
    word(header, 8)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    Page,
    /// The last page of a transaction.
    Commit,
}

/// The frames of a log up to the first that is not part of it. Each checksum covers all frames before it.
struct Frames<R> {
    reader: R,
    is_big_endian: bool,
    salt: Salt,
    sum: (u32, u32),
    frame: Vec<u8>,
}

impl<R: Read> Frames<R> {
    /// Reads the header; `None` if there is no valid one.
    fn begin(mut reader: R) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER_BYTES];
        if !is_full(reader.read_exact(&mut header))? {
            return Ok(None);
        }
        let (magic, page_size) = (word(&header, 0), page_size(&header));
        let is_big_endian = magic & 1 == 1;
        let sum = checksum(is_big_endian, (0, 0), &header[..24]);
        let is_valid = magic & !1 == MAGIC
            && page_size.is_power_of_two()
            && (512..=65_536).contains(&page_size)
            && sum == (word(&header, 24), word(&header, 28));
        let mut salt = Salt::default();
        salt.copy_from_slice(&header[16..24]);
        let frame = vec![0; FRAME_HEADER_BYTES + page_size as usize * usize::from(is_valid)];
        Ok(is_valid.then_some(Self { reader, is_big_endian, salt, sum, frame }))
    }

    fn next(&mut self) -> io::Result<Option<Frame>> {
        if !is_full(self.reader.read_exact(&mut self.frame))? {
            return Ok(None);
        }
        let (header, page) = self.frame.split_at(FRAME_HEADER_BYTES);
        let sum = checksum(self.is_big_endian, self.sum, &header[..8]);
        self.sum = checksum(self.is_big_endian, sum, page);
        let is_valid = header[8..16] == self.salt
            && word(header, 0) != 0
            && self.sum == (word(header, 16), word(header, 20));
        let frame = if word(header, 4) == 0 { Frame::Page } else { Frame::Commit };
        Ok(is_valid.then_some(frame))
    }
}

/// SQLite's checksum of the log, over pairs of words.
fn checksum(is_big_endian: bool, sum: (u32, u32), bytes: &[u8]) -> (u32, u32) {
    let number = |word: &[u8]| {
        let word = [word[0], word[1], word[2], word[3]];
        if is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    };
    bytes.chunks_exact(8).fold(sum, |(first, second), pair| {
        let first = first.wrapping_add(number(&pair[..4])).wrapping_add(second);
        (first, second.wrapping_add(number(&pair[4..])).wrapping_add(first))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests, too")]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// A database in write-ahead mode with a few commits, all of them still in the log.
    fn database() -> (tempfile::TempDir, Connection, Log) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (n);")
            .unwrap();
        let log = Log::of(&path, None).unwrap();
        (directory, connection, log)
    }

    fn frames_known_to_sqlite(connection: &Connection) -> u64 {
        let frames: i64 = connection.query_row("PRAGMA wal_checkpoint", [], |row| row.get(1)).unwrap();
        u64::try_from(frames).unwrap()
    }

    #[test]
    fn its_last_commit_is_the_one_that_sqlite_knows() {
        let (_directory, connection, mut log) = database();
        for n in 0..20 {
            connection.execute("INSERT INTO t VALUES (zeroblob(?1))", [n * 700]).unwrap();
        }
        let frames = log.end().unwrap().unwrap().frames;
        assert_eq!(frames, frames_known_to_sqlite(&connection));
        assert!(log.reaches(frames).unwrap().is_some());
        assert_eq!(log.reaches(frames + 1).unwrap(), None);
    }

    #[test]
    fn frames_of_a_log_that_was_begun_anew_do_not_count() {
        let (_directory, connection, mut log) = database();
        connection.execute("INSERT INTO t VALUES (zeroblob(50000))", []).unwrap();
        let before = log.end().unwrap().unwrap();
        frames_known_to_sqlite(&connection);
        connection.execute("INSERT INTO t VALUES (1)", []).unwrap();
        let after = log.end().unwrap().unwrap();
        assert_ne!(before.salt, after.salt);
        assert!(after.frames < before.frames);
        assert_eq!(log.reaches(before.frames).unwrap(), None, "they are from before");
    }

    #[test]
    fn it_ends_before_a_frame_that_was_damaged() {
        let (_directory, connection, mut log) = database();
        connection.execute("INSERT INTO t VALUES (1)", []).unwrap();
        let before = log.end().unwrap().unwrap();
        connection.execute("INSERT INTO t VALUES (zeroblob(9000))", []).unwrap();
        let end = std::fs::metadata(&log.path).unwrap().len();
        let mut file = OpenOptions::new().write(true).open(&log.path).unwrap();
        file.seek(SeekFrom::Start(end - 5_000)).unwrap();
        file.write_all(b"damaged").unwrap();
        assert_eq!(log.end().unwrap().unwrap(), before);
    }

    #[test]
    fn written_again_it_is_the_same() {
        let (_directory, connection, mut log) = database();
        connection.execute("INSERT INTO t VALUES (zeroblob(3000000))", []).unwrap();
        let before = std::fs::read(&log.path).unwrap();
        log.write_again().unwrap();
        assert!(std::fs::read(&log.path).unwrap() == before);
    }
}

//! One file: its content in memory, and its content on the disk.

use std::collections::BTreeSet;

use crate::disk::Random;

/// The unit that the system writes back.
const PAGE: usize = 4096;
/// The unit that a disk writes wholly or not at all.
const SECTOR: usize = 512;

/// A change that is not synced yet.
#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate(usize),
}

/// A file as a disk knows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    /// The content that every reader gets.
    memory: Vec<u8>,
    /// The content after a power cut.
    durable: Vec<u8>,
    /// Pages of `memory` that the next sync writes.
    dirty: BTreeSet<usize>,
    /// The changes since the last sync, for a power cut that loses only a part of them.
    unsynced: Vec<Change>,
    /// How many syncs have failed. Each handle reports a failure once.
    pub(crate) failures: u64,
    /// The directory no longer names the file, but does so again after a power cut.
    pub(crate) is_unlinked: bool,
    /// The file is new and not synced yet: SQLite syncs the directory along with it.
    pub(crate) is_new: bool,
}

impl File {
    /// A file that is opened for the first time: its content is older than the watch on the disk.
    pub(crate) fn found(content: Vec<u8>) -> Self {
        let is_new = content.is_empty();
        Self { durable: content.clone(), memory: content, is_new, ..Self::default() }
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let change = Change::Write { offset, bytes: bytes.to_vec() };
        apply(&mut self.memory, &change);
        self.dirty.extend(offset / PAGE..(offset + bytes.len()).div_ceil(PAGE));
        self.unsynced.push(change);
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        let change = Change::Truncate(length);
        apply(&mut self.memory, &change);
        self.dirty.retain(|page| page * PAGE < length);
        self.unsynced.push(change);
    }

    /// Writes all dirty pages.
    pub(crate) fn sync(&mut self) {
        self.durable.resize(self.memory.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            let bytes = page * PAGE..((page + 1) * PAGE).min(self.memory.len());
            self.durable[bytes.clone()].copy_from_slice(&self.memory[bytes]);
        }
        self.unsynced.clear();
    }

    /// Writes nothing, and marks all pages as clean.
    pub(crate) fn fail_to_sync(&mut self) {
        self.dirty.clear();
        self.unsynced.clear();
        self.failures += 1;
    }

    /// Resets the memory to the disk's content, like a system that drops pages that it could not write.
    pub(crate) fn drop_memory(&mut self) -> &[u8] {
        self.memory.clone_from(&self.durable);
        self.dirty.clear();
        self.unsynced.clear();
        &self.memory
    }

    pub(crate) fn durable(&self) -> Vec<u8> {
        self.durable.clone()
    }

    /// The content after a power cut if only the first unsynced changes have reached the disk.
    pub(crate) fn with_first_changes(&self, random: &mut Random) -> Vec<u8> {
        let mut content = self.durable.clone();
        let kept = random.below(self.unsynced.len() + 1);
        self.unsynced.iter().take(kept).for_each(|change| apply(&mut content, change));
        content
    }

    /// The content after a power cut if some sectors of some changes have reached the disk, in any order.
    pub(crate) fn with_torn_changes(&self, random: &mut Random) -> Vec<u8> {
        let mut content = self.durable.clone();
        for change in self.unsynced.iter().filter(|_| random.below(2) == 0).collect::<Vec<_>>() {
            match change {
                Change::Truncate(_) => apply(&mut content, change),
                Change::Write { offset, bytes } => {
                    for (sector, bytes) in sectors(*offset, bytes) {
                        if random.below(4) != 0 {
                            apply(&mut content, &Change::Write { offset: sector, bytes: bytes.to_vec() });
                        }
                    }
                }
            }
        }
        content
    }
}

/// Cuts a write at the boundaries of the disk's sectors.
fn sectors(offset: usize, bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let mut pieces = Vec::new();
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
        pieces.push((at, piece));
        (at, rest) = (at + piece.len(), tail);
    }
    pieces
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*offset..end].copy_from_slice(bytes);
        }
        Change::Truncate(length) => content.resize(*length, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_cut_where_sectors_begin() {
        let bytes = [7; 1_100];
        let pieces: Vec<_> = sectors(500, &bytes).into_iter().map(|(at, piece)| (at, piece.len())).collect();
        assert_eq!(pieces, [(500, 12), (512, 512), (1024, 512), (1536, 64)]);
    }

    #[test]
    fn after_a_failed_sync_only_what_is_written_again_reaches_the_disk() {
        let mut file = File::default();
        file.write(0, &[1; 2 * PAGE]);
        file.fail_to_sync();
        file.write(PAGE + 10, &[2; 10]);
        file.sync();
        assert_eq!(file.durable[..PAGE], [0; PAGE], "the first page was taken for clean");
        assert_eq!(
            file.durable[PAGE..PAGE + 10],
            [1; 10],
            "the second was written to again, and is written whole"
        );
        assert_eq!(file.durable[PAGE + 10..PAGE + 20], [2; 10]);
    }

    #[test]
    fn what_was_cut_off_comes_back_with_the_power_unless_it_was_synced() {
        let mut file = File::found(vec![1; 100]);
        file.truncate(10);
        assert_eq!(file.durable(), [1; 100]);
        file.sync();
        assert_eq!(file.durable(), [1; 10]);
    }
}

//! A database that is a list of what was committed, and knows how much of it is synced.

use std::cell::Cell;
use std::time::Duration;

use crate::interleave::sync::{Arc, Mutex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncLevel {
    Off,
    Normal,
    Full,
}

/// What is in the file.
#[derive(Default)]
pub struct Disk {
    written: Mutex<Vec<u64>>,
    synced: Mutex<usize>,
}

impl Disk {
    /// Writes what a transaction wrote; a synced commit also syncs everything before it.
    pub fn commit(&self, values: Vec<u64>, is_synced: bool) {
        let mut written = self.written.lock().unwrap();
        written.extend(values);
        if is_synced {
            *self.synced.lock().unwrap() = written.len();
        }
    }

    pub fn has(&self, value: u64) -> bool {
        self.written.lock().unwrap().contains(&value)
    }

    pub fn count(&self, value: u64) -> usize {
        self.written.lock().unwrap().iter().filter(|other| **other == value).count()
    }

    pub fn would_survive_a_power_cut(&self, value: u64) -> bool {
        let written = self.written.lock().unwrap();
        let synced = *self.synced.lock().unwrap();
        written[..synced].contains(&value)
    }
}

pub struct Connection {
    pub disk: Arc<Disk>,
    pub level: Cell<SyncLevel>,
}

impl Connection {
    pub fn open(disk: Arc<Disk>) -> Self {
        Self { disk, level: Cell::new(SyncLevel::Off) }
    }

    pub fn busy_timeout(&self, _: Duration) -> rusqlite::Result<()> {
        Ok(())
    }
}

pub fn set_sync_level(connection: &Connection, level: SyncLevel) -> rusqlite::Result<()> {
    connection.level.set(level);
    Ok(())
}

pub mod statements {
    use super::Connection;

    pub struct Statements<'s>(&'s Connection);

    impl<'s> Statements<'s> {
        pub fn new(connection: &'s Connection) -> Self {
            Self(connection)
        }

        pub fn connection(&self) -> &'s Connection {
            self.0
        }

        pub fn run<T>(
            &self,
            _: &str,
            run: impl FnOnce(&mut Statement) -> rusqlite::Result<T>,
        ) -> rusqlite::Result<T> {
            run(&mut Statement)
        }
    }

    /// A statement that changes nothing and finds 0.
    pub struct Statement;

    impl Statement {
        pub fn execute(&mut self, _: [u8; 0]) -> rusqlite::Result<usize> {
            Ok(0)
        }

        pub fn query_row<T>(
            &mut self,
            _: [u8; 0],
            read: impl FnOnce(&Row) -> rusqlite::Result<T>,
        ) -> rusqlite::Result<T> {
            read(&Row)
        }
    }

    pub struct Row;

    impl Row {
        pub fn get(&self, _: usize) -> rusqlite::Result<i64> {
            Ok(0)
        }
    }
}

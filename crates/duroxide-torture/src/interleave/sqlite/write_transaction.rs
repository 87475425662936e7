//! Stands in for a transaction that several jobs share.

use super::connection::SyncLevel;
use super::error::StoreError;
use super::shared::Shared;
use super::statements::Statements;

#[derive(Default)]
pub struct Effects {
    pub rows: u64,
    pub rows_changed: bool,
}

pub struct WriteTransaction<'c, 's> {
    statements: &'c Statements<'s>,
    values: Vec<u64>,
    is_spoiled: bool,
}

impl<'c, 's> WriteTransaction<'c, 's> {
    pub fn new(statements: &'c Statements<'s>, _: &'c Shared) -> Self {
        Self { statements, values: Vec::new(), is_spoiled: false }
    }

    pub fn write(&mut self, value: u64) {
        self.values.push(value);
    }

    pub(super) fn atomically<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        work(self)
    }

    pub fn spoil(&mut self, _: &rusqlite::Error) {
        self.is_spoiled = true;
    }

    pub fn is_spoiled(&self) -> bool {
        self.is_spoiled
    }

    pub fn failure(&self) -> Option<&rusqlite::Error> {
        None
    }

    pub fn commit(self, _: bool) -> (Effects, rusqlite::Result<()>) {
        let connection = self.statements.connection();
        let rows = self.values.len() as u64;
        connection.disk.commit(self.values, connection.level.get() == SyncLevel::Full);
        (Effects { rows, rows_changed: rows > 0 }, Ok(()))
    }
}

pub fn same_error(_: &rusqlite::Error) -> rusqlite::Error {
    rusqlite::Error::InvalidQuery
}

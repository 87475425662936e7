//! The writer's prepared statements.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use rusqlite::{Connection, PrepFlags, Statement};

use super::work_done;

/// Prepares each statement once and finds it again by the address of its text in the program: comparing two numbers is
/// cheaper than hashing a text, and the writer does it a dozen times for every step.
pub(super) struct Statements<'c> {
    connection: &'c Connection,
    // A running statement is not in here, so that a second use of the same text gets a statement of its own.
    idle: RefCell<HashMap<(usize, usize), Statement<'c>, BuildHasherDefault<AddressHasher>>>,
}

/// Spreads addresses; they are our own, so no attacker can choose them to collide.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, value: u64) {
        // An odd number with well mixed bits: the golden ratio.
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

impl<'c> Statements<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection, idle: RefCell::default() }
    }

    pub(super) fn connection(&self) -> &'c Connection {
        self.connection
    }

    /// Runs one of the writer's statements.
    pub(super) fn run<T>(
        &self,
        sql: &'static str,
        run: impl FnOnce(&mut Statement<'c>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let key = (sql.as_ptr() as usize, sql.len());
        let idle = self.idle.borrow_mut().remove(&key);
        let mut statement = match idle {
            Some(statement) => statement,
            None => self.connection.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT)?,
        };
        let result = run(&mut statement);
        work_done::note(&statement);
        // Payloads can be large; this frees them.
        statement.clear_bindings();
        self.idle.borrow_mut().insert(key, statement);
        result
    }
}

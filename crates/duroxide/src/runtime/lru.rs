//! A bounded map that forgets the entry inserted longest ago.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// At most `capacity` entries; the one inserted longest ago leaves first.
pub(crate) struct Lru<K, V> {
    entries: HashMap<K, (u64, V)>,
    by_age: BTreeMap<u64, K>,
    tick: u64,
    capacity: usize,
}

impl<K: Hash + Eq + Clone, V> Lru<K, V> {
    pub fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), by_age: BTreeMap::new(), tick: 0, capacity }
    }

    /// Adds or replaces an entry as the newest. Returns the entries that had to leave, for the caller to drop outside
    /// its lock.
    pub fn insert(&mut self, key: K, value: V) -> Vec<V> {
        let mut left: Vec<V> = self.remove(&key).into_iter().collect();
        if self.capacity == 0 {
            left.push(value);
            return left;
        }
        self.tick += 1;
        self.by_age.insert(self.tick, key.clone());
        self.entries.insert(key, (self.tick, value));
        while self.entries.len() > self.capacity
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            left.extend(self.entries.remove(&oldest).map(|(_, value)| value));
        }
        left
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (tick, value) = self.entries.remove(key)?;
        self.by_age.remove(&tick);
        Some(value)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entry_leaves_first_and_a_new_insert_counts_as_new() {
        let mut lru = Lru::new(2);
        assert!(lru.insert("a", 1).is_empty());
        assert!(lru.insert("b", 2).is_empty());
        assert_eq!(lru.insert("a", 3), [1]);
        assert_eq!(lru.insert("c", 4), [2]);
        assert_eq!((lru.get(&"a"), lru.get(&"b")), (Some(&3), None));
        assert_eq!((lru.remove(&"c"), lru.len()), (Some(4), 1));
    }

    #[test]
    fn a_capacity_of_nothing_holds_nothing() {
        let mut lru = Lru::new(0);
        assert_eq!(lru.insert("a", 1), [1]);
        assert_eq!(lru.len(), 0);
    }
}

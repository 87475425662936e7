//! Which suspended executions stay in memory: a cache with a budget in bytes.
//!
//! A cache that always lets the least recently used entry go collapses when a round visits more instances than fit: each
//! is gone just before its next turn. So this one compares. It knows how long instances usually wait between two turns,
//! and a newcomer takes the place only of residents that have waited for much longer than that. If there are none, the
//! newcomer itself is not kept, and of a round that is ten times too large a tenth is found.
//!
//! The usual wait is learned from every turn whose instance was seen before, whether it was found here or not. For those
//! that were not, the cache remembers when a sample of the departed was last here.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// A resident that has waited so many times longer than usual makes room for others.
const PATIENCE: u32 = 2;
/// One observation moves the usual wait by this part of the difference.
const LEARNING: u32 = 16;
/// Of so many instances one is remembered after it has left, and so many of them at most.
const SAMPLED: u64 = 8;
const REMEMBERED: usize = 4_096;

/// A bounded map from instances to what is kept of them.
pub(super) struct ResidentCache<V> {
    limits: CacheLimits,
    entries: HashMap<String, Entry<V>>,
    /// The instances by the order in which they were put in.
    by_age: BTreeMap<u64, String>,
    next_number: u64,
    bytes: usize,
    usual_wait: Option<Duration>,
    departed: Departed,
}

/// How much a cache holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheLimits {
    pub(super) entries: usize,
    pub(super) bytes: usize,
}

struct Entry<V> {
    number: u64,
    since: Duration,
    bytes: usize,
    value: V,
}

impl<V> ResidentCache<V> {
    pub(super) fn new(limits: CacheLimits) -> Self {
        Self {
            limits,
            entries: HashMap::new(),
            by_age: BTreeMap::new(),
            next_number: 0,
            bytes: 0,
            usual_wait: None,
            departed: Departed::default(),
        }
    }

    /// Takes an instance out for its next turn. If it is not here, notes that it was asked for.
    pub(super) fn take(&mut self, instance: &str, now: Duration) -> Option<V> {
        let taken = self.remove(instance);
        let since = match &taken {
            Some(entry) => Some(entry.since),
            None => self.departed.last_seen(instance),
        };
        if let Some(since) = since {
            self.learn(now.saturating_sub(since));
        }
        taken.map(|entry| entry.value)
    }

    /// Tells whether an instance is here.
    pub(super) fn has(&self, instance: &str) -> bool {
        self.entries.contains_key(instance)
    }

    /// Looks at an instance.
    pub(super) fn get(&self, instance: &str) -> Option<&V> {
        self.entries.get(instance).map(|entry| &entry.value)
    }

    /// Looks at an instance, to change it.
    pub(super) fn get_mut(&mut self, instance: &str) -> Option<&mut V> {
        self.entries.get_mut(instance).map(|entry| &mut entry.value)
    }

    /// Takes an instance out if it is here and wanted. If not, leaves no trace.
    pub(super) fn take_if(
        &mut self,
        instance: &str,
        now: Duration,
        is_wanted: impl Fn(&V) -> bool,
    ) -> Option<V> {
        match self.entries.get(instance) {
            Some(entry) if is_wanted(&entry.value) => self.take(instance, now),
            _ => None,
        }
    }

    /// Keeps an instance if there is room for it. Returns what it does not keep, for the caller to drop outside its
    /// lock.
    pub(super) fn keep(&mut self, instance: String, value: V, bytes: usize, now: Duration) -> Vec<V> {
        let mut left: Vec<V> = self.remove(&instance).map(|entry| entry.value).into_iter().collect();
        let Some(leaving) = self.victims(bytes, now) else {
            self.departed.note(&instance, now);
            left.push(value);
            return left;
        };
        for victim in leaving {
            if let Some(entry) = self.remove(&victim) {
                self.departed.note(&victim, entry.since);
                left.push(entry.value);
            }
        }
        let number = self.next_number;
        self.next_number += 1;
        self.by_age.insert(number, instance.clone());
        self.entries.insert(instance, Entry { number, since: now, bytes, value });
        self.bytes += bytes;
        left
    }

    /// Lets go of everything, and keeps nothing any more.
    pub(super) fn close(&mut self) -> Vec<V> {
        self.limits = CacheLimits { entries: 0, bytes: 0 };
        self.by_age.clear();
        self.bytes = 0;
        self.entries.drain().map(|(_, entry)| entry.value).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn remove(&mut self, instance: &str) -> Option<Entry<V>> {
        let entry = self.entries.remove(instance)?;
        self.by_age.remove(&entry.number);
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Those that make room for a newcomer of this size; `None` if it should not be kept.
    fn victims(&self, bytes: usize, now: Duration) -> Option<Vec<String>> {
        if self.limits.entries == 0 || bytes > self.limits.bytes {
            return None;
        }
        let (mut victims, mut freed) = (Vec::new(), 0);
        let mut oldest = self.by_age.values();
        while self.entries.len() - victims.len() >= self.limits.entries
            || self.bytes - freed + bytes > self.limits.bytes
        {
            let instance = oldest.next()?;
            let entry = self.entries.get(instance)?;
            if !self.has_waited_long(now.saturating_sub(entry.since)) {
                return None;
            }
            freed += entry.bytes;
            victims.push(instance.clone());
        }
        Some(victims)
    }

    /// Tells whether an instance has waited so long that a newcomer may take its place. While the cache has seen no wait end,
    /// any wait is long.
    fn has_waited_long(&self, wait: Duration) -> bool {
        self.usual_wait.is_none_or(|usual| wait > usual.saturating_mul(PATIENCE))
    }

    fn learn(&mut self, wait: Duration) {
        self.usual_wait = Some(match self.usual_wait {
            None => wait,
            Some(usual) => usual - usual / LEARNING + wait / LEARNING,
        });
    }
}

/// When a sample of the instances that are not kept were last here.
#[derive(Default)]
struct Departed {
    last_seen: HashMap<u64, Duration>,
    /// In the order in which they left.
    order: VecDeque<u64>,
}

impl Departed {
    fn note(&mut self, instance: &str, at: Duration) {
        let Some(key) = sample(instance) else { return };
        if self.last_seen.insert(key, at).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED
            && let Some(first) = self.order.pop_front()
        {
            self.last_seen.remove(&first);
        }
    }

    fn last_seen(&self, instance: &str) -> Option<Duration> {
        self.last_seen.get(&sample(instance)?).copied()
    }
}

fn sample(instance: &str) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    instance.hash(&mut hasher);
    let key = hasher.finish();
    key.is_multiple_of(SAMPLED).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = usize::MAX;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Takes a turn of each instance, one a millisecond; returns how many were found.
    fn round(cache: &mut ResidentCache<()>, instances: usize, now: &mut u64) -> usize {
        let mut found = 0;
        for number in 0..instances {
            *now += 1;
            let name = format!("i{number}");
            found += usize::from(cache.take(&name, at(*now)).is_some());
            cache.keep(name, (), 10, at(*now));
        }
        found
    }

    #[test]
    fn a_round_that_is_too_large_finds_as_many_as_fit() {
        for (fit, instances) in [(100, 150), (100, 1_000), (1_000, 10_000)] {
            let mut cache = ResidentCache::new(CacheLimits { entries: MANY, bytes: 10 * fit });
            let mut now = 0;
            for _ in 0..3 {
                round(&mut cache, instances, &mut now);
            }
            let found = round(&mut cache, instances, &mut now);
            assert!(found > fit * 9 / 10 && found <= fit, "{found} of {instances}, room for {fit}");
        }
    }

    #[test]
    fn a_round_that_fits_finds_all() {
        let mut cache = ResidentCache::new(CacheLimits { entries: MANY, bytes: 10_000 });
        let mut now = 0;
        round(&mut cache, 1_000, &mut now);
        assert_eq!(round(&mut cache, 1_000, &mut now), 1_000);
    }

    #[test]
    fn those_that_sleep_make_room_for_those_that_are_awake() {
        let mut cache = ResidentCache::new(CacheLimits { entries: MANY, bytes: 1_000 });
        for number in 0..100 {
            cache.keep(format!("sleeper {number}"), (), 10, at(0));
        }
        let mut now = 1_000;
        for _ in 0..5 {
            round(&mut cache, 50, &mut now);
        }
        assert_eq!(round(&mut cache, 50, &mut now), 50);
    }

    #[test]
    fn neither_limit_is_exceeded_and_what_alone_is_too_large_is_not_kept() {
        let mut cache = ResidentCache::new(CacheLimits { entries: 3, bytes: 100 });
        let kept =
            |cache: &mut ResidentCache<u8>, name: &str, bytes| cache.keep(name.into(), 0, bytes, at(0)).len();
        assert_eq!(kept(&mut cache, "too large", 101), 1);
        assert_eq!([1, 2, 3].map(|n| kept(&mut cache, &n.to_string(), 10)), [0, 0, 0]);
        assert_eq!(kept(&mut cache, "fourth", 10), 1);
        assert_eq!((cache.len(), cache.bytes), (3, 30));
        assert_eq!(kept(&mut cache, "large", 95), 3);
        assert_eq!((cache.len(), cache.bytes), (1, 95));
        assert_eq!(cache.close().len(), 1);
        assert_eq!(kept(&mut cache, "after the end", 1), 1);
    }

    #[test]
    fn none_is_kept_if_none_may_be() {
        let mut cache = ResidentCache::new(CacheLimits { entries: 0, bytes: 100 });
        assert_eq!(cache.keep("a".into(), 1, 1, at(0)), [1]);
        assert_eq!(cache.take("a", at(1)), None);
    }
}

//! The purposes of sessions, the settings that each needs, and the two ways to make them.
//!
//! The store never makes settings with SET: a pooler may give the session to another client with them. It sends them
//! with the request for a new connection, which a pooler that shares sessions refuses or ignores; or it makes them for
//! one transaction, and they end with it.

use std::time::Duration;

use duroxide::providers::StoreLimits;

use crate::address::quoted;
use crate::proof::SECRET;

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Commits turns: when the server answers, they are on its disk.
    Commits,
    /// Commits messages and results, which become durable afterwards.
    Messages,
    /// Deletes and prunes, which may take long.
    Removals,
    /// Takes leases and gives them back, which need not survive a crash of the server.
    Leases,
    /// Renews leases, and holds the lock that tells others that this process lives.
    Renewals,
    /// Makes short reads, tells other processes of this one's writes and hears of theirs.
    Reads,
    /// Makes reads that may take long.
    Listings,
    /// Creates and checks the schema, before there is one.
    Setup,
}

impl Purpose {
    /// Returns the name that operators see in `pg_stat_activity` and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Commits => "commits",
            Self::Messages => "messages",
            Self::Removals => "removals",
            Self::Leases => "leases",
            Self::Renewals => "renewals",
            Self::Reads => "reads",
            Self::Listings => "listings",
            Self::Setup => "setup",
        }
    }

    /// Returns the name of a connection; `given` is what the URL calls this application.
    pub(crate) fn application_name(self, given: Option<&str>) -> String {
        match given {
            Some(given) => format!("{given} ({})", self.name()),
            None => format!("duroxide {}", self.name()),
        }
    }
}

/// How the store reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The session is ours from its beginning to its end.
    Direct,
    /// Other clients may use the session between two of our transactions.
    Pooled,
}

/// A statement waits so long for a lock, and then the store tries it again. Much shorter than a lease: while a turn's
/// commit waits, it holds the row that the renewal of that turn needs.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// A server that waits so long for the rest of a transaction gives it up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The settings of a session.
pub(crate) struct Settings(Vec<(&'static str, String)>);

impl Settings {
    /// Makes the settings of a purpose. `synced` is the `synchronous_commit` of commits that wait for the disk.
    pub(crate) fn new(purpose: Purpose, way: Way, schema: &str, limits: &StoreLimits, synced: &str) -> Self {
        let mut all = vec![("client_min_messages", "warning".to_string())];
        if purpose == Purpose::Setup {
            return Self(all);
        }
        all.extend([
            // No object of another role, in a temporary schema for instance, takes the place of the store's.
            ("search_path", format!("{}, pg_temp", quoted(schema))),
            ("lock_timeout", LOCK_TIMEOUT.as_millis().to_string()),
            ("idle_in_transaction_session_timeout", IDLE_TIMEOUT.as_millis().to_string()),
            ("jit", "off".into()),
            ("standard_conforming_strings", "on".into()),
        ]);
        let commit = match purpose {
            Purpose::Commits | Purpose::Removals => synced,
            // Only the end of a session of our own shows that the server has crashed and may have lost something.
            Purpose::Messages if way == Way::Pooled => synced,
            Purpose::Messages
            | Purpose::Leases
            | Purpose::Renewals
            | Purpose::Reads
            | Purpose::Listings
            | Purpose::Setup => "off",
        };
        all.push(("synchronous_commit", commit.into()));
        if purpose == Purpose::Renewals && way == Way::Direct {
            // Its session holds the lock that tells others that this process lives. If the machine is gone, the server
            // notices it within a quarter of a minute.
            let probes = [
                ("tcp_keepalives_idle", "5"),
                ("tcp_keepalives_interval", "3"),
                ("tcp_keepalives_count", "3"),
            ];
            all.extend(probes.map(|(name, value)| (name, value.into())));
        }
        if purpose != Purpose::Reads {
            // All statements are index probes, whatever the planner thinks of tables that the server has not analysed yet.
            all.extend(
                ["enable_seqscan", "enable_hashjoin", "enable_mergejoin"].map(|name| (name, "off".into())),
            );
        }
        if purpose == Purpose::Listings {
            // A page takes the first rows of many short ranges, in their order; the planner would rather read all of them and
            // sort, with the help of other processes.
            all.push(("enable_bitmapscan", "off".into()));
            all.push(("max_parallel_workers_per_gather", "0".into()));
        }
        if !matches!(purpose, Purpose::Reads | Purpose::Listings) {
            // One plan for each is enough.
            all.push(("plan_cache_mode", "force_generic_plan".into()));
            let StoreLimits { max_turn_messages, max_turn_bytes, .. } = limits;
            let messages = i32::try_from((*max_turn_messages).max(1)).unwrap_or(i32::MAX - 1);
            all.push(("duroxide.max_turn_messages", messages.to_string()));
            let bytes = i64::try_from(*max_turn_bytes).unwrap_or(i64::MAX);
            all.push(("duroxide.max_turn_bytes", bytes.to_string()));
        }
        Self(all)
    }

    /// Returns the settings as options of a new connection, after those that the URL gives.
    pub(crate) fn as_options(&self, given: Option<&str>, secret: &str) -> String {
        let own = [("default_transaction_isolation", "read committed"), (SECRET, secret)];
        let settings = self.0.iter().map(|(name, value)| (*name, value.as_str())).chain(own);
        let own = settings.map(|(name, value)| format!("-c {name}={}", escaped(value)));
        given.map(str::to_string).into_iter().chain(own).collect::<Vec<_>>().join(" ")
    }

    /// Returns the settings as statements that begin a transaction. The secret ends with the time when the server
    /// started, so a transaction on another server is not ours.
    pub(crate) fn as_beginning(&self, secret: &str) -> String {
        let settings =
            self.0.iter().map(|(name, value)| format!("set_config('{name}', {}, true)", literal(value)));
        let settings: Vec<String> = settings.collect();
        format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT {}, set_config('{SECRET}', '{secret} ' || {STARTED}, true)",
            settings.join(", ")
        )
    }
}

/// When the server started, as text: no two servers at one address started at the same time.
pub(crate) const STARTED: &str = "extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text";

/// Returns a value as it stands in the options of a new connection, which blanks separate.
fn escaped(value: &str) -> String {
    let escape = |letter: char| match letter == '\\' || letter.is_whitespace() {
        true => vec!['\\', letter],
        false => vec![letter],
    };
    value.chars().flat_map(escape).collect()
}

fn literal(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(purpose: Purpose, way: Way, synced: &str) -> Settings {
        Settings::new(purpose, way, "tenant_1", &StoreLimits::default(), synced)
    }

    #[test]
    fn options_follow_those_of_the_url_and_may_hold_blanks() {
        let options = settings(Purpose::Reads, Way::Direct, "on").as_options(Some("-c geqo=off"), "abc");
        assert!(options.starts_with("-c geqo=off -c client_min_messages=warning "), "{options}");
        assert!(options.contains(" -c search_path=\"tenant_1\",\\ pg_temp "), "{options}");
        assert!(options.contains(" -c default_transaction_isolation=read\\ committed "), "{options}");
        assert!(options.ends_with(" -c duroxide.session=abc"), "{options}");
        assert_eq!(escaped("a b\\c\td"), "a\\ b\\\\c\\\td");
    }

    #[test]
    fn data_waits_for_the_disk_and_leases_do_not() {
        let commit = |purpose, way| {
            let settings = settings(purpose, way, "remote_apply").0;
            settings.into_iter().find(|(name, _)| *name == "synchronous_commit").unwrap().1
        };
        for way in [Way::Direct, Way::Pooled] {
            for synced in [Purpose::Commits, Purpose::Removals] {
                assert_eq!(commit(synced, way), "remote_apply");
            }
            assert_eq!(commit(Purpose::Leases, way), "off");
        }
        assert_eq!(commit(Purpose::Messages, Way::Direct), "off");
        assert_eq!(commit(Purpose::Messages, Way::Pooled), "remote_apply");
    }

    #[test]
    fn a_connection_says_what_it_is_for() {
        assert_eq!(Purpose::Commits.application_name(None), "duroxide commits");
        assert_eq!(Purpose::Reads.application_name(Some("shop")), "shop (reads)");
    }
}

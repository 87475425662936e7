//! The address of the database and the protection of the connection, as a URL gives them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, TargetSessionAttrs};

use crate::PgError;
use crate::session::ANSWER_TIMEOUT;

/// How a connection is encrypted, and what the server has to prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Not encrypted.
    Plain,
    /// Encrypted if the server can; it proves nothing.
    Preferred,
    /// Encrypted; the server proves nothing.
    Unverified,
    /// Encrypted, and a trusted authority must have signed the server's certificate, whatever name it bears.
    VerifiedAuthority,
    /// Encrypted, and a trusted authority must have signed the server's certificate, which must bear the server's name.
    Verified,
}

/// Files with which the store proves to the server who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A database to connect to.
#[derive(Clone)]
pub(crate) struct DatabaseAddress {
    /// How to connect to each of its hosts.
    hosts: Vec<Config>,
    /// The place of the host that the store reached last.
    reached: Arc<AtomicUsize>,
    pub(crate) protection: Protection,
    /// A file with the certificates to trust, instead of those of the operating system.
    pub(crate) root_certificates: Option<String>,
    pub(crate) client_certificate: Option<ClientCertificate>,
}

const FORM: &str = "write it as postgres://user:password@host:port/database";
/// How long making one connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl DatabaseAddress {
    /// Reads a URL: the options for certificates and several hosts itself, the rest by the driver.
    pub(crate) fn parse(url: &str) -> Result<Self, PgError> {
        let invalid = |reason: &str| PgError::InvalidUrl { reason: reason.to_string() };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(invalid(FORM));
        }
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut root_certificates, mut rest) = (None, None, Vec::new());
        let (mut certificate, mut key, mut session) = (None, None, None);
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.to_string()),
                Some(("sslrootcert", value)) => root_certificates = Some(decoded(value)),
                Some(("sslcert", value)) => certificate = Some(decoded(value)),
                Some(("sslkey", value)) => key = Some(decoded(value)),
                Some(("target_session_attrs", value)) => session = Some(value.to_string()),
                _ => rest.push(option),
            }
        }
        let url = if rest.is_empty() { address.to_string() } else { format!("{address}?{}", rest.join("&")) };
        // The driver's own message may repeat parts of the URL.
        let mut config: Config = url.parse().map_err(|_| invalid(&format!("it cannot be parsed; {FORM}")))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid(&format!("it names no host; {FORM}")));
        }
        let protection = match mode.as_deref() {
            None if is_local(&config) => Protection::Plain,
            None | Some("verify-full") => Protection::Verified,
            Some("verify-ca") => Protection::VerifiedAuthority,
            Some("disable") => Protection::Plain,
            Some("allow" | "prefer") => Protection::Preferred,
            // A URL that says whom to trust asks to verify that; PostgreSQL's own tools do the same.
            Some("require") if root_certificates.is_some() => Protection::Verified,
            Some("require") => Protection::Unverified,
            Some(_) => {
                return Err(invalid("sslmode must be disable, prefer, require, verify-ca or verify-full"));
            }
        };
        // PostgreSQL does not encrypt a Unix socket, and the bytes do not leave this machine.
        let protection = if is_unix_only(&config) { Protection::Plain } else { protection };
        config.ssl_mode(match protection {
            Protection::Plain => SslMode::Disable,
            Protection::Preferred => SslMode::Prefer,
            Protection::Unverified | Protection::VerifiedAuthority | Protection::Verified => SslMode::Require,
        });
        let client_certificate = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            _ => return Err(invalid("sslcert and sslkey belong together")),
        };
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        config.target_session_attrs(match session.as_deref() {
            // Of several servers only one accepts writes.
            None if count > 1 => TargetSessionAttrs::ReadWrite,
            None | Some("any") => TargetSessionAttrs::Any,
            Some("read-write" | "primary") => TargetSessionAttrs::ReadWrite,
            Some(_) => return Err(invalid("target_session_attrs must be any, read-write or primary")),
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        // So the store notices in about a minute that the server's machine has gone away without a word.
        config.keepalives_idle(Duration::from_secs(30));
        config.tcp_user_timeout(Duration::from_secs(30));
        let hosts = (0..count).map(|place| only(&config, place)).collect::<Option<_>>();
        let hosts = hosts
            .ok_or_else(|| invalid("it has as many hosts, addresses and ports as each other, or one port"))?;
        let reached = Arc::new(first_to_try(&config, count).into());
        Ok(Self { hosts, reached, protection, root_certificates, client_certificate })
    }

    /// Returns how long to wait for a host. One that accepts and then says nothing must not hold up the next.
    pub(crate) fn patience(&self) -> Duration {
        let given = self.hosts.first().and_then(Config::get_connect_timeout).copied();
        match self.hosts.len() {
            0 | 1 => ANSWER_TIMEOUT,
            several => {
                given.unwrap_or(CONNECT_TIMEOUT).min(ANSWER_TIMEOUT / u32::try_from(several).unwrap_or(1))
            }
        }
    }

    /// Returns the hosts and their places, in the order in which to try them: first the one that the store reached
    /// last.
    pub(crate) fn hosts_in_turn(&self) -> impl Iterator<Item = (usize, &Config)> {
        let first = self.reached.load(Ordering::Relaxed);
        self.hosts.iter().enumerate().cycle().skip(first).take(self.hosts.len())
    }

    /// Takes note of the host that the store has reached.
    pub(crate) fn reached(&self, place: usize) {
        self.reached.store(place, Ordering::Relaxed);
    }
}

/// Reads a URL without connecting, and returns how many hosts it names.
#[cfg(feature = "test-hooks")]
#[doc(hidden)]
pub fn hosts_of(url: &str) -> Result<usize, PgError> {
    DatabaseAddress::parse(url).map(|address| address.hosts.len())
}

/// Returns which of several hosts to try first: the first one, or any if the URL says so.
fn first_to_try(config: &Config, count: usize) -> usize {
    if config.get_load_balance_hosts() != LoadBalanceHosts::Random {
        return 0;
    }
    usize::try_from(uuid::Uuid::new_v4().as_u128() % count.max(1) as u128).unwrap_or(0)
}

/// Returns the same configuration with only one of its hosts; `None` if hosts, addresses and ports do not go together.
fn only(config: &Config, place: usize) -> Option<Config> {
    let mut one = Config::new();
    let goes_with = |count: usize| count == 0 || count > place;
    if !goes_with(config.get_hosts().len()) || !goes_with(config.get_hostaddrs().len()) {
        return None;
    }
    match config.get_hosts().get(place) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        #[cfg(unix)]
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    config.get_hostaddrs().get(place).map(|address| one.hostaddr(*address));
    match config.get_ports() {
        [] => {}
        [port] => drop(one.port(*port)),
        ports => drop(one.port(*ports.get(place)?)),
    }
    config.get_user().map(|user| one.user(user));
    config.get_password().map(|password| one.password(password));
    config.get_dbname().map(|name| one.dbname(name));
    config.get_options().map(|options| one.options(options));
    config.get_application_name().map(|name| one.application_name(name));
    config.get_connect_timeout().map(|timeout| one.connect_timeout(*timeout));
    config.get_tcp_user_timeout().map(|timeout| one.tcp_user_timeout(*timeout));
    config.get_keepalives_interval().map(|interval| one.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| one.keepalives_retries(retries));
    one.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    Some(one)
}

/// Tells whether the connection stays on this machine.
fn is_local(config: &Config) -> bool {
    let is_local_host = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    config.get_hosts().iter().all(is_local_host)
        && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback)
}

fn is_unix_only(config: &Config) -> bool {
    #[cfg(unix)]
    return !config.get_hosts().is_empty()
        && config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    #[cfg(not(unix))]
    return false;
}

fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits
            .filter(|_| first == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Checks the name of a schema: a plain identifier, so that it looks the same in every tool.
pub(crate) fn check_schema(name: &str) -> Result<(), PgError> {
    let refuse = |reason| Err(PgError::InvalidSchema { name: name.chars().take(80).collect(), reason });
    let mut letters = name.chars();
    match letters.next() {
        None => return refuse("it is empty"),
        Some(first) if first.is_ascii_alphabetic() || first == '_' => {}
        Some(_) => return refuse("it must begin with a letter or an underscore"),
    }
    if !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
        return refuse("it may hold letters, digits and underscores only");
    }
    if name.len() > 63 {
        return refuse("PostgreSQL takes at most 63 letters");
    }
    if name.starts_with("pg_") || name == "information_schema" {
        return refuse("it is reserved by PostgreSQL");
    }
    Ok(())
}

/// Returns a checked name as it stands in SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protection(url: &str) -> Protection {
        DatabaseAddress::parse(url).unwrap().protection
    }

    #[test]
    fn only_what_leaves_the_machine_is_verified_by_default() {
        assert_eq!(protection("postgres://u:p@db.example.com/d"), Protection::Verified);
        assert_eq!(protection("postgres://u@localhost:5432/d"), Protection::Plain);
        assert_eq!(protection("postgresql://u@127.0.0.1/d"), Protection::Plain);
        assert_eq!(protection("postgres://u@%2Ftmp%2Fpg/d"), Protection::Plain);
        assert_eq!(protection("postgres:///d?host=/tmp/pg&user=u"), Protection::Plain);
        assert_eq!(protection("postgres://u@localhost,db.example.com/d"), Protection::Verified);
    }

    #[test]
    fn sslmode_is_what_it_says() {
        for (mode, expected) in [
            ("disable", Protection::Plain),
            ("prefer", Protection::Preferred),
            ("require", Protection::Unverified),
            ("verify-ca", Protection::VerifiedAuthority),
            ("verify-full", Protection::Verified),
        ] {
            assert_eq!(protection(&format!("postgres://u@db.example.com/d?sslmode={mode}")), expected);
        }
        let target =
            DatabaseAddress::parse("postgres://u@h/d?sslrootcert=%2Fetc%2Fca.pem&application_name=x")
                .unwrap();
        assert_eq!(target.root_certificates.as_deref(), Some("/etc/ca.pem"));
    }

    #[test]
    fn what_is_no_escape_stays_as_it_is() {
        for (text, path) in [
            ("100%.pem", "100%.pem"),
            ("%+5", "%+5"),
            ("a%2", "a%2"),
            ("%", "%"),
            ("%%41", "%A"),
            ("%2541", "%41"),
        ] {
            assert_eq!(decoded(text), path);
        }
    }

    #[test]
    fn of_several_hosts_each_is_tried_by_itself_and_one_that_can_be_written_to_is_wanted() {
        let parse = |url: &str| DatabaseAddress::parse(url).ok();
        let several =
            parse("postgres://u:p@one:1,two:2/d?connect_timeout=3&application_name=x").unwrap().hosts;
        for (config, (host, port)) in several.iter().zip([("one", 1), ("two", 2)]) {
            assert_eq!(config.get_hosts(), [Host::Tcp(host.into())]);
            assert_eq!((config.get_ports(), config.get_user()), (&[port][..], Some("u")));
            assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(3)));
            assert_eq!(config.get_application_name(), Some("x"));
            assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        }
        assert_eq!(several.len(), 2);
        for (options, wanted) in [
            ("", TargetSessionAttrs::Any),
            ("?target_session_attrs=any", TargetSessionAttrs::Any),
            ("?target_session_attrs=read-write", TargetSessionAttrs::ReadWrite),
            ("?target_session_attrs=primary", TargetSessionAttrs::ReadWrite),
        ] {
            let one = parse(&format!("postgres://u@one/d{options}")).unwrap().hosts;
            assert_eq!((one.len(), one[0].get_target_session_attrs()), (1, wanted), "{options}");
        }
        let one_port = parse("postgres://u@one,two/d?hostaddr=10.0.0.1,10.0.0.2").unwrap().hosts;
        assert_eq!(one_port[1].get_hostaddrs()[0].to_string(), "10.0.0.2");
        for refused in ["?target_session_attrs=read-only", "?hostaddr=10.0.0.1,10.0.0.2", "?sslcert=x"] {
            assert!(parse(&format!("postgres://u@one/d{refused}")).is_none(), "{refused}");
        }
    }

    #[test]
    fn who_names_certificates_wants_them_checked() {
        assert_eq!(
            protection("postgres://u@db.example.com/d?sslmode=require&sslrootcert=ca.pem"),
            Protection::Verified
        );
        assert_eq!(protection("postgres://u@%2Ftmp%2Fpg/d?sslmode=verify-full"), Protection::Plain);
        assert_eq!(protection("postgres://u@db.example.com/d?hostaddr=127.0.0.1"), Protection::Verified);
    }

    #[test]
    fn a_url_that_is_refused_is_not_repeated() {
        for url in ["mysql://u:secret@h/d", "postgres://u:secret@h:port/d"] {
            let Err(error) = DatabaseAddress::parse(url) else { panic!("{url} was not refused") };
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_schema_is_a_plain_identifier() {
        for good in ["public", "tenant_1", "_x", "Tenant"] {
            check_schema(good).unwrap();
        }
        for bad in ["", "1a", "a b", "a;drop", "a\"b", "pg_x", "ä", &"x".repeat(64)] {
            assert!(check_schema(bad).is_err(), "{bad}");
        }
    }
}

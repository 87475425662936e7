//! Where the database is, and how the way there is protected: what a URL says.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::PgError;

/// How a connection is encrypted, and what the server has to prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Not encrypted.
    Plain,
    /// Encrypted if the server can; it proves nothing.
    Preferred,
    /// Encrypted; the server proves nothing.
    Unverified,
    /// Encrypted, and the server's certificate must be trusted and bear its name.
    Verified,
}

/// A database to connect to.
#[derive(Clone)]
pub(crate) struct DatabaseAddress {
    pub(crate) config: Config,
    pub(crate) protection: Protection,
    /// A file with the certificates to trust, instead of those of the operating system.
    pub(crate) root_certificates: Option<String>,
}

const FORM: &str = "write it as postgres://user:password@host:port/database";
/// How long making one connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl DatabaseAddress {
    /// Reads a URL. `sslmode` and `sslrootcert` are ours to read; the driver knows the others.
    pub(crate) fn parse(url: &str) -> Result<Self, PgError> {
        let invalid = |reason: &str| PgError::InvalidUrl { reason: reason.to_string() };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(invalid(FORM));
        }
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut root_certificates, mut rest) = (None, None, Vec::new());
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.to_string()),
                Some(("sslrootcert", value)) => root_certificates = Some(decoded(value)),
                _ => rest.push(option),
            }
        }
        let url = if rest.is_empty() { address.to_string() } else { format!("{address}?{}", rest.join("&")) };
        // The driver's own words may repeat parts of the URL.
        let mut config: Config = url.parse().map_err(|_| invalid(&format!("it cannot be parsed; {FORM}")))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid(&format!("it names no host; {FORM}")));
        }
        let protection = match mode.as_deref() {
            None if is_local(&config) => Protection::Plain,
            None | Some("verify-full" | "verify-ca") => Protection::Verified,
            Some("disable") => Protection::Plain,
            Some("allow" | "prefer") => Protection::Preferred,
            // Who says whom to trust wants that to be checked; PostgreSQL's own tools do so too.
            Some("require") if root_certificates.is_some() => Protection::Verified,
            Some("require") => Protection::Unverified,
            Some(_) => return Err(invalid("sslmode must be disable, prefer, require or verify-full")),
        };
        // There is no encryption on a Unix socket, and nobody to hide from.
        let protection = if is_unix_only(&config) { Protection::Plain } else { protection };
        config.ssl_mode(match protection {
            Protection::Plain => SslMode::Disable,
            Protection::Preferred => SslMode::Prefer,
            Protection::Unverified | Protection::Verified => SslMode::Require,
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        // A machine that went away without a word is noticed in about a minute.
        config.keepalives_idle(Duration::from_secs(30));
        config.tcp_user_timeout(Duration::from_secs(30));
        Ok(Self { config, protection, root_certificates })
    }
}

/// Tells whether the way to the server does not leave this machine.
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
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits: Vec<u8> = rest.by_ref().take(2).collect();
        let code = std::str::from_utf8(&digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.extend(code);
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

/// A checked name as it stands in SQL.
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

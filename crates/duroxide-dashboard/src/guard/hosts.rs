//! Which hosts this server answers for, and which pages may call it.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

/// Tells whether a request for this host is meant for us. A hostile page reaches a server on its visitor's machine by a
/// name of its own that it makes point there; so names are accepted only if known, while addresses cannot be turned.
pub(super) fn is_allowed(host: &str, names: &[String]) -> bool {
    let Some(name) = name_of(host) else { return false };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") || names.contains(&name) {
        return true;
    }
    match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok(),
    }
}

/// Tells whether the page that sent the request, if a page did, came from this very host.
pub(super) fn is_same_origin(host: &str, headers: &HeaderMap) -> bool {
    let fetched = headers.get("sec-fetch-site").map(|value| value.as_bytes());
    let from_elsewhere = matches!(fetched, Some(site) if site != b"same-origin" && site != b"none");
    let origin = match headers.get(header::ORIGIN) {
        None => return !from_elsewhere,
        Some(origin) => origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok()),
    };
    let Some(origin) = origin else { return false };
    let (Some(scheme), Some(authority)) = (origin.scheme_str(), origin.authority()) else { return false };
    if from_elsewhere || !matches!(scheme, "http" | "https") {
        return false;
    }
    // The page may have come over TLS that a proxy ended, so the scheme of the request is not known here.
    let usual = if scheme == "https" { ":443" } else { ":80" };
    let without = |text: &str| {
        text.to_ascii_lowercase().strip_suffix(usual).unwrap_or(&text.to_ascii_lowercase()).to_string()
    };
    without(authority.as_str()) == without(host)
}

/// The host without its port.
fn name_of(host: &str) -> Option<&str> {
    if host.starts_with('[') {
        let end = host.find(']')?;
        let rest = &host[end + 1..];
        return (rest.is_empty() || is_port(rest)).then(|| &host[..=end]);
    }
    match host.split_once(':') {
        None => Some(host),
        Some((name, port)) => port.bytes().all(|byte| byte.is_ascii_digit()).then_some(name),
    }
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn names_must_be_known_and_addresses_need_not_be() {
        let names = ["ops.example.com".to_string()];
        for host in [
            "localhost",
            "LOCALHOST:7777",
            "127.0.0.1:1",
            "[::1]:80",
            "10.1.2.3",
            "ops.example.com:443",
            "a.localhost",
        ] {
            assert!(is_allowed(host, &names), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1",
            "[::1]x",
            "ops.example.com.evil",
            "localhost:80:80",
            "localhost@evil.example",
            "1.2.3.4.5",
            "[evil]",
        ] {
            assert!(!is_allowed(host, &names), "{host}");
        }
    }

    #[test]
    fn a_page_must_come_from_the_host_that_it_calls() {
        let from = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            headers
        };
        assert!(is_same_origin("localhost:7", &HeaderMap::new()));
        for origin in ["http://localhost:7", "https://localhost:7", "http://LOCALHOST:7"] {
            assert!(is_same_origin("localhost:7", &from("origin", origin)), "{origin}");
        }
        assert!(is_same_origin("a.example", &from("origin", "https://a.example")));
        assert!(is_same_origin("a.example:443", &from("origin", "https://a.example")));
        for origin in [
            "null",
            "http://localhost:8",
            "http://localhost",
            "http://evil.example",
            "file://",
            "localhost:7",
            "ftp://localhost:7",
        ] {
            assert!(!is_same_origin("localhost:7", &from("origin", origin)), "{origin}");
        }
        assert!(is_same_origin("localhost:7", &from("sec-fetch-site", "none")));
        assert!(!is_same_origin("localhost:7", &from("sec-fetch-site", "cross-site")));
        assert!(!is_same_origin("localhost:7", &from("sec-fetch-site", "same-site")));
    }
}

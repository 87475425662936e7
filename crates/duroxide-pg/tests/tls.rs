//! Encrypted connections: whom a store trusts, whom it does not, and what it says then.
//!
//! Each test has a server with a certificate for `db.example.com`. The URL names that host and, apart from it, the address
//! to connect to, so the server proves a name that the store does not look up.

#![cfg(feature = "test")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use crate::support;

use std::path::PathBuf;
use std::time::Duration;

use duroxide::providers::{Provider, WorkItem};
use duroxide_pg::{PgError, PostgresProvider};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use support::cluster::{Cluster, Kind};

const NAME: &str = "db.example.com";
/// Over TCP the server accepts only encrypted connections; the test itself comes by the Unix socket.
const ONLY_ENCRYPTED: &str = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n";
const ANYHOW: &str = "local all all trust\nhost all all 127.0.0.1/32 trust\n";

/// An authority that signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A server's certificate and its key.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        Self::with_key(name, KeyPair::generate().unwrap())
    }

    fn with_key(name: &str, key: KeyPair) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    fn identity(&self) -> Identity {
        self.sign(CertificateParams::new([NAME.to_string()]).unwrap())
    }

    /// Makes the certificate of a role.
    fn identity_of(&self, role: &str) -> Identity {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, role);
        self.sign(params)
    }
}

struct Server {
    cluster: Cluster,
    files: tempfile::TempDir,
}

impl Server {
    fn new(identity: &Identity, access: &str) -> Self {
        Self::with(identity, access, &["ssl = on"], &[])
    }

    fn with(identity: &Identity, access: &str, settings: &[&str], more: &[(&str, String)]) -> Self {
        let mut files = vec![
            ("server.crt", identity.certificate.clone()),
            ("server.key", identity.key.clone()),
            ("pg_hba.conf", access.to_string()),
        ];
        files.extend_from_slice(more);
        // One of the tests crashes the server, and goes on with its commits.
        let cluster = Cluster::own_with_files(Kind::Durable, settings, &files);
        Self { cluster, files: tempfile::TempDir::new().unwrap() }
    }

    /// Returns a URL that names a host, and has these options.
    fn url(&self, host: &str, options: &str) -> String {
        let port = self.cluster.port();
        format!("postgres://postgres:not-a-secret@{host}:{port}/postgres?hostaddr=127.0.0.1&{options}")
    }

    /// Returns the option to trust an authority.
    fn trusting(&self, authority: &Authority) -> String {
        format!("sslrootcert={}", self.file("root.crt", &authority.certificate).display())
    }

    /// Returns the options that name the certificate by which the server knows the store.
    fn as_somebody(&self, name: &str, identity: &Identity) -> String {
        let certificate = self.file(&format!("{name}.crt"), &identity.certificate);
        let key = self.file(&format!("{name}.key"), &identity.key);
        format!("sslcert={}&sslkey={}", certificate.display(), key.display())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Expects that a store opens and works, and that all its connections are encrypted or none is.
async fn works(url: &str, encrypted: bool) {
    let schema = support::fresh_schema();
    let store = PostgresProvider::new_with_schema(url, Some(&schema)).await.unwrap();
    let signal = WorkItem::ExternalRaised { instance: "i".into(), name: "n".into(), data: String::new() };
    store.enqueue_for_orchestrator(signal, None).await.unwrap();
    store.fetch_orchestration_item(Duration::from_secs(5), Duration::ZERO, None).await.unwrap();
    let connections = format!(
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
         WHERE client_addr IS NOT NULL AND ssl <> {encrypted}"
    );
    assert_eq!(store.query_number(&connections).await.unwrap(), 0, "{url}");
}

/// Expects that no store opens, and returns why.
async fn refused(url: &str) -> PgError {
    let error = PostgresProvider::new(url).await.err().expect("it must be refused");
    assert!(!error.is_retryable(), "{error}");
    assert!(!format!("{error} {error:?}").contains("not-a-secret"), "{error}");
    error
}

/// Expects that no store opens because of the encryption, and that the error says this.
async fn distrusted(url: &str, says: &str) {
    let error = refused(url).await;
    assert!(matches!(error, PgError::Tls { .. }), "{error:?}");
    assert!(error.to_string().contains(says), "{error}");
}

#[tokio::test]
async fn a_server_that_proves_its_name_is_trusted() {
    let authority = Authority::new("ours");
    let server = Server::new(&authority.identity(), ONLY_ENCRYPTED);
    let trust = server.trusting(&authority);
    works(&server.url(NAME, &format!("sslmode=verify-full&{trust}")), true).await;
    // The default does the same, because the name is not that of this machine.
    works(&server.url(NAME, &trust), true).await;
}

#[tokio::test]
async fn a_server_that_proves_nothing_is_refused() {
    let authority = Authority::new("ours");
    let server = Server::new(&authority.identity(), ANYHOW);
    let advice = "sslrootcert=/path/to/root.crt";
    let stranger = server.trusting(&Authority::new("a stranger"));
    distrusted(&server.url(NAME, &format!("sslmode=verify-full&{stranger}")), advice).await;
    distrusted(&server.url(NAME, &stranger), advice).await;
    // A URL that says whom to trust asks to verify that.
    distrusted(&server.url(NAME, &format!("sslmode=require&{stranger}")), advice).await;
    // The operating system knows nothing of the authority.
    distrusted(&server.url(NAME, ""), advice).await;
    distrusted(&server.url("localhost.localdomain", ""), advice).await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new("ours");
    let server = Server::new(&authority.identity(), ANYHOW);
    let trust = server.trusting(&authority);
    for host in ["other.example.com", "example.com", "localhost.localdomain", "10.0.0.1"] {
        distrusted(&server.url(host, &trust), "for another host").await;
        distrusted(&server.url(host, &trust), NAME).await;
    }
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_refused() {
    let authority = Authority::new("ours");
    let mut params = CertificateParams::new([NAME.to_string()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let server = Server::new(&authority.sign(params), ANYHOW);
    distrusted(&server.url(NAME, &server.trusting(&authority)), "has expired").await;
}

#[tokio::test]
async fn without_verification_any_certificate_will_do() {
    let server = Server::new(&Authority::new("nobody").identity(), ONLY_ENCRYPTED);
    works(&server.url(NAME, "sslmode=require"), true).await;
    works(&server.url(NAME, "sslmode=prefer"), true).await;
    works(&server.url("127.0.0.1", "sslmode=require"), true).await;
}

#[tokio::test]
async fn a_server_that_demands_encryption_is_asked_for_it_only_if_the_url_says_so() {
    let server = Server::new(&Authority::new("ours").identity(), ONLY_ENCRYPTED);
    // By default the store does not encrypt on the loopback.
    for (host, options) in [(NAME, "sslmode=disable"), ("127.0.0.1", ""), ("localhost", "")] {
        let error = refused(&server.url(host, options)).await;
        assert!(matches!(error, PgError::LoginRefused { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("no encryption") && text.contains("sslmode=verify-full"), "{error}");
    }
}

#[tokio::test]
async fn a_server_without_encryption_is_used_only_if_the_url_says_so() {
    let cluster = Cluster::own(Kind::Forgetful, &[]);
    let server = Server { cluster, files: tempfile::TempDir::new().unwrap() };
    let trust = server.trusting(&Authority::new("ours"));
    for options in [trust.as_str(), "sslmode=require"] {
        distrusted(&server.url(NAME, options), "set sslmode=disable").await;
    }
    works(&server.url(NAME, "sslmode=disable"), false).await;
    works(&server.url(NAME, "sslmode=prefer"), false).await;
    works(&server.url("localhost", ""), false).await;
}

#[tokio::test]
async fn a_file_without_certificates_is_named() {
    let server = Server::new(&Authority::new("ours").identity(), ANYHOW);
    let empty = server.file("empty.crt", "");
    distrusted(&server.url(NAME, &format!("sslrootcert={}", empty.display())), "no certificates").await;
    for file in [server.files.path().join("missing.crt"), server.file("damaged.crt", DAMAGED)] {
        let path = file.display().to_string();
        distrusted(&server.url(NAME, &format!("sslrootcert={path}")), &path).await;
    }
}

const DAMAGED: &str = "-----BEGIN CERTIFICATE-----\nbm90aGluZw==\n-----END CERTIFICATE-----\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_turns_into_a_stranger_is_not_trusted_while_the_store_runs() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("a stranger"));
    let server = Server::new(&authority.identity(), ONLY_ENCRYPTED);
    let builder = PostgresProvider::builder().retry_for(Duration::from_millis(100));
    let store = builder.open(&server.url(NAME, &server.trusting(&authority))).await.unwrap();
    assert!(store.read("i").await.unwrap().is_empty());

    let become_another = |identity: Identity| {
        server.cluster.write_file("server.crt", &identity.certificate);
        server.cluster.write_file("server.key", &identity.key);
        server.cluster.crash();
    };
    become_another(stranger.identity());
    let error = store.read("i").await.unwrap_err();
    assert!(error.retryable && error.to_string().contains("does not trust the issuer"), "{error}");
    become_another(authority.identity());
    assert!(store.read("i").await.unwrap().is_empty());
}

/// Over TCP the server wants a password.
const WITH_PASSWORD: &str = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";

#[tokio::test]
async fn a_login_by_password_is_bound_to_the_connection() {
    let sha_384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    for key in [KeyPair::generate().unwrap(), sha_384] {
        let authority = Authority::with_key("ours", key);
        let server = Server::new(&authority.identity(), WITH_PASSWORD);
        let operator = support::database::connect(&server.cluster.url()).await;
        operator.batch_execute("ALTER ROLE postgres PASSWORD 'not-a-secret'").await.unwrap();
        let trust = server.trusting(&authority);
        for binding in ["require", "prefer", "disable"] {
            works(&server.url(NAME, &format!("channel_binding={binding}&{trust}")), true).await;
        }
        works(&server.url(NAME, "channel_binding=require&sslmode=require"), true).await;
        // Without encryption there is nothing to bind the login to.
        let error = refused(&server.url(NAME, "channel_binding=require&sslmode=disable")).await;
        assert!(error.to_string().contains("channel binding"), "{error}");
        works(&server.url(NAME, "sslmode=disable"), false).await;
    }
}

#[tokio::test]
async fn a_certificate_from_somebody_trusted_is_taken_under_any_name_if_the_url_says_so() {
    let authority = Authority::new("ours");
    let server = Server::new(&authority.identity(), ONLY_ENCRYPTED);
    let trust = server.trusting(&authority);
    for host in [NAME, "other.example.com", "10.0.0.1"] {
        works(&server.url(host, &format!("sslmode=verify-ca&{trust}")), true).await;
    }
    let stranger = server.file("stranger.crt", &Authority::new("a stranger").certificate);
    let stranger = format!("sslmode=verify-ca&sslrootcert={}", stranger.display());
    distrusted(&server.url(NAME, &stranger), "does not trust the issuer").await;
}

#[tokio::test]
async fn the_server_knows_us_by_a_certificate() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("a stranger"));
    let access = "local all all trust\nhostssl all all 127.0.0.1/32 cert\n";
    let settings = ["ssl = on", "ssl_ca_file = 'clients.crt'"];
    let clients = [("clients.crt", authority.certificate.clone())];
    let server = Server::with(&authority.identity(), access, &settings, &clients);
    let trust = server.trusting(&authority);
    let with = |who: &str| server.url(NAME, &format!("{trust}&{who}"));
    works(&with(&server.as_somebody("ours", &authority.identity_of("postgres"))), true).await;

    let error = refused(&server.url(NAME, &trust)).await;
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = refused(&with(&server.as_somebody("other", &authority.identity_of("other")))).await;
    assert!(matches!(error, PgError::LoginRefused { .. }), "{error:?}");
    let stranger = with(&server.as_somebody("stranger", &stranger.identity_of("postgres")));
    assert!(PostgresProvider::new(&stranger).await.is_err());
    let (missing, key) = (server.files.path().join("missing.crt"), server.file("some.key", "no key"));
    distrusted(&with(&format!("sslcert={}&sslkey={}", missing.display(), key.display())), "missing.crt")
        .await;
    let ours = server.files.path().join("ours.crt");
    distrusted(&with(&format!("sslcert={}&sslkey={}", ours.display(), key.display())), "some.key").await;
}

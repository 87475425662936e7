//! Encrypted connections, by rustls.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    self as tls, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::PgError;
use crate::address::{ClientCertificate, DatabaseAddress, Protection};

/// Makes encrypted connections as a target asks for.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    pub(crate) fn new(target: &DatabaseAddress) -> Result<Self, PgError> {
        let failed = |reason: String| PgError::Tls { reason };
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?;
        let builder = match target.protection {
            Protection::Verified => builder.with_root_certificates(trusted(target)?),
            Protection::VerifiedAuthority => {
                let verifier = AnyName { roots: trusted(target)?, provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            _ => builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider))),
        };
        let mut config = match &target.client_certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let (certificates, key) = identity(files)?;
                let named = |error: tls::Error| failed(format!("{}: {error}", files.certificate));
                builder.with_client_auth_cert(certificates, key).map_err(named)?
            }
        };
        // A server demands it if the connection speaks TLS from the first byte (sslnegotiation=direct).
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

/// Says what is wrong with the encryption and what to do about it, if that is why a connection failed.
pub(crate) fn trouble(error: &tokio_postgres::Error) -> Option<String> {
    let cause = std::error::Error::source(error)?;
    let refused = cause.downcast_ref::<io::Error>().and_then(|error| error.get_ref()?.downcast_ref());
    match refused {
        Some(tls::Error::InvalidCertificate(why)) => Some(certificate_trouble(why)),
        Some(other) => Some(format!("the handshake failed: {other}")),
        // The driver does not give its reasons a type.
        None => match cause.to_string().as_str() {
            "server does not support TLS" => Some(
                "the server offers no encryption; if the network can be trusted, set sslmode=disable".into(),
            ),
            "no hostname provided for TLS handshake" => {
                Some("the URL has an address but no name that the server could prove; name a host".into())
            }
            _ => None,
        },
    }
}

fn certificate_trouble(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => {
            "this machine does not trust the issuer of the server's certificate; if it should, name the file \
             with the issuer's certificate: sslrootcert=/path/to/root.crt"
                .into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "the server's certificate is for another host, so this may be another server; connect by the name that it bears ({why})"
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!(
                "the server's certificate has expired; renew it, or set the clock of this machine right ({why})"
            )
        }
        other => format!("the server's certificate is refused: {other}"),
    }
}

/// Returns the certificates to trust: those of a file, or of the operating system.
fn trusted(target: &DatabaseAddress) -> Result<RootCertStore, PgError> {
    let mut store = RootCertStore::empty();
    match &target.root_certificates {
        Some(path) => {
            let failed = |reason: String| PgError::Tls { reason: format!("{path}: {reason}") };
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                store.add(certificate).map_err(|error| failed(error.to_string()))?;
            }
        }
        None => {
            // The store ignores a certificate that does not parse, as long as others do.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if store.is_empty() {
        return Err(PgError::Tls {
            reason:
                "no certificates to trust were found; name a file with some: sslrootcert=/path/to/root.crt"
                    .into(),
        });
    }
    Ok(store)
}

/// Returns the certificates and the key with which the store proves who it is.
fn identity(
    files: &ClientCertificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), PgError> {
    let failed = |path: &str, reason: String| PgError::Tls { reason: format!("{path}: {reason}") };
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(&files.certificate, error.to_string()))?;
    if certificates.is_empty() {
        return Err(failed(&files.certificate, "it holds no certificate".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key);
    Ok((certificates, key.map_err(|error| failed(&files.key, error.to_string()))?))
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, io::Error> {
        let name = ServerName::try_from(host.to_string()).map_err(io::Error::other)?;
        Ok(Handshake { name, connector: TlsConnector::from(self.0.clone()) })
    }
}

/// One handshake to come.
pub(crate) struct Handshake {
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { Ok(Encrypted(Box::new(self.connector.connect(self.name, stream).await?))) })
    }
}

/// An encrypted stream.
pub(crate) struct Encrypted<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    /// Ties the login to this very connection: an attacker in between has another certificate, and so cannot pass the
    /// login on.
    fn channel_binding(&self) -> ChannelBinding {
        let certificates = self.0.get_ref().1.peer_certificates();
        let hash = certificates.and_then(<[_]>::first).and_then(|certificate| end_point(certificate));
        hash.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// Returns the hash of a certificate that binds a login (RFC 5929, `tls-server-end-point`): by the hash function of its
/// signature, or by SHA-256 instead of MD5 and SHA-1. `None` if the signature has no hash function of its own (Ed25519).
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    const SHA_2: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02];
    const SEQUENCE: u8 = 0x30;
    let (certificate_fields, _) = element(certificate, SEQUENCE)?;
    let (_, after_body) = element(certificate_fields, SEQUENCE)?;
    let (algorithm, _) = element(after_body, SEQUENCE)?;
    let (name, parameters) = element(algorithm, 0x06)?;
    let sha_2 = |kind: u8| -> Option<Vec<u8>> {
        match kind {
            1 => Some(Sha256::digest(certificate).to_vec()),
            2 => Some(Sha384::digest(certificate).to_vec()),
            3 => Some(Sha512::digest(certificate).to_vec()),
            4 => Some(Sha224::digest(certificate).to_vec()),
            _ => None,
        }
    };
    match (name.strip_prefix(RSA), name.strip_prefix(ECDSA)) {
        // MD5 and SHA-1.
        (Some([4 | 5]), _) | (_, Some([1])) => sha_2(1),
        (Some([11]), _) | (_, Some([3, 2])) => sha_2(1),
        (Some([12]), _) | (_, Some([3, 3])) => sha_2(2),
        (Some([13]), _) | (_, Some([3, 4])) => sha_2(3),
        (Some([14]), _) | (_, Some([3, 1])) => sha_2(4),
        // RSASSA-PSS names its hash function first among its parameters; SHA-1 if it does not.
        (Some([10]), _) => {
            let place = parameters.windows(SHA_2.len()).position(|window| window == SHA_2);
            let kind = place.and_then(|place| parameters.get(place + SHA_2.len()));
            sha_2(kind.copied().unwrap_or(1))
        }
        _ => None,
    }
}

/// Returns the content of a DER element with this tag, and the bytes after it.
fn element(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    (tag == wanted).then_some((content, rest))
}

/// Accepts any certificate, because the URL says `sslmode=require` or `prefer`.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

/// Accepts a certificate of a trusted authority, whatever name it bears, because the URL says `sslmode=verify-ca`.
#[derive(Debug)]
struct AnyName {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

/// Checks signatures in any case: a server that shows a certificate must have its key.
macro_rules! checks_signatures {
    ($provider:ident) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, tls::Error> {
            let algorithms = &self.$provider().signature_verification_algorithms;
            tls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, tls::Error> {
            let algorithms = &self.$provider().signature_verification_algorithms;
            tls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.$provider().signature_verification_algorithms.supported_schemes()
        }
    };
}

impl AnyServer {
    fn provider(&self) -> &CryptoProvider {
        &self.0
    }
}

impl AnyName {
    fn provider(&self) -> &CryptoProvider {
        &self.provider
    }
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, tls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    checks_signatures!(provider);
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, tls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        tls::client::verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    checks_signatures!(provider);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a certificate that names this kind of signature, by the bytes of its name and its parameters.
    fn signed_by(name: &[u8], parameters: &[u8]) -> Vec<u8> {
        let wrapped = |tag: u8, content: &[u8]| {
            let mut all = vec![tag, 0x82, (content.len() >> 8) as u8, content.len() as u8];
            all.extend(content);
            all
        };
        let algorithm = [wrapped(0x06, name), parameters.to_vec()].concat();
        let body = wrapped(0x30, &[7; 300]);
        wrapped(0x30, &[body, wrapped(0x30, &algorithm), vec![0x03, 1, 0]].concat())
    }

    #[test]
    fn a_login_is_bound_to_the_hash_of_the_certificate_by_the_hash_of_its_signature() {
        let rsa = |kind: u8| vec![0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, kind];
        let ecdsa = |kind: u8| vec![0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, kind];
        let pss = |kind: u8| {
            [0xa0, 0x0f, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, kind]
        };
        for (name, parameters, bits) in [
            (rsa(4), vec![], 256),
            (rsa(5), vec![], 256),
            (rsa(11), vec![5, 0], 256),
            (rsa(12), vec![5, 0], 384),
            (rsa(13), vec![5, 0], 512),
            (rsa(14), vec![5, 0], 224),
            (rsa(10), vec![0x30, 0], 256),
            (rsa(10), pss(2).to_vec(), 384),
            (ecdsa(2), vec![], 256),
            (ecdsa(3), vec![], 384),
            (ecdsa(4), vec![], 512),
        ] {
            let hash = end_point(&signed_by(&name, &parameters)).unwrap();
            assert_eq!(hash.len() * 8, bits, "{name:?}");
        }
        let certificate = signed_by(&ecdsa(2), &[]);
        assert_eq!(end_point(&certificate).unwrap(), Sha256::digest(&certificate).to_vec());
        let ed25519 = [0x2b, 0x65, 0x70];
        assert_eq!(end_point(&signed_by(&ed25519, &[])), None);
    }

    #[test]
    fn no_certificate_is_too_damaged_to_be_looked_at() {
        let whole = signed_by(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 2], &[]);
        for end in 0..whole.len() {
            assert!(end_point(&whole[..end]).is_none(), "{end}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] = 0xff;
            let _ = end_point(&damaged);
        }
    }
}

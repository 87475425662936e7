//! Encrypted connections, by rustls.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self as tls, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::PgError;
use crate::address::{DatabaseAddress, Protection};

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
        let mut config = match target.protection {
            Protection::Verified => builder.with_root_certificates(trusted(target)?).with_no_client_auth(),
            _ => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
                .with_no_client_auth(),
        };
        // Servers that are spoken to in TLS from the first byte (sslnegotiation=direct) ask for it.
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
            "the server's certificate comes from nobody who is trusted here; if it should be trusted, name the file \
             with the issuer's certificate: sslrootcert=/path/to/root.crt"
                .into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("the server's certificate is for another host, so this may be another server; connect by the name that it bears ({why})")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the server's certificate has expired; renew it, or set the clock of this machine right ({why})")
        }
        other => format!("the server's certificate is refused: {other}"),
    }
}

/// The certificates that are trusted: those of a file, or of the operating system.
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
            // One that does not parse is none of our business as long as others do.
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
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// Takes any certificate, because the URL says `sslmode=require` or `prefer`.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

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

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        tls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        tls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

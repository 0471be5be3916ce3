//! TLS: whom we trust, and the encrypted connection.
//!
//! `ureq` could do this, but for two things: certificates of one's own would
//! take the place of the built-in roots instead of adding to them, and of a
//! server that is not trusted it would not say who vouches for it. Which
//! certificates are good is `rustls`'s to say in any case.

use super::certificate::missing_issuer;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, OtherError,
    RootCertStore, SignatureScheme, StreamOwned,
};
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use ureq::unversioned::transport::time::{Duration, Instant};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

/// The variable that names certificates to trust, as OpenSSL knows it.
const CERT_FILE: &str = "SSL_CERT_FILE";

/// A file of certificates that is larger is not one.
const LIMIT: u64 = 16 << 20;

/// What a connection needs: the roots built in, those in `ca_file`, and those in
/// `system`, which is what [`CERT_FILE`] names.
///
/// # Errors
/// Which file cannot be used, and why. Of `system` single certificates may be odd.
pub(super) fn config(ca_file: Option<&Path>, system: Option<&Path>) -> Result<Trust, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(roots(ca_file, system)?);
    let cannot = |why: &dyn fmt::Display| format!("cannot set up TLS: {why}");
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|e| cannot(&e))?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| cannot(&e))?
        // Called so since a verifier could wave everything through; this one asks webpki.
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier(verifier)))
        .with_no_client_auth();
    Ok(Trust(Arc::new(config)))
}

/// The file that the environment names, if it names one.
pub(super) fn system_file() -> Option<std::path::PathBuf> {
    std::env::var_os(CERT_FILE)
        .filter(|path| !path.is_empty())
        .map(Into::into)
}

fn roots(ca_file: Option<&Path>, system: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if ca_file.is_none() || !crate::mutant::is("own-roots-replace-the-built-in") {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    if let Some(file) = ca_file.filter(|_| !crate::mutant::is("ca-file-ignored")) {
        let cannot = |why| format!("cannot use the ca_file {}: {why}", file.display());
        let found = certificates(file).map_err(cannot)?;
        for (n, certificate) in found.into_iter().enumerate() {
            roots
                .add(certificate)
                .map_err(|_| cannot(format!("certificate {} in it is broken", n + 1)))?;
        }
    }
    if let Some(file) = system {
        let cannot = |why| format!("cannot use {CERT_FILE}={}: {why}", file.display());
        let (good, _) = roots.add_parsable_certificates(certificates(file).map_err(cannot)?);
        if good == 0 {
            return Err(cannot("all certificates in it are broken".to_string()));
        }
    }
    Ok(roots)
}

/// The certificates in a PEM file; at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let said = |e: io::Error| crate::error::Error::new(String::new(), e).cause;
    // Anything but a file could hang.
    if !file.metadata().map_err(said)?.is_file() {
        return Err("it is not a regular file".to_string());
    }
    let mut text = Vec::new();
    std::fs::File::open(file)
        .and_then(|f| f.take(LIMIT).read_to_end(&mut text))
        .map_err(said)?;
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err("there is no certificate in it (PEM: BEGIN CERTIFICATE)".to_string()),
        Err(_) => Err("it is not well-formed PEM".to_string()),
    }
}

/// Encrypts the connections that ask for it; [`config`] makes one.
#[derive(Debug, Clone)]
pub(super) struct Trust(Arc<ClientConfig>);

impl<In: Transport> Connector<In> for Trust {
    type Out = Either<In, Encrypted>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let transport = chained.ok_or(ureq::Error::ConnectionFailed)?;
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_string())
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        let mut connection =
            ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        let mut sock = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        sock.set_timeout(left(details));
        connection.complete_io(&mut sock)?;
        Ok(Some(Either::B(Encrypted {
            buffers: LazyBuffers::new(
                details.config.input_buffer_size(),
                details.config.output_buffer_size(),
            ),
            stream: StreamOwned::new(connection, sock),
        })))
    }
}

/// What is left of the time for connecting: part of it went into the connection itself.
fn left(details: &ConnectionDetails) -> NextTimeout {
    let mut timeout = details.timeout;
    if let (Duration::Exact(after), Instant::Exact(then), Instant::Exact(now)) =
        (timeout.after, details.now, (details.current_time)())
    {
        let spent = now.saturating_duration_since(then);
        timeout.after = Duration::Exact(after.saturating_sub(spent));
    }
    timeout
}

/// An encrypted connection.
pub(super) struct Encrypted {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypted")
    }
}

/// Asks webpki, and says in our words why a certificate is not trusted.
#[derive(Debug)]
struct Verifier(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .map_err(|e| match e {
                Error::InvalidCertificate(why) => {
                    let why = Untrusted(distrust(&why, end_entity, intermediates));
                    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
                }
                other => other,
            })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Why a certificate is not trusted.
#[derive(Debug)]
struct Untrusted(String);

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Untrusted {}

fn distrust(
    why: &CertificateError,
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> String {
    use CertificateError as E;
    let clock = "; or this machine's clock is wrong";
    match why {
        E::UnknownIssuer => format!(
            "its issuer '{}' is not known; if that is an authority of your own, or of a proxy \
             that looks into TLS, name its certificate in ca_file",
            missing_issuer(end_entity, intermediates)
        ),
        E::BadSignature => format!(
            "it is not signed by the '{}' that is known; name the certificate of the one who \
             signed it in ca_file",
            missing_issuer(end_entity, intermediates)
        ),
        E::Expired | E::ExpiredContext { .. } => format!("it has expired{clock}"),
        E::NotValidYet | E::NotValidYetContext { .. } => format!("it is not valid yet{clock}"),
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            "it was made out for another host".to_string()
        }
        other => other.to_string(),
    }
}

/// What the connection failed by, if by TLS.
pub(super) fn reason(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => {
            format!("the server's certificate cannot be trusted: {why}")
        }
        Error::InvalidCertificate(why) => {
            format!("the server's certificate cannot be trusted: {why}")
        }
        Error::InvalidMessage(_) => {
            "what answered does not speak TLS: are host and port those of an https server?"
                .to_string()
        }
        other => format!("no TLS connection: {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn fixture(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/tls/{name}"))
    }

    /// Given certificates of one's own, by the config and by the environment (C081), when the
    /// roots are put together, then they are there beside all of those built in.
    #[test]
    fn c081_ones_own_roots_add_to_the_built_in() {
        let (ca, other) = (fixture("ca.pem"), fixture("other.pem"));
        let count = |ca: Option<&Path>, system: Option<&Path>| roots(ca, system).map(|r| r.len());
        let built_in = webpki_roots::TLS_SERVER_ROOTS.len();
        assert!(built_in > 50);
        assert_eq!(count(None, None), Ok(built_in));
        assert_eq!(count(Some(&ca), None), Ok(built_in + 1));
        assert_eq!(count(Some(&ca), Some(&other)), Ok(built_in + 2));
    }
}

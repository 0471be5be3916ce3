//! What stands between a poller and its tracker: TLS, and a proxy. Both on loopback.

use super::forge::Forge;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A certificate or key of the tests.
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/tls/{name}"))
}

/// How long a peer may keep silent.
const PATIENCE: Duration = Duration::from_secs(20);

/// Something that serves each connection on a thread of its own; it ends when this is dropped.
pub struct Server {
    pub address: SocketAddr,
    ended: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves at `address`, port 0 being any.
    pub fn at(
        address: &str,
        serve: impl Fn(TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind(address).expect("a port on loopback");
        let address = listener.local_addr().expect("the port is known");
        let ended = Arc::new(AtomicBool::new(false));
        let serve = Arc::new(serve);
        let accepting = std::thread::spawn({
            let ended = ended.clone();
            move || {
                for stream in listener.incoming().flatten() {
                    if ended.load(Ordering::SeqCst) {
                        break;
                    }
                    let serve = serve.clone();
                    let _ = stream.set_read_timeout(Some(PATIENCE));
                    // The peer may go away at any time, and nobody waits for this.
                    std::thread::spawn(move || serve(stream));
                }
            }
        });
        Server {
            address,
            ended,
            accepting: Some(accepting),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// The server's side of TLS, with the certificate of `tracker.example.test`.
pub fn server_config() -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(fixture("server.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(fixture("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    Arc::new(config.expect("they belong together"))
}

/// `forge` behind TLS.
pub fn before(forge: &Forge) -> Server {
    let inner = forge.url().trim_start_matches("http://").to_string();
    let config = server_config();
    Server::at("127.0.0.1:0", move |stream| {
        let connection = ServerConnection::new(config.clone()).map_err(std::io::Error::other)?;
        let mut outer = StreamOwned::new(connection, stream);
        let asked = head(&mut outer)?;
        let length = asked
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        outer.read_exact(&mut body)?;
        let mut inner = TcpStream::connect(&inner)?;
        inner.write_all(asked.as_bytes())?;
        inner.write_all(&body)?;
        let mut answer = Vec::new();
        inner.read_to_end(&mut answer)?;
        outer.write_all(&answer)?;
        outer.conn.send_close_notify();
        outer.flush()
    })
}

/// A request's head, with the empty line that ends it.
pub fn head(stream: &mut impl Read) -> std::io::Result<String> {
    let mut reader = BufReader::with_capacity(1, stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

/// A proxy that leads every connection to one place, and what it was asked.
pub struct Proxy {
    pub server: Server,
    pub heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Proxy {
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let asked = heads.clone();
        let server = Server::at("127.0.0.1:0", move |mut near| {
            let head = head(&mut near)?;
            asked.lock().expect("no panic").push(head);
            let mut far = TcpStream::connect(target)?;
            near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            let (mut near_in, mut far_out) = (near.try_clone()?, far.try_clone()?);
            let up = std::thread::spawn(move || {
                let _ = std::io::copy(&mut near_in, &mut far_out);
                let _ = far_out.shutdown(Shutdown::Write);
            });
            let _ = std::io::copy(&mut far, &mut near);
            let _ = near.shutdown(Shutdown::Both);
            let _ = up.join();
            Ok(())
        });
        Proxy { server, heads }
    }

    /// What it was asked since the last call of this.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().expect("no panic"))
    }
}

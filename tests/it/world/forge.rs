//! A tracker on loopback: scripted or modelled answers, and a log of what was asked.

use idempoll::os::uninterrupted;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// In the order they came, names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// A request and what came of it.
#[derive(Debug, Clone)]
pub struct Logged {
    pub asked: Asked,
    /// 0 if the connection was reset instead of an answer.
    pub status: u16,
    /// Bytes of the answer, head and body, as far as the forge meant to send them.
    pub sent: u64,
    /// Which connection it came by; they are counted from 1.
    pub connection: usize,
}

impl Asked {
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A parameter of the query, as written.
    pub fn query(&self, key: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find_map(|(k, v)| (k == key).then_some(v))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// An answer. `{base}` in headers and body becomes the forge's own URL.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Drop the connection after so many bytes of the body.
    pub cut: Option<usize>,
    /// Wait so long before each byte of the body.
    pub dribble: Option<Duration>,
    /// And before each byte of the headers.
    pub dribble_head: bool,
    /// Wait so long before the answer; other requests are answered meanwhile.
    pub delay: Duration,
    /// Reset the connection instead of answering.
    pub reset: bool,
}

impl Reply {
    pub fn json(body: impl ToString) -> Reply {
        Reply {
            status: 200,
            headers: vec![(
                "Content-Type".into(),
                "application/json; charset=utf-8".into(),
            )],
            body: body.to_string().into_bytes(),
            cut: None,
            dribble: None,
            dribble_head: false,
            delay: Duration::ZERO,
            reset: false,
        }
    }

    /// No answer: the connection is reset.
    pub fn reset() -> Reply {
        Reply {
            reset: true,
            ..Reply::json("")
        }
    }

    /// The value of a header of it.
    pub fn header_value(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let found = headers.find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn status(mut self, status: u16) -> Reply {
        self.status = status;
        self
    }

    /// Sets a header, in the place of one with the same name.
    pub fn header(mut self, name: &str, value: impl ToString) -> Reply {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self.headers.push((name.into(), value.to_string()));
        self
    }

    pub fn cut(mut self, after: usize) -> Reply {
        self.cut = Some(after);
        self
    }

    pub fn dribble(mut self, pause: Duration) -> Reply {
        self.dribble = Some(pause);
        self
    }

    pub fn delay(mut self, time: Duration) -> Reply {
        self.delay = time;
        self
    }

    pub fn dribble_all(mut self, pause: Duration) -> Reply {
        self.dribble_head = true;
        self.dribble(pause)
    }
}

type Handler = Box<dyn FnMut(&Asked) -> Reply + Send>;

/// The server; it ends when this is dropped.
pub struct Forge {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    base: String,
    handler: Mutex<Handler>,
    logged: Mutex<Vec<Logged>>,
    /// Connections are kept for the next request.
    keeps: AtomicBool,
    ended: AtomicBool,
    lock: Mutex<()>,
    ending: Condvar,
}

impl Forge {
    /// A forge that answers what `handler` says, one request at a time.
    pub fn start(handler: impl FnMut(&Asked) -> Reply + Send + 'static) -> Forge {
        Forge::start_below("", handler)
    }

    /// The same with a path at the end of its URL: `/api/v3`.
    pub fn start_below(path: &str, handler: impl FnMut(&Asked) -> Reply + Send + 'static) -> Forge {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
        let address = listener.local_addr().expect("the port is known");
        let shared = Arc::new(Shared {
            base: format!("http://{address}{path}"),
            handler: Mutex::new(Box::new(handler)),
            logged: Mutex::default(),
            keeps: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            lock: Mutex::default(),
            ending: Condvar::new(),
        });
        let accepting = std::thread::spawn({
            let shared = shared.clone();
            move || accept(&listener, &shared)
        });
        Forge {
            address,
            shared,
            accepting: Some(accepting),
        }
    }

    /// A forge where each path gives its answers in turn, the last one for
    /// ever, and every other path gives an empty list. A path with a query wins
    /// over one without when all its parameters are asked for.
    pub fn scripted(routes: impl IntoIterator<Item = (&'static str, Vec<Reply>)>) -> Forge {
        let mut routes: BTreeMap<&str, Vec<Reply>> = routes.into_iter().collect();
        Forge::start(move |asked| {
            let fits = |route: &str| {
                let (path, query) = route.split_once('?').unwrap_or((route, ""));
                path == asked.path()
                    && query
                        .split('&')
                        .filter_map(|pair| pair.split_once('='))
                        .all(|(k, v)| asked.query(k) == Some(v))
            };
            // The longest comes last in a path's order, and it is the one with a query.
            match routes.iter_mut().rfind(|(r, _)| fits(r)) {
                Some((_, steps)) if steps.len() > 1 => steps.remove(0),
                Some((_, steps)) => steps[0].clone(),
                None => Reply::json("[]"),
            }
        })
    }

    /// Its base URL, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.shared.base
    }

    /// Keeps connections from now on, as GitHub does; otherwise each is closed after its answer.
    pub fn keep_connections(&self) {
        self.shared.keeps.store(true, Ordering::SeqCst);
    }

    /// What was asked since the last call of this.
    pub fn asked(&self) -> Vec<Asked> {
        self.logged().into_iter().map(|l| l.asked).collect()
    }

    /// The same with what came of it. A request is in here before its answer is out.
    pub fn logged(&self) -> Vec<Logged> {
        std::mem::take(&mut *lock(&self.shared.logged))
    }
}

impl Drop for Forge {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        let guard = lock(&self.shared.lock);
        self.shared.ending.notify_all();
        drop(guard);
        // Wakes the accepting thread, which then looks at the flag.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut serving = Vec::new();
    for (connection, stream) in (1..).zip(listener.incoming()) {
        if shared.ended.load(Ordering::SeqCst) {
            break;
        }
        let Ok(stream) = stream else { continue };
        let shared = shared.clone();
        serving.retain(|thread: &JoinHandle<()>| !thread.is_finished());
        serving.push(std::thread::spawn(move || {
            // The peer may go away at any time.
            while let Ok(true) = serve(&stream, connection, &shared) {
                if !is_asked_again(&stream, &shared) {
                    break;
                }
            }
        }));
    }
    for thread in serving {
        let _ = thread.join();
    }
}

/// Waits for another request by a connection that is kept.
fn is_asked_again(stream: &TcpStream, shared: &Shared) -> bool {
    let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
    while !shared.ended.load(Ordering::SeqCst) {
        match peek(stream, &mut [0]) {
            Ok(seen) => return seen > 0,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return false,
        }
    }
    false
}

/// Answers one request; says whether another may follow it.
fn serve(mut stream: &TcpStream, connection: usize, shared: &Shared) -> std::io::Result<bool> {
    // A peer that never finishes its request must not hold up the end of a test.
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let Some((asked, last)) = receive(stream)? else {
        return Ok(false);
    };
    let mut reply = (lock(&shared.handler))(&asked);
    let (head, body) = written(&reply, shared);
    let cut = reply.cut.unwrap_or(body.len()).min(body.len());
    let (status, sent) = match reply.reset {
        true => (0, 0),
        false => (reply.status, (head.len() + cut) as u64),
    };
    lock(&shared.logged).push(Logged {
        asked,
        status,
        sent,
        connection,
    });
    if !reply.delay.is_zero() && !pause(reply.delay, shared) {
        return Ok(false);
    }
    if reply.reset {
        // Closing with something unread is what makes it a reset.
        return Ok(false);
    }
    stream.read_exact(&mut vec![0; last])?;
    let whole = cut == body.len();
    let body = &body[..cut];
    let Some(gap) = reply.dribble.take() else {
        // In one piece: two would wait for each other on a connection that is kept.
        stream.write_all(&[head.as_bytes(), body].concat())?;
        return Ok(whole && shared.keeps.load(Ordering::SeqCst));
    };
    let (at_once, slowly) = match reply.dribble_head {
        true => (Vec::new(), [head.as_bytes(), body].concat()),
        false => (head.into_bytes(), body.to_vec()),
    };
    stream.write_all(&at_once)?;
    for byte in slowly {
        if !pause(gap, shared) {
            break;
        }
        stream.write_all(&[byte])?;
    }
    Ok(false)
}

/// Waits; says whether the forge is still there.
fn pause(time: Duration, shared: &Shared) -> bool {
    let guard = lock(&shared.lock);
    let ended = |(): &mut ()| !shared.ended.load(Ordering::SeqCst);
    let _ = shared.ending.wait_timeout_while(guard, time, ended);
    !shared.ended.load(Ordering::SeqCst)
}

/// Looks at what has come. Where a process was frozen and went on, a call that would have waited
/// ends with `EINTR`.
fn peek(stream: &TcpStream, buffer: &mut [u8]) -> std::io::Result<usize> {
    uninterrupted(|| stream.peek(buffer))
}

/// Takes in a request all but its last bytes, and says how many those are.
fn receive(mut stream: &TcpStream) -> std::io::Result<Option<(Asked, usize)>> {
    let mut taken = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let seen = peek(stream, &mut buffer)?;
        if seen == 0 {
            return Ok(None);
        }
        let before = taken.len();
        taken.extend_from_slice(&buffer[..seen]);
        let whole = taken
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .and_then(|at| {
                let mut asked = head(&String::from_utf8_lossy(&taken[..at]))?;
                let length = asked
                    .header("content-length")
                    .map_or(Some(0), |n| n.parse().ok())?;
                asked.body = taken.get(at + 4..at + 4 + length)?.to_vec();
                Some(asked)
            });
        if let Some(asked) = whole {
            return Ok(Some((asked, taken.len() - before)));
        }
        stream.read_exact(&mut buffer[..seen])?;
    }
}

/// The request line and the headers.
fn head(text: &str) -> Option<Asked> {
    let mut lines = text.lines();
    let mut words = lines.next()?.split_whitespace().map(str::to_string);
    let (method, target) = (words.next()?, words.next()?);
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_end().to_string()));
    Some(Asked {
        method,
        target,
        headers: headers.collect(),
        body: Vec::new(),
    })
}

/// An answer as it goes out: head and body.
fn written(reply: &Reply, shared: &Shared) -> (String, Vec<u8>) {
    let body = match std::str::from_utf8(&reply.body) {
        Ok(text) => text.replace("{base}", &shared.base).into_bytes(),
        Err(_) => reply.body.clone(),
    };
    let mut head = format!("HTTP/1.1 {} Said\r\n", reply.status);
    if !shared.keeps.load(Ordering::SeqCst) {
        head.push_str("Connection: close\r\n");
    }
    for (name, value) in &reply.headers {
        let value = value.replace("{base}", &shared.base);
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if reply.status != 304 {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    (head, body)
}

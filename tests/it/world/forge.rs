//! A tracker on loopback: scripted or modelled answers, and a log of what was asked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
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
        }
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
    asked: Mutex<Vec<Asked>>,
    ended: AtomicBool,
    lock: Mutex<()>,
    ending: Condvar,
}

impl Forge {
    /// A forge that answers what `handler` says, one request at a time.
    pub fn start(handler: impl FnMut(&Asked) -> Reply + Send + 'static) -> Forge {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
        let address = listener.local_addr().expect("the port is known");
        let shared = Arc::new(Shared {
            base: format!("http://{address}"),
            handler: Mutex::new(Box::new(handler)),
            asked: Mutex::default(),
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

    /// What was asked since the last call of this.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *lock(&self.shared.asked))
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
    for stream in listener.incoming() {
        if shared.ended.load(Ordering::SeqCst) {
            break;
        }
        let Ok(stream) = stream else { continue };
        let shared = shared.clone();
        // A peer that never finishes its request must not hold up the end of a test.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        serving.push(std::thread::spawn(move || {
            // The peer may go away at any time.
            let _ = serve(stream, &shared);
        }));
    }
    for thread in serving {
        let _ = thread.join();
    }
}

/// Answers one request and closes the connection.
fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_string);
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Ok(());
    };
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_string())),
            None => break,
        }
    }
    let asked = Asked {
        method,
        target,
        headers,
    };
    lock(&shared.asked).push(asked.clone());
    let reply = (lock(&shared.handler))(&asked);
    send(stream, &reply, shared)
}

fn send(mut stream: TcpStream, reply: &Reply, shared: &Shared) -> std::io::Result<()> {
    let body = match std::str::from_utf8(&reply.body) {
        Ok(text) => text.replace("{base}", &shared.base).into_bytes(),
        Err(_) => reply.body.clone(),
    };
    let mut head = format!("HTTP/1.1 {} Said\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        let value = value.replace("{base}", &shared.base);
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    let body = &body[..reply.cut.unwrap_or(body.len()).min(body.len())];
    let Some(pause) = reply.dribble else {
        stream.write_all(head.as_bytes())?;
        return stream.write_all(body);
    };
    let (at_once, slowly) = match reply.dribble_head {
        true => (Vec::new(), [head.as_bytes(), body].concat()),
        false => (head.into_bytes(), body.to_vec()),
    };
    stream.write_all(&at_once)?;
    for byte in slowly {
        let guard = lock(&shared.lock);
        let ended = |(): &mut ()| !shared.ended.load(Ordering::SeqCst);
        let _ = shared.ending.wait_timeout_while(guard, pause, ended);
        if shared.ended.load(Ordering::SeqCst) {
            break;
        }
        stream.write_all(&[byte])?;
    }
    Ok(())
}

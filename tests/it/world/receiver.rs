//! Endpoints that deliveries are posted to: one of others' making, as it is, and one that keeps all it got.

use super::forge::{Asked, Forge, Reply};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// `fixtures/cases/C076-receiver.py`: checks signatures over the raw bytes, and can refuse, drop, hang and redirect.
pub struct Receiver {
    child: Child,
    port: u16,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    /// Takes each answer of `plan` (`500,drop,200`) in turn, the last one for ever.
    pub fn start(secret: &str, plan: &str) -> Receiver {
        Receiver::at(0, secret, plan)
    }

    /// The same at a port that is known already.
    pub fn at(port: u16, secret: &str, plan: &str) -> Receiver {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let mut child = Command::new("python3")
            .arg(script.join("fixtures/cases/C076-receiver.py"))
            .args([secret, plan, "--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said = said.lines().map_while(Result::ok);
        let first: Value = serde_json::from_str(&said.next().expect("it listens")).expect("JSON");
        let url = first["listening"].as_str().expect("where");
        let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
        let lines = Arc::<Mutex<Vec<Value>>>::default();
        let told = lines.clone();
        std::thread::spawn(move || {
            for line in said {
                let line = serde_json::from_str(&line).expect("JSON");
                told.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
            }
        });
        Receiver {
            child,
            port: port.expect("a number"),
            lines,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    /// What it said of each request so far.
    pub fn lines(&self) -> Vec<Value> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// One field of each request so far.
    pub fn field(&self, key: &str) -> Vec<Value> {
        self.lines().iter().map(|line| line[key].clone()).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An endpoint that keeps all it got, and answers what a test says.
pub struct Inbox {
    forge: Forge,
    got: Arc<Mutex<Vec<Asked>>>,
}

impl Inbox {
    /// Answers what `answer` says to each request.
    pub fn start(mut answer: impl FnMut(&Asked) -> Reply + Send + 'static) -> Inbox {
        let got = Arc::<Mutex<Vec<Asked>>>::default();
        let kept = got.clone();
        let forge = Forge::start(move |asked| {
            let reply = answer(asked);
            kept.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(asked.clone());
            reply
        });
        Inbox { forge, got }
    }

    /// Accepts everything.
    pub fn friendly() -> Inbox {
        Inbox::start(|_| Reply::json("{}"))
    }

    /// Takes each of `replies` in turn, the last one for ever.
    pub fn planned(replies: Vec<Reply>) -> Inbox {
        let mut replies = replies.into_iter();
        let mut last = Reply::json("{}");
        Inbox::start(move |_| {
            last = replies.next().unwrap_or_else(|| last.clone());
            last.clone()
        })
    }

    pub fn url(&self) -> String {
        format!("{}/hook", self.forge.url())
    }

    /// The server itself.
    pub fn forge(&self) -> &Forge {
        &self.forge
    }

    /// What it got so far.
    pub fn got(&self) -> Vec<Asked> {
        self.got
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The delivery ids of what it got so far.
    pub fn ids(&self) -> Vec<String> {
        let got = self.got();
        let ids = got.iter().map(|asked| asked.header("x-idempoll-delivery"));
        ids.map(|id| id.unwrap_or_default().to_string()).collect()
    }
}

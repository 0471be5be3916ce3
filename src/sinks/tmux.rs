//! The `tmux` sink: a session per item with the agent in it, on a server of our own.
//!
//! `opened` makes the session and, once its agent is ready, pastes the prompt;
//! what comes later is pasted into the same pane; `closed` ends it. Whatever a
//! try did is written where it happened: in the pane, by the same call of tmux
//! that did it (`pane` has the marks). So each try first looks how far the ones
//! before it got, and goes on from there: it is never known from memory, and a
//! poller killed between any two calls leaves nothing to guess. No text is ever
//! typed anywhere but into the pane whose first process we started ourselves,
//! while that process lives and no bare shell is in front.

pub mod client;
mod course;
mod making;
pub mod pane;
pub mod prompt;
pub mod session;
mod shell;
pub mod submit;

use super::Sink;
use super::child::Countdown;
use crate::config::checked::{self, OnClose, Submit};
use crate::engine::delivery::{Delivery, EventKind, Outcome, Receipt, Slug};
use crate::engine::item::ItemRef;
use crate::error::Error;
use crate::mutant;
use crate::os::file;
use crate::os::wait::{self, For};
use crate::os::wake::Wake;
use client::Client;
use course::Course;
use pane::{Pane, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Delivers into tmux.
#[derive(Debug)]
pub struct Tmux {
    /// What the config says.
    pub settings: checked::Tmux,
    /// Where notes about sessions are kept.
    pub runs_dir: PathBuf,
    client: Client,
    /// What people should hear about, until it is asked for.
    news: Mutex<Vec<String>>,
    /// Servers whose end was told.
    mourned: Mutex<BTreeSet<u32>>,
    /// Receipts nobody needs any more, to be taken away at the next opportunity.
    stale: Mutex<BTreeMap<Slug, Vec<String>>>,
}

/// How often a screen is looked at, or a server that does not answer.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The most receipts that are taken away at once.
const MOST_STALE: usize = 40;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that happens under it can leave it half-changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink for Tmux {
    fn deliver(&self, delivery: &Delivery, stop: &Wake) -> Outcome {
        Course::new(self, delivery, stop).run()
    }

    fn settle(&self, delivery: &Delivery) -> Receipt {
        match self.stands(delivery) {
            Stands::Landed => Receipt::Settled(Outcome::Delivered),
            // `wait` sees it through.
            Stands::Begun | Stands::Silent => Receipt::Running,
            Stands::Nowhere => Receipt::Missing,
        }
    }

    fn wait(&self, delivery: &Delivery, stop: &Wake) -> Outcome {
        if let Some(stopped) = self.until_it_answers(stop) {
            return stopped;
        }
        match self.stands(delivery) {
            Stands::Landed => Outcome::Delivered,
            Stands::Begun => Course::new(self, delivery, stop).run(),
            Stands::Silent | Stands::Nowhere => Outcome::Unknown,
        }
    }

    fn forget(&self, delivery: &Delivery) {
        session::forget_prompt(&self.runs_dir, &delivery.slug, &delivery.sink, delivery.seq);
        let mut stale = locked(&self.stale);
        let of_item = stale.entry(delivery.slug.clone()).or_default();
        if of_item.len() < MOST_STALE {
            of_item.push(pane::mark_of(delivery));
        }
    }

    fn news(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.news))
    }
}

impl Tmux {
    /// The sink with these settings.
    #[must_use]
    pub fn new(settings: checked::Tmux, runs_dir: &Path, secret_vars: &[String]) -> Tmux {
        Tmux {
            client: Client {
                socket: settings.socket.clone(),
                secret_vars: secret_vars.to_vec(),
            },
            settings,
            runs_dir: runs_dir.to_path_buf(),
            news: Mutex::default(),
            mourned: Mutex::default(),
            stale: Mutex::default(),
        }
    }

    /// Whether the delivery took effect, as far as it can be seen by looking.
    fn has_landed(&self, delivery: &Delivery, panes: &[Pane]) -> bool {
        match agent_of(panes, &delivery.slug) {
            Some(pane) => match pane.mark.as_str() {
                "taken" => true,
                "sent" => {
                    let asks = matches!(self.settings.submit, Submit::Command(_));
                    !asks || mutant::is("tmux-draft-is-success")
                }
                _ => false,
            },
            // An end asked for is reached, whoever reached it.
            None => delivery.event == EventKind::Closed && self.settings.on_close == OnClose::End,
        }
    }

    /// How far the tries so far got.
    fn stands(&self, delivery: &Delivery) -> Stands {
        match pane::look(&self.client, &pane::mark_of(delivery)) {
            Seen::Silent => Stands::Silent,
            Seen::Panes(panes) if self.has_landed(delivery, &panes) => Stands::Landed,
            Seen::Panes(panes) => match agent_of(&panes, &delivery.slug) {
                Some(pane) if !pane.mark.is_empty() => Stands::Begun,
                _ => Stands::Nowhere,
            },
            Seen::NoServer | Seen::Trouble(_) => Stands::Nowhere,
        }
    }

    /// Waits while the server does not answer; `Some` when a stop came first.
    fn until_it_answers(&self, stop: &Wake) -> Option<Outcome> {
        while pane::look(&self.client, "@idempoll-none") == Seen::Silent {
            if rest(stop, LOOK_AGAIN) {
                return Some(Outcome::LeftRunning);
            }
        }
        None
    }

    fn tell(&self, news: String) {
        locked(&self.news).push(news);
    }
}

/// How far a delivery got.
enum Stands {
    /// It took effect.
    Landed,
    /// Part of it is done: the rest is to be done, and not all of it again.
    Begun,
    /// There is no trace of it.
    Nowhere,
    /// Nobody can tell yet.
    Silent,
}

/// The pane of an item's agent.
fn agent_of<'p>(panes: &'p [Pane], slug: &Slug) -> Option<&'p Pane> {
    let is = |pane: &&Pane| match mutant::is("tmux-name-by-its-beginning") {
        true => pane.agent.starts_with(slug.as_str()),
        false => pane.agent == slug.as_str(),
    };
    panes.iter().find(is)
}

/// What stands in a command for the file with the prompt.
pub const PROMPT_FILE: &str = "{prompt_file}";

/// The template in `file`, or the built-in one.
///
/// # Errors
/// When it cannot be read.
pub fn template(file: Option<&Path>) -> Result<String, String> {
    let Some(file) = file else {
        return Ok(prompt::BUILT_IN.to_string());
    };
    let failed = |e| Error::new(format!("cannot read {}", file.display()), e).to_string();
    let mut text = String::new();
    file::open_regular_or_link(file)
        .map_err(failed)?
        .take(1 << 20)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

/// `workdir` for an item: only names from the config and a number get into it.
///
/// # Errors
/// When it asks for an owner or a repository and the source has none.
pub fn expand(workdir: &str, source: &str, item: &ItemRef) -> Result<String, String> {
    let number = item.number.to_string();
    let mut dir = workdir
        .replace("{source}", source)
        .replace("{number}", &number);
    match item.path.split_once('/') {
        Some((owner, repo)) => dir = dir.replace("{owner}", owner).replace("{repo}", repo),
        None if dir.contains("{owner}") || dir.contains("{repo}") => {
            return Err(format!(
                "workdir: {item} has neither {{owner}} nor {{repo}}"
            ));
        }
        None => {}
    }
    Ok(dir)
}

/// Rests; says whether a stop came meanwhile.
fn rest(stop: &Wake, time: Duration) -> bool {
    let mut left = Countdown::of(time);
    while !stop.raised() && !left.is_over() {
        let _ = wait::ready([Some((stop.as_fd(), For::Reading))], Some(left.slice()));
    }
    stop.raised()
}

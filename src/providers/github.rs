//! GitHub: one repository is one feed.
//!
//! # What is asked
//!
//! *The first listing* reads the open items in the order of their creation, and,
//! if the repository was watched before (a first listing that was cut, or a
//! time in the config), everything changed since then, so that what was closed
//! meanwhile is there too. *Every later one* reads the items changed since the
//! cursor, open and closed, in the order of their changes. Both read the
//! repository's comments changed since the cursor, or since it was watched;
//! older comments are baseline by their time and need not be read.
//!
//! Labels are not filtered here: an item that lost its label would look like silence.
//!
//! Each page of items is told as it comes, after the comments that precede it
//! ([`comments::Comments`]). A comment whose item no page showed is told with
//! its item, which is asked for by itself.
//!
//! # Cursor
//!
//! ```json
//! { "issues_since": "…", "comments_since": "…", "strays": [81], "first_look": ["…", "…"] }
//! ```
//!
//! The times are the tracker's: the last change seen, and at first the server's
//! clock. Asking subtracts [`OVERLAP`], for a replica may show a change late;
//! what is told again is known to the ledger. They move only as far as no row
//! can have slipped between two pages ([`pages::Pages::reach`]). A row that
//! vanishes altogether in the middle of a walk of several pages (deleted,
//! transferred) can let another slip without a sign: pages are followed by their
//! number here, and only a walk by `since` alone would be safe from it.
//!
//! `strays` are comments within the overlap whose items were asked for by
//! themselves, which is done once. `first_look` is when the first listing read
//! the open items, if that took several pages: an item closed meanwhile moves
//! the others up, so if the next listing finds one, it reads the open items again.

mod answer;
mod comments;
mod pages;
mod rows;
mod session;

use super::token::Tokens;
use super::{Ask, Feed, Out, Provider, json, tell};
use crate::config::checked::{GitHub, Source};
use crate::engine::delivery::Slug;
use crate::engine::item::{ItemRef, Kind, Sighting, State};
use crate::engine::listing::{Complete, Coverage, Cut, Heard, Listing};
use crate::engine::time::Time;
use crate::mutant;
use crate::net::{self, Client, Limits, Redirects};
use comments::Comments;
use pages::Pages;
use rows::{Place, Row};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use session::Session;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// The base of github.com's API; items elsewhere carry their host in their ref.
const PUBLIC: &str = "https://api.github.com";

/// How far behind the cursor a listing starts.
const OVERLAP: Duration = Duration::from_secs(120);

/// How far apart two of the server's clocks may be.
const SLACK: Duration = Duration::from_secs(5);

/// Lists one repository.
#[derive(Debug)]
pub struct GitHubProvider {
    client: Client,
    config: GitHub,
    /// Shared by the repositories of a source.
    tokens: Tokens,
    place: Place,
}

/// One feed per repository of `source`.
#[must_use]
pub fn open(source: &Source, config: &GitHub) -> Vec<Feed> {
    let client = Client::trusting(Limits::default(), config.ca_file.clone());
    let tokens = Tokens::new(config.token.clone());
    let repos = config.repos.iter();
    repos
        .map(|(owner, repo)| {
            let mut provider = GitHubProvider::new(client.clone(), config.clone(), owner, repo);
            provider.tokens = tokens.clone();
            let Place { host, path } = &provider.place;
            Feed {
                slug: Slug::feed(&source.name, host.as_deref(), Some(path)),
                title: path.clone(),
                template: ItemRef {
                    provider: "github".to_string(),
                    host: host.clone(),
                    path: path.clone(),
                    number: 0,
                },
                host: net::host(&config.base_url),
                scope: match (config.issues, config.pull_requests) {
                    (true, true) => String::new(),
                    (issues, pulls) => format!("issues {issues}, pull requests {pulls}"),
                },
                provider: Box::new(provider),
            }
        })
        .collect()
}

/// Whether the certificates and the proxy for `config` can be used; nothing is asked.
///
/// # Errors
/// What cannot be used, and why.
pub fn check_access(config: &GitHub) -> Result<(), String> {
    let client = Client::trusting(Limits::default(), config.ca_file.clone());
    let ready = client.check(&config.base_url);
    ready.map_err(|e| e.to_string())
}

impl GitHubProvider {
    /// The repository `owner/repo` of `config`, asked through `client`.
    #[must_use]
    pub fn new(client: Client, config: GitHub, owner: &str, repo: &str) -> GitHubProvider {
        let host = (config.base_url != PUBLIC)
            .then(|| net::host(&config.base_url))
            .flatten()
            // The number of an IPv6 host as a name.
            .map(|host| host.replace(['[', ']'], "").replace(':', "."))
            .map(|host| host.trim_start_matches('.').to_string());
        GitHubProvider {
            client,
            tokens: Tokens::new(config.token.clone()),
            place: Place {
                host,
                path: format!("{owner}/{repo}"),
            },
            config,
        }
    }
}

impl Provider for GitHubProvider {
    fn list(&mut self, ask: &Ask, out: &mut dyn Out) -> Listing {
        match self.look(ask, out) {
            Ok(complete) => Listing::Complete(complete),
            Err(cut) => Listing::Cut(cut),
        }
    }
}

/// What the cursor holds; see the module's text.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Cursor {
    issues_since: Option<Time>,
    comments_since: Option<Time>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    strays: BTreeSet<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_look: Option<(Time, Time)>,
    /// Keys a newer minor release may have added.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl GitHubProvider {
    fn look(&self, ask: &Ask, out: &mut dyn Out) -> Result<Complete, Cut> {
        let known: Cursor = ask
            .cursor
            .as_ref()
            .and_then(|c| Cursor::deserialize(c).ok())
            .unwrap_or_default();
        let from = &self.config.token;
        let token = self.tokens.read(ask).map_err(Cut::because)?;
        let mut look = Look {
            session: Session {
                client: &self.client,
                repo: format!("{}/repos/{}", self.config.base_url, self.place.path),
                token: token.map(|token| token.secret),
                access: from.as_ref().map_or_else(
                    || "the token (none is configured)".to_string(),
                    |from| from.to_string(),
                ),
                now: ask.now,
                first_date: None,
                last_date: None,
            },
            provider: self,
            ask,
            known: &known,
            out,
            comments: None,
            told: HashMap::new(),
            left_out: HashSet::new(),
            closed_during_first_look: false,
        };
        let mut next = known.clone();
        next.first_look = None;
        if let Some(since) = known.issues_since {
            let changed = look.changed(since)?;
            next.issues_since = known.issues_since.max(changed.reach());
            if look.closed_during_first_look {
                next.first_look = look.open()?.1;
            }
        } else {
            let (open, window) = look.open()?;
            next.first_look = window;
            let start = look.session.first_date;
            if let Some(watched) = ask.watch_from {
                look.changed(start.map_or(watched, |start| watched.min(start)))?;
            }
            next.issues_since = start.or(open.reach());
        }
        let strays = look.strays()?;
        if let Some(comments) = &look.comments {
            let still = known.strays.iter().copied().filter(|&id| comments.saw(id));
            next.strays = still.chain(strays).collect();
            let reach = comments.reach(next.issues_since).or(Some(look.watched()));
            next.comments_since = known.comments_since.max(reach);
            // Comments read again later need their items read again with them.
            next.issues_since = known.issues_since.max(next.issues_since.min(reach));
        }
        Ok(Complete {
            cursor: match &ask.cursor {
                Some(cursor) if next == known => cursor.clone(),
                _ => serde_json::to_value(&next)
                    .map_err(|e| Cut::because(format!("cannot write the cursor: {e}")))?,
            },
            coverage: match mutant::is("silence-is-an-end") {
                true => Coverage::Everything {
                    present: look.told.keys().copied().collect(),
                },
                false => Coverage::Changes {
                    missing: Vec::new(),
                },
            },
        })
    }

    fn wants(&self, kind: Kind) -> bool {
        match kind {
            Kind::Issue => self.config.issues,
            Kind::PullRequest => self.config.pull_requests,
        }
    }
}

/// One listing under way.
struct Look<'a> {
    session: Session<'a>,
    provider: &'a GitHubProvider,
    ask: &'a Ask,
    known: &'a Cursor,
    out: &'a mut dyn Out,
    /// There after the first page of items.
    comments: Option<Comments>,
    /// The items told or reported, as of when.
    told: HashMap<u64, Option<Time>>,
    /// Items whose comments are nobody's: of a kind not watched, or unreadable.
    left_out: HashSet<u64>,
    /// An item left the list of open ones while the first listing read it.
    closed_during_first_look: bool,
}

impl Look<'_> {
    /// Tells the open items; says from when to when that took, if it took
    /// several pages.
    fn open(&mut self) -> Result<(Pages, Option<(Time, Time)>), Cut> {
        let query = "state=open&sort=created&direction=asc&per_page=100";
        let start = self.session.last_date;
        let pages = self.items(query.to_string())?;
        let start = start.or(self.session.first_date);
        let window = (pages.pages() > 1).then_some(start.zip(self.session.last_date));
        Ok((pages, window.flatten()))
    }

    /// Tells the items changed since a time.
    fn changed(&mut self, time: Time) -> Result<Pages, Cut> {
        self.items(format!(
            "state=all&sort=updated&direction=asc&per_page=100&since={}",
            since(time)
        ))
    }

    fn items(&mut self, query: String) -> Result<Pages, Cut> {
        let url = format!("{}/issues?{query}", self.session.repo);
        let mut pages = Pages::new(url, "number");
        while let Some(rows) = pages.next(&mut self.session)? {
            self.cover(rows.iter().filter_map(|row| row.updated_at).max())?;
            for row in rows {
                self.tell(row)?;
            }
        }
        Ok(pages)
    }

    /// When the repository was first watched, as far as we know.
    fn watched(&self) -> Time {
        self.ask
            .watch_from
            .or(self.session.first_date)
            .unwrap_or(self.ask.now)
    }

    /// Has the comments read that precede items last changed at `newest`.
    fn cover(&mut self, newest: Option<Time>) -> Result<(), Cut> {
        if self.comments.is_none()
            && let Some(date) = self.session.first_date
        {
            tell(self.out, Heard::Clock(date))?;
        }
        let from = self.known.comments_since.unwrap_or(self.watched());
        let comments = self.comments.get_or_insert_with(|| Comments::new(from));
        comments.cover(newest, &mut self.session)?;
        let path = &self.provider.place.path;
        for (what, reason) in comments.take_odd() {
            let what = format!("{path} {what}");
            tell(self.out, Heard::Unreadable { what, reason })?;
        }
        Ok(())
    }

    /// Tells one item, with the comments waiting for it; once, unless it changed
    /// or was commented on since.
    fn tell(&mut self, row: Row) -> Result<(), Cut> {
        let place = &self.provider.place;
        let comments = self.comments.as_mut();
        let comments = match (comments, row.key) {
            (Some(comments), Some(number)) => comments.take(number),
            _ => Vec::new(),
        };
        if let Some(number) = row.key
            && self.told.insert(number, row.updated_at) == Some(row.updated_at)
            && comments.is_empty()
        {
            return Ok(());
        }
        let item = match rows::item(&row, place) {
            Ok(item) => item,
            Err(reason) => {
                self.left_out.extend(row.key);
                let what = match row.key {
                    Some(number) => format!("{}#{number}", place.path),
                    None => format!("an item of {}", place.path),
                };
                return tell(self.out, Heard::Unreadable { what, reason });
            }
        };
        let number = item.item_ref.number;
        if let (Some((from, to)), Some(at)) = (self.known.first_look, item.closed_at)
            && item.state != State::Open
            && at.plus(SLACK) >= from
            && at <= to.plus(SLACK)
        {
            self.closed_during_first_look = true;
        }
        if !self.provider.wants(item.kind) {
            self.left_out.insert(number);
            return Ok(());
        }
        let sighting = Sighting { item, comments };
        tell(self.out, Heard::Sighting(Box::new(sighting)))
    }

    /// Tells the comments whose items no page showed; says which those are.
    ///
    /// Those that come in while this goes on wait for the next listing, whose
    /// pages will show their items; a busy repository would never let us end.
    fn strays(&mut self) -> Result<Vec<u64>, Cut> {
        self.drop_nobodys();
        let waiting = self.comments.iter().flat_map(|c| c.waiting());
        let strays: Vec<(u64, Vec<u64>)> = waiting
            .map(|(&number, waiting)| (number, waiting.iter().map(|w| w.id).collect()))
            .collect();
        for &(number, _) in &strays {
            match self.item(number)? {
                Ok(row) => {
                    self.cover(row.updated_at)?;
                    self.tell(row)?;
                }
                Err(reason) => {
                    self.left_out.insert(number);
                    let what = format!("{}#{number}", self.provider.place.path);
                    tell(self.out, Heard::Unreadable { what, reason })?;
                }
            }
        }
        self.drop_nobodys();
        Ok(strays.into_iter().flat_map(|(_, ids)| ids).collect())
    }

    /// Drops the comments that no listing has to tell: of items left out, made
    /// before the repository was watched, or told as strays before.
    fn drop_nobodys(&mut self) {
        let watched = self.watched();
        if let Some(comments) = &mut self.comments {
            comments.retain(|number, waiting| {
                !self.left_out.contains(&number)
                    && waiting.iter().any(|w| {
                        w.comment.created_at >= watched && !self.known.strays.contains(&w.id)
                    })
            });
        }
    }

    /// Asks for one item; the inner error is why there is none.
    fn item(&mut self, number: u64) -> Result<Result<Row, String>, Cut> {
        let url = format!("{}/issues/{number}", self.session.repo);
        let answer = self.session.get(&url, Redirects::Never)?;
        match answer.status {
            200 => {}
            301 => return Ok(Err("it was moved to another repository".to_string())),
            404 => return Ok(Err("it is not there, or may not be read".to_string())),
            410 => return Ok(Err("it was deleted".to_string())),
            _ => return Err(self.session.refusal(&answer)),
        }
        let text = json::mend(&answer.body);
        let raw: &RawValue =
            json::parse(&text).map_err(|e| answer::unreadable(&answer, "an item", &e))?;
        let row = Row::new(raw, "number");
        Ok(if row.key == Some(number) {
            Ok(row)
        } else {
            Err("another item was answered for it".to_string())
        })
    }
}

/// The `since` to ask with for what changed at `time` or later.
fn since(time: Time) -> String {
    let overlap = u64::try_from(OVERLAP.as_millis()).unwrap_or(0);
    let time = Time(time.0.saturating_sub(overlap)).to_string();
    // Whole seconds, rounded down, which is the safe side.
    format!("{}Z", &time[..19])
}

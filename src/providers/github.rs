//! GitHub: one repository is one feed.
//!
//! # What is asked
//!
//! *Every listing* reads the items changed since the last one, open and closed, in
//! the order of their changes, and what was said since: comments, comments on
//! lines of diffs, and the reviews of the pull requests that changed. Each of these is a list that is
//! asked for from where it is known ([`cursor::Window`]), and not at all, or "not
//! modified", where nothing can have changed. So an idle cycle is one request, three with
//! pull requests, whatever the number of items.
//!
//! *The first listing* reads the open items besides; comments older than the
//! watch are baseline by their time and need not be read. *A sweep*
//! ([`sweep`]) does so again now and then, to notice what no list shows, and reads
//! once more what the listings since the last sweep have read.
//!
//! Labels are not filtered by the server where changes are read: an item that lost its label would
//! look like silence. When an item got its label is asked for where it matters ([`labels`]).
//!
//! Each page of items is told as it comes, after what was said before it
//! ([`talk::Talk`]). What was said of an item no page showed is told with
//! its item, which is asked for by itself.
//!
//! # What is not believed
//!
//! GitHub answers from replicas, and one may be a minute behind another. So
//! windows overlap, what is told again is known to the ledger, and an item that
//! ended within the last minute is told as ended by a later listing: its last
//! comments may not be visible yet.
//!
//! A name can come to mean another repository. Before anything new is told, the
//! repository's number is compared with the one first seen.

mod answer;
pub mod app;
mod cursor;
mod identity;
pub mod inspect;
mod labels;
mod limits;
pub mod rows;
mod session;
mod strays;
mod sweep;
mod talk;
mod unread;
mod upstream;
mod walk;

use super::token::{Token, Tokens};
use super::{Ask, Feed, Out, Provider, tell};
use crate::config::checked::{GitHub, Source, TokenFrom};
use crate::engine::access::Policy;
use crate::engine::delivery::Slug;
use crate::engine::item::{Item, ItemRef, Kind, Sighting, State};
use crate::engine::listing::{Complete, Coverage, Cut, Heard, Listing};
use crate::engine::time::Time;
use crate::mutant;
use crate::net::{self, Client};
use app::AppTokens;
use cursor::{Cursor, Identity, Window};
use limits::Limits;
use rows::{Place, Row};
use serde::Deserialize;
use session::Session;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use talk::{Asks, Talk};
use unread::Unreads;
use walk::{Ascending, Page};

/// The base of github.com's API; items elsewhere carry their host in their ref.
const PUBLIC: &str = "https://api.github.com";

/// How much later than another replica one may show a change.
const LATE: Duration = Duration::from_secs(60);

/// Lists one repository.
#[derive(Debug)]
pub struct GitHubProvider {
    client: Client,
    config: GitHub,
    policy: Policy,
    /// Shared by the repositories of a source.
    tokens: Tokens,
    place: Place,
    /// Somebody takes what GitHub's webhook would have sent.
    webhooks: bool,
    /// The repository as a webhook shows it, once it was asked for.
    repository: RefCell<Option<Arc<str>>>,
    /// The App's installation that the token is of, likewise.
    installation: Option<Arc<str>>,
}

/// One feed per repository of `source`.
#[must_use]
pub fn open(source: &Source, config: &GitHub) -> Vec<Feed> {
    let client = Client::trusting(net::Limits::default(), config.ca_file.clone());
    let tokens = Tokens::new(config.token.clone(), &client, &config.base_url);
    let repos = config.repos.iter();
    repos
        .map(|(owner, repo)| {
            let (client, policy) = (client.clone(), source.policy.clone());
            let mut provider = GitHubProvider::new(client, config.clone(), policy, owner, repo);
            provider.tokens = tokens.clone();
            provider.webhooks = !source.webhook_sinks.is_empty();
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

/// What lets us in, for the user: `the token file …`.
fn access(config: &GitHub) -> String {
    config.token.as_ref().map_or_else(
        || "the token (none is configured)".to_string(),
        |from| from.to_string(),
    )
}

/// Whether the certificates, the proxy and an App's key for `config` can be used; nothing is asked.
///
/// # Errors
/// What cannot be used, and why.
pub fn check_access(config: &GitHub) -> Result<(), String> {
    let client = Client::trusting(net::Limits::default(), config.ca_file.clone());
    if let Some(TokenFrom::App(app)) = &config.token {
        AppTokens::new(app.clone(), client.clone(), &config.base_url).check()?;
    }
    let ready = client.check(&config.base_url);
    ready.map_err(|e| e.to_string())
}

impl GitHubProvider {
    /// The repository `owner/repo` of `config`, asked through `client`, for the
    /// items `policy` wants.
    #[must_use]
    pub fn new(
        client: Client,
        config: GitHub,
        policy: Policy,
        owner: &str,
        repo: &str,
    ) -> GitHubProvider {
        let host = (config.base_url != PUBLIC)
            .then(|| net::host(&config.base_url))
            .flatten()
            // The number of an IPv6 host as a name.
            .map(|host| host.replace(['[', ']'], "").replace(':', "."))
            .map(|host| host.trim_start_matches('.').to_string());
        GitHubProvider {
            tokens: Tokens::new(config.token.clone(), &client, &config.base_url),
            client,
            place: Place {
                host,
                path: format!("{owner}/{repo}"),
            },
            webhooks: false,
            repository: RefCell::new(None),
            installation: match &config.token {
                Some(TokenFrom::App(app)) => Some(upstream::installation(app.installation_id)),
                _ => None,
            },
            config,
            policy,
        }
    }

    fn wants(&self, kind: Kind) -> bool {
        match kind {
            Kind::Issue => self.config.issues,
            Kind::PullRequest => self.config.pull_requests,
        }
    }

    /// Begins a listing.
    fn session<'a>(
        &'a self,
        known: Option<&Cursor>,
        token: Option<Token>,
        cycle: Time,
        limits: &'a mut Limits,
    ) -> Session<'a> {
        let base = &self.config.base_url;
        Session {
            client: &self.client,
            // Where a repository was found under another name it is asked for by its number,
            // whoever takes the old name next.
            repo: match known.and_then(|known| known.repo.as_ref()) {
                Some(Identity { id, name: Some(_) }) if !mutant::is("renamed-asked-by-name") => {
                    format!("{base}/repositories/{id}")
                }
                _ => format!("{base}/repos/{}", self.place.path),
            },
            token: token.map(|token| token.secret),
            tokens: &self.tokens,
            cycle,
            access: access(&self.config),
            limits,
            first_date: None,
            last_date: None,
            halved: 0,
            moved: false,
            failed_items: 0,
            of_item: false,
            asked_item: false,
            keeps: self.webhooks,
        }
    }
}

impl Provider for GitHubProvider {
    fn list(&mut self, ask: &Ask, out: &mut dyn Out) -> Listing {
        let stored = ask.cursor.as_ref();
        let known = stored.and_then(|stored| Cursor::deserialize(stored).ok());
        let token = match self.tokens.read(ask) {
            Ok(token) => token,
            Err(reason) => return Listing::Cut(Cut::because(reason)),
        };
        let host = net::host(&self.config.base_url).unwrap_or_default();
        let mut limits = Limits::new(&host, token.as_ref(), ask);
        let session = self.session(known.as_ref(), token, ask.cycle, &mut limits);
        let listed = Look::new(self, session, ask, known.clone(), out).listing();
        // Nobody listens any more if this is not heard.
        let _ = out.tell(Heard::Budget(limits.told(listed.is_ok())));
        match listed {
            Ok((next, missing)) => {
                let cursor = match stored {
                    Some(stored) if known.as_ref() == Some(&next) => Ok(stored.clone()),
                    _ => serde_json::to_value(&next),
                };
                match cursor {
                    Ok(cursor) => Listing::Complete(Complete {
                        cursor,
                        coverage: Coverage::Changes { missing },
                    }),
                    Err(e) => Listing::Cut(Cut::because(format!("cannot write the cursor: {e}"))),
                }
            }
            Err(cut) => Listing::Cut(cut),
        }
    }
}

/// One listing under way.
struct Look<'a> {
    session: Session<'a>,
    provider: &'a GitHubProvider,
    ask: &'a Ask,
    /// Where the last listing left off, if there was one.
    known: Option<Cursor>,
    out: &'a mut dyn Out,
    talk: Talk,
    /// The clock was told.
    watching: bool,
    /// The repository is known to be the right one.
    repo: Option<Identity>,
    identified: bool,
    /// The items told or reported, as of when.
    told: HashMap<u64, Option<Time>>,
    /// Those of them that are no longer being worked on.
    ended: HashSet<u64>,
    /// Items that were read by themselves, or tried: once in a listing.
    tried: HashSet<u64>,
    /// Items whose comments are nobody's: of a kind not watched, or unreadable.
    left_out: HashSet<u64>,
    /// The oldest change of an item that is left for a later listing.
    held: Option<Time>,
    held_items: HashSet<u64>,
    /// What the sweep finds left for the next listing.
    left: HashSet<u64>,
    /// Ended items whose label was asked for, as of when.
    labels: BTreeMap<u64, Time>,
    /// That the label is still there.
    label_stands: bool,
    /// The label as it was sent then, where that is kept.
    lost_label: Option<Arc<str>>,
    /// What is told now should be known: nothing that changed later is.
    limit: Option<Time>,
}

impl<'a> Look<'a> {
    fn new(
        provider: &'a GitHubProvider,
        session: Session<'a>,
        ask: &'a Ask,
        known: Option<Cursor>,
        out: &'a mut dyn Out,
    ) -> Look<'a> {
        let nothing = Asks {
            comments: false,
            reviews: false,
        };
        let unread = known.as_ref().map(|known| Unreads::new(&known.unread));
        let unread = unread.unwrap_or_default();
        Look {
            session,
            provider,
            ask,
            out,
            talk: Talk::since(&Cursor::default(), nothing, None, unread),
            watching: false,
            repo: known.as_ref().and_then(|known| known.repo.clone()),
            identified: false,
            known,
            told: HashMap::new(),
            ended: HashSet::new(),
            tried: HashSet::new(),
            left_out: HashSet::new(),
            held: None,
            held_items: HashSet::new(),
            left: HashSet::new(),
            labels: BTreeMap::new(),
            label_stands: false,
            lost_label: None,
            limit: None,
        }
    }

    /// Lists; says where the next listing goes on, and who is missing.
    fn listing(mut self) -> Result<(Cursor, Vec<u64>), Cut> {
        let Some(known) = self.known.clone() else {
            return self.first();
        };
        let asks = Asks {
            comments: !known.issues.is_settled() || !known.comments.is_settled(),
            reviews: self.provider.config.pull_requests,
        };
        let mut next = known.clone();
        self.increment(&known, asks, &mut next)?;
        self.note_labels(&mut next);
        if self.session.moved {
            // What it is called now is said at once, and not only when it has news.
            self.identify()?;
        }
        let missing = self.sweep_if_due(&known, &mut next)?;
        self.end(&mut next)?;
        Ok((next, missing))
    }

    /// Notes what is left for later listings, and says what keeps being wrong.
    fn end(&mut self, next: &mut Cursor) -> Result<(), Cut> {
        next.repo = self.repo.clone();
        // What came in since the lists were read waits for them.
        self.talk.leave_unread(self.session.clock());
        next.unread = self.talk.unread.all().clone();
        let path = &self.provider.place.path;
        if let Some(reason) = next.none_left.clone() {
            let what = path.clone();
            tell(self.out, Heard::Unreadable { what, reason })?;
        }
        for (number, unread) in &next.unread {
            if !unread.reason.is_empty() {
                let (what, reason) = (format!("{path}#{number}"), unread.reason.clone());
                tell(self.out, Heard::Unreadable { what, reason })?;
            }
        }
        Ok(())
    }

    /// The first listing: what is open, and what changed since the watch began.
    fn first(mut self) -> Result<(Cursor, Vec<u64>), Cut> {
        // The watch begins with the first answer, be it a refusal.
        let identified = self.identify();
        self.watch()?;
        identified?;
        let start = self.session.first_date.unwrap_or(self.ask.now);
        let from = Window::from(self.watched().min(start));
        let known = Cursor {
            repo: self.repo.clone(),
            issues: from.clone(),
            comments: from.clone(),
            review_comments: from.clone(),
            pulls: from,
            swept_at: Some(start),
            ..Cursor::default()
        };
        let asks = Asks {
            comments: true,
            reviews: self.provider.config.pull_requests,
        };
        let mut next = known.clone();
        self.increment(&known, asks, &mut next)?;
        // Whoever was worked on under other rules shows up whatever labels it carries now.
        let listed = self.open_items(!self.ask.open.is_empty())?;
        self.note_labels(&mut next);
        let missing = self.look_for_absent(listed, &mut next)?;
        self.end(&mut next)?;
        Ok((next, missing))
    }

    /// Reads and tells what changed since `from`.
    fn increment(&mut self, from: &Cursor, asks: Asks, next: &mut Cursor) -> Result<(), Cut> {
        let unread = std::mem::take(&mut self.talk.unread);
        self.talk = Talk::since(from, asks, self.limit, unread);
        let window = &from.issues;
        let mut walk = Ascending::new("/issues?state=all", Some(window.since), "number");
        loop {
            let rows = match walk.next(&mut self.session, window.unchanged.as_ref())? {
                Page::Rows(rows) => rows,
                Page::NotModified => Vec::new(),
                Page::End => break,
            };
            // A comment changes its item, so where no item changed nothing was said, but
            // in reviews and on lines.
            let asks = Asks {
                comments: asks.comments || !rows.is_empty() && !mutant::is("comments-not-asked"),
                ..asks
            };
            self.talk.ask(asks);
            self.cover(rows.iter().filter_map(|row| row.updated_at).max())?;
            for row in rows {
                self.tell(&row)?;
            }
        }
        self.strays()?;
        self.unread_pulls()?;
        self.talk.leave_unread(self.session.clock());
        next.issues = window.after(walk.reading()).reaching(self.held);
        self.talk.note(next);
        Ok(())
    }

    /// Leaves in `next` whose label need not be asked for again: what the window brings again.
    fn note_labels(&self, next: &mut Cursor) {
        let window = &next.issues;
        let again = |at: Time| !window.is_settled() && at >= window.since;
        let labels = self.labels.iter().filter(|(_, at)| again(**at));
        next.labels = labels.map(|(number, at)| (*number, *at)).collect();
    }

    /// When the repository was first watched, as far as we know.
    fn watched(&self) -> Time {
        self.ask
            .watch_from
            .or(self.session.first_date)
            .unwrap_or(self.ask.now)
    }

    /// Says the server's clock, once.
    fn watch(&mut self) -> Result<(), Cut> {
        if !self.watching
            && let Some(date) = self.session.first_date
        {
            self.watching = true;
            tell(self.out, Heard::Clock(date))?;
        }
        Ok(())
    }

    /// Has read what was said before items last changed at `newest`.
    fn cover(&mut self, newest: Option<Time>) -> Result<(), Cut> {
        self.watch()?;
        let (provider, ask) = (self.provider, self.ask);
        let wants = |number, row: &Row| {
            ask.open.contains(number)
                || rows::item(row, &provider.place)
                    .is_ok_and(|item| provider.policy.wants(&item.labels))
        };
        self.talk.cover(newest, &mut self.session, &wants)?;
        let path = &self.provider.place.path;
        for (what, reason) in self.talk.take_odd() {
            let what = format!("{path} {what}");
            tell(self.out, Heard::Unreadable { what, reason })?;
        }
        Ok(())
    }

    /// Tells one item, with what was said of it; once, unless it changed or
    /// something was said since.
    fn tell(&mut self, row: &Row) -> Result<(), Cut> {
        let place = &self.provider.place;
        if let Some(number) = row.key
            && self
                .limit
                .is_some_and(|limit| row.updated_at.is_none_or(|at| at > limit))
            && self.told.get(&number) != Some(&row.updated_at)
        {
            // It changed after what is read again now, and the next listing tells it.
            self.held_items.insert(number);
            return Ok(());
        }
        if let (Some(number), true) = (row.key, self.limit.is_some())
            && (self.talk.unread.contains(number) || self.left.contains(&number))
        {
            // It is read by itself, or by the next listing, which is no news that was missed.
            self.held_items.insert(number);
            return Ok(());
        }
        let mut item = match rows::item(row, place) {
            Ok(item) => item,
            Err(reason) => {
                if let Some(number) = row.key {
                    // It may be as it should again, and then what was said of it is due.
                    self.held_items.insert(number);
                    self.leave_unread(number, reason);
                    return Ok(());
                }
                let what = format!("an item of {}", place.path);
                return tell(self.out, Heard::Unreadable { what, reason });
            }
        };
        let number = item.item_ref.number;
        if !self.provider.wants(item.kind) {
            self.left_out.insert(number);
            return Ok(());
        }
        let unread = self.talk.unread.contains(number);
        if self.told.get(&number) == Some(&row.updated_at) && !self.waits(number) && !unread {
            return Ok(());
        }
        self.identify()?;
        let read = !unread || self.is_read_again(number, item.kind)?;
        if !read && self.talk.unread.is_new(number, self.session.clock()) {
            // For a while its order is worth more than its haste.
            self.held_items.insert(number);
            return Ok(());
        }
        let wanted = self.provider.policy.wants(&item.labels);
        let known = self.ask.open.contains(number) || self.told.contains_key(&number);
        let ended = item.state != State::Open || !wanted;
        if item.state == State::Open && !wanted && self.ask.open.contains(number) {
            self.label_must_stand()?;
        }
        let active = match self.told.contains_key(&number) {
            true => !self.ended.contains(&number),
            false => self.ask.open.contains(number),
        };
        if active && !wanted {
            // It may be talked about for hours after it lost its label, or closed.
            item.unlabelled_at = self.unlabelled_at(number)?;
            if item.unlabelled_at.is_none() {
                self.held_items.insert(number);
                return Ok(());
            }
        }
        let ends = item.closed_at.into_iter().chain(item.unlabelled_at);
        if ended
            && (known || wanted)
            && let Some(at) = ends.min().or(row.updated_at)
            && !self.talk.knows_all_before(at)
            && !mutant::is("ends-told-at-once")
        {
            if active {
                self.tell_before(at, row, &item)?;
            }
            self.hold(number, row);
            return Ok(());
        }
        if wanted && !active && ended && !self.waits(number) && self.is_labelled_as_before(row) {
            // It was told so by the listing before.
            self.labels.extend(row.key.zip(row.updated_at));
            return Ok(());
        }
        // What is read late may have been said while the label was off.
        let asks_for_label = wanted && (!active || unread && read);
        if asks_for_label && !self.label_times(row, &mut item)? {
            return Ok(());
        }
        if !ended && !active && !unread && !self.catch_up_with_stranger(&item)? {
            self.held_items.insert(number);
            return Ok(());
        }
        let may_begin =
            (!active || self.known.is_none()) && self.provider.policy.authorizes(&item.author);
        let itself = (wanted || active)
            && (ended || may_begin)
            && (active || !self.is_labelled_as_before(row));
        let concerns = self.concerns(number, itself);
        let whole = self.add_upstream(row, &mut item, concerns)?;
        if !whole && self.talk.unread.is_new(number, self.session.clock()) {
            self.held_items.insert(number);
            return Ok(());
        }
        if unread && read && whole {
            self.talk.unread.remove(number);
        }
        self.told.insert(number, row.updated_at);
        if ended {
            self.ended.insert(number);
        } else {
            self.ended.remove(&number);
        }
        let comments = self.talk.take(number, self.session.last_date);
        if !read && self.talk.is_caught_up(number) {
            let known = cursor::before(self.session.clock(), cursor::OVERLAP);
            self.talk.unread.move_on(number, known);
        }
        let sighting = Sighting { item, comments };
        tell(self.out, Heard::Sighting(Box::new(sighting)))
    }

    /// Tells what was said of an item being worked on before its end at `at`, which is too
    /// young to be told.
    fn tell_before(&mut self, at: Time, row: &Row, item: &Item) -> Result<(), Cut> {
        let number = item.item_ref.number;
        if !self.waits(number) {
            return Ok(());
        }
        let concerns = self.concerns(number, false);
        // As it was when that was said.
        let mut item = item.clone();
        item.state = State::Open;
        item.closed_at = None;
        item.unlabelled_at = None;
        if !self.add_upstream(row, &mut item, concerns)? {
            return Ok(());
        }
        let comments = self.talk.take_before(number, at, self.session.last_date);
        if comments.is_empty() || mutant::is("the-end-holds-all") {
            return Ok(());
        }
        let label = self.provider.policy.label.clone();
        let label = label.filter(|_| !self.provider.policy.wants(&item.labels));
        item.labels.extend(label);
        tell(
            self.out,
            Heard::Sighting(Box::new(Sighting { item, comments })),
        )
    }

    /// Leaves an item, and what was said of it, for the next listing.
    fn hold(&mut self, number: u64, row: &Row) {
        self.held_items.insert(number);
        let at = row.updated_at.or(self.session.last_date);
        self.held = self.held.into_iter().chain(at).min();
    }

    /// Whether something waits for the item `number` that can be told.
    fn waits(&self, number: u64) -> bool {
        self.talk.waits_for(number, self.session.last_date)
    }
}

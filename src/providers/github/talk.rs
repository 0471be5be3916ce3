//! What was said in a repository: the comments, reviews and line comments a listing brings.

use super::LATE;
use super::cursor::{Cursor, OVERLAP, Reading, Window, before, stamp};
use super::rows::{self, Row};
use super::session::Session;
use super::unread::Unreads;
use super::walk::{Ascending, Linked, Page, rows_of_item};
use crate::engine::item::{Channel, Comment, Kind};
use crate::engine::listing::Cut;
use crate::engine::time::Time;
use crate::mutant;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// A row whose times differ by less was not changed after it was made.
const SAME: Duration = Duration::from_secs(2);

/// Pull requests on a page where none is expected to have moved: their rows are long.
const PULLS: u32 = 30;

/// And where some are.
const MANY: u32 = 100;

/// What was said since the last listing, by item, until it is told.
///
/// All conversations are read to their end after a page of items and before that
/// page is told, so that an item's end is never told before what was said
/// before it. What is kept in memory is what was said since the last listing.
#[derive(Debug)]
pub struct Talk {
    windows: Windows,
    /// Which conversations are read.
    asks: Asks,
    /// Nothing that changed later is taken in.
    limit: Option<Time>,
    /// By item.
    waiting: BTreeMap<u64, Vec<Waiting>>,
    /// What was told already, as of when.
    told: BTreeMap<String, Time>,
    /// The items that could not be read whole.
    pub unread: Unreads,
    /// Pull requests whose reviews could not be read: what depends on them waits.
    without_reviews: BTreeSet<u64>,
    /// Items whose comments were read by themselves.
    caught_up: HashSet<u64>,
    /// Pull requests that changed and are nobody's.
    unwanted: HashSet<u64>,
    /// What this listing ever took in.
    taken: HashSet<(Channel, u64)>,
    /// Rows nobody can use: which one, and why.
    odd: Vec<(String, String)>,
    /// All that was said up to this server time is known, as far as the server showed it.
    horizon: Option<Time>,
    read_once: bool,
    /// The pull requests that changed, as their own list shows them.
    pulls: HashMap<u64, Row>,
    /// The repository's number, where a row told it.
    pub repository: Option<u64>,
}

/// How much of each conversation is known.
#[derive(Debug, Clone, Default)]
struct Windows {
    comments: Window,
    review_comments: Window,
    pulls: Window,
}

/// Which conversations are read.
#[derive(Debug, Clone, Copy)]
pub struct Asks {
    /// The items' own.
    pub comments: bool,
    /// Those of pull requests.
    pub reviews: bool,
}

/// Something that was said and not told yet.
#[derive(Debug)]
pub struct Waiting {
    /// When it last changed.
    pub updated_at: Time,
    /// It.
    pub comment: Comment,
    /// Its review may say that it was made public later than it was made, and is not known yet.
    unsure: bool,
}

impl Waiting {
    /// Whether it was said after `watched`, as far as is known.
    pub fn may_be_due(&self, watched: Time) -> bool {
        // A draft was made before it was said.
        self.unsure || self.comment.created_at >= watched
    }

    /// Whether it can be told at the server's time `now`; `unread` if the reviews
    /// of its pull request could not be read.
    fn is_ready(&self, unread: bool, now: Option<Time>) -> bool {
        !self.unsure || !unread && !is_young(self.updated_at, now)
    }
}

/// Whether some replica may not know yet, at the server's time `now`, what happened at `at`.
pub fn is_young(at: Time, now: Option<Time>) -> bool {
    now.is_some_and(|now| now < at.plus(LATE))
}

impl Talk {
    /// What was said since `known`.
    pub fn since(known: &Cursor, asks: Asks, limit: Option<Time>, unread: Unreads) -> Talk {
        Talk {
            windows: Windows {
                comments: known.comments.clone(),
                review_comments: known.review_comments.clone(),
                pulls: known.pulls.clone(),
            },
            asks,
            limit,
            waiting: BTreeMap::new(),
            told: known.told.clone(),
            unread,
            without_reviews: BTreeSet::new(),
            caught_up: HashSet::new(),
            unwanted: HashSet::new(),
            taken: HashSet::new(),
            odd: Vec::new(),
            horizon: None,
            read_once: false,
            pulls: HashMap::new(),
            repository: None,
        }
    }

    /// Makes sure that all that was said before `newest` is here, `newest` being
    /// the last change of the items about to be told. `wants` says whether the reviews
    /// of a pull request matter.
    ///
    /// # Errors
    /// When a page is not to be had.
    pub fn cover(
        &mut self,
        newest: Option<Time>,
        session: &mut Session<'_>,
        wants: &dyn Fn(u64, &Row) -> bool,
    ) -> Result<(), Cut> {
        if self.read_once && newest.is_none_or(|newest| self.horizon.is_some_and(|h| newest < h)) {
            return Ok(());
        }
        let mut horizon = None;
        if self.asks.comments {
            let window = self.windows.comments.clone();
            let reading = self.read("/issues/comments", &window, rows::comment, session)?;
            horizon = reading.date;
            self.windows.comments = window.after(&reading);
        }
        if self.asks.reviews {
            let window = self.windows.review_comments.clone();
            let reading = self.read("/pulls/comments", &window, rows::review_comment, session)?;
            horizon = horizon.or(reading.date);
            self.windows.review_comments = window.after(&reading);
            self.reviews(session, wants)?;
        }
        self.read_once = true;
        // Where nothing had to be asked, the items' own list is what we go by.
        self.horizon = horizon.or(session.last_date);
        Ok(())
    }

    /// Reads one conversation to its end.
    fn read(
        &mut self,
        list: &str,
        window: &Window,
        read: fn(&Row) -> Result<(u64, Comment), String>,
        session: &mut Session<'_>,
    ) -> Result<Reading, Cut> {
        let mut walk = Ascending::new(list, Some(window.since), "id");
        loop {
            match walk.next(session, window.unchanged.as_ref())? {
                Page::NotModified | Page::End => return Ok(walk.reading().clone()),
                Page::Rows(rows) => {
                    let what = list.rsplit_once('/').map_or("", |(above, _)| above);
                    self.take_in_all(rows, what, read, None);
                }
            }
        }
    }

    fn take_in_all(
        &mut self,
        rows: Vec<Row>,
        what: &str,
        read: fn(&Row) -> Result<(u64, Comment), String>,
        of: Option<u64>,
    ) {
        for row in rows {
            match read(&row) {
                Ok((number, _)) if of.is_some_and(|of| of != number) => {}
                Ok((number, comment)) => self.take_in(&row, number, comment),
                Err(reason) => self.leave(&row, what, reason),
            }
        }
    }

    /// Reads the reviews of the pull requests that changed.
    fn reviews(
        &mut self,
        session: &mut Session<'_>,
        wants: &dyn Fn(u64, &Row) -> bool,
    ) -> Result<(), Cut> {
        let window = self.windows.pulls.clone();
        // Line comments that were not public when they were made became so with their review.
        let mut moved: BTreeSet<u64> = self.drafted();
        let (mut reading, pages) = self.moved(&window, session, wants, &mut moved)?;
        if pages > 1 {
            // A page from a replica behind the one before it leaves rows out between them.
            let (again, _) = self.moved(&window, session, wants, &mut moved)?;
            reading.saw(again.newest);
        }
        moved.retain(|number| !self.unwanted.contains(number));
        for number in moved {
            if self.unread.contains(number) {
                // It is read by itself.
                self.without_reviews.insert(number);
            } else if let Err(reason) = self.reviews_of(number, session)? {
                let asked = session.asked_item;
                self.unread.note(number, reason, session.clock(), asked);
            }
        }
        self.windows.pulls = window.after(&reading);
        Ok(())
    }

    /// Reads which pull requests changed; says what that found, and on how many pages.
    fn moved(
        &mut self,
        window: &Window,
        session: &mut Session<'_>,
        wants: &dyn Fn(u64, &Row) -> bool,
        moved: &mut BTreeSet<u64>,
    ) -> Result<(Reading, usize), Cut> {
        let list = "/pulls?state=all&sort=updated&direction=desc";
        // While nothing moves the first few rows say so, though they are long.
        let size = if window.is_settled() { PULLS } else { MANY };
        let mut walk = Linked::new(format!("{}{list}", session.repo), "number", size);
        let mut reading = Reading::default();
        let mut pages = 0;
        loop {
            let rows = match walk.next(session, window.unchanged.as_ref())? {
                Page::NotModified | Page::End => break,
                Page::Rows(rows) => rows,
            };
            pages += 1;
            reading.date = walk.reading.date;
            reading.clock = walk.reading.clock;
            for row in rows {
                self.repository = self.repository.or(rows::repository(&row));
                if row.updated_at.is_some_and(|at| at < window.since) {
                    // All that follow are older.
                    walk.stop();
                    continue;
                }
                reading.saw(row.updated_at);
                match row.key {
                    Some(number) if wants(number, &row) => {
                        moved.insert(number);
                        self.pulls.insert(number, row);
                    }
                    Some(number) => drop(self.unwanted.insert(number)),
                    None => {}
                }
            }
        }
        reading.date = walk.reading.date;
        if reading.newest.is_none() {
            reading.empty = walk.reading.empty.clone();
        }
        Ok((reading, pages))
    }

    /// Reads all that was said of one item since `since`; the inner error is why that could not be.
    ///
    /// # Errors
    /// When nothing more may be asked with this token.
    pub fn catch_up(
        &mut self,
        number: u64,
        since: Time,
        kind: Kind,
        session: &mut Session<'_>,
    ) -> Result<Result<(), String>, Cut> {
        let since = stamp(before(since, Duration::from_secs(1)));
        let comments = format!("/issues/{number}/comments?since={since}");
        match rows_of_item(session, &comments)? {
            Ok(rows) => self.take_in_all(rows, "/issues", rows::comment, Some(number)),
            Err(reason) => return Ok(Err(reason)),
        }
        if kind == Kind::Issue || !self.asks.reviews {
            self.caught_up.insert(number);
            return Ok(Ok(()));
        }
        let lines = format!("/pulls/{number}/comments?since={since}");
        match rows_of_item(session, &lines)? {
            Ok(rows) => self.take_in_all(rows, "/pulls", rows::review_comment, Some(number)),
            Err(reason) => return Ok(Err(reason)),
        }
        self.caught_up.insert(number);
        self.reviews_of(number, session)
    }

    /// Whether the item's comments and those on its lines were read by themselves.
    pub fn is_caught_up(&self, number: u64) -> bool {
        self.caught_up.contains(&number)
    }

    /// The pull requests that changed.
    pub fn changed_pulls(&self) -> &HashMap<u64, Row> {
        &self.pulls
    }

    /// Reads the reviews of one pull request; the inner error is why that could not be.
    fn reviews_of(
        &mut self,
        number: u64,
        session: &mut Session<'_>,
    ) -> Result<Result<(), String>, Cut> {
        let rows = match rows_of_item(session, &format!("/pulls/{number}/reviews"))? {
            Ok(rows) => rows,
            Err(reason) => {
                self.without_reviews.insert(number);
                return Ok(Err(reason));
            }
        };
        self.without_reviews.remove(&number);
        let mut submitted = HashMap::new();
        for row in rows {
            match rows::review(&row) {
                Ok(Some(review)) => {
                    submitted.extend(row.key.map(|id| (id, review.created_at)));
                    // All of them, since one may get its text late; the ledger knows the others.
                    if !review.body.trim().is_empty() {
                        self.take_in(&row, number, review);
                    }
                }
                Ok(None) => {}
                Err(reason) => self.leave(&row, "/reviews", reason),
            }
        }
        // A line comment of a review was said when the review was submitted.
        for waiting in self.waiting.get_mut(&number).into_iter().flatten() {
            let details = &waiting.comment.details;
            if let Some(at) = details
                .pull_request_review_id
                .and_then(|id| submitted.get(&id))
            {
                if !mutant::is("drafts-at-draft-time") {
                    waiting.comment.created_at = waiting.comment.created_at.max(*at);
                }
                waiting.unsure = false;
            }
        }
        Ok(Ok(()))
    }

    /// The pull requests with line comments that may have been made before they were public.
    fn drafted(&self) -> BTreeSet<u64> {
        let waiting = self.waiting.iter();
        let numbers = waiting.filter(|(_, waiting)| waiting.iter().any(|w| w.unsure));
        numbers.map(|(number, _)| *number).collect()
    }

    fn take_in(&mut self, row: &Row, number: u64, comment: Comment) {
        let updated_at = row.updated_at.unwrap_or(comment.created_at);
        if self.limit.is_some_and(|limit| updated_at > limit) {
            return;
        }
        if self.told.get(&*comment.key().0) == Some(&updated_at) {
            return;
        }
        let of_review = comment.details.pull_request_review_id.is_some();
        let unsure = of_review && updated_at > comment.created_at.plus(SAME);
        if let Some(id) = row.key
            && self.taken.insert((comment.channel, id))
        {
            self.waiting.entry(number).or_default().push(Waiting {
                updated_at,
                comment,
                unsure,
            });
        }
    }

    fn leave(&mut self, row: &Row, what: &str, reason: String) {
        let kind = match what {
            "/pulls" => "review comment",
            "/reviews" => "review",
            _ => "comment",
        };
        let what = row
            .key
            .map_or(format!("a {kind}"), |id| format!("{kind} {id}"));
        self.odd.push((what, reason));
    }

    /// Whether all that was said before `at` is here, had a replica shown it as
    /// late as they do.
    pub fn knows_all_before(&self, at: Time) -> bool {
        // An end further ahead than clocks differ is an odd row, and nothing to wait for.
        let ahead = self.horizon.is_some_and(|now| at > now.plus(OVERLAP));
        ahead || !is_young(at, self.horizon)
    }

    /// Reads these conversations too from now on.
    pub fn ask(&mut self, asks: Asks) {
        self.asks.comments |= asks.comments;
        self.asks.reviews |= asks.reviews;
    }

    /// Takes what was said of the item `number`, not told yet, and ready to be
    /// told at the server's time `now`.
    pub fn take(&mut self, number: u64, now: Option<Time>) -> Vec<Comment> {
        self.take_before(number, Time(u64::MAX), now)
    }

    /// The same of what was said not later than `end`.
    pub fn take_before(&mut self, number: u64, end: Time, now: Option<Time>) -> Vec<Comment> {
        let waiting = self.waiting.remove(&number).unwrap_or_default();
        let unread = self.without_reviews.contains(&number);
        let is_ready = |w: &Waiting| w.comment.created_at <= end && w.is_ready(unread, now);
        let (ready, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_ready);
        if !rest.is_empty() {
            self.waiting.insert(number, rest);
        }
        // What not every replica knows may be told with an item as it was before.
        for w in ready.iter().filter(|w| !is_young(w.updated_at, now)) {
            let key = w.comment.key().to_string();
            self.told.insert(key, w.updated_at);
        }
        ready.into_iter().map(|w| w.comment).collect()
    }

    /// Whether anything that is ready waits for the item `number`.
    pub fn waits_for(&self, number: u64, now: Option<Time>) -> bool {
        let waiting = self.waiting.get(&number).into_iter().flatten();
        let unread = self.without_reviews.contains(&number);
        waiting.into_iter().any(|w| w.is_ready(unread, now))
    }

    /// Drops what waits for an item and is not wanted.
    pub fn retain(&mut self, mut wanted: impl FnMut(u64, &[Waiting]) -> bool) {
        self.waiting
            .retain(|&number, waiting| wanted(number, waiting));
    }

    /// What was not told yet, by item.
    pub fn waiting(&self) -> &BTreeMap<u64, Vec<Waiting>> {
        &self.waiting
    }

    /// What is ready of the item `number` at the server's time `now` is of a review, or on lines.
    pub fn reviews_wait_for(&self, number: u64, now: Option<Time>) -> bool {
        let waiting = self.waiting.get(&number).into_iter().flatten();
        let unread = self.without_reviews.contains(&number);
        let mut ready = waiting.filter(|w| w.is_ready(unread, now));
        ready.any(|w| w.comment.channel != Channel::Comment)
    }

    /// The pull request `number`, if its own list showed it.
    pub fn pull(&self, number: u64) -> Option<&Row> {
        self.pulls.get(&number)
    }

    /// Takes what could not be used.
    pub fn take_odd(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.odd)
    }

    /// Leaves what waits for items that cannot be read whole to when they can. For a while, until
    /// the server's time `now` says otherwise, the lists are to bring it again: in its order.
    pub fn leave_unread(&mut self, now: Time) {
        let numbers: Vec<u64> = self.unread.all().keys().copied().collect();
        for number in numbers {
            if self.unread.is_new(number, now) && self.limit.is_none() {
                continue;
            }
            for waiting in self.waiting.remove(&number).unwrap_or_default() {
                let comment = &waiting.comment;
                self.unread.reach(number, waiting.updated_at);
                if let Ok(id) = comment.id.parse() {
                    self.taken.remove(&(comment.channel, id));
                }
            }
        }
    }

    /// Leaves in `next` how far this went: what still waits is read again.
    pub fn note(&self, next: &mut Cursor) {
        let left = |channel: Channel| {
            let of = |w: &&Waiting| w.comment.channel == channel;
            let waiting = self.waiting.values().flatten().filter(of);
            waiting.map(|w| w.updated_at).min()
        };
        // A review is found by the change of its pull request, which came later than it.
        let of_review = |w: &Waiting| w.comment.channel == Channel::Review;
        let waiting = self.waiting.iter();
        let reviews = waiting.filter(|(_, waiting)| waiting.iter().any(of_review));
        let changed = |number| self.pulls.get(number).and_then(|row| row.updated_at);
        let reviews = reviews.filter_map(|(number, _)| changed(number)).min();
        let windows = self.windows.clone();
        next.comments = windows.comments.reaching(left(Channel::Comment));
        let line = left(Channel::ReviewComment);
        next.review_comments = windows.review_comments.reaching(line);
        next.pulls = windows.pulls.reaching(reviews);
        let window = |key: &str| match key.split_once('/').unwrap_or_default().0 {
            "review" => &next.pulls,
            "review_comment" => &next.review_comments,
            _ => &next.comments,
        };
        // What no window brings again need not be remembered.
        let told = self.told.iter().filter(|(key, at)| {
            let window = window(key);
            !window.is_settled() && before(**at, Duration::from_secs(1)) >= window.since
        });
        next.told = told.map(|(key, at)| (key.clone(), *at)).collect();
    }
}

//! A GitHub on loopback that remembers: repositories whose items, comments and
//! reviews are changed by a test, and that answers as GitHub is documented or
//! was measured to.
//!
//! ```ignore
//! let hub = Hub::new();                        // octo/widgets, at 2026-08-05T10:00:00Z
//! let n = hub.lock().repo("octo/widgets").open(New::issue().by("sam").label("agent"));
//! hub.lock().advance(60);
//! hub.lock().repo("octo/widgets").comment(n, "sam", "and another thing");
//! poll(hub.url());                             // the program's `base_url`
//! assert_eq!(hub.log().len(), 2);              // what was asked since the last look
//! ```
//!
//! * **The world.** [`Hub::lock`] gives the [`World`], which no request sees
//!   while it is held: hold it for one statement. [`Hub::between`] runs a
//!   closure before each answer, to change the world in the middle of a walk.
//! * **Changes** of one repository are methods of [`Edit`] ([`World::repo`]):
//!   `open`, `close`, `comment`, `review`, …; each does to every list, time and
//!   event what it does at GitHub's. What concerns more than one is a method of
//!   the world: `create`, `rename`, `recreate`, `transfer`, `delete_account`.
//! * **Time** is the hub's own: it stands still but for [`World::advance`] and
//!   [`World::set_now`], or goes on with real time after
//!   [`World::tick_with_real_time`]. Stamps have whole seconds, versions
//!   milliseconds, and every answer carries it as its `Date`.
//! * **Switches** are public fields of the world, all off at first:
//!   `since_exclusive`, `etags`, `always_304`, `lag`, `cursors`, `delay`, …
//! * **Faults**: [`World::fault`] answers in GitHub's place, [`World::spoil`]
//!   changes its answer; [`replies`] has what people were answered.
//! * **Ids** of comments, line comments and reviews are counted apart, each
//!   from 5001: so equal numbers on several surfaces are the rule.
//!
//! Where the documentation is silent, what was chosen stands at its place.
#![allow(
    dead_code,
    unused_imports,
    reason = "a world has more to it than today's tests use"
)]

mod access;
mod accounts;
mod edit;
mod faces;
pub mod faults;
mod lists;
pub mod replies;
mod reviews;
mod routes;
mod rows;
mod tables;

use super::forge::{Asked, Forge, Logged};
pub use access::Budget;
pub use accounts::CLONE_TOKEN;
pub use edit::{Edit, New};
pub use rows::{Comment, Event, Item, Label, LineComment, Repo, Review, Trace, Verdict};
pub use tables::Seen;

use idempoll::engine::item::Kind;
use idempoll::engine::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// 2026-08-05T10:00:00Z, where a hub begins.
pub const START: Time = Time(1_785_924_000_000);

/// The server; it ends when this is dropped.
pub struct Hub {
    forge: Forge,
    world: Arc<Mutex<World>>,
}

impl Hub {
    /// A hub with the repository `octo/widgets`.
    pub fn new() -> Hub {
        Hub::at("")
    }

    /// The same with a path at the end of its URL: `/api/v3` at GitHub Enterprise Server.
    pub fn at(path: &str) -> Hub {
        let mut world = World::new(path);
        world.create("octo/widgets");
        let world = Arc::new(Mutex::new(world));
        let forge = Forge::start_below(path, {
            let world = world.clone();
            move |asked| lock(&world).answer(asked)
        });
        Hub { forge, world }
    }

    /// Its base URL, without a slash at the end.
    pub fn url(&self) -> &str {
        self.forge.url()
    }

    /// The world, held still until the guard is dropped.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// What was asked since the last look, and what came of it.
    pub fn log(&self) -> Vec<Logged> {
        self.forge.logged()
    }

    /// Keeps connections from now on; otherwise each is closed after its answer.
    pub fn keep_connections(&self) {
        self.forge.keep_connections();
    }

    /// Runs `hook` before each answer from now on, in the place of the one before.
    pub fn between(&self, hook: impl FnMut(&mut World, &Asked) + Send + 'static) {
        self.lock().hook = Some(Box::new(hook));
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

type Hook = Box<dyn FnMut(&mut World, &Asked) + Send>;

/// How answers are tagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Etags {
    /// `"…"`.
    Strong,
    /// `W/"…"` with a 200, and the 304 repeats it without the `W/`.
    Weak,
    /// Not at all.
    None,
}

/// All there is at the hub.
pub struct World {
    clock: Clock,
    repos: BTreeMap<u64, Repo>,
    /// Names in lower case; a name that was given up leads on to its repository.
    names: BTreeMap<String, Name>,
    /// Below which path the API is.
    path: String,
    ids: Ids,
    dice: u64,
    hook: Option<Hook>,
    faults: Vec<faults::Fault>,
    access: access::Access,
    /// Accounts that were deleted: nobody in every row.
    ghosts: BTreeSet<String>,
    /// What an author is to the repositories, if not a `MEMBER`.
    pub associations: BTreeMap<String, String>,
    /// `since` leaves out what changed in that very second.
    pub since_exclusive: bool,
    pub etags: Etags,
    /// Every conditional request is answered "not modified".
    pub always_304: bool,
    /// Each answer is as of a moment up to so long ago.
    pub lag: Duration,
    /// `Link`s of `/issues` carry `after=` and `before=` instead of page numbers.
    pub cursors: bool,
    /// Rows on a page, whatever is asked for: 100 at GitHub, and fewer where many pages are wanted.
    pub largest_page: usize,
    /// The same for what has no `since`: `/pulls`, and the lists of one item.
    pub largest_pull_page: usize,
    /// Rows of one second come in an order that has nothing to do with their ids.
    pub shuffled_ties: bool,
    /// A redirect names no query.
    pub bare_redirects: bool,
    /// Deleting a comment is a change of its item; whether it is at GitHub's is not known.
    pub deletion_moves_item: bool,
    /// Events name a label as it is called today, not as it was called then.
    pub events_follow_label_names: bool,
    /// Every answer takes so long.
    pub delay: Duration,
    /// How many requests were answered so far.
    pub answered: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Is(u64),
    Was(u64),
}

#[derive(Debug)]
struct Clock {
    base: Time,
    ticking: Option<Instant>,
}

/// The next free numbers.
#[derive(Debug)]
pub(crate) struct Ids {
    pub item: u64,
    pub comment: u64,
    pub line_comment: u64,
    pub review: u64,
    pub event: u64,
    pub label: u64,
    pub repo: u64,
}

pub(crate) fn next(id: &mut u64) -> u64 {
    *id += 1;
    *id
}

impl World {
    fn new(path: &str) -> World {
        World {
            clock: Clock {
                base: START,
                ticking: None,
            },
            repos: BTreeMap::new(),
            names: BTreeMap::new(),
            path: path.to_string(),
            ids: Ids {
                item: 900_000,
                comment: 5000,
                line_comment: 5000,
                review: 5000,
                event: 70_000,
                label: 300,
                repo: 4241,
            },
            dice: 0,
            hook: None,
            faults: Vec::new(),
            access: access::Access::default(),
            ghosts: BTreeSet::new(),
            associations: BTreeMap::new(),
            since_exclusive: false,
            etags: Etags::Strong,
            always_304: false,
            lag: Duration::ZERO,
            cursors: false,
            largest_page: 100,
            largest_pull_page: 100,
            shuffled_ties: false,
            bare_redirects: false,
            deletion_moves_item: false,
            events_follow_label_names: false,
            delay: Duration::ZERO,
            answered: 0,
        }
    }

    /// The hub's time.
    pub fn now(&self) -> Time {
        let gone = self.clock.ticking.map_or(Duration::ZERO, |at| at.elapsed());
        self.clock.base.plus(gone)
    }

    /// So many seconds later.
    pub fn advance(&mut self, seconds: u64) {
        self.clock.base = self.clock.base.plus(Duration::from_secs(seconds));
    }

    /// From now on it is another time: going back is possible.
    pub fn set_now(&mut self, now: Time) {
        self.clock.base = now;
        if self.clock.ticking.is_some() {
            self.clock.ticking = Some(Instant::now());
        }
    }

    /// From now on it is `start` and later, as real time goes on.
    pub fn tick_with_real_time(&mut self, start: Time) {
        self.clock = Clock {
            base: start,
            ticking: Some(Instant::now()),
        };
    }

    /// What the lag's dice begin with.
    pub fn seed(&mut self, seed: u64) {
        self.dice = seed;
    }

    /// Makes a repository `owner/name` and says its number.
    pub fn create(&mut self, name: &str) -> u64 {
        let id = next(&mut self.ids.repo);
        let repo = Repo::new(id, name, self.now());
        self.repos.insert(id, repo);
        self.names.insert(name.to_lowercase(), Name::Is(id));
        id
    }

    /// A repository by the name it has now, to change it or to look at it.
    pub fn repo(&mut self, name: &str) -> Edit<'_> {
        let Some(Name::Is(id)) = self.names.get(&name.to_lowercase()) else {
            panic!("no repository is called {name}");
        };
        let now = self.now();
        Edit {
            repo: self.repos.get_mut(id).expect("named above"),
            now,
            ids: &mut self.ids,
            deletion_moves_item: self.deletion_moves_item,
        }
    }

    /// Renames a repository, to another owner too; the old name leads on to it.
    pub fn rename(&mut self, from: &str, to: &str) {
        let id = self.repo(from).repo.id;
        self.repo(from).repo.set_name(to);
        self.names.insert(from.to_lowercase(), Name::Was(id));
        self.names.insert(to.to_lowercase(), Name::Is(id));
    }

    /// Makes a new repository of a name that was given up, or whose repository
    /// is deleted by this; says its number.
    pub fn recreate(&mut self, name: &str) -> u64 {
        if let Some(Name::Is(id)) = self.names.get(&name.to_lowercase()) {
            self.repos.remove(id);
        }
        self.create(name)
    }

    /// Deletes a repository.
    pub fn delete(&mut self, name: &str) {
        let id = self.repo(name).repo.id;
        self.repos.remove(&id);
        self.names
            .retain(|_, n| *n != Name::Is(id) && *n != Name::Was(id));
    }

    /// Nobody may see a repository from now on.
    pub fn revoke(&mut self, name: &str) {
        self.repo(name).repo.revoked = true;
    }

    /// Everybody may again.
    pub fn restore(&mut self, name: &str) {
        self.repo(name).repo.revoked = false;
    }

    /// Moves an issue with its comments to another repository; says its number there.
    /// What carried over gets new ids.
    pub fn transfer(&mut self, from: &str, number: u64, to: &str) -> u64 {
        let kind = self.repo(from).item(number).kind;
        assert_eq!(kind, Kind::Issue, "only those are transferred");
        let moved = self.repo(from).take_out(number);
        let mut there = self.repo(to);
        let (repo, arrived) = (there.repo.id, there.put_in(moved));
        let now = self.now();
        let trace = Trace::Moved {
            repo,
            number: arrived,
        };
        self.repo(from).repo.gone.insert(number, (now, trace));
        arrived
    }

    /// Deletes an account: nobody is the author of what it wrote, from now on
    /// and for every moment before.
    pub fn delete_account(&mut self, login: &str) {
        self.ghosts.insert(login.to_string());
    }
}

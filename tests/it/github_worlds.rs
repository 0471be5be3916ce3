//! Random worlds on the fake forge: whatever happens there, between any two requests, with replicas
//! that lag and requests that fail, every event due is delivered once and in order.

use crate::world::hub::{Hub, New, Verdict, replies};
use crate::world::polled::Polled;
use crate::world::program::scaled;
use crate::world::sim::Dice;
use idempoll::engine::access::Policy;
use idempoll::engine::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const REPO: &str = "octo/widgets";

/// What may happen in a world.
#[derive(Debug, Clone, Copy)]
struct Kinds {
    /// Labels taken off and put on again, items reopened: how often they are seen depends on
    /// when one looks.
    flaps: bool,
    /// Comments and items deleted.
    deletions: bool,
    /// How many items there are at most.
    most: usize,
}

/// What happened to one item, as far as events depend on it. Times in seconds.
#[derive(Debug, Clone, Default)]
struct History {
    by_stranger: bool,
    pull: bool,
    created: u64,
    labelled: Option<u64>,
    closed: Vec<u64>,
    reopened: Vec<u64>,
    deleted: bool,
    /// By key: when it was made public, whether by somebody who may act, whether it is still there.
    said: BTreeMap<String, (u64, bool, bool)>,
    /// What of it was edited: replicas disagree about where it stands.
    edited: BTreeSet<String>,
}

/// A world: a hub, and what is to be expected of it.
struct World {
    seed: u64,
    dice: Dice,
    items: BTreeMap<u64, History>,
    /// Open drafts of reviews: the review, its item, its line comments.
    drafts: Vec<(u64, u64, Vec<u64>)>,
    kinds: Kinds,
    /// Nothing closes or loses its label any more: the end is near.
    calm: bool,
    /// What happened during this cycle.
    between: u32,
}

fn seconds(hub: &crate::world::hub::World) -> u64 {
    hub.now().0 / 1000
}

impl World {
    fn new(seed: u64, kinds: Kinds) -> World {
        World {
            seed,
            dice: Dice(seed),
            items: BTreeMap::new(),
            drafts: Vec::new(),
            kinds,
            calm: false,
            between: 0,
        }
    }

    fn pick(&mut self) -> Option<u64> {
        let there = self.items.iter().filter(|(_, h)| !h.deleted);
        let there: Vec<u64> = there.map(|(n, _)| *n).collect();
        let at = self.dice.roll(there.len().max(1) as u64) as usize;
        there.get(at).copied()
    }

    /// Something happens.
    fn happen(&mut self, hub: &mut crate::world::hub::World) {
        if self.dice.chance(60) {
            hub.advance(self.dice.roll(20));
        }
        let now = seconds(hub);
        let who = |mine: bool| if mine { "sam" } else { "eve" };
        let roll = self.dice.roll(100);
        let Some(number) = self.pick().filter(|_| roll >= 12) else {
            if self.items.len() < self.kinds.most {
                self.open(hub);
            }
            return;
        };
        let mine = self.dice.chance(80);
        let history = self.items.get_mut(&number).expect("picked");
        let open = history.reopened.len() == history.closed.len();
        let mut repo = hub.repo(REPO);
        match roll {
            12..45 => {
                let id = repo.comment(number, who(mine), "and another thing");
                history
                    .said
                    .insert(format!("comment/{id}"), (now, mine, true));
            }
            45..52 => {
                // An edit is no event.
                let ids = history.said.iter().filter(|(_, (_, _, there))| *there);
                let ids: Vec<String> = ids.map(|(key, _)| key.clone()).collect();
                if let Some(key) = ids.get(self.dice.roll(ids.len().max(1) as u64) as usize) {
                    history.edited.insert(key.clone());
                    let (kind, id) = key.split_once('/').expect("a key");
                    let id = id.parse().expect("a number");
                    match kind {
                        "comment" => repo.edit_comment(id, "edited"),
                        "review" => repo.edit_review(id, "edited"),
                        _ => repo.edit_line_comment(id, "edited"),
                    }
                }
            }
            52..58 => match self.dice.roll(3) {
                0 => repo.edit_title(number, "Another title"),
                1 => repo.label(number, "bug"),
                _ => repo.edit_body(number, None),
            },
            58..68 if history.pull => {
                let text = if self.dice.chance(70) {
                    "looks good"
                } else {
                    ""
                };
                let verdict = [
                    Verdict::Commented,
                    Verdict::Approved,
                    Verdict::ChangesRequested,
                ];
                let verdict = verdict[self.dice.roll(3) as usize];
                let id = repo.review(number, who(mine), verdict, text);
                if !text.is_empty() {
                    history
                        .said
                        .insert(format!("review/{id}"), (now, mine, true));
                }
            }
            68..75 if history.pull => {
                let id = repo.line_comment(number, who(mine), "this line");
                history
                    .said
                    .insert(format!("review_comment/{id}"), (now, mine, true));
            }
            75..79 if history.pull => {
                let review = repo.draft_review(number, who(true));
                let lines = 1 + self.dice.roll(2);
                let lines = (0..lines).map(|_| repo.draft_line_comment(review, "drafted"));
                let lines = lines.collect();
                self.drafts.push((review, number, lines));
            }
            79..84 if !self.drafts.is_empty() => {
                let (review, number, lines) = self.drafts.remove(0);
                if !self.items[&number].deleted {
                    repo.submit_review(review, Verdict::Commented, "in all");
                    let history = self.items.get_mut(&number).expect("drafted for");
                    history
                        .said
                        .insert(format!("review/{review}"), (now, true, true));
                    for line in lines {
                        let key = format!("review_comment/{line}");
                        history.said.insert(key, (now, true, true));
                    }
                }
            }
            84..90 if history.labelled.is_none() => {
                repo.label(number, "auto");
                history.labelled = Some(now);
            }
            90..95 if open && !self.calm && history.closed.is_empty() => {
                match history.pull && self.dice.chance(50) {
                    true => repo.merge(number),
                    false => repo.close(number),
                }
                history.closed.push(now);
            }
            95..97 if self.kinds.deletions => {
                let comments = history.said.iter_mut();
                let comment = comments
                    .into_iter()
                    .find(|(key, (_, _, there))| *there && key.starts_with("comment/"));
                if let Some((key, (_, _, there))) = comment {
                    *there = false;
                    repo.delete_comment(key["comment/".len()..].parse().expect("a number"));
                }
            }
            97..98 if self.kinds.deletions && !history.pull && !self.calm => {
                repo.delete(number, crate::world::hub::Trace::Gone);
                history.deleted = true;
            }
            98..100 if self.kinds.flaps && !open && !history.pull => {
                repo.reopen(number);
                history.reopened.push(now);
            }
            _ => {}
        }
    }

    fn open(&mut self, hub: &mut crate::world::hub::World) {
        let pull = self.dice.chance(40);
        let mine = self.dice.chance(85);
        let labelled = self.dice.chance(50);
        let mut new = if pull {
            New::pull_request()
        } else {
            New::issue()
        };
        new = new.by(if mine { "sam" } else { "eve" });
        if labelled {
            new = new.label("auto");
        }
        let created = seconds(hub);
        let number = hub.repo(REPO).open(new);
        let history = History {
            by_stranger: !mine,
            pull,
            created,
            labelled: labelled.then_some(created),
            ..History::default()
        };
        self.items.insert(number, history);
    }
}

/// What is due of one item, watched from `watched` on: the keys that must be delivered, and those
/// that may be, each with its time.
fn due(history: &History, label: bool, watched: u64) -> (BTreeMap<String, u64>, BTreeSet<String>) {
    let mut must = BTreeMap::new();
    let mut may = BTreeSet::new();
    let labelled = match label {
        true => match history.labelled {
            Some(at) => at,
            None => return (must, may),
        },
        false => history.created,
    };
    let since = labelled.max(watched);
    let first_close = history.closed.first().copied();
    let was_open = first_close.is_none_or(|at| at >= since) || !history.reopened.is_empty();
    for (key, &(at, mine, there)) in &history.said {
        if at >= since && mine {
            if there && !history.deleted {
                must.insert(key.clone(), at);
            } else {
                may.insert(key.clone());
            }
        }
    }
    if was_open && !history.by_stranger {
        if history.deleted {
            may.insert("opened".into());
        } else {
            must.insert("opened".into(), 0);
        }
    }
    let told = must.keys().chain(&may).next().is_some();
    if told && let Some(at) = first_close.filter(|&at| at >= since) {
        // Who was told of nothing before the end need not be told of the end.
        let before = must.iter().any(|(_, said)| *said <= at);
        if before && !history.deleted && history.reopened.is_empty() {
            must.insert("closed".into(), at);
        } else {
            may.insert("closed".into());
        }
    }
    if history.deleted {
        may.insert("closed".into());
    }
    (must, may)
}

fn number_of(id: &str) -> (u64, &str) {
    let (_, rest) = id.split_once('#').expect("a delivery id");
    let (number, key) = rest.split_once('/').expect("a delivery id");
    (number.parse().expect("a number"), key)
}

/// Checks what was delivered against what was due.
fn check(world: &World, ids: &[String], label: bool, watched: u64, lag: bool) {
    let seed = world.seed;
    let mut by_item: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for id in ids {
        let (number, key) = number_of(id);
        by_item.entry(number).or_default().push(key);
    }
    let none = Vec::new();
    for (number, history) in &world.items {
        let got = by_item.get(number).unwrap_or(&none);
        let (must, may) = due(history, label, watched);
        let set: BTreeSet<&str> = got.iter().copied().collect();
        assert_eq!(
            set.len(),
            got.len(),
            "seed {seed}: #{number} twice in {got:?}"
        );
        for key in must.keys() {
            assert!(
                set.contains(key.as_str()),
                "seed {seed}: #{number} lacks {key}: {got:?}, {history:?}, watched {watched}"
            );
        }
        for key in &set {
            let known = must.contains_key(*key) || may.contains(*key);
            let flap = history.reopened.len() + usize::from(history.deleted) > 0
                && (key.starts_with("opened") || key.starts_with("closed"));
            assert!(
                known || flap,
                "seed {seed}: #{number} was told {key}: {got:?}, {history:?}, watched {watched}"
            );
        }
        // In order: an opening first; what was said by its time; an end after what was said before it.
        let at = |key: &str| match key {
            "closed" => history.closed.first().map(|at| (*at, 1)),
            _ => history.said.get(key).map(|(at, _, _)| (*at, 0)),
        };
        let surface = |key: &str| key.split('/').next().unwrap_or_default().to_string();
        for (i, earlier) in got.iter().enumerate() {
            for later in &got[i + 1..] {
                if *later == "opened" && history.reopened.is_empty() {
                    panic!("seed {seed}: #{number} is opened after {earlier}");
                }
                // Two conversations of a pull request are as one only where replicas agree.
                let edited = [earlier, later]
                    .iter()
                    .any(|k| history.edited.contains(**k));
                let same = surface(earlier) == surface(later) && !edited;
                let comparable = !lag || same || *earlier == "closed";
                if comparable
                    && history.reopened.is_empty()
                    && let (Some(a), Some(b)) = (at(earlier), at(later))
                {
                    assert!(
                        a <= b,
                        "seed {seed}: #{number} has {earlier} before {later}: {got:?}, {history:?}"
                    );
                }
            }
        }
    }
}

fn policy(label: bool) -> Policy {
    Policy {
        authorized_users: vec!["sam".into()],
        label: label.then(|| "auto".to_string()),
        max_retries: 3,
        ..Policy::default()
    }
}

/// Given a world where anything happens between any two requests, replicas lag up to a minute and
/// requests fail, and a poller that is restarted now and then, when it is quiet in the end, then every
/// event due was delivered exactly once and in order, and no sweep found anything missed (R6.1, R6.2, R6.4).
#[test]
fn r6_1_r6_4_in_any_world_every_event_due_is_delivered_once_and_in_order() {
    let seeds: Vec<u64> = match std::env::var("IDEMPOLL_SEED").map(|seed| seed.parse()) {
        Ok(Ok(seed)) => vec![seed],
        _ => (0..scaled(2000)).collect(),
    };
    let (mut requests, mut events, mut failed) = (0, 0, Vec::new());
    std::thread::scope(|scope| {
        let parts: Vec<_> = seeds
            .chunks(seeds.len().div_ceil(4))
            .map(|part| {
                let live = |seed: &u64| std::panic::catch_unwind(|| live_through(*seed));
                scope.spawn(move || part.iter().map(|s| (*s, live(s).ok())).collect::<Vec<_>>())
            })
            .collect();
        for (seed, lived) in parts
            .into_iter()
            .flat_map(|part| part.join().expect("caught"))
        {
            match lived {
                Some((r, e)) => (requests, events) = (requests + r, events + e),
                None => failed.push(seed),
            }
        }
    });
    let worlds = seeds.len();
    eprintln!(
        "{worlds} worlds (seeds from {}): {requests} requests, {events} events",
        seeds[0]
    );
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
    assert!(events > worlds as u64);
}

fn live_through(seed: u64) -> (u64, u64) {
    let mut dice = Dice(seed ^ 0x5eed);
    let label = dice.chance(60);
    let lag = dice.chance(60);
    let drift = dice.chance(60);
    let faults = dice.chance(50);
    let paged = dice.chance(30);
    let kinds = Kinds {
        most: if paged { 20 } else { 8 },
        flaps: dice.chance(30),
        deletions: dice.chance(40),
    };
    let hub = Hub::new();
    let world = std::sync::Arc::new(std::sync::Mutex::new(World::new(seed, kinds)));
    {
        let mut hub = hub.lock();
        hub.seed(seed);
        hub.since_exclusive = dice.chance(30);
        hub.shuffled_ties = dice.chance(30);
        if paged {
            hub.largest_page = 2 + dice.roll(3) as usize;
            if !lag {
                // In descending order pages of different replicas do not fit together.
                hub.largest_pull_page = hub.largest_page;
            }
        }
        let mut world = world.lock().expect("unpoisoned");
        for _ in 0..dice.roll(if paged { 80 } else { 12 }) {
            world.happen(&mut hub);
        }
        hub.advance(300);
    }
    let mut poller = Polled::new(hub.url(), policy(label));
    let local = |hub: &Hub| Time(hub.lock().now().0 + 7_200_000);
    if lag {
        hub.lock().lag = Duration::from_secs(1 + dice.roll(60));
    }
    if drift {
        let mut odds = Dice(seed + 7);
        let world = world.clone();
        hub.between(move |hub, _| {
            let mut world = world.lock().expect("unpoisoned");
            // Not faster than it can be read, or no listing would ever end.
            if !world.calm && world.between < 12 && odds.chance(25) {
                world.between += 1;
                world.happen(hub);
            }
        });
    }
    for _ in 0..8 + dice.roll(8) {
        if faults && dice.chance(40) {
            let fault = match dice.roll(5) {
                0 => replies::server_error(502),
                1 => replies::html(200),
                2 => replies::object_for_list(),
                3 => replies::error(404, "Not Found"),
                _ => replies::server_error(500),
            };
            let mut skip = dice.roll(6);
            let list = move |asked: &crate::world::forge::Asked| {
                // A single item that is not there once is another case.
                let last = asked.path().rsplit('/').next().unwrap_or_default();
                let list = last.parse::<u64>().is_err();
                skip = skip.saturating_sub(1);
                list && skip == 0
            };
            hub.lock().fault(1 + dice.roll(3) as usize, list, fault);
        }
        world.lock().expect("unpoisoned").between = 0;
        let at = local(&hub);
        poller.cycle(at);
        trace(&hub, &poller);
        hub.lock().heal();
        if dice.chance(30) {
            poller.restart();
        }
        {
            let mut hub = hub.lock();
            let mut world = world.lock().expect("unpoisoned");
            for _ in 0..dice.roll(if paged { 15 } else { 6 }) {
                world.happen(&mut hub);
            }
            hub.advance([5, 60, 60, 150, 700][dice.roll(5) as usize]);
        }
        if dice.chance(4) {
            hub.lock().advance(4000);
        }
    }
    world.lock().expect("unpoisoned").calm = true;
    for _ in 0..6 {
        hub.lock().advance(90);
        poller.cycle(local(&hub));
        trace(&hub, &poller);
        assert!(
            poller.complete,
            "seed {seed}: {:?}",
            poller.said("poll.source_error")
        );
    }
    hub.lock().advance(3700);
    for _ in 0..3 {
        poller.cycle(local(&hub));
        hub.lock().advance(150);
    }
    let watched = poller.watched();
    check(
        &world.lock().expect("unpoisoned"),
        &poller.ids(),
        label,
        watched,
        lag || drift,
    );
    let missed: Vec<_> = poller
        .log
        .iter()
        .filter(|e| e.kind == "poll.missed")
        .collect();
    assert!(missed.is_empty(), "seed {seed}: {missed:?}");
    let quiet = poller.saves;
    poller.restart();
    for _ in 0..3 {
        hub.lock().advance(60);
        poller.cycle(local(&hub));
    }
    assert_eq!(
        poller.saves, quiet,
        "seed {seed}: an idle cycle writes nothing"
    );
    let answered = hub.lock().answered;
    (answered, poller.delivered.len() as u64)
}

/// Given one poller that is up all the time, and one that is down for a random half of it, when it
/// is quiet in the end, then both have delivered the same events, each item's in the same order (R6.4).
#[test]
fn r6_4_a_poller_that_was_down_delivers_what_one_that_was_up_did() {
    let worlds = scaled(60);
    let mut events = 0;
    for seed in 0..worlds {
        let mut dice = Dice(seed ^ 0xd04e);
        let label = dice.chance(60);
        let kinds = Kinds {
            flaps: false,
            deletions: false,
            most: 12,
        };
        let hub = Hub::new();
        let mut world = World::new(seed, kinds);
        for _ in 0..dice.roll(20) {
            world.happen(&mut hub.lock());
        }
        hub.lock().advance(300);
        let mut up = Polled::new(hub.url(), policy(label));
        let mut down = Polled::new(hub.url(), policy(label));
        let now = |hub: &Hub| hub.lock().now();
        for pollers in [&mut up, &mut down] {
            pollers.cycle(now(&hub));
        }
        let (from, to) = (4 + dice.roll(4), 12 + dice.roll(6));
        for cycle in 0..24 {
            for _ in 0..dice.roll(8) {
                world.happen(&mut hub.lock());
            }
            hub.lock().advance(60);
            up.cycle(now(&hub));
            if (from..to).contains(&cycle) {
                down.restart();
            } else {
                down.cycle(now(&hub));
            }
        }
        for _ in 0..4 {
            hub.lock().advance(90);
            up.cycle(now(&hub));
            down.cycle(now(&hub));
        }
        let by_item = |poller: &Polled| {
            let mut by_item: BTreeMap<u64, Vec<String>> = BTreeMap::new();
            for id in poller.ids() {
                let (number, key) = number_of(&id);
                by_item.entry(number).or_default().push(key.to_string());
            }
            by_item
        };
        assert_eq!(by_item(&down), by_item(&up), "seed {seed}");
        events += up.delivered.len();
    }
    eprintln!("{worlds} worlds: {events} events");
    assert!(events as u64 > worlds);
}

/// What a cycle asked and came to, when one world is looked at.
fn trace(hub: &Hub, poller: &Polled) {
    if std::env::var_os("IDEMPOLL_SEED").is_some() {
        let now = seconds(&hub.lock());
        let whole = if poller.complete { "complete" } else { "cut" };
        eprintln!(
            "at {now}, {whole}: {:?} {} missed {}",
            poller.ids(),
            poller.cursor(),
            poller.missed
        );
        for logged in hub.log() {
            eprintln!("  {} {}", logged.asked.target, logged.status);
        }
    }
}

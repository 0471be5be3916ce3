//! What polling GitHub costs, counted: requests, bytes, records written. `docs/performance.md` has the
//! table this prints: `cargo test --test it github_cost -- --nocapture`.

use crate::world::forge::Logged;
use crate::world::hub::{Hub, New};
use crate::world::polled::{Polled, config};
use crate::world::program::{Place, scaled};
use idempoll::engine::access::Policy;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const REPO: &str = "octo/widgets";

fn policy() -> Policy {
    Policy {
        authorized_users: vec!["sam".into()],
        label: Some("auto".into()),
        max_retries: 3,
        ..Policy::default()
    }
}

/// A repository with so many labelled items, each with three old comments, an hour ago.
fn hub(items: usize) -> Hub {
    let hub = Hub::new();
    let mut world = hub.lock();
    for n in 0..items {
        let new = if n % 5 == 0 {
            New::pull_request()
        } else {
            New::issue()
        };
        let number = world.repo(REPO).open(new.by("sam").label("auto"));
        for _ in 0..3 {
            world.repo(REPO).comment(number, "sam", "said long ago");
        }
        world.advance(1);
    }
    world.advance(3600);
    drop(world);
    hub
}

fn cycle(hub: &Hub, poller: &mut Polled, after: u64) -> Vec<Logged> {
    hub.lock().advance(after);
    hub.log();
    let now = hub.lock().now();
    poller.cycle(now);
    assert!(poller.complete, "{:?}", poller.said("poll.source_error"));
    hub.log()
}

fn bytes(log: &[Logged]) -> u64 {
    log.iter().map(|logged| logged.sent).sum()
}

fn of<'l>(log: &'l [Logged], end: &str) -> usize {
    let path = |logged: &&'l Logged| logged.asked.path().ends_with(end);
    log.iter().filter(path).count()
}

/// Given repositories of 10, 1,000 and 10,000 labelled items, when they are polled for the first
/// time, when nothing happens, when somebody comments, and after a restart, then the
/// first listing is pages of a hundred with nothing per item, and the rest costs the same for all three.
#[test]
fn what_a_cycle_costs_does_not_depend_on_how_many_items_there_are() {
    let mut idle_costs = Vec::new();
    let mut comment_costs = Vec::new();
    for items in [10, 1_000, 10_000] {
        let hub = hub(items);
        let mut poller = Polled::new(hub.url(), policy());
        let first = cycle(&hub, &mut poller, 0);
        assert_eq!(poller.delivered.len(), items);
        // A page begins a second before the end of the one before it.
        let pages = items.div_ceil(98);
        let beside = 1 + 4;
        assert!(first.len() <= pages + beside, "{} requests", first.len());
        assert_eq!(of(&first, "/events"), 0, "no item is asked for");
        assert_eq!(of(&first, "/comments"), 2, "old comments are not read");
        cycle(&hub, &mut poller, 60);
        let saves = poller.saves;

        let idle = cycle(&hub, &mut poller, 60);
        assert!(idle.iter().all(|logged| logged.status == 304));
        poller.restart();
        let restarted = cycle(&hub, &mut poller, 60);
        assert!(restarted.iter().all(|logged| logged.status == 304));
        assert_eq!(restarted.len(), idle.len());
        assert_eq!(poller.saves, saves, "an idle cycle writes nothing");
        idle_costs.push((idle.len(), bytes(&idle)));

        hub.lock().advance(30);
        hub.lock().repo(REPO).comment(7, "sam", "something new");
        let comment = cycle(&hub, &mut poller, 30);
        let mut after = Vec::new();
        loop {
            let log = cycle(&hub, &mut poller, 60);
            if log.iter().all(|logged| logged.status == 304) {
                break;
            }
            after.push((log.len(), bytes(&log)));
            assert!(after.len() < 6, "it gets quiet again");
        }
        assert_eq!(poller.delivered.len(), items + 1);
        comment_costs.push((comment.len(), bytes(&comment), after.clone()));
        eprintln!(
            "{items} items: first {} requests, {} bytes; idle {} requests, {} bytes; a comment {} \
             requests, {} bytes; then {after:?}",
            first.len(),
            bytes(&first),
            idle.len(),
            bytes(&idle),
            comment.len(),
            bytes(&comment),
        );
    }
    assert_eq!(idle_costs[0].0, 3);
    for (requests, sent) in &idle_costs {
        assert_eq!(*requests, idle_costs[0].0);
        // How much of the limit is left has more or fewer digits.
        assert!(sent.abs_diff(idle_costs[0].1) < 20, "{idle_costs:?}");
    }
    for (requests, sent, _) in &comment_costs {
        assert!(*requests <= idle_costs[0].0 + 2);
        // A row's numbers have more digits where there are more items.
        assert!(*sent < comment_costs[0].1 + 200, "{comment_costs:?}");
    }
}

/// Given a repository of which only the issues are watched, when nothing happens, then a
/// cycle is one request, and a comment costs two more.
#[test]
fn with_issues_alone_an_idle_cycle_is_one_request() {
    let hub = hub(100);
    let mut only = config(hub.url());
    only.pull_requests = false;
    let mut poller = Polled::of(only, policy());
    cycle(&hub, &mut poller, 0);
    cycle(&hub, &mut poller, 60);
    let idle = cycle(&hub, &mut poller, 60);
    assert_eq!(idle.len(), 1);
    assert_eq!(idle[0].status, 304);
    hub.lock().repo(REPO).comment(7, "sam", "something new");
    assert_eq!(cycle(&hub, &mut poller, 0).len(), 3);
}

/// Given an item that gets its label late, when it is listed, then its events are asked for, once.
#[test]
fn a_late_label_costs_one_request() {
    let hub = hub(10);
    let mut poller = Polled::new(hub.url(), policy());
    cycle(&hub, &mut poller, 0);
    let number = hub.lock().repo(REPO).open(New::issue().by("sam"));
    cycle(&hub, &mut poller, 60);
    hub.lock().repo(REPO).label(number, "auto");
    assert_eq!(of(&cycle(&hub, &mut poller, 60), "/events"), 1);
    for _ in 0..4 {
        assert_eq!(of(&cycle(&hub, &mut poller, 60), "/events"), 0);
    }
}

/// How many repositories are watched where many are. What is seen with fifty holds for five hundred:
/// `benches/measure BINARY github` has that.
const MANY: usize = 50;

/// So many repositories with a labelled item each, and the program that polls them with one token; idle.
fn many(pull_requests: bool) -> (Hub, Place) {
    let hub = Hub::new();
    hub.keep_connections();
    let repos: Vec<String> = (0..MANY).map(|n| format!("octo/api-{n}")).collect();
    for repo in &repos {
        let mut world = hub.lock();
        world.create(repo);
        world.repo(repo).open(New::issue().by("sam").label("auto"));
    }
    let script = "cat > /dev/null; echo $IDEMPOLL_DELIVERY_ID >> ids.log";
    let place = Place::new(script);
    place.write("token", TOKEN);
    let mut config = place.config(script);
    config["authorized_users"] = json!(["sam"]);
    config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": repos, "label": "auto",
        "base_url": hub.url(), "token_file": "token", "pull_requests": pull_requests, "sinks": ["log"] }]);
    place.configure(&config);
    for wait in [60, 60, 300] {
        hub.lock().advance(wait);
        place.once().expect(0);
    }
    assert_eq!(place.lines("ids.log").len(), MANY);
    hub.log();
    (hub, place)
}

const TOKEN: &str = "t0ken-example";

/// How often each repository was asked.
fn by_repo(log: &[Logged]) -> BTreeMap<&str, usize> {
    let mut asked = BTreeMap::new();
    for logged in log {
        let repo = logged.asked.path().split('/').nth(3).expect("a repository");
        *asked.entry(repo).or_default() += 1;
    }
    asked
}

/// Given fifty repositories and nothing new in any, when they are polled again and again, by a poller that runs on or
/// by one that is started for each cycle, then each costs one request, three with pull requests; all are "not modified",
/// one after another over one connection, none counts, nothing is written, and `status` has the sum.
#[test]
fn an_idle_repository_among_many_costs_one_request_and_no_connection() {
    for (pull_requests, each) in [(false, 1), (true, 3)] {
        let (hub, place) = many(pull_requests);
        let before = place.snapshot();
        let used = hub.lock().budget(TOKEN).used;
        let idle = |log: &[Logged]| {
            assert!(log.iter().all(|logged| logged.status == 304));
            let asked = by_repo(log);
            assert_eq!(asked.len(), MANY);
            assert!(asked.values().all(|&times| times == each), "{asked:?}");
        };
        let mut tries = 0;
        loop {
            hub.lock().advance(60);
            place.once().expect(0);
            let log = hub.log();
            idle(&log);
            let connections: BTreeSet<usize> = log.iter().map(|l| l.connection).collect();
            eprintln!(
                "{MANY} repositories idle: {} requests, {} bytes, {} connections",
                log.len(),
                bytes(&log),
                connections.len()
            );
            if connections.len() == 1 {
                break;
            }
            // A busy machine may leave one idle for longer than it is kept.
            tries += 1;
            assert!(tries < 10, "a cycle takes several connections");
        }
        let host = &place.status()["hosts"][0];
        assert_eq!(host["requests_last_cycle"], MANY * each);
        assert_eq!(host["counted_last_cycle"], 0);
        assert_eq!(host["limit"], 5000);
        assert_eq!(host["remaining"], 5000 - used);

        let mut poller = place.start();
        let mut log = Vec::new();
        place.until("three cycles are over", || {
            log.extend(hub.log());
            log.len() >= 3 * MANY * each
        });
        place.run(&["stop"]).expect(0);
        assert!(poller.ended().success());
        for cycle in log.chunks_exact(MANY * each) {
            idle(cycle);
        }
        assert_eq!(hub.lock().budget(TOKEN).used, used, "all were free");
        assert_eq!(place.snapshot(), before);
        assert_eq!(place.lines("ids.log").len(), MANY);
    }
}

/// Given a cycle that takes longer than the poller lives, when it is stopped in the middle again and again, then each
/// start goes on where the one before was cut short, and all repositories get their turn (R6.4).
#[test]
fn r6_4_a_poller_that_never_ends_a_cycle_comes_to_every_repository() {
    let (hub, place) = many(false);
    hub.lock().delay = Duration::from_millis(50);
    let mut turns = BTreeSet::new();
    for _ in 0..30 {
        let mut poller = place.start_unseen();
        let mut asked = 0;
        place.until("some are asked", || {
            let log = hub.log();
            asked += log.len();
            turns.extend(by_repo(&log).keys().map(ToString::to_string));
            asked >= 5
        });
        place.run(&["stop"]).expect(0);
        assert!(poller.ended().success());
        hub.log();
    }
    assert_eq!(turns.len(), MANY, "{turns:?}");
}

/// Given a cycle of many seconds, when the poller is killed in the middle, then the next one begins with a repository
/// near the one it was at, and not with the first again (R6.4).
#[test]
fn r6_4_a_kill_in_a_long_cycle_takes_no_repositorys_turn() {
    let (hub, place) = many(false);
    hub.lock().delay = Duration::from_millis(200);
    let poller = place.start_unseen();
    let noted = || {
        let text = std::fs::read_to_string(place.path("state/run.json")).unwrap_or_default();
        let run: Value = serde_json::from_str(&text).unwrap_or_default();
        let feed = run["goes_on_with"].as_str()?;
        feed.rsplit('~').next().map(str::to_string)
    };
    place.until("it is noted where it is", || noted().is_some());
    poller.kill();
    let noted = noted().expect("a repository");
    let before = hub.log().iter().map(|logged| logged.connection).max();
    let _poller = place.start_unseen();
    let mut log = Vec::new();
    place.until("one is asked", || {
        log.extend(hub.log());
        // The last request of the one that was killed may come late.
        log.retain(|logged| Some(logged.connection) > before);
        !log.is_empty()
    });
    assert_ne!(noted, "api-0");
    assert_eq!(log[0].asked.path(), format!("/repos/octo/{noted}/issues"));
}

/// The most memory a process ever used, in KiB.
fn high_water(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse().ok())
        .expect("a number")
}

/// Given repositories of 10, 1,000 and 10,000 labelled items (the latter times `IDEMPOLL_SCALE`
/// percent) and a sink that does not get on, when they are listed for the first time, then memory grows by little for each item that waits (C141).
#[test]
fn memory_of_a_first_cycle() {
    let mut used = Vec::new();
    let many = scaled(10_000);
    for items in [10, many / 10, many] {
        let items = usize::try_from(items).expect("some thousands");
        let hub = hub(items);
        let script = "while [ ! -e go -a -e idempoll.json ]; do sleep 0.1; done";
        let place = Place::new(script);
        let mut config = place.config(script);
        config["authorized_users"] = json!(["sam"]);
        config["max_concurrent_deliveries"] = 1.into();
        config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": [REPO],
            "base_url": hub.url(), "label": "auto", "sinks": ["log"] }]);
        hub.lock().limits_off();
        place.configure(&config);
        let poller = place.start();
        // By their markers, one of which is the index's own: reading the records would slow it down.
        let markers = || std::fs::read_dir(place.path("state/pending")).map_or(0, Iterator::count);
        let longest = Duration::from_secs(400);
        place.until_within(longest, "all is listed", || markers() > items);
        used.push(high_water(poller.pid()));
        place.write("go", "");
        poller.kill();
    }
    let few = many / 10;
    eprintln!("memory with 10, {few} and {many} items waiting: {used:?} KiB");
    // All of them in memory took more than 8 KiB each.
    assert!(used[2] < used[0] + 10_000 + many, "{used:?}");
}

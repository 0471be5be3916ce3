//! What is read, changed at random, within this process: many more of them than the real program can be started for.
//!
//! What panics ends the test, which names its seed.

use super::fuzz::{changed, files, scenario, torn};
use super::scene::{Scene, memory};
use crate::world::hub::{Hub, New};
use crate::world::polled::Polled;
use crate::world::program::{scaled, seed};
use crate::world::sim::Dice;
use idempoll::config::checked::Dir;
use idempoll::config::{self, Env, Overrides};
use idempoll::engine::access::Policy;
use idempoll::engine::delivery::Slug;
use idempoll::engine::listing::{Heard, Listing};
use idempoll::engine::time::Time;
use idempoll::providers::dir::DirProvider;
use idempoll::providers::{Ask, Gone, Out, Provider};
use idempoll::store::hosts;
use idempoll::store::journal;
use idempoll::store::layout::Layout;
use idempoll::store::ledger::Ledger;
use idempoll::store::reader::Reader;
use idempoll::store::run_info::RunInfo;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Begins a number of cases, and says how many.
fn begin(name: &str, count: u64) -> (Dice, std::ops::Range<u64>) {
    let first = seed();
    println!("{name}, in process: IDEMPOLL_SEED={first}, {count} cases");
    (Dice(first | 1), 0..count)
}

fn scene(name: &str) -> Scene {
    Scene::set(scenario(name), &memory())
}

/// Given a config with bytes changed at random, when it is read, then it is accepted, or refused with the file's name (C135).
#[test]
fn c135_any_config_is_accepted_or_refused_by_name() {
    let scene = scene("fan-out");
    let whole = fs::read(scene.place.path("idempoll.json")).expect("a config");
    let path = scene.place.path("changed.json");
    let env = Env {
        cwd: scene.place.dir.clone(),
        vars: [("HOME".into(), "/nowhere".into())].into(),
    };
    let (mut dice, cases) = begin("config", scaled(2000));
    let mut accepted = 0;
    for _ in cases {
        fs::write(&path, changed(whole.clone(), &mut dice)).expect("room");
        match config::load_in(&path, &Overrides::default(), &env) {
            Ok(_) => accepted += 1,
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains("changed.json"), "{said}");
            }
        }
    }
    println!("config, in process: {accepted} accepted");
}

/// Keeps what it is told.
#[derive(Default)]
struct Ear(Vec<Heard>);

impl Out for Ear {
    fn tell(&mut self, heard: Heard) -> Result<(), Gone> {
        self.0.push(heard);
        Ok(())
    }
}

/// Given item files with bytes changed at random, when they are listed, then the listing is complete, and of each file something is
/// said (R3.2, C054).
#[test]
fn r3_2_each_item_file_is_an_item_or_named() {
    let scene = scene("later");
    let whole = fs::read(scene.place.path("inbox/1.json")).expect("an item");
    let inbox = scene.place.path("changed");
    fs::create_dir(&inbox).expect("room");
    let (mut dice, cases) = begin("item files", scaled(50));
    let (mut items, mut named) = (0, 0);
    for _ in cases {
        for number in 1..=40 {
            let own = String::from_utf8_lossy(&whole)
                .replace("\"number\":1", &format!("\"number\":{number}"));
            let bytes = changed(own.into_bytes(), &mut dice);
            fs::write(inbox.join(format!("{number}.json")), bytes).expect("room");
        }
        let dir = Dir {
            path: inbox.clone(),
        };
        let mut ear = Ear::default();
        let listing = DirProvider::new("inbox", dir).list(&Ask::default(), &mut ear);
        assert!(matches!(listing, Listing::Complete(_)), "{listing:?}");
        let is_item = |heard: &&Heard| matches!(heard, Heard::Sighting(_));
        let found = ear.0.iter().filter(is_item).count();
        let odd: BTreeSet<&str> = ear
            .0
            .iter()
            .filter_map(|heard| match heard {
                Heard::Unreadable { what, .. } => Some(what.split(':').next().unwrap_or(what)),
                _ => None,
            })
            .collect();
        assert!(found + odd.len() >= 40, "{found} and {odd:?}");
        (items, named) = (items + found, named + odd.len());
    }
    println!("item files, in process: {items} items, {named} named");
}

/// Reads all that a state directory has, as pollers and those who look at one do; gives what can be loaded of records.
fn read_all(state: &Path) {
    let layout = Layout::new(state);
    let reader = Reader::new(layout.clone());
    let _ = RunInfo::read(state);
    let _ = hosts::look(&layout);
    journal::read(&layout, None).for_each(drop);
    let _ = journal::read(&layout, Some(Time::ZERO)).count();
    let _ = (reader.pending(), layout.log(0));
    let mut ledger = Ledger::open(layout).expect("a state directory");
    for slug in reader.slugs().expect("it is there") {
        let seen = reader.load(&slug);
        if let Ok(Some(mut record)) = ledger.load(&slug) {
            assert_eq!(seen, Ok(Some(record.clone())), "to whoever looks");
            // Whatever was accepted can be kept.
            ledger.save(&slug, &mut record).expect("saved");
            assert_eq!(ledger.load(&slug), Ok(Some(record)));
        }
    }
    for slug in sources(state) {
        let _ = ledger.load_feed(&slug);
    }
    for slug in ledger.hosts().expect("it is there") {
        let _ = ledger.load_host(&slug, Time::ZERO);
    }
}

fn sources(state: &Path) -> Vec<Slug> {
    let all = fs::read_dir(state.join("sources")).into_iter().flatten();
    let names = all
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned());
    let slugs = names.filter_map(|name| Slug::from_file_name(name.strip_suffix(".json")?));
    slugs.collect()
}

/// Given a state directory with bytes of one file changed at random, when all of it is read, then nothing panics, and a record that is accepted
/// is the same to everybody and can be kept (R3.6, C113, C114).
#[test]
fn r3_6_any_state_is_read_and_what_is_accepted_can_be_kept() {
    for name in ["fan-out", "tmux-later"] {
        let scene = scene(name);
        let state = scene.place.state();
        let all = files(&state);
        let (mut dice, cases) = begin(name, scaled(400));
        let mut kinds = BTreeMap::<String, u64>::new();
        for _ in cases {
            let path = &all[dice.roll(all.len() as u64) as usize];
            let whole = fs::read(path).expect("it is there");
            let bytes = match dice.chance(20) {
                true => torn(&whole, &mut dice),
                false => changed(whole.clone(), &mut dice),
            };
            let of = path.strip_prefix(&state).expect("inside");
            let kind = of.components().next().expect("a name").as_os_str();
            *kinds
                .entry(kind.to_string_lossy().into_owned())
                .or_default() += 1;
            fs::write(path, bytes).expect("room");
            read_all(&state);
            fs::write(path, whole).expect("room");
        }
        println!("{name}, in process: {kinds:?}");
    }
}

/// Given a tracker whose answers are torn for a while, when they are whole again, then all is told once; and whatever they are changed to,
/// nothing panics (R4.2, R6.2, C029, C054).
#[test]
fn r4_2_any_answer_is_survived_and_a_torn_one_loses_nothing() {
    const REPO: &str = "octo/widgets";
    let (mut dice, cases) = begin("answers", scaled(60));
    for case in cases {
        let hub = Hub::new();
        let policy = Policy {
            authorized_users: vec!["sam".into()],
            max_retries: 3,
            ..Policy::default()
        };
        let mut polled = Polled::new(hub.url(), policy);
        let go = |polled: &mut Polled, seconds: u64| {
            hub.lock().advance(seconds);
            let now = Time(hub.lock().now().0);
            polled.cycle(now);
        };
        let first = hub.lock().repo(REPO).open(New::issue().by("sam"));
        let second = hub.lock().repo(REPO).open(New::pull_request().by("sam"));
        (0..3).for_each(|_| go(&mut polled, 60));
        let tear = dice.chance(50);
        let mut own = Dice(dice.roll(u64::MAX) | 1);
        hub.lock().spoil(
            usize::MAX,
            |_| true,
            move |mut reply| {
                if reply.status == 200 && own.chance(60) {
                    reply.body = match tear {
                        true => torn(&reply.body, &mut own),
                        false => changed(reply.body, &mut own),
                    };
                }
                reply
            },
        );
        hub.lock().repo(REPO).comment(first, "sam", "do it");
        hub.lock().repo(REPO).close(second);
        (0..4).for_each(|_| go(&mut polled, 60));
        hub.lock().heal();
        (0..8).for_each(|_| go(&mut polled, 600));
        if tear {
            let ids = polled.ids();
            let once = |end: &str| ids.iter().filter(|id| id.ends_with(end)).count() == 1;
            let all = once(&format!("#{first}/opened"))
                && once(&format!("#{second}/opened"))
                && once(&format!("#{second}/closed"))
                && ids.iter().filter(|id| id.contains("/comment/")).count() == 1;
            assert!(all && ids.len() == 4, "case {case}: {ids:?}");
        }
    }
}

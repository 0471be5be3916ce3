//! What a stop and a kill do to a request under way.

use super::webhooks::{hooked, repo};
use super::{edit, http, place};
use crate::world::forge::Reply;
use crate::world::hub::{Hub, New};
use crate::world::program::{Place, Running, scaled, seed};
use crate::world::receiver::{Inbox, Receiver};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Given a request under way and more to come, when a stop is asked for (R2.5), then the request is finished and recorded,
/// nothing else begins, and the next start repeats nothing.
#[test]
fn r2_5_a_request_under_way_is_finished_at_a_stop() {
    let inbox = Inbox::start(|_| Reply::json("{}").delay(Duration::from_millis(1500)));
    let place = place(&[("hook", http(&inbox.url(), &json!({})))]);
    place.item(7, 1);
    let mut poller = place.start();
    place.until("it is under way", || inbox.got().len() == 1);
    place.run(&["stop"]).expect(0);
    assert_eq!(poller.ended().code(), Some(0));
    assert_eq!(place.entries("dispatch.succeeded").len(), 1);
    assert_eq!(inbox.ids(), ["dir:inbox#7/opened"]);
    place.once().expect(0);
    assert_eq!(inbox.ids(), ["dir:inbox#7/opened", "dir:inbox#7/comment/1"]);
}

/// Given a request whose end comes after `drain_seconds`, when a stop is asked for, then the poller ends all the same, and
/// the next one makes the request again with the same id and bytes, as an interruption that spends no try (R5.4, R6.2).
#[test]
fn r5_4_a_request_nobody_knows_the_end_of_is_made_again() {
    let mut slow = Reply::json("{}");
    slow.delay = Duration::from_secs(30);
    let inbox = Inbox::planned(vec![slow, Reply::json("{}")]);
    let place = place(&[("hook", http(&inbox.url(), &json!({})))]);
    edit(&place, |config| config["drain_seconds"] = 1.into());
    place.item(7, 0);
    let mut poller = place.start();
    place.until("it is under way", || inbox.got().len() == 1);
    place.run(&["stop"]).expect(0);
    assert_eq!(poller.ended().code(), Some(1), "something was in hand");
    place.once().expect(0);
    let got = inbox.got();
    assert_eq!(inbox.ids(), ["dir:inbox#7/opened"; 2]);
    assert_eq!(got[0].body, got[1].body);
    let show: Value =
        serde_json::from_str(&place.run(&["show", "dir:inbox#7", "--json"]).stdout).expect("JSON");
    let line = &show["deliveries"][0];
    assert_eq!(
        (&line["attempts"], &line["interruptions"]),
        (&0.into(), &1.into()),
        "{line}"
    );
}

/// Given an endpoint that answers 500, then takes a request and drops the connection, and then accepts, and a poller that is
/// stopped and started in between (C078), then all three carry the same id and the same bytes, rightly signed.
#[test]
fn c078_every_try_carries_one_id_and_the_same_bytes() {
    let hub = Hub::new();
    repo(&hub, |repo| repo.open(New::issue().by("sam")));
    hub.lock().advance(60);
    let receiver = Receiver::start("s3cret", "500,drop,200");
    let place = hooked(&hub, &receiver.url());
    edit(&place, |config| config["retry_seconds"] = 1.into());
    let mut poller = place.start();
    place.until("two tries have failed", || {
        place.entries("dispatch.failed").len() == 2
    });
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    // What it is called and says upstream by now is no matter.
    repo(&hub, |repo| repo.edit_title(1, "Another title"));
    let _poller = place.start();
    place.until("it is delivered", || {
        !place.entries("dispatch.succeeded").is_empty()
    });
    let lines = receiver.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in &lines {
        assert_eq!(line["signature_ok"], true, "{line}");
        for same in ["delivery", "event", "bytes", "body_sha256"] {
            assert_eq!(line[same], lines[0][same], "{line}");
        }
    }
    // What anybody makes of the names: uuid.uuid5(uuid.NAMESPACE_URL, "idempoll:hook/…").
    let item = place.entries("dispatch.succeeded")[0]["delivery_id"].clone();
    let item = item.as_str().expect("an id");
    let python = std::process::Command::new("python3")
        .args([
            "-c",
            "import sys,uuid;print(uuid.uuid5(uuid.NAMESPACE_URL,sys.argv[1]))",
        ])
        .arg(format!("idempoll:hook/{item}"))
        .output()
        .expect("python3");
    let uuid = String::from_utf8_lossy(&python.stdout);
    assert_eq!(lines[0]["delivery"], uuid.trim());
}

/// An endpoint that takes a moment, and items that are talked about while pollers come and go.
struct Storm {
    inbox: Inbox,
    place: Place,
    comments: u64,
    dice: u64,
}

const ITEMS: u64 = 4;

impl Storm {
    fn new() -> Storm {
        let seed = seed();
        println!("seed {seed}");
        let inbox = Inbox::start(|_| Reply::json("{}").delay(Duration::from_millis(15)));
        let place = place(&[(
            "hook",
            http(&inbox.url(), &json!({ "secret_file": "secret" })),
        )]);
        place.write("secret", "s3cret\n");
        Storm {
            inbox,
            place,
            comments: 0,
            dice: seed,
        }
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.dice >> 33) % sides
    }

    /// Everybody says something more. A record tells of each delivery as long as there are no more than 32.
    fn talk(&mut self) {
        self.comments += 2;
        for number in 1..=ITEMS {
            self.place.item(number, self.comments);
        }
    }

    /// A poller that is at it: some requests came in, and more are on their way.
    fn live_for_a_while(&mut self) -> Running {
        self.talk();
        let before = self.inbox.got().len();
        let poller = self.place.start_unseen();
        let more = 1 + usize::try_from(self.roll(6)).expect("a small number");
        self.until_more(before, more);
        std::thread::sleep(Duration::from_millis(self.roll(25)));
        poller
    }

    /// Waits until so many more requests came in than there were at `before`.
    fn until_more(&self, before: usize, more: usize) {
        let all = self.due().len();
        let enough = || self.inbox.got().len() >= (before + more).min(all);
        self.place.until("requests came in", enough);
    }

    /// The ids of all there is to deliver.
    fn due(&self) -> Vec<String> {
        let ids = (1..=ITEMS).flat_map(|number| {
            let item = format!("dir:inbox#{number}");
            let comments = (1..=self.comments).map(|id| format!("comment/{id}"));
            let keys = std::iter::once("opened".to_string()).chain(comments);
            keys.map(move |key| format!("{item}/{key}"))
                .collect::<Vec<_>>()
        });
        ids.collect()
    }

    /// Delivers the rest, and says how often each was posted: at least once, each item's in order, a repeat right after what
    /// it repeats, with the same bytes and signature.
    fn posted(&self) -> BTreeMap<String, u64> {
        let poller = self.place.start();
        self.place
            .until_within(Duration::from_secs(180), "all is delivered", || {
                let got: std::collections::BTreeSet<String> =
                    self.inbox.ids().into_iter().collect();
                got.len() == self.due().len() && self.place.pending() == 0
            });
        drop(poller);
        let mut times = BTreeMap::new();
        let mut seen: BTreeMap<String, (Vec<u8>, String)> = BTreeMap::new();
        let mut order: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for asked in self.inbox.got() {
            let id = asked
                .header("x-idempoll-delivery")
                .expect("an id")
                .to_string();
            let signature = asked
                .header("x-hub-signature-256")
                .expect("it is signed")
                .to_string();
            let (item, _) = id.split_once('/').expect("an id");
            let told = order.entry(item.to_string()).or_default();
            if told.last() != Some(&id) {
                told.push(id.clone());
            }
            let same = seen
                .entry(id.clone())
                .or_insert_with(|| (asked.body.clone(), signature.clone()));
            assert_eq!(*same, (asked.body.clone(), signature), "{id} changed");
            *times.entry(id).or_insert(0) += 1;
        }
        let told: Vec<String> = order.into_values().flatten().collect();
        assert_eq!(
            told,
            self.due(),
            "each item's in order, and a repeat right after what it repeats"
        );
        times
    }

    /// How often each delivery was interrupted, as its record has it.
    fn interruptions(&self) -> BTreeMap<String, u64> {
        let mut interruptions = BTreeMap::new();
        for number in 1..=ITEMS {
            let said = self
                .place
                .run(&["show", &format!("dir:inbox#{number}"), "--json"])
                .expect(0)
                .stdout;
            let show: Value = serde_json::from_str(&said).expect("JSON");
            for line in show["deliveries"].as_array().expect("a list") {
                let id = line["delivery_id"].as_str().expect("an id").to_string();
                assert_eq!(line["status"], "delivered", "{line}");
                interruptions.insert(id, line["interruptions"].as_u64().expect("a number"));
            }
        }
        interruptions
    }
}

/// How many pollers come and go over one state directory.
const LIVES: u64 = 12;

/// Given a poller that is killed at random moments while requests are under way, and started again each time (R6.2), then
/// each event is posted, in order; it is posted again only if the poller died between a request and its record, which the
/// record counts as an interruption; and each time with the same id and the same bytes (C078).
#[test]
fn r6_2_kills_repeat_only_what_was_under_way() {
    for _ in 0..scaled(1) {
        let mut storm = Storm::new();
        for n in 1..=LIVES {
            let poller = storm.live_for_a_while();
            poller.kill();
            if n % 3 == 0 {
                // An event that is interrupted again and again would be given up.
                storm.posted();
            }
        }
        let times = storm.posted();
        let interruptions = storm.interruptions();
        for (id, times) in &times {
            let allowed = 1 + interruptions[id];
            assert!(
                *times <= allowed,
                "{id} was posted {times} times, and {allowed} are explained"
            );
        }
        let repeats: u64 = times.values().map(|times| times - 1).sum();
        println!(
            "{LIVES} kills, {} deliveries, {repeats} repeats",
            times.len()
        );
    }
}

/// Given a poller that is stopped at random moments while requests are under way, and started again each time (R2.5, R5.3),
/// then each event is posted once, in order (R6.2).
#[test]
fn r6_2_stops_repeat_nothing() {
    for _ in 0..scaled(1) {
        let mut storm = Storm::new();
        for _ in 1..=LIVES {
            let mut poller = storm.live_for_a_while();
            poller.signal("TERM");
            assert_eq!(poller.ended().code(), Some(0));
        }
        let times = storm.posted();
        let repeated: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
        assert!(repeated.is_empty(), "{repeated:?}");
        assert!(storm.interruptions().values().all(|n| *n == 0));
    }
}

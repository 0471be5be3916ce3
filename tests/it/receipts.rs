//! Each event takes effect once, whatever happens to the poller: `exec`, and all sinks at the same time.

use crate::http_sink::{edit, http};
use crate::tmux_sink::world::{World, able, delivery_of, logger, pastes};
use crate::world::ends::{End, come_and_go, ids};
use crate::world::forge::Reply;
use crate::world::program::{Place, scaled};
use crate::world::receiver::Inbox;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Takes up to 0.09 s between the two lines it writes.
const LOGGING: &str = r#"cat > /dev/null; echo "$IDEMPOLL_DELIVERY_ID" >> begun.log; sleep 0.0$(($$ % 10)); echo "$IDEMPOLL_DELIVERY_ID" >> ids.log"#;

/// What was found right after pollers ended.
#[derive(Default)]
struct Found {
    /// A command ran.
    running: u32,
    /// A receipt was there that nobody had written to yet.
    handing_over: u32,
    /// A receipt was being written, or had just been: it says the end, and no record does.
    unrecorded: u32,
    /// The ids of those.
    seen: BTreeSet<String>,
}

impl Found {
    fn look(&mut self, place: &Place) {
        let (begun, ended) = (place.lines("begun.log").len(), place.lines("ids.log").len());
        self.running += u32::from(begun > ended);
        let texts: Vec<String> = receipts(place)
            .iter()
            .map(|path| fs::read_to_string(path).unwrap_or_default())
            .collect();
        self.handing_over += u32::from(texts.iter().any(String::is_empty));
        let settled: BTreeSet<String> = place
            .entries("dispatch.succeeded")
            .iter()
            .map(|e| e["delivery_id"].to_string())
            .collect();
        let mut unrecorded = 0;
        let ended = |text: &&String| text.contains(r#""state":"ended""#);
        for text in texts.iter().filter(ended) {
            let first: Value =
                serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
            let id = first["delivery_id"].to_string();
            // Each once: what was recorded right before the end may be missing in the log for ever.
            unrecorded += u32::from(!settled.contains(&id) && self.seen.insert(id));
        }
        self.unrecorded += u32::from(unrecorded > 0);
    }
}

/// The receipts of commands.
fn receipts(place: &Place) -> Vec<PathBuf> {
    let entries = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
    let of_records = entries(place.state().join("runs")).map(|e| e.path().join("log"));
    of_records
        .flat_map(|dir| entries(dir).map(|e| e.path()))
        .collect()
}

/// The ids a command logged are those of each item, each once and in order.
fn each_once_in_order(place: &Place, log: &str, items: u64, per_item: u64) {
    let lines = place.lines(log);
    for number in 1..=items {
        let item = format!("dir:inbox#{number}/");
        let got: Vec<&String> = lines.iter().filter(|id| id.starts_with(&item)).collect();
        let wanted = ids(number, per_item - 1);
        assert_eq!(
            got,
            wanted.iter().collect::<Vec<_>>(),
            "{log}: {}",
            place.story()
        );
    }
    assert_eq!(lines.len() as u64, items * per_item, "{log}");
}

fn exec_each_exactly_once(end: End, events: u64) {
    let items = 6.min(events);
    let per_item = events.div_ceil(items);
    let place = Place::new(LOGGING);
    for number in 1..=items {
        place.item(number, per_item - 1);
    }
    let due = usize::try_from(items * per_item).expect("small");
    let mut found = Found::default();
    let effects = || place.lines("ids.log").len();
    let lives = come_and_go(&place, end, due, effects, || found.look(&place));
    println!(
        "{end:?}: {due} deliveries by {lives} pollers; at the end of {} a command ran, at {} one was being handed over, at {} \
         an end was written that no record had yet; {} runs were taken up by the next",
        found.running,
        found.handing_over,
        found.unrecorded,
        place.entries("dispatch.adopted").len()
    );
    each_once_in_order(&place, "begun.log", items, per_item);
    each_once_in_order(&place, "ids.log", items, per_item);
    assert!(place.entries("dispatch.failed").is_empty());
    // With few, on a busy machine, each command may be over by the time it is looked at.
    assert!(
        found.running > 0 || events < 200,
        "no moment was of any interest"
    );
}

/// R6.2, R6.3, R5.4: Given events for several items and a command that takes a moment, and pollers that are killed at random
/// moments, while commands run and while receipts are written, each followed by another; when nothing is pending any
/// more; then the command's own log has each event once, in order for each item.
#[test]
fn r6_2_killed_at_any_moment_each_command_runs_once() {
    exec_each_exactly_once(End::Killed, scaled(24));
}

/// R6.2, R2.7, R5.3: The same with pollers that are asked to stop.
#[test]
fn r6_2_stopped_at_any_moment_each_command_runs_once() {
    exec_each_exactly_once(End::Stopped, scaled(24));
}

/// All three kinds of sinks for the same items; an item's record tells of all its deliveries, if there are no more than 32.
fn everywhere_once(end: End, items: u64) {
    const PER_ITEM: u64 = 6;
    if !able() {
        return;
    }
    let inbox = Inbox::start(|_| Reply::json("{}").delay(Duration::from_millis(10)));
    let mut agent = logger();
    agent["max_sessions"] = items.max(8).into();
    let world = World::new(agent);
    let place = &world.place;
    edit(place, |config| {
        config["sources"][0]["sinks"] = json!(["agent", "hook", "log"]);
        config["sinks"]["hook"] = http(&inbox.url(), &json!({}));
        config["sinks"]["log"] = json!({ "type": "exec", "command": ["sh", "-c", LOGGING] });
    });
    for number in 1..=items {
        place.item(number, PER_ITEM - 1);
    }
    let due = usize::try_from(items * PER_ITEM).expect("small");
    let pasted = || (1..=items).map(|n| pastes(&world.keys(n)).map_or(0, |p| p.len()));
    let posted = || inbox.ids().into_iter().collect::<BTreeSet<_>>().len();
    let effects = || place.lines("ids.log").len() + pasted().sum::<usize>() + posted();
    let mut found = Found::default();
    let lives = come_and_go(place, end, 3 * due, effects, || found.look(place));
    each_once_in_order(place, "begun.log", items, PER_ITEM);
    each_once_in_order(place, "ids.log", items, PER_ITEM);
    for number in 1..=items {
        let got: Vec<String> = world
            .pasted(number)
            .iter()
            .map(|t| delivery_of(t))
            .collect();
        assert_eq!(got, ids(number, PER_ITEM - 1), "{}", place.story());
    }
    let mut posts: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    let mut order: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for asked in inbox.got() {
        let id = asked.header("x-idempoll-delivery").expect("an id");
        let (item, _) = id.split_once('/').expect("an id");
        let told = order.entry(item.to_string()).or_default();
        if told.last().map(String::as_str) != Some(id) {
            told.push(id.to_string());
        }
        posts
            .entry(id.to_string())
            .or_default()
            .push(asked.body.clone());
    }
    let mut repeats = 0;
    for number in 1..=items {
        let item = format!("dir:inbox#{number}");
        assert_eq!(order[&item], ids(number, PER_ITEM - 1));
        let said = place.run(&["show", &item, "--json"]).expect(0).stdout;
        let show: Value = serde_json::from_str(&said).expect("JSON");
        let deliveries = show["deliveries"].as_array().expect("a list");
        assert_eq!(deliveries.len() as u64, 3 * PER_ITEM);
        for line in deliveries {
            assert_eq!(line["status"], "delivered", "{line}");
            if line["sink"] == "hook" {
                let bodies = &posts[line["delivery_id"].as_str().expect("an id")];
                assert!(bodies.iter().all(|body| *body == bodies[0]), "{line}");
                // Nobody lived to see the answers of the others.
                let lost = line["interruptions"].as_u64().expect("a number");
                assert!(bodies.len() as u64 <= 1 + lost, "{line}: {}", bodies.len());
                assert!(end == End::Killed || bodies.len() == 1, "{line}");
                repeats += bodies.len() - 1;
            }
        }
    }
    println!(
        "{end:?}: {due} events, each to three sinks, by {lives} pollers; a command ran at the end of {}; {repeats} posts were repeats",
        found.running
    );
}

/// R6.6, R6.2: Given items whose events go to a command, to an endpoint and to an agent, and pollers that are killed at random
/// moments, each followed by another; when nothing is pending any more; then the command and the agent got each event
/// once, the endpoint each at least once, again only where the answer was lost and then with the same id and bytes,
/// and each of them in order.
#[test]
fn r6_6_killed_at_any_moment_each_sink_gets_each_event() {
    everywhere_once(End::Killed, scaled(4));
}

/// R6.6, R2.5: The same with pollers that are asked to stop: then the endpoint, too, gets each event once.
#[test]
fn r6_6_stopped_at_any_moment_each_sink_gets_each_event_once() {
    everywhere_once(End::Stopped, scaled(4));
}

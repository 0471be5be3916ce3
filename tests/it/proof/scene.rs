//! Worlds that the real program lives through: what is upstream, where deliveries go, and what
//! must have arrived in the end, by the sinks' own logs.

use crate::tmux_sink::world::{Server, delivery_of, logger, pastes};
use crate::world::forge::Reply;
use crate::world::hub::{Hub, New};
use crate::world::program::{Place, lines};
use crate::world::receiver::Inbox;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const REPO: &str = "octo/widgets";

/// What the command of the sink `log` does: the effect is a line in its log.
const EFFECT: &str = r#"cat > /dev/null; echo "$IDEMPOLL_DELIVERY_ID" >> "$LOG""#;

/// The same, but each first try fails and has no effect.
const SECOND_TRY: &str = r#"cat > /dev/null; grep -qxF "$IDEMPOLL_DELIVERY_ID" "$LOG.tries" 2> /dev/null && again=1; echo "$IDEMPOLL_DELIVERY_ID" >> "$LOG.tries"; [ "$again" ] || exit 1; echo "$IDEMPOLL_DELIVERY_ID" >> "$LOG""#;

/// What reached each sink, for each item in the order it came.
pub type Effects = BTreeMap<(String, u64), Vec<String>>;

/// A world to live through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    pub name: &'static str,
    /// The sinks of the one source: of `log` (exec), `hook` (http) and `agent` (tmux).
    pub sinks: &'static [&'static str],
    pub github: bool,
    /// What there is already when the run begins that is disturbed: the first cycle is over.
    pub later: bool,
    /// Each first try of a command fails.
    pub failing: bool,
    /// Items beside the two or three others, that are known and never delivered.
    pub crowd: u64,
    /// The poller runs on until it is asked to stop.
    pub daemon: bool,
}

const FIRST: Scenario = Scenario {
    name: "first",
    sinks: &["log"],
    github: false,
    later: false,
    failing: false,
    crowd: 0,
    daemon: false,
};

/// All scenarios; those with tmux come last, since they take longest.
pub const ALL: [Scenario; 11] = [
    FIRST,
    Scenario {
        name: "later",
        later: true,
        ..FIRST
    },
    Scenario {
        name: "failing",
        failing: true,
        ..FIRST
    },
    Scenario {
        name: "crowd",
        crowd: 70,
        ..FIRST
    },
    Scenario {
        name: "daemon",
        daemon: true,
        ..FIRST
    },
    Scenario {
        name: "github",
        github: true,
        ..FIRST
    },
    Scenario {
        name: "github-later",
        github: true,
        later: true,
        ..FIRST
    },
    Scenario {
        name: "http",
        sinks: &["hook"],
        ..FIRST
    },
    Scenario {
        name: "fan-out",
        sinks: &["log", "hook"],
        github: true,
        later: true,
        ..FIRST
    },
    Scenario {
        name: "tmux",
        sinks: &["agent"],
        ..FIRST
    },
    Scenario {
        name: "tmux-later",
        sinks: &["agent"],
        later: true,
        ..FIRST
    },
];

/// A scenario that has begun. The fields are dropped in this order.
pub struct Scene {
    pub scenario: Scenario,
    hook: Option<Inbox>,
    hub: Option<Hub>,
    server: Option<Server>,
    /// Where the effects are noted: on a file system that nobody switches off.
    outside: Outside,
    pub place: Place,
    /// What happened upstream so far, and so must reach each sink: of each item.
    told: BTreeMap<u64, Vec<String>>,
}

struct Outside(PathBuf);

impl Drop for Outside {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Where a world is fast: in memory, if that can be had.
pub fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => memory.to_path_buf(),
        false => std::env::temp_dir(),
    }
}

impl Scene {
    /// Sets the scene, with the place below `parent`.
    pub fn set(scenario: Scenario, parent: &Path) -> Scene {
        let place = Place::below(parent, "true");
        let outside = Outside(memory().join(format!(
            "{}-outside",
            place.dir.file_name().and_then(|n| n.to_str()).expect("a name")
        )));
        fs::create_dir_all(&outside.0).expect("room");
        let mut scene = Scene {
            scenario,
            hook: scenario.sinks.contains(&"hook").then(Inbox::friendly),
            hub: scenario.github.then(Hub::new),
            server: scenario
                .sinks
                .contains(&"agent")
                .then(|| Server::at(place.path("state/tmux/agent.sock"))),
            outside,
            place,
            told: BTreeMap::new(),
        };
        scene.configure();
        for number in 1..=scenario.crowd {
            scene.foreign(100 + number);
        }
        scene.open(1);
        scene.say(1);
        scene.open(2);
        if scenario.later {
            scene.pass(100);
            scene.once_until_quiet();
            scene.say(1);
            scene.say(1);
            scene.open(3);
            scene.say(3);
            scene.close(2);
        }
        scene.pass(100);
        scene
    }

    fn configure(&mut self) {
        let log = self.outside.0.join("effects.log");
        let effect = if self.scenario.failing {
            SECOND_TRY
        } else {
            EFFECT
        };
        let script = format!("LOG={}; {effect}", log.display());
        let mut config = self.place.config(&script);
        config["sources"][0]["sinks"] = json!(self.scenario.sinks);
        config["retry_seconds"] = 0.01.into();
        let mut sinks = json!({});
        for name in self.scenario.sinks {
            sinks[name] = match *name {
                "hook" => {
                    json!({ "type": "http", "url": self.hook.as_ref().expect("a hook").url() })
                }
                "agent" => {
                    let dir = self.outside.0.to_str().expect("ASCII");
                    fs::create_dir_all(self.outside.0.join("keys")).expect("room");
                    let text = logger().to_string().replace("DIR", dir);
                    let mut sink: Value = serde_json::from_str(&text).expect("JSON");
                    sink["type"] = "tmux".into();
                    sink["on_close"] = "tell".into();
                    sink
                }
                _ => config["sinks"]["log"].clone(),
            };
        }
        config["sinks"] = sinks;
        if let Some(hub) = &self.hub {
            config["authorized_users"] = json!(["octocat"]);
            config["sources"] = json!([{ "name": "forge", "provider": "github", "repos": [REPO],
                "base_url": hub.url(), "sinks": self.scenario.sinks, "watch_from": "2020-01-01T00:00:00Z" }]);
        }
        self.place.configure(&config);
    }

    /// An item by somebody who may.
    fn open(&mut self, number: u64) {
        if let Some(hub) = &self.hub {
            let opened = hub.lock().repo(REPO).open(New::issue().by("octocat"));
            assert_eq!(opened, number);
        }
        self.tell(number, "opened".to_string());
    }

    /// A comment on it.
    fn say(&mut self, number: u64) {
        let id = match &self.hub {
            Some(hub) => hub.lock().repo(REPO).comment(number, "octocat", "please"),
            None => self.told[&number].len() as u64,
        };
        self.tell(number, format!("comment/{id}"));
    }

    fn close(&mut self, number: u64) {
        if let Some(hub) = &self.hub {
            hub.lock().repo(REPO).close(number);
        }
        self.tell(number, "closed".to_string());
    }

    fn tell(&mut self, number: u64, key: String) {
        let told = self.told.entry(number).or_default();
        told.push(key);
        if self.hub.is_some() {
            return;
        }
        let comments: Vec<Value> = told
            .iter()
            .filter_map(|key| key.strip_prefix("comment/"))
            .map(|id| {
                json!({ "id": id, "author": "octocat", "body": "please",
                    "created_at": format!("2026-08-05T10:00:0{id}Z") })
            })
            .collect();
        let state = match told.last().is_some_and(|key| key == "closed") {
            true => "closed",
            false => "open",
        };
        let item = json!({ "number": number, "title": "Do", "author": "octocat", "state": state,
            "created_at": "2026-08-05T09:00:00Z", "comments": comments });
        self.place.item_file(number, &item);
        self.age(number);
    }

    /// An item by somebody who may not.
    fn foreign(&self, number: u64) {
        let item = json!({ "number": number, "title": "Buy", "body": "Buy", "author": "stranger", "state": "open",
            "created_at": "2026-08-05T09:00:00Z", "comments": [] });
        self.place.item_file(number, &item);
        self.age(number);
    }

    /// A file written just now would be read twice, in case it changed within the clock's tick.
    fn age(&self, number: u64) {
        let path = self.place.path(&format!("inbox/{number}.json"));
        let file = fs::File::options()
            .append(true)
            .open(path)
            .expect("it is there");
        // No two states of it may look the same.
        let size = file.metadata().map_or(0, |m| m.len());
        let then = SystemTime::now() - Duration::from_secs(100_000 - size);
        file.set_modified(then).expect("its owner may");
    }

    /// Has the tracker's answers pass through `how`, from now on.
    pub fn spoil(&self, how: impl FnMut(Reply) -> Reply + Send + 'static) {
        let hub = self.hub.as_ref().expect("a tracker");
        hub.lock().spoil(usize::MAX, |_| true, how);
    }

    /// They are what they are again.
    pub fn heal(&self) {
        self.hub.as_ref().expect("a tracker").lock().heal();
    }

    /// Lets the tracker's clock go on.
    pub fn pass(&self, seconds: u64) {
        if let Some(hub) = &self.hub {
            hub.lock().advance(seconds);
        }
    }

    /// What was asked of the tracker since the last call of this, and how often the answer was not `304`.
    pub fn asked(&self) -> (usize, usize) {
        let log = self.hub.as_ref().map(Hub::log).unwrap_or_default();
        let fresh = log.iter().filter(|l| l.status != 304).count();
        (log.len(), fresh)
    }

    /// Starts pollers until nothing is left to do; says what is wrong if that does not come.
    pub fn recover(&self) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..12 {
            let run = self.place.once();
            last = format!("exit {:?}: {}", run.code, run.stderr);
            self.pass(100);
            // What an agent was given, it notes when it comes to it.
            let agents = if self.server.is_some() { 1000 } else { 1 };
            let done = || {
                self.is_done() || {
                    std::thread::sleep(Duration::from_millis(5));
                    false
                }
            };
            if run.code == Some(0) && (0..agents).any(|_| done()) {
                return Ok(());
            }
        }
        Err(format!(
            "it does not recover: {last}; {} pending, effects {:?} instead of {:?}",
            self.place.pending(),
            self.effects(),
            self.wanted()
        ))
    }

    /// Whether all has arrived and nothing waits.
    pub fn is_done(&self) -> bool {
        self.place.marked() == 0 && self.effects() == self.wanted()
    }

    /// What came again right after itself, by sink, item and key; what was posted also byte by byte the
    /// same, or it counts as something else. A receiver knows it by its id.
    pub fn repeats(&self) -> Vec<(String, u64, String)> {
        self.told_apart().1
    }

    /// What has reached each sink so far, but for [what only came again](Scene::repeats).
    pub fn effects(&self) -> Effects {
        self.told_apart().0
    }

    /// The effects and the repeats.
    fn told_apart(&self) -> (Effects, Vec<(String, u64, String)>) {
        let (mut effects, mut again) = (Effects::new(), Vec::new());
        let mut last = BTreeMap::new();
        for (sink, number, key, body) in self.arrived() {
            let came = (key.clone(), body);
            let to = (sink.to_string(), number);
            match last.get(&to) == Some(&came) {
                true => again.push((to.0.clone(), number, key)),
                false => effects.entry(to.clone()).or_default().push(key),
            }
            last.insert(to, came);
        }
        (effects, again)
    }

    /// The machine is off, and with it the agents: what was typed and not entered went with them.
    pub fn agents_have_died(&self) {
        let end = b"\x1b[201~\r";
        for entry in fs::read_dir(self.outside.0.join("keys"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let mut keys = fs::read(entry.path()).unwrap_or_default();
            let entered = keys.windows(end.len()).rposition(|w| w == end);
            keys.truncate(entered.map_or(0, |at| at + end.len()));
            fs::write(entry.path(), keys).expect("room");
        }
    }

    /// All that arrived at each sink: item, key, and the body of what was posted.
    fn arrived(&self) -> Vec<(&'static str, u64, String, Vec<u8>)> {
        let mut all = Vec::new();
        let mut add = |sink: &'static str, id: &str, body: Vec<u8>| {
            let (number, key) = split(id);
            all.push((sink, number, key.to_string(), body));
        };
        for id in lines(&self.outside.0.join("effects.log")) {
            add("log", &id, Vec::new());
        }
        for asked in self.hook.as_ref().map(Inbox::got).unwrap_or_default() {
            let id = asked.header("x-idempoll-delivery").unwrap_or_default();
            add("hook", id, asked.body.clone());
        }
        for number in 1..=3 {
            let item = format!("dir:inbox#{number}");
            let keys = fs::read(self.outside.0.join("keys").join(&item));
            match pastes(&keys.unwrap_or_default()) {
                Ok(texts) => texts
                    .iter()
                    .for_each(|text| add("agent", &delivery_of(text), Vec::new())),
                Err(why) => add("agent", &format!("{item}/{why}"), Vec::new()),
            }
        }
        all
    }

    pub fn once_until_quiet(&self) {
        for _ in 0..12 {
            let run = self.place.once();
            self.pass(100);
            if run.code == Some(0) && self.place.pending() == 0 {
                return;
            }
        }
        panic!("the scene cannot be set: {}", self.place.story());
    }

    /// The command whose run is disturbed.
    pub fn command(&self) -> std::process::Command {
        match self.scenario.daemon {
            true => self.place.command(&["start", "-q"]),
            false => self.place.command(&["start", "--once", "-q"]),
        }
    }

    /// What must have reached each sink in the end.
    pub fn wanted(&self) -> Effects {
        let each = |sink: &&str| {
            let sink = sink.to_string();
            let told = self.told.iter();
            told.map(move |(number, keys)| ((sink.clone(), *number), keys.clone()))
        };
        self.scenario.sinks.iter().flat_map(each).collect()
    }

    /// The ledger without times: of each item its state, and of each of its deliveries what it came to.
    pub fn ledger(&self) -> Value {
        let items = self.place.run(&["items", "--json"]).stdout;
        let items: Value = serde_json::from_str(&items).unwrap_or_default();
        let mut ledger = json!({});
        for item in items.as_array().into_iter().flatten() {
            let reference = item["ref"].as_str().unwrap_or_default();
            let (_, number) = reference.split_once('#').unwrap_or_default();
            if self.scenario.crowd > 0 && item["pending"] == 0 && item["delivered"] == 0 {
                ledger[number] = item["state"].clone();
                continue;
            }
            let shown = self.place.run(&["show", reference, "--json"]).stdout;
            let shown: Value = serde_json::from_str(&shown).unwrap_or_default();
            let all = shown["deliveries"].as_array().into_iter().flatten();
            let mut each: Vec<Value> = all
                .map(|d| json!([d["sink"], d["key"], d["status"], d["attempts"]]))
                .collect();
            // In their own order for each sink, which alone is promised.
            each.sort_by_key(|d| d[0].to_string());
            ledger[number] = json!([shown["state"], shown["title"], shown["openings"], each]);
        }
        ledger
    }

    /// What must never be in the state directory, not even right after a crash: records that are empty.
    pub fn damage(&self) -> Vec<String> {
        let records = self.files().into_iter().filter(|(name, bytes)| {
            bytes.is_empty()
                && (name.starts_with("items/") || name.starts_with("sources/"))
                && !name.contains(".tmp.")
        });
        records
            .map(|(name, _)| format!("{name} is empty"))
            .collect()
    }

    /// What a start clears away, or ends, and so must not be there when all is done: what was being written,
    /// a run without a receipt.
    pub fn litter(&self) -> Vec<String> {
        let left = self.files().into_iter().filter(|(name, bytes)| {
            // By a note about a session nothing is decided, and it is not synced.
            let run = name.starts_with("runs/") && !name.ends_with("/session.json");
            name.contains(".tmp.") || run && bytes.is_empty()
        });
        left.map(|(name, _)| format!("{name} was left behind"))
            .collect()
    }

    /// The files of the state directory.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let state = self.place.state();
        let all = match state.exists() {
            true => self.place.snapshot(),
            false => Vec::new(),
        };
        let name = |path: PathBuf| {
            path.strip_prefix(&state)
                .unwrap_or(&path)
                .display()
                .to_string()
        };
        all.into_iter()
            .map(|(path, bytes)| (name(path), bytes))
            .collect()
    }
}

/// A delivery id as the item's number and the key: `github:octo/api#7/comment/1`.
fn split(id: &str) -> (u64, &str) {
    let (_, rest) = id.split_once('#').unwrap_or_default();
    let (number, key) = rest.split_once('/').unwrap_or_default();
    (number.parse().unwrap_or_default(), key)
}

//! What is read, torn or changed at random: the config, item files, a tracker's answers, what is in the state directory.
//!
//! The inputs begin as real ones. A torn one is none any more, as after a crash or through a bad
//! connection; a changed one may be anything, and may say what is not true.

use super::scene::{ALL, Effects, Scenario, Scene, memory};
use super::sweep::{May, in_parallel, none, tells_of_a_bug, undisturbed, wrong};
use crate::world::program::{Answer, binary, scaled, seed};
use crate::world::sim::Dice;
use idempoll::providers::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is put in at random places.
const ODD: [&[u8]; 20] = [
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\"",
    b"\\",
    b"\\ud800",
    b"{",
    b"}",
    b"[[[[[[[[",
    b"]",
    b",",
    b":",
    b"null",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"0x",
    b"//",
    b"/*",
    b"9999-99-99T99:99:99Z",
];

/// Changes some bytes, anyhow.
pub fn changed(mut bytes: Vec<u8>, dice: &mut Dice) -> Vec<u8> {
    for _ in 0..=dice.roll(4) {
        let len = bytes.len();
        let at = dice.roll(len as u64 + 1) as usize;
        let end = (at + 1 + dice.roll(12) as usize).min(len);
        match dice.roll(6) {
            0 if at < len => bytes[at] ^= 1 << dice.roll(8),
            1 if at < len => drop(bytes.drain(at..end)),
            2 if at < len => {
                let again: Vec<u8> = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            3 => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, ODD[dice.roll(20) as usize].iter().copied())),
        }
    }
    bytes
}

/// Makes it something that is no JSON.
pub fn torn(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let half = dice.roll(bytes.len().max(1) as u64) as usize;
    let torn = match dice.roll(4) {
        0 => Vec::new(),
        1 => vec![0; bytes.len()],
        2 => changed(bytes.to_vec(), dice),
        _ => bytes[..half].to_vec(),
    };
    // As trackers are read: an odd byte in a text is no tear.
    match json::parse::<serde_json::Value>(&json::mend(&torn)) {
        Ok(_) => b"{".to_vec(),
        Err(_) => torn,
    }
}

/// A panic, or an end that is none of ours, if that is what came of it.
fn panicked(answer: &Answer) -> Option<String> {
    let ended = matches!(answer.code, Some(0..=3));
    (tells_of_a_bug(&answer.stderr) || !ended)
        .then(|| format!("exit {:?}: {}", answer.code, answer.stderr))
}

/// Tries a number of cases and says how many; `live` says what is wrong with one.
fn cases(name: &str, count: u64, live: impl Fn(&mut Dice) -> Option<String> + Sync) {
    let first = seed();
    println!("{name}: IDEMPOLL_SEED={first}");
    let faults = in_parallel(usize::try_from(count).expect("small"), |n| {
        let mut dice = Dice((first ^ (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
        live(&mut dice).map(|why| format!("case {n}: {why}"))
    });
    println!("{name}: {count} cases");
    none(&faults);
}

pub fn scenario(name: &str) -> Scenario {
    ALL.into_iter()
        .find(|s| s.name == name)
        .expect("a scenario")
}

/// Given a config with bytes changed at random, when it is checked, then it is accepted or refused in
/// words, and nothing panics (C135).
#[test]
fn c135_anything_for_a_config_is_answered_in_words() {
    let scene = Scene::set(scenario("fan-out"), &memory());
    let config = fs::read(scene.place.path("idempoll.json")).expect("a config");
    cases("config", scaled(60), |dice| {
        let name = format!("config-{}.json", dice.roll(u64::MAX));
        let path = scene.place.path(&name);
        fs::write(&path, changed(config.clone(), dice)).expect("room");
        let mut check = Command::new(binary());
        check.args(["check", "--config", &name]);
        let said = check.current_dir(&scene.place.dir).output();
        let said = Answer::of(said.expect("it starts"));
        let silent = said.code != Some(0) && said.stderr.is_empty() && said.stdout.is_empty();
        let found =
            panicked(&said).or_else(|| silent.then(|| "refused without a word".to_string()));
        let _ = fs::remove_file(path);
        found
    });
}

/// Given item files that are torn, when they are listed and then mended, then all is delivered once, in order; and
/// whatever they are changed to, nothing panics (R3.2, R6.1, R6.2, C054).
#[test]
fn r3_2_anything_for_an_item_file_holds_up_nobody_else() {
    let wanted = undisturbed(scenario("later"));
    cases("item files", scaled(30), |dice| {
        let scene = Scene::set(wanted.scenario, &memory());
        let path = scene
            .place
            .path(&format!("inbox/{}.json", 1 + dice.roll(3)));
        let whole = fs::read(&path).expect("an item");
        let tear = dice.chance(60);
        let modified = fs::metadata(&path)
            .and_then(|m| m.modified())
            .expect("a time");
        let bytes = if tear {
            torn(&whole, dice)
        } else {
            changed(whole.clone(), dice)
        };
        fs::write(&path, bytes).expect("room");
        for _ in 0..2 {
            if let Some(why) = panicked(&scene.place.once()) {
                return Some(why);
            }
        }
        fs::write(&path, whole).expect("room");
        let file = fs::File::options()
            .append(true)
            .open(&path)
            .expect("it is there");
        file.set_modified(modified).expect("its owner may");
        if tear {
            return wrong(&scene, &wanted, May::post_again(0));
        }
        panicked(&scene.place.once())
    });
}

/// Given answers of a tracker that are torn, when they are asked for again and are whole, then all is delivered
/// once, in order; and whatever they are changed to, nothing panics (R3.4, R4.2, R6.1, R6.2, C029).
#[test]
fn r4_2_anything_for_an_answer_concludes_nothing() {
    let wanted = [
        undisturbed(scenario("github")),
        undisturbed(scenario("github-later")),
    ];
    cases("answers", scaled(30), |dice| {
        let wanted = &wanted[dice.roll(2) as usize];
        let scene = Scene::set(wanted.scenario, &memory());
        let tear = dice.chance(60);
        let mut own = Dice(dice.roll(u64::MAX) | 1);
        scene.spoil(move |mut reply| {
            if reply.status != 200 || own.chance(40) {
                return reply;
            }
            if tear {
                reply.body = torn(&reply.body, &mut own);
                return reply;
            }
            reply.body = changed(reply.body, &mut own);
            for (_, value) in &mut reply.headers {
                if own.chance(10) {
                    let odd =
                        String::from_utf8_lossy(&changed(value.clone().into_bytes(), &mut own))
                            .into_owned();
                    *value = odd.chars().filter(|c| !c.is_control()).collect();
                }
            }
            reply
        });
        for _ in 0..2 {
            if let Some(why) = panicked(&scene.place.once()) {
                return Some(why);
            }
        }
        scene.heal();
        scene.pass(4000);
        if tear {
            return wrong(&scene, wanted, May::post_again(0));
        }
        panicked(&scene.place.once())
    });
}

/// All files of a directory, but what nobody else writes.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false if path.is_file() => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

/// Whether what arrived is some of what was to arrive, in its order and nothing twice.
fn is_part_of(arrived: &Effects, wanted: &Effects) -> bool {
    arrived.iter().all(|(to, keys)| {
        let mut rest = wanted.get(to).into_iter().flatten();
        // The end of an item whose past is not known any more carries its time.
        let same = |key: &String, wanted: &String| {
            key == wanted || key.starts_with("closed/") && wanted == "closed"
        };
        keys.iter().all(|key| rest.any(|wanted| same(key, wanted)))
    })
}

/// Given a state directory with one file torn, when pollers and readers come to it, then none panics, no event comes twice
/// or out of order, and what the file was not about arrives; and whatever it is changed to, nothing
/// panics (R3.6, C113, C114).
#[test]
fn r3_6_anything_for_a_file_of_the_state_is_survived() {
    let torn_kinds = std::sync::Mutex::new(BTreeMap::<String, u64>::new());
    cases("state", scaled(30), |dice| {
        let scene = Scene::set(scenario("later"), &memory());
        let all = files(&scene.place.state());
        let path = &all[dice.roll(all.len() as u64) as usize];
        let name = path
            .strip_prefix(scene.place.state())
            .expect("inside")
            .display()
            .to_string();
        let whole = fs::read(path).expect("it is there");
        let tear = dice.chance(60);
        let bytes = if tear {
            torn(&whole, dice)
        } else {
            changed(whole, dice)
        };
        fs::write(path, bytes).expect("room");
        *torn_kinds
            .lock()
            .expect("whole")
            .entry(
                name.split(['/', '.'])
                    .next()
                    .unwrap_or_default()
                    .to_string(),
            )
            .or_default() += 1;
        for verb in ["status", "items", "events"] {
            if let Some(why) = panicked(&scene.place.run(&[verb, "--json"])) {
                return Some(format!("{verb} with {name}: {why}"));
            }
        }
        for number in 1..=3 {
            let shown = scene.place.run(&["show", &format!("dir:inbox#{number}")]);
            if let Some(why) = panicked(&shown) {
                return Some(format!("show with {name}: {why}"));
            }
        }
        for _ in 0..3 {
            if let Some(why) = panicked(&scene.place.once()) {
                return Some(format!("start with {name}: {why}"));
            }
        }
        if !tear {
            return None;
        }
        let (arrived, wanted) = (scene.effects(), scene.wanted());
        if !scene.repeats().is_empty() || !is_part_of(&arrived, &wanted) {
            return Some(format!("{name} torn: {arrived:?} instead of {wanted:?}"));
        }
        let lost = wanted.iter().find(|((sink, number), keys)| {
            let about = name.contains(&format!("inbox~{number}"));
            !about && arrived.get(&(sink.clone(), *number)) != Some(keys)
        });
        lost.map(|lost| {
            format!(
                "{name} torn: {lost:?} did not arrive: {}",
                scene.place.story()
            )
        })
    });
    println!("state, files: {:?}", torn_kinds.lock().expect("whole"));
}

//! Several sinks of different kinds for one source.

use super::{edit, http, place};
use crate::world::forge::Reply;
use crate::world::receiver::{Inbox, Receiver};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::Duration;

/// Given an endpoint that accepts connections and never answers, and a healthy one (C080), when ten comments come on three
/// items, then the healthy one gets each once, in order, without waiting; what waits for the other stays its own.
#[test]
fn c080_a_dead_endpoint_holds_up_nobody_else() {
    let dead = Receiver::start("s", "hang");
    let healthy = Inbox::friendly();
    let place = place(&[
        ("dead", http(&dead.url(), &json!({}))),
        ("healthy", http(&healthy.url(), &json!({}))),
    ]);
    // As many as there are items.
    edit(&place, |config| {
        config["max_concurrent_deliveries"] = 3.into();
    });
    for (number, comments) in [(1, 4), (2, 3), (3, 3)] {
        place.item(number, comments);
    }
    let poller = place.start();
    place.until("the healthy one has all", || healthy.got().len() >= 13);
    // One of each item, which is not answered yet.
    assert!(dead.lines().len() <= 3, "{:?}", dead.lines());
    assert!(
        place.entries("dispatch.failed").is_empty(),
        "nobody waited for a timeout"
    );
    for number in 1..=3 {
        let of: Vec<String> = healthy
            .ids()
            .into_iter()
            .filter(|id| id.starts_with(&format!("dir:inbox#{number}/")))
            .collect();
        let comments = (1..=if number == 1 { 4 } else { 3 })
            .map(|id| format!("dir:inbox#{number}/comment/{id}"));
        let want: Vec<String> = std::iter::once(format!("dir:inbox#{number}/opened"))
            .chain(comments)
            .collect();
        assert_eq!(of, want);
    }
    let recorded = || {
        let done = place.entries("dispatch.succeeded");
        done.iter().filter(|e| e["sink"] == "healthy").count()
    };
    place.until("that is recorded", || recorded() == 13);
    poller.kill();
    // The next one asks the dead one again, and the healthy one nothing.
    let _poller = place.start();
    place.until("the dead one is asked again", || dead.lines().len() >= 4);
    assert_eq!(healthy.got().len(), 13);
}

/// Given a command, a slow endpoint and one that refuses connections, all for the same items (R6.6), when events come, then
/// the command gets all at once, the slow one in its own time, and the third's are given up after its own tries, each in order
/// and in `show` with its own outcome; a restart repeats nothing.
#[test]
fn r6_6_a_command_and_endpoints_each_go_at_their_own_pace() {
    let slow = Inbox::start(|_| Reply::json("{}").delay(Duration::from_millis(400)));
    let refusing = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("it is known");
    let command = json!({ "type": "exec", "command": ["sh", "-c", r#"echo "$IDEMPOLL_DELIVERY_ID" >> ran.log"#] });
    let refusing = http(&format!("http://{refusing}/hook"), &json!({}));
    let place = place(&[
        ("command", command),
        ("refusing", refusing),
        ("slow", http(&slow.url(), &json!({}))),
    ]);
    edit(&place, |config| config["max_retries"] = 1.into());
    place.item(7, 3);
    let mut poller = place.start();
    place.until("the command has all", || place.lines("ran.log").len() == 4);
    assert!(slow.got().len() < 4, "it did not wait for the slow one");
    place.until("all is settled", || place.pending() == 0);
    place.run(&["stop"]).expect(0);
    assert!(poller.ended().success());
    let ids: Vec<String> = ["opened", "comment/1", "comment/2", "comment/3"]
        .map(|key| format!("dir:inbox#7/{key}"))
        .into();
    assert_eq!(
        (place.lines("ran.log"), slow.ids()),
        (ids.clone(), ids.clone())
    );
    let show: Value =
        serde_json::from_str(&place.run(&["show", "dir:inbox#7", "--json"]).stdout).expect("JSON");
    for id in &ids {
        let lines = show["deliveries"].as_array().expect("a list").iter();
        let mut of: Vec<(String, String, u64)> = lines
            .filter(|line| line["delivery_id"] == *id)
            .map(|line| {
                let text = |key: &str| line[key].as_str().unwrap_or_default().to_string();
                (
                    text("sink"),
                    text("status"),
                    line["attempts"].as_u64().expect("a number"),
                )
            })
            .collect();
        of.sort();
        let outcome =
            |sink: &str, status: &str, attempts| (sink.to_string(), status.to_string(), attempts);
        let want = [
            outcome("command", "delivered", 0),
            outcome("refusing", "gave_up", 2),
            outcome("slow", "delivered", 0),
        ];
        assert_eq!(of, want);
    }
    place.once().expect(0);
    assert_eq!((place.lines("ran.log").len(), slow.got().len()), (4, 4));
}

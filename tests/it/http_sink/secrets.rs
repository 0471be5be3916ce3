//! Secrets of a sink: where they stand, how they are read, and where they must not be seen.

use super::{edit, http, place, reasons};
use crate::world::forge::{Asked, Reply};
use crate::world::receiver::{Inbox, Receiver};
use serde_json::json;
use std::fs;

/// Given the secret in a file that ends in a newline, in CR LF, begins with a byte-order mark or has blanks around it (C134,
/// C133), when something is delivered, then the receiver, which has it without any of that, finds the signature right.
#[test]
fn c134_a_secret_is_read_by_the_rule_for_tokens() {
    let receiver = Receiver::start("s3cret with a blank and é", "200");
    let sink = http(&receiver.url(), &json!({ "secret_file": "secret" }));
    let place = place(&[("hook", sink)]);
    for (n, (before, after)) in [
        ("", "\n"),
        ("", "\r\n"),
        ("\u{feff}", "\n"),
        ("  ", "\t \n"),
    ]
    .iter()
    .enumerate()
    {
        place.write(
            "secret",
            &format!("{before}s3cret with a blank and é{after}"),
        );
        place.item(n as u64 + 1, 0);
        place.once().expect(0);
    }
    assert_eq!(receiver.field("signature_ok"), [true; 4]);
}

/// Given a secret or the value of a header in a file that is empty, blank, of two lines, or not there (C133), when something
/// is delivered, then nothing is sent and no try is spent, the reason names the file and shows nothing of it, and as soon as
/// it is right the delivery is made.
#[test]
fn c133_without_its_secret_nothing_is_sent() {
    let inbox = Inbox::friendly();
    let sink = http(
        &inbox.url(),
        &json!({ "secret_file": "secret", "header_files": { "Authorization": "auth" } }),
    );
    let place = place(&[("hook", sink)]);
    edit(&place, |config| config["max_retries"] = 0.into());
    place.item(7, 0);
    for (file, good, bad) in [
        ("secret", "auth", None),
        ("secret", "auth", Some("")),
        ("secret", "auth", Some(" \r\n")),
        ("secret", "auth", Some("hunter2\nx")),
        ("auth", "secret", Some("\u{feff}\n")),
        ("auth", "secret", Some("hünter2")),
    ] {
        place.write(good, "Bearer hunter2\n");
        match bad {
            Some(text) => place.write(file, text),
            None => drop(fs::remove_file(place.path(file))),
        }
        let mut said = String::new();
        place.until("its time has come", || {
            said = place.run(&["start", "--once"]).stderr;
            said.contains("not now: ")
        });
        let name = place.path(file).display().to_string();
        assert!(said.contains(&name), "{said}");
        let checked = place.run(&["check"]).expect(1).stdout;
        assert!(
            checked.contains("problem: sink 'hook': cannot ") && checked.contains(&name),
            "{checked}"
        );
        assert!(
            !format!("{said}{checked}").contains("nter2"),
            "{said}{checked}"
        );
    }
    assert!(inbox.got().is_empty() && place.entries("dispatch.failed").is_empty());
    place.write("auth", "\u{feff}Bearer hunter2\r\n");
    place.write("secret", "x\n");
    place.until("it is delivered", || {
        place.once();
        !inbox.got().is_empty()
    });
    assert_eq!(
        inbox.got()[0].header("authorization"),
        Some("Bearer hunter2")
    );
}

/// Given endpoints that repeat of what they were sent the bare token alone, or say what the webhook's secret should have
/// been (C131), when something is delivered, then the reason has neither (R7.4).
#[test]
fn c131_r7_4_a_part_of_a_secret_is_not_shown_either() {
    let bare = |asked: &Asked| {
        let sent = asked.header("authorization").unwrap_or_default();
        let token = sent.rsplit([' ', '=']).next().unwrap_or_default();
        Reply::json(format!("no such token: {token} (want hunter2 of the hook)")).status(401)
    };
    let inbox = Inbox::start(bare);
    for auth in [
        "Bearer hunter2-of/the+header",
        "Token token=hunter2-of-the-header",
    ] {
        let place = place(&[(
            "hook",
            http(
                &inbox.url(),
                &json!({ "secret_file": "secret", "header_files": { "Authorization": "auth" } }),
            ),
        )]);
        edit(&place, |config| config["max_retries"] = 0.into());
        place.write("secret", "hunter2 of the hook\n");
        place.write("auth", auth);
        place.item(7, 0);
        let said = place.run(&["start", "--once", "-v"]).expect(1).stderr;
        let told = format!("{said}{}", place.story());
        assert!(
            told.contains("answered 401: no such token: [secret] (want [secret])"),
            "{told}"
        );
        assert!(!told.contains("hunter2"), "{told}");
    }
}

/// Given an endpoint that refuses and repeats all it was sent, a command beside it, and the highest log level (C131), when
/// something is delivered, then the webhook's secret and the header's value are in no output, no file of ours, no argument, and
/// not in the command's environment (R7.4).
#[test]
fn c131_r7_4_the_secrets_of_a_sink_are_seen_by_its_endpoint_alone() {
    let repeat = |asked: &Asked| Reply::json(format!("{:?}", asked.headers)).status(418);
    let inbox = Inbox::start(repeat);
    let to = format!("http://127.0.0.1:9/{}", "");
    let redirecting = Inbox::start(move |asked| {
        let value = asked
            .header("authorization")
            .unwrap_or_default()
            .replace(' ', "%20");
        Reply::json("")
            .status(302)
            .header("Location", format!("{to}{value}"))
    });
    let auth = json!({ "secret_env": "HOOK_SECRET", "header_files": { "Authorization": "auth" } });
    let command = json!({ "type": "exec", "command": ["sh", "-c", "env > seen.env; tr '\\0' ' ' < /proc/$PPID/cmdline >> seen.env"] });
    let place = place(&[
        ("hook", http(&inbox.url(), &auth)),
        ("elsewhere", http(&redirecting.url(), &auth)),
        ("command", command),
    ]);
    place.write("auth", "hunter2-of-the-header\n");
    edit(&place, |config| config["max_retries"] = 0.into());
    place.item(7, 0);
    let mut told = String::new();
    for args in [
        &["start", "--once", "-v"][..],
        &["check"],
        &["status", "--json"],
        &["show", "dir:inbox#7"],
        &["items", "--json"],
        &["events"],
    ] {
        let output = place
            .command(args)
            .env("HOOK_SECRET", "hunter2-of-the-hook")
            .output()
            .expect("the program starts");
        told.push_str(&String::from_utf8_lossy(&output.stdout));
        told.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!((inbox.got().len(), redirecting.got().len()), (1, 1));
    assert_eq!(
        inbox.got()[0].header("authorization"),
        Some("hunter2-of-the-header")
    );
    assert!(inbox.got()[0].header("x-hub-signature-256").is_some());
    assert!(
        told.contains("answered 418: [(") && told.contains("[secret]"),
        "{told}"
    );
    assert_eq!(reasons(&place, "dispatch.failed").len(), 2);
    let env = fs::read_to_string(place.path("seen.env")).expect("the command ran");
    assert!(
        env.contains("IDEMPOLL_EVENT=opened") && !env.contains("HOOK_SECRET"),
        "{env}"
    );
    let kept = place
        .snapshot()
        .into_iter()
        .map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned());
    for text in kept.chain([told, env, place.story()]) {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

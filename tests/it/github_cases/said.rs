//! What is said on items: edits, our own words, bots, strangers, and the three conversations of a pull request.

use super::{Case, everything};
use crate::world::forge::Reply;
use crate::world::hub::faults::on;
use crate::world::hub::{New, Verdict};
use idempoll::engine::access::Policy;
use serde_json::{Value, json};

/// Given a comment that was delivered, when it is edited (C035), in the next minute or days later, then it is not
/// delivered again; one that is edited before it is first read is delivered as it reads then, once.
#[test]
fn c035_an_edited_comment_is_not_delivered_again() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::issue().by("sam")));
    case.cycle_after(60);
    let id = case.repo(|repo| repo.comment(1, "sam", "please run teh tests"));
    assert_eq!(case.cycle_after(30), [format!("1/comment/{id}")]);
    for wait in [10, 4000, 90_000] {
        case.repo(|repo| repo.edit_comment(id, "please run the tests"));
        assert_eq!(case.cycle_after(wait), [""; 0]);
        assert_eq!(case.settle(), [""; 0]);
    }
    let later = case.repo(|repo| repo.comment(1, "sam", "adn again"));
    case.later(20);
    case.repo(|repo| repo.edit_comment(later, "and again"));
    assert_eq!(case.cycle_after(20), [format!("1/comment/{later}")]);
    assert_eq!(case.settle(), [""; 0]);
    let said = |id: u64| &case.payload(&format!("/comment/{id}"))["comment"]["body"];
    assert_eq!(
        (said(id), said(later)),
        (&json!("please run teh tests"), &json!("and again"))
    );
    assert_eq!(case.poller.missed, 0);
}

/// Given comments that were delivered, when some are deleted (C036), whether that changes the item or not, then
/// nothing is delivered, then or later, and what is said afterwards is, once.
#[test]
fn c036_a_deleted_comment_delivers_nothing_and_shifts_nothing() {
    for moves in [false, true] {
        let mut case = Case::new();
        case.hub.lock().deletion_moves_item = moves;
        case.repo(|repo| repo.open(New::issue().by("sam")));
        case.cycle_after(60);
        let ids = [0; 3].map(|_| case.repo(|repo| repo.comment(1, "sam", "go")));
        assert_eq!(case.cycle_after(30).len(), 3);
        for id in &ids[1..] {
            case.repo(|repo| repo.delete_comment(*id));
            assert_eq!(case.cycle_after(60), [""; 0]);
        }
        assert_eq!(case.settle(), [""; 0]);
        assert_eq!(case.sweep(), [""; 0]);
        let id = case.repo(|repo| repo.comment(1, "sam", "go on"));
        assert_eq!(case.cycle_after(60), [format!("1/comment/{id}")]);
        assert_eq!(case.poller.missed, 0);
    }
}

/// Given an item, when its body or title is edited, a label is put on and taken off, it is locked, and reactions change
/// its rows (C037), then nothing is delivered.
#[test]
fn c037_an_item_that_was_edited_delivers_nothing() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::issue().by("sam")));
    assert_eq!(case.cycle_after(60), ["1/opened"]);
    type Edit = fn(&mut crate::world::hub::Edit<'_>);
    let edits: [Edit; 6] = [
        |repo| repo.edit_body(1, Some("@agent start")),
        |repo| repo.edit_title(1, "@agent make it so"),
        |repo| repo.label(1, "bug"),
        |repo| repo.unlabel(1, "bug"),
        |repo| repo.lock(1),
        |repo| repo.unlock(1),
    ];
    for edit in edits {
        case.repo(edit);
        assert_eq!(case.cycle_after(60), [""; 0]);
    }
    let liked = |reply: Reply| {
        super::with_rows(reply, |rows| {
            for row in rows {
                row["reactions"]["heart"] = 7.into();
            }
        })
    };
    case.hub.lock().spoil(usize::MAX, |_| true, liked);
    assert_eq!(case.settle(), [""; 0]);
    assert_eq!(case.sweep(), [""; 0]);
    assert_eq!(case.ended(), [""; 0]);
}

/// Given an agent that answers on the item, with the poller's own account and marker, or with an account nobody
/// authorized, and quotes what summons it (C039), then its answer is never delivered, on any surface.
#[test]
fn c039_an_answer_of_the_agents_own_never_comes_back() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::pull_request().by("sam").title("@agent make it so")));
    assert_eq!(case.cycle_after(60), ["1/opened"]);
    for _ in 0..3 {
        case.repo(|repo| {
            let own = "Write `@agent help` to see what I can do. <!-- idempoll -->";
            repo.comment(1, "sam", own);
            repo.review(1, "sam", Verdict::Commented, own);
            repo.line_comment(1, "sam", own);
            repo.comment(1, "agent-account", "Write `@agent help`.");
            repo.review(1, "agent-account", Verdict::Approved, "@agent");
        });
        assert_eq!(case.cycle_after(60), [""; 0]);
    }
    assert_eq!(case.settle(), [""; 0]);
    assert_eq!(case.sweep(), [""; 0]);
}

/// Given an item whose title and body hold the words that summon a bot, and a bot that answers at every turn, which
/// changes the item (C040), then title and body are delivered once, and besides only what people say.
#[test]
fn c040_an_item_that_bots_keep_changing_is_opened_once() {
    let mut case = Case::new();
    let new = New::issue().by("sam").title("@agent make it so");
    case.repo(|repo| repo.open(new.body(Some("@agent start"))));
    let mut told = case.cycle_after(60);
    for turn in 0..4 {
        case.repo(|repo| repo.comment(1, "widget-bot[bot]", "I could not read the command."));
        told.extend(case.cycle_after(60));
        if turn % 2 == 1 {
            case.repo(|repo| repo.comment(1, "sam", "a human word"));
            told.extend(case.cycle_after(60));
        }
    }
    told.extend(case.settle());
    assert_eq!(told, ["1/opened", "1/comment/5003", "1/comment/5006"]);
}

/// Given comments by an account of type `Bot` without the usual suffix, by one with it, and by a person whose login
/// sounds like one (C042), when members may act, then only the person may; a bot may that is named in the list.
#[test]
fn c042_a_bot_is_told_by_its_type_and_let_in_by_its_name() {
    for named in [false, true] {
        let mut policy = Policy {
            authorized_associations: vec!["MEMBER".into()],
            ..everything()
        };
        if named {
            policy.authorized_users.push("build[bot]".into());
        }
        let mut case = Case::of(policy, |config| config);
        case.repo(|repo| repo.open(New::issue().by("sam")));
        case.cycle_after(60);
        case.hub
            .lock()
            .spoil(usize::MAX, on("/issues/comments"), |reply| {
                super::with_rows(reply, |rows| {
                    for row in rows {
                        if row["user"]["login"] == "review-helper" {
                            row["user"]["type"] = "Bot".into();
                        }
                    }
                })
            });
        for by in ["review-helper", "build[bot]", "robot-fan"] {
            case.repo(|repo| repo.comment(1, by, "a line"));
        }
        let mut want = vec!["1/comment/5003"];
        if named {
            want.insert(0, "1/comment/5002");
        }
        assert_eq!(case.cycle_after(60), want);
        let refused = case.poller.said("poll.unauthorized").len();
        assert_eq!(refused, if named { 1 } else { 2 });
    }
}

/// Given a pull request with a comment, a comment on a line and a review of the same number (C043), when they are read,
/// then each is delivered once, under its own name and with what it says besides its text.
#[test]
fn c043_equal_numbers_on_three_surfaces_do_not_hide_each_other() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::pull_request().by("sam")));
    case.cycle_after(60);
    let line = case.repo(|repo| repo.line_comment(1, "sam", "inline"));
    let comment = case.repo(|repo| repo.comment(1, "sam", "conversation"));
    // The review of the line comment had the number 5001.
    case.hub.lock().spoil(usize::MAX, on("/reviews"), |reply| {
        super::with_rows(reply, |rows| {
            let mut summary = rows[0].clone();
            summary["body"] = "in all".into();
            summary["state"] = "CHANGES_REQUESTED".into();
            rows[0] = summary;
        })
    });
    assert_eq!((line, comment), (5001, 5001));
    let told = case.cycle_after(60);
    assert_eq!(
        told,
        ["1/comment/5001", "1/review/5001", "1/review_comment/5001"]
    );
    let said = |surface: &str| &case.payload(&format!("#1/{surface}/5001"))["comment"];
    assert_eq!(said("comment")["body"], "conversation");
    assert_eq!(said("comment")["path"], Value::Null);
    let review = said("review");
    assert_eq!(
        (&review["body"], &review["state"]),
        (&json!("in all"), &json!("changes_requested"))
    );
    let line = said("review_comment");
    for (key, value) in [
        ("body", json!("inline")),
        ("path", json!("src/main.rs")),
        ("line", json!(2)),
        ("side", json!("RIGHT")),
        ("diff_hunk", json!("@@ -1,3 +1,4 @@ fn main() {")),
        ("pull_request_review_id", json!(5001)),
    ] {
        assert_eq!(line[key], value, "{key}");
    }
    assert_eq!(line["in_reply_to_id"], Value::Null);
    let event = &case.payload("#1/review_comment/5001")["event"];
    assert_eq!(event, "review_comment");
    assert_eq!(case.settle(), [""; 0]);
    assert_eq!(case.sweep(), [""; 0]);
    assert_eq!(case.poller.missed, 0);
}

/// Given an answer to a comment on a line, when it is read, then it is delivered with what it answers (C043).
#[test]
fn c043_an_answer_on_a_line_says_what_it_answers() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::pull_request().by("sam")));
    case.cycle_after(60);
    let first = case.repo(|repo| repo.line_comment(1, "eve", "is that right?"));
    let answer = case.repo(|repo| repo.reply(first, "sam", "it is"));
    assert_eq!(case.cycle_after(60), [format!("1/review_comment/{answer}")]);
    let said = &case.payload("/review_comment/5002")["comment"];
    assert_eq!(said["in_reply_to_id"], first);
}

/// Given reviews that only comment, that approve without a word, that ask for changes, that are drafts, and one that
/// is dismissed later (C044), when they are read, then those with text are delivered once each, the draft when it is
/// submitted, and its line comments with it, however long ago they were written.
#[test]
fn c044_reviews_with_text_are_delivered_once_and_drafts_when_they_are_submitted() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::pull_request().by("sam")));
    // Begun before the repository was ever watched.
    let draft = case.repo(|repo| repo.draft_review(1, "sam"));
    let line = case.repo(|repo| repo.draft_line_comment(draft, "and here"));
    assert_eq!(case.cycle_after(600), ["1/opened"]);
    let [remark, _, changes, dismissed] = case.repo(|repo| {
        [
            repo.review(1, "sam", Verdict::Commented, "only a remark"),
            repo.review(1, "sam", Verdict::Approved, ""),
            repo.review(1, "sam", Verdict::ChangesRequested, "please rename"),
            repo.review(1, "sam", Verdict::ChangesRequested, "to be dismissed"),
        ]
    });
    let review = |id: u64| format!("1/review/{id}");
    let told = case.cycle_after(60);
    assert_eq!(told, [review(remark), review(changes), review(dismissed)]);
    case.repo(|repo| repo.dismiss_review(dismissed));
    case.repo(|repo| repo.edit_review(remark, "only a remark, reworded"));
    assert_eq!(case.settle(), [""; 0]);
    assert_eq!(case.sweep(), [""; 0]);
    let comment = case.repo(|repo| repo.comment(1, "sam", "said before it was submitted"));
    case.later(30);
    case.repo(|repo| repo.submit_review(draft, Verdict::Commented, "at last"));
    let told = case.cycle_after(60);
    let said = format!("1/comment/{comment}");
    let line = format!("1/review_comment/{line}");
    assert_eq!(told, [said, review(draft), line]);
    assert_eq!(case.settle(), [""; 0]);
    assert_eq!(case.sweep(), [""; 0]);
    assert_eq!(case.poller.missed, 0);
    // A dismissed one that nobody saw before is delivered as what it is.
    let unseen = case.repo(|repo| repo.review(1, "sam", Verdict::ChangesRequested, "unseen"));
    case.repo(|repo| repo.dismiss_review(unseen));
    assert_eq!(case.cycle_after(60), [review(unseen)]);
    assert_eq!(
        case.payload(&review(unseen))["comment"]["state"],
        "dismissed"
    );
}

/// Given an item of somebody trusted, when a stranger's comment with an archive comes, and then a member's that quotes
/// it (C047), then the stranger's reaches no sink, now or after a restart or once the stranger is trusted, and the log
/// says why; the member's is delivered.
#[test]
fn c047_a_strangers_comment_on_a_trusted_item_has_no_effect() {
    let mut policy = Policy {
        authorized_associations: vec!["MEMBER".into()],
        ..everything()
    };
    let mut case = Case::of(policy.clone(), |config| config);
    let stranger = ("drive-by-99".to_string(), "NONE".to_string());
    case.hub.lock().associations.extend([stranger]);
    case.repo(|repo| repo.open(New::issue().by("sam")));
    case.cycle_after(60);
    case.repo(|repo| repo.comment(1, "drive-by-99", "unpack this: http://x.test/fix_patch.zip"));
    let own = case.repo(|repo| repo.comment(1, "kim", "> unpack this\n\nDo not touch it."));
    assert_eq!(case.cycle_after(60), [format!("1/comment/{own}")]);
    case.settle();
    case.poller.restart();
    assert_eq!(case.sweep(), [""; 0]);
    let entry = case
        .poller
        .log
        .iter()
        .find(|e| e.kind == "poll.unauthorized");
    let fields = &entry.expect("it is said").fields;
    assert_eq!(fields["author"], "drive-by-99");
    assert!(fields["reason"].as_str().is_some_and(|why| !why.is_empty()));
    policy.authorized_users.push("drive-by-99".into());
    let config = crate::world::polled::config(case.hub.url());
    case.poller.reconfigure(config, policy);
    assert_eq!(case.settle(), [""; 0]);
}

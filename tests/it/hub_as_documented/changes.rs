//! What a change does to lists, times and events.

use super::{COMMENTS, ISSUES, LINES, PULLS, REPO, ask, get, with_issues};
use crate::world::hub::{Edit, Hub, New, Trace, Verdict};

/// An item's times: in `/issues` and, of a pull request, in `/pulls`.
fn times(hub: &Hub, number: u64) -> (String, String) {
    let of = |path: &str| {
        let rows = get(hub, &format!("{path}?state=all")).json();
        let mut rows = rows.as_array().expect("a list").iter();
        let row = rows.find(|row| row["number"] == number);
        let time = row.and_then(|row| row["updated_at"].as_str());
        time.map_or(String::new(), |time| time[11..16].to_string())
    };
    (of(ISSUES), of(PULLS))
}

#[test]
fn reviews_and_line_comments_move_an_item_in_pulls_alone() {
    let hub = Hub::new();
    let n = hub.lock().repo(REPO).open(New::pull_request());
    hub.lock().advance(60);
    let review = hub.lock().repo(REPO).draft_review(n, "sam");
    let draft = hub.lock().repo(REPO).draft_line_comment(review, "why?");
    let reviews = format!("{PULLS}/{n}/reviews");
    assert_eq!(get(&hub, &reviews).each("id"), [0; 0], "its author's alone");
    assert_eq!(get(&hub, LINES).each("id"), [0; 0]);
    assert_eq!(times(&hub, n), ("10:00".into(), "10:00".into()));

    hub.lock().advance(60);
    hub.lock()
        .repo(REPO)
        .submit_review(review, Verdict::Commented, "see below");
    assert_eq!(times(&hub, n), ("10:00".into(), "10:02".into()));
    let row = &get(&hub, LINES).json()[0];
    assert_eq!(
        row["created_at"], "2026-08-05T10:01:00Z",
        "when it was drafted"
    );
    assert_eq!(
        row["updated_at"], "2026-08-05T10:02:00Z",
        "when it was submitted"
    );
    assert_eq!(
        (row["id"].as_u64(), row["pull_request_review_id"].as_u64()),
        (Some(draft), Some(review))
    );
    let row = &get(&hub, &reviews).json()[0];
    assert_eq!(
        (&row["state"], &row["body"]),
        (&"COMMENTED".into(), &"see below".into())
    );
    assert_eq!(row["submitted_at"], "2026-08-05T10:02:00Z");

    hub.lock().advance(60);
    let line = hub.lock().repo(REPO).line_comment(n, "kim", "here");
    hub.lock().repo(REPO).reply(line, "sam", "there");
    assert_eq!(times(&hub, n), ("10:00".into(), "10:03".into()));
    let lines = get(&hub, &format!("{LINES}?sort=updated&direction=desc"));
    assert_eq!(lines.each("id"), [line + 1, line, draft]);
    assert_eq!(lines.json()[0]["in_reply_to_id"], line);
    let since = format!("{LINES}?since=2026-08-05T10:03:00Z");
    assert_eq!(get(&hub, &since).each("id"), [line, line + 1]);
    let states = get(&hub, &reviews).json();
    assert_eq!(
        states[1]["body"], "",
        "a comment outside of a review has one of its own"
    );

    hub.lock().advance(60);
    hub.lock().repo(REPO).dismiss_review(review);
    assert_eq!(times(&hub, n), ("10:00".into(), "10:04".into()));
    let row = &get(&hub, &reviews).json()[0];
    assert_eq!(
        (&row["state"], &row["submitted_at"]),
        (&"DISMISSED".into(), &"2026-08-05T10:02:00Z".into())
    );
    hub.lock().advance(60);
    hub.lock().repo(REPO).edit_line_comment(line, "right here");
    hub.lock().repo(REPO).edit_review(review, "see above");
    assert_eq!(times(&hub, n), ("10:00".into(), "10:05".into()));
    hub.lock().repo(REPO).delete_line_comment(line);
    assert_eq!(get(&hub, LINES).each("id"), [draft, line + 1]);
    assert_eq!(times(&hub, n), ("10:00".into(), "10:05".into()));
}

#[test]
fn comments_and_their_edits_move_their_item() {
    let hub = with_issues(1);
    hub.lock().advance(60);
    let id = hub.lock().repo(REPO).comment(1, "sam", "one");
    assert_eq!(times(&hub, 1).0, "10:02");
    hub.lock().advance(60);
    hub.lock().repo(REPO).edit_comment(id, "won");
    assert_eq!(times(&hub, 1).0, "10:03");
    let row = &get(&hub, COMMENTS).json()[0];
    assert_eq!(
        (&row["created_at"], &row["updated_at"]),
        (
            &"2026-08-05T10:02:00Z".into(),
            &"2026-08-05T10:03:00Z".into()
        )
    );
    assert!(
        row["issue_url"]
            .as_str()
            .is_some_and(|u| u.ends_with("/repos/octo/widgets/issues/1"))
    );
    let since = "since=2026-08-05T10:03:00Z";
    assert_eq!(
        get(&hub, &format!("{ISSUES}/1/comments?{since}")).each("id"),
        [id]
    );
    hub.lock().advance(60);
    let other = hub.lock().repo(REPO).comment(1, "kim", "two");
    // Not in order unless `sort` is given.
    assert_eq!(
        get(&hub, &format!("{COMMENTS}?direction=desc")).each("id"),
        [id, other]
    );
    assert_eq!(
        get(&hub, &format!("{COMMENTS}?sort=updated&direction=desc")).each("id"),
        [other, id]
    );
    hub.lock().advance(60);
    hub.lock().repo(REPO).delete_comment(id);
    assert_eq!(times(&hub, 1).0, "10:04");
    assert_eq!(
        get(&hub, COMMENTS).each("id"),
        [other],
        "it leaves no trace"
    );
    assert_eq!(get(&hub, &format!("{ISSUES}/1")).json()["comments"], 1);
    hub.lock().deletion_moves_item = true;
    hub.lock().repo(REPO).delete_comment(other);
    assert_eq!(times(&hub, 1).0, "10:05");
}

#[test]
fn the_events_of_an_item_say_when_it_was_labelled_and_closed() {
    let hub = Hub::new();
    let n = hub
        .lock()
        .repo(REPO)
        .open(New::pull_request().label("early"));
    let change = |what: &dyn Fn(&mut Edit<'_>)| {
        hub.lock().advance(60);
        what(&mut hub.lock().repo(REPO));
    };
    change(&|repo| repo.label(n, "auto"));
    change(&|repo| repo.unlabel(n, "AUTO"));
    change(&|repo| repo.edit_title(n, "Tidier"));
    change(&|repo| repo.close(n));
    change(&|repo| repo.reopen(n));
    change(&|repo| repo.lock(n));
    change(&|repo| repo.unlock(n));
    change(&|repo| repo.merge(n));
    assert_eq!(times(&hub, n), ("10:08".into(), "10:08".into()));
    let events = get(&hub, &format!("{ISSUES}/{n}/events")).json();
    let events = events.as_array().expect("a list");
    let what: Vec<(&str, &str)> = events
        .iter()
        .map(|e| {
            (
                e["event"].as_str().unwrap_or_default(),
                &e["created_at"].as_str().unwrap_or_default()[14..16],
            )
        })
        .collect();
    assert_eq!(
        what,
        [
            ("labeled", "00"),
            ("labeled", "01"),
            ("unlabeled", "02"),
            ("renamed", "03"),
            ("closed", "04"),
            ("reopened", "05"),
            ("locked", "06"),
            ("unlocked", "07"),
            ("merged", "08"),
            ("closed", "08")
        ]
    );
    assert_eq!(events[1]["label"]["name"], "auto");
    let row = get(&hub, &format!("{PULLS}?state=closed")).json();
    assert_eq!(row[0]["merged_at"], "2026-08-05T10:08:00Z");
    hub.lock().repo(REPO).rename_label("auto", "machine");
    let named = || get(&hub, &format!("{ISSUES}/{n}/events")).json()[1]["label"]["name"].clone();
    assert_eq!(named(), "auto");
    hub.lock().events_follow_label_names = true;
    assert_eq!(named(), "machine");
}

#[test]
fn an_item_moves_away_or_is_deleted() {
    let hub = with_issues(4);
    hub.lock().create("octo/gadgets");
    hub.lock().repo("octo/gadgets").open(New::issue());
    hub.lock().repo(REPO).comment(2, "sam", "which repository?");
    let there = hub.lock().transfer(REPO, 2, "octo/gadgets");
    hub.lock().repo(REPO).delete(3, Trace::Gone);
    hub.lock().repo(REPO).delete(4, Trace::Nothing);
    assert_eq!(get(&hub, ISSUES).numbers(), [1]);
    assert_eq!(get(&hub, COMMENTS).each("id"), [0; 0]);
    let moved = get(&hub, &format!("{ISSUES}/2"));
    let to = format!("/repositories/4243/issues/{there}");
    assert_eq!(moved.status, 301);
    assert_eq!(
        moved.header("location"),
        Some(&*format!("{}{to}", hub.url()))
    );
    assert_eq!(get(&hub, &to).json()["comments"], 1);
    assert_eq!(
        get(&hub, "/repos/octo/gadgets/issues/comments")
            .each("id")
            .len(),
        1
    );
    for (n, status) in [(1, 200), (3, 410), (4, 404), (5, 404)] {
        assert_eq!(get(&hub, &format!("{ISSUES}/{n}")).status, status);
    }
    hub.lock().revoke("octo/gadgets");
    assert_eq!(get(&hub, &format!("{ISSUES}/2")).status, 404);
}

#[test]
fn a_repository_is_renamed_and_its_old_name_given_to_another() {
    let hub = with_issues(1);
    hub.lock().rename(REPO, "acme/sprockets");
    let moved = get(&hub, "/repos/Octo/Widgets/issues?state=all");
    let to = "/repositories/4242/issues?state=all";
    assert_eq!(moved.status, 301);
    assert_eq!(
        moved.header("location"),
        Some(&*format!("{}{to}", hub.url()))
    );
    assert_eq!(moved.json()["url"], format!("{}{to}", hub.url()));
    assert_eq!(get(&hub, to).numbers(), [1]);
    let whole = get(&hub, "/repositories/4242").json();
    assert_eq!(
        (&whole["full_name"], &whole["id"]),
        (&"acme/sprockets".into(), &4242.into())
    );
    hub.lock().bare_redirects = true;
    let moved = get(&hub, &format!("{ISSUES}?state=all"));
    assert!(
        moved
            .header("location")
            .is_some_and(|l| l.ends_with("/issues"))
    );

    hub.lock().recreate(REPO);
    let whole = get(&hub, "/repos/octo/widgets").json();
    assert_eq!(whole["id"], 4243, "another one of that name");
    assert_eq!(get(&hub, ISSUES).numbers(), [0; 0]);
    hub.lock().revoke(REPO);
    assert_eq!(get(&hub, ISSUES).status, 404);
    hub.lock().restore(REPO);
    assert_eq!(get(&hub, ISSUES).status, 200);
    hub.lock().repo(REPO).repo.private = true;
    let nobody = ask(&hub, "GET", ISSUES, "User-Agent: test\r\n").expect("an answer");
    assert_eq!(nobody.status, 404);
    hub.lock().delete(REPO);
    assert_eq!(get(&hub, ISSUES).status, 404);
    assert_eq!(get(&hub, "/repos/acme/sprockets/issues").numbers(), [1]);
}

#[test]
fn authors_may_be_bots_strangers_or_nobody() {
    let hub = Hub::new();
    let mut world = hub.lock();
    let n = world
        .repo(REPO)
        .open(New::issue().by("build[bot]").body(None));
    world.repo(REPO).comment(n, "gone-since", "bye");
    world.repo(REPO).comment(n, "passer-by", "hello");
    world.delete_account("gone-since");
    world.associations.insert("passer-by".into(), "NONE".into());
    drop(world);
    let issue = &get(&hub, ISSUES).json()[0];
    assert_eq!(issue["user"]["type"], "Bot");
    assert!(issue["body"].is_null());
    let comments = get(&hub, COMMENTS).json();
    assert!(comments[0]["user"].is_null());
    assert_eq!(comments[1]["author_association"], "NONE");
}

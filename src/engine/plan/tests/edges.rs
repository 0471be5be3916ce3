//! Moments that are equal, and on which side they fall.

use super::*;

fn look(item: Item, comments: Vec<Comment>) -> Sighting {
    Sighting { item, comments }
}

fn labelled() -> Rules {
    let mut labelled = rules();
    labelled.policy.label = Some("auto".into());
    labelled
}

/// C111: what ended in the very moment in which a damaged record was last written may not have been told before.
#[test]
fn c111_an_end_in_the_moment_of_the_damage_is_told() {
    for (at, told) in [(4_999_999, 0), (5_000_000, 1)] {
        let modified = Time(5_000_000);
        let mut record = Some(Record::instead_of_damaged(
            "in",
            item().item_ref,
            true,
            modified,
        ));
        let judged = rules().judge(&mut record, &look(closed_at(at), vec![]), WATCHED, NOW);
        assert_eq!(judged.queued, told, "ended at {at}");
    }
}

/// C111: a file of a time that no number of an opening can hold leaves one for the next.
#[test]
fn c111_numbers_after_a_damaged_record_do_not_run_out() {
    let item_ref = item().item_ref;
    let modified = Time(u64::from(u32::MAX) * 1000 + 5000);
    let mut record = Some(Record::instead_of_damaged("in", item_ref, false, modified));
    let judged = rules().judge(&mut record, &look(item(), vec![]), WATCHED, NOW);
    assert_eq!(judged.queued, 1);
    let keys: Vec<_> = record.iter().flat_map(|r| r.events.values()).collect();
    assert_eq!(keys[0].key.to_string(), format!("opened/{}", u32::MAX));
}

/// Given an item whose label went and that was closed, when it is looked at, then what came first is its end;
/// and an open one without its label is gone, whether or not it is known since when.
#[test]
fn what_came_first_is_the_end() {
    let bare = |state: Item, went: Option<u64>| Item {
        labels: vec![],
        labels_dated: true,
        unlabelled_at: went.map(Time),
        ..state
    };
    let closed = closed_at(3_000_000);
    for (now, reason) in [
        (bare(closed.clone(), Some(2_999_999)), "gone"),
        (bare(closed.clone(), Some(3_000_000)), "closed"),
        (bare(closed.clone(), Some(3_000_001)), "closed"),
        (bare(closed, None), "closed"),
        (bare(item(), Some(2_000_000)), "gone"),
        (bare(item(), None), "gone"),
    ] {
        let what = format!("{now:?}");
        let (record, told) = story(&labelled(), &[(item(), vec![]), (now, vec![])]);
        assert_eq!(told, [["opened"], ["closed"]], "{what}");
        let record = record.expect("a record");
        let end = record.events.values().find(|e| e.kind == EventKind::Closed);
        let payload = &end.expect("an end").payload;
        let wanted = format!(r#""reason":"{reason}""#);
        assert!(payload.contains(&wanted), "{what}: {payload}");
    }
}

/// R6.4: what is closed at first sight counts as open while watched from the moment of the watch on; without
/// the time of its end, the time it was made decides.
#[test]
fn r6_4_the_moment_of_the_watch_is_watched() {
    let undated = |created: u64| Item {
        closed_at: None,
        created_at: Some(Time(created)),
        ..closed_at(0)
    };
    for (item, told) in [
        (closed_at(WATCHED.0), true),
        (closed_at(WATCHED.0 - 1), false),
        (undated(WATCHED.0), true),
        (undated(WATCHED.0 - 1), false),
    ] {
        let what = format!("{item:?}");
        let all = keys(&rules(), &[(item, vec![])]);
        let wanted: &[&str] = if told { &["opened", "closed"] } else { &[] };
        assert_eq!(all, [wanted], "{what}");
    }
}

/// R6.4: an item made in the moment the watch began is no backlog.
#[test]
fn r6_4_the_backlog_ends_before_the_watch() {
    let mut skip = rules();
    skip.policy.backlog = Backlog::Skip;
    let made = |at: u64| Item {
        created_at: Some(Time(at)),
        ..item()
    };
    assert_eq!(keys(&skip, &[(made(WATCHED.0), vec![])]), [["opened"]]);
    let none: [&str; 0] = [];
    assert_eq!(keys(&skip, &[(made(WATCHED.0 - 1), vec![])]), [none]);
}

/// Given an opening that was passed over as backlog, when the watch is moved back later, then it stays passed over.
#[test]
fn r6_4_a_backlog_passed_over_stays_so() {
    let mut skip = rules();
    skip.policy.backlog = Backlog::Skip;
    let mut record = None;
    let first = look(item(), vec![says(1, "octocat", 2_000_000)]);
    assert_eq!(skip.judge(&mut record, &first, WATCHED, NOW).queued, 1);
    skip.policy.watch_from = Some(Time::ZERO);
    assert_eq!(skip.judge(&mut record, &first, WATCHED, NOW).queued, 0);
}

/// R6.4: what was said in the very moments in which a label went and came back was said with the label.
#[test]
fn r6_4_a_label_is_there_until_and_from_its_moments() {
    let gap = Item {
        without_label: vec![(Time(2_000_000), Time(3_000_000))],
        labels_dated: true,
        ..item()
    };
    let said = |at: [u64; 4]| {
        let each = (1..).zip(at).map(|(id, at)| says(id, "octocat", at));
        each.collect::<Vec<_>>()
    };
    let comments = said([2_000_000, 2_000_001, 2_999_999, 3_000_000]);
    assert_eq!(
        keys(&labelled(), &[(gap, comments)]),
        [["opened", "comment/1", "comment/4"]]
    );
    let gone = Item {
        labels: vec![],
        labels_dated: true,
        unlabelled_at: Some(Time(2_000_000)),
        ..item()
    };
    let comments = said([1_999_999, 2_000_000, 2_000_001, 3_000_000]);
    let told = keys(&labelled(), &[(item(), vec![]), (gone, comments)]);
    assert_eq!(told[1], ["comment/1", "comment/2", "closed"]);
}

/// R7.1: the log says why somebody may not act, so that one knows what to add to the config.
#[test]
fn r7_1_the_log_says_why_an_author_may_not_act() {
    let nobody = Author {
        login: None,
        ..by("")
    };
    let bot = Author {
        bot: true,
        ..by("helper[bot]")
    };
    for (author, reason) in [
        (nobody, "the author's account no longer exists"),
        (bot, "a bot needs its exact login in authorized_users"),
        (
            by("stranger"),
            "not in authorized_users or authorized_associations",
        ),
    ] {
        let theirs = Item { author, ..item() };
        let judged = rules().judge(&mut None, &look(theirs, vec![]), WATCHED, NOW);
        assert_eq!(judged.entries[0].fields["reason"], reason);
    }
}

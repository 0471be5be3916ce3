//! Labels: when an item got its label, when it was without it, and labels that are no more.

use super::{Case, labelled};
use crate::world::hub::New;
use crate::world::polled::config;

/// Given an item labelled long after it was opened, with comments before and after, when the poller was there all along,
/// when it was down from the start to the end, or only looked in between, then the same is delivered: the opening, and
/// what was said since the label came (R6.4).
#[test]
fn r6_4_an_item_labelled_late_tells_what_was_said_since() {
    // After which of the steps it looks.
    for looks in [0b1111, 0b0000, 0b0001, 0b0010, 0b0100] {
        let mut case = Case::labelled();
        let mut told = case.cycle_after(60);
        case.settle();
        case.poller.restart();
        let steps: [fn(&Case); 4] = [
            |case| {
                case.repo(|repo| repo.open(New::issue().by("sam")));
            },
            |case| {
                case.repo(|repo| repo.comment(1, "sam", "before the label"));
            },
            |case| case.repo(|repo| repo.label(1, "Agent")),
            |case| {
                case.repo(|repo| repo.comment(1, "sam", "after it"));
            },
        ];
        for (at, step) in steps.iter().enumerate() {
            case.later(7200);
            step(&case);
            if looks & (1 << at) != 0 {
                told.extend(case.cycle_after(20));
                told.extend(case.settle());
            }
        }
        told.extend(case.cycle_after(20));
        told.extend(case.settle());
        assert_eq!(told, ["1/opened", "1/comment/5002"], "{looks:b}");
        case.sweep();
        assert_eq!(case.poller.missed, 0, "{looks:b}");
    }
}

/// Given an item whose label was put on, taken off and put on again, with comments in between, when the poller was there
/// all along or comes back at the end, then what was said with the label on is delivered, and what was said without it
/// never (R6.4).
#[test]
fn r6_4_what_was_said_without_the_label_is_never_delivered() {
    for up in [true, false] {
        let mut case = Case::labelled();
        case.cycle_after(60);
        case.settle();
        case.repo(|repo| repo.open(New::issue().by("sam")));
        let steps: [fn(&Case); 6] = [
            |case| {
                case.repo(|repo| repo.comment(1, "sam", "without, at first"));
            },
            |case| case.repo(|repo| repo.label(1, "agent")),
            |case| {
                case.repo(|repo| repo.comment(1, "sam", "with"));
            },
            |case| case.repo(|repo| repo.unlabel(1, "agent")),
            |case| {
                case.repo(|repo| repo.comment(1, "sam", "without"));
            },
            |case| case.repo(|repo| repo.label(1, "agent")),
        ];
        let mut told = Vec::new();
        for step in steps {
            case.later(600);
            step(&case);
            if up {
                told.extend(case.settle());
            }
        }
        case.later(600);
        case.repo(|repo| repo.comment(1, "sam", "with, again"));
        told.extend(case.settle());
        case.sweep();
        let said: Vec<&String> = told.iter().filter(|key| key.contains("comment")).collect();
        assert_eq!(said, ["1/comment/5002", "1/comment/5004"], "{up}: {told:?}");
        assert_eq!(told[0], "1/opened");
        let turns = told.iter().filter(|key| !key.contains("comment")).count();
        assert_eq!(turns, if up { 3 } else { 1 }, "{told:?}");
        assert_eq!(case.poller.missed, 0);
    }
}

/// Given items with the label, when it is taken off one of them, then that one ends, as `gone`, after what was said
/// before, and only that one; the label need not be asked for item by item.
#[test]
fn an_item_that_lost_its_label_ends() {
    let mut case = Case::labelled();
    for _ in 0..3 {
        case.repo(|repo| repo.open(New::issue().by("sam").label("agent")));
    }
    assert_eq!(case.cycle_after(60).len(), 3);
    case.settle();
    let comment = case.repo(|repo| repo.comment(2, "sam", "one last thing"));
    case.repo(|repo| repo.unlabel(2, "agent"));
    let mut told = case.cycle_after(10);
    told.extend(case.settle());
    assert_eq!(told, [format!("2/comment/{comment}"), "2/closed".into()]);
    assert_eq!(case.payload("#2/closed")["reason"], "gone");
    case.repo(|repo| repo.comment(2, "sam", "without it"));
    assert_eq!(case.settle(), [""; 0]);
    assert_eq!(case.sweep(), [""; 0]);
    case.repo(|repo| repo.label(2, "agent"));
    assert_eq!(case.settle(), ["2/opened/2"]);
}

/// Given a label that is renamed in the repository, or deleted, so that no item changes by it and none carries it any
/// more (C030), when listings and sweeps come, then they are cut with a reason that says so, and nothing ends; when the
/// config names the new label, the same items go on, and nothing is told twice.
#[test]
fn c030_a_label_that_was_renamed_ends_nothing() {
    for (follows, edits) in [(false, false), (true, false), (false, true)] {
        let mut case = Case::labelled();
        case.hub.lock().events_follow_label_names = follows;
        for _ in 0..3 {
            case.repo(|repo| repo.open(New::issue().by("sam").label("agent")));
        }
        assert_eq!(case.cycle_after(60).len(), 3);
        case.settle();
        case.repo(|repo| repo.rename_label("agent", "robot"));
        if edits {
            case.repo(|repo| repo.edit_title(2, "Another title"));
        }
        for seconds in [3600, 70, 150, 3600, 150] {
            case.later(seconds);
            assert_eq!(case.cycle(), [""; 0]);
            assert!(!case.poller.complete);
        }
        assert_eq!(case.ended(), [""; 0]);
        let reason = case.errors().pop().expect("it is said");
        assert!(
            reason.contains("the label 'agent' does not exist"),
            "{reason}"
        );
        let comment = case.repo(|repo| repo.comment(3, "sam", "go"));
        case.poller
            .reconfigure(config(case.hub.url()), labelled("robot"));
        let mut told = case.cycle_after(60);
        told.extend(case.settle());
        assert_eq!(told, [format!("3/comment/{comment}")]);
        case.repo(|repo| repo.close(1));
        assert_eq!(case.cycle_after(70), ["1/closed"]);
        assert_eq!(case.sweep(), [""; 0]);
        assert_eq!((case.ended().len(), case.poller.missed), (1, 0));
    }
}

/// Given a label that is deleted (C030), when it is made again and put on the same items, then those go on as if
/// nothing had been.
#[test]
fn c030_a_label_that_was_deleted_ends_nothing() {
    let mut case = Case::labelled();
    for _ in 0..2 {
        case.repo(|repo| repo.open(New::issue().by("sam").label("agent")));
    }
    case.cycle_after(60);
    case.settle();
    case.repo(|repo| repo.delete_label("agent"));
    for seconds in [60, 3600, 150] {
        case.later(seconds);
        assert_eq!(case.cycle(), [""; 0]);
    }
    for number in 1..=2 {
        case.repo(|repo| repo.label(number, "agent"));
    }
    let comment = case.repo(|repo| repo.comment(1, "sam", "go"));
    assert_eq!(case.settle(), [format!("1/comment/{comment}")]);
    assert_eq!(case.ended(), [""; 0]);
}

/// Given items that carry the label from the beginning, when they are listed and commented on, then their events are not
/// asked for; of one that gets it later they are, once.
#[test]
fn when_a_label_came_is_asked_for_only_where_it_matters() {
    let events = |case: &Case| -> usize {
        let asked = case.asked();
        asked
            .iter()
            .filter(|l| l.asked.path().ends_with("/events"))
            .count()
    };
    let mut case = Case::labelled();
    for _ in 0..20 {
        case.repo(|repo| repo.open(New::issue().by("sam").label("agent")));
    }
    case.repo(|repo| repo.open(New::issue().by("sam")));
    case.later(600);
    case.repo(|repo| repo.edit_title(1, "Another title"));
    case.later(600);
    assert_eq!(case.cycle().len(), 20);
    assert_eq!(events(&case), 0, "on a first listing");
    case.repo(|repo| repo.open(New::issue().by("sam").label("agent")));
    for number in 1..=20 {
        case.repo(|repo| repo.comment(number, "sam", "go"));
    }
    assert_eq!(case.cycle_after(60).len(), 21);
    assert_eq!(events(&case), 0, "of items that were made with it");
    case.repo(|repo| repo.label(21, "agent"));
    assert_eq!(case.cycle_after(60), ["21/opened"]);
    assert_eq!(events(&case), 1);
    case.settle();
    case.repo(|repo| repo.comment(21, "sam", "go"));
    assert_eq!(case.cycle_after(60).len(), 1);
    assert_eq!(events(&case), 0);
}

/// Given labels of any text, when their items are listed, swept, unlabelled and closed, then each is known by its label,
/// in whatever case it is written.
#[test]
fn a_label_may_be_any_text() {
    for name in [
        "needs triage",
        "C++ & co",
        "ready, steady",
        "50%?",
        "für uns/alle",
        "\"x\" #1",
    ] {
        let mut case = Case::of(labelled(&name.to_uppercase()), |config| config);
        for _ in 0..3 {
            case.repo(|repo| repo.open(New::issue().by("sam").label(name)));
        }
        case.repo(|repo| repo.open(New::issue().by("sam").label("ready")));
        assert_eq!(case.cycle_after(60).len(), 3, "{name}");
        case.settle();
        case.repo(|repo| repo.unlabel(1, name));
        assert_eq!(case.settle(), ["1/closed"], "{name}");
        assert_eq!(case.sweep(), [""; 0], "{name}");
        assert_eq!(case.cycle_after(150), [""; 0], "{name}");
        case.repo(|repo| repo.close(2));
        assert_eq!(case.cycle_after(70), ["2/closed"], "{name}");
        assert_eq!((case.ended().len(), case.poller.missed), (2, 0), "{name}");
    }
}

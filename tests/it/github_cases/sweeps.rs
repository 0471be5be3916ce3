//! Items that no list of changes shows any more: transferred, deleted, hidden for a while.

use super::{Case, for_item, for_open_items, with_rows};
use crate::world::hub::{New, Trace, replies};

/// Three open items that were told.
fn three() -> Case {
    let mut case = Case::new();
    for _ in 0..3 {
        case.repo(|repo| repo.open(New::issue().by("sam")));
    }
    assert_eq!(case.cycle_after(60).len(), 3);
    case.settle();
    case
}

/// Given an item that was moved to another repository or deleted, with whatever trace, when it is not there at a sweep and
/// minutes later not either, then it is gone, and no other; what its comments there are called is nobody's news (R4.2).
#[test]
fn r4_2_an_item_that_is_not_there_twice_minutes_apart_is_gone() {
    for trace in [None, Some(Trace::Gone), Some(Trace::Nothing)] {
        let mut case = three();
        match trace {
            None => {
                let mut hub = case.hub.lock();
                hub.create("octo/elsewhere");
                hub.transfer("octo/widgets", 2, "octo/elsewhere");
            }
            Some(trace) => case.repo(|repo| repo.delete(2, trace)),
        }
        assert_eq!(case.settle(), [""; 0], "{trace:?}: nothing says so");
        assert_eq!(case.sweep(), [""; 0], "{trace:?}: once is not enough");
        assert_eq!(case.cycle_after(10), [""; 0], "{trace:?}: nor is at once");
        assert_eq!(case.cycle_after(10), [""; 0], "{trace:?}");
        assert_eq!(case.cycle_after(120), ["2/closed"], "{trace:?}");
        assert_eq!(case.payload("#2/closed")["reason"], "gone");
        assert_eq!(case.settle(), [""; 0]);
        assert_eq!(case.sweep(), [""; 0]);
        assert_eq!(case.cycle_after(150), [""; 0]);
        assert_eq!(case.ended().len(), 1, "{trace:?}: {:?}", case.ended());
        case.asked();
        case.cycle_after(60);
        assert_eq!(case.asked().len(), 3, "it is not asked for any more");
    }
}

/// Given an item that is the only one being worked on, when it is deleted, then it is gone too, by the same rule (R4.2).
#[test]
fn r4_2_the_only_item_can_be_gone_too() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::issue().by("sam")));
    case.cycle_after(60);
    case.settle();
    case.repo(|repo| repo.delete(1, Trace::Gone));
    assert_eq!(case.sweep(), [""; 0]);
    assert_eq!(case.cycle_after(125), ["1/closed"]);
}

/// Given an item that one sweep does not list and that is answered 404 once, sweep after sweep, when it is there again
/// at the next look, then it never ends: no two of those count as two in a row (R4.2).
#[test]
fn r4_2_an_item_that_is_not_there_once_is_still_there() {
    let mut case = three();
    for _ in 0..3 {
        let mut hub = case.hub.lock();
        hub.spoil(1, for_open_items, |reply| {
            with_rows(reply, |rows| rows.retain(|row| row["number"] != 2))
        });
        hub.fault(1, for_item(2), replies::not_found());
        drop(hub);
        assert_eq!(case.sweep(), [""; 0]);
        assert_eq!(case.cycle_after(60), [""; 0]);
        assert_eq!(case.cycle_after(90), [""; 0]);
        case.hub.lock().heal();
    }
    assert_eq!(case.ended(), [""; 0]);
    let comment = case.repo(|repo| repo.comment(2, "sam", "still here"));
    assert_eq!(case.cycle_after(60), [format!("2/comment/{comment}")]);
}

/// Given an item that was not there once, when it is closed before it is asked for again, then it ended as closed.
#[test]
fn an_item_missed_once_and_then_closed_is_closed() {
    let mut case = three();
    case.repo(|repo| repo.close(2));
    let mut hub = case.hub.lock();
    hub.fault(1, for_item(2), replies::not_found());
    hub.spoil(
        1,
        |asked| asked.path().ends_with("/issues"),
        |reply| with_rows(reply, |rows| rows.retain(|row| row["number"] != 2)),
    );
    drop(hub);
    let mut told = case.sweep();
    told.extend(case.cycle_after(60));
    told.extend(case.cycle_after(120));
    assert_eq!(told, ["2/closed"]);
    assert_eq!(case.payload("#2/closed")["reason"], "closed");
}

/// Given a repository nobody may read for some hours, sweeps included (C030), when it may be read again, then nothing has
/// ended, and what happened meanwhile is told: what was said, what was closed, what was opened.
#[test]
fn c030_a_repository_that_is_out_of_sight_for_a_while_loses_nothing() {
    let mut case = three();
    case.hub.lock().revoke("octo/widgets");
    for hours in 0..5 {
        if hours == 2 {
            case.repo(|repo| {
                repo.comment(1, "sam", "while you were out");
                repo.close(2);
                repo.open(New::issue().by("sam"));
            });
        }
        assert_eq!(case.sweep(), [""; 0]);
        assert!(!case.poller.complete);
        case.poller.restart();
    }
    let errors = case.errors();
    assert!(
        errors
            .iter()
            .all(|e| e.contains("check the repository's name")),
        "{errors:?}"
    );
    case.hub.lock().restore("octo/widgets");
    let mut told = case.cycle_after(60);
    told.sort();
    assert_eq!(told, ["1/comment/5001", "2/closed", "4/opened"]);
    assert_eq!(case.settle(), [""; 0]);
    assert_eq!(case.poller.missed, 0);
}

/// Given more items lost at once than are asked for in one listing, when they are really gone, then they end, some at a
/// time, and the others stay.
#[test]
fn many_items_deleted_at_once_are_gone_in_the_end() {
    let mut case = Case::new();
    for _ in 0..80 {
        case.repo(|repo| repo.open(New::issue().by("sam")));
    }
    assert_eq!(case.cycle_after(60).len(), 80);
    case.settle();
    for number in 1..=70 {
        case.repo(|repo| repo.delete(number, Trace::Gone));
    }
    case.asked();
    let mut told = case.sweep();
    for _ in 0..20 {
        let alone = case.asked().into_iter();
        let alone = alone.filter(|l| l.asked.path().contains("/issues/") && l.status == 410);
        assert!(alone.count() <= 30, "not more at a time");
        told.extend(case.cycle_after(65));
    }
    told.sort();
    let mut want: Vec<String> = (1..=70).map(|n| format!("{n}/closed")).collect();
    want.sort();
    assert_eq!(told, want);
    assert_eq!(case.sweep(), [""; 0]);
}

/// Given a server that once answers with a clock years ahead, when that is over, then sweeps go on (C023).
#[test]
fn c023_a_clock_that_ran_ahead_once_stops_no_sweep() {
    let mut case = Case::new();
    let number = case.repo(|repo| repo.open(New::issue().by("sam")));
    case.cycle();
    case.settle();
    case.later(4000);
    case.hub.lock().spoil(
        1,
        |_| true,
        |reply| reply.header("Date", "Fri, 01 Mar 2030 10:00:00 GMT"),
    );
    case.cycle();
    case.repo(|repo| repo.delete(number, Trace::Gone));
    case.repo(|repo| repo.open(New::issue().by("sam")));
    let mut told = Vec::new();
    for _ in 0..4 {
        told.extend(case.cycle_after(4000));
    }
    assert!(told.iter().any(|id| id == "1/closed"), "{told:?}");
}

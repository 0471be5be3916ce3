//! Walking lists: pages, their drift, rows of one second, and validators that say nothing.

use super::{Case, for_open_items, labelled, with_rows};
use crate::world::forge::{Asked, Reply};
use crate::world::hub::faults::on;
use crate::world::hub::{New, World};

/// Given an item with 100, 131 and 200 new comments, said over some minutes or all in one second (C013), when they
/// are read, then each is delivered once, in order, to the newest.
#[test]
fn c013_full_pages_and_full_last_pages_are_read_to_the_newest_comment() {
    for count in [100, 131, 200] {
        for apart in [0, 1] {
            let mut case = Case::new();
            case.repo(|repo| repo.open(New::issue().by("sam")));
            case.cycle_after(60);
            case.settle();
            let mut ids = Vec::new();
            for _ in 0..count {
                ids.push(case.repo(|repo| repo.comment(1, "sam", "go")));
                case.later(apart);
            }
            let want: Vec<String> = ids.iter().map(|id| format!("1/comment/{id}")).collect();
            assert_eq!(case.cycle_after(10), want, "{count}, {apart} s apart");
            assert_eq!(case.settle(), [""; 0]);
            assert_eq!(case.poller.missed, 0);
        }
    }
}

/// Does something to the world before the answer to this request for a page of items.
fn before_page(case: &Case, page: u32, mut happen: impl FnMut(&mut World) + Send + 'static) {
    let mut pages = 0;
    case.hub.between(move |world, asked| {
        pages += u32::from(asked.path().ends_with("/issues"));
        if pages == page && asked.path().ends_with("/issues") {
            happen(world);
        }
    });
}

/// Given changes that fill several pages, over a minute or all in one second, when an item is opened, closed or commented on between the requests for two
/// of them (C017), then what shows up on both is told once, and what would be on neither is read all the same.
#[test]
fn c017_what_moves_between_two_pages_is_told_once_and_hides_nothing() {
    type Happen = fn(&mut World);
    let moves: [(Happen, &[&str]); 3] = [
        (
            |world| {
                world.repo("octo/widgets").open(New::issue().by("sam"));
            },
            &["7/opened"],
        ),
        (|world| world.repo("octo/widgets").close(1), &["1/closed"]),
        (
            |world| {
                world.repo("octo/widgets").comment(2, "sam", "moved");
            },
            &["2/comment/5007"],
        ),
    ];
    for (happen, besides) in moves {
        for apart in [10, 0] {
            let mut case = Case::new();
            case.hub.lock().largest_page = 2;
            for _ in 0..6 {
                case.repo(|repo| repo.open(New::issue().by("sam")));
                case.later(10);
            }
            assert_eq!(case.cycle_after(60).len(), 6);
            case.settle();
            // Long ago, when the page is read: no overlap covers it.
            for number in 1..=6 {
                case.later(apart);
                case.repo(|repo| repo.comment(number, "sam", "go"));
            }
            before_page(&case, 2, happen);
            let mut told = case.cycle_after(3000);
            told.extend(case.cycle_after(70));
            let mut want: Vec<String> = (1..=6)
                .map(|n| format!("{n}/comment/{}", 5000 + n))
                .collect();
            want.extend(besides.iter().map(ToString::to_string));
            told.sort();
            want.sort();
            assert_eq!(told, want, "{apart} s apart");
            assert_eq!(case.settle(), [""; 0]);
            assert_eq!(case.sweep(), [""; 0]);
            assert_eq!(case.poller.missed, 0, "{besides:?}, {apart} s apart");
        }
    }
}

/// Given items opened in one second, on several pages that have to be followed as the server names them, when one moves
/// away between the requests for two of them (C017), then the one that slips over the boundary is told all the same.
#[test]
fn c017_an_item_that_slips_between_two_pages_of_one_second_is_told() {
    let mut case = Case::new();
    case.hub.lock().largest_page = 2;
    assert_eq!(case.cycle_after(60), [""; 0]);
    case.settle();
    for _ in 0..6 {
        case.repo(|repo| repo.open(New::issue().by("sam")));
    }
    // The second begins a second before the first ended.
    before_page(&case, 3, |world| {
        world.repo("octo/widgets").edit_title(1, "Another title");
    });
    let mut told = case.cycle_after(3000);
    told.sort();
    let want: Vec<String> = (1..=6).map(|n| format!("{n}/opened")).collect();
    assert_eq!(told, want);
    assert_eq!(case.sweep(), [""; 0]);
    assert_eq!(case.poller.missed, 0);
}

/// Given open items on several pages, when one ends between the requests of a sweep for two of them, so that others
/// move up over the boundary (C017), then none of those counts as gone.
#[test]
fn c017_a_gap_between_two_pages_of_a_sweep_ends_nothing() {
    let mut case = Case::new();
    case.hub.lock().largest_page = 2;
    for _ in 0..6 {
        case.repo(|repo| repo.open(New::issue().by("sam")));
    }
    case.cycle_after(60);
    case.settle();
    for _ in 0..3 {
        let mut pages = 0;
        case.hub.between(move |world, asked| {
            pages += u32::from(for_open_items(asked));
            let mut repo = world.repo("octo/widgets");
            if pages == 2 && repo.item(1).open {
                repo.close(1);
            }
        });
        let told = case.sweep();
        assert!(case.poller.complete);
        case.hub.between(|_, _| {});
        assert!(told.is_empty() || told == ["1/closed"], "{told:?}");
        assert_eq!(case.cycle_after(150).len() + told.len(), 1);
        case.repo(|repo| repo.reopen(1));
        case.cycle_after(60);
        case.settle();
    }
    let ended = case.ended();
    assert!(ended.iter().all(|item| item.ends_with("#1")), "{ended:?}");
}

/// Given a server that answers "not modified" to every conditional request for hours though there is news (C019), when
/// the next sweep reads without a condition, then the news is delivered and counted as missed.
#[test]
fn c019_a_validator_gone_stale_is_found_out_by_the_next_sweep() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::issue().by("sam")));
    case.cycle_after(60);
    case.settle();
    case.hub.lock().always_304 = true;
    let comment = case.repo(|repo| repo.comment(1, "sam", "news"));
    for _ in 0..20 {
        assert_eq!(case.cycle_after(60), [""; 0]);
    }
    assert_eq!(case.sweep(), [format!("1/comment/{comment}")]);
    assert_eq!(case.poller.missed, 1);
    let missed = case.poller.said("poll.missed");
    assert!(missed[0].ends_with("#1"), "{missed:?}");
    assert_eq!(case.sweep(), [""; 0], "and once");
    assert_eq!(case.poller.missed, 1);
}

/// Given a list with changes in its window that fill its first page, when something new comes onto the page behind
/// it, then the next listing tells it: "not modified" of a full page proves nothing.
#[test]
fn a_full_first_page_that_stays_the_same_hides_nothing() {
    let mut case = Case::new();
    case.hub.lock().largest_page = 2;
    case.repo(|repo| repo.open(New::issue().by("sam")));
    case.cycle_after(60);
    case.settle();
    for _ in 0..4 {
        case.later(2);
        case.repo(|repo| repo.comment(1, "sam", "go"));
    }
    assert_eq!(case.cycle_after(5).len(), 4);
    for _ in 0..4 {
        assert_eq!(case.cycle_after(5), [""; 0]);
    }
    case.later(5);
    let comment = case.repo(|repo| repo.comment(1, "sam", "behind a full page"));
    assert_eq!(case.cycle_after(5), [format!("1/comment/{comment}")]);
}

/// Given two changes of one second of which a replica shows one late, when the list is read on from there, then the
/// other is told too: windows overlap until no older change can come to light.
#[test]
fn what_a_replica_shows_late_is_told_though_newer_was_told_before() {
    for late in [0, 30, 100] {
        let mut case = Case::new();
        for _ in 0..2 {
            case.repo(|repo| repo.open(New::issue().by("sam")));
        }
        case.cycle_after(60);
        case.settle();
        let hidden = case.repo(|repo| repo.comment(1, "sam", "shown late"));
        case.later(late);
        let shown = case.repo(|repo| repo.comment(2, "sam", "shown at once"));
        let behind = |reply: Reply| {
            with_rows(reply, |rows| {
                rows.retain(|row| row["id"] != 5001 && row["number"] != 1);
            })
        };
        case.hub.lock().spoil(usize::MAX, |_| true, behind);
        assert_eq!(case.cycle_after(5), [format!("2/comment/{shown}")]);
        case.hub.lock().heal();
        assert_eq!(
            case.cycle_after(60),
            [format!("1/comment/{hidden}")],
            "{late}"
        );
        case.settle();
        case.sweep();
        assert_eq!(case.poller.missed, 0, "{late}");
    }
}

/// Given an item closed right after a comment that a replica does not show yet, when the listing sees the end, then the
/// end waits until the comment was told (R6.1).
#[test]
fn r6_1_an_end_waits_for_what_a_replica_may_still_hide() {
    let mut case = Case::new();
    case.repo(|repo| repo.open(New::issue().by("sam")));
    case.cycle_after(60);
    case.settle();
    let comment = case.repo(|repo| repo.comment(1, "sam", "one last thing"));
    case.later(1);
    case.repo(|repo| repo.close(1));
    let hide = |reply: Reply| with_rows(reply, Vec::clear);
    let mut hub = case.hub.lock();
    hub.spoil(usize::MAX, on("/issues/comments"), hide);
    drop(hub);
    assert_eq!(case.cycle_after(5), [""; 0]);
    assert_eq!(case.cycle_after(30), [""; 0]);
    case.hub.lock().heal();
    let said = format!("1/comment/{comment}");
    assert_eq!(case.cycle_after(40), [said, "1/closed".into()]);
    assert_eq!(case.settle(), [""; 0]);
}

/// Given a server whose `since` leaves its own second out, or takes it in, and pages of two rows, when changes come in
/// the same second and in the ones around it, then the same is told: each once.
#[test]
fn since_may_leave_its_own_second_out_or_take_it_in() {
    let mut stories = Vec::new();
    for exclusive in [false, true] {
        let mut case = Case::new();
        case.hub.lock().since_exclusive = exclusive;
        case.hub.lock().largest_page = 2;
        for _ in 0..3 {
            case.repo(|repo| repo.open(New::issue().by("sam")));
        }
        let mut told = case.cycle_after(60);
        for round in 0..4 {
            // On, just before and just after the place where a window begins.
            for seconds in [1, 0, 0, 1, 0, 118, 1, 0, 1] {
                case.later(seconds);
                case.repo(|repo| repo.comment(1 + (seconds + round) % 3, "sam", "go"));
            }
            told.extend(case.cycle());
            told.extend(case.cycle_after([0, 119, 120, 121][round as usize]));
        }
        told.extend(case.settle());
        case.sweep();
        assert_eq!(case.poller.missed, 0);
        told.sort();
        assert_eq!(told.len(), 3 + 4 * 9);
        stories.push(told);
    }
    assert_eq!(stories[0], stories[1]);
}

/// Given more items than page numbers lead to, changed over hours or all in one second, when all are read, then the
/// server never refuses a page (422), and what is wanted among them is found.
#[test]
fn ten_thousand_items_are_read_without_a_page_too_deep() {
    for apart in [0, 1] {
        let mut case = Case::of(labelled("agent"), |config| config);
        assert_eq!(case.cycle_after(60), [""; 0]);
        {
            let mut hub = case.hub.lock();
            for number in 1..=10_150 {
                let new = New::issue().by("sam").body(None);
                let wanted = [1, 5000, 9999, 10_000, 10_150].contains(&number);
                let new = if wanted { new.label("agent") } else { new };
                hub.repo("octo/widgets").open(new);
                hub.advance(apart);
            }
        }
        let told = case.cycle_after(3600 * 12);
        let numbers = [1, 5000, 9999, 10_000, 10_150];
        let mut want: Vec<String> = numbers.iter().map(|n| format!("{n}/opened")).collect();
        let mut told: Vec<String> = told;
        told.sort();
        want.sort();
        assert_eq!(told, want);
        let asked = case.asked();
        assert!(asked.iter().all(|l| l.status < 400), "no page was refused");
        let deep = asked.iter().filter(|l| l.asked.query("page").is_some());
        assert_eq!(deep.count() > 0, apart == 0, "followed only in one second");
    }
}

/// Given more than a page of pull requests that moved, when their reviews are read, then those of the last page too.
#[test]
fn pull_requests_that_moved_are_found_on_every_page() {
    let mut case = Case::new();
    case.hub.lock().largest_pull_page = 3;
    for _ in 0..10 {
        case.repo(|repo| repo.open(New::pull_request().by("sam")));
    }
    assert_eq!(case.cycle_after(60).len(), 10);
    case.settle();
    let mut want = Vec::new();
    for number in 1..=10 {
        let verdict = crate::world::hub::Verdict::Commented;
        let id = case.repo(|repo| repo.review(number, "sam", verdict, "well"));
        want.push(format!("{number}/review/{id}"));
    }
    let mut told = case.cycle_after(10);
    told.sort();
    want.sort();
    assert_eq!(told, want);
    assert_eq!(case.settle(), [""; 0]);
}

/// Given a listing of many pages, when its requests are looked at, then none asks for a page by number but where the
/// server led there (C017).
#[test]
fn c017_no_page_is_asked_for_by_a_number_of_ours() {
    let mut case = Case::new();
    case.hub.lock().largest_page = 3;
    for _ in 0..10 {
        case.repo(|repo| repo.open(New::pull_request().by("sam")));
        case.later(7);
    }
    case.cycle_after(60);
    for number in 1..=10 {
        case.repo(|repo| repo.comment(number, "sam", "go"));
        case.later(7);
    }
    case.cycle_after(60);
    case.sweep();
    let by_number = |asked: &Asked| asked.query("page").is_some();
    let asked = case.asked();
    assert!(asked.len() > 20);
    let first = asked.iter().find(|l| by_number(&l.asked));
    assert!(first.is_none(), "{first:?}");
}

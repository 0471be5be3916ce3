//! What polling costs: requests, bytes, and writes.

use super::{Case, everything, labelled};
use crate::world::hub::{Etags, New};
use idempoll::config::checked::GitHub;

/// What one cycle asked: the status of each answer, and how many bytes were read in all.
fn cost(case: &Case) -> (Vec<u16>, u64) {
    let asked = case.asked();
    let statuses = asked.iter().map(|l| l.status).collect();
    (statuses, asked.iter().map(|l| l.sent).sum())
}

/// Given a repository in which nothing happens, with ten items or with hundreds, when it is polled, then that is three
/// requests, all answered "not modified", of the same size, and nothing is written; a restart changes nothing about it.
/// Where only issues are watched it is one request.
#[test]
fn an_idle_cycle_costs_the_same_whatever_there_is() {
    for etags in [Etags::Strong, Etags::Weak] {
        let mut costs = Vec::new();
        for items in [10, 350] {
            for pull_requests in [true, false] {
                let only = |config| GitHub {
                    pull_requests,
                    ..config
                };
                let mut case = Case::of(labelled("agent"), only);
                case.hub.lock().etags = etags;
                for _ in 0..items {
                    case.repo(|repo| repo.open(New::issue().by("sam").label("agent")));
                }
                case.repo(|repo| repo.open(New::pull_request().by("sam")));
                case.later(5);
                for number in 1..=items {
                    case.repo(|repo| repo.comment(number, "sam", "go"));
                }
                case.cycle_after(60);
                case.settle();
                let saves = case.poller.saves;
                for restart in [false, false, true, true] {
                    if restart {
                        case.poller.restart();
                    }
                    assert_eq!(case.cycle_after(60), [""; 0]);
                    let (statuses, bytes) = cost(&case);
                    let requests = if pull_requests { 3 } else { 1 };
                    assert_eq!(statuses, vec![304; requests]);
                    costs.push((pull_requests, bytes));
                }
                assert_eq!(case.poller.saves, saves, "nothing is written");
            }
        }
        for of_pull_requests in [true, false] {
            let same = costs.iter().filter(|(with, _)| *with == of_pull_requests);
            let bytes: Vec<u64> = same.map(|(_, bytes)| *bytes).collect();
            let (least, most) = (bytes.iter().min(), bytes.iter().max());
            // The hub counts requests in its headers, and numbers grow.
            assert!(
                most.zip(least)
                    .is_some_and(|(most, least)| most - least <= 12),
                "{bytes:?}"
            );
        }
    }
}

/// Given a repository with many items, when one comment comes, on an issue, on a pull request or on a line, then that
/// costs at most two requests more than an idle cycle, now and until the list has settled, and not more bytes with
/// more items.
#[test]
fn a_new_comment_costs_two_requests_more_whatever_there_is() {
    let mut most = Vec::new();
    // More than a page of pull requests, of which the newest are looked at.
    for items in [210, 630] {
        let mut case = Case::of(everything(), |config| config);
        for number in 1..=items {
            let new = match number % 2 {
                0 => New::issue(),
                _ => New::pull_request(),
            };
            case.repo(|repo| repo.open(new.by("sam")));
        }
        case.cycle_after(60);
        case.settle();
        let comments: [fn(&Case) -> u64; 3] = [
            |case| case.repo(|repo| repo.comment(2, "sam", "go")),
            |case| case.repo(|repo| repo.comment(1, "sam", "go")),
            |case| case.repo(|repo| repo.line_comment(1, "sam", "go")),
        ];
        let mut bytes = 0;
        for comment in comments {
            comment(&case);
            let mut told = 0;
            for _ in 0..6 {
                told += case.cycle_after(60).len();
                let (statuses, read) = cost(&case);
                assert!(statuses.len() <= 5, "{statuses:?}");
                bytes += read;
            }
            let (statuses, _) = cost(&case);
            assert_eq!((told, statuses), (1, vec![]));
            case.cycle_after(60);
            assert_eq!(cost(&case).0, [304; 3]);
        }
        most.push(bytes);
    }
    // Numbers have more digits where there are more.
    assert!(most[1] < most[0] * 21 / 20, "{most:?}");
}

/// Given a first listing of many items with many old comments, then that is pages of a hundred, and nothing for any
/// item by itself.
#[test]
fn a_first_listing_asks_for_pages_and_for_no_item() {
    let mut case = Case::labelled();
    for _ in 0..350 {
        case.repo(|repo| repo.open(New::issue().by("sam").label("agent")));
        case.later(1);
    }
    for number in 1..=350 {
        case.repo(|repo| repo.comment(number, "sam", "old"));
        case.later(1);
    }
    assert_eq!(case.cycle_after(3600).len(), 350);
    let asked = case.asked();
    // The repository, four pages of items a second of which is read twice, and four empty lists.
    assert!(asked.len() <= 10, "{}", asked.len());
}

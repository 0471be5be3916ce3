//! What polling costs where something was said. (`github_cost` has how little that depends on what there is.)

use super::Case;
use crate::world::hub::{Etags, New};

/// The status of each answer since the last look.
fn statuses(case: &Case) -> Vec<u16> {
    case.asked().iter().map(|logged| logged.status).collect()
}

/// Given a comment on an issue, on a pull request or on a line, when it comes, then that costs at most two requests more
/// than an idle cycle, then and at each cycle until the lists have settled; after that all is "not modified" again, whether
/// validators are strong or weak, and nothing is written.
#[test]
fn a_comment_on_any_surface_costs_at_most_two_requests_more() {
    for etags in [Etags::Strong, Etags::Weak] {
        let mut case = Case::new();
        case.hub.lock().etags = etags;
        case.repo(|repo| repo.open(New::pull_request().by("sam")));
        case.repo(|repo| repo.open(New::issue().by("sam")));
        case.cycle_after(60);
        case.settle();
        let comments: [fn(&Case) -> u64; 3] = [
            |case| case.repo(|repo| repo.comment(2, "sam", "go")),
            |case| case.repo(|repo| repo.comment(1, "sam", "go")),
            |case| case.repo(|repo| repo.line_comment(1, "sam", "go")),
        ];
        for comment in comments {
            comment(&case);
            let mut told = 0;
            for _ in 0..6 {
                told += case.cycle_after(60).len();
                let statuses = statuses(&case);
                assert!(statuses.len() <= 5, "{statuses:?}");
            }
            let saves = case.poller.saves;
            told += case.cycle_after(60).len();
            assert_eq!((told, statuses(&case)), (1, vec![304; 3]));
            assert_eq!(case.poller.saves, saves);
        }
    }
}

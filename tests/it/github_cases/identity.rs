//! Which repository it is: renamed, made anew under its old name; and who asks.

use super::{Case, everything};
use crate::world::hub::New;
use idempoll::config::checked::TokenFrom;

/// Where each request went, without its query.
fn paths(case: &Case) -> Vec<String> {
    let asked = case.asked();
    asked.iter().map(|l| l.asked.path().to_string()).collect()
}

/// Given a repository that is renamed (C026), when it answers 301, with our query or without, then it is followed within
/// its host, the items keep their records, one warning names the new name, and from then on it is asked for by its number.
#[test]
fn c026_a_renamed_repository_is_followed_by_its_number() {
    for bare in [false, true] {
        let mut case = Case::new();
        case.hub.lock().bare_redirects = bare;
        for _ in 0..2 {
            case.repo(|repo| repo.open(New::issue().by("sam")));
        }
        case.cycle_after(60);
        case.settle();
        case.hub.lock().rename("octo/widgets", "acme/gadgets");
        assert_eq!(case.cycle_after(60), [""; 0]);
        let warnings = case.poller.said("poller.warning");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("acme/gadgets"), "{warnings:?}");
        let asked = paths(&case);
        let by_name = asked.iter().filter(|path| path.starts_with("/repos/"));
        assert_eq!(by_name.count(), 1, "{asked:?}");
        let comment = {
            let mut hub = case.hub.lock();
            let mut repo = hub.repo("acme/gadgets");
            repo.close(2);
            repo.comment(1, "sam", "go")
        };
        let mut told = case.cycle_after(10);
        case.poller.restart();
        told.extend(case.cycle_after(70));
        assert_eq!(told, [format!("1/comment/{comment}"), "2/closed".into()]);
        let told = case.payload("#2/closed");
        assert!(
            told["item"]["ref"]
                .as_str()
                .is_some_and(|r| r.ends_with("octo/widgets#2"))
        );
        case.settle();
        // Somebody takes the old name: it is not asked for any more.
        case.hub.lock().recreate("octo/widgets");
        case.repo(|repo| repo.open(New::issue().by("sam")));
        case.cycle_after(60);
        assert_eq!(case.sweep(), [""; 0]);
        assert!(case.poller.complete);
        let asked = paths(&case);
        let by_number = |path: &String| path.starts_with("/repositories/4242/");
        assert!(asked.iter().all(by_number), "{asked:?}");
        assert_eq!(case.poller.said("poller.warning").len(), 1);
        assert_eq!((case.errors(), case.poller.missed), (vec![], 0));
    }
}

/// Given a name under which another repository is made, with items of the same numbers (C028), when it is listed, then
/// the listing is cut with a reason, and nothing of it is taken: no news, no ends, and no cursor; its own source takes it.
#[test]
fn c028_another_repository_of_the_same_name_is_not_mixed_in() {
    let mut case = Case::new();
    for _ in 0..2 {
        case.repo(|repo| repo.open(New::pull_request().by("sam")));
    }
    case.cycle_after(60);
    case.settle();
    let before = case.poller.cursor();
    case.hub.lock().recreate("octo/widgets");
    case.repo(|repo| {
        let number = repo.open(New::issue().by("sam").title("Something else"));
        repo.comment(number, "sam", "not for you");
        repo.close(number);
        repo.open(New::pull_request().by("sam"))
    });
    for seconds in [10, 70, 3600, 150, 3600, 150] {
        case.later(seconds);
        assert_eq!(case.cycle(), [""; 0]);
        assert!(!case.poller.complete);
        case.poller.restart();
    }
    assert_eq!(case.poller.cursor(), before);
    let errors = case.errors();
    let words = "octo/widgets is another repository now (number 4243; it was 4242)";
    assert!(errors.iter().all(|e| e.contains(words)), "{errors:?}");
    assert_eq!(case.ended(), [""; 0]);
}

/// Given an empty repository under the name of one that had an item (C028), when sweeps find nothing, then the item is not
/// gone: it is another repository that does not have it.
#[test]
fn c028_an_empty_repository_of_the_same_name_ends_nothing() {
    for items in [1, 2] {
        let mut case = Case::new();
        for _ in 0..items {
            case.repo(|repo| repo.open(New::issue().by("sam")));
        }
        case.cycle_after(60);
        case.settle();
        case.hub.lock().recreate("octo/widgets");
        for seconds in [3600, 150, 3600, 150] {
            case.later(seconds);
            assert_eq!(case.cycle(), [""; 0]);
        }
        assert_eq!(case.ended(), [""; 0]);
        let errors = case.errors();
        assert!(
            errors.iter().any(|e| e.contains("another repository now")),
            "{errors:?}"
        );
    }
}

/// Given a token that is replaced by another, when the repository is polled, then each list is answered in full once, for
/// its validator was the old token's, nothing is told twice, and the poll after that is as cheap as before.
#[test]
fn a_new_token_costs_one_answer_for_each_list() {
    let place = crate::world::program::Place::new("true");
    place.write("token", "ghp_first");
    let from = TokenFrom::File(place.path("token"));
    let mut case = Case::of(everything(), |config| idempoll::config::checked::GitHub {
        token: Some(from),
        ..config
    });
    case.hub.lock().only_tokens(["ghp_first", "ghp_second"]);
    for _ in 0..2 {
        case.repo(|repo| repo.open(New::pull_request().by("sam")));
    }
    case.cycle_after(60);
    case.repo(|repo| repo.comment(1, "sam", "go"));
    case.settle();
    let statuses = |case: &Case| -> Vec<u16> { case.asked().iter().map(|l| l.status).collect() };
    case.cycle_after(60);
    assert_eq!(statuses(&case), [304; 3]);
    place.write("token", "ghp_second");
    assert_eq!(case.cycle_after(60), [""; 0]);
    assert_eq!(statuses(&case), [200; 3]);
    let saves = case.poller.saves;
    assert_eq!(case.cycle_after(60), [""; 0]);
    assert_eq!(statuses(&case), [304; 3]);
    assert_eq!(case.poller.saves, saves);
    // The old one is taken back: a token that is refused ends nothing.
    case.hub.lock().only_tokens(["ghp_third"]);
    case.later(60);
    assert_eq!(case.cycle(), [""; 0]);
    let reason = case.errors().pop().expect("it is said");
    assert!(
        reason.contains("401") && reason.contains("token file"),
        "{reason}"
    );
    place.write("token", "ghp_third");
    assert_eq!(case.cycle_after(60), [""; 0]);
    assert_eq!(case.ended(), [""; 0]);
}

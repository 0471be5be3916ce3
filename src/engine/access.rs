//! Who may act, and which comments are our own.

use super::item::Author;
use super::time::Time;

/// What decides about the items of one source; the config's values, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The logins that may act, in lower case.
    pub authorized_users: Vec<String>,
    /// The associations that may act (`MEMBER`, `OWNER`, …), in upper case.
    pub authorized_associations: Vec<String>,
    /// Only items carrying this label; compared without regard to case, as GitHub does.
    pub label: Option<String>,
    /// Whether items labelled before the feed was watched are opened.
    pub backlog: Backlog,
    /// Failed tries after the first before a delivery is given up.
    pub max_retries: u32,
    /// When watching began, if the config says so; overrides what was remembered.
    pub watch_from: Option<Time>,
}

/// What is done with items that were there before the feed was watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backlog {
    /// They are opened like new ones.
    #[default]
    Open,
    /// They are not opened; comments made from now on are delivered.
    Skip,
}

impl Policy {
    /// Whether `author` may act (R7.1). Nobody is let in by an empty policy; a
    /// missing author is nobody; a bot needs its exact login in the list.
    #[must_use]
    pub fn authorizes(&self, author: &Author) -> bool {
        let Some(login) = &author.login else {
            return false;
        };
        let login = login.to_lowercase();
        self.authorized_users.contains(&login)
            || (!author.bot
                && author
                    .association
                    .as_ref()
                    .is_some_and(|a| self.authorized_associations.contains(&a.to_uppercase())))
    }

    /// Whether an item with these labels is one of the source's.
    #[must_use]
    pub fn wants(&self, labels: &[String]) -> bool {
        self.label.as_ref().is_none_or(|want| {
            labels
                .iter()
                .any(|l| l.to_lowercase() == want.to_lowercase())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn author(login: Option<&str>, association: &str, bot: bool) -> Author {
        Author {
            login: login.map(str::to_string),
            association: Some(association.to_string()),
            bot,
        }
    }

    #[test]
    fn r7_1_only_the_authorized_act() {
        let policy = Policy {
            authorized_users: vec!["octocat".into(), "helper[bot]".into()],
            authorized_associations: vec!["MEMBER".into()],
            ..Policy::default()
        };
        assert!(policy.authorizes(&author(Some("OctoCat"), "NONE", false)));
        assert!(policy.authorizes(&author(Some("sam"), "member", false)));
        assert!(!policy.authorizes(&author(Some("sam"), "NONE", false)));
        assert!(
            !policy.authorizes(&author(None, "MEMBER", false)),
            "a deleted account is nobody"
        );
        // C042: a bot is let in by its exact login only.
        assert!(!policy.authorizes(&author(Some("review-helper"), "MEMBER", true)));
        assert!(policy.authorizes(&author(Some("helper[bot]"), "NONE", true)));
        assert!(!Policy::default().authorizes(&author(Some("octocat"), "OWNER", false)));
    }

    #[test]
    fn labels_compare_without_regard_to_case() {
        let policy = Policy {
            label: Some("Auto".into()),
            ..Policy::default()
        };
        assert!(policy.wants(&["bug".into(), "auto".into()]));
        assert!(!policy.wants(&["automatic".into()]));
        assert!(Policy::default().wants(&[]));
    }
}

//! Items in GitHub's own words, for sinks that take what its webhook would have sent.
//!
//! Lists and pages of the API show nearly what a webhook does. What differs is
//! changed here: a repository as the API shows it says what the *asker* may do with it, down to a token, and a
//! review's verdict is written in capitals. The rest goes along as it was sent.
//!
//! It costs one request for each pull request that is opened or ends, one for a review
//! that comes without its pull request, and one for the repository in the life of a process.

use super::Look;
use super::rows::Row;
use crate::engine::item::{Item, Kind, State, Upstream};
use crate::engine::listing::Cut;
use crate::mutant;
use crate::net::{self, Answer, Redirects};
use crate::providers::json;
use std::sync::Arc;

/// What the API says of a repository and no webhook does: it is about the asker, or about other repositories.
const ASKERS: &[&str] = &[
    // A token with which it can be read.
    "temp_clone_token",
    "permissions",
    "security_and_analysis",
    "organization",
    "parent",
    "source",
    "template_repository",
    "code_of_conduct",
    "network_count",
    "subscribers_count",
    "anonymous_access_enabled",
];

/// A repository as the API shows it, as a webhook would: the same but for [`ASKERS`].
pub fn repository(text: &str) -> Option<String> {
    let mut fields = json::Fields::read(text)?;
    let tells = mutant::is("webhooks-tell-of-the-asker");
    fields
        .0
        .retain(|(key, _)| tells || !ASKERS.contains(&key.as_str()));
    Some(fields.text())
}

/// A pull request likewise: it shows the repositories it is from and to.
pub fn pull_request(text: &str) -> Option<String> {
    let mut fields = json::Fields::read(text)?;
    for side in ["head", "base"] {
        fields.change(side, |side| {
            let mut side = json::Fields::read(side)?;
            side.change("repo", repository);
            Some(side.text())
        });
    }
    Some(fields.text())
}

/// A review as a webhook shows it: `approved`, where the API says `APPROVED`.
pub fn review(text: &str) -> Option<String> {
    let mut fields = json::Fields::read(text)?;
    fields.change("state", |state| Some(state.to_ascii_lowercase()));
    Some(fields.text())
}

/// An App's installation, as it stands in a webhook.
pub fn installation(id: u64) -> Arc<str> {
    // What its node id stands for, as GitHub writes it for installations.
    let node = net::base64(format!("023:IntegrationInstallation{id}").as_bytes());
    format!(r#"{{"id":{id},"node_id":"{node}"}}"#).into()
}

impl Look<'_> {
    /// Adds to `item` what its webhooks need, if somebody takes them. Says whether all of
    /// that was to be had; if not, the item is unread.
    pub(super) fn add_upstream(
        &mut self,
        row: &Row,
        item: &mut Item,
        concerns: Concerns,
    ) -> Result<bool, Cut> {
        if !self.session.keeps {
            return Ok(true);
        }
        let mut upstream = Upstream {
            issue: row.raw.clone(),
            pull_request: None,
            label: self.lost_label.clone(),
            repository: self.repository()?,
            installation: self.provider.installation.clone(),
        };
        let number = item.item_ref.number;
        let mut whole = true;
        if item.kind == Kind::PullRequest && concerns != Concerns::Nothing {
            // Its list shows less of it than its page, but enough for a review.
            let listed = self.talk.pull(number).and_then(|row| row.raw.clone());
            upstream.pull_request = match listed.filter(|_| concerns == Concerns::Reviews) {
                Some(listed) => pull_request(&listed).map(Into::into),
                None => match self.pull_request(number)? {
                    Ok(pull) => Some(pull),
                    Err(reason) => {
                        self.leave_unread(number, reason);
                        whole = false;
                        None
                    }
                },
            };
            if whole && item.state != State::Open {
                // It need not be asked for again as long as it stays as it is.
                self.labels.extend(row.key.zip(row.updated_at));
            }
        }
        item.upstream = Some(Box::new(upstream));
        Ok(whole)
    }

    /// What telling an item needs to know; `itself` if it may begin or end.
    pub(super) fn concerns(&self, number: u64, itself: bool) -> Concerns {
        let reviews = || self.talk.reviews_wait_for(number, self.session.last_date);
        match itself {
            true => Concerns::Itself,
            false if self.session.keeps && reviews() => Concerns::Reviews,
            false => Concerns::Nothing,
        }
    }

    /// The page of one pull request; the inner error is why it is not to be had.
    fn pull_request(&mut self, number: u64) -> Result<Result<Arc<str>, String>, Cut> {
        let url = format!("{}/pulls/{number}", self.session.repo);
        let answer = match self.session.get_of_item(&url)? {
            Ok(answer) => answer,
            Err(reason) => return Ok(Err(reason)),
        };
        if answer.status != 200 {
            return Ok(Err(self.session.refusal(&answer).reason));
        }
        let text = json::mend(&answer.body);
        let pull = pull_request(&text).ok_or_else(|| not_json(&answer, "a pull request"));
        Ok(pull.map(Into::into))
    }

    /// The repository, asked for once.
    fn repository(&mut self) -> Result<Arc<str>, Cut> {
        if let Some(known) = self.provider.repository.borrow().clone() {
            return Ok(known);
        }
        let url = self.session.repo.clone();
        let answer = self.session.get(&url, None, Redirects::SameOrigin)?;
        if answer.status != 200 {
            return Err(self.session.refusal(&answer));
        }
        self.keep_repository(&answer)
    }

    /// Keeps what the API says of the repository.
    pub(super) fn keep_repository(&self, answer: &Answer) -> Result<Arc<str>, Cut> {
        let text = repository(&json::mend(&answer.body));
        let text: Arc<str> = text
            .ok_or_else(|| Cut::because(not_json(answer, "a repository")))?
            .into();
        *self.provider.repository.borrow_mut() = Some(text.clone());
        Ok(text)
    }
}

/// What a sighting of a pull request may tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concerns {
    /// Nothing that needs the pull request.
    Nothing,
    /// Reviews, or comments on lines.
    Reviews,
    /// Its beginning or its end.
    Itself,
}

fn not_json(answer: &Answer, wanted: &str) -> String {
    let path = net::path(&answer.url);
    format!("GET {path} did not answer {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Given a repository as the API shows it to whoever may push, when it is handed on, then the
    /// token in it and what the asker may do are not, wherever it stands (R7.4).
    #[test]
    fn r7_4_what_a_repository_says_of_the_asker_is_not_handed_on() {
        let repo = r#"{"id":1.0,"temp_clone_token":"AAAA","zeta":"\u00e9","permissions":{"push":true},"alpha":9007199254740993}"#;
        let shown = r#"{"id":1.0,"zeta":"\u00e9","alpha":9007199254740993}"#;
        assert_eq!(repository(repo).as_deref(), Some(shown));
        let pull = format!(
            r#"{{"number":7,"head":{{"ref":"x","repo":null}},"base":{{"ref":"y","repo":{repo}}}}}"#
        );
        let shown = format!(
            r#"{{"number":7,"head":{{"ref":"x","repo":null}},"base":{{"ref":"y","repo":{shown}}}}}"#
        );
        assert_eq!(pull_request(&pull), Some(shown));
        assert_eq!(repository("[1]"), None);
    }

    #[test]
    fn an_installation_has_the_node_id_that_github_gives_it() {
        assert_eq!(
            &*installation(1_959_505),
            r#"{"id":1959505,"node_id":"MDIzOkludGVncmF0aW9uSW5zdGFsbGF0aW9uMTk1OTUwNQ=="}"#
        );
    }

    #[test]
    fn a_verdict_is_written_as_webhooks_write_it() {
        let text = r#"{"id":1,"state":"CHANGES_REQUESTED","body":"LOUD"}"#;
        let shown = r#"{"id":1,"state":"changes_requested","body":"LOUD"}"#;
        assert_eq!(review(text).as_deref(), Some(shown));
    }
}

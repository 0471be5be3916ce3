//! What GitHub's webhook would have sent of an event, built from the objects as GitHub sent them.
//!
//! Nothing is made up: a body has what the lists and pages of the tracker say, byte for byte,
//! under the names a webhook gives them. `docs/http.md` lists what they do not say.

use super::delivery::EventKind;
use super::item::{Comment, Item, Kind, Upstream};
use super::payload::Subject;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The body of a webhook, fixed when its event was first seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// GitHub's name for what happened, as `X-GitHub-Event` has it: `issue_comment`.
    pub event: Arc<str>,
    /// The bytes: one JSON object.
    pub body: Arc<str>,
}

/// A deleted account, as GitHub shows it.
const GHOST: &str = r#"{"login":"ghost","id":10137,"node_id":"MDQ6VXNlcjEwMTM3","avatar_url":"https://avatars.githubusercontent.com/u/10137?v=4","gravatar_id":"","url":"https://api.github.com/users/ghost","html_url":"https://github.com/ghost","followers_url":"https://api.github.com/users/ghost/followers","following_url":"https://api.github.com/users/ghost/following{/other_user}","gists_url":"https://api.github.com/users/ghost/gists{/gist_id}","starred_url":"https://api.github.com/users/ghost/starred{/owner}{/repo}","subscriptions_url":"https://api.github.com/users/ghost/subscriptions","organizations_url":"https://api.github.com/users/ghost/orgs","repos_url":"https://api.github.com/users/ghost/repos","events_url":"https://api.github.com/users/ghost/events{/privacy}","received_events_url":"https://api.github.com/users/ghost/received_events","type":"User","site_admin":false}"#;

/// The webhook of an event of `item`; `None` if the objects it needs are not known.
#[must_use]
pub fn webhook(kind: EventKind, item: &Item, subject: &Subject) -> Option<Webhook> {
    let upstream = item.upstream.as_deref()?;
    match subject {
        Subject::Comment(comment) => of_comment(kind, upstream, comment),
        Subject::Item(_) => {
            let action = match kind {
                EventKind::Reopened => "reopened",
                _ => "opened",
            };
            of_item(item.kind, action, upstream, &["user"])
        }
        // What lost its label is told so; it is still there.
        Subject::End("gone") => of_item(item.kind, "unlabeled", upstream, &["user"]),
        Subject::End(_) => {
            let by = ["merged_by", "closed_by", "user"];
            of_item(item.kind, "closed", upstream, &by)
        }
    }
}

/// The webhook of the item itself. Who did it is the first of the fields `by` that names somebody.
fn of_item(kind: Kind, action: &str, upstream: &Upstream, by: &[&str]) -> Option<Webhook> {
    let mut body = Body::of(action);
    let (event, objects) = match kind {
        Kind::Issue => {
            let issue = upstream.issue.as_deref()?;
            body.add("issue", issue);
            ("issues", vec![issue])
        }
        Kind::PullRequest => {
            let pull = upstream.pull_request.as_deref()?;
            body.add("number", field(pull, "number")?.get());
            body.add("pull_request", pull);
            let objects = std::iter::once(pull).chain(upstream.issue.as_deref());
            ("pull_request", objects.collect())
        }
    };
    if let Some(label) = upstream.label.as_deref().filter(|_| action == "unlabeled") {
        body.add("label", label);
    }
    let mut named = by
        .iter()
        .flat_map(|key| objects.iter().map(move |object| field(object, key)));
    let sender = named.find_map(|user| user.filter(|user| user.get() != "null"));
    Some(body.end(event, upstream, sender))
}

fn of_comment(kind: EventKind, upstream: &Upstream, comment: &Comment) -> Option<Webhook> {
    let said = comment.upstream.as_deref()?;
    let (event, action, name) = match kind {
        EventKind::Review => ("pull_request_review", "submitted", "review"),
        EventKind::ReviewComment => ("pull_request_review_comment", "created", "comment"),
        _ => ("issue_comment", "created", "comment"),
    };
    let mut body = Body::of(action);
    match kind {
        EventKind::Review | EventKind::ReviewComment => {
            body.add(name, said);
            body.add("pull_request", upstream.pull_request.as_deref()?);
        }
        _ => {
            body.add("issue", upstream.issue.as_deref()?);
            body.add(name, said);
        }
    }
    let sender = field(said, "user").filter(|user| user.get() != "null");
    Some(body.end(event, upstream, sender))
}

/// A JSON object being written.
struct Body(String);

impl Body {
    fn of(action: &str) -> Body {
        Body(format!("{{\"action\":\"{action}\""))
    }

    /// `name` is a plain word, `json` one JSON text.
    fn add(&mut self, name: &str, json: &str) {
        self.0.push_str(",\"");
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
    }

    fn end(mut self, event: &str, upstream: &Upstream, sender: Option<&RawValue>) -> Webhook {
        self.add("repository", &upstream.repository);
        self.add("sender", sender.map_or(GHOST, RawValue::get));
        if let Some(installation) = &upstream.installation {
            self.add("installation", installation);
        }
        self.0.push('}');
        Webhook {
            event: event.into(),
            body: self.0.into(),
        }
    }
}

/// A field of the JSON object `object`, as it stands there.
fn field<'a>(object: &'a str, key: &str) -> Option<&'a RawValue> {
    let mut fields: BTreeMap<String, &RawValue> = serde_json::from_str(object).ok()?;
    fields.remove(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::delivery::EventKind as E;
    use crate::engine::item::{Author, Channel, Details, ItemRef, State};
    use crate::engine::time::Time;
    use serde_json::Value;

    const ISSUE: &str = r#"{"id":9007199254740993,"zeta":"\u001b\/ é","alpha":1.50,"user":{"login":"ann"},"closed_by":null}"#;
    const PULL: &str = r#"{"number":7,"user":{"login":"ann"},"merged_by":{"login":"max"}}"#;
    const REPOSITORY: &str = r#"{"id":1,"full_name":"octo/api"}"#;

    fn item(kind: Kind, pull_request: bool) -> Item {
        Item {
            item_ref: ItemRef {
                provider: "github".into(),
                host: None,
                path: "octo/api".into(),
                number: 7,
            },
            kind,
            title: String::new(),
            body: String::new(),
            author: Author::default(),
            state: State::Open,
            labels: Vec::new(),
            created_at: None,
            labelled_at: None,
            without_label: Vec::new(),
            unlabelled_at: None,
            labels_dated: false,
            closed_at: None,
            url: None,
            upstream: Some(Box::new(Upstream {
                issue: Some(ISSUE.into()),
                pull_request: pull_request.then(|| PULL.into()),
                label: Some(r#"{"name":"auto"}"#.into()),
                repository: REPOSITORY.into(),
                installation: None,
            })),
        }
    }

    fn said(channel: Channel, raw: &str) -> Comment {
        Comment {
            channel,
            id: "1".into(),
            author: Author::default(),
            body: String::new(),
            created_at: Time(0),
            url: None,
            details: Details::default(),
            upstream: Some(raw.into()),
        }
    }

    fn parsed(webhook: &Webhook) -> Value {
        serde_json::from_str(&webhook.body).expect("a body is JSON")
    }

    /// Given GitHub's objects with big numbers, escapes and an order of their own, when a webhook is
    /// built of them, then they stand in it byte for byte (C076).
    #[test]
    fn c076_what_github_sent_stands_in_the_body_as_it_was_sent() {
        let comment = r#"{"id":9007199254740993,"user":{"login":"sam"},"body":"\ud83d\udc1f"}"#;
        let hook = webhook(
            E::Comment,
            &item(Kind::Issue, false),
            &Subject::Comment(&said(Channel::Comment, comment)),
        );
        let hook = hook.expect("all it needs is there");
        assert_eq!(&*hook.event, "issue_comment");
        assert_eq!(
            &*hook.body,
            format!(
                r#"{{"action":"created","issue":{ISSUE},"comment":{comment},"repository":{REPOSITORY},"sender":{{"login":"sam"}}}}"#
            )
        );
    }

    #[test]
    fn each_event_has_githubs_name_action_and_sender() {
        let review = r#"{"id":3,"user":null}"#;
        let any = item(Kind::Issue, false);
        for (kind, of, subject, event, action, sender) in [
            (
                E::Opened,
                Kind::Issue,
                Subject::Item(&any),
                "issues",
                "opened",
                "ann",
            ),
            (
                E::Reopened,
                Kind::Issue,
                Subject::Item(&any),
                "issues",
                "reopened",
                "ann",
            ),
            (
                E::Closed,
                Kind::Issue,
                Subject::End("closed"),
                "issues",
                "closed",
                "ann",
            ),
            (
                E::Closed,
                Kind::Issue,
                Subject::End("gone"),
                "issues",
                "unlabeled",
                "ann",
            ),
            (
                E::Opened,
                Kind::PullRequest,
                Subject::Item(&any),
                "pull_request",
                "opened",
                "ann",
            ),
            (
                E::Closed,
                Kind::PullRequest,
                Subject::End("merged"),
                "pull_request",
                "closed",
                "max",
            ),
            (
                E::Review,
                Kind::PullRequest,
                Subject::Comment(&said(Channel::Review, review)),
                "pull_request_review",
                "submitted",
                "ghost",
            ),
            (
                E::ReviewComment,
                Kind::PullRequest,
                Subject::Comment(&said(Channel::ReviewComment, review)),
                "pull_request_review_comment",
                "created",
                "ghost",
            ),
        ] {
            let hook = webhook(kind, &item(of, true), &subject).expect("all it needs is there");
            let body = parsed(&hook);
            assert_eq!(&*hook.event, event);
            assert_eq!(
                (&body["action"], &body["sender"]["login"]),
                (&action.into(), &sender.into())
            );
            assert_eq!(body["label"]["name"].is_string(), action == "unlabeled");
            assert_eq!(body["number"].is_u64(), event == "pull_request");
        }
    }

    #[test]
    fn without_its_objects_there_is_no_body() {
        let item = item(Kind::PullRequest, false);
        assert_eq!(webhook(E::Opened, &item, &Subject::Item(&item)), None);
        let review = said(Channel::Review, "{}");
        assert_eq!(webhook(E::Review, &item, &Subject::Comment(&review)), None);
        let strange = Item {
            upstream: None,
            ..item
        };
        assert_eq!(webhook(E::Opened, &strange, &Subject::Item(&strange)), None);
    }
}

//! The rules for values that stand in more than one place: names, paths, commands, who may act.

use super::keys::{self, NAME_LENGTH, Place};
use super::place::absolute;
use super::rules::Rules;
use super::spot::{Section, Spot};
use crate::engine::access::{Backlog, Policy};
use crate::engine::item::is_plain_name;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What GitHub can say about how an author stands to a repository.
const ASSOCIATIONS: &[&str] = &[
    "OWNER",
    "MEMBER",
    "COLLABORATOR",
    "CONTRIBUTOR",
    "FIRST_TIME_CONTRIBUTOR",
    "FIRST_TIMER",
    "MANNEQUIN",
    "NONE",
];

impl Rules<'_> {
    /// What decides about items: what stands in `section`, and for the rest `above`.
    pub(super) fn policy(&self, section: &Section, above: &Policy) -> Policy {
        let mut policy = above.clone();
        if let Some(list) = section.get("authorized_users") {
            policy.authorized_users = users(&list);
        }
        if let Some(list) = section.get("authorized_associations") {
            policy.authorized_associations = associations(&list);
        }
        if let Some(label) = section.get("label") {
            policy.label = label.text();
        }
        if let Some(spot) = section.get("backlog") {
            match spot.text().as_deref() {
                Some("open") => policy.backlog = Backlog::Open,
                Some("skip") => policy.backlog = Backlog::Skip,
                Some(other) => spot.wrong(format!(
                    "must be \"open\" or \"skip\", not '{}'",
                    other.escape_debug()
                )),
                None => {}
            }
        }
        if let Some(n) = section
            .get("max_retries")
            .and_then(|s| s.whole(keys::RETRIES))
        {
            policy.max_retries = u32::try_from(n).unwrap_or(u32::MAX);
        }
        if let Some(n) = self.overrides.max_retries {
            policy.max_retries = n;
        }
        policy
    }

    /// A command and its arguments. A first word with a slash is a path.
    pub(super) fn command(&self, spot: &Spot) -> Option<Vec<String>> {
        if spot.is_text() {
            spot.wrong(
                "must be a list of texts, not a text; no shell reads it, so write [\"program\", \"argument\"]",
            );
            return None;
        }
        let list = spot.list("texts")?;
        let Some(first) = list.first() else {
            spot.wrong("must name a program");
            return None;
        };
        let program = first.text();
        let rest: Vec<Option<String>> = list[1..].iter().map(Spot::word).collect();
        let program = match program? {
            p if p.contains('/') => self.at_base(first, &p)?.to_str()?.to_string(),
            p => p,
        };
        let mut words = vec![program];
        for word in rest {
            words.push(word?);
        }
        Some(words)
    }

    /// A path, absolute.
    pub(super) fn path(&self, spot: &Spot) -> Option<PathBuf> {
        let text = spot.text()?;
        self.at_base(spot, &text)
    }

    pub(super) fn at_base(&self, spot: &Spot, text: &str) -> Option<PathBuf> {
        if text == "~" || text.starts_with("~/") {
            spot.wrong("'~' is not expanded here; write the directory out");
            return None;
        }
        Some(absolute(self.base, Path::new(text)))
    }
}

/// The names given so far, with where, to refuse a second one.
#[derive(Default)]
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    /// Whether `name` is a good name and not taken; says why if not.
    pub(super) fn check(&mut self, spot: &Spot, name: &str) -> bool {
        if !is_plain_name(name) || name.len() > NAME_LENGTH {
            spot.wrong(format!(
                "'{}' is not a name: 1 to {NAME_LENGTH} letters, digits, '.', '_' or '-', not beginning with '.' or '-'",
                name.chars().take(60).collect::<String>().escape_debug()
            ));
            return false;
        }
        let at = format!("{} (line {})", spot.path, spot.line());
        match self.0.insert(name.to_ascii_lowercase(), at) {
            Some(first) => {
                spot.wrong(format!(
                    "the name '{name}' is taken by {first}; names that differ only in letter case are the same"
                ));
                false
            }
            None => true,
        }
    }
}

/// The entry of `table` that the text at `spot` names.
pub(super) fn one_of(
    spot: &Spot,
    what: &str,
    table: &'static [(&'static str, Place)],
) -> Option<(&'static str, Place)> {
    let text = spot.text()?;
    let entry = table.iter().find(|(name, _)| *name == text);
    if entry.is_none() {
        let known: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
        spot.wrong(format!(
            "unknown {what} '{}'; known: {}",
            text.escape_debug(),
            known.join(", ")
        ));
    }
    entry.copied()
}

/// Logins, in lower case.
fn users(list: &Spot) -> Vec<String> {
    let mut users = Vec::new();
    for (spot, name) in list.texts().unwrap_or_default() {
        let shown = name.escape_debug();
        if let Some(login) = name.strip_prefix('@') {
            spot.wrong(format!(
                "write the login without the @: \"{}\"",
                login.escape_debug()
            ));
        } else if name.contains('*') {
            spot.wrong(format!(
                "'{shown}' is not a login, and there are no patterns; to authorize by role use authorized_associations"
            ));
        } else if name.trim() != name || name.contains(char::is_control) {
            spot.wrong(format!(
                "'{shown}' has blanks around it or control characters in it"
            ));
        } else {
            users.push(name.to_lowercase());
        }
    }
    users
}

/// Associations, in upper case.
fn associations(list: &Spot) -> Vec<String> {
    let mut known = Vec::new();
    for (spot, name) in list.texts().unwrap_or_default() {
        let upper = name.to_uppercase();
        if ASSOCIATIONS.contains(&upper.as_str()) {
            known.push(upper);
        } else {
            spot.wrong(format!(
                "unknown association '{}'; known: {}",
                name.escape_debug(),
                ASSOCIATIONS.join(", ")
            ));
        }
    }
    known
}

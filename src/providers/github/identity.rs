//! Which repository this is: its number, whatever it is called by now.

use super::cursor::Identity;
use super::{Look, answer};
use crate::engine::listing::{Cut, Heard};
use crate::mutant;
use crate::net::Redirects;
use crate::providers::{json, tell};
use serde_json::Value;

impl Look<'_> {
    /// Makes sure, once, that this is the repository the records are of.
    pub(super) fn identify(&mut self) -> Result<(), Cut> {
        if self.identified {
            return Ok(());
        }
        let by_number = self.session.repo.rsplit_once("/repositories/");
        let by_number = by_number.and_then(|(_, id)| id.parse::<u64>().ok());
        let known = self.repo.as_ref().map(|repo| repo.id);
        let same_place = by_number.is_none() && known.is_some();
        let (id, name) = match self.talk.repository.filter(|_| same_place) {
            Some(id) => (Some(id), None),
            None if by_number.is_some() && by_number == known && self.has_name() => {
                (by_number, None)
            }
            None => {
                let url = self.session.repo.clone();
                let answer = self.session.get(&url, None, Redirects::SameOrigin)?;
                if answer.status != 200 {
                    return Err(self.session.refusal(&answer));
                }
                let about: Value = json::parse(&json::mend(&answer.body))
                    .map_err(|e| answer::unreadable(&answer, "a repository", &e))?;
                if self.session.keeps {
                    self.keep_repository(&answer)?;
                }
                let name = about.get("full_name").and_then(Value::as_str);
                let id = about.get("id").and_then(Value::as_u64);
                (id, name.map(str::to_string))
            }
        };
        self.identified = true;
        let path = &self.provider.place.path;
        let Some(id) = id else {
            // A server that does not number its repositories cannot mix them up for us.
            return Ok(());
        };
        if let Some(known) = known.filter(|&known| known != id)
            && !mutant::is("any-repository-will-do")
        {
            return Err(Cut::because(format!(
                "{path} is another repository now (number {id}; it was {known}): nothing is \
                 taken from it. To watch the new one, give it a source of another name"
            )));
        }
        let before = self.repo.as_ref().and_then(|repo| repo.name.clone());
        let moved = name.filter(|name| !name.eq_ignore_ascii_case(path) || by_number.is_some());
        if let Some(name) = moved.as_ref().filter(|name| Some(*name) != before.as_ref()) {
            let warning = format!(
                "{path} is called {name} now, and is followed by its number; the config may keep \
                 the old name, by which its records go"
            );
            tell(self.out, Heard::Warning(warning))?;
        }
        self.repo = Some(Identity {
            id,
            name: moved.or(before),
        });
        Ok(())
    }

    /// Whether a redirect leads to where the repository is now.
    pub(super) fn is_ours(&self, location: Option<&str>) -> bool {
        let Some(repo) = self.repo.as_ref() else {
            return false;
        };
        location.is_some_and(|to| to.contains(&format!("/repositories/{}/", repo.id)))
    }

    fn has_name(&self) -> bool {
        self.repo.as_ref().is_some_and(|repo| repo.name.is_some())
    }
}

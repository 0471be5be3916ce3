//! Asking GitHub: one request at a time, and what its answers say of us.

use super::answer;
use super::limits::Limits;
use crate::engine::listing::Cut;
use crate::engine::time::Time;
use crate::error::Error;
use crate::net::{self, Answer, Client, Redirects, Secret};

/// What every request says besides the token.
const HEADERS: &[(&str, &str)] = &[
    ("Accept", "application/vnd.github+json"),
    ("X-GitHub-Api-Version", "2022-11-28"),
];

/// The requests of one listing.
#[derive(Debug)]
pub struct Session<'a> {
    /// Makes them.
    pub client: &'a Client,
    /// The repository: `https://api.github.com/repos/octo/api`, or where that led to.
    pub repo: String,
    /// The token.
    pub token: Option<Secret>,
    /// What lets us in, for the user: `the token file …`.
    pub access: String,
    /// What the token may still ask.
    pub limits: &'a mut Limits,
    /// The server's clock at the first answer.
    pub first_date: Option<Time>,
    /// The server's clock at the last one.
    pub last_date: Option<Time>,
}

impl Session<'_> {
    /// Gets `url`, whatever the status.
    ///
    /// # Errors
    /// When there is no whole answer, or nothing may be asked now.
    pub fn get(&mut self, url: &str, redirects: Redirects) -> Result<Answer, Cut> {
        self.limits.ask()?;
        let answer = self
            .client
            .get(url, HEADERS, self.token.as_ref(), redirects)
            .map_err(|e| {
                let host = net::host(url).unwrap_or_default();
                let what = format!("GET {} at {host}", net::path(url));
                Cut::because(Error::new(what, e).to_string())
            })?;
        self.limits.answered(url, &answer);
        if let Some(date) = answer::date(&answer) {
            self.first_date.get_or_insert(date);
            self.last_date = Some(date);
        }
        self.follow_repo(url, &answer.url);
        Ok(answer)
    }

    /// Why `answer` ends the listing.
    pub fn refusal(&self, answer: &Answer) -> Cut {
        answer::refusal(answer, self.limits.refuses(answer), &self.access)
    }

    /// A renamed repository answers from where it is now; asking there at once
    /// saves a redirect per request, and tells a moved item from a moved repository.
    fn follow_repo(&mut self, asked: &str, answered: &str) {
        let bare = |url: &str| url.split('?').next().unwrap_or_default().to_string();
        let (asked, answered) = (bare(asked), bare(answered));
        if asked != answered
            && let Some(tail) = asked.strip_prefix(&self.repo)
            && let Some(repo) = answered.strip_suffix(tail)
        {
            self.repo = repo.to_string();
        }
    }
}

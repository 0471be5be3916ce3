//! Asking GitHub: one request at a time, and what its answers say of us.

use super::answer;
use super::cursor::Tag;
use super::limits::Limits;
use crate::engine::listing::Cut;
use crate::engine::time::Time;
use crate::error::Error;
use crate::mutant;
use crate::net::{self, Answer, Client, Redirects, Secret};
use crate::providers::token::Tokens;

/// What every request says besides the token.
pub(super) const HEADERS: &[(&str, &str)] = &[
    ("Accept", "application/vnd.github+json"),
    ("X-GitHub-Api-Version", "2022-11-28"),
];

/// How often the pages of a listing are halved: 100, 50, 25 rows.
const HALVINGS: u32 = 2;

/// After so many items in a row that the server failed at, no more are asked for.
const FAILED_ITEMS: u32 = 3;

/// The requests of one listing.
#[derive(Debug)]
pub struct Session<'a> {
    /// Makes them.
    pub client: &'a Client,
    /// The repository: `https://api.github.com/repos/octo/api`, or where that led to.
    pub repo: String,
    /// The token.
    pub token: Option<Secret>,
    /// Where it came from, to say so if it is refused.
    pub tokens: &'a Tokens,
    /// The cycle it was read in.
    pub cycle: Time,
    /// What lets us in, for the user: `the token file …`.
    pub access: String,
    /// What may be asked with it.
    pub limits: &'a mut Limits,
    /// The server's clock at the first answer.
    pub first_date: Option<Time>,
    /// The server's clock at the last one.
    pub last_date: Option<Time>,
    /// How often the server failed at a page of the size before.
    pub halved: u32,
    /// The repository was found elsewhere.
    pub moved: bool,
    /// At how many items in a row the server failed.
    pub failed_items: u32,
    /// What is asked for is about one item, not the whole repository.
    pub of_item: bool,
    /// The last item in want of something was asked for.
    pub asked_item: bool,
    /// Rows are kept as they were written too.
    pub keeps: bool,
}

impl Session<'_> {
    /// Gets `url`, whatever the status; with `tag`, only if it is not that any more (`304`).
    ///
    /// # Errors
    /// When there is no whole answer.
    pub fn get(
        &mut self,
        url: &str,
        tag: Option<&Tag>,
        redirects: Redirects,
    ) -> Result<Answer, Cut> {
        self.try_get(url, tag, redirects).map_err(|(cut, _)| cut)
    }

    /// Gets a page of a list, `url` with the size of its page added; a page the
    /// server fails at is asked for again in half the size. What `url` says of the size stands.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub fn get_page(&mut self, url: &str, size: u32, tag: Option<&Tag>) -> Result<Answer, Cut> {
        // Whoever followed an item elsewhere would read another repository's.
        let redirects = match self.of_item && !mutant::is("items-followed-elsewhere") {
            true => Redirects::Never,
            false => Redirects::SameOrigin,
        };
        loop {
            let smaller = self.halved < HALVINGS && !url.contains("per_page=");
            let sized = self.sized(url, size);
            match self.try_get(&sized, tag, redirects) {
                Ok(answer) if smaller && is_overload(&answer) => {}
                Err((_, Failed::TooLarge)) if smaller => {}
                Ok(answer) => return Ok(answer),
                Err((cut, _)) => return Err(cut),
            }
            self.halved += 1;
        }
    }

    /// `url` with the size of its page.
    pub fn sized(&self, url: &str, size: u32) -> String {
        match url.contains("per_page=") {
            true => url.to_string(),
            false => {
                let and = if url.contains('?') { '&' } else { '?' };
                format!("{url}{and}per_page={}", size >> self.halved)
            }
        }
    }

    /// Gets `url`, which is about one item; the inner error is why that cannot be had, which
    /// need not concern any other.
    ///
    /// # Errors
    /// When nothing more may be asked with this token.
    pub fn get_of_item(&mut self, url: &str) -> Result<Result<Answer, String>, Cut> {
        self.of_item(|session| session.get(url, None, Redirects::Never))
    }

    /// The same for a page of a list.
    ///
    /// # Errors
    /// When nothing more may be asked with this token.
    pub fn get_page_of_item(
        &mut self,
        url: &str,
        size: u32,
    ) -> Result<Result<Answer, String>, Cut> {
        self.of_item(|session| session.get_page(url, size, None))
    }

    fn of_item(
        &mut self,
        get: impl FnOnce(&mut Self) -> Result<Answer, Cut>,
    ) -> Result<Result<Answer, String>, Cut> {
        self.asked_item = !self.gave_up();
        if !self.asked_item {
            let reason = format!("the server failed at {FAILED_ITEMS} items before it");
            return Ok(Err(reason));
        }
        let halved = self.halved;
        self.of_item = true;
        let got = get(self);
        self.of_item = false;
        let reason = match got {
            Ok(answer) if matches!(answer.status, 200 | 301 | 404 | 410) => {
                self.failed_items = 0;
                return Ok(Ok(answer));
            }
            Ok(answer) => {
                let mut cut = self.refusal(&answer);
                if answer.status == 503 {
                    // What one item waits for is no wait for the others.
                    cut.not_before = None;
                }
                if cut.not_before.is_some() || answer.status == 401 {
                    return Err(cut);
                }
                cut.reason
            }
            Err(cut) if cut.not_before.is_some() => return Err(cut),
            Err(cut) => cut.reason,
        };
        if mutant::is("one-item-ends-the-listing") {
            return Err(Cut::because(reason));
        }
        // The size of other pages has nothing to do with it.
        self.halved = halved;
        self.failed_items += 1;
        Ok(Err(reason))
    }

    /// Whether no more items are asked for by themselves.
    fn gave_up(&self) -> bool {
        self.failed_items >= FAILED_ITEMS
    }

    /// The server's clock, as far as it has one.
    pub fn clock(&self) -> Time {
        self.last_date.unwrap_or(self.cycle)
    }

    fn try_get(
        &mut self,
        url: &str,
        tag: Option<&Tag>,
        redirects: Redirects,
    ) -> Result<Answer, (Cut, Failed)> {
        self.limits.ask().map_err(|cut| (cut, Failed::Otherwise))?;
        let mut headers = HEADERS.to_vec();
        if let Some(tag) = tag {
            headers.push(("If-None-Match", &tag.etag));
        }
        let answer = self
            .client
            .get(url, &headers, self.token.as_ref(), redirects)
            .map_err(|e| {
                let host = net::host(url).unwrap_or_default();
                let what = format!("GET {} at {host}", net::path(url));
                let failed = match e.is_too_large() {
                    true => Failed::TooLarge,
                    false => Failed::Otherwise,
                };
                (Cut::because(Error::new(what, e).to_string()), failed)
            })?;
        self.limits.answered(url, &answer, self.of_item);
        if let (401, Some(token)) = (answer.status, &self.token) {
            self.tokens.refused(token, self.cycle);
        }
        if let Some(date) = answer::date(&answer) {
            self.first_date.get_or_insert(date);
            self.last_date = Some(date);
        }
        self.follow_repo(url, &answer.url);
        Ok(answer)
    }

    /// What an answer to `url` is called, if it says so.
    pub fn tag(&self, url: &str, answer: &Answer) -> Option<Tag> {
        Some(Tag {
            url: url.to_string(),
            etag: answer.header("etag")?.to_string(),
            token: self.token.as_ref().map(Secret::fingerprint),
        })
    }

    /// Whether `tag` is of that URL, as we would ask for it now.
    pub fn may_use(&self, tag: &Tag, url: &str) -> bool {
        tag.url == url && tag.token == self.token.as_ref().map(Secret::fingerprint)
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
            self.moved = true;
        }
    }
}

/// Why a request gave no answer.
enum Failed {
    /// The answer is larger than we take.
    TooLarge,
    Otherwise,
}

/// A request that took the server too long ends with one of these; it names no wait then.
fn is_overload(answer: &Answer) -> bool {
    matches!(answer.status, 500 | 502 | 503 | 504) && answer.header("retry-after").is_none()
}

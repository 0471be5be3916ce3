//! What a source's token can see, what it lacks, and what polling will cost: asked of
//! GitHub, for `idempoll check --online`.
//!
//! Nothing is changed there, and nothing is asked while the host wants to be left alone.

use super::answer::shown;
use super::labels::in_path;
use super::limits::Limits;
use super::session::Session;
use crate::config::checked::{GitHub, Source, TokenFrom};
use crate::engine::host::{Host, Wait};
use crate::engine::time::Time;
use crate::net::{self, Answer, Client, Redirects};
use crate::providers::token::Tokens;
use crate::providers::{Ask, json};
use serde_json::Value;
use std::time::Duration;

/// What was found out.
#[derive(Debug, Default)]
pub struct Findings {
    /// What there is, a line each.
    pub lines: Vec<String>,
    /// What is most likely not meant.
    pub warnings: Vec<String>,
    /// Why something cannot be polled.
    pub problems: Vec<String>,
}

/// Asks about everything `source` wants, a cycle of it beginning each `interval`. `hosts` is
/// what a poller remembers of limits.
#[must_use]
pub fn inspect(
    source: &Source,
    config: &GitHub,
    interval: Duration,
    hosts: &[Host],
    now: Time,
) -> Findings {
    let mut findings = Findings::default();
    let client = Client::trusting(net::Limits::default(), config.ca_file.clone());
    let tokens = Tokens::new(config.token.clone(), &client, &config.base_url);
    let host = net::host(&config.base_url).unwrap_or_default();
    let waits = hosts
        .iter()
        .filter(|known| known.host == host)
        .map(|known| {
            let (until, throttled) = (known.waits_until(now), known.throttled);
            (known.token.clone(), Wait { until, throttled })
        });
    let ask = Ask {
        waits: waits.collect(),
        cycle: now,
        now,
        ..Ask::default()
    };
    let token = match tokens.read(&ask) {
        Ok(token) => token,
        Err(why) => {
            findings.problems.push(why);
            return findings;
        }
    };
    let mut limits = Limits::new(&host, token.as_ref(), &ask);
    let mut inspection = Inspection {
        session: Session {
            client: &client,
            repo: String::new(),
            token: token.map(|token| token.secret),
            tokens: &tokens,
            cycle: now,
            access: super::access(config),
            limits: &mut limits,
            first_date: None,
            last_date: None,
            halved: 0,
            moved: false,
            failed_items: 0,
            of_item: false,
            asked_item: false,
            keeps: false,
        },
        source,
        config,
        findings,
        kind: Kind::Other,
    };
    // What ended it is among the problems already.
    let _ = inspection.look(interval);
    inspection.findings
}

/// Nothing more can be found out.
struct Ended;

/// What kind of token it is, as far as that says what it may lack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It has scopes.
    Classic,
    /// It has permissions, for some repositories of one owner.
    FineGrained,
    /// An App's, none, or nobody knows.
    Other,
}

struct Inspection<'a> {
    session: Session<'a>,
    source: &'a Source,
    config: &'a GitHub,
    findings: Findings,
    kind: Kind,
}

impl Inspection<'_> {
    fn look(&mut self, interval: Duration) -> Result<(), Ended> {
        let limit = self.limit()?;
        let who = self.who()?;
        self.findings.lines.push(who);
        self.findings.lines.push(match limit {
            Some((limit, remaining, Some(reset_at))) => {
                format!("limit: {limit} requests an hour, {remaining} left until {reset_at}")
            }
            Some((limit, remaining, None)) => {
                format!("limit: {limit} requests an hour, {remaining} left")
            }
            None => "limit: none".to_string(),
        });
        for (owner, repo) in &self.config.repos {
            self.repo(&format!("{owner}/{repo}"))?;
        }
        self.cost(interval, limit.map(|(limit, ..)| limit));
        Ok(())
    }

    /// Requests an hour, how many are left, and until when; `None` where there is no limit.
    fn limit(&mut self) -> Result<Option<(u64, u64, Option<Time>)>, Ended> {
        let answer = self.get(&format!("{}/rate_limit", self.config.base_url))?;
        match answer.status {
            200 => {}
            // An Enterprise Server, by default. That it is one is seen by what follows.
            404 => return Ok(None),
            _ => {
                let why = self.session.refusal(&answer).reason;
                self.findings.problems.push(why);
                return Err(Ended);
            }
        }
        let body = body(&answer);
        let core = &body["resources"]["core"];
        let number = |key: &str| core[key].as_u64();
        let Some((limit, remaining)) = number("limit").zip(number("remaining")) else {
            let why = format!(
                "GET {} did not answer limits: is that the API?",
                net::path(&answer.url)
            );
            self.findings.problems.push(why);
            return Err(Ended);
        };
        let reset_at = number("reset").map(|s| Time(s.saturating_mul(1000)));
        Ok(Some((limit, remaining, reset_at)))
    }

    /// Who asks.
    fn who(&mut self) -> Result<String, Ended> {
        match &self.config.token {
            None => return Ok("nobody: there is no token, so only what is public is seen".into()),
            Some(app @ TokenFrom::App(_)) => return Ok(app.to_string()),
            Some(_) => {}
        }
        let answer = self.get(&format!("{}/user", self.config.base_url))?;
        let login = body(&answer)["login"]
            .as_str()
            .map(|login| shown(&answer, login));
        let (200, Some(login)) = (answer.status, login) else {
            // An App's token is nobody's.
            return Ok(match answer.status {
                403 | 404 => "a token that belongs to no user: of an App, or of a workflow".into(),
                _ => format!("nobody knows: {}", self.session.refusal(&answer).reason),
            });
        };
        let mut who = match answer.header("x-oauth-scopes").map(str::trim) {
            Some("") => format!("{login}, by a token without scopes: only what is public is seen"),
            Some(scopes) => {
                format!(
                    "{login}, by a token with the scopes {}",
                    shown(&answer, scopes)
                )
            }
            None => format!("{login}, by a fine-grained token"),
        };
        self.kind = match answer.header("x-oauth-scopes") {
            Some(_) => Kind::Classic,
            None => Kind::FineGrained,
        };
        if let Some(end) = answer.header("github-authentication-token-expiration") {
            who.push_str(&format!("; it expires {}", shown(&answer, end)));
        }
        Ok(who)
    }

    /// What can be seen of one repository.
    fn repo(&mut self, name: &str) -> Result<(), Ended> {
        let base = format!("{}/repos/{name}", self.config.base_url);
        let answer = self.get(&base)?;
        if answer.status != 200 {
            self.refused(name, &answer);
            return Ok(());
        }
        let about = body(&answer);
        if let Some(now) = about["full_name"].as_str()
            && !now.eq_ignore_ascii_case(name)
        {
            let now = shown(&answer, now);
            self.warn(
                name,
                &format!("it is called {now} now; put that into the config"),
            );
        }
        if about["archived"] == true {
            self.warn(name, "it is archived: nothing new will come");
        }
        let mut lists = vec![("issues", "/issues")];
        if self.config.pull_requests {
            lists.push(("pull requests", "/pulls"));
        }
        let mut readable = Vec::new();
        for (what, path) in lists {
            let answer = self.get(&format!("{base}{path}?state=all&per_page=1"))?;
            match answer.status {
                200 if body(&answer).is_array() => readable.push(what),
                200 => self.problem(name, &format!("what answers for {what} is no list")),
                410 if about["has_issues"] == false => self.problem(
                    name,
                    "issues are disabled there, and without them there is no list to poll",
                ),
                _ => self.refused(name, &answer),
            }
        }
        if let Some(label) = &self.source.policy.label {
            let answer = self.get(&format!("{base}/labels/{}", in_path(label)))?;
            match answer.status {
                200 => readable.push("the label"),
                404 => self.warn(
                    name,
                    &format!(
                        "there is no label '{}': nothing is delivered until there is",
                        label.escape_debug()
                    ),
                ),
                _ => self.refused(name, &answer),
            }
        }
        let private = match about["private"].as_bool() {
            Some(true) => "private",
            Some(false) => "public",
            None => "there",
        };
        let role = ["admin", "maintain", "push", "triage", "pull"]
            .into_iter()
            .find(|role| about["permissions"][role] == true)
            .map_or(String::new(), |role| format!(", with the right to {role}"));
        let open = about["open_issues_count"]
            .as_u64()
            .map_or(String::new(), |n| format!("; {n} open"));
        let readable = match readable.as_slice() {
            [] => "nothing".to_string(),
            [only] => (*only).to_string(),
            [first @ .., last] => format!("{} and {last}", first.join(", ")),
        };
        self.findings.lines.push(format!(
            "{name}: {private}{role}; {readable} can be read{open}"
        ));
        Ok(())
    }

    /// What polling costs, as arithmetic.
    fn cost(&mut self, interval: Duration, limit: Option<u64>) {
        let repos = self.config.repos.len();
        let (each, swept) = match self.config.pull_requests {
            true => (3, 4),
            false => (1, 2),
        };
        let cycle = repos * each;
        let hourly = 3600.0 / interval.as_secs_f64();
        // Rounded up; far below where a float is not exact.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "small numbers"
        )]
        let hour = (cycle as f64 * hourly).ceil() as u64;
        let repos_are = plural(repos, "repository", "repositories");
        let arithmetic = format!(
            "{repos_are} x {} = {}; one every {} s makes {hour} an hour",
            plural(each, "request", "requests"),
            plural(cycle, "request", "requests"),
            interval.as_secs(),
        );
        let anonymous = self.config.token.is_none() && limit.is_some();
        let price = match anonymous {
            true => "each of which counts, since there is no token",
            false => "all answered \"not modified\", which counts nothing",
        };
        self.findings
            .lines
            .push(format!("an idle cycle: {arithmetic}, {price}"));
        self.findings.lines.push(format!(
            "a sweep, every {} min: {repos_are} x ({swept} requests + 1 for each 100 open items)",
            self.config.sweep.as_secs() / 60,
        ));
        if anonymous && limit.is_some_and(|limit| hour > limit) {
            self.findings.warnings.push(format!(
                "{hour} requests an hour are more than it allows without a token, so it is polled less often"
            ));
        }
    }

    /// Asks; what prevents that is a problem of the whole source.
    fn get(&mut self, url: &str) -> Result<Answer, Ended> {
        let asked = self.session.get(url, None, Redirects::SameOrigin);
        asked.map_err(|cut| {
            self.findings.problems.push(cut.reason);
            Ended
        })
    }

    fn refused(&mut self, name: &str, answer: &Answer) {
        let mut why = self.session.refusal(answer).reason;
        let sso = answer
            .header("x-github-sso")
            .and_then(|sso| sso.split_once("url="));
        let owner = name.split('/').next().unwrap_or(name);
        match (answer.status, self.kind) {
            (403 | 404, _) if sso.is_some() => {
                let url = sso.map_or("", |(_, url)| url);
                why.push_str(&format!(
                    "; authorize the token for the organization at {}",
                    shown(answer, url)
                ));
            }
            (404, Kind::Classic) => {
                why.push_str("; for a private repository it needs the scope repo");
            }
            (404, Kind::FineGrained) => why.push_str(&format!(
                "; it must be one for {owner}, with this repository among those selected"
            )),
            (404, Kind::Other) if matches!(self.config.token, Some(TokenFrom::App(_))) => {
                why.push_str("; the App must be installed for this repository");
            }
            _ => {}
        }
        self.problem(name, &why);
    }

    fn problem(&mut self, name: &str, why: &str) {
        self.findings.problems.push(format!("{name}: {why}"));
    }

    fn warn(&mut self, name: &str, what: &str) {
        self.findings.warnings.push(format!("{name}: {what}"));
    }
}

/// An answer as JSON; `null` if it is none.
fn body(answer: &Answer) -> Value {
    json::parse(&json::mend(&answer.body)).unwrap_or_default()
}

/// `1 request`, `3 requests`.
fn plural(n: usize, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

//! The rules for a source and the settings of its provider.

use super::checked::{App, Dir, GitHub, Provider, Source, TokenFrom};
use super::keys::{self, PROVIDERS};
use super::nearest::did_you_mean;
use super::rules::Rules;
use super::scope::Claims;
use super::spot::{Section, Spot};
use super::values::{Names, one_of};
use super::{secret, url};
use crate::engine::access::Policy;
use crate::engine::item::{is_name, is_plain_name};
use crate::engine::time::Time;
use std::time::Duration;

impl Rules<'_> {
    pub(super) fn source(
        &self,
        section: &Section,
        defined: &[&str],
        above: &Policy,
        names: &mut Names,
        claims: &mut Claims,
    ) -> Option<Source> {
        let name = section.need("name").and_then(|spot| {
            let name = spot.text()?;
            names.check(&spot, &name).then_some(name)
        });
        let kind = section
            .need("provider")
            .and_then(|spot| one_of(&spot, "provider", PROVIDERS));
        match kind {
            Some((_, own)) => section.only(&[keys::SOURCE, own]),
            None => section.only(&[keys::DIR, keys::GITHUB, keys::SOURCE]),
        }
        let sinks = section
            .need("sinks")
            .and_then(|list| self.sinks_of_source(&list, defined));
        let mut policy = self.policy(section, above);
        if let Some(spot) = section.get("watch_from") {
            policy.watch_from = spot.text().and_then(|text| match text.parse::<Time>() {
                Ok(time) => Some(time),
                Err(e) => {
                    spot.wrong(e);
                    None
                }
            });
        }
        let to = sinks.as_deref().unwrap_or_default();
        let provider = match kind?.0 {
            "dir" => self.dir(section, to, claims).map(Provider::Dir),
            _ => self.github(section, to, claims).map(Provider::GitHub),
        };
        Some(Source {
            name: name?,
            provider: provider?,
            sinks: sinks?,
            webhook_sinks: Vec::new(),
            policy,
        })
    }

    fn sinks_of_source(&self, list: &Spot, defined: &[&str]) -> Option<Vec<String>> {
        let texts = list.texts()?;
        if list.list("names").is_some_and(|l| l.is_empty()) {
            list.wrong("at least one sink is needed");
        }
        let mut sinks: Vec<String> = Vec::new();
        for (spot, name) in texts {
            if sinks.contains(&name) {
                spot.wrong(format!("the sink '{name}' is listed twice"));
            } else if !defined.contains(&name.as_str()) {
                spot.wrong(format!(
                    "the sink '{}' is not defined under 'sinks'{}",
                    name.escape_debug(),
                    did_you_mean(&name, defined.iter().copied())
                ));
            } else {
                sinks.push(name);
            }
        }
        Some(sinks)
    }

    fn dir(&self, section: &Section, sinks: &[String], claims: &mut Claims) -> Option<Dir> {
        let spot = section.need("path")?;
        let path = self.path(&spot)?;
        claims.dir(&spot, &path, sinks);
        Some(Dir { path })
    }

    fn github(&self, section: &Section, sinks: &[String], claims: &mut Claims) -> Option<GitHub> {
        let base_url = match section.get("base_url") {
            Some(spot) => spot.text().and_then(|text| match url::base_url(&text) {
                Ok(url) => Some(url),
                Err(why) => {
                    spot.wrong(why);
                    None
                }
            }),
            None => Some(keys::GITHUB_API.to_string()),
        };
        let repos = section.need("repos").and_then(|list| {
            let texts = list.texts()?;
            if list.list("texts").is_some_and(|l| l.is_empty()) {
                list.wrong("at least one repository is needed");
            }
            let mut repos = Vec::new();
            for (spot, text) in texts {
                match text.split_once('/') {
                    Some((owner, repo))
                        if is_name(owner) && is_name(repo) && owner.len() + repo.len() <= 140 =>
                    {
                        if let Some(url) = &base_url {
                            claims.repo(&spot, url::host(url), &text, sinks);
                        }
                        repos.push((owner.to_string(), repo.to_string()));
                    }
                    // Together with a number they name a file.
                    Some((owner, repo)) if owner.len() + repo.len() > 140 => {
                        spot.wrong("is longer than any repository's name")
                    }
                    _ if secret::looks_like_a_token(&text) => {
                        spot.wrong("must be of the form owner/repo")
                    }
                    _ => spot.wrong(format!(
                        "'{}' is not of the form owner/repo",
                        text.escape_debug()
                    )),
                }
            }
            Some(repos)
        });
        let truth = |key| match section.get(key) {
            Some(spot) => spot.truth(),
            None => Some(true),
        };
        let (issues, pull_requests) = (truth("issues"), truth("pull_requests"));
        if let (Some(false), Some(false), Some(spot)) =
            (issues, pull_requests, section.get("pull_requests"))
        {
            spot.wrong("with issues and pull_requests both false there is nothing to watch");
        }
        let token = self.token(section);
        let ca_file = section.get("ca_file").map(|spot| self.path(&spot));
        let sweep = match section.get("sweep_minutes") {
            Some(spot) => spot.whole(keys::SWEEP),
            None => Some(60),
        };
        Some(GitHub {
            repos: repos?,
            base_url: base_url?,
            issues: issues?,
            pull_requests: pull_requests?,
            token,
            ca_file: match ca_file {
                Some(path) => Some(path?),
                None => None,
            },
            sweep: Duration::from_secs(sweep? * 60),
        })
    }

    fn token(&self, section: &Section) -> Option<TokenFrom> {
        let mut given = Vec::new();
        for (key, spot) in section.values() {
            match key {
                "token_env" => given.push((
                    spot.clone(),
                    spot.text()
                        .filter(|name| is_variable(&spot, name))
                        .map(TokenFrom::Env),
                )),
                "token_file" => {
                    given.push((spot.clone(), self.path(&spot).map(TokenFrom::File)));
                }
                "token_command" => {
                    given.push((spot.clone(), self.command(&spot).map(TokenFrom::Command)));
                }
                "app" => given.push((spot.clone(), self.app(&spot).map(TokenFrom::App))),
                _ => {}
            }
        }
        if let [_, (second, _), ..] = given.as_slice() {
            second.wrong("only one of token_env, token_file, token_command and app may be given");
        }
        given.into_iter().next().and_then(|(_, from)| from)
    }

    fn app(&self, spot: &Spot) -> Option<App> {
        let section = spot.section()?;
        section.only(&[keys::APP]);
        let id = section.need("id").and_then(|spot| {
            let id = spot.text()?;
            let ok = is_plain_name(&id) && id.len() <= 100;
            if !ok {
                spot.wrong("is neither an App's client id (Iv…) nor its number");
            }
            ok.then_some(id)
        });
        let installation_id = section
            .need("installation_id")
            .and_then(|spot| spot.whole(keys::INSTALLATION));
        let private_key_file = section
            .need("private_key_file")
            .and_then(|spot| self.path(&spot));
        Some(App {
            id: id?,
            installation_id: installation_id?,
            private_key_file: private_key_file?,
        })
    }
}

/// Whether `name` can be an environment variable's name; says so if not,
/// without repeating what may be a token.
pub(super) fn is_variable(spot: &Spot, name: &str) -> bool {
    if secret::looks_like_a_token(name) {
        spot.wrong(
            "this looks like a token itself; put the token into an environment variable and name the variable here",
        );
        return false;
    }
    let ok = !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !ok {
        spot.wrong("is not the name of an environment variable (letters, digits and '_')");
    }
    ok
}

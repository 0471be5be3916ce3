//! From the tree of the file to a checked config: every rule, in the order of the keys.

use super::checked::{Config, Dir, Exec, GitHub, Policy, Provider, Sink, Source, TokenFrom};
use super::keys::{self, NAME_LENGTH, PROVIDERS, Place, SINK_TYPES};
use super::nearest::did_you_mean;
use super::place::{Env, absolute};
use super::raw::{self, Found, Section, Spot};
use super::scope::Claims;
use super::{Overrides, secret, url};
use crate::engine::access::Backlog;
use crate::engine::item::is_name;
use crate::engine::time::Time;
use crate::error::Error;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

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

/// Checks `text`, the content of `file`.
pub(super) fn check(
    file: &Path,
    text: &str,
    overrides: &Overrides,
    env: &Env,
) -> Result<(Config, Vec<String>), Error> {
    let found = Found::default();
    let config = raw::parse(text, &found).and_then(|tree| {
        let top = Spot::root(&tree, text, &found).section()?;
        let rules = Rules {
            file,
            base: file.parent().unwrap_or(Path::new("/")),
            overrides,
            env,
        };
        rules.top(&top)
    });
    match (found.into_error(file, text), config) {
        (Some(error), _) => Err(error),
        (None, Some(config)) => {
            let warnings = warnings(&config);
            Ok((config, warnings))
        }
        // Every rule that gives no value says why; this is only for the compiler.
        (None, None) => Err(Error::usage(
            format!("cannot use the config {}", file.display()),
            "it is wrong",
        )),
    }
}

/// What every rule needs to know.
struct Rules<'r> {
    file: &'r Path,
    /// Where relative paths of the file start.
    base: &'r Path,
    overrides: &'r Overrides,
    env: &'r Env,
}

impl Rules<'_> {
    fn top(&self, top: &Section) -> Option<Config> {
        top.only(&[keys::TOP]);
        let _ = top.get("$schema").map(|s| s.text());

        let state_dir = self.state_dir(top);
        let whole = |key, range, default| match top.get(key) {
            Some(spot) => spot.whole(range),
            None => Some(default),
        };
        let interval = whole("interval_seconds", keys::INTERVAL, 60);
        let concurrent = whole("max_concurrent_deliveries", keys::CONCURRENT, 4);
        let pause = match top.get("retry_seconds") {
            Some(spot) => spot.number(keys::RETRY_PAUSE),
            None => Some(10.0),
        };
        let marker = match top.get("self_marker") {
            Some(spot) => spot.text(),
            None => Some(keys::SELF_MARKER.to_string()),
        };
        let policy = self.policy(
            top,
            &Policy {
                max_retries: 3,
                ..Policy::default()
            },
        );

        let sinks = top.need("sinks").and_then(|s| s.section());
        let names: Vec<&str> = sinks.iter().flat_map(|s| s.values().map(|v| v.0)).collect();
        let sources = top
            .need("sources")
            .and_then(|list| self.sources(&list, &names, &policy));
        let sinks = sinks.map(|s| self.sinks(&s));

        let state_dir = state_dir?;
        Some(Config {
            file: self.file.to_path_buf(),
            pidfile: match &self.overrides.pidfile {
                Some(path) => absolute(&self.env.cwd, path),
                None => state_dir.join("poll.pid"),
            },
            state_dir,
            interval: Duration::from_secs(self.overrides.interval.or(interval)?),
            max_concurrent: usize::try_from(concurrent?).ok()?,
            retry_pause: Duration::from_secs_f64(pause?),
            self_marker: marker?,
            sources: sources?,
            sinks: sinks?,
        })
    }

    fn state_dir(&self, top: &Section) -> Option<PathBuf> {
        let configured = top.get("state_dir").map(|spot| self.path(&spot));
        if let Some(path) = &self.overrides.state_dir {
            return Some(absolute(&self.env.cwd, path));
        }
        match configured {
            Some(path) => path,
            None => {
                let found = self.env.state_dir();
                if found.is_none() {
                    top.spot.wrong(
                        "state_dir is missing, and neither STATE_DIRECTORY, XDG_STATE_HOME nor HOME says where to keep state",
                    );
                }
                found
            }
        }
    }

    /// What decides about items: what stands in `section`, and for the rest `above`.
    fn policy(&self, section: &Section, above: &Policy) -> Policy {
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

    fn sources(&self, list: &Spot, sinks: &[&str], policy: &Policy) -> Option<Vec<Source>> {
        let spots = list.list("sources")?;
        if spots.is_empty() {
            list.wrong("at least one source is needed");
        }
        let mut names = Names::default();
        let mut claims = Claims::default();
        let sources: Vec<Option<Source>> = spots
            .iter()
            .map(|spot| self.source(&spot.section()?, sinks, policy, &mut names, &mut claims))
            .collect();
        sources.into_iter().collect()
    }

    fn source(
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
                    Some((owner, repo)) if is_name(owner) && is_name(repo) => {
                        if let Some(url) = &base_url {
                            claims.repo(&spot, url::host(url), &text, sinks);
                        }
                        repos.push((owner.to_string(), repo.to_string()));
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
        Some(GitHub {
            repos: repos?,
            base_url: base_url?,
            issues: issues?,
            pull_requests: pull_requests?,
            token,
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
                _ => {}
            }
        }
        if let [_, (second, _), ..] = given.as_slice() {
            second.wrong("only one of token_env, token_file and token_command may be given");
        }
        given.into_iter().next().and_then(|(_, from)| from)
    }

    fn sinks(&self, section: &Section) -> BTreeMap<String, Sink> {
        let mut names = Names::default();
        let mut sinks = BTreeMap::new();
        for (name, spot) in section.keys() {
            names.check(&spot, name);
        }
        for (name, spot) in section.values() {
            let sink = spot.section().and_then(|s| {
                let kind = s
                    .need("type")
                    .and_then(|spot| one_of(&spot, "type", SINK_TYPES));
                match kind {
                    Some((_, own)) => s.only(&[keys::SINK, own]),
                    None => s.only(&[keys::EXEC, keys::SINK]),
                }
                kind.and_then(|_| self.exec(&s)).map(Sink::Exec)
            });
            if let Some(sink) = sink {
                sinks.insert(name.to_string(), sink);
            }
        }
        sinks
    }

    fn exec(&self, section: &Section) -> Option<Exec> {
        let command = section.need("command").and_then(|s| self.command(&s));
        let workdir = match section.get("workdir") {
            Some(spot) => self.path(&spot),
            None => Some(self.base.to_path_buf()),
        };
        let timeout = match section.get("timeout_seconds") {
            Some(spot) => spot.number(keys::TIMEOUT),
            None => Some(1800.0),
        };
        Some(Exec {
            command: command?,
            workdir: workdir?,
            timeout: Duration::from_secs_f64(timeout?),
        })
    }

    /// A command and its arguments. A first word with a slash is a path.
    fn command(&self, spot: &Spot) -> Option<Vec<String>> {
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
    fn path(&self, spot: &Spot) -> Option<PathBuf> {
        let text = spot.text()?;
        self.at_base(spot, &text)
    }

    fn at_base(&self, spot: &Spot, text: &str) -> Option<PathBuf> {
        if text == "~" || text.starts_with("~/") {
            spot.wrong("'~' is not expanded here; write the directory out");
            return None;
        }
        Some(absolute(self.base, Path::new(text)))
    }
}

/// The names given so far, with where, to refuse a second one.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    /// Whether `name` is a good name and not taken; says why if not.
    fn check(&mut self, spot: &Spot, name: &str) -> bool {
        if !is_name(name) || name.len() > NAME_LENGTH {
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
fn one_of(
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

/// Whether `name` can be an environment variable's name; says so if not,
/// without repeating what may be a token.
fn is_variable(spot: &Spot, name: &str) -> bool {
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

/// What is allowed and most likely not meant.
fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let mute: Vec<&str> = config
        .sources
        .iter()
        .filter(|s| {
            s.policy.authorized_users.is_empty() && s.policy.authorized_associations.is_empty()
        })
        .map(|s| s.name.as_str())
        .collect();
    if !mute.is_empty() {
        warnings.push(format!(
            "nobody is authorized in {}: authorized_users and authorized_associations are empty, so nothing will be delivered",
            quoted("source", &mute)
        ));
    }
    for source in &config.sources {
        if source
            .policy
            .authorized_associations
            .iter()
            .any(|a| a == "NONE")
        {
            warnings.push(format!(
                "source '{}' authorizes everybody: NONE in authorized_associations stands for people without any role",
                source.name
            ));
        }
        if let Provider::GitHub(github) = &source.provider
            && github.token.is_none()
            && github.base_url == keys::GITHUB_API
        {
            warnings.push(format!(
                "source '{}' has no token: GitHub answers only 60 requests an hour without one",
                source.name
            ));
        }
    }
    let idle: Vec<&str> = config
        .sinks
        .keys()
        .map(String::as_str)
        .filter(|name| {
            !config
                .sources
                .iter()
                .any(|s| s.sinks.iter().any(|n| n == name))
        })
        .collect();
    if !idle.is_empty() {
        warnings.push(format!("no source uses {}", quoted("sink", &idle)));
    }
    warnings
}

/// `source 'a'`, `sources 'a', 'b'`.
fn quoted(what: &str, names: &[&str]) -> String {
    let list: Vec<String> = names.iter().map(|n| format!("'{n}'")).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("{what}{plural} {}", list.join(", "))
}

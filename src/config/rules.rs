//! From the tree of the file to a checked config: every rule, in the order of the keys.

use super::Overrides;
use super::checked::{Config, Exec, Policy, Provider, Sink, Source};
use super::keys::{self, SINK_TYPES};
use super::place::{Env, absolute};
use super::raw::{self, Found};
use super::scope::Claims;
use super::spot::{Section, Spot};
use super::url;
use super::values::{Names, one_of};
use crate::error::Error;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
        Rules::new(file, overrides, env).top(&top)
    });
    match (found.into_error(file, text), config) {
        (Some(error), _) => Err(error),
        (None, Some(config)) => {
            let warnings = warnings(&config);
            Ok((config, warnings))
        }
        (None, None) => Err(unexplained(file)),
    }
}

/// The state directory that `text`, the content of `file`, says; the rest of it may be wrong.
pub(super) fn state_dir_alone(
    file: &Path,
    text: &str,
    overrides: &Overrides,
    env: &Env,
) -> Result<PathBuf, Error> {
    let found = Found::default();
    let dir = raw::parse(text, &found).and_then(|tree| {
        let top = Spot::root(&tree, text, &found).section()?;
        Rules::new(file, overrides, env).state_dir(&top)
    });
    match (dir, found.into_error(file, text)) {
        (Some(dir), _) => Ok(dir),
        (None, Some(error)) => Err(error),
        (None, None) => Err(unexplained(file)),
    }
}

/// Every rule that gives no value says why; this is only for the compiler.
fn unexplained(file: &Path) -> Error {
    Error::usage(
        format!("cannot use the config {}", file.display()),
        "it is wrong",
    )
}

/// What every rule needs to know.
pub(super) struct Rules<'r> {
    pub(super) file: &'r Path,
    /// Where relative paths of the file start.
    pub(super) base: &'r Path,
    pub(super) overrides: &'r Overrides,
    pub(super) env: &'r Env,
}

impl<'r> Rules<'r> {
    fn new(file: &'r Path, overrides: &'r Overrides, env: &'r Env) -> Rules<'r> {
        Rules {
            file,
            base: file.parent().unwrap_or(Path::new("/")),
            overrides,
            env,
        }
    }

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
        let seconds = |key, range, default| match top.get(key) {
            Some(spot) => spot.number(range),
            None => Some(default),
        };
        let pause = seconds("retry_seconds", keys::RETRY_PAUSE, 10.0);
        let drain = seconds("drain_seconds", keys::DRAIN, 10.0);
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
        let sinks = sinks.map(|s| self.sinks(&s, state_dir.as_deref()));
        let sources = sources.zip(sinks.as_ref()).and_then(|(sources, sinks)| {
            let list = top.get("sources")?;
            self.webhooks(&list, sources, sinks)
        });

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
            drain: Duration::from_secs_f64(drain?),
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

    /// Tells each source which of its sinks take GitHub's webhooks; there must be some to take.
    fn webhooks(
        &self,
        list: &Spot,
        mut sources: Vec<Source>,
        sinks: &BTreeMap<String, Sink>,
    ) -> Option<Vec<Source>> {
        let spots = list.list("sources")?;
        let mut possible = true;
        for (source, spot) in sources.iter_mut().zip(spots) {
            let takes = |name: &&String| sinks.get(*name).is_some_and(Sink::takes_webhooks);
            source.webhook_sinks = source.sinks.iter().filter(takes).cloned().collect();
            if let (Provider::Dir(_), Some(sink)) = (&source.provider, source.webhook_sinks.first())
            {
                spot.wrong(format!(
                    "the sink '{sink}' has the format 'github', and only a 'github' source has what GitHub would send"
                ));
                possible = false;
            }
        }
        possible.then_some(sources)
    }

    fn sinks(&self, section: &Section, state_dir: Option<&Path>) -> BTreeMap<String, Sink> {
        let mut names = Names::default();
        let mut sockets = BTreeMap::new();
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
                    None => s.only(&[keys::EXEC, keys::HTTP, keys::TMUX, keys::SINK]),
                }
                match kind?.0 {
                    "http" => self.http(&s).map(Sink::Http),
                    "tmux" => self.tmux(&s, name, state_dir, &mut sockets).map(Sink::Tmux),
                    _ => self.exec(&s).map(Sink::Exec),
                }
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
        if let Provider::GitHub(github) = &source.provider
            && let Some(doubt) = url::doubt(&github.base_url)
        {
            warnings.push(format!("source '{}': {doubt}", source.name));
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

//! `idempoll check`: whether the config, and what it names on this machine, would work.
//!
//! Nothing is changed and nothing delivered: no command of the config is run, and endpoints are connected to and
//! asked nothing. No tracker is asked, but with `--online`.

use super::args::{Check, Global};
use super::out::Out;
use crate::config::checked::{
    Config, Exec, Format, GitHub, Http, Provider, SecretFrom, Sink, Source, Submit, Tmux, TokenFrom,
};
use crate::config::secret::Secret;
use crate::daemon::clock;
use crate::daemon::lifecycle::lacking;
use crate::daemon::places::{check_state_dir, shared_with_others};
use crate::engine::item::ItemRef;
use crate::error::Error;
use crate::exit::Exit;
use crate::providers::github;
use crate::providers::github::inspect::inspect;
use crate::sinks;
use crate::sinks::tmux::client::{Client, Fault};
use crate::sinks::tmux::{self, prompt};
use crate::store::{Layout, hosts};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Prints what the config says and what would not work about it.
pub(super) fn run(global: &Global, check: &Check, out: &mut Out) -> Result<Exit, Error> {
    let (config, warnings) = super::config(global, &super::overrides(global))?;
    let mut report = Report::of(&config);
    if check.online {
        report.online(&config);
    }
    out.line(format_args!("config   {}", config.file.display()));
    for line in &report.lines {
        out.line(line);
    }
    for warning in &warnings {
        out.line(format_args!("warning: {warning}"));
    }
    for problem in &report.problems {
        out.line(format_args!("problem: {problem}"));
    }
    out.flush();
    match report.problems.len() {
        0 => Ok(Exit::Done),
        1 => Err(Error::new("1 thing would not work", "")),
        n => Err(Error::new(format!("{n} things would not work"), "")),
    }
}

/// What was found.
#[derive(Debug, Default)]
struct Report {
    /// What there is, a line each.
    lines: Vec<String>,
    /// What would not work.
    problems: Vec<String>,
}

impl Report {
    fn of(config: &Config) -> Report {
        let mut report = Report::default();
        if let Some(error) = lacking() {
            report.problems.push(error.to_string());
        }
        report.state_dir(&config.state_dir);
        for source in &config.sources {
            let name = &source.name;
            let what = match &source.provider {
                Provider::Dir(dir) => {
                    if let Err(why) = list(&dir.path) {
                        report.problem(format!("source '{name}'"), &dir.path, why);
                    }
                    format!("dir {}", dir.path.display())
                }
                Provider::GitHub(github) => report.github(name, github),
            };
            let to = source.sinks.join(", ");
            report
                .lines
                .push(format!("source   {name}: {what} -> {to}"));
        }
        for (name, sink) in &config.sinks {
            match sink {
                Sink::Exec(exec) => report.exec(name, exec),
                Sink::Tmux(tmux) => report.tmux(config, name, tmux),
                Sink::Http(http) => report.http(name, http),
            }
        }
        report
    }

    /// What the trackers say.
    fn online(&mut self, config: &Config) {
        let hosts = hosts::look(&Layout::new(&config.state_dir));
        for source in &config.sources {
            let Provider::GitHub(github) = &source.provider else {
                continue;
            };
            let name = &source.name;
            let whose = format!("source '{name}'");
            if self.problems.iter().any(|p| p.starts_with(&whose)) {
                // It would only say the same again.
                continue;
            }
            let found = inspect(source, github, config.interval, &hosts, clock::now());
            let lines = found.lines.into_iter();
            self.lines
                .extend(lines.map(|line| format!("online   {name}: {line}")));
            let warnings = found.warnings.into_iter();
            self.lines
                .extend(warnings.map(|what| format!("warning: {whose}: {what}")));
            let problems = found.problems.into_iter();
            self.problems
                .extend(problems.map(|why| format!("{whose}: {why}")));
        }
    }

    fn problem(&mut self, whose: String, path: &Path, why: impl std::fmt::Display) {
        let why = Error::new(format!("{whose}: {}", path.display()), why);
        self.problems.push(why.to_string());
    }

    fn state_dir(&mut self, dir: &Path) {
        let there = dir.symlink_metadata().is_ok();
        let note = if there { "" } else { " (start makes it)" };
        self.lines.push(format!("state    {}{note}", dir.display()));
        if let Some(note) = shared_with_others(dir) {
            self.lines.push(format!("warning: {note}"));
        }
        if let Err(e) = check_state_dir(dir) {
            self.problems.push(e.to_string());
        }
    }

    fn github(&mut self, name: &str, github: &GitHub) -> String {
        let repos: Vec<String> = github
            .repos
            .iter()
            .map(|(o, r)| format!("{o}/{r}"))
            .collect();
        let token = match &github.token {
            None => "no token".to_string(),
            Some(TokenFrom::Env(variable)) => {
                if let Err(e) = Secret::from_env(variable) {
                    self.problems.push(format!("source '{name}': {e}"));
                }
                format!("token in ${variable}")
            }
            Some(TokenFrom::File(file)) => {
                if let Err(e) = Secret::from_file(file) {
                    self.problems.push(format!("source '{name}': {e}"));
                }
                self.read_by_others(&format!("source '{name}'"), "the token", file);
                format!("token in {}", file.display())
            }
            Some(TokenFrom::Command(words)) => {
                match program(&words[0]) {
                    Ok(_) => {}
                    Err(why) => self.problem(
                        format!("source '{name}', token_command"),
                        Path::new(&words[0]),
                        why,
                    ),
                }
                format!("token from '{}'", words[0])
            }
            Some(from @ TokenFrom::App(app)) => {
                self.read_by_others(
                    &format!("source '{name}'"),
                    "the private key",
                    &app.private_key_file,
                );
                from.to_string()
            }
        };
        if let Err(why) = github::check_access(github) {
            self.problems.push(format!("source '{name}': {why}"));
        }
        format!(
            "github {} at {}, {token}",
            repos.join(", "),
            github.base_url
        )
    }

    fn read_by_others(&mut self, whose: &str, secret: &str, file: &Path) {
        if let Ok(meta) = file.metadata()
            && meta.mode() & 0o077 != 0
        {
            self.lines.push(format!(
                "warning: {whose}: others can read {secret} in {} (mode {:o})",
                file.display(),
                meta.mode() & 0o777
            ));
        }
    }

    fn exec(&mut self, name: &str, exec: &Exec) {
        let found = match program(&exec.command[0]) {
            Ok(path) => path.display().to_string(),
            Err(why) => {
                let path = Path::new(&exec.command[0]);
                self.problem(format!("sink '{name}', command"), path, why);
                exec.command[0].clone()
            }
        };
        if let Err(why) = list(&exec.workdir) {
            self.problem(format!("sink '{name}', workdir"), &exec.workdir, why);
        }
        self.lines.push(format!(
            "sink     {name}: exec {found}, at most {} s",
            exec.timeout.as_secs_f64()
        ));
    }

    /// The endpoint is connected to and asked nothing.
    fn http(&mut self, name: &str, http: &Http) {
        let sink = sinks::http::Http::new(http.clone());
        let format = match http.format {
            Format::Idempoll => "",
            Format::GitHub => " as GitHub's webhook",
        };
        let signed = match &http.secret {
            Some(from) => format!("signed with {from}"),
            None => "not signed".to_string(),
        };
        self.lines.push(format!(
            "sink     {name}: http {}{format}, {signed}, at most {} s",
            sink.place(),
            http.timeout.as_secs_f64()
        ));
        if let Some(SecretFrom::File(file)) = &http.secret {
            self.read_by_others(&format!("sink '{name}'"), "the secret", file);
        }
        for (header, file) in &http.header_files {
            self.read_by_others(&format!("sink '{name}'"), &format!("the {header}"), file);
        }
        if !http.header_files.is_empty() && sink.is_in_clear() {
            self.lines.push(format!(
                "warning: sink '{name}': over http the values of header_files can be read on the way"
            ));
        }
        let wrong = sink.check().err().unwrap_or_default();
        let wrong = wrong.into_iter().map(|why| format!("sink '{name}': {why}"));
        self.problems.extend(wrong);
    }
}

impl Report {
    /// What a `tmux` sink needs: tmux, its socket's directory, the command, the template, and
    /// a directory for each source that names all of it. Nothing is started.
    fn tmux(&mut self, config: &Config, name: &str, tmux: &Tmux) {
        let whose = format!("sink '{name}'");
        let version = match program("tmux") {
            Ok(_) => {
                let told = tmux::client::version();
                let faults = told.as_deref().ok().and_then(tmux::client::faults);
                match (&told, faults) {
                    (Err(why), _) => self.problems.push(format!("{whose}: {why}")),
                    (_, Some(Fault::TooOld(why))) => self.problems.push(format!("{whose}: {why}")),
                    (_, Some(Fault::Known(what))) => {
                        self.lines.push(format!("warning: {whose}: {what}"));
                    }
                    (Ok(_), None) => {}
                }
                told.unwrap_or_else(|_| "tmux".into())
            }
            Err(why) => {
                self.problem(whose.clone(), Path::new("tmux"), why);
                "tmux".to_string()
            }
        };
        let client = Client {
            socket: tmux.socket.clone(),
            secret_vars: Vec::new(),
        };
        if let Err(why) = client.is_ours() {
            self.problems.push(format!("{whose}, socket: {why}"));
        }
        let mut commands = vec![("command", &tmux.command)];
        if let Submit::Command(words) = &tmux.submit {
            commands.push(("submit_check", words));
        }
        for (key, words) in commands {
            if let Err(why) = program(&words[0]) {
                self.problem(format!("{whose}, {key}"), Path::new(&words[0]), why);
            }
        }
        let template = tmux::template(tmux.template_file.as_deref());
        if let Err(why) = template.and_then(|text| prompt::check(&text)) {
            self.problems.push(format!("{whose}, template_file: {why}"));
        }
        for source in config
            .sources
            .iter()
            .filter(|s| s.sinks.iter().any(|n| n == name))
        {
            self.workdir(&whose, source, tmux);
        }
        self.lines.push(format!(
            "sink     {name}: {version}, {} at {}",
            tmux.command[0],
            tmux.socket.display()
        ));
    }

    fn workdir(&mut self, whose: &str, source: &Source, tmux: &Tmux) {
        let paths: Vec<(&str, String)> = match &source.provider {
            Provider::Dir(_) => vec![("dir", source.name.clone())],
            Provider::GitHub(github) => {
                let repos = github.repos.iter();
                repos.map(|(o, r)| ("github", format!("{o}/{r}"))).collect()
            }
        };
        for (provider, path) in paths {
            let item = ItemRef {
                provider: provider.into(),
                host: None,
                path,
                number: 0,
            };
            match tmux::expand(&tmux.workdir, &source.name, &item) {
                Err(why) => self.problems.push(format!("{whose}: {why}")),
                // One for each item is there when the item is.
                Ok(_) if tmux.create_workdir || tmux.workdir.contains("{number}") => {}
                Ok(dir) => {
                    if let Err(why) = list(Path::new(&dir)) {
                        self.problem(format!("{whose}, workdir"), Path::new(&dir), why);
                    }
                }
            }
        }
    }
}

/// Whether `dir` is a directory that can be listed.
fn list(dir: &Path) -> std::io::Result<()> {
    std::fs::read_dir(dir).map(drop)
}

/// The file that is run for `word`.
fn program(word: &str) -> Result<PathBuf, String> {
    let runs = |meta: &Metadata| meta.is_file() && meta.mode() & 0o111 != 0;
    if word.contains('/') {
        let path = PathBuf::from(word);
        return match path.metadata() {
            Err(e) => Err(e.to_string()),
            Ok(meta) if meta.is_dir() => Err("it is a directory".into()),
            Ok(meta) if runs(&meta) => Ok(path),
            Ok(_) => Err("it is not executable".into()),
        };
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs)
        .map(|dir| dir.join(word))
        .find(|p| p.metadata().is_ok_and(|m| runs(&m)))
        .ok_or_else(|| "no such program in PATH".into())
}

//! What the user types: arguments, help, output, and one file per command.
//!
//! The answer goes to standard output, complaints to standard error
//! (`idempoll VERB: …`, then `hint: …`), and the exit code says how it went.
#![forbid(unsafe_code)]

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod answers;
pub mod args;
mod check;
mod completions;
mod events;
pub mod help;
mod init;
mod items;
mod man;
pub mod out;
mod records;
mod retry;
mod show;
mod start;
mod status;
mod stop;
mod version;
mod when;

use crate::config::checked::Config;
use crate::config::{self, Env, Overrides, Places};
use crate::error::Error;
use crate::exit::Exit;
use args::{Command, Form, Global};
use out::Out;
use std::ffi::OsString;

/// Does what the command line says, without the program's name.
pub fn run(line: impl IntoIterator<Item = OsString>) -> Exit {
    let args = match args::read(line) {
        Ok(args) => args,
        Err((verb, error)) => {
            out::complain_of(verb.map_or("", |v| v.word), &error);
            return error.exit;
        }
    };
    let word = args.command.word();
    let mut out = Out::stdout();
    let result = answer(&args, &mut out);
    // What was answered so far is printed even if the command failed after it.
    let printed = out.finish();
    match (result, printed) {
        (Err(error), _) | (Ok(_), Err(error)) => {
            out::complain_of(word, &error);
            error.exit
        }
        (Ok(exit), Ok(())) => exit,
    }
}

fn answer(args: &args::Args, out: &mut Out) -> Result<Exit, Error> {
    match &args.command {
        Command::Help(help) => {
            out.page(&match help.form {
                Form::Text => help.of.map_or_else(help::overview, help::of),
                Form::Man => help.of.map_or_else(man::program, man::command),
                Form::Completions(shell) => completions::of(shell),
            });
            Ok(Exit::Done)
        }
        Command::Version => {
            out.line(version::line());
            Ok(Exit::Done)
        }
        Command::Init(init) => init::run(init, out),
        Command::Check(check) => check::run(&args.global, check, out),
        Command::Stop(stop) => stop::run(&args.global, stop, out),
        Command::Status(status) => status::run(&args.global, status, out),
        Command::Items(items) => items::run(&args.global, items, out),
        Command::Show(show) => show::run(&args.global, show, out),
        Command::Events(events) => events::run(&args.global, events, out),
        Command::Retry(retry) => retry::run(&args.global, retry, out),
        Command::Start(start) => start::run(&args.global, start, out),
    }
}

/// What the flags of every command say instead of the config.
fn overrides(global: &Global) -> Overrides {
    Overrides {
        state_dir: global.state_dir.clone(),
        pidfile: global.pidfile.clone(),
        ..Overrides::default()
    }
}

/// The whole config, checked, and warnings about it.
fn config(global: &Global, overrides: &Overrides) -> Result<(Config, Vec<String>), Error> {
    let file = config::find(global.config.as_deref(), &Env::of_process()?)?;
    config::load(&file, overrides)
}

/// Where the state is, for a command that only looks at it.
fn places(global: &Global) -> Result<Places, Error> {
    config::places(global.config.as_deref(), &overrides(global))
}

impl Command {
    /// The word for it, as messages name it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Command::Start(_) => "start",
            Command::Stop(_) => "stop",
            Command::Status(_) => "status",
            Command::Items(_) => "items",
            Command::Show(_) => "show",
            Command::Events(_) => "events",
            Command::Retry(_) => "retry",
            Command::Check(_) => "check",
            Command::Init(_) => "init",
            Command::Help(_) => "help",
            Command::Version => "",
        }
    }
}

//! What the user types: arguments, help, output, and one file per command.
//!
//! The answer goes to standard output, complaints to standard error
//! (`idempoll VERB: …`, then `hint: …`), and the exit code says how it went.
#![forbid(unsafe_code)]

pub mod args;
pub mod help;
mod init;
pub mod out;

use crate::error::Error;
use crate::exit::Exit;
use args::Command;
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
        Command::Help(verb) => {
            out.page(&verb.map_or_else(help::overview, help::of));
            Ok(Exit::Done)
        }
        Command::Version => {
            out.line(format_args!("idempoll {}", env!("CARGO_PKG_VERSION")));
            Ok(Exit::Done)
        }
        Command::Init(init) => init::run(init, out),
        _ => unreachable!(),
    }
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
            Command::Check => "check",
            Command::Init(_) => "init",
            Command::Help(_) => "help",
            Command::Version => "",
        }
    }
}

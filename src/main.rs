//! Runs the command line and turns its answer into an exit code.

use idempoll::cli;
use idempoll::sinks::runner;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|verb| verb == runner::VERB)
    {
        return runner::main();
    }
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = match payload.downcast_ref::<String>() {
            Some(text) => text.as_str(),
            None => payload
                .downcast_ref::<&str>()
                .copied()
                .unwrap_or("no reason given"),
        };
        let at = info
            .location()
            .map(|l| format!(" ({}:{})", l.file(), l.line()))
            .unwrap_or_default();
        cli::out::complain(format_args!(
            "idempoll: this is a bug in idempoll: {text}{at}"
        ));
    }));
    ExitCode::from(cli::run(std::env::args_os().skip(1)).code())
}

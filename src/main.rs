//! Runs the command line and turns its answer into an exit code.

use idempoll::sinks::runner;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|verb| verb == runner::VERB)
    {
        return runner::main();
    }
    ExitCode::SUCCESS
}

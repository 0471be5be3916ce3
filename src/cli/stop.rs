//! `idempoll stop`: stops the poller and says so once it is gone.

use super::args::{Global, Stop};
use super::out::Out;
use crate::daemon::stop::{Stopped, stop};
use crate::error::Error;
use crate::exit::Exit;

/// Stops the poller.
pub(super) fn run(global: &Global, args: &Stop, out: &mut Out) -> Result<Exit, Error> {
    let places = super::places(global)?;
    match stop(
        &places.state_dir,
        &places.pidfile,
        args.timeout,
        args.if_running,
    )? {
        Stopped::Gone { pid: Some(pid) } => out.line(format_args!("stopped (pid {pid})")),
        Stopped::Gone { pid: None } => out.line("stopped"),
        Stopped::NothingRan { found } => out.line(found),
    }
    Ok(Exit::Done)
}

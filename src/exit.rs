//! The exit codes, all of them. `docs/exit-codes.md` mirrors this list.

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done. `stop`: it ran and is gone. `status`: running.
    Done,
    /// It could not be done; stderr says why and what to do.
    Failed,
    /// The command line or the config is wrong.
    Usage,
    /// `status`: not running.
    NotRunning,
    /// Ended by a second signal before it had drained.
    Interrupted,
}

impl Exit {
    /// The number given to the shell.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NotRunning => 3,
            Exit::Interrupted => 130,
        }
    }
}

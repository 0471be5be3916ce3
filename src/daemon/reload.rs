//! A config that changes while the poller runs.
//!
//! The file is read again before each cycle. Another config is taken into use
//! by a graceful stop and a start inside this process, so every key of it takes
//! effect, and nothing is lost or repeated by it since nothing is by those: what was
//! not begun is given back, running commands are left running and adopted. The lock is
//! held all the while. Whatever cannot be used is reported once, and the config
//! before it is kept.

use super::clock::{self, Mono};
use super::health::update;
use super::life::{self, Life};
use super::poll::Poller;
use crate::config::checked::Config;
use crate::config::{Edit, Look};
use crate::engine::entry::Entry;
use crate::engine::step::Fact;
use crate::error::Error;
use crate::mutant;

impl Poller<'_> {
    /// Reads the config again, and begins to end this life if another one is to
    /// follow. Says whether it does.
    pub(super) fn look_at_config(&mut self) -> bool {
        match self.watched.look() {
            Look::AsBefore => {}
            Look::Back => self.config_is(None),
            Look::Wrong(_) if mutant::is("reload-invalid-ends-it") => self.asked.raise(),
            Look::Wrong(error) => self.reject(&error),
            Look::Edited(edit) => match immovable(self.watched.config(), &edit.config) {
                Some(error) => self.reject(&error),
                None if edit.config == *self.watched.config() => self.reloaded(*edit),
                None => {
                    self.end_life(edit);
                    return true;
                }
            },
        }
        false
    }

    fn end_life(&mut self, edit: Box<Edit>) {
        let patience = Mono::now().plus(self.watched.config().drain);
        self.coming = Some((edit, patience));
        self.life.end.raise();
        self.tell(Fact::StopAsked);
        self.life.dispatch.adopt_again();
    }

    /// The life before has come to rest, or was given time enough: begins the next one.
    ///
    /// # Errors
    /// When neither the new config nor the one before can be used.
    pub(super) fn renew(&mut self) -> Result<(), Error> {
        let Some((edit, _)) = self.coming.take() else {
            return Ok(());
        };
        update(&mut self.run, &self.life.engine);
        let (mut life, edit) = match self.begin_life(&edit.config) {
            Ok(life) => (life, Some(*edit)),
            Err(error) => {
                self.reject(&error);
                let before = self.watched.config().clone();
                (self.begin_life(&before)?, None)
            }
        };
        life.engine.follow(&self.life.engine);
        let old = std::mem::replace(&mut self.life, life);
        self.faults += old.dispatch.faults();
        old.engine.leave();
        match edit {
            Some(edit) => self.reloaded(edit),
            None => self.write_run(),
        }
        Ok(())
    }

    fn begin_life(&mut self, config: &Config) -> Result<Life, Error> {
        let (ledger, run) = (&mut self.ledger, &self.run);
        let (life, aside) =
            life::begin(config, self.once, self.open_sinks, ledger, run, &self.asked)?;
        for entry in &aside {
            self.log(entry);
        }
        Ok(life)
    }

    fn reloaded(&mut self, edit: Edit) {
        let entry = Entry::new(clock::now(), "config.reloaded")
            .with("config", edit.config.file.display().to_string())
            .with("changed", edit.changed.clone());
        let news = match edit.warnings != self.watched.warnings() {
            true => edit.warnings.clone(),
            false => Vec::new(),
        };
        self.watched.use_from_now(edit);
        // Before the log says it: whoever reads it there may ask `status` at once.
        self.config_is(None);
        self.log(&entry);
        for warning in news {
            self.warn(warning);
        }
    }

    fn reject(&mut self, error: &Error) {
        let why = error.to_string().replace('\n', "; ");
        let why = match &error.hint {
            Some(hint) => format!("{why} ({hint})"),
            None => why,
        };
        let entry = Entry::new(clock::now(), "config.rejected")
            .with("config", self.watched.config().file.display().to_string())
            .with("reason", why.clone());
        self.config_is(Some(why));
        self.log(&entry);
    }

    /// Why the config as it is now is not in use, if so.
    fn config_is(&mut self, error: Option<String>) {
        self.run.config_error = error;
        self.write_run();
    }
}

/// What cannot change under a running poller, if it did: where its state is, and so its lock.
fn immovable(now: &Config, then: &Config) -> Option<Error> {
    if now.state_dir == then.state_dir || mutant::is("reload-state-dir-accepted") {
        return None;
    }
    let (now, then) = (now.state_dir.display(), then.state_dir.display());
    let doing = format!("cannot change state_dir from {now} to {then} while the poller runs");
    Some(Error::new(doing, "").hint(format!(
        "stop it first, with `idempoll stop --state-dir {now}`; and move {now} to {then}, or all that is open is delivered anew"
    )))
}

//! Listings, on a thread that can be left behind.
//!
//! Reading a tracker has no effect, so a stop need not wait for it (R2.5): the
//! main thread drops the [`Fetch`], and the thread finds at its next word that
//! nobody listens. The channel is short, so that memory does not grow with the feed.

use super::channels::{Receiver, RecvError, Sender, bounded};
use super::threads;
use crate::engine::listing::{Cut, Heard, Listing};
use crate::providers::{Ask, Gone, Out, Provider};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How far a listing may run ahead of the poller.
const AHEAD: usize = 8;

/// A listing under way.
pub struct Fetch {
    said: Receiver<Said>,
}

/// What a listing says.
pub enum Said {
    /// One thing it learnt.
    Heard(Heard),
    /// It ended; the provider can be used again.
    Ended(Listing, Option<Box<dyn Provider>>),
}

struct Teller(Sender<Said>);

impl Out for Teller {
    fn tell(&mut self, heard: Heard) -> Result<(), Gone> {
        self.0.send(Said::Heard(heard)).map_err(|_| Gone)
    }
}

impl Fetch {
    /// Begins to list on a thread named after the feed.
    #[must_use]
    pub fn start(feed: &str, mut provider: Box<dyn Provider>, ask: Ask) -> Fetch {
        let (tell, said) = bounded(AHEAD);
        let failed = tell.clone();
        let list = move || {
            let mut out = Teller(tell.clone());
            let listed = catch_unwind(AssertUnwindSafe(|| provider.list(&ask, &mut out)));
            // Nobody listens any more if the poller left this behind; that is its right.
            let _ = tell.send(match listed {
                Ok(listing) => Said::Ended(listing, Some(provider)),
                Err(_) => Said::Ended(
                    Listing::Cut(Cut::because("the listing panicked; please report this")),
                    None,
                ),
            });
        };
        if let Err(e) = threads::spawn(&format!("list-{feed}"), list) {
            let cut = Cut::because(format!("cannot start a thread: {e}"));
            let _ = failed.try_send(Said::Ended(Listing::Cut(cut), None));
        }
        Fetch { said }
    }

    /// What it said and nobody heard yet, as far as it may run ahead.
    pub fn said_so_far(&self) -> impl Iterator<Item = Said> {
        self.said.try_iter().take(AHEAD)
    }

    /// What the listing says next.
    #[must_use]
    pub fn said(&self) -> &Receiver<Said> {
        &self.said
    }
}

/// A listing whose thread is gone without a word.
#[must_use]
pub fn vanished(_: RecvError) -> Said {
    Said::Ended(
        Listing::Cut(Cut::because("the listing ended without a word")),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::time::Time;
    use std::time::Duration;

    struct Endless;

    impl Provider for Endless {
        fn list(&mut self, _: &Ask, out: &mut dyn Out) -> Listing {
            let mut n = 0u64;
            while out.tell(Heard::Clock(Time(n))).is_ok() {
                n += 1;
            }
            Listing::Cut(Cut::because(format!("{n} told")))
        }
    }

    struct Broken;

    impl Provider for Broken {
        fn list(&mut self, _: &Ask, _: &mut dyn Out) -> Listing {
            panic!("a bug")
        }
    }

    fn ask() -> Ask {
        Ask::default()
    }

    #[test]
    fn r2_5_a_listing_can_be_left_behind() {
        let fetch = Fetch::start("endless", Box::new(Endless), ask());
        let first = fetch.said().recv_timeout(Duration::from_secs(20));
        assert!(matches!(first, Ok(Said::Heard(Heard::Clock(Time(0))))));
        drop(fetch);
    }

    #[test]
    fn a_panic_in_a_provider_is_a_cut_listing() {
        let fetch = Fetch::start("broken", Box::new(Broken), ask());
        let said = fetch.said().recv_timeout(Duration::from_secs(20));
        assert!(matches!(said, Ok(Said::Ended(Listing::Cut(_), None))));
    }
}

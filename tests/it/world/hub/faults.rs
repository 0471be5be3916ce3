//! Answers that are not GitHub's best.

use super::World;
use crate::world::forge::{Asked, Reply};

type When = Box<dyn FnMut(&Asked) -> bool + Send>;

pub(super) struct Fault {
    when: When,
    left: usize,
    does: Does,
}

enum Does {
    Answer(Reply),
    Spoil(Box<dyn FnMut(Reply) -> Reply + Send>),
}

impl World {
    /// Answers `reply` to the next `times` requests for which `when` says so.
    /// It counts against the limits, and has `Date` and the limits' headers
    /// unless it has its own. Of several faults that fit, the first added is used up first.
    pub fn fault(
        &mut self,
        times: usize,
        when: impl FnMut(&Asked) -> bool + Send + 'static,
        reply: Reply,
    ) {
        self.faults.push(Fault {
            when: Box::new(when),
            left: times,
            does: Does::Answer(reply),
        });
    }

    /// Changes the answer to the next `times` requests for which `when` says so:
    /// `|reply| reply.cut(20)`.
    pub fn spoil(
        &mut self,
        times: usize,
        when: impl FnMut(&Asked) -> bool + Send + 'static,
        how: impl FnMut(Reply) -> Reply + Send + 'static,
    ) {
        self.faults.push(Fault {
            when: Box::new(when),
            left: times,
            does: Does::Spoil(Box::new(how)),
        });
    }

    /// From now on nothing is at fault.
    pub fn heal(&mut self) {
        self.faults.clear();
    }

    /// The fault this request meets, by its place.
    pub(super) fn met(&mut self, asked: &Asked) -> Option<usize> {
        self.faults.retain(|fault| fault.left > 0);
        let at = self.faults.iter_mut().position(|f| (f.when)(asked))?;
        self.faults[at].left -= 1;
        Some(at)
    }

    /// What is answered in the place of everything else.
    pub(super) fn instead(&self, met: Option<usize>) -> Option<Reply> {
        match &self.faults[met?].does {
            Does::Answer(reply) => Some(reply.clone()),
            Does::Spoil(_) => None,
        }
    }

    pub(super) fn spoiled(&mut self, met: Option<usize>, reply: Reply) -> Reply {
        match met.map(|at| &mut self.faults[at].does) {
            Some(Does::Spoil(how)) => how(reply),
            _ => reply,
        }
    }
}

/// Whether a request is for a path with this end: `/issues/comments`.
pub fn on(end: &'static str) -> impl FnMut(&Asked) -> bool + Send + 'static {
    move |asked| asked.path().ends_with(end)
}

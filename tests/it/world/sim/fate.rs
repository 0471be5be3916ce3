//! What befalls the poller, at which of the points at which it can die.

use super::script::Blow;

/// The poller died.
#[derive(Debug)]
pub struct Died;

#[derive(Clone, Default)]
pub struct Fate {
    blows: Vec<(u64, Blow)>,
    struck: usize,
    /// How many points were passed.
    pub points: u64,
    /// A stop was asked for.
    pub stop: bool,
    /// By how many milliseconds the clock is ahead of the time.
    pub ahead: i64,
    /// It was the machine that died, and what decides over what was not durable.
    pub power_cut: Option<u64>,
}

impl Fate {
    pub fn new(mut blows: Vec<(u64, Blow)>) -> Fate {
        blows.sort_by_key(|(at, _)| *at);
        Fate {
            blows,
            ..Fate::default()
        }
    }

    /// Another blow, so many points from now.
    pub fn soon(&mut self, points: u64, blow: Blow) {
        self.blows.push((self.points + points, blow));
        self.blows[self.struck..].sort_by_key(|(at, _)| *at);
    }

    /// The same past with another future.
    pub fn instead(&mut self, blows: &[(u64, Blow)]) {
        let points = self.points;
        let to_come = blows.iter().filter(|(at, _)| *at > points);
        self.blows = to_come.copied().collect();
        self.struck = 0;
    }

    /// Another point.
    pub fn point(&mut self) -> Result<(), Died> {
        self.points += 1;
        while let Some(&(at, blow)) = self.blows.get(self.struck)
            && at <= self.points
        {
            self.struck += 1;
            match blow {
                Blow::Stop => self.stop = true,
                Blow::Clock(seconds) => self.ahead += seconds * 1000,
                Blow::Kill => return Err(Died),
                Blow::PowerCut(salt) => {
                    self.power_cut = Some(salt);
                    return Err(Died);
                }
            }
        }
        Ok(())
    }
}

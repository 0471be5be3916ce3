//! The workers: a bounded pool of named threads for each sink.
//!
//! A delivery goes out over a bounded channel, its outcome comes back over
//! another, to the main thread, which alone writes. The engine never has more
//! deliveries out than a sink has workers, and never two of one item to one
//! sink. A worker looks at the stop flag before it begins: what it has not
//! begun by then comes back as [`Outcome::Released`].

use super::channels::{Receiver, Sender, bounded};
use super::threads;
use crate::engine::delivery::{Delivery, Outcome, Slug};
use crate::mutant;
use crate::os::wake::Wake;
use crate::sinks::Sink;
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A delivery that came back.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    /// The record.
    pub slug: Slug,
    /// The sink.
    pub sink: String,
    /// How it ended.
    pub outcome: Outcome,
}

/// The workers of all sinks.
pub struct Dispatch {
    pools: BTreeMap<String, Pool>,
    back: Receiver<Settled>,
    faults: Arc<AtomicUsize>,
    /// Runs of an earlier poller that nobody watches yet.
    unwatched: Vec<Delivery>,
}

struct Pool {
    sink: Arc<dyn Sink>,
    queue: Sender<Delivery>,
    worker: Worker,
}

#[derive(Clone)]
struct Worker {
    name: String,
    sink: Arc<dyn Sink>,
    queue: Receiver<Delivery>,
    back: Sender<Settled>,
    stop: Arc<Wake>,
    faults: Arc<AtomicUsize>,
}

impl Dispatch {
    /// Starts `workers` threads for each sink. They end when the `Dispatch` is
    /// dropped, each after the delivery it is at.
    ///
    /// # Errors
    /// When the system has no room for the threads.
    pub fn start(
        sinks: BTreeMap<String, Arc<dyn Sink>>,
        workers: usize,
        stop: &Arc<Wake>,
    ) -> io::Result<Dispatch> {
        // As many as can be out at once, adopted ones included: no worker waits to report.
        let (back_in, back) = bounded(2 * workers * sinks.len().max(1));
        let faults = Arc::new(AtomicUsize::new(0));
        let mut pools = BTreeMap::new();
        for (name, sink) in sinks {
            let (queue, orders) = bounded(workers);
            let worker = Worker {
                name: name.clone(),
                sink: sink.clone(),
                queue: orders,
                back: back_in.clone(),
                stop: stop.clone(),
                faults: faults.clone(),
            };
            for n in 1..=workers {
                spawn(worker.clone(), n)?;
            }
            pools.insert(
                name,
                Pool {
                    sink,
                    queue,
                    worker,
                },
            );
        }
        Ok(Dispatch {
            pools,
            back,
            faults,
            unwatched: Vec::new(),
        })
    }

    /// Hands a delivery to a free worker of its sink.
    pub fn deliver(&self, delivery: Delivery) {
        let sent = match self.pools.get(&delivery.sink) {
            Some(pool) => pool.queue.send(delivery).map_err(|e| e.0),
            None => Err(delivery),
        };
        // Only without workers, which outlive this: it was not begun, and comes back so.
        if let Err(delivery) = sent {
            self.report(delivery, Outcome::Released);
        }
    }

    /// Waits for a run of an earlier poller on a thread of its own, so that no
    /// worker is held up by it. There are at most as many as it had workers.
    /// Without room for the thread, [`Dispatch::adopt_again`] does it.
    pub fn adopt(&mut self, delivery: Delivery) {
        if self.watch(&delivery).is_err() && !mutant::is("adoption-forgotten") {
            self.unwatched.push(delivery);
        }
    }

    /// Tries again what there was no room for, and gives it back once a stop is
    /// asked for. To be called now and then.
    pub fn adopt_again(&mut self) {
        for delivery in std::mem::take(&mut self.unwatched) {
            let stopping = self.pools.values().any(|p| p.worker.stop.raised());
            match stopping {
                true => self.report(delivery, Outcome::LeftRunning),
                false => self.adopt(delivery),
            }
        }
    }

    fn watch(&self, delivery: &Delivery) -> io::Result<()> {
        let Some(pool) = self.pools.get(&delivery.sink) else {
            self.report(delivery.clone(), Outcome::LeftRunning);
            return Ok(());
        };
        let (worker, adopted) = (pool.worker.clone(), delivery.clone());
        let watch = move || {
            let outcome = worker.guarded(&adopted, |sink, stop| sink.wait(&adopted, stop));
            worker.report(&adopted, outcome);
        };
        threads::spawn(&format!("adopted-{}", pool.worker.name), watch).map(drop)
    }

    /// The sink named `name`.
    #[must_use]
    pub fn sink(&self, name: &str) -> Option<&Arc<dyn Sink>> {
        self.pools.get(name).map(|p| &p.sink)
    }

    /// What came back.
    #[must_use]
    pub fn back(&self) -> &Receiver<Settled> {
        &self.back
    }

    /// How many workers panicked.
    #[must_use]
    pub fn faults(&self) -> usize {
        self.faults.load(Ordering::Relaxed)
    }

    fn report(&self, delivery: Delivery, outcome: Outcome) {
        if let Some(pool) = self.pools.values().next() {
            pool.worker.report(&delivery, outcome);
        }
    }
}

impl Worker {
    /// Works until there is nothing more to come. Says whether it must be replaced.
    fn work(&self) -> bool {
        while let Ok(delivery) = self.queue.recv() {
            if self.stop.raised() && !mutant::is("stop-begins-new") {
                self.report(&delivery, Outcome::Released);
                continue;
            }
            let faults = self.faults.load(Ordering::Relaxed);
            let outcome = self.guarded(&delivery, |sink, stop| sink.deliver(&delivery, stop));
            self.report(&delivery, outcome);
            if self.faults.load(Ordering::Relaxed) != faults {
                return true;
            }
        }
        false
    }

    /// A panic in a sink is a failed try with its reason, not the end of anything (C129).
    fn guarded(&self, delivery: &Delivery, f: impl FnOnce(&dyn Sink, &Wake) -> Outcome) -> Outcome {
        let tried = catch_unwind(AssertUnwindSafe(|| f(&*self.sink, &self.stop)));
        tried.unwrap_or_else(|panic| {
            self.faults.fetch_add(1, Ordering::Relaxed);
            Outcome::Failed {
                reason: format!(
                    "the worker panicked over {}: {}",
                    delivery.id,
                    message(&*panic)
                ),
            }
        })
    }

    fn report(&self, delivery: &Delivery, outcome: Outcome) {
        let settled = |outcome| Settled {
            slug: delivery.slug.clone(),
            sink: delivery.sink.clone(),
            outcome,
        };
        if mutant::is("outcome-dropped-after-stop") && self.stop.raised() {
            return;
        }
        if mutant::is("abandoned-told-twice") && outcome == Outcome::Released {
            let _ = self.back.send(settled(Outcome::Released));
        }
        // Nobody listens only when the poller has ended, and then the record says "in flight".
        let _ = self.back.send(settled(outcome));
    }
}

fn spawn(worker: Worker, n: usize) -> io::Result<()> {
    let name = format!("deliver-{}-{n}", worker.name);
    threads::spawn(&name, move || {
        if worker.work() {
            // Whatever the panic left of this thread's state goes with it. If there is no
            // room for another thread, this one goes on rather than leave the sink without.
            if spawn(worker.clone(), n).is_err() {
                while worker.work() {}
            }
        }
    })
    .map(drop)
}

fn message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::delivery::{EventKind, Receipt};
    use crate::engine::item::ItemRef;
    use std::time::Duration;

    /// Panics over every item numbered 3, on a named thread.
    struct Touchy;

    impl Sink for Touchy {
        fn deliver(&self, delivery: &Delivery, _: &Wake) -> Outcome {
            assert_ne!(delivery.item.number, 3, "no threes, please");
            Outcome::Delivered
        }
        fn settle(&self, _: &Delivery) -> Receipt {
            Receipt::Missing
        }
        fn wait(&self, _: &Delivery, _: &Wake) -> Outcome {
            panic!("cannot wait")
        }
        fn forget(&self, _: &Delivery) {}
    }

    fn delivery(number: u64) -> Delivery {
        let item = ItemRef {
            provider: "dir".into(),
            host: None,
            path: "in".into(),
            number,
        };
        Delivery {
            id: format!("{item}/opened"),
            event: EventKind::Opened,
            slug: Slug::new("in", &item),
            item,
            sink: "touchy".into(),
            seq: 1,
            attempt: 1,
            payload: "{}".into(),
            webhook: None,
        }
    }

    fn touchy(workers: usize) -> (Dispatch, Arc<Wake>) {
        let stop = Arc::new(Wake::new().expect("a descriptor"));
        let sinks: BTreeMap<String, Arc<dyn Sink>> =
            [("touchy".to_string(), Arc::new(Touchy) as Arc<dyn Sink>)].into();
        (
            Dispatch::start(sinks, workers, &stop).expect("threads"),
            stop,
        )
    }

    fn next(dispatch: &Dispatch) -> Settled {
        dispatch
            .back()
            .recv_timeout(Duration::from_secs(20))
            .expect("an outcome")
    }

    /// Given one worker and ten deliveries of which the third panics, when they
    /// are delivered, then the third fails with the reason and the other nine arrive (C129).
    #[test]
    fn c129_a_panic_is_a_failed_try_and_the_worker_is_replaced() {
        let (mut dispatch, _stop) = touchy(1);
        for number in 1..=10 {
            dispatch.deliver(delivery(number));
            let settled = next(&dispatch);
            if number == 3 {
                let Outcome::Failed { reason } = settled.outcome else {
                    panic!("{settled:?}")
                };
                assert!(
                    reason.contains("dir:in#3/opened") && reason.contains("no threes, please"),
                    "{reason}"
                );
            } else {
                assert_eq!(settled.outcome, Outcome::Delivered);
            }
        }
        assert_eq!(dispatch.faults(), 1);
        dispatch.adopt(delivery(4));
        assert!(matches!(next(&dispatch).outcome, Outcome::Failed { .. }));
    }

    /// Given a run of an earlier poller and no room for a thread to watch it, when there is
    /// room again, then it is watched after all; and a stop meanwhile gives it back (R5.4, R6.3).
    #[test]
    fn r6_3_a_run_that_could_not_be_watched_is_watched_later() {
        let (mut dispatch, stop) = touchy(1);
        threads::scarcity::refuse(2);
        dispatch.adopt(delivery(4));
        dispatch.adopt_again();
        assert!(dispatch.back().is_empty(), "nothing is known of it");
        dispatch.adopt_again();
        // It was waited for: this sink panics over that.
        assert!(matches!(next(&dispatch).outcome, Outcome::Failed { .. }));
        threads::scarcity::refuse(1);
        dispatch.adopt(delivery(5));
        stop.raise();
        dispatch.adopt_again();
        assert_eq!(next(&dispatch).outcome, Outcome::LeftRunning);
        dispatch.adopt_again();
        assert!(dispatch.back().is_empty(), "and it is given back once");
    }

    /// Given a stop, when deliveries are picked up, then each is given back untried, and once (R5.1).
    #[test]
    fn r5_1_what_was_not_begun_before_the_stop_comes_back() {
        let (dispatch, stop) = touchy(1);
        stop.raise();
        for number in 1..=2 {
            dispatch.deliver(delivery(number));
        }
        for number in 1..=2 {
            let settled = next(&dispatch);
            assert_eq!(settled.outcome, Outcome::Released);
            assert_eq!(settled.slug, delivery(number).slug);
        }
    }
}

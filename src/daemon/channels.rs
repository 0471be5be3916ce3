//! The channels between the main thread and the others, and waiting at several of them.
//!
//! They are crossbeam's. Only a test build with the feature `shuttle` has others in
//! their place, of which `schedules` decides who runs when.

#[cfg(not(all(test, feature = "shuttle")))]
pub use crossbeam_channel::{Receiver, RecvError, Sender, TryRecvError, bounded};
#[cfg(all(test, feature = "shuttle"))]
pub use scheduled::{Receiver, RecvError, Sender, TryRecvError, bounded, first};

/// What came first.
pub enum Came<A, B> {
    /// A delivery.
    Back(A),
    /// A word of the listing, or that there are no more.
    Said(Result<B, RecvError>),
    /// Nothing of these: somebody woke us, or it was long enough.
    Nothing,
}

/// Waits for what comes first: a delivery that is `back`, something that is `said`, a message on or
/// the end of one of those that wake; or until it was as long as `longest`.
#[cfg(not(all(test, feature = "shuttle")))]
pub fn first<A, B>(
    back: &Receiver<A>,
    said: Option<&Receiver<B>>,
    wake: [Option<&Receiver<()>>; 3],
    longest: std::time::Duration,
) -> Came<A, B> {
    use crossbeam_channel::{after, never, select};
    let (silent, deaf) = (never(), never());
    let said = said.unwrap_or(&silent);
    let [stop, now, woken] = wake.map(|channel| channel.unwrap_or(&deaf));
    let timeout = after(longest);
    select! {
        recv(back) -> back => back.map_or(Came::Nothing, Came::Back),
        recv(said) -> said => Came::Said(said),
        recv(stop) -> _ => Came::Nothing,
        recv(now) -> _ => Came::Nothing,
        recv(woken) -> _ => Came::Nothing,
        recv(timeout) -> _ => Came::Nothing,
    }
}

/// Channels that do what crossbeam's do, made of what `shuttle` schedules.
#[cfg(all(test, feature = "shuttle"))]
#[expect(missing_docs, reason = "crossbeam's documentation holds")]
mod scheduled {
    use super::Came;
    pub use crossbeam_channel::{RecvError, SendError, TryRecvError, TrySendError};
    use shuttle::sync::{Condvar, Mutex};
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::time::Duration;

    struct Channel<T> {
        state: Mutex<State<T>>,
        /// Something in it changed.
        changed: Condvar,
    }

    struct State<T> {
        queue: VecDeque<T>,
        room: usize,
        senders: usize,
        receivers: usize,
    }

    pub struct Sender<T>(Arc<Channel<T>>);
    pub struct Receiver<T>(Arc<Channel<T>>);

    pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
        let channel = Arc::new(Channel {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                room,
                senders: 1,
                receivers: 1,
            }),
            changed: Condvar::new(),
        });
        (Sender(channel.clone()), Receiver(channel))
    }

    impl<T> Channel<T> {
        fn change<R>(&self, f: impl FnOnce(&mut State<T>) -> R) -> R {
            let done = f(&mut self.state.lock().expect("nobody panics with it"));
            self.changed.notify_all();
            done
        }
    }

    impl<T> Sender<T> {
        pub fn send(&self, message: T) -> Result<(), SendError<T>> {
            let mut state = self.0.state.lock().expect("nobody panics with it");
            while state.receivers > 0 && state.queue.len() >= state.room {
                state = self.0.changed.wait(state).expect("nobody panics with it");
            }
            if state.receivers == 0 {
                return Err(SendError(message));
            }
            state.queue.push_back(message);
            drop(state);
            self.0.changed.notify_all();
            Ok(())
        }

        pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
            self.0.change(|state| {
                if state.receivers == 0 {
                    return Err(TrySendError::Disconnected(message));
                }
                if state.queue.len() >= state.room {
                    return Err(TrySendError::Full(message));
                }
                state.queue.push_back(message);
                Ok(())
            })
        }
    }

    impl<T> Receiver<T> {
        pub fn recv(&self) -> Result<T, RecvError> {
            let mut state = self.0.state.lock().expect("nobody panics with it");
            loop {
                if let Some(message) = state.queue.pop_front() {
                    drop(state);
                    self.0.changed.notify_all();
                    return Ok(message);
                }
                if state.senders == 0 {
                    return Err(RecvError);
                }
                state = self.0.changed.wait(state).expect("nobody panics with it");
            }
        }

        /// Time does not pass in a schedule: it waits as long as it takes.
        pub fn recv_timeout(&self, _: Duration) -> Result<T, RecvError> {
            self.recv()
        }

        pub fn try_recv(&self) -> Result<T, TryRecvError> {
            self.0.change(|state| match state.queue.pop_front() {
                Some(message) => Ok(message),
                None if state.senders == 0 => Err(TryRecvError::Disconnected),
                None => Err(TryRecvError::Empty),
            })
        }

        pub fn try_iter(&self) -> impl Iterator<Item = T> {
            std::iter::from_fn(|| self.try_recv().ok())
        }

        pub fn is_empty(&self) -> bool {
            self.0.change(|state| state.queue.is_empty())
        }
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Self {
            self.0.change(|state| state.senders += 1);
            Sender(self.0.clone())
        }
    }

    impl<T> Clone for Receiver<T> {
        fn clone(&self) -> Self {
            self.0.change(|state| state.receivers += 1);
            Receiver(self.0.clone())
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            self.0.change(|state| state.senders -= 1);
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            // As crossbeam does, the last one takes what nobody will hear along.
            let unheard = self.0.change(|state| {
                state.receivers -= 1;
                match state.receivers {
                    0 => std::mem::take(&mut state.queue),
                    _ => VecDeque::new(),
                }
            });
            drop(unheard);
        }
    }

    /// Looks once; whoever calls this comes again.
    pub fn first<A, B>(
        back: &Receiver<A>,
        said: Option<&Receiver<B>>,
        _: [Option<&Receiver<()>>; 3],
        _: Duration,
    ) -> Came<A, B> {
        if let Ok(back) = back.try_recv() {
            return Came::Back(back);
        }
        match said.map(Receiver::try_recv) {
            Some(Ok(said)) => return Came::Said(Ok(said)),
            Some(Err(TryRecvError::Disconnected)) => return Came::Said(Err(RecvError)),
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        shuttle::thread::yield_now();
        Came::Nothing
    }
}

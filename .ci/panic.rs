//! Linked like the static binary: whether a panic on a thread is caught there, and unwinds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

static DROPPED: AtomicBool = AtomicBool::new(false);

struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        DROPPED.store(true, Ordering::SeqCst);
    }
}

fn main() {
    let worker = std::thread::spawn(|| {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _guard = Guard;
            panic!("on purpose");
        }));
        caught.is_err() && DROPPED.load(Ordering::SeqCst)
    });
    assert!(worker.join().expect("the panic was caught"), "no destructor ran");
    println!("caught");
}

//! Timelines: a counter that says how far a queue has come, with a way to wait for it.
//!
//! The counter is one word that only its queue writes, so a GPU can own it in coherent host memory. Waiting spins for a
//! short time, then yields, then parks; a waiter always has a deadline.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The value has been reached.
    Reached,
    /// The timeline failed; see [`Timeline::failure`].
    Failed,
    /// The deadline passed first.
    TimedOut,
}

/// The completion counter of a queue (or of the host, for work that the host does).
#[derive(Debug, Default)]
pub struct Timeline {
    reached: AtomicU64,
    failed: OnceLock<String>,
    parked: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Timeline {
    /// A timeline at 0.
    pub fn new() -> Timeline {
        Timeline::default()
    }

    /// The last value reached.
    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Why the timeline failed, if it did. Values not reached by then never will be.
    pub fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// Moves the counter up and wakes waiters. Only the owner calls this; what it wrote before is visible to whoever
    /// sees the value.
    pub fn signal(&self, value: u64) {
        self.reached.store(value, Ordering::SeqCst);
        self.wake_parked();
    }

    /// Marks the timeline failed and wakes waiters; the first reason stays.
    pub fn fail(&self, reason: &str) {
        let _ = self.failed.set(reason.to_owned());
        self.wake_parked();
    }

    fn wake_parked(&self) {
        if self.parked.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
            self.wake.notify_all();
        }
    }

    fn state(&self, value: u64) -> Option<Wait> {
        if self.reached.load(Ordering::SeqCst) >= value {
            Some(Wait::Reached)
        } else if self.failed.get().is_some() {
            Some(Wait::Failed)
        } else {
            None
        }
    }

    /// Waits until the counter reaches `value`, the timeline fails or `deadline` has passed: spins for `spin`, then
    /// parks.
    pub fn wait(&self, value: u64, spin: Duration, deadline: Duration) -> Wait {
        if let Some(end) = self.state(value) {
            return end;
        }
        let start = Instant::now();
        let mut rounds = 0u32;
        while start.elapsed() < spin {
            for _ in 0..32 {
                if let Some(end) = self.state(value) {
                    return end;
                }
                std::hint::spin_loop();
            }
            rounds += 1;
            if rounds.is_multiple_of(64) {
                std::thread::yield_now();
            }
        }
        self.parked.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let end = loop {
            if let Some(end) = self.state(value) {
                break end;
            }
            let Some(left) = deadline.checked_sub(start.elapsed()) else { break Wait::TimedOut };
            guard = self.wake.wait_timeout(guard, left).unwrap_or_else(std::sync::PoisonError::into_inner).0;
        };
        drop(guard);
        self.parked.fetch_sub(1, Ordering::SeqCst);
        end
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_parked_waiter_wakes_on_signal_and_on_failure() {
        for fail in [false, true] {
            let t = Arc::new(Timeline::new());
            let other = t.clone();
            let thread = std::thread::spawn(move || other.wait(3, Duration::ZERO, Duration::from_secs(20)));
            t.signal(1);
            std::thread::yield_now();
            if fail {
                t.fail("broken");
            } else {
                t.signal(3);
            }
            assert_eq!(thread.join().expect("no panic"), if fail { Wait::Failed } else { Wait::Reached });
        }
    }

    #[test]
    fn a_wait_that_nobody_ends_ends_at_its_deadline() {
        assert_eq!(Timeline::new().wait(1, Duration::ZERO, Duration::from_millis(1)), Wait::TimedOut);
    }
}

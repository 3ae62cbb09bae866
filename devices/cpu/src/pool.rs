//! Fork-join over the parts of one step, for the queue thread and its helpers.
//!
//! A *session* is the time in which one job (a launched segment) runs. The queue thread opens it, runs steps one after
//! the other, each cut into parts, and closes it. Helpers are parked between sessions and spin inside one. A step of one
//! part, or of any number on a device with one thread, never leaves the queue thread.
//!
//! Who computes a part is open: parts are claimed from one counter. The word `claim` holds the step's number, its parts
//! and the next unclaimed part, so a late helper either claims a part of the step that is running now or none at all; a
//! helper that the operating system has not scheduled is not waited for. A claimed part keeps its step, and thereby its
//! session, from ending; that is what makes it safe to read both after the claim.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The most parts of one step: what fits the claim word.
pub(crate) const MAX_PARTS: usize = (1 << FIELD) - 1 - 4096;

const FIELD: u32 = 20;
const MASK: u64 = (1 << FIELD) - 1;

/// Something that runs in steps.
pub(crate) trait Job: Clone + Send + 'static {
    /// Computes one part of a step. Parts of one step run at the same time on different workers.
    ///
    /// # Errors
    /// Why the part cannot be computed.
    fn part(&self, step: u64, part: usize, worker: usize) -> Result<(), String>;
}

/// The helper threads of a queue.
pub(crate) struct Pool<J: Job> {
    shared: Arc<Shared<J>>,
    helpers: Vec<JoinHandle<()>>,
    steps: u64,
}

struct Shared<J> {
    /// Step number (24 bits), parts (20), next unclaimed part (20).
    claim: AtomicU64,
    /// The step as the job knows it.
    step: AtomicU64,
    /// Parts of the step that have ended.
    ended: AtomicUsize,
    /// Even: no session. Odd: a session that helpers take part in.
    session: AtomicU64,
    job: Mutex<Option<J>>,
    opened: Condvar,
    error: Mutex<Option<String>>,
    failed: AtomicBool,
    quit: AtomicBool,
}

impl<J: Job> Pool<J> {
    /// A pool of `threads - 1` helpers. `enter(worker)` runs first on each helper's thread; the queue thread is worker 0.
    ///
    /// # Errors
    /// When the operating system starts no thread.
    pub(crate) fn new(threads: usize, enter: impl Fn(usize) + Send + Clone + 'static) -> std::io::Result<Pool<J>> {
        let shared = Arc::new(Shared {
            claim: AtomicU64::new(0),
            step: AtomicU64::new(0),
            ended: AtomicUsize::new(0),
            session: AtomicU64::new(0),
            job: Mutex::new(None),
            opened: Condvar::new(),
            error: Mutex::new(None),
            failed: AtomicBool::new(false),
            quit: AtomicBool::new(false),
        });
        let mut pool = Pool { shared, helpers: Vec::with_capacity(threads.saturating_sub(1)), steps: 0 };
        for worker in 1..threads {
            let (shared, enter) = (pool.shared.clone(), enter.clone());
            let helper = std::thread::Builder::new().name(format!("luce-cpu-{worker}")).spawn(move || {
                enter(worker);
                shared.help(worker);
            })?;
            pool.helpers.push(helper);
        }
        Ok(pool)
    }

    /// Threads that compute, with the queue thread.
    pub(crate) fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Runs one step in `parts` parts and returns when all have ended. The first step of more than one part of a job
    /// opens the session, so jobs of small steps wake nobody.
    ///
    /// # Errors
    /// The first error of a part, or the text of its panic.
    pub(crate) fn run(&mut self, job: &J, step: u64, parts: usize) -> Result<(), String> {
        debug_assert!(parts <= MAX_PARTS);
        if parts <= 1 || self.helpers.is_empty() {
            return (0..parts).try_for_each(|part| guarded(job, step, part, 0));
        }
        let shared = &*self.shared;
        if shared.session.load(Ordering::Relaxed).is_multiple_of(2) {
            *lock(&shared.job) = Some(job.clone());
            shared.session.fetch_add(1, Ordering::Release);
            // Taking the lock once more orders this after any helper that has just looked and is about to park.
            drop(lock(&shared.job));
            shared.opened.notify_all();
        }
        shared.step.store(step, Ordering::Relaxed);
        shared.ended.store(0, Ordering::Relaxed);
        self.steps += 1;
        shared.claim.store((self.steps << (2 * FIELD)) | ((parts as u64) << FIELD), Ordering::Release);
        while let Some(part) = shared.claim() {
            shared.end(guarded(job, step, part, 0));
        }
        let mut rounds = 0u32;
        while shared.ended.load(Ordering::Acquire) < parts {
            relax(&mut rounds);
        }
        if shared.failed.swap(false, Ordering::Relaxed) {
            return Err(lock(&shared.error).take().unwrap_or_else(|| "a part failed".into()));
        }
        Ok(())
    }

    /// Ends the job: helpers park, and nothing holds a clone of it when they have.
    pub(crate) fn close(&mut self) {
        if !self.shared.session.load(Ordering::Relaxed).is_multiple_of(2) {
            self.shared.session.fetch_add(1, Ordering::Release);
            *lock(&self.shared.job) = None;
        }
    }
}

impl<J: Job> Drop for Pool<J> {
    fn drop(&mut self) {
        self.close();
        self.shared.quit.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.job));
        self.shared.opened.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper catches the panics of parts; there is nothing to hear from it.
            let _ = helper.join();
        }
    }
}

impl<J: Job> Shared<J> {
    /// The next part of the running step, if one is left.
    fn claim(&self) -> Option<usize> {
        let open = |word: u64| (word & MASK) < ((word >> FIELD) & MASK);
        if !open(self.claim.load(Ordering::Relaxed)) {
            return None;
        }
        // Each thread overshoots at most once per step, so `next` cannot run into `parts`: see MAX_PARTS.
        let word = self.claim.fetch_add(1, Ordering::AcqRel);
        open(word).then_some((word & MASK) as usize)
    }

    fn end(&self, result: Result<(), String>) {
        if let Err(error) = result {
            lock(&self.error).get_or_insert(error);
            self.failed.store(true, Ordering::Relaxed);
        }
        self.ended.fetch_add(1, Ordering::Release);
    }

    fn help(&self, worker: usize) {
        while let Some((mut session, mut job)) = self.park() {
            let mut rounds = 0u32;
            loop {
                if let Some(part) = self.claim() {
                    // The claim keeps the session of this part open: a different number means that ours is over.
                    let now = self.session.load(Ordering::Acquire);
                    if now != session {
                        let current = lock(&self.job).clone();
                        session = now;
                        job = current.expect("a session that has an unfinished part holds its job");
                    }
                    self.end(guarded(&job, self.step.load(Ordering::Relaxed), part, worker));
                    rounds = 0;
                } else if self.session.load(Ordering::Acquire) != session {
                    break;
                } else {
                    relax(&mut rounds);
                }
            }
        }
    }

    /// Sleeps until a session is open; `None` when the pool ends.
    fn park(&self) -> Option<(u64, J)> {
        let mut guard = lock(&self.job);
        loop {
            if self.quit.load(Ordering::SeqCst) {
                return None;
            }
            let session = self.session.load(Ordering::Acquire);
            if let (false, Some(job)) = (session.is_multiple_of(2), &*guard) {
                return Some((session, job.clone()));
            }
            guard = self.opened.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// One part, with a panic turned into its text.
fn guarded<J: Job>(job: &J, step: u64, part: usize, worker: usize) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| job.part(step, part, worker))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a text")))
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pause while other threads compute. Yields now and then: with more threads than cores the one that is waited for
/// may need this core.
fn relax(rounds: &mut u32) {
    *rounds = rounds.wrapping_add(1);
    if rounds.is_multiple_of(256) {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// The items of part `part` of `parts`, as even as whole items allow.
pub(crate) fn share(items: usize, parts: usize, part: usize) -> std::ops::Range<usize> {
    items * part / parts..items * (part + 1) / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Count(Arc<Vec<AtomicUsize>>, usize);

    impl Job for Count {
        fn part(&self, step: u64, part: usize, _worker: usize) -> Result<(), String> {
            if step == 99 && part == 3 {
                panic!("part {part} broke");
            }
            self.0[part].fetch_add(self.1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn every_part_of_every_step_runs_once_in_every_session() {
        for threads in [1, 2, 3, 5] {
            let mut pool = Pool::new(threads, |_| ()).unwrap();
            let counts: Arc<Vec<AtomicUsize>> = Arc::new((0..40).map(|_| AtomicUsize::new(0)).collect());
            let mut expected = vec![0; 40];
            for session in 0..60 {
                let job = Count(counts.clone(), session + 1);
                for step in 0..20 {
                    let parts = 1 + (step * 7 + session) % 40;
                    pool.run(&job, step as u64, parts).unwrap();
                    expected[..parts].iter_mut().for_each(|e| *e += session + 1);
                    let seen: Vec<usize> = counts.iter().map(|c| c.load(Ordering::Relaxed)).collect();
                    assert_eq!(seen, expected, "{threads} threads, session {session}, step {step}");
                }
                pool.close();
            }
        }
    }

    #[test]
    fn a_panic_in_a_part_becomes_an_error_and_the_pool_goes_on() {
        let mut pool = Pool::new(3, |_| ()).unwrap();
        let counts: Arc<Vec<AtomicUsize>> = Arc::new((0..8).map(|_| AtomicUsize::new(0)).collect());
        let job = Count(counts, 1);
        assert_eq!(pool.run(&job, 99, 8), Err("panic: part 3 broke".into()));
        assert_eq!(pool.run(&job, 1, 8), Ok(()));
    }

    #[test]
    fn shares_cover_all_items_once() {
        for (items, parts) in [(0, 3), (10, 3), (7, 8), (100, 1)] {
            let all: Vec<usize> = (0..parts).flat_map(|p| share(items, parts, p)).collect();
            assert_eq!(all, (0..items).collect::<Vec<_>>());
        }
    }
}

//! The queue: a bounded ring of commands and the thread that executes them in order.
//!
//! Submitting takes a short lock, writes one fixed-size command and wakes the thread if it is parked; it never waits and
//! allocates nothing. The thread owns the pool and is its worker 0. After each launch or copy it moves the timeline up by
//! one. The first failure (an operation's error or panic, a wait that failed or lasted too long) fails the timeline with
//! the reason; later commands are dropped unexecuted, later submissions refused. Dropping the queue ends both: the
//! command that runs now is finished, what waits behind it is not.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use luce_core::HostBuffer;
use luce_device::{DeviceError, Launch, Timeline, Wait};

use crate::config::CpuConfig;
use crate::dispatch::{Run, Segment};
use crate::memory::{self, Scratch};
use crate::pool::Pool;

/// What a queue executes.
pub(crate) enum Command {
    /// A segment over the rows of a band.
    Launch { segment: Arc<Segment>, launch: Launch, scratch: Scratch },
    /// Bytes from one place to another.
    Copy { src: HostBuffer, src_at: usize, dst: HostBuffer, dst_at: usize, bytes: usize },
    /// Wait for another timeline.
    Wait { timeline: Arc<Timeline>, value: u64 },
}

impl Command {
    /// True when its end counts the timeline up.
    fn counts(&self) -> bool {
        !matches!(self, Command::Wait { .. })
    }
}

/// The submitting side.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    submitted: u64,
}

struct Shared {
    ring: Mutex<Ring>,
    wake: Condvar,
    /// Commands ever pushed: what the thread spins on.
    pushed: AtomicU64,
    stop: AtomicBool,
    timeline: Arc<Timeline>,
    spin: Duration,
    wait_limit: Duration,
}

struct Ring {
    commands: VecDeque<Command>,
    capacity: usize,
    parked: bool,
}

impl Queue {
    /// Starts the thread and its helpers; `cores` are what thread i is bound to, empty for nothing.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] when the operating system starts no thread or refuses a core.
    pub(crate) fn start(threads: usize, config: &CpuConfig, cores: Vec<usize>) -> Result<Queue, DeviceError> {
        let shared = Arc::new(Shared {
            ring: Mutex::new(Ring {
                commands: VecDeque::with_capacity(config.queue_depth),
                capacity: config.queue_depth,
                parked: false,
            }),
            wake: Condvar::new(),
            pushed: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            timeline: Arc::new(Timeline::new()),
            spin: Duration::from_micros(config.spin_us),
            wait_limit: Duration::from_millis(config.wait_limit_ms),
        });
        let (told, hear) = mpsc::sync_channel(threads + 1);
        let enter = {
            let told = told.clone();
            move |worker: usize| {
                let result = cores.get(worker).map_or(Ok(()), |&core| bind(core));
                // The receiver hears exactly one message of each thread before it lets go.
                let _ = told.send(result);
            }
        };
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new().name("luce-cpu-0".into()).spawn(move || {
                enter(0);
                match Pool::new(threads, enter) {
                    Ok(pool) => shared.serve(pool),
                    Err(error) => {
                        let _ = told.send(Err(format!("cannot start {threads} threads: {error}")));
                    }
                }
            })
        }
        .map_err(|error| DeviceError::Failed(format!("cannot start the queue thread: {error}")))?;
        let queue = Queue { shared, thread: Some(thread), submitted: 0 };
        for _ in 0..threads {
            match hear.recv() {
                Ok(result) => result.map_err(DeviceError::Failed)?,
                Err(_) => return Err(DeviceError::Failed("the queue thread ended while it started".into())),
            }
        }
        Ok(queue)
    }

    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.shared.timeline
    }

    /// Queues a command; the timeline value at its end.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] after a failure, [`DeviceError::Invalid`] when the ring is full.
    pub(crate) fn push(&mut self, command: Command) -> Result<u64, DeviceError> {
        if let Some(reason) = self.shared.timeline.failure() {
            return Err(DeviceError::Failed(reason.into()));
        }
        let counts = command.counts();
        let mut ring = lock(&self.shared.ring);
        if ring.commands.len() >= ring.capacity {
            return Err(DeviceError::Invalid(format!(
                "the queue holds {} submissions that have not ended; wait for the timeline or raise queue_depth",
                ring.capacity
            )));
        }
        ring.commands.push_back(command);
        let parked = std::mem::take(&mut ring.parked);
        self.shared.pushed.fetch_add(1, Ordering::Release);
        drop(ring);
        if parked {
            self.shared.wake.notify_one();
        }
        self.submitted += u64::from(counts);
        Ok(self.submitted)
    }

    /// The value of the last submission.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.ring));
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // Panics of operations are caught inside; nothing else there can be told to anyone.
            let _ = thread.join();
        }
        if self.shared.timeline.reached() < self.submitted {
            self.shared.timeline.fail("the device was closed before its queue was empty");
        }
    }
}

impl Shared {
    fn serve(&self, mut pool: Pool<Run>) {
        let mut done = 0u64;
        while let Some(command) = self.next() {
            if self.timeline.failure().is_some() {
                continue;
            }
            let counts = command.counts();
            let result = catch_unwind(AssertUnwindSafe(|| self.execute(command, &mut pool)))
                .unwrap_or_else(|_| Err("panic while a command was executed".into()));
            pool.close();
            match result {
                Ok(()) if counts => {
                    done += 1;
                    self.timeline.signal(done);
                }
                Ok(()) => {}
                Err(reason) => self.timeline.fail(&reason),
            }
        }
    }

    fn execute(&self, command: Command, pool: &mut Pool<Run>) -> Result<(), String> {
        match command {
            Command::Launch { segment, launch, scratch } => segment.execute(launch, scratch, pool),
            Command::Copy { src, src_at, dst, dst_at, bytes } => {
                memory::copy(&src, src_at, &dst, dst_at, bytes);
                Ok(())
            }
            Command::Wait { timeline, value } => self.wait(&timeline, value),
        }
    }

    /// Waits in slices, so that a device that is dropped does not stay until the limit.
    fn wait(&self, timeline: &Timeline, value: u64) -> Result<(), String> {
        const SLICE: Duration = Duration::from_millis(50);
        let start = Instant::now();
        let mut spin = self.spin;
        loop {
            let left = self.wait_limit.saturating_sub(start.elapsed());
            match timeline.wait(value, spin, left.min(SLICE)) {
                Wait::Reached => return Ok(()),
                Wait::Failed => {
                    return Err(format!(
                        "waited for a queue that failed: {}",
                        timeline.failure().unwrap_or("no reason")
                    ));
                }
                Wait::TimedOut if self.stop.load(Ordering::SeqCst) => return Err("the device was closed".into()),
                Wait::TimedOut if left <= SLICE => {
                    return Err(format!(
                        "waited {} ms for value {value} of a timeline that stands at {}",
                        self.wait_limit.as_millis(),
                        timeline.reached()
                    ));
                }
                Wait::TimedOut => spin = Duration::ZERO,
            }
        }
    }

    /// The next command: spins for a while, then parks. `None` when the queue is dropped.
    fn next(&self) -> Option<Command> {
        let seen = self.pushed.load(Ordering::Acquire);
        if let Some(command) = lock(&self.ring).commands.pop_front() {
            return (!self.stop.load(Ordering::SeqCst)).then_some(command);
        }
        let start = Instant::now();
        while start.elapsed() < self.spin {
            for _ in 0..64 {
                if self.pushed.load(Ordering::Relaxed) != seen {
                    break;
                }
                std::hint::spin_loop();
            }
            if self.pushed.load(Ordering::Relaxed) != seen || self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        let mut ring = lock(&self.ring);
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            if let Some(command) = ring.commands.pop_front() {
                ring.parked = false;
                return Some(command);
            }
            ring.parked = true;
            ring = self.wake.wait(ring).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Binds the calling thread to one core.
#[cfg(target_os = "linux")]
fn bind(core: usize) -> Result<(), String> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).map_err(|e| format!("cannot bind a thread to core {core}: {e}"))
}

#[cfg(not(target_os = "linux"))]
fn bind(core: usize) -> Result<(), String> {
    Err(format!("cannot bind a thread to core {core}: only Linux can; set pin = false"))
}

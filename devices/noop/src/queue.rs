//! The queue: timeline values in order, with a thread for the time in which something is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use luce_device::{DeviceError, Timeline, Wait};

enum Command {
    Signal(u64),
    Wait(Arc<Timeline>, u64),
}

pub(crate) struct Queue {
    shared: Arc<Shared>,
    commands: Option<SyncSender<Command>>,
    thread: Option<JoinHandle<()>>,
    submitted: u64,
}

struct Shared {
    timeline: Arc<Timeline>,
    /// Commands that the thread has not ended. 0: the timeline belongs to the caller.
    behind: AtomicUsize,
    stop: AtomicBool,
    wait_limit: Duration,
}

impl Queue {
    pub(crate) fn start(wait_limit: Duration, depth: usize) -> Result<Queue, DeviceError> {
        let (commands, queue) = sync_channel(depth);
        let shared = Arc::new(Shared {
            timeline: Arc::new(Timeline::new()),
            behind: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            wait_limit,
        });
        let thread = {
            let shared = shared.clone();
            std::thread::Builder::new().name("luce-noop".into()).spawn(move || shared.serve(&queue))
        }
        .map_err(|e| DeviceError::Failed(format!("cannot start the queue thread: {e}")))?;
        Ok(Queue { shared, commands: Some(commands), thread: Some(thread), submitted: 0 })
    }

    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.shared.timeline
    }

    fn check(&self) -> Result<(), DeviceError> {
        self.shared.timeline.failure().map_or(Ok(()), |reason| Err(DeviceError::Failed(reason.into())))
    }

    /// Counts a submission.
    pub(crate) fn submit(&mut self) -> Result<u64, DeviceError> {
        self.check()?;
        let value = self.submitted + 1;
        if self.shared.behind.load(Ordering::Acquire) == 0 {
            self.shared.timeline.signal(value);
        } else {
            self.hand_over(Command::Signal(value))?;
        }
        self.submitted = value;
        Ok(value)
    }

    /// Holds up what is submitted next until a timeline is there.
    pub(crate) fn wait(&mut self, timeline: &Arc<Timeline>, value: u64) -> Result<(), DeviceError> {
        self.check()?;
        if Arc::ptr_eq(timeline, &self.shared.timeline) && value > self.submitted {
            let text = format!("the queue would wait for its own value {value}, but stands at {}", self.submitted);
            return Err(DeviceError::Invalid(text));
        }
        if self.shared.behind.load(Ordering::Acquire) > 0 || timeline.reached() < value {
            self.hand_over(Command::Wait(timeline.clone(), value))?;
        }
        Ok(())
    }

    /// Leaves a command to the thread, which receives until the sender is dropped.
    fn hand_over(&self, command: Command) -> Result<(), DeviceError> {
        self.shared.behind.fetch_add(1, Ordering::AcqRel);
        let sender = self.commands.as_ref().expect("only drop takes the sender");
        sender.try_send(command).map_err(|_| {
            let behind = self.shared.behind.fetch_sub(1, Ordering::AcqRel) - 1;
            let text = format!("the queue holds {behind} submissions that have not ended; wait for the timeline");
            DeviceError::Invalid(text)
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // The thread has no panic to tell of.
            let _ = thread.join();
        }
        if self.shared.timeline.reached() < self.submitted {
            self.shared.timeline.fail("the device was closed before its queue was empty");
        }
    }
}

impl Shared {
    fn serve(&self, queue: &Receiver<Command>) {
        for command in queue {
            if self.timeline.failure().is_none() && !self.stop.load(Ordering::SeqCst) {
                match command {
                    Command::Signal(value) => self.timeline.signal(value),
                    Command::Wait(timeline, value) => self.wait(&timeline, value),
                }
            }
            self.behind.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Waits in slices, so that a device that is dropped does not stay until the limit.
    fn wait(&self, timeline: &Timeline, value: u64) {
        const SLICE: Duration = Duration::from_millis(50);
        let start = Instant::now();
        while !self.stop.load(Ordering::SeqCst) {
            let left = self.wait_limit.saturating_sub(start.elapsed());
            match timeline.wait(value, Duration::from_micros(50), left.min(SLICE)) {
                Wait::Reached => return,
                Wait::Failed => {
                    let reason = timeline.failure().unwrap_or("no reason");
                    return self.timeline.fail(&format!("waited for a queue that failed: {reason}"));
                }
                Wait::TimedOut if left.is_zero() => {
                    let limit = self.wait_limit.as_millis();
                    return self.timeline.fail(&format!("waited {limit} ms for value {value} of a timeline"));
                }
                Wait::TimedOut => {}
            }
        }
    }
}

//! A thread of the data plane with a name, a way to end it, and counters that others may read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flume::{Receiver, Sender};

/// A thread that is ready to be started.
pub(crate) struct Starter {
    /// Its name.
    pub(crate) name: String,
    /// What it does until it is told to stop.
    pub(crate) run: Box<dyn FnOnce() + Send>,
    /// Tells it to stop; must not block.
    pub(crate) stop: Box<dyn Fn() + Send>,
    /// What others may read while it runs.
    pub(crate) counters: Counters,
}

/// Counters of a thread.
#[derive(Clone)]
pub(crate) struct Counters {
    /// Microseconds in which it had something to do.
    pub(crate) busy_us: Arc<AtomicU64>,
    /// Messages in its mailbox.
    pub(crate) mailbox: Arc<dyn Fn() -> usize + Send + Sync>,
}

impl Counters {
    /// Over a mailbox. They do not keep it open: who sends to a thread that has ended is told so.
    pub(crate) fn of<T: Send + 'static>(mailbox: &Sender<T>) -> Counters {
        let mailbox = mailbox.downgrade();
        let waiting = move || mailbox.upgrade().map_or(0, |mailbox| mailbox.len());
        Counters { busy_us: Arc::default(), mailbox: Arc::new(waiting) }
    }

    pub(crate) fn busy(&self) -> u64 {
        self.busy_us.load(Ordering::Relaxed)
    }
}

/// A running thread.
pub(crate) struct Worker {
    name: String,
    stop: Box<dyn Fn() + Send>,
    /// Closed when the thread has ended.
    done: Receiver<()>,
}

impl Worker {
    /// Starts a thread. `ended` is called on it when it ends, with the text of its panic if it had one.
    ///
    /// # Errors
    /// Why the operating system gives no thread.
    pub(crate) fn start(
        starter: Starter,
        ended: impl FnOnce(Option<String>) + Send + 'static,
    ) -> Result<Worker, String> {
        let Starter { name, run, stop, .. } = starter;
        let (alive, done) = flume::bounded::<()>(1);
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
            // What the thread owned is dropped by the unwinding; nothing half-changed is looked at afterwards.
            let panic = catch_unwind(AssertUnwindSafe(run)).err();
            ended(panic.map(|p| {
                let text = p.downcast_ref::<String>().map(String::as_str).or(p.downcast_ref::<&str>().copied());
                format!("it panicked: {}", text.unwrap_or("no text"))
            }));
            drop(alive);
        });
        match thread {
            Ok(_) => Ok(Worker { name, stop, done }),
            Err(e) => Err(format!("thread {name}: {e}")),
        }
    }

    /// Tells the thread to stop; the receiver is closed when it has.
    pub(crate) fn stop(&self) -> Receiver<()> {
        (self.stop)();
        self.done.clone()
    }

    /// Stops the thread and waits for its end.
    ///
    /// # Errors
    /// That it did not end in time; it is left behind.
    pub(crate) fn join(self, deadline: Duration) -> Result<(), String> {
        match self.stop().recv_timeout(deadline) {
            Err(flume::RecvTimeoutError::Timeout) => {
                Err(format!("thread {} did not end within {} s", self.name, deadline.as_secs()))
            }
            Ok(()) | Err(flume::RecvTimeoutError::Disconnected) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starter(run: impl FnOnce() + Send + 'static) -> Starter {
        let (mailbox, _) = flume::bounded::<()>(1);
        let (run, stop) = (Box::new(run), Box::new(|| ()));
        Starter { name: "test".into(), run, stop, counters: Counters::of(&mailbox) }
    }

    #[test]
    fn a_panic_is_reported_with_its_text_and_does_not_hang_the_join() {
        let (send, ended) = flume::bounded(1);
        let worker = Worker::start(starter(|| panic!("out of luck")), move |why| send.send(why).unwrap()).unwrap();
        let why = ended.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(why.unwrap().contains("out of luck"));
        worker.join(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn counters_see_what_waits_and_do_not_keep_a_dead_mailbox_open() {
        let (sender, receiver) = flume::bounded(2);
        let counters = Counters::of(&sender);
        sender.send(()).unwrap();
        assert_eq!((counters.mailbox)(), 1);
        drop(receiver);
        assert!(sender.send(()).is_err());
    }

    #[test]
    fn a_thread_that_does_not_end_is_an_error_not_a_hang() {
        let (hold, held) = flume::bounded::<()>(1);
        let run = move || {
            let _ = held.recv();
        };
        let worker = Worker::start(starter(run), |_| ()).unwrap();
        assert!(worker.join(Duration::from_millis(10)).unwrap_err().contains("test"));
        drop(hold);
    }
}

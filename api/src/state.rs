//! What all connections share: the engine and its language once they are known, the drain flag, and the count of
//! answers in progress.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use luce_core::{Generate, Lifecycle};
use tokio::sync::watch;

use crate::access::Keys;
use crate::codec::ChatCodec;
use crate::config::ApiConfig;
use crate::error::ApiError;
use crate::grammar::Grammars;
use crate::memory::Memory;
use crate::metrics::Metrics;

/// The engine, and the language of its model.
#[derive(Clone)]
pub struct Backend {
    /// Generates tokens.
    pub generate: Arc<dyn Generate>,
    /// Conversations into tokens and back.
    pub codec: Arc<dyn ChatCodec>,
}

/// What the server serves. It may start empty, so that the listener is up before the model's file is read: until
/// [`ApiState::complete`] every answer says that the model is loading.
#[derive(Default)]
pub struct ApiState {
    backend: OnceLock<Backend>,
}

impl ApiState {
    /// A state without a model yet.
    pub fn pending() -> ApiState {
        ApiState::default()
    }

    /// A state with everything known.
    pub fn new(backend: Backend) -> ApiState {
        ApiState { backend: OnceLock::from(backend) }
    }

    /// Puts in the model. From now on its own lifecycle is what clients see. Only the first call counts; returns
    /// whether this was it.
    pub fn complete(&self, backend: Backend) -> bool {
        self.backend.set(backend).is_ok()
    }

    pub(crate) fn backend(&self) -> Option<&Backend> {
        self.backend.get()
    }
}

/// What every request handler sees.
pub(crate) struct Shared {
    pub(crate) config: ApiConfig,
    pub(crate) keys: Keys,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) state: Arc<ApiState>,
    /// When the server started, in seconds of Unix time.
    pub(crate) started: u64,
    /// How the latest answers were written.
    pub(crate) memory: Arc<Memory>,
    grammars: OnceLock<Result<Arc<Grammars>, ApiError>>,
    draining: AtomicBool,
    running: AtomicUsize,
    /// Becomes true when answers that are still running must end.
    abort: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn new(config: ApiConfig, keys: Keys, state: Arc<ApiState>) -> Shared {
        Shared {
            config,
            keys,
            metrics: Arc::new(Metrics::new()),
            state,
            started: unix_seconds(),
            memory: Arc::default(),
            grammars: OnceLock::new(),
            draining: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            abort: watch::channel(false).0,
        }
    }

    /// What clients are told about the engine.
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        if self.draining.load(Ordering::SeqCst) {
            return Lifecycle::Draining;
        }
        self.state.backend().map_or(Lifecycle::Loading(0.0), |backend| backend.generate.lifecycle())
    }

    /// The model, whether or not it takes requests now.
    ///
    /// # Errors
    /// 503 before it is known.
    pub(crate) fn known(&self) -> Result<&Backend, ApiError> {
        self.state.backend().ok_or_else(|| ApiError::of_lifecycle(&Lifecycle::Loading(0.0)).expect("it is one"))
    }

    /// A place for a request, and the engine for it.
    ///
    /// # Errors
    /// 503 while the engine loads, drains or is broken.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<(Place, Backend), ApiError> {
        // Counted before the flag is read: a drain either sees this request or is seen by it.
        let place = Place::new(Arc::clone(self));
        if let Some(error) = ApiError::of_lifecycle(&self.lifecycle()) {
            return Err(error);
        }
        let backend = self.state.backend().ok_or_else(|| ApiError::internal("the engine is ready but unknown"))?;
        Ok((place, backend.clone()))
    }

    /// What grammars need to know of the vocabulary. The first call takes some tenths of a second.
    ///
    /// # Errors
    /// 500 when the vocabulary cannot be used for grammars.
    pub(crate) fn grammars(&self, backend: &Backend) -> Result<Arc<Grammars>, ApiError> {
        let make = || Grammars::new(&*backend.codec, backend.generate.served().vocabulary).map(Arc::new);
        self.grammars.get_or_init(make).clone()
    }

    /// Takes no new requests from now on, waits until the running ones are done, ends those that are not done at the
    /// deadline. Blocks. Returns how many had to be ended.
    pub(crate) fn drain(&self, deadline: Duration) -> usize {
        self.draining.store(true, Ordering::SeqCst);
        self.wait_idle(deadline);
        let late = self.running.load(Ordering::SeqCst);
        self.abort.send_replace(true);
        // They have their error event; this is the time to write it.
        self.wait_idle(Duration::from_secs(2));
        late
    }

    fn wait_idle(&self, limit: Duration) {
        let begun = Instant::now();
        while self.running.load(Ordering::SeqCst) > 0 && begun.elapsed() < limit {
            #[allow(clippy::disallowed_methods, reason = "to become a wait for the count itself")]
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Counts one request as running until it is dropped.
pub(crate) struct Place {
    shared: Arc<Shared>,
    abort: watch::Receiver<bool>,
}

impl Place {
    fn new(shared: Arc<Shared>) -> Place {
        shared.running.fetch_add(1, Ordering::SeqCst);
        let abort = shared.abort.subscribe();
        Place { shared, abort }
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// The longest time in the queue, in seconds.
    pub(crate) fn max_queue_wait(&self) -> u64 {
        self.shared.config.max_queue_wait
    }

    /// Returns when the answer must end now.
    pub(crate) async fn aborted(&mut self) {
        if self.abort.wait_for(|&abort| abort).await.is_err() {
            // The sender lives in `shared`, which this place keeps alive.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Now, in seconds of Unix time.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

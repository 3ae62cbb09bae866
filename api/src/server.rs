//! Starts and ends the HTTP server. It runs on its own threads with its own runtime, so callers need none.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use actix_web::dev::ServerHandle as ActixHandle;
use actix_web::web::Data;
use actix_web::{App, HttpServer, rt, web};
use tokio::sync::oneshot;

use crate::access::Keys;
use crate::config::ApiConfig;
use crate::error::ServeError;
use crate::routes::dispatch;
use crate::state::{ApiState, Shared};

/// Threads on which requests are parsed and encoded, per serving thread.
const ENCODE_THREADS: usize = 2;
/// Seconds that connections get to close by themselves at the end.
const CLOSE_S: u64 = 1;

/// A running server. Dropping it ends the server at once; [`ServerHandle::drain`] ends it kindly.
#[derive(Debug)]
pub struct ServerHandle {
    address: SocketAddr,
    shared: SharedHandle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// `Shared` without a debug form of what is inside.
struct SharedHandle(Arc<Shared>);

impl std::fmt::Debug for SharedHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

/// Listens and serves until the handle is drained or dropped. Returns as soon as the listener is up; the state may be
/// completed later.
///
/// # Errors
/// [`ServeError`] when the configuration makes no sense, the keys cannot be read, the address cannot be listened on or threads cannot start.
pub fn serve(config: ApiConfig, state: Arc<ApiState>) -> Result<ServerHandle, ServeError> {
    config.check()?;
    let keys = config.keys_file.as_deref().map_or_else(|| Ok(Keys::default()), Keys::read)?;
    let bind = |source| ServeError::Bind { listen: config.listen, source };
    let listener = TcpListener::bind(config.listen).map_err(bind)?;
    let address = listener.local_addr().map_err(bind)?;
    let shared = Arc::new(Shared::new(config, keys, state));
    let (stop, stopped) = oneshot::channel();
    let (started, running) = mpsc::sync_channel(1);
    let served = Arc::clone(&shared);
    let thread = std::thread::Builder::new()
        .name("luce-api".to_owned())
        .spawn(move || rt::System::new().block_on(run(served, listener, started, stopped)))
        .map_err(ServeError::Start)?;
    match running.recv() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(ServeError::Start(error)),
        Err(_) => return Err(ServeError::Start(std::io::Error::other("the thread ended at once"))),
    }
    tracing::info!(%address, "the API is listening");
    Ok(ServerHandle { address, shared: SharedHandle(shared), stop: Some(stop), thread: Some(thread) })
}

async fn run(
    shared: Arc<Shared>,
    listener: TcpListener,
    started: mpsc::SyncSender<std::io::Result<()>>,
    stopped: oneshot::Receiver<()>,
) {
    let config = shared.config.clone();
    let server =
        HttpServer::new(move || App::new().app_data(Data::new(Arc::clone(&shared))).default_service(web::to(dispatch)))
            .workers(config.threads)
            .worker_max_blocking_threads(ENCODE_THREADS)
            .max_connections(config.max_connections.div_ceil(config.threads))
            .keep_alive(Duration::from_secs(config.idle_timeout))
            .tcp_nodelay(true)
            .h1_allow_half_closed(!config.cancel_on_half_close)
            .shutdown_timeout(CLOSE_S)
            .disable_signals()
            .listen(listener)
            .map(HttpServer::run);
    let server = match server {
        Ok(server) => server,
        Err(error) => {
            // Nobody waits for it only if the caller has gone, which it does not do.
            let _ = started.send(Err(error));
            return;
        }
    };
    let handle: ActixHandle = server.handle();
    let _ = started.send(Ok(()));
    rt::spawn(async move {
        // An error means that the handle was dropped: end as well, but without waiting for connections.
        let kindly = stopped.await.is_ok();
        handle.stop(kindly).await;
    });
    if let Err(error) = server.await {
        tracing::error!(%error, "the API ended");
    }
}

impl ServerHandle {
    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no new requests (503, `/health` says draining), lets the running ones finish, ends with an error event
    /// those that are not done at the deadline, then stops listening. Blocks. Returns how many had to be ended.
    pub fn drain(mut self, deadline: Duration) -> usize {
        let late = self.shared.0.drain(deadline);
        if let Some(stop) = self.stop.take() {
            // The receiver is gone only if the server has ended already.
            let _ = stop.send(());
        }
        self.join();
        late
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the API's thread panicked");
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.join();
    }
}

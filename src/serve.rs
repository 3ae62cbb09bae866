//! The server: listener first, then the model, then wait for a signal and drain.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use luce_api::{ApiState, Backend, DeepSeekCodec};
use tokio::signal::unix::{SignalKind, signal};

use crate::{From, progress, start};

/// How long running answers may go on after SIGTERM.
const DRAIN: Duration = Duration::from_secs(30);

pub(crate) fn serve(from: &From) -> anyhow::Result<()> {
    let began = Instant::now();
    let stop = stop_signals()?;
    let loaded = start::load(&from.config, &from.sets)?;
    let api = loaded.config.api.clone();
    let plan = start::Plan::new(loaded.config, from.box_name.clone())?;
    let state = Arc::new(ApiState::pending());
    let server = luce_api::serve(api, state.clone())?;
    eprintln!("listening on http://{}", server.address());
    let (tokenizer, format) = plan.chat()?;
    let engine = Arc::new(plan.engine()?);
    let codec = Arc::new(DeepSeekCodec::new(tokenizer, format)?);
    state.complete(Backend { generate: engine.clone(), codec });
    if !progress::wait(&engine, began, |time| stop.recv_timeout(time).is_ok())? {
        eprintln!("stopped while loading");
        return Ok(());
    }
    stop.recv()?;
    eprintln!("draining: running answers have {} s; a second signal ends them at once", DRAIN.as_secs());
    engine.drain();
    let ended = server.drain(DRAIN);
    if ended > 0 {
        eprintln!("{ended} answers were ended");
    }
    Ok(())
}

/// Hears of the first SIGTERM or SIGINT. The second ends the process.
fn stop_signals() -> anyhow::Result<Receiver<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut term, mut int) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let (first, stop) = mpsc::sync_channel(1);
    let mut next = move || {
        runtime.block_on(async {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        });
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        next();
        // Nobody listens any more only when the process ends anyway.
        let _ = first.send(());
        next();
        eprintln!("ended at once by a second signal");
        std::process::exit(1);
    })?;
    Ok(stop)
}

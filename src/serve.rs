//! The server: listener first, then the model, then wait for a signal and drain.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use luce_api::{ApiConfig, ApiState, Backend, DeepSeekCodec};

use crate::{From, start};

/// How long running answers may go on after SIGTERM.
const DRAIN: Duration = Duration::from_secs(30);

pub(crate) fn serve(from: &From) -> anyhow::Result<()> {
    let began = Instant::now();
    let loaded = start::load(&from.config, &from.sets)?;
    let api: ApiConfig = loaded.config.api.clone().try_into().context("section [api]")?;
    let plan = start::Plan::new(loaded.config, from.box_name.clone())?;
    let state = Arc::new(ApiState::pending());
    let server = luce_api::serve(api, state.clone())?;
    let (tokenizer, format) = plan.chat()?;
    let engine = Arc::new(plan.engine()?);
    let codec = Arc::new(DeepSeekCodec::new(tokenizer, format)?);
    state.complete(Backend { generate: engine.clone(), codec });
    eprintln!("listening on http://{}", server.address());
    let mut shown = 0;
    let loaded = engine.wait_ready(|share| {
        let percent = (share * 100.0) as u32;
        if percent >= shown + 10 {
            shown = percent;
            eprintln!("loading: {percent}%");
        }
    });
    loaded.map_err(anyhow::Error::msg)?;
    eprintln!("ready after {:.2} s", began.elapsed().as_secs_f64());
    wait_for_signal()?;
    eprintln!("draining: running answers have {} s", DRAIN.as_secs());
    engine.drain();
    let ended = server.drain(DRAIN);
    if ended > 0 {
        eprintln!("{ended} answers were ended");
    }
    Ok(())
}

fn wait_for_signal() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        Ok(())
    })
}

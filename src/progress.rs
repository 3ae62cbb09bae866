//! Waiting for the model: a bar on a terminal, a line for every tenth elsewhere, and a line at the end.

use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use luce_core::{Generate, Lifecycle};
use luce_runtime::Engine;

/// How often loading is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until the model is loaded, which began at `began`. `pause` lets a time pass; when it says true, the wait ends
/// early. Returns whether the model is loaded.
///
/// # Errors
/// Why it cannot be.
pub(crate) fn wait(engine: &Engine, began: Instant, mut pause: impl FnMut(Duration) -> bool) -> anyhow::Result<bool> {
    let bar = ProgressBar::with_draw_target(Some(100), ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template("loading {wide_bar} {percent:>3}%")?);
    let mut next = 10;
    loop {
        match engine.lifecycle() {
            Lifecycle::Loading(share) => {
                let percent = (share * 100.0) as u64;
                bar.set_position(percent);
                if bar.is_hidden() && percent >= next {
                    eprintln!("loading: {percent}%");
                    next = percent / 10 * 10 + 10;
                }
            }
            state => {
                bar.finish_and_clear();
                if let Lifecycle::Broken(why) = state {
                    bail!(why);
                }
                eprintln!("ready after {:.2} s", began.elapsed().as_secs_f64());
                return Ok(true);
            }
        }
        if pause(LOOK) {
            bar.finish_and_clear();
            return Ok(false);
        }
    }
}

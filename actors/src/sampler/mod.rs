//! The sampler actor: a thread that waits for the logits of bands and chooses tokens, so that the leader composes the next
//! band while nothing waits for a device.
//!
//! Message paths. The leader opens a sequence before it announces its first band, and closes it at its end; the dense
//! device actor sends the ends of bands. For each of them the leader gets one [`Sampled`], also where the band failed.

mod state;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flume::{Receiver, Selector, Sender};
use luce_core::{BandSpec, SequenceId};

pub use state::{Choice, SamplerState};

use crate::plane::{BandEnd, WaitPolicy, settled};
use crate::runtime::{BandFailure, LogitsReader};

/// What the leader tells the sampler.
pub(crate) enum Order {
    /// A sequence begins.
    Open(SequenceId, Box<SamplerState>),
    /// It has ended.
    Close(SequenceId),
    /// End of the thread.
    Stop,
}

/// The choice for a span with a pick.
pub(crate) type SpanChoice = (SequenceId, Result<Choice, String>);

/// What became of a band.
pub(crate) struct Sampled {
    pub(crate) spec: Arc<BandSpec>,
    /// One for each span with a pick, or why the whole band failed.
    pub(crate) choices: Result<Vec<SpanChoice>, BandFailure>,
}

/// The sampler's thread.
pub(crate) struct Sampler {
    pub(crate) orders: Receiver<Order>,
    pub(crate) ends: Receiver<BandEnd>,
    pub(crate) sampled: Sender<Sampled>,
    pub(crate) logits: LogitsReader,
    pub(crate) wait: WaitPolicy,
    pub(crate) busy_us: Arc<AtomicU64>,
}

impl Sampler {
    /// Runs until `Stop`, or until the leader is gone. A device actor that is gone is its own unit's to report.
    pub(crate) fn run(self) {
        let mut open: HashMap<SequenceId, Box<SamplerState>> = HashMap::new();
        let mut row = Vec::new();
        loop {
            let end = match self.next(!open.is_empty()) {
                Next::End(end) => Some(end),
                Next::Order(order) => {
                    if !take(order, &mut open) {
                        return;
                    }
                    None
                }
                Next::Gone => {
                    while self.orders.recv().is_ok_and(|order| take(order, &mut open)) {}
                    return;
                }
            };
            // Orders that were given before the band was announced are here by now.
            while let Ok(order) = self.orders.try_recv() {
                if !take(order, &mut open) {
                    return;
                }
            }
            let Some(end) = end else { continue };
            let choices = self.logits.wait(&end).map(|()| {
                let began = Instant::now();
                let choices = self.choose(&end, &mut open, &mut row);
                self.busy_us.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
                choices
            });
            if self.sampled.send(Sampled { spec: end.spec, choices }).is_err() {
                return;
            }
        }
    }

    fn next(&self, busy: bool) -> Next {
        if busy && let Some(end) = self.wait.watch(|| settled(&self.ends)) {
            return end.map_or(Next::Gone, Next::End);
        }
        Selector::new()
            .recv(&self.ends, |end| end.map_or(Next::Gone, Next::End))
            .recv(&self.orders, |order| Next::Order(order.unwrap_or(Order::Stop)))
            .wait()
    }

    fn choose(
        &self,
        end: &BandEnd,
        open: &mut HashMap<SequenceId, Box<SamplerState>>,
        row: &mut Vec<f32>,
    ) -> Vec<SpanChoice> {
        let picks = end.spec.spans.iter().filter(|s| s.picks > 0).enumerate();
        picks
            .filter_map(|(pick, span)| {
                // Closed meanwhile: nobody waits for this token.
                let state = open.get_mut(&span.sequence)?;
                self.logits.row(end.spec.lane, pick, row);
                let position = span.first.0 + span.tokens.len() as u32;
                Some((span.sequence, state.choose(row, position)))
            })
            .collect()
    }
}

enum Next {
    End(BandEnd),
    Order(Order),
    Gone,
}

/// False for `Stop`.
fn take(order: Order, open: &mut HashMap<SequenceId, Box<SamplerState>>) -> bool {
    match order {
        Order::Open(id, state) => drop(open.insert(id, state)),
        Order::Close(id) => drop(open.remove(&id)),
        Order::Stop => return false,
    }
    true
}

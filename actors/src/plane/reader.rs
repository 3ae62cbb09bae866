//! The reader of Engram rows: hashes the n-grams of announced bands, reads their rows from the file by range into the
//! lanes' shared buffers, and tells the dense actor with a fence.

use std::sync::Arc;

use flume::{Receiver, Sender};
use luce_core::{ActorId, Fence, HostBuffer, NodeId, TimelineId};
use luce_device::Timeline;
use luce_model::{EngramHasher, Role, StageKind, WeightMap};
use luce_storage::Gguf;

use super::tap::{Tap, Tapped};
use super::{Announced, Message, token};
use crate::{RuntimeError, exchange};

/// Message to the reader.
pub(crate) enum ReaderMessage {
    /// Read the rows of this band.
    Band(Announced),
    /// End of the thread.
    Stop,
}

/// Reads rows of all Engram tables.
pub(crate) struct Reader {
    pub(crate) me: ActorId,
    pub(crate) gguf: Arc<Gguf>,
    pub(crate) weights: Arc<WeightMap>,
    pub(crate) hasher: EngramHasher,
    /// Model layer and node of each table.
    pub(crate) tables: Vec<(u16, NodeId)>,
    /// [lane][table]
    pub(crate) buffers: Vec<Vec<HostBuffer>>,
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) dense: Sender<Message>,
    pub(crate) tap: Option<Tap>,
}

impl Reader {
    /// Runs until `Stop`, or until every sender is gone.
    pub(crate) fn run(self, mailbox: &Receiver<ReaderMessage>) {
        let mut value = 0;
        let mut work = Work::default();
        while let Ok(ReaderMessage::Band(band)) = mailbox.recv() {
            for (t, &(layer, node)) in self.tables.iter().enumerate() {
                let fence = match self.read(t, layer, &band, &mut work) {
                    Ok(()) => {
                        value += 1;
                        self.timeline.signal(value);
                        Fence::Reached { timeline: TimelineId(self.me.0), value }
                    }
                    Err(why) => {
                        tracing::error!(layer, %why, "Engram rows cannot be read");
                        Fence::Failed
                    }
                };
                // A dense actor that has stopped ends the plane; its supervisor says so.
                let _ = self.dense.send(Message::Token(token(node, layer, &band.spec, self.me, fence)));
            }
        }
    }

    fn read(&self, table: usize, layer: u16, band: &Announced, work: &mut Work) -> Result<(), RuntimeError> {
        let tensor = self.weights.get(Role::EngramTable(layer)).expect("an Engram layer has a table");
        let row_bytes = tensor.dtype.row_bytes(tensor.dim(0)).expect("checked by the weight map") as usize;
        let columns = self.hasher.columns();
        work.bytes.resize(row_bytes, 0);
        let mut at = 0;
        for (span, history) in band.spec.spans.iter().zip(band.history.iter()) {
            work.tokens.clear();
            work.tokens.extend(span.tokens.iter().map(|t| t.0));
            work.rows.clear();
            work.rows.resize(work.tokens.len() * columns, 0);
            self.hasher.rows(table, history, &work.tokens, &mut work.rows)?;
            for &row in &work.rows {
                self.gguf.read_tensor(tensor, u64::from(row) * row_bytes as u64, &mut work.bytes)?;
                exchange::write(&self.buffers[band.spec.lane.index()][table], at, &work.bytes);
                at += row_bytes;
            }
            if let Some(tap) = &self.tap {
                let bytes = work.rows.iter().flat_map(|r| r.to_le_bytes()).collect();
                let (stage, value, width) = (StageKind::Engram, "engram.ids".to_owned(), columns as u32);
                let record = Tapped { stage, layer, value, width, bytes };
                tap.records.send(record).map_err(|_| RuntimeError::System("the tap's receiver is gone".into()))?;
            }
        }
        Ok(())
    }
}

/// Room that is kept between bands.
#[derive(Default)]
struct Work {
    tokens: Vec<u32>,
    rows: Vec<u32>,
    bytes: Vec<u8>,
}

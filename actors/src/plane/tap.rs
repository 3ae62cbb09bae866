//! Read-out of lane values after each node, for comparing the engine with a reference layer by layer. It waits for every
//! node, so it is for tests and tools; without a tap it costs nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flume::Sender;
use luce_core::{HostBuffer, Operand};
use luce_device::{Launch, Timeline, Wait};
use luce_model::{Program, StageKind, ValueId};

use crate::{Wiring, exchange};

/// Which lane values to read, and where they go. The receiver has to keep up: a full channel holds the engine.
#[derive(Clone, Debug)]
pub struct Tap {
    /// Names of lane values, such as `streams` or `ffn.ids`; the reader of Engram rows adds `engram.ids`.
    pub values: Vec<String>,
    /// Gets a record each time that a node has written one of them.
    pub records: Sender<Tapped>,
}

/// A lane value after a stage.
#[derive(Clone, Debug)]
pub struct Tapped {
    /// The stage that wrote it.
    pub stage: StageKind,
    /// Its layer.
    pub layer: u16,
    /// Name of the value.
    pub value: String,
    /// Row width in elements.
    pub width: u32,
    /// The band's rows, [rows, width], little-endian.
    pub bytes: Vec<u8>,
}

/// A value that a node writes.
struct Read {
    stage: StageKind,
    layer: u16,
    value: String,
    width: u32,
    row_bytes: usize,
    /// Per lane.
    host: Vec<HostBuffer>,
}

/// The reads of one actor.
pub(crate) struct NodeTap {
    reads: BTreeMap<usize, Vec<Read>>,
    records: Sender<Tapped>,
}

impl NodeTap {
    /// `host` holds, per lane, the values that the host sees. Nodes must hold one stage each.
    pub(crate) fn new(
        tap: &Tap,
        wiring: &Wiring,
        program: &Program,
        host: &[BTreeMap<ValueId, HostBuffer>],
    ) -> NodeTap {
        let mut reads: BTreeMap<usize, Vec<Read>> = BTreeMap::new();
        for name in &tap.values {
            let Some(id) = program.lane(name) else { continue };
            for (n, node) in wiring.nodes.iter().enumerate() {
                let writes = node.stages.iter().flat_map(|&s| &program.stages[s].ops).any(|op| {
                    let mut found = false;
                    let _ = op.try_map(|&v, how| {
                        found |= v == id && how != Operand::Read;
                        Ok::<_, std::convert::Infallible>(())
                    });
                    found
                });
                let value = program.value(id);
                if let Some(row_bytes) = value.dtype.row_bytes(u64::from(value.width)).filter(|_| writes) {
                    reads.entry(n).or_default().push(Read {
                        stage: program.stages[node.stages[0]].kind,
                        layer: node.layer,
                        value: name.clone(),
                        width: value.width,
                        row_bytes: row_bytes as usize,
                        host: host.iter().map(|lane| lane[&id].clone()).collect(),
                    });
                }
            }
        }
        NodeTap { reads, records: tap.records.clone() }
    }

    /// Waits for a node and reads what it wrote.
    pub(crate) fn read(
        &self,
        lane: usize,
        node: usize,
        launch: Launch,
        timeline: &Arc<Timeline>,
        value: u64,
    ) -> Result<(), String> {
        let Some(reads) = self.reads.get(&node) else { return Ok(()) };
        match timeline.wait(value, Duration::from_micros(50), Duration::from_secs(60)) {
            Wait::Reached => {}
            Wait::Failed => return Err(timeline.failure().unwrap_or("the device failed").to_owned()),
            Wait::TimedOut => return Err("a tapped node did not end within 60 s".into()),
        }
        for read in reads {
            let mut bytes = vec![0; read.row_bytes * launch.rows as usize];
            exchange::read(&read.host[lane], 0, &mut bytes);
            let (stage, layer, value, width) = (read.stage, read.layer, read.value.clone(), read.width);
            let record = Tapped { stage, layer, value, width, bytes };
            self.records.send(record).map_err(|_| "the tap's receiver is gone".to_owned())?;
        }
        Ok(())
    }
}

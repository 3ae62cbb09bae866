//! The layer program: a model as stages of operations over symbolic values. It knows nothing of devices; the wiring
//! compiler places each stage on an actor and gives each value memory.

mod attention;
mod build;

use std::collections::BTreeMap;

use luce_core::{DType, Op, Precision, Reduce};

use crate::{ModelConfig, Role};

/// A symbolic value of a [`Program`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ValueId(pub u32);

/// What a value is, which decides where its memory comes from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ValueKind {
    /// A tensor of the file.
    Weight(Role),
    /// f64 rotary frequencies of plain (`false`) or compressed (`true`) layers.
    Frequencies(bool),
    /// Which place of its stacks an owner has each expert of the layer at: [1, experts] I32, -1 where it has it not.
    Owned(u16),
    /// State of every sequence, [slots, rows, width]; the text names it.
    State(String),
    /// Memory of a lane, reused from layer to layer; the text names it.
    Lane(String),
    /// Engram rows as read from table number `n`, of one lane; the host writes them.
    EngramRows(u16),
}

/// A value and its shape.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Value {
    /// What it is.
    pub kind: ValueKind,
    /// Element type; for weights that of the file, or F32 where they are converted at load.
    pub dtype: DType,
    /// Values in a row.
    pub width: u32,
    /// Rows in a plane.
    pub rows: u32,
    /// Planes.
    pub planes: u32,
}

/// Kinds of stages, which the configuration's roles place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StageKind {
    /// Embedding and rotation angles.
    Begin,
    /// Engram rows into the streams.
    Engram,
    /// Attention sub-layer.
    Attention,
    /// Second mix and router.
    Route,
    /// The routed experts of one owner.
    Experts {
        /// The owner, from 0, in the order of the actors with the role `experts`.
        owner: u8,
    },
    /// The shared expert.
    Shared,
    /// Adds expert outputs and updates the streams.
    Join,
    /// Final collapse and logits.
    Head,
}

impl StageKind {
    /// Whether it changes or reads the state of sequences, so that it must fire in position order.
    pub fn has_state(self) -> bool {
        matches!(self, StageKind::Attention)
    }
}

/// One stage: operations that run together.
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// What it does.
    pub kind: StageKind,
    /// Its layer; that of `Begin` is 0 and that of `Head` the number of layers.
    pub layer: u16,
    /// What it computes, in order.
    pub ops: Vec<Op<ValueId>>,
}

/// How the program is to compute and for what sizes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProgramOptions {
    /// Activations at quantised weights.
    pub precision: Precision,
    /// Sum of expert outputs.
    pub reduce: Reduce,
    /// Whether key/value rows, index queries and keys are fake-quantised (spec/model.md 3.9).
    pub qat: bool,
    /// Number of actors that own experts, 1 to [`ProgramOptions::MAX_OWNERS`].
    pub owners: u8,
    /// The most rows of a band.
    pub max_rows: u32,
    /// The most rows of a band that need logits.
    pub max_picks: u32,
    /// Sequences that have state at once.
    pub slots: u32,
    /// Positions of the longest sequence.
    pub context: u32,
}

impl ProgramOptions {
    /// A join adds at most four operands, one of which is the shared expert.
    pub const MAX_OWNERS: u8 = 3;
}

/// A model as data: values and stages in an order that computes it.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The values that operations name.
    pub values: Vec<Value>,
    /// The stages, each after those that it depends on.
    pub stages: Vec<Stage>,
    /// Compress ratio of each class that operations name.
    pub classes: Vec<u32>,
    ids: BTreeMap<ValueKind, ValueId>,
}

impl Program {
    /// The value of an id.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    /// The value of a kind, if the program has it.
    pub fn find(&self, kind: &ValueKind) -> Option<ValueId> {
        self.ids.get(kind).copied()
    }

    /// The lane value called `name`.
    pub fn lane(&self, name: &str) -> Option<ValueId> {
        self.find(&ValueKind::Lane(name.to_owned()))
    }

    /// Experts that owner number `owner` of `owners` has: consecutive runs of nearly equal length.
    pub fn owned_experts(config: &ModelConfig, owner: u8, owners: u8) -> std::ops::Range<u32> {
        let cut = |k: u8| (u64::from(config.experts) * u64::from(k) / u64::from(owners)) as u32;
        cut(owner)..cut(owner + 1)
    }
}

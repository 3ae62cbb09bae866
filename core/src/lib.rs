//! The words of luce-actors, shared by every crate: ids, dtypes, tensor shapes, handles and fences, the operations that
//! devices compute, the messages between actors, and the trait [`Generate`]. No I/O, no threads, no clock.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod band;
mod buffer;
mod catalog;
mod dtype;
mod generate;
mod handle;
mod ids;
mod op;

pub use band::{BandKind, BandSpec, RowSpan};
pub use buffer::HostBuffer;
pub use catalog::{Catalog, MetaArray, MetaValue, TensorInfo};
pub use dtype::{DType, UnknownDType};
pub use generate::{
    ActorStatus, Chosen, Constraint, Event, EventSink, Finish, Generate, GenerateRequest, Lifecycle, Logprobs, Refusal,
    RequestId, Sampling, Served, SinkClosed, SlotStatus, Status, Timings, TokenSet, Usage,
};
pub use handle::{Fence, Handle, Handles, Tag, Token};
pub use ids::{
    ActorId, BandId, Bytes, LaneId, LayerId, NodeId, PortId, SequenceId, SlotId, TimelineId, TokenId, TokenPos,
};
pub use op::{Domain, Op, Operand, Precision, QuantKind, Reduce};

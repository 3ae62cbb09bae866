//! GGUF files read by range through a block store.
//!
//! [`BlockStore`] is the only way to bytes: [`FileStore`] reads files by position, [`MemoryStore`] serves tests.
//! [`Gguf`] is an opened model, of one file or of all shards of a split set; [`GgufWriter`] makes files, [`Summary`]
//! says what a model's bytes are spent on. Every number in a file is distrusted until it has been compared with the
//! file's size, so a damaged or hostile file gives a [`StorageError`] that names the place, never a panic.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod block;
pub mod conformance;
mod error;
mod file;
mod gguf;
mod memory;
mod summary;
mod write;

pub use block::BlockStore;
pub use error::StorageError;
pub use file::FileStore;
pub use gguf::{Gguf, Shard, ShardFile, SplitInfo, ValueType};
pub use memory::{MemoryFolder, MemoryStore};
pub use summary::{Summary, SummaryLine, TensorClass, summarize};
pub use write::{GgufWriter, TypedValue, WriteTensor};

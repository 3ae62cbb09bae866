//! What several test programs share.

#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod dialect;

use std::path::PathBuf;
use std::sync::Arc;

use luce_core::Catalog;
use luce_storage::{Gguf, GgufWriter, MemoryStore};

/// Path of a file among the model fixtures.
pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/models")).join(name)
}

/// A fixture model, opened.
pub(crate) fn open(name: &str) -> Gguf {
    Gguf::open(fixture(name)).unwrap()
}

/// A fixture model, ready to be changed.
pub(crate) fn writer(name: &str) -> GgufWriter {
    GgufWriter::from_gguf(&open(name)).unwrap()
}

/// What a reader sees of a changed model.
pub(crate) fn reopen(w: &GgufWriter) -> Gguf {
    Gguf::from_stores(vec![Arc::new(MemoryStore::new("changed.gguf", w.to_bytes().unwrap()))]).unwrap()
}

/// Metadata and tensors of a fixture model.
pub(crate) fn catalog(name: &str) -> Catalog {
    open(name).catalog().clone()
}

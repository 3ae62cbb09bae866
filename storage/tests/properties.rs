//! Properties over random files: what is written is read back, and no damage makes the reader panic. The second is the
//! same entry that `fuzz/` drives.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;

use luce_core::{DType, MetaArray, MetaValue};
use luce_storage::{BlockStore, Gguf, GgufWriter, MemoryStore, Shard, StorageError, TypedValue, ValueType};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn typed() -> impl Strategy<Value = TypedValue> {
    let text = || ".{0,12}";
    prop_oneof![
        any::<u8>().prop_map(TypedValue::from),
        any::<i8>().prop_map(TypedValue::from),
        any::<u16>().prop_map(TypedValue::from),
        any::<i16>().prop_map(TypedValue::from),
        any::<u32>().prop_map(TypedValue::from),
        any::<i32>().prop_map(TypedValue::from),
        any::<u64>().prop_map(TypedValue::from),
        any::<i64>().prop_map(TypedValue::from),
        any::<f32>().prop_map(TypedValue::from),
        any::<f64>().prop_map(TypedValue::from),
        any::<bool>().prop_map(TypedValue::from),
        text().prop_map(TypedValue::from),
        vec(any::<u8>(), 0..40).prop_map(TypedValue::from),
        vec(any::<i16>(), 0..40).prop_map(TypedValue::from),
        vec(any::<u32>(), 0..40).prop_map(TypedValue::from),
        vec(any::<u64>(), 0..1500).prop_map(TypedValue::from),
        vec(any::<i64>(), 0..40).prop_map(TypedValue::from),
        vec(any::<f32>(), 0..40).prop_map(TypedValue::from),
        vec(any::<bool>(), 0..40).prop_map(TypedValue::from),
        vec(text(), 0..20).prop_map(TypedValue::from),
    ]
}

fn tensor() -> impl Strategy<Value = (DType, Vec<u64>)> {
    (0..DType::ALL.len(), 1..3u64, vec(1..4u64, 0..4)).prop_map(|(t, blocks, outer)| {
        let dtype = DType::ALL[t];
        (dtype, std::iter::once(blocks * dtype.block_values() as u64).chain(outer).collect())
    })
}

fn file() -> impl Strategy<Value = GgufWriter> {
    // Names below "k." are no keys with a meaning.
    let metadata = btree_map("k\\.[a-z]{1,9}", typed(), 0..8);
    let tensors = btree_map("[a-z.]{1,20}", (tensor(), any::<u8>()), 0..6);
    (metadata, tensors, 0..8u32, 2..=3u32).prop_map(|(metadata, tensors, alignment, version)| {
        let mut w = GgufWriter { version, metadata, tensors: Vec::new() };
        if alignment != 5 {
            w.set_alignment(1 << alignment);
        }
        for (name, ((dtype, dims), seed)) in tensors {
            let bytes = dtype.row_bytes(dims[0]).unwrap() * dims[1..].iter().product::<u64>();
            let data = (0..bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
            w.tensor(&name, dtype, &dims, data);
        }
        w
    })
}

fn open(bytes: Vec<u8>) -> Result<Gguf, StorageError> {
    Gguf::from_stores(vec![Arc::new(MemoryStore::new("random.gguf", bytes))])
}

/// Values compared by bits, so that NaN equals itself; an f32 NaN may lose its payload.
fn same(a: &TypedValue, b: &TypedValue) -> bool {
    let bits = |v: &f64| if v.is_nan() { u64::MAX } else { v.to_bits() };
    let equal = match (&a.value, &b.value) {
        (MetaValue::Float(x), MetaValue::Float(y)) => bits(x) == bits(y),
        (MetaValue::Array(MetaArray::Float(x)), MetaValue::Array(MetaArray::Float(y))) => {
            x.iter().map(bits).eq(y.iter().map(bits))
        }
        (x, y) => x == y,
    };
    equal && a.kind == b.kind
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back_with_types_and_bytes(w in file()) {
        let back = GgufWriter::from_gguf(&open(w.to_bytes().unwrap()).unwrap()).unwrap();
        prop_assert_eq!(back.version, w.version);
        prop_assert_eq!(back.metadata.keys().collect::<Vec<_>>(), w.metadata.keys().collect::<Vec<_>>());
        for (key, value) in &w.metadata {
            prop_assert!(same(value, &back.metadata[key]), "{}: {:?} became {:?}", key, value, back.metadata[key]);
        }
        prop_assert_eq!(back.tensors, w.tensors);
    }

    /// An accepted file also has every byte of every tensor.
    #[test]
    fn damage_never_makes_the_reader_panic_and_what_it_accepts_can_be_read(
        w in file(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        numbers in vec((any::<prop::sample::Index>(), prop_oneof![Just(u64::MAX), Just(1 << 40), Just(1 << 62), 0..99u64]), 0..2),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = w.to_bytes().unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for (at, value) in numbers {
            let at = at.index(bytes.len() - 7);
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        match open(bytes) {
            Ok(model) => {
                for t in model.catalog().tensors.values() {
                    model.read_tensor(t, 0, &mut vec![0; t.bytes as usize]).unwrap();
                }
            }
            Err(e) => prop_assert!(e.to_string().starts_with("random.gguf: "), "{}", e),
        }
    }
}

#[test]
fn every_truncation_of_a_valid_file_is_refused() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/quants/gguf/ok_no_tail_pad.gguf");
    let bytes = std::fs::read(path).unwrap();
    open(bytes.clone()).unwrap();
    for length in 0..bytes.len() {
        assert!(open(bytes[..length].to_vec()).is_err(), "{length} of {} bytes were accepted", bytes.len());
    }
}

/// A store of astronomical length that has `head` at its start and zeros behind it: what a sparse file can do.
#[derive(Debug)]
struct Hollow {
    head: Vec<u8>,
    length: u64,
}

impl BlockStore for Hollow {
    fn name(&self) -> PathBuf {
        PathBuf::from("hollow.gguf")
    }
    fn len(&self) -> Result<u64, StorageError> {
        Ok(self.length)
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = self.head.get(offset as usize + i).copied().unwrap_or(0);
        }
        Ok(())
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), StorageError> {
        unreachable!("the reader writes nothing")
    }
    fn sync(&self) -> Result<(), StorageError> {
        unreachable!("the reader writes nothing")
    }
    fn rename(&self, _: &str) -> Result<(), StorageError> {
        unreachable!("the reader renames nothing")
    }
}

#[test]
fn lengths_that_a_huge_sparse_file_would_cover_are_still_refused_before_memory_is_taken() {
    let mut head = b"GGUF\x03\0\0\0".to_vec();
    head.extend(0u64.to_le_bytes());
    head.extend(1u64.to_le_bytes());
    head.extend(3u64.to_le_bytes());
    head.extend(b"x.y");
    let array = |element: ValueType, count: u64| {
        let mut bytes = head.clone();
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(element.id().to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes
    };
    let mut text = head.clone();
    text.extend(ValueType::String.id().to_le_bytes());
    text.extend((1u64 << 50).to_le_bytes());
    for head in [array(ValueType::U8, 1 << 50), array(ValueType::U64, 1 << 40), array(ValueType::String, 1 << 40), text]
    {
        let error = Shard::parse(&Hollow { head, length: 1 << 60 }).unwrap_err().to_string();
        assert!(error.contains("metadata key \"x.y\"") && error.contains("behind the first 256 MiB"), "{error}");
    }
    // A tensor may lie anywhere in such a file, also at its very end.
    let mut w = GgufWriter::new();
    w.tensor("t", DType::F32, &[8], vec![0; 32]);
    let mut head = w.to_bytes().unwrap();
    let data_start = head.len() as u64 - 32;
    head.truncate(head.len() - 32);
    let at = 24 + 8 + 1 + 4 + 8 + 4;
    head[at..at + 8].copy_from_slice(&((1u64 << 60) - 32 - data_start).to_le_bytes());
    let shard = Shard::parse(&Hollow { head, length: 1 << 60 }).unwrap();
    assert_eq!(shard.tensors[0].offset, (1 << 60) - 32);
}

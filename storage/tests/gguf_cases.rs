//! The GGUF cases of spec/formats.md section 1.4: each file is accepted or refused as listed, and a refusal names the
//! file and the place.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use luce_core::{DType, MetaArray, MetaValue};
use luce_storage::{Gguf, MemoryStore, Shard, StorageError};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/quants/gguf"))
}

fn cases() -> Vec<(String, bool, String)> {
    let text = std::fs::read_to_string(folder().join("cases.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let cases = json["cases"].as_array().unwrap().iter();
    cases
        .map(|c| {
            let field = |name: &str| c[name].as_str().unwrap().to_owned();
            (field("file"), c["accept"].as_bool().unwrap(), field("why"))
        })
        .collect()
}

/// For each refused file: where the error must point, and words of the reason.
const REFUSALS: &[(&str, &str, &str)] = &[
    ("bad_empty", "header field \"magic\"", "empty"),
    ("bad_magic", "header field \"magic\"", "no GGUF file"),
    ("bad_ggml_magic", "header field \"magic\"", "before GGUF"),
    ("bad_version0", "header field \"version\"", "version 0 does not exist"),
    ("bad_version1", "header field \"version\"", "convert the model anew"),
    ("bad_version4", "header field \"version\"", "version 4 is not known"),
    ("bad_big_endian", "header field \"version\"", "big-endian"),
    ("bad_header_cut", "header field \"metadata count\"", "cut off"),
    ("bad_kv_cut", "header field \"tensor count\"", "cut off"),
    ("bad_data_cut", "tensor \"b.weight\"", "cut off"),
    ("bad_no_data", "tensor \"a.weight\"", "cut off"),
    ("bad_n_kv_huge", "header field \"metadata count\"", "more than the limit"),
    ("bad_n_tensors_huge", "header field \"tensor count\"", "more than the limit"),
    ("bad_n_tensors_max", "header field \"tensor count\"", "more than the limit"),
    ("bad_n_kv_short", "tensor 1 of 2", "its name takes 562949953421312 bytes"),
    ("bad_key_len_max", "metadata entry 1 of", "its key takes 18446744073709551615 bytes"),
    ("bad_str_len_long", "metadata key \"general.name\"", "takes 1099511627776 bytes"),
    ("bad_value_type", "metadata key \"x\"", "value type 13"),
    ("bad_array_type", "metadata key \"x\"", "element type 77"),
    ("bad_array_len_max", "metadata key \"x\"", "does not fit in 64 bits"),
    ("bad_array_len_long", "metadata key \"x\"", "takes 1073741824 bytes"),
    ("bad_array_nested", "metadata key \"x\"", "arrays of arrays"),
    ("bad_dup_key", "metadata key \"general.architecture\"", "twice"),
    ("bad_dup_tensor", "tensor \"a.weight\"", "twice"),
    ("bad_align_zero", "metadata key \"general.alignment\"", "0 is not a power of two"),
    ("bad_align_odd", "metadata key \"general.alignment\"", "24 is not a power of two"),
    ("bad_align_type", "metadata key \"general.alignment\"", "must be a u32, but it is u64"),
    ("bad_ndims", "tensor \"a.weight\"", "5 dimensions"),
    ("bad_ndims_huge", "tensor \"a\"", "4294967295 dimensions"),
    ("bad_dim_overflow", "tensor \"a.weight\"", "multiply to more than 63 bits"),
    ("bad_dim_negative", "tensor \"a.weight\"", "dimension 0 is -4"),
    ("bad_dim_zero", "tensor \"a.weight\"", "dimension 0 is 0"),
    ("bad_row_not_block", "tensor \"b.weight\"", "rows of 48 values are not whole blocks of Q8_0"),
    ("bad_type_unknown", "tensor \"a.weight\"", "type id 999 is unknown"),
    ("bad_type_removed", "tensor \"a.weight\"", "type id 4 was removed"),
    ("bad_type_hole", "tensor \"a.weight\"", "type id 99 is unknown"),
    ("bad_offset_unaligned", "tensor \"b.weight\"", "33 is not a multiple of the alignment 32"),
    ("bad_offset_past_end", "tensor \"b.weight\"", "cut off"),
    ("bad_offset_overflow", "tensor \"b.weight\"", "beyond 64 bits"),
    ("bad_overlap", "tensor \"", "overlap"),
    ("bad_name_utf8", "tensor 1 of 1", "not UTF-8"),
    ("bad_split_no", "metadata key \"split.no\"", "2 is not below"),
];

#[test]
fn every_case_is_accepted_or_refused_as_listed_and_refusals_name_the_place() {
    let cases = cases();
    let refusals: BTreeMap<_, _> = REFUSALS.iter().map(|&(name, place, reason)| (name, (place, reason))).collect();
    assert_eq!(cases.iter().filter(|c| !c.1).count(), refusals.len(), "each refused file has a line in this test");
    for (file, accept, why) in &cases {
        let path = folder().join(file);
        let opened = Gguf::open(&path);
        let bytes = std::fs::read(&path).unwrap();
        let parsed = Shard::parse(&MemoryStore::new(&path.to_string_lossy(), bytes));
        if *accept {
            opened.unwrap_or_else(|e| panic!("{file} ({why}) must be accepted: {e}"));
            parsed.unwrap_or_else(|e| panic!("{file} ({why}) must be accepted from memory: {e}"));
            continue;
        }
        let error = opened.expect_err(&format!("{file} ({why}) must be refused"));
        assert!(matches!(error, StorageError::Format { .. }), "{file}: {error:?}");
        let text = error.to_string();
        let (place, reason) = refusals[file.strip_suffix(".gguf").unwrap()];
        assert!(text.starts_with(&format!("{}: {place}", path.display())), "{file} ({why}): place of: {text}");
        assert!(text.contains(reason), "{file} ({why}): reason of: {text}");
        assert_eq!(parsed.unwrap_err().to_string(), text, "memory and file say the same");
    }
}

#[test]
fn values_of_every_common_type_arrive_as_written() {
    let model = Gguf::open(folder().join("ok_v3.gguf")).unwrap();
    let get = |key: &str| model.catalog().get(key).unwrap().clone();
    assert_eq!(get("general.name"), MetaValue::String("tiny".to_owned()));
    assert_eq!(get("deepseek4.block_count"), MetaValue::Unsigned(1));
    assert_eq!(get("x.f"), MetaValue::Float(1.5));
    assert_eq!(get("x.b"), MetaValue::Bool(true));
    assert_eq!(get("x.u64"), MetaValue::Unsigned(1 << 40));
    assert_eq!(get("x.strs"), MetaValue::Array(MetaArray::String(vec!["a".to_owned(), "bb".to_owned()])));
    assert_eq!(get("x.u8s"), MetaValue::Array(MetaArray::U8(vec![1, 2, 3])));
    assert_eq!(get("x.empty"), MetaValue::Array(MetaArray::Unsigned(vec![])));

    let a = model.catalog().tensor("a.weight").unwrap();
    assert_eq!((a.dtype, a.dims.as_slice(), a.bytes), (DType::F32, &[4, 2][..], 32));
    let mut bytes = [0; 8];
    model.read_tensor(a, 12, &mut bytes).unwrap();
    assert_eq!(bytes[..4], 3f32.to_le_bytes());
    assert_eq!(bytes[4..], 4f32.to_le_bytes());
}

#[test]
fn directory_order_and_alignment_do_not_change_the_bytes_of_a_tensor() {
    let read = |file: &str| {
        let model = Gguf::open(folder().join(file)).unwrap();
        let tensor = |name: &str| {
            let info = model.catalog().tensor(name).unwrap();
            let mut out = vec![0; info.bytes as usize];
            model.read_tensor(info, 0, &mut out).unwrap();
            out
        };
        (tensor("a.weight"), tensor("b.weight"))
    };
    let plain = read("ok_v3.gguf");
    assert_eq!(plain.1.len(), 68);
    for other in ["ok_v2.gguf", "ok_unordered.gguf", "ok_no_tail_pad.gguf", "ok_align64.gguf"] {
        assert_eq!(read(other), plain, "{other}");
    }
}

#[test]
fn a_read_outside_a_tensor_is_refused_even_where_the_file_goes_on() {
    let model = Gguf::open(folder().join("ok_v3.gguf")).unwrap();
    let a = model.catalog().tensor("a.weight").unwrap().clone();
    model.read_tensor(&a, 32, &mut []).unwrap();
    for (offset, length) in [(28, 5), (33, 0), (u64::MAX, 1), (0, 33)] {
        let error = model.read_tensor(&a, offset, &mut vec![0; length]).unwrap_err();
        assert!(matches!(error, StorageError::Range { .. }), "{offset}+{length}: {error}");
        assert!(error.to_string().contains("tensor \"a.weight\" has 32 bytes"), "{error}");
    }
    let foreign = luce_core::TensorInfo { shard: 3, ..a };
    assert!(matches!(model.read_tensor(&foreign, 0, &mut [0]), Err(StorageError::Foreign { shard: 3, shards: 1, .. })));
}

#[test]
fn a_file_that_shrinks_after_opening_names_file_tensor_offset_and_length() {
    let store = Arc::new(MemoryStore::new("model.gguf", std::fs::read(folder().join("ok_v3.gguf")).unwrap()));
    let model = Gguf::from_stores(vec![store.clone()]).unwrap();
    store.truncate(460);
    let b = model.catalog().tensor("b.weight").unwrap();
    let text = model.read_tensor(b, 0, &mut [0; 68]).unwrap_err().to_string();
    let place =
        format!("model.gguf: 68 bytes at offset {} (tensor \"b.weight\") lie past the end: the file has 460", b.offset);
    assert!(text.starts_with(&place), "{text}");
}

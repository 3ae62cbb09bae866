//! Split models (spec/formats.md section 1.3): any shard opens the set, and sets that do not fit are refused.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use luce_core::DType;
use luce_storage::{BlockStore, Gguf, GgufWriter, MemoryStore, StorageError, summarize};

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/quants/gguf")).join(name)
}

#[test]
fn either_shard_opens_the_pair_as_one_model() {
    for name in ["split-00001-of-00002.gguf", "split-00002-of-00002.gguf"] {
        let model = Gguf::open(fixture(name)).unwrap();
        assert_eq!(model.files().len(), 2);
        assert!(model.files()[0].path.ends_with("split-00001-of-00002.gguf"), "shards stand in the order of split.no");
        assert_eq!(model.catalog().get("general.architecture").unwrap().as_str(), Some("deepseek4"));
        let (a, b) = (model.catalog().tensor("a.weight").unwrap(), model.catalog().tensor("b.weight").unwrap());
        assert_eq!((a.shard, b.shard), (0, 1));
        let mut first = [0; 4];
        model.read_tensor(a, 4, &mut first).unwrap();
        assert_eq!(first, 1f32.to_le_bytes());
        let mut rest = vec![0; b.bytes as usize];
        model.read_tensor(b, 0, &mut rest).unwrap();
        let whole = std::fs::read(fixture("split-00002-of-00002.gguf")).unwrap();
        assert_eq!(rest, whole[b.offset as usize..][..68]);
        assert_eq!(summarize(&model).shards.len(), 2);
    }
}

/// A shard with one tensor.
fn shard(no: u16, count: u16, tensor: &str) -> GgufWriter {
    let mut w = GgufWriter::new();
    w.set("split.no", no).set("split.count", count).set("split.tensors.count", i32::from(count));
    w.tensor(tensor, DType::F32, &[1], vec![0; 4]);
    w
}

fn open(writers: &[GgufWriter]) -> Result<Gguf, StorageError> {
    let store = |(i, w): (usize, &GgufWriter)| -> Arc<dyn BlockStore> {
        Arc::new(MemoryStore::new(&format!("shard{i}"), w.to_bytes().unwrap()))
    };
    Gguf::from_stores(writers.iter().enumerate().map(store).collect())
}

#[test]
fn shards_may_be_given_in_any_order_and_need_equal_alignment_counts_and_names() {
    let set = [shard(2, 3, "c"), shard(0, 3, "a"), shard(1, 3, "b")];
    let model = open(&set).unwrap();
    let shards: Vec<_> = model.catalog().tensors.values().map(|t| (t.name.as_str(), t.shard)).collect();
    assert_eq!(shards, [("a", 0), ("b", 1), ("c", 2)]);

    let refused = |change: &dyn Fn(&mut Vec<GgufWriter>), place: &str, words: &str| {
        let mut set = set.to_vec();
        change(&mut set);
        let text = open(&set).unwrap_err().to_string();
        assert!(text.starts_with(place) && text.contains(words), "wanted {place} ... {words}, got: {text}");
    };
    refused(&|s| drop(s.pop()), "shard1", "the model has 3 files, but 2 were given");
    refused(&|s| s[2] = shard(0, 3, "b"), "shard2", "\"split.no\" is 0, but no shard has 1");
    refused(&|s| s[2] = shard(1, 4, "b"), "shard2", "\"split.count\" is 4 here but 3");
    refused(&|s| s[2] = shard(1, 3, "a"), "shard2", "tensor \"a\" is also in shard1");
    refused(&|s| _ = s[0].set_alignment(64), "shard0", "\"general.alignment\" is 64 here but 32");
    refused(
        &|s| _ = s[0].set("split.tensors.count", 4i32),
        "shard0",
        "\"split.tensors.count\" is 4, but the shards have 3",
    );
    refused(&|s| drop(s[2].remove("split.count")), "shard2: metadata key \"split.count\"", "missing");
    refused(&|s| drop(s[2].remove("split.no")), "shard2: metadata key \"split.no\"", "missing");
    refused(&|s| _ = s[2].set("split.no", "one"), "shard2: metadata key \"split.no\"", "whole number");
    assert!(open(&[]).unwrap_err().to_string().contains("no file was given"));
}

#[test]
fn file_names_and_split_keys_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |name: &str, writer: &GgufWriter, words: &str| {
        let path = dir.path().join(name);
        writer.write(&path).unwrap();
        let text = Gguf::open(&path).unwrap_err().to_string();
        assert!(
            text.starts_with(&path.display().to_string()) && text.contains(words),
            "{name}: wanted {words}, got: {text}"
        );
        std::fs::remove_file(path).unwrap();
    };
    let whole = GgufWriter::new();
    refused("m-00001-of-00002.gguf", &whole, "no metadata key \"split.count\": rename");
    refused("model.gguf", &shard(1, 2, "a"), "name them like NAME-00002-of-00002.gguf");
    refused("m-00001-of-00003.gguf", &shard(0, 2, "a"), "3 parts, but \"split.count\" is 2");
    refused("m-00003-of-00002.gguf", &shard(0, 2, "a"), "part 3 of 2");
    refused("m-00000-of-00002.gguf", &shard(0, 2, "a"), "part 0 of 2");

    // A missing sibling is named.
    let path = dir.path().join("m-1-of-2.GGUF");
    shard(0, 2, "a").write(&path).unwrap();
    let text = Gguf::open(&path).unwrap_err().to_string();
    assert!(text.contains("m-2-of-2.GGUF: cannot open it, though the model needs this shard"), "{text}");
    shard(1, 2, "b").write(dir.path().join("m-2-of-2.GGUF")).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().catalog().tensors.len(), 2);
}

#[test]
fn a_merged_model_and_a_set_of_one_open_under_plain_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    // Merging tools leave a count of 0 and stale numbers behind.
    let mut merged = shard(0, 0, "a");
    merged.set("split.tensors.count", 7i32).write(&path).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().files().len(), 1);
    shard(0, 1, "a").write(&path).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().files().len(), 1);
    shard(0, 1, "a").write(dir.path().join("model-00001-of-00001.gguf")).unwrap();
    assert_eq!(Gguf::open(dir.path().join("model-00001-of-00001.gguf")).unwrap().files().len(), 1);
}

//! GGUF models: one file, or all shards of a split set, as one catalog with readable tensors.

mod cursor;
mod shard;
mod split;
mod value;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use luce_core::{Catalog, TensorInfo};

pub(crate) use shard::{ALIGNMENT_DEFAULT, ALIGNMENT_KEY, KEY_BYTES_MAX, TENSOR_NAME_BYTES_MAX, tensor_bytes};
pub use shard::{Shard, SplitInfo};
pub(crate) use value::ARRAY_ID;
pub use value::ValueType;

use crate::error::quoted;
use crate::{BlockStore, FileStore, StorageError};
use split::SplitName;

/// One opened file of a model.
#[derive(Clone, Debug)]
pub struct ShardFile {
    /// Where its bytes come from.
    pub store: Arc<dyn BlockStore>,
    /// Its path when it was opened.
    pub path: PathBuf,
    /// Its length in bytes when it was opened.
    pub bytes: u64,
    /// Format version, 2 or 3.
    pub version: u32,
    /// Alignment of tensor data in bytes.
    pub alignment: u32,
    /// Where tensor data begins, from the start of the file.
    pub data_start: u64,
    /// Number of its tensors.
    pub tensors: usize,
}

/// An opened model: metadata and tensors of all its files.
#[derive(Clone, Debug)]
pub struct Gguf {
    catalog: Catalog,
    types: BTreeMap<String, ValueType>,
    files: Vec<ShardFile>,
}

impl Gguf {
    /// Opens a model. Of a split one, any shard's path opens the whole set.
    ///
    /// # Errors
    /// [`StorageError::Io`] when a file is missing, [`StorageError::Format`] when its header is wrong,
    /// [`StorageError::Split`] when the shards do not fit together.
    pub fn open(path: impl AsRef<Path>) -> Result<Gguf, StorageError> {
        let path = path.as_ref();
        let store = FileStore::open(path)?;
        let shard = Shard::parse(&store)?;
        let mut parts: Vec<(Arc<dyn BlockStore>, Shard)> = Vec::new();
        let siblings = siblings(path, &shard)?;
        parts.push((Arc::new(store), shard));
        for sibling in siblings {
            let store = FileStore::open(&sibling).map_err(|e| match e {
                StorageError::Io { path, action, source } => {
                    StorageError::Io { path, action: format!("{action}, though the model needs this shard"), source }
                }
                other => other,
            })?;
            let shard = Shard::parse(&store)?;
            parts.push((Arc::new(store), shard));
        }
        let model = join(parts)?;
        tracing::debug!(path = %path.display(), files = model.files.len(), tensors = model.catalog.tensors.len(), "opened");
        Ok(model)
    }

    /// A model from its stores, in any order: one, or all shards of a split model. File names are not looked at.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    pub fn from_stores(stores: Vec<Arc<dyn BlockStore>>) -> Result<Gguf, StorageError> {
        let parts = stores.into_iter().map(|store| {
            let shard = Shard::parse(&*store)?;
            Ok((store, shard))
        });
        join(parts.collect::<Result<_, StorageError>>()?)
    }

    /// Metadata of the first shard and tensors of all.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// How wide each metadata value is in the file (for an array: its elements).
    pub fn types(&self) -> &BTreeMap<String, ValueType> {
        &self.types
    }

    /// The files, in the order of [`TensorInfo::shard`].
    pub fn files(&self) -> &[ShardFile] {
        &self.files
    }

    /// Fills `out` with the bytes of `tensor` from `offset` on, counted from the start of the tensor.
    ///
    /// # Errors
    /// [`StorageError::Range`] when the range does not lie inside the tensor, [`StorageError::Foreign`] when the tensor
    /// is of another model, [`StorageError::Short`] when the file has shrunk, [`StorageError::Io`].
    pub fn read_tensor(&self, tensor: &TensorInfo, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        let Some(file) = self.files.get(usize::from(tensor.shard)) else {
            let (shard, shards) = (tensor.shard, self.files.len());
            return Err(StorageError::Foreign { tensor: quoted(&tensor.name), shard, shards });
        };
        let length = out.len() as u64;
        let start = tensor.offset.checked_add(offset);
        let (Some(start), true) = (start, offset.checked_add(length).is_some_and(|end| end <= tensor.bytes)) else {
            let (path, tensor, bytes) = (file.path.clone(), quoted(&tensor.name), tensor.bytes);
            return Err(StorageError::Range { path, tensor, bytes, offset, length });
        };
        file.store.read_at(start, out).map_err(|e| e.within(&format!("tensor {}", quoted(&tensor.name))))
    }
}

/// Paths of the other shards of the model that `path` belongs to.
fn siblings(path: &Path, shard: &Shard) -> Result<Vec<PathBuf>, StorageError> {
    let wrong = |problem: String| Err(StorageError::Split { path: path.to_owned(), problem });
    let name = SplitName::parse(path);
    let count = shard.split.map(|s| u64::from(s.count));
    let name = match (name, count) {
        (None, None | Some(0 | 1)) => return Ok(Vec::new()),
        (None, Some(count)) => {
            return wrong(format!(
                "\"split.count\" says that this is one of {count} files, but the file name does not say which: name them \
                 like NAME-{:05}-of-{count:05}.gguf",
                shard.split.map_or(0, |s| s.no) + 1
            ));
        }
        (Some(name), None) => {
            return wrong(format!(
                "the file name says part {} of {}, but there is no metadata key \"split.count\": rename the file if it is a \
                 whole model, or fetch it again",
                name.no, name.count
            ));
        }
        (Some(name), Some(count)) if name.count != count => {
            return wrong(format!(
                "the file name says that there are {} parts, but \"split.count\" is {count}: rename the file, or fetch the \
                 whole set again",
                name.count
            ));
        }
        (Some(name), Some(_)) if name.no == 0 || name.no > name.count => {
            return wrong(format!("the file name says part {} of {}; parts count from 1", name.no, name.count));
        }
        (Some(name), Some(_)) => name,
    };
    Ok((1..=name.count).filter(|&no| no != name.no).map(|no| name.part(no)).collect())
}

/// Makes one model of all its shards.
fn join(mut parts: Vec<(Arc<dyn BlockStore>, Shard)>) -> Result<Gguf, StorageError> {
    parts.sort_by_key(|(_, shard)| shard.split.map_or(0, |s| s.no));
    check_set(&parts)?;
    let mut model =
        Gguf { catalog: Catalog::default(), types: BTreeMap::new(), files: Vec::with_capacity(parts.len()) };
    for (i, (store, shard)) in parts.into_iter().enumerate() {
        let path = store.name();
        model.files.push(ShardFile {
            store,
            bytes: shard.bytes,
            version: shard.version,
            alignment: shard.alignment,
            data_start: shard.data_start,
            tensors: shard.tensors.len(),
            path: path.clone(),
        });
        if i == 0 {
            model.catalog.metadata = shard.metadata;
            model.types = shard.types;
        }
        for mut tensor in shard.tensors {
            tensor.shard = i as u16; // `check_set`: as many parts as a u16 says
            match model.catalog.tensors.entry(tensor.name.clone()) {
                Entry::Vacant(free) => free.insert(tensor),
                Entry::Occupied(other) => {
                    let first = model.files[usize::from(other.get().shard)].path.display();
                    let problem = format!("tensor {} is also in {first}", quoted(&tensor.name));
                    return Err(StorageError::Split { path, problem });
                }
            };
        }
    }
    Ok(model)
}

/// Checks that sorted parts make one set: their number, their places, their alignment, the number of tensors.
fn check_set(parts: &[(Arc<dyn BlockStore>, Shard)]) -> Result<(), StorageError> {
    let wrong = |i: usize, problem: String| {
        let path = parts.get(i).map_or_else(PathBuf::new, |(store, _)| store.name());
        Err(StorageError::Split { path, problem })
    };
    let Some((_, first)) = parts.first() else { return wrong(0, "no file was given".to_owned()) };
    let set = first.split.unwrap_or_default();
    let count = usize::from(set.count.max(1));
    if count != parts.len() {
        return wrong(
            0,
            format!("\"split.count\" says that the model has {count} files, but {} were given", parts.len()),
        );
    }
    for (i, (_, shard)) in parts.iter().enumerate() {
        let split = shard.split.unwrap_or_default();
        if split.count != set.count {
            return wrong(i, format!("\"split.count\" is {} here but {} in another shard", split.count, set.count));
        }
        if usize::from(split.no) != i {
            return wrong(
                i,
                format!(
                    "\"split.no\" is {}, but no shard has {i}, or two have the same: fetch the set again",
                    split.no
                ),
            );
        }
        if shard.alignment != first.alignment {
            let problem =
                format!("\"general.alignment\" is {} here but {} in another shard", shard.alignment, first.alignment);
            return wrong(i, problem);
        }
    }
    let total: u64 = parts.iter().map(|(_, shard)| shard.tensors.len() as u64).sum();
    for (i, (_, shard)) in parts.iter().enumerate() {
        if let Some(said) = shard.split.and_then(|s| s.tensors).filter(|&said| said != total) {
            return wrong(
                i,
                format!("\"split.tensors.count\" is {said}, but the shards have {total} tensors together"),
            );
        }
    }
    Ok(())
}

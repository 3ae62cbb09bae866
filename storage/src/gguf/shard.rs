//! One GGUF file: header, metadata and tensor directory (spec/formats.md sections 1.1, 1.2, 1.4).
//!
//! ```text
//! "GGUF" | u32 version | u64 tensors | u64 keys | keys ... | tensors ... | zeros to the alignment | data
//! key    = string name, u32 value type, value            string = u64 length, UTF-8 bytes
//! tensor = string name, u32 dims, u64 each, u32 type id, u64 offset from the start of data
//! ```
//!
//! Every count, length and offset is compared with the file's size before anything is reserved for it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use luce_core::{DType, MetaValue, TensorInfo};

use super::cursor::{Cursor, Fault};
use super::value::{self, ValueType};
use crate::error::quoted;
use crate::{BlockStore, StorageError};

/// Most metadata keys of a file.
const KEYS_MAX: u64 = 65_536;
/// Most tensors of a file.
const TENSORS_MAX: u64 = 1_048_576;
/// Longest metadata key in bytes.
pub(crate) const KEY_BYTES_MAX: u64 = 65_535;
/// Longest tensor name in bytes (ggml stops at 63).
pub(crate) const TENSOR_NAME_BYTES_MAX: u64 = 1024;
/// Smallest key entry: empty name, type, one byte.
const KEY_ENTRY_BYTES_MIN: u64 = 8 + 4 + 1;
/// Smallest tensor entry: empty name, no dimensions, type, offset.
const TENSOR_ENTRY_BYTES_MIN: u64 = 8 + 4 + 4 + 8;
/// Alignment where the file does not say.
pub(crate) const ALIGNMENT_DEFAULT: u32 = 32;
/// The key that says it.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// What a file says about its place in a split model; `count` 0 (also left behind by merging tools) and 1 mean that the
/// file is the whole model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SplitInfo {
    /// Place of this file, from 0.
    pub no: u16,
    /// Number of files.
    pub count: u16,
    /// Tensors of all files together, where the file says it.
    pub tensors: Option<u64>,
}

/// Header, metadata and directory of one GGUF file.
#[derive(Clone, PartialEq, Debug)]
pub struct Shard {
    /// Format version, 2 or 3.
    pub version: u32,
    /// Alignment of tensor data in bytes, a power of two.
    pub alignment: u32,
    /// Metadata by key.
    pub metadata: BTreeMap<String, MetaValue>,
    /// How wide each metadata value is in the file (for an array: its elements).
    pub types: BTreeMap<String, ValueType>,
    /// Tensors in the order of the directory, with `shard` 0.
    pub tensors: Vec<TensorInfo>,
    /// Where tensor data begins, from the start of the file.
    pub data_start: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Its place in a split model; `None` without `split.count`.
    pub split: Option<SplitInfo>,
}

/// Adds the place to what went wrong.
fn placed(path: &Path, place: impl FnOnce() -> String) -> impl FnOnce(Fault) -> StorageError {
    move |fault| match fault {
        Fault::Wrong(problem) => StorageError::Format { path: path.to_owned(), place: place(), problem },
        Fault::Store(e) => e.within(&place()),
    }
}

impl Shard {
    /// Reads the header of one file; tensor data is not read, but must be there in full.
    ///
    /// # Errors
    /// [`StorageError::Format`] naming the header field, key or tensor; what the store says.
    pub fn parse(store: &dyn BlockStore) -> Result<Shard, StorageError> {
        let path = store.name();
        let mut cursor = Cursor::new(store)?;
        let (version, tensor_count, key_count) = read_header(&mut cursor, &path)?;
        let (metadata, types) = read_metadata(&mut cursor, &path, key_count)?;
        let wrong = |key: &str, problem| placed(&path, || format!("metadata key {key:?}"))(Fault::Wrong(problem));
        let alignment = alignment(&metadata, &types).map_err(|p| wrong(ALIGNMENT_KEY, p))?;
        let split = split(&metadata).map_err(|(key, p)| wrong(key, p))?;
        let mut tensors = read_directory(&mut cursor, &path, tensor_count, alignment)?;
        let (bytes, data_start) = (cursor.length(), cursor.at().next_multiple_of(u64::from(alignment)));
        place_tensors(&mut tensors, data_start, bytes)
            .map_err(|(name, p)| placed(&path, || format!("tensor {}", quoted(&name)))(Fault::Wrong(p)))?;
        Ok(Shard { version, alignment, metadata, types, tensors, data_start, bytes, split })
    }
}

/// Version, number of tensors, number of keys.
fn read_header(cursor: &mut Cursor<'_>, path: &Path) -> Result<(u32, u64, u64), StorageError> {
    let field = |name: &'static str| placed(path, move || format!("header field {name:?}"));
    let wrong = |name, problem: String| Err(field(name)(Fault::Wrong(problem)));
    let mut magic = [0; 4];
    if cursor.length() == 0 {
        return wrong("magic", "the file is empty: fetch it again".to_owned());
    }
    cursor.fill(&mut magic).map_err(field("magic"))?;
    match &magic {
        b"GGUF" => {}
        b"lmgg" | b"tjgg" | b"algg" | b"fmgg" => {
            return wrong("magic", "this is a model file from before GGUF: convert the model anew".to_owned());
        }
        _ => return wrong("magic", format!("the file begins with {magic:02x?}, not \"GGUF\": it is no GGUF file")),
    }
    let version = cursor.u32().map_err(field("version"))?;
    match version {
        2 | 3 => {}
        0 => return wrong("version", "version 0 does not exist: the file is damaged".to_owned()),
        1 => return wrong("version", "version 1 is not supported: convert the model anew".to_owned()),
        v if v & 0xFFFF == 0 => {
            return wrong("version", "the file is big-endian: convert the model anew, as little-endian".to_owned());
        }
        v => return wrong("version", format!("version {v} is not known (2 and 3 are): use a newer luce-actors")),
    }
    let tensors = cursor.u64().map_err(field("tensor count"))?;
    let keys = cursor.u64().map_err(field("metadata count"))?;
    if tensors > TENSORS_MAX {
        return wrong("tensor count", format!("{tensors} tensors are more than the limit of {TENSORS_MAX}"));
    }
    if keys > KEYS_MAX {
        return wrong("metadata count", format!("{keys} keys are more than the limit of {KEYS_MAX}"));
    }
    let needed = keys * KEY_ENTRY_BYTES_MIN + tensors * TENSOR_ENTRY_BYTES_MIN;
    let what = format!("a list of {keys} keys and {tensors} tensors");
    cursor.need(Some(needed), &what).map_err(field("tensor count"))?;
    Ok((version, tensors, keys))
}

type Metadata = (BTreeMap<String, MetaValue>, BTreeMap<String, ValueType>);

fn read_metadata(cursor: &mut Cursor<'_>, path: &Path, count: u64) -> Result<Metadata, StorageError> {
    let mut metadata = BTreeMap::new();
    let mut types = BTreeMap::new();
    for i in 0..count {
        let entry = || format!("metadata entry {} of {count}", i + 1);
        let key = cursor.string(KEY_BYTES_MAX, "its key").map_err(placed(path, entry))?;
        let place = || format!("metadata key {}", quoted(&key));
        let (value, kind) = value::read(cursor).map_err(placed(path, place))?;
        match metadata.entry(key.clone()) {
            Entry::Vacant(free) => free.insert(value),
            Entry::Occupied(_) => return Err(placed(path, place)(Fault::Wrong("the key appears twice".to_owned()))),
        };
        types.insert(key, kind);
    }
    Ok((metadata, types))
}

fn alignment(metadata: &BTreeMap<String, MetaValue>, types: &BTreeMap<String, ValueType>) -> Result<u32, String> {
    let Some(value) = metadata.get(ALIGNMENT_KEY) else { return Ok(ALIGNMENT_DEFAULT) };
    match (value, types.get(ALIGNMENT_KEY)) {
        (MetaValue::Unsigned(n), Some(ValueType::U32)) if n.is_power_of_two() => {
            u32::try_from(*n).map_err(|_| format!("{n} is not a u32"))
        }
        (MetaValue::Unsigned(n), Some(ValueType::U32)) => Err(format!("{n} is not a power of two")),
        (_, kind) => {
            let array = if value.as_array().is_some() { "an array of " } else { "" };
            let kind = kind.map_or("unknown", |k| k.name());
            Err(format!("the value must be a u32, but it is {array}{kind}"))
        }
    }
}

fn split(metadata: &BTreeMap<String, MetaValue>) -> Result<Option<SplitInfo>, (&'static str, String)> {
    let number = |key: &'static str, most: u64| match metadata.get(key) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(n) if n <= most => Ok(Some(n)),
            _ => Err((key, format!("the value must be a whole number from 0 to {most}"))),
        },
    };
    let most = u64::from(u16::MAX);
    let (no, count) = (number("split.no", most)?, number("split.count", most)?);
    let tensors = number("split.tensors.count", i64::MAX as u64)?;
    match (no, count) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(("split.count", "the key is missing although \"split.no\" is there".to_owned())),
        // Tools that merge a split model leave a count of 0 behind.
        (_, Some(0)) => Ok(Some(SplitInfo::default())),
        (None, Some(1)) => Ok(Some(SplitInfo { no: 0, count: 1, tensors })),
        (None, Some(_)) => Err(("split.no", "the key is missing although \"split.count\" is there".to_owned())),
        (Some(no), Some(count)) if no >= count => {
            Err(("split.no", format!("{no} is not below \"split.count\", which is {count} (the first file has 0)")))
        }
        (Some(no), Some(count)) => Ok(Some(SplitInfo { no: no as u16, count: count as u16, tensors })),
    }
}

/// The directory; offsets are still relative to the data section.
fn read_directory(
    cursor: &mut Cursor<'_>,
    path: &Path,
    count: u64,
    alignment: u32,
) -> Result<Vec<TensorInfo>, StorageError> {
    // `count` entries of 24 bytes are known to be there at most; real entries are about 100 bytes here and in memory.
    let mut tensors: Vec<TensorInfo> = Vec::with_capacity(count.min(cursor.left() / 64) as usize);
    let mut names = HashSet::new();
    for i in 0..count {
        let entry = || format!("tensor {} of {count}", i + 1);
        let name = cursor.string(TENSOR_NAME_BYTES_MAX, "its name").map_err(placed(path, entry))?;
        let place = || format!("tensor {}", quoted(&name));
        let (dtype, dims, offset, bytes) = read_tensor(cursor, alignment).map_err(placed(path, place))?;
        if !names.insert(name.clone()) {
            return Err(placed(path, place)(Fault::Wrong("the name appears twice".to_owned())));
        }
        tensors.push(TensorInfo { name, dtype, dims, shard: 0, offset, bytes });
    }
    Ok(tensors)
}

/// One entry behind its name: type, dimensions, offset in the data section, length.
fn read_tensor(cursor: &mut Cursor<'_>, alignment: u32) -> Result<(DType, Vec<u64>, u64, u64), Fault> {
    let wrong = |problem: String| Err(Fault::Wrong(problem));
    let n_dims = cursor.u32()?;
    if n_dims > 4 {
        return wrong(format!("it has {n_dims} dimensions; at most 4 are allowed"));
    }
    let mut dims = Vec::with_capacity(4);
    for _ in 0..n_dims {
        dims.push(cursor.u64()?);
    }
    if dims.is_empty() {
        dims.push(1);
    }
    let dtype = DType::from_id(cursor.u32()?).map_err(|e| Fault::Wrong(e.to_string()))?;
    let offset = cursor.u64()?;
    let bytes = tensor_bytes(dtype, &dims).map_err(Fault::Wrong)?;
    if !offset.is_multiple_of(u64::from(alignment)) {
        return wrong(format!("offset {offset} is not a multiple of the alignment {alignment}"));
    }
    Ok((dtype, dims, offset, bytes))
}

/// Length of a tensor of 1 to 4 dimensions.
pub(crate) fn tensor_bytes(dtype: DType, dims: &[u64]) -> Result<u64, String> {
    for (i, &d) in dims.iter().enumerate() {
        if d == 0 || d > i64::MAX as u64 {
            let seen = if d == 0 { "0".to_owned() } else { (d as i64).to_string() };
            return Err(format!("dimension {i} is {seen}; it must be at least 1"));
        }
    }
    let values = dims.iter().try_fold(1u64, |a, &d| a.checked_mul(d)).filter(|&n| n <= i64::MAX as u64);
    if values.is_none() {
        return Err(format!("dimensions {dims:?} multiply to more than 63 bits"));
    }
    let row = dims.first().copied().unwrap_or(1);
    if !row.is_multiple_of(dtype.block_values() as u64) {
        return Err(format!(
            "rows of {row} values are not whole blocks of {dtype}, which has {}",
            dtype.block_values()
        ));
    }
    let rows = dims.iter().skip(1).product::<u64>(); // a divisor of `values`
    let bytes = dtype.row_bytes(row).and_then(|b| b.checked_mul(rows));
    bytes.ok_or_else(|| format!("dimensions {dims:?} of {dtype} take more than 64 bits of bytes"))
}

/// Makes offsets count from the start of the file, and checks that all extents lie inside it and apart.
fn place_tensors(tensors: &mut [TensorInfo], data_start: u64, length: u64) -> Result<(), (String, String)> {
    for t in tensors.iter_mut() {
        let offset = t.offset;
        let end = data_start.checked_add(offset).and_then(|start| start.checked_add(t.bytes));
        if end.is_none_or(|end| end > length) {
            let missing = match end {
                Some(end) => format!("{} bytes more than the file has", end - length),
                None => "beyond 64 bits".to_owned(),
            };
            let problem = format!(
                "its {} bytes at offset {offset} of the data (which begins at {data_start}) end {missing}: \
                 the file is cut off or damaged, fetch it again",
                t.bytes
            );
            return Err((t.name.clone(), problem));
        }
        t.offset += data_start;
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_unstable_by_key(|t| t.offset);
    for pair in order.windows(2) {
        if pair[0].offset + pair[0].bytes > pair[1].offset {
            let problem = format!("its bytes overlap those of tensor {}", quoted(&pair[0].name));
            return Err((pair[1].name.clone(), problem));
        }
    }
    Ok(())
}

//! Writing GGUF files: for tests and tools that make small models, or change one and write it again. Tensor data is held
//! in memory; for whole checkpoints a streaming converter is the right tool.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use luce_core::{DType, MetaArray, MetaValue};

use crate::error::quoted;
use crate::gguf::{ALIGNMENT_DEFAULT, ALIGNMENT_KEY, ARRAY_ID, KEY_BYTES_MAX, TENSOR_NAME_BYTES_MAX, tensor_bytes};
use crate::{BlockStore, FileStore, Gguf, StorageError, ValueType};

/// A metadata value and how wide it is to be in the file.
#[derive(Clone, PartialEq, Debug)]
pub struct TypedValue {
    /// The value.
    pub value: MetaValue,
    /// Its type; for an array that of its elements.
    pub kind: ValueType,
}

impl TypedValue {
    /// `value` as `kind`; whether it fits is checked when the file is written.
    pub fn new(kind: ValueType, value: MetaValue) -> TypedValue {
        TypedValue { value, kind }
    }
}

/// The narrowest usual type that keeps the value: 32 bits where they suffice, else 64.
impl From<MetaValue> for TypedValue {
    fn from(value: MetaValue) -> TypedValue {
        let unsigned = |v: &u64| if u32::try_from(*v).is_ok() { ValueType::U32 } else { ValueType::U64 };
        let signed = |v: &i64| if i32::try_from(*v).is_ok() { ValueType::I32 } else { ValueType::I64 };
        let float = |v: &f64| if v.is_nan() || f64::from(*v as f32) == *v { ValueType::F32 } else { ValueType::F64 };
        let kind = match &value {
            MetaValue::Unsigned(v) => unsigned(v),
            MetaValue::Signed(v) => signed(v),
            MetaValue::Float(v) => float(v),
            MetaValue::Bool(_) | MetaValue::Array(MetaArray::Bool(_)) => ValueType::Bool,
            MetaValue::String(_) | MetaValue::Array(MetaArray::String(_)) => ValueType::String,
            MetaValue::Array(MetaArray::U8(_)) => ValueType::U8,
            // The widest that any element needs; the 64-bit forms have the larger ids.
            MetaValue::Array(MetaArray::Unsigned(v)) => v.iter().map(unsigned).max().unwrap_or(ValueType::U32),
            MetaValue::Array(MetaArray::Signed(v)) => v.iter().map(signed).max().unwrap_or(ValueType::I32),
            MetaValue::Array(MetaArray::Float(v)) => v.iter().map(float).max().unwrap_or(ValueType::F32),
        };
        TypedValue { value, kind }
    }
}

macro_rules! typed_from {
    ($($rust:ty, $kind:ident, $variant:ident($wide:ty), $array:ident;)*) => {$(
        impl From<$rust> for TypedValue {
            fn from(v: $rust) -> TypedValue {
                TypedValue { value: MetaValue::$variant(<$wide>::from(v)), kind: ValueType::$kind }
            }
        }

        impl From<Vec<$rust>> for TypedValue {
            fn from(v: Vec<$rust>) -> TypedValue {
                let array = MetaArray::$array(v.into_iter().map(|x| x.into()).collect());
                TypedValue { value: MetaValue::Array(array), kind: ValueType::$kind }
            }
        }
    )*};
}

typed_from! {
    u8, U8, Unsigned(u64), U8;
    i8, I8, Signed(i64), Signed;
    u16, U16, Unsigned(u64), Unsigned;
    i16, I16, Signed(i64), Signed;
    u32, U32, Unsigned(u64), Unsigned;
    i32, I32, Signed(i64), Signed;
    u64, U64, Unsigned(u64), Unsigned;
    i64, I64, Signed(i64), Signed;
    f32, F32, Float(f64), Float;
    f64, F64, Float(f64), Float;
    bool, Bool, Bool(bool), Bool;
    &str, String, String(String), String;
    String, String, String(String), String;
}

/// A tensor to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteTensor {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, innermost first, 1 to 4 of them.
    pub dims: Vec<u64>,
    /// Exactly the bytes that type and dimensions take.
    pub data: Vec<u8>,
}

/// A GGUF file in the making. Keys are written in alphabetical order, tensors in the order given.
///
/// ```
/// use luce_core::DType;
/// use luce_storage::{Gguf, GgufWriter, MemoryStore};
///
/// let mut w = GgufWriter::new();
/// w.set("general.architecture", "deepseek41").set("deepseek41.block_count", 2u32);
/// w.tensor("a.weight", DType::F32, &[2], 1.5f32.to_le_bytes().repeat(2));
/// let model = Gguf::from_stores(vec![std::sync::Arc::new(MemoryStore::new("tiny.gguf", w.to_bytes()?))])?;
/// assert_eq!(model.catalog().get("deepseek41.block_count").and_then(|v| v.as_u64()), Some(2));
/// # Ok::<(), luce_storage::StorageError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct GgufWriter {
    /// Format version, 2 or 3.
    pub version: u32,
    /// Metadata. `general.alignment`, where present, also sets the alignment; it must be a u32.
    pub metadata: BTreeMap<String, TypedValue>,
    /// Tensors.
    pub tensors: Vec<WriteTensor>,
}

impl Default for GgufWriter {
    fn default() -> GgufWriter {
        GgufWriter { version: 3, metadata: BTreeMap::new(), tensors: Vec::new() }
    }
}

impl GgufWriter {
    /// An empty file of version 3.
    pub fn new() -> GgufWriter {
        GgufWriter::default()
    }

    /// All of an opened model, read into memory, with the value types of its file. A split model becomes one file: the
    /// `split.` keys are left out.
    ///
    /// # Errors
    /// As [`Gguf::read_tensor`].
    pub fn from_gguf(model: &Gguf) -> Result<GgufWriter, StorageError> {
        let mut metadata = BTreeMap::new();
        for (key, value) in model.catalog().metadata.iter().filter(|(key, _)| !key.starts_with("split.")) {
            let typed = match model.types().get(key) {
                Some(&kind) => TypedValue { value: value.clone(), kind },
                None => TypedValue::from(value.clone()),
            };
            metadata.insert(key.clone(), typed);
        }
        let mut order: Vec<_> = model.catalog().tensors.values().collect();
        order.sort_by_key(|t| (t.shard, t.offset));
        let mut tensors = Vec::with_capacity(order.len());
        for info in order {
            let mut data = vec![0; info.bytes as usize];
            model.read_tensor(info, 0, &mut data)?;
            tensors.push(WriteTensor { name: info.name.clone(), dtype: info.dtype, dims: info.dims.clone(), data });
        }
        let version = model.files().first().map_or(3, |f| f.version);
        Ok(GgufWriter { version, metadata, tensors })
    }

    /// Sets a key, in place of what it had.
    pub fn set(&mut self, key: &str, value: impl Into<TypedValue>) -> &mut GgufWriter {
        self.metadata.insert(key.to_owned(), value.into());
        self
    }

    /// Takes a key out; `None` if it is not there.
    pub fn remove(&mut self, key: &str) -> Option<TypedValue> {
        self.metadata.remove(key)
    }

    /// Gives every key the name that `rename` returns; `None` takes it out. Of two keys with equal new names the
    /// alphabetically later one stays.
    pub fn rename_keys(&mut self, mut rename: impl FnMut(&str) -> Option<String>) -> &mut GgufWriter {
        let old = std::mem::take(&mut self.metadata);
        self.metadata = old.into_iter().filter_map(|(key, value)| Some((rename(&key)?, value))).collect();
        self
    }

    /// Gives every tensor the name that `rename` returns; `None` takes it out.
    pub fn rename_tensors(&mut self, mut rename: impl FnMut(&str) -> Option<String>) -> &mut GgufWriter {
        self.tensors.retain_mut(|t| match rename(&t.name) {
            Some(name) => {
                t.name = name;
                true
            }
            None => false,
        });
        self
    }

    /// Appends a tensor.
    pub fn tensor(&mut self, name: &str, dtype: DType, dims: &[u64], data: Vec<u8>) -> &mut GgufWriter {
        self.tensors.push(WriteTensor { name: name.to_owned(), dtype, dims: dims.to_vec(), data });
        self
    }

    /// The tensor called `name`.
    pub fn tensor_mut(&mut self, name: &str) -> Option<&mut WriteTensor> {
        self.tensors.iter_mut().find(|t| t.name == name)
    }

    /// Aligns tensor data to `bytes` and says so in the metadata.
    pub fn set_alignment(&mut self, bytes: u32) -> &mut GgufWriter {
        self.set(ALIGNMENT_KEY, bytes)
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// [`StorageError::Write`] naming the key, tensor or setting that a reader would refuse.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StorageError> {
        if !(2..=3).contains(&self.version) {
            return Err(refuse("version".to_owned(), format!("{} is neither 2 nor 3", self.version)));
        }
        let alignment = self.alignment()?;
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, typed) in &self.metadata {
            let place = || format!("metadata key {}", quoted(key));
            if key.len() as u64 > KEY_BYTES_MAX {
                return Err(refuse(place(), format!("a key has at most {KEY_BYTES_MAX} bytes")));
            }
            put_text(&mut out, key);
            put_value(&mut out, typed).map_err(|problem| refuse(place(), problem))?;
        }
        let mut names = HashSet::new();
        let mut offset = 0;
        for tensor in &self.tensors {
            let place = || format!("tensor {}", quoted(&tensor.name));
            check_tensor(tensor).map_err(|problem| refuse(place(), problem))?;
            if !names.insert(&tensor.name) {
                return Err(refuse(place(), "the name appears twice".to_owned()));
            }
            put_text(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            out.extend(tensor.dims.iter().flat_map(|d| d.to_le_bytes()));
            out.extend(tensor.dtype.id().to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset = (offset + tensor.data.len()).next_multiple_of(alignment);
        }
        out.resize(out.len().next_multiple_of(alignment), 0);
        let data_start = out.len();
        for tensor in &self.tensors {
            out.extend(&tensor.data);
            out.resize(data_start + (out.len() - data_start).next_multiple_of(alignment), 0);
        }
        Ok(out)
    }

    /// Writes the file: under another name first, so that `path` never holds half a file.
    ///
    /// # Errors
    /// As [`GgufWriter::to_bytes`]; [`StorageError::Io`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), StorageError> {
        let path = path.as_ref();
        let name = path.file_name().and_then(|n| n.to_str()).ok_or_else(|| StorageError::BadName {
            path: path.to_owned(),
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        })?;
        let bytes = self.to_bytes()?;
        let part = path.with_file_name(format!("{name}.{}.part", std::process::id()));
        let store = FileStore::create(&part)?;
        let done = store.write_at(0, &bytes).and_then(|()| store.sync()).and_then(|()| store.rename(name));
        if done.is_err() {
            // The first error is the one to tell; when this fails too, the part's name says what it is.
            let _ = std::fs::remove_file(&part);
        }
        done
    }

    fn alignment(&self) -> Result<usize, StorageError> {
        match self.metadata.get(ALIGNMENT_KEY) {
            None => Ok(ALIGNMENT_DEFAULT as usize),
            Some(TypedValue { value: MetaValue::Unsigned(n), kind: ValueType::U32 })
                if n.is_power_of_two() && *n <= u64::from(u32::MAX) =>
            {
                Ok(*n as usize)
            }
            Some(_) => {
                Err(refuse(format!("metadata key {ALIGNMENT_KEY:?}"), "it must be a power of two as u32".to_owned()))
            }
        }
    }
}

fn refuse(place: String, problem: String) -> StorageError {
    StorageError::Write { place, problem }
}

fn check_tensor(tensor: &WriteTensor) -> Result<(), String> {
    if tensor.name.len() as u64 > TENSOR_NAME_BYTES_MAX {
        return Err(format!("a name has at most {TENSOR_NAME_BYTES_MAX} bytes"));
    }
    if !(1..=4).contains(&tensor.dims.len()) {
        return Err(format!("it has {} dimensions; 1 to 4 are allowed", tensor.dims.len()));
    }
    let bytes = tensor_bytes(tensor.dtype, &tensor.dims)?;
    if bytes != tensor.data.len() as u64 {
        let (dtype, dims, given) = (tensor.dtype, &tensor.dims, tensor.data.len());
        return Err(format!("{dtype} of dimensions {dims:?} takes {bytes} bytes, but {given} were given"));
    }
    Ok(())
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Type id and value.
fn put_value(out: &mut Vec<u8>, typed: &TypedValue) -> Result<(), String> {
    let kind = typed.kind;
    let MetaValue::Array(array) = &typed.value else {
        out.extend(kind.id().to_le_bytes());
        return put_scalar(out, kind, &typed.value);
    };
    out.extend(ARRAY_ID.to_le_bytes());
    out.extend(kind.id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        MetaArray::U8(v) => v.iter().try_for_each(|&x| put_integer(out, kind, i128::from(x))),
        MetaArray::Unsigned(v) => v.iter().try_for_each(|&x| put_integer(out, kind, i128::from(x))),
        MetaArray::Signed(v) => v.iter().try_for_each(|&x| put_integer(out, kind, i128::from(x))),
        MetaArray::Float(v) => v.iter().try_for_each(|&x| put_float(out, kind, x)),
        MetaArray::Bool(v) => v.iter().try_for_each(|&x| put_scalar(out, kind, &MetaValue::Bool(x))),
        MetaArray::String(v) => match kind {
            ValueType::String => {
                v.iter().for_each(|x| put_text(out, x));
                Ok(())
            }
            _ => Err(format!("texts cannot be stored as {}", kind.name())),
        },
    }
}

fn put_scalar(out: &mut Vec<u8>, kind: ValueType, value: &MetaValue) -> Result<(), String> {
    match (value, kind) {
        (MetaValue::Unsigned(v), _) => return put_integer(out, kind, i128::from(*v)),
        (MetaValue::Signed(v), _) => return put_integer(out, kind, i128::from(*v)),
        (MetaValue::Float(v), _) => return put_float(out, kind, *v),
        (MetaValue::Bool(v), ValueType::Bool) => out.push(u8::from(*v)),
        (MetaValue::String(v), ValueType::String) => put_text(out, v),
        _ => return Err(format!("the value cannot be stored as {}", kind.name())),
    }
    Ok(())
}

/// An integer in `kind`'s width; integers may change their sign type where the value fits, never their value.
fn put_integer(out: &mut Vec<u8>, kind: ValueType, v: i128) -> Result<(), String> {
    let (low, high) = match kind {
        ValueType::U8 => (0, i128::from(u8::MAX)),
        ValueType::U16 => (0, i128::from(u16::MAX)),
        ValueType::U32 => (0, i128::from(u32::MAX)),
        ValueType::U64 => (0, i128::from(u64::MAX)),
        ValueType::I8 => (i128::from(i8::MIN), i128::from(i8::MAX)),
        ValueType::I16 => (i128::from(i16::MIN), i128::from(i16::MAX)),
        ValueType::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
        ValueType::I64 => (i128::from(i64::MIN), i128::from(i64::MAX)),
        _ => return Err(format!("the integer {v} cannot be stored as {}", kind.name())),
    };
    if v < low || v > high {
        return Err(format!("{v} does not fit in {}", kind.name()));
    }
    out.extend(&v.to_le_bytes()[..kind.bytes_min() as usize]);
    Ok(())
}

fn put_float(out: &mut Vec<u8>, kind: ValueType, v: f64) -> Result<(), String> {
    match kind {
        ValueType::F32 => out.extend((v as f32).to_le_bytes()),
        ValueType::F64 => out.extend(v.to_le_bytes()),
        _ => return Err(format!("the number {v} cannot be stored as {}", kind.name())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untyped_integers_take_32_bits_where_they_suffice_and_never_lose_any() {
        let kind = |v: MetaValue| TypedValue::from(v).kind;
        assert_eq!(kind(MetaValue::Unsigned(u64::from(u32::MAX))), ValueType::U32);
        assert_eq!(kind(MetaValue::Unsigned(1 << 32)), ValueType::U64);
        assert_eq!(kind(MetaValue::Signed(i64::from(i32::MIN) - 1)), ValueType::I64);
        assert_eq!(kind(MetaValue::Array(MetaArray::Unsigned(vec![1, (1 << 53) + 1, 2]))), ValueType::U64);
        assert_eq!(kind(MetaValue::Array(MetaArray::Signed(vec![-1, 5]))), ValueType::I32);
        assert_eq!(kind(MetaValue::Float(0.1)), ValueType::F64);
        assert_eq!(kind(MetaValue::Array(MetaArray::Float(vec![0.5, 0.1]))), ValueType::F64);
    }

    #[test]
    fn what_a_reader_would_refuse_is_not_written() {
        let text = |w: &GgufWriter| w.to_bytes().unwrap_err().to_string();
        let base = GgufWriter::new();

        let mut w = base.clone();
        assert!(
            text(w.set("x.n", TypedValue::new(ValueType::U8, MetaValue::Unsigned(256))))
                .contains("\"x.n\": 256 does not fit in u8")
        );
        assert!(text(w.set("x.n", TypedValue::new(ValueType::Bool, MetaValue::Unsigned(1)))).contains("as bool"));
        assert!(text(w.set("x.n", TypedValue::new(ValueType::U8, MetaValue::String("a".into())))).contains("as u8"));
        assert!(text(base.clone().set("k".repeat(65_536).as_str(), 1u8)).contains("at most 65535 bytes"));
        assert!(text(base.clone().set_alignment(24)).contains("general.alignment"));
        assert!(text(base.clone().set("general.alignment", 32u64)).contains("general.alignment"));
        assert!(text(&GgufWriter { version: 1, ..base.clone() }).contains("version"));

        assert!(text(base.clone().tensor("t", DType::F32, &[2], vec![0; 7])).contains("takes 8 bytes, but 7"));
        assert!(text(base.clone().tensor("t", DType::Q8_0, &[33], vec![])).contains("whole blocks"));
        assert!(text(base.clone().tensor("t", DType::F32, &[0], vec![])).contains("at least 1"));
        assert!(text(base.clone().tensor("t", DType::F32, &[], vec![])).contains("0 dimensions"));
        assert!(text(base.clone().tensor(&"n".repeat(1025), DType::I8, &[1], vec![0])).contains("at most 1024"));
        assert!(
            text(base.clone().tensor("t", DType::I8, &[1], vec![0]).tensor("t", DType::I8, &[1], vec![0]))
                .contains("twice")
        );
    }
}

//! What a model file says about itself: metadata and the tensor directory, apart from where the bytes lie.
//! `luce-storage` fills it from GGUF; `luce-model` reads it.

use std::collections::BTreeMap;

use crate::DType;

/// One metadata value. Integers of every width are kept as 64 bits; how wide the writer made them is in the file only.
#[derive(Clone, PartialEq, Debug)]
pub enum MetaValue {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// f32 or f64.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// A flat array.
    Array(MetaArray),
}

/// An array of metadata values of one type.
#[derive(Clone, PartialEq, Debug)]
pub enum MetaArray {
    /// Bytes, kept narrow because side files arrive this way.
    U8(Vec<u8>),
    /// Any other unsigned integer type.
    Unsigned(Vec<u64>),
    /// Any signed integer type.
    Signed(Vec<i64>),
    /// f32 or f64.
    Float(Vec<f64>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Texts.
    String(Vec<String>),
}

impl MetaArray {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            MetaArray::U8(v) => v.len(),
            MetaArray::Unsigned(v) => v.len(),
            MetaArray::Signed(v) => v.len(),
            MetaArray::Float(v) => v.len(),
            MetaArray::Bool(v) => v.len(),
            MetaArray::String(v) => v.len(),
        }
    }

    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as unsigned 64-bit integers; `None` if one is negative or not an integer.
    pub fn to_u64s(&self) -> Option<Vec<u64>> {
        match self {
            MetaArray::U8(v) => Some(v.iter().map(|&x| u64::from(x)).collect()),
            MetaArray::Unsigned(v) => Some(v.clone()),
            MetaArray::Signed(v) => v.iter().map(|&x| u64::try_from(x).ok()).collect(),
            _ => None,
        }
    }
}

impl MetaValue {
    /// The value as an unsigned integer, whatever width and sign the writer chose; also a whole, non-negative float.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            MetaValue::Unsigned(v) => Some(*v),
            MetaValue::Signed(v) => u64::try_from(*v).ok(),
            MetaValue::Float(v) if *v >= 0.0 && v.fract() == 0.0 && *v < 2f64.powi(53) => Some(*v as u64),
            _ => None,
        }
    }

    /// The value as a float, from any number type.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            MetaValue::Unsigned(v) => Some(*v as f64),
            MetaValue::Signed(v) => Some(*v as f64),
            MetaValue::Float(v) => Some(*v),
            _ => None,
        }
    }

    /// The value as a truth value; integers 0 and 1 count.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            MetaValue::Bool(v) => Some(*v),
            MetaValue::Unsigned(v @ (0 | 1)) => Some(*v == 1),
            _ => None,
        }
    }

    /// The value as text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            MetaValue::String(v) => Some(v),
            _ => None,
        }
    }

    /// The value as an array.
    pub fn as_array(&self) -> Option<&MetaArray> {
        match self {
            MetaValue::Array(v) => Some(v),
            _ => None,
        }
    }
}

/// One tensor of a model file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorInfo {
    /// Name, such as `blk.3.attn_q_a.weight`.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, innermost (contiguous) first; 1 to 4 of them, each at least 1.
    pub dims: Vec<u64>,
    /// Shard that holds the bytes, from 0.
    pub shard: u16,
    /// Where the bytes begin, from the start of the shard's file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// Dimension `i`, 1 where the file gives fewer.
    pub fn dim(&self, i: usize) -> u64 {
        self.dims.get(i).copied().unwrap_or(1)
    }

    /// Number of values.
    pub fn values(&self) -> u64 {
        self.dims.iter().product()
    }
}

/// Metadata and tensor directory of one model (all shards together).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Catalog {
    /// Metadata of the first shard.
    pub metadata: BTreeMap<String, MetaValue>,
    /// Tensors of all shards, by name.
    pub tensors: BTreeMap<String, TensorInfo>,
}

impl Catalog {
    /// The metadata value under `key`.
    pub fn get(&self, key: &str) -> Option<&MetaValue> {
        self.metadata.get(key)
    }

    /// The tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }
}

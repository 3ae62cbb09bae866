//! Finding every role's tensor in a catalog, and saying everything that is wrong with a file at once.

use std::collections::{BTreeMap, BTreeSet};

use luce_core::{Bytes, Catalog, DType, TensorInfo};

use super::role::{Role, Storage, WeightClass};
use crate::{ModelConfig, ModelError};

/// Where every weight of a model lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WeightMap {
    tensors: BTreeMap<Role, TensorInfo>,
    ignored: Vec<Ignored>,
}

/// A tensor that no role uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ignored {
    /// Name.
    pub name: String,
    /// Why it is not needed; `None`: it is not known what it is, which deserves a warning.
    pub reason: Option<&'static str>,
}

impl WeightMap {
    /// Finds every tensor of `config` in `catalog`, under any of its spellings, and checks its shape and type.
    ///
    /// # Errors
    /// [`ModelError::Tensors`] with everything that is missing or wrong.
    pub fn resolve(config: &ModelConfig, catalog: &Catalog) -> Result<WeightMap, ModelError> {
        let mut tensors = BTreeMap::new();
        let mut problems = Vec::new();
        for role in Role::all(config) {
            match find(role, config, catalog) {
                Ok(tensor) => drop(tensors.insert(role, tensor.clone())),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(collect(problems));
        }
        let used: BTreeSet<&str> = tensors.values().map(|t| t.name.as_str()).collect();
        let ignored: Vec<Ignored> = catalog
            .tensors
            .keys()
            .filter(|name| !used.contains(name.as_str()))
            .map(|name| Ignored { reason: reason_to_ignore(name, config), name: name.clone() })
            .collect();
        Ok(WeightMap { tensors, ignored })
    }

    /// The tensor of a role, `None` where the model has no such role.
    pub fn get(&self, role: Role) -> Option<&TensorInfo> {
        self.tensors.get(&role)
    }

    /// Roles and their tensors, in the order of [`Role`].
    pub fn iter(&self) -> impl Iterator<Item = (Role, &TensorInfo)> {
        self.tensors.iter().map(|(&role, tensor)| (role, tensor))
    }

    /// Tensors that no role uses.
    pub fn ignored(&self) -> &[Ignored] {
        &self.ignored
    }

    /// Names of the tensors that nothing is known about.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.ignored.iter().filter(|i| i.reason.is_none()).map(|i| i.name.as_str())
    }

    /// Bytes in the file by what they are spent on; classes that the model lacks are absent.
    pub fn bytes_by_class(&self) -> BTreeMap<WeightClass, Bytes> {
        let mut sums: BTreeMap<WeightClass, Bytes> = BTreeMap::new();
        for (role, tensor) in self.iter() {
            sums.entry(role.class()).or_default().0 += tensor.bytes;
        }
        sums
    }
}

/// The tensor of a role, or what is wrong with it.
fn find<'a>(role: Role, config: &ModelConfig, catalog: &'a Catalog) -> Result<&'a TensorInfo, String> {
    let names = role.names();
    let mut found = names.iter().filter_map(|name| catalog.tensor(name));
    let Some(tensor) = found.next() else { return Err(format!("{} is missing", names.join(" or "))) };
    if let Some(second) = found.next() {
        return Err(format!("{} and {} are the same weight; the file must hold it once", tensor.name, second.name));
    }
    check_type(role, tensor)?;
    check_dims(role, config, tensor)?;
    Ok(tensor)
}

fn check_type(role: Role, tensor: &TensorInfo) -> Result<(), String> {
    let (name, dtype) = (&tensor.name, tensor.dtype);
    let float = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    let fail = |why: &str| Err(format!("{name} has type {dtype}; {why}"));
    match role.storage() {
        Storage::Vector if !float => fail("expected F32, F16 or BF16"),
        Storage::Ids if dtype != DType::I32 => fail("expected I32"),
        Storage::Matrix | Storage::Table if is_mix(dtype) => {
            fail("its codebooks, stored apart from the tensor, are not supported yet")
        }
        Storage::Matrix if !float && !is_quantised_weight(dtype) => fail("expected a float or a quantised weight type"),
        Storage::Table if !float && dtype != DType::I8 && !is_quantised_weight(dtype) => {
            fail("expected a float or a quantised weight type, or I8 rows")
        }
        _ => Ok(()),
    }
}

fn is_mix(dtype: DType) -> bool {
    matches!(dtype, DType::Rocmfp3Mix | DType::Rocmfp2Mix)
}

/// Types made for weights: all blocks, except those that exist for activations only.
fn is_quantised_weight(dtype: DType) -> bool {
    dtype.block_values() > 1 && !is_mix(dtype) && !matches!(dtype, DType::Q8_1 | DType::Q8K)
}

fn check_dims(role: Role, config: &ModelConfig, tensor: &TensorInfo) -> Result<(), String> {
    let mut dims = role.dims(config);
    let width = dims[0];
    let packed = role.storage() == Storage::Table && tensor.dtype == DType::I8;
    if packed {
        if !width.is_multiple_of(32) {
            return Err(format!(
                "{} has I8 rows, which need a row width that is a multiple of 32, not {width}",
                tensor.name
            ));
        }
        dims[0] += width / 32;
    }
    let (name, dtype) = (&tensor.name, tensor.dtype);
    let count = dims.len().max(tensor.dims.len());
    if (0..count).any(|i| tensor.dim(i) != dims.get(i).copied().unwrap_or(1)) {
        let packed = if packed { " (codes, then a scale for each 32)" } else { "" };
        return Err(format!("{name} has dimensions {:?}; expected {dims:?}{packed}", tensor.dims));
    }
    let row = dtype.row_bytes(dims[0]).ok_or_else(|| {
        format!("{name} has type {dtype}, whose blocks of {} do not fill its rows of {}", dtype.block_values(), dims[0])
    })?;
    let bytes = dims[1..].iter().try_fold(row, |bytes, &d| bytes.checked_mul(d));
    if bytes != Some(tensor.bytes) {
        return Err(format!("{name} has {} bytes, which is not what {dtype} and {dims:?} take", tensor.bytes));
    }
    Ok(())
}

/// The first problems in full, the others counted.
fn collect(problems: Vec<String>) -> ModelError {
    const SHOWN: usize = 10;
    let count = problems.len();
    let mut listed: Vec<String> = problems.into_iter().take(SHOWN).collect();
    if count > SHOWN {
        listed.push(format!("and {} more", count - SHOWN));
    }
    ModelError::Tensors { count, listed }
}

/// Why a text model does without this tensor, if that is known.
fn reason_to_ignore(name: &str, config: &ModelConfig) -> Option<&'static str> {
    if ["vision.", "aligner.", "mm.", "v."].iter().any(|p| name.starts_with(p)) {
        return Some("vision");
    }
    if name.starts_with("mtp.") {
        return Some("draft block");
    }
    let (layer, leaf) = name.strip_prefix("blk.")?.split_once('.')?;
    let layer: usize = layer.parse().ok()?;
    match leaf {
        _ if layer >= usize::from(config.layers) => Some("draft block"),
        "exp_probs_b_vl.bias" => Some("router bias for images"),
        "exp_probs_b.bias" if config.hash_routed(layer) => Some("router bias of a layer that routes by token"),
        _ => None,
    }
}

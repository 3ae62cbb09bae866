//! Matrix rows times activation rows: what `product` and `experts` share.
//!
//! An activation row is stored in the form that its weight type wants ([`Form`]). Weight rows are multiplied with any
//! number of activation rows; each result is one dot product in one fixed order, however the rows are cut.

use std::ops::Range;
use std::sync::OnceLock;

use luce_core::{DType, Precision};

use crate::memory::{Grid, Tensor};
use crate::quant::{self, ActFormat};
use crate::simd::{ActRows, Isa, WeightRows, matmul_rows};

/// Weight rows of an item: enough to make use of activations that are in the cache, few enough to share small matrices.
pub(super) const TILE: usize = 16;
/// Bytes of activation rows that stay in the second-level cache while a tile is multiplied with them.
const BLOCK_BYTES: usize = 192 << 10;

/// How activation rows of `width` values are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Form {
    format: ActFormat,
    width: usize,
}

impl Form {
    /// What a weight type wants at a precision.
    pub(super) fn new(weights: DType, precision: Precision, width: usize) -> Form {
        let format = match precision {
            Precision::F32 => ActFormat::F32,
            Precision::Partner => quant::partner(weights).expect("`check` has refused types without a partner"),
        };
        Form { format, width }
    }

    /// True where rows stay what they are.
    pub(super) fn is_plain(self) -> bool {
        self.format == ActFormat::F32
    }

    /// Bytes of a stored row.
    pub(super) fn row_bytes(self) -> usize {
        quant::act_bytes(self.format, self.width)
    }

    /// Values of the worker's scratch for [`multiply`].
    pub(super) fn scratch(self) -> usize {
        self.width
    }

    /// Stores a row.
    pub(super) fn store(self, x: &[f32], out: &mut [u8]) {
        quant::quantize(self.format, x, out);
    }
}

/// Where results go: activation row `row` and weight row `column` of the product give element
/// (`first_row + row`, `first_column + column`).
pub(super) struct To<'a> {
    pub(super) grid: Grid<'a>,
    pub(super) first_row: usize,
    pub(super) first_column: usize,
}

/// Weight rows `range`, counted through all planes, times `rows` stored activation rows.
///
/// # Errors
/// A weight type that cannot be multiplied.
pub(super) fn multiply(
    weight: &Tensor,
    range: Range<usize>,
    form: Form,
    rows: usize,
    acts: &[u8],
    own: &mut [f32],
    to: &To<'_>,
) -> Result<(), String> {
    // Detection builds a list; a launch allocates nothing.
    static ISA: OnceLock<Isa> = OnceLock::new();
    let isa = *ISA.get_or_init(Isa::detect);
    let stride = form.row_bytes();
    let block = (BLOCK_BYTES / stride).next_multiple_of(8).max(8);
    for first in range.clone().step_by(TILE) {
        let tile = first..range.end.min(first + TILE);
        let bytes = weight.bytes(tile.start, tile.len());
        let weights = WeightRows { dtype: weight.dtype, width: form.width, bytes, book: None };
        for begin in (0..rows).step_by(block) {
            let count = block.min(rows - begin);
            let bytes = &acts[begin * stride..][..count * stride];
            let acts = ActRows { format: form.format, rows: count, stride, bytes };
            let (row, column) = (to.first_row + begin, to.first_column + tile.start - range.start);
            let put = |w: usize, a: usize, value: f32| to.grid.put(row + a, column + w, value);
            matmul_rows(isa, weights, acts, 0..tile.len(), own, put).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

//! Rows of a weight matrix times activation rows.
//!
//! With few activation rows a weight row is read as it lies, four rows at a time so that the loads of the activations
//! are shared; with more, it is unpacked once and multiplied with four activation rows at a time. Both ways, and any
//! number of rows, give equal bits.

use std::ops::Range;

use luce_core::DType;

use super::Isa;
use super::isa::Direct;
use super::layout::{SUPER, UNIT, UnitActs, half, has_mins};
use super::unpack::Unpacked;
use super::wide;
use crate::quant::{ActFormat, MixBook, QuantError, act_bytes, can_decode, decode_row, partner};

/// From this many activation rows on, unpacking a weight row costs less than it saves.
const UNPACK_FROM: usize = 4;

/// A weight matrix, or part of one: rows one after the other.
#[derive(Clone, Copy, Debug)]
pub struct WeightRows<'a> {
    /// Element type.
    pub dtype: DType,
    /// Values in a row: whole blocks.
    pub width: usize,
    /// The rows.
    pub bytes: &'a [u8],
    /// Codebooks of the MIX types; not read for others.
    pub book: Option<&'a MixBook>,
}

/// Activation rows, stored by [`crate::quant::quantize`].
#[derive(Clone, Copy, Debug)]
pub struct ActRows<'a> {
    /// Form of the rows: F32, or the partner of the weight type.
    pub format: ActFormat,
    /// Number of rows.
    pub rows: usize,
    /// Bytes from row to row.
    pub stride: usize,
    /// The rows, with any alignment.
    pub bytes: &'a [u8],
}

/// Multiplies the weight rows `range` with all activation rows and calls `put(weight row, activation row, value)` once
/// for each pair, in no order that matters. Runs on the caller's thread and allocates nothing; a pool of threads calls
/// it with disjoint ranges. `scratch` needs `width` values, whose contents are neither read nor kept.
///
/// With format F32 (`Precision::F32`, and the partner of F32, MXFP8 and MIX weights) each weight is decoded to f32 and
/// multiplied in 32 lanes; with another format the products of codes are exact integers (see the module's text).
///
/// # Errors
/// [`QuantError`] for types that are no weights and for MIX rows without fitting codebooks.
///
/// # Panics
/// When the format is neither F32 nor the partner of the type, the width is not whole blocks, or a slice is too short.
pub fn matmul_rows(
    isa: Isa,
    weights: WeightRows<'_>,
    acts: ActRows<'_>,
    range: Range<usize>,
    scratch: &mut [f32],
    mut put: impl FnMut(usize, usize, f32),
) -> Result<(), QuantError> {
    let WeightRows { dtype, width, bytes, book } = weights;
    if !can_decode(dtype) {
        return Err(QuantError::NotWeights(dtype));
    }
    let row_bytes = dtype.row_bytes(width as u64).expect("a row is a whole number of blocks") as usize;
    let act_row = act_bytes(acts.format, width);
    assert!(range.start <= range.end && range.end * row_bytes <= bytes.len(), "weight rows {range:?}");
    assert!(
        acts.rows == 0 || acts.stride >= act_row && (acts.rows - 1) * acts.stride + act_row <= acts.bytes.len(),
        "{} activation rows of {act_row} bytes, {} apart, in {} bytes",
        acts.rows,
        acts.stride,
        acts.bytes.len()
    );
    assert!(scratch.len() >= width, "scratch of {} values for rows of {width}", scratch.len());
    let k = isa.kernels();
    let act = |i: usize| acts.bytes[i * acts.stride..][..act_row].as_ptr();
    let row = |r: usize| &bytes[r * row_bytes..][..row_bytes];
    if acts.format == ActFormat::F32 {
        for r in range {
            decode_row(dtype, row(r), &mut scratch[..width], book)?;
            for a in 0..acts.rows {
                let values = acts.bytes[a * acts.stride..][..act_row].as_chunks::<4>().0;
                put(r, a, wide::dot(&scratch[..width], values));
            }
        }
        return Ok(());
    }
    assert_eq!(Some(acts.format), partner(dtype), "activations for {dtype} weights");
    if let ActFormat::F16 | ActFormat::Bf16 = acts.format {
        let dot = if dtype == DType::F16 { k.dot_f16 } else { k.dot_bf16 };
        for r in range {
            for a in 0..acts.rows {
                // SAFETY: the machine has the instructions (see `Isa`); both rows have `width` values.
                put(r, a, unsafe { dot(row(r).as_ptr(), act(a), width) });
            }
        }
        return Ok(());
    }
    if let Some(Direct { four, one }) = (k.direct)(dtype)
        && acts.rows < UNPACK_FROM
    {
        let mut r = range.start;
        while r + 4 <= range.end {
            for a in 0..acts.rows {
                let rows = bytes[r * row_bytes..][..4 * row_bytes].as_ptr();
                // SAFETY: the machine has the instructions (see `Isa`); four rows and an activation row of `width`.
                let values = unsafe { four(rows, row_bytes, act(a), width) };
                for (i, value) in values.into_iter().enumerate() {
                    put(r + i, a, value);
                }
            }
            r += 4;
        }
        for r in r..range.end {
            for a in 0..acts.rows {
                // SAFETY: the machine has the instructions (see `Isa`); a row and an activation row of `width`.
                let [value] = unsafe { one(row(r).as_ptr(), row_bytes, act(a), width) };
                put(r, a, value);
            }
        }
        return Ok(());
    }
    for r in range {
        let mut unpacked = Unpacked::carve(scratch, width);
        // SAFETY: the machine has the instructions (see `Isa`).
        unsafe { (k.unpack)(dtype, row(r), &mut unpacked) };
        let mut a = 0;
        while a + 4 <= acts.rows {
            let rows = [act(a), act(a + 1), act(a + 2), act(a + 3)];
            // SAFETY: kernels of an `Isa`; whole rows.
            let values = unsafe { multiply(k.units4, k.supers4, &unpacked, dtype, acts.format, rows) };
            for (i, value) in values.into_iter().enumerate() {
                put(r, a + i, value);
            }
            a += 4;
        }
        for a in a..acts.rows {
            // SAFETY: kernels of an `Isa`; a whole row.
            let [value] = unsafe { multiply(k.units1, k.supers1, &unpacked, dtype, acts.format, [act(a)]) };
            put(r, a, value);
        }
    }
    Ok(())
}

/// One weight row, unpacked, times activation rows.
///
/// # Safety
/// The kernels are those of an [`Isa`]; each activation row holds as many values as the weight row.
unsafe fn multiply<const B: usize>(
    units: super::isa::UnitsFn<B>,
    supers: [super::isa::SupersFn<B>; 2],
    row: &Unpacked<'_>,
    dtype: DType,
    format: ActFormat,
    acts: [*const u8; B],
) -> [f32; B] {
    let (codes, width) = (row.codes.as_ptr(), row.codes.len());
    match format {
        // SAFETY: `row` and each activation row hold `width` values; the kernels are those of an `Isa`.
        ActFormat::Q8_0 => unsafe { units(codes, row.scales.as_ptr(), width / UNIT, acts, UnitActs::Q8_0) },
        ActFormat::Q8_1 => {
            // SAFETY: as above.
            let mut values = unsafe { units(codes, row.scales.as_ptr(), width / UNIT, acts, UnitActs::Q8_1) };
            for (value, act) in values.iter_mut().zip(acts) {
                let mut sum = 0.0f32;
                for (u, min) in row.mins.iter().enumerate() {
                    // SAFETY: unit u of the activation row; its scaled sum is the second f16.
                    let s = unsafe { act.add(u * UnitActs::Q8_1.stride + 2).cast::<[u8; 2]>().read() };
                    sum = super::math::fma(*min, half(u16::from_le_bytes(s)), sum);
                }
                *value += sum;
            }
            values
        }
        // SAFETY: as above; the width is whole blocks.
        _ => unsafe { supers[usize::from(has_mins(dtype))](codes, row.heads.as_ptr(), width / SUPER, acts) },
    }
}

/// Dot product of one weight row with one activation row in the form of the type's partner. `scratch` needs as many
/// values as the row has. For single products; matrices go through [`matmul_rows`], which gives the same bits.
///
/// # Errors
/// As [`matmul_rows`].
///
/// # Panics
/// As [`matmul_rows`].
pub fn vec_dot(isa: Isa, row: WeightRows<'_>, act: &[u8], scratch: &mut [f32]) -> Result<f32, QuantError> {
    let format = partner(row.dtype).ok_or(QuantError::NotWeights(row.dtype))?;
    let mut result = 0.0;
    let acts = ActRows { format, rows: 1, stride: act_bytes(format, row.width), bytes: act };
    matmul_rows(isa, row, acts, 0..1, scratch, |_, _, value| result = value)?;
    Ok(result)
}

//! Forms of the published checkpoints (spec/formats.md section 2.6): E4M3 matrices with one E8M0 scale per tile, packed
//! E2M1 experts, and Engram rows.
//!
//! Decoding is total: NaN codes and scale byte 255 give NaN. [`engram_row_is_valid`] is the separate check.

use super::codebook::{E2M1, E4M3, e8m0};
use super::fp::scaled_e4m3;

/// Decodes an E4M3 matrix [rows, cols] whose tiles of `tile` x `tile` values share an E8M0 scale, ragged at the right and
/// the bottom: `scales` is [ceil(rows / tile), ceil(cols / tile)]. Value = code * scale.
///
/// # Panics
/// When a length does not fit the shape or `tile` is 0.
pub fn fp8_tiled(weights: &[u8], scales: &[u8], rows: usize, cols: usize, tile: usize, out: &mut [f32]) {
    let tiles = cols.div_ceil(tile);
    assert_eq!(weights.len(), rows * cols, "codes of the matrix");
    assert_eq!(scales.len(), rows.div_ceil(tile) * tiles, "scales of the matrix");
    assert_eq!(out.len(), rows * cols, "values of the matrix");
    if cols == 0 {
        return;
    }
    for (row, (codes, out)) in weights.chunks_exact(cols).zip(out.chunks_exact_mut(cols)).enumerate() {
        let scales = &scales[row / tile * tiles..][..tiles];
        for ((codes, out), &scale) in codes.chunks(tile).zip(out.chunks_mut(tile)).zip(scales) {
            let d = e8m0(scale);
            for (out, &code) in out.iter_mut().zip(codes) {
                *out = E4M3[usize::from(code)] * d;
            }
        }
    }
}

/// Decodes packed E2M1 codes with one E8M0 scale per 32 values, any number of whole rows: byte k holds values 2k (low
/// nibble) and 2k + 1 (high nibble), unlike MXFP4.
///
/// # Panics
/// When `out` is not a multiple of 32 or another length does not fit it.
pub fn fp4_expert(weights: &[u8], scales: &[u8], out: &mut [f32]) {
    assert_eq!((weights.len() * 2, scales.len() * 32), (out.len(), out.len()), "codes and scales of the expert");
    for ((codes, &scale), out) in weights.as_chunks::<16>().0.iter().zip(scales).zip(out.as_chunks_mut::<32>().0) {
        let d = e8m0(scale);
        for (pair, &byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
            *pair = [E2M1[usize::from(byte & 15)] * d, E2M1[usize::from(byte >> 4)] * d];
        }
    }
}

/// Repacks packed E2M1 codes and their scales as MXFP4 blocks without loss: byte j of a block gets code j and code j + 16.
///
/// # Panics
/// When the lengths do not fit: 16 code bytes, one scale and 17 block bytes per 32 values.
pub fn fp4_expert_to_mxfp4(weights: &[u8], scales: &[u8], out: &mut [u8]) {
    assert_eq!((weights.len(), out.len()), (scales.len() * 16, scales.len() * 17), "codes and blocks of the expert");
    for ((codes, &scale), block) in weights.as_chunks::<16>().0.iter().zip(scales).zip(out.as_chunks_mut::<17>().0) {
        block[0] = scale;
        for (pair, block) in block[1..].as_chunks_mut::<2>().0.iter_mut().enumerate() {
            // Bytes p and p + 8 hold the codes 2p, 2p + 1 and 2p + 16, 2p + 17.
            let (low, high) = (codes[pair], codes[pair + 8]);
            *block = [low & 15 | high << 4, low >> 4 | high & 0xF0];
        }
    }
}

/// Bytes of an Engram row of `width` values.
pub const fn engram_row_bytes(width: usize) -> usize {
    width + width / 32
}

/// Decodes one Engram row: `width` E4M3 codes, then `width` / 32 E8M0 scales. Value = code * scale.
///
/// # Panics
/// When `width` is no multiple of 32 or a length does not fit it.
pub fn engram_row(bytes: &[u8], width: usize, out: &mut [f32]) {
    assert!(width.is_multiple_of(32), "Engram rows are groups of 32 values");
    assert_eq!((bytes.len(), out.len()), (engram_row_bytes(width), width), "bytes and values of the Engram row");
    let (codes, scales) = bytes.split_at(width);
    scaled_e4m3(codes, scales, out);
}

/// True when an Engram row of `width` values has no NaN code and no NaN scale.
///
/// # Panics
/// When `bytes` is shorter than `width`.
pub fn engram_row_is_valid(bytes: &[u8], width: usize) -> bool {
    let (codes, scales) = bytes.split_at(width);
    // Counted rather than searched so that the loops vectorise.
    codes.iter().filter(|&&code| code & 127 == 127).count() == 0 && scales.iter().filter(|&&e| e == 255).count() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_engram_rows_decode_to_nan_where_they_are_bad_and_are_found_invalid() {
        let mut row = vec![0x38; 66];
        row[64..].fill(127);
        let mut out = vec![0.0; 64];
        engram_row(&row, 64, &mut out);
        assert_eq!(out, [1.0; 64]);
        assert!(engram_row_is_valid(&row, 64));
        for (at, nans) in [(3, 3..4), (65, 32..64)] {
            for bad in if at < 64 { [0x7F, 0xFF] } else { [255, 255] } {
                let mut row = row.clone();
                row[at] = bad;
                engram_row(&row, 64, &mut out);
                for (i, value) in out.iter().enumerate() {
                    assert_eq!(value.is_nan(), nans.contains(&i), "byte {at}, value {i}");
                }
                assert!(!engram_row_is_valid(&row, 64));
            }
        }
    }
}

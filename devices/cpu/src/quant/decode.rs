//! Decoding of weight rows to f32: the one entry, what it refuses, and the codebooks of the MIX types.

use luce_core::DType;
use thiserror::Error;

use super::float::bf16_to_f32;
use super::{fp, iq, k, plain, rocmfp};

/// What cannot be decoded.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum QuantError {
    /// A type of indices, of packed bytes, or of activations.
    #[error("type {0} holds no weights, so it cannot be decoded to f32")]
    NotWeights(DType),
    /// A MIX type without its codebook.
    #[error("type {0} needs the codebook of its tensor; load the model's MIX side file or metadata key")]
    NoCodebook(DType),
    /// A codebook of another type.
    #[error("a codebook of {got} levels was given for type {dtype}, which has {want}")]
    CodebookLevels {
        /// Type to decode.
        dtype: DType,
        /// Levels that the type has.
        want: usize,
        /// Levels that the codebook has.
        got: usize,
    },
    /// A codebook mode other than 0 (fixed) and 1 (adaptive).
    #[error("codebook mode {0} is unknown; 0 (fixed levels) and 1 (two codebooks) exist")]
    CodebookMode(u8),
    /// A codebook whose data are not two ascending lists of finite values.
    #[error("level {level} of codebook {book} is not finite or not above the one before it")]
    CodebookOrder {
        /// Codebook, 0 or 1.
        book: usize,
        /// Index of the level.
        level: usize,
    },
}

/// Levels of a tensor (or of one expert) of type [`DType::Rocmfp3Mix`] or [`DType::Rocmfp2Mix`]; they travel outside the
/// blocks (spec/formats.md section 2.5).
#[derive(Clone, PartialEq, Debug)]
pub struct MixBook {
    /// 0: the fixed levels of the type without MIX; 1: two codebooks, chosen by bit 7 of each scale byte.
    mode: u8,
    /// Levels of a codebook: 8 or 4.
    levels: usize,
    /// The codebooks; levels beyond `levels` are 0.
    books: [[f32; 8]; 2],
}

impl MixBook {
    /// Codebooks of type `dtype` from their file form: two lists of 8 (type 105) or 4 (type 106) BF16 values.
    ///
    /// # Errors
    /// [`QuantError`] when the type has no codebooks, the mode is unknown, the number of values is wrong, or a list is
    /// not finite and strictly ascending.
    pub fn from_bf16(dtype: DType, mode: u8, values: &[u16]) -> Result<MixBook, QuantError> {
        let levels = Self::levels_of(dtype).ok_or(QuantError::NotWeights(dtype))?;
        if mode > 1 {
            return Err(QuantError::CodebookMode(mode));
        }
        if values.len() != 2 * levels {
            return Err(QuantError::CodebookLevels { dtype, want: levels, got: values.len() / 2 });
        }
        let mut books = [[0.0; 8]; 2];
        for (book, (to, from)) in books.iter_mut().zip(values.chunks(levels)).enumerate() {
            for (level, &bits) in from.iter().enumerate() {
                let value = bf16_to_f32(bits);
                if !value.is_finite() || level > 0 && value <= to[level - 1] {
                    return Err(QuantError::CodebookOrder { book, level });
                }
                to[level] = value;
            }
        }
        Ok(MixBook { mode, levels, books })
    }

    /// Levels per codebook of a type; `None` for types without codebooks.
    pub fn levels_of(dtype: DType) -> Option<usize> {
        match dtype {
            DType::Rocmfp3Mix => Some(8),
            DType::Rocmfp2Mix => Some(4),
            _ => None,
        }
    }

    /// 0 (fixed levels) or 1 (two codebooks).
    pub fn mode(&self) -> u8 {
        self.mode
    }

    /// The two codebooks; a type with 4 levels uses the first 4 of each.
    pub fn books(&self) -> &[[f32; 8]; 2] {
        &self.books
    }

    fn check(book: Option<&MixBook>, dtype: DType, want: usize) -> Result<&MixBook, QuantError> {
        let book = book.ok_or(QuantError::NoCodebook(dtype))?;
        if book.levels != want {
            return Err(QuantError::CodebookLevels { dtype, want, got: book.levels });
        }
        Ok(book)
    }
}

/// True for the types that [`decode_row`] decodes: all weight types. The MIX types also need a [`MixBook`].
pub fn can_decode(dtype: DType) -> bool {
    super::partner(dtype).is_some()
}

/// Decodes a row (any whole number of blocks) of type `dtype` to f32. Total: every byte pattern of a legal length gives
/// values, some of them NaN or infinite when the scales say so.
///
/// `book` is read for the two MIX types only.
///
/// # Errors
/// [`QuantError::NotWeights`] unless [`can_decode`]; the codebook errors for the MIX types.
///
/// # Panics
/// When `out` is not a whole number of blocks or `bytes` is not as long as `out` demands.
pub fn decode_row(dtype: DType, bytes: &[u8], out: &mut [f32], book: Option<&MixBook>) -> Result<(), QuantError> {
    let expected = dtype.row_bytes(out.len() as u64);
    assert_eq!(expected, Some(bytes.len() as u64), "bytes of a {dtype} row of {} values", out.len());
    match dtype {
        DType::F32 => plain::f32(bytes, out),
        DType::F16 => plain::f16(bytes, out),
        DType::Bf16 => plain::bf16(bytes, out),
        DType::Q4_0 => plain::q4_0(bytes, out),
        DType::Q4_1 => plain::q4_1(bytes, out),
        DType::Q5_0 => plain::q5_0(bytes, out),
        DType::Q5_1 => plain::q5_1(bytes, out),
        DType::Q8_0 => plain::q8_0(bytes, out),
        DType::Iq4Nl => plain::iq4_nl(bytes, out),
        DType::Q2K => k::q2_k(bytes, out),
        DType::Q3K => k::q3_k(bytes, out),
        DType::Q4K => k::q4_k(bytes, out),
        DType::Q5K => k::q5_k(bytes, out),
        DType::Q6K => k::q6_k(bytes, out),
        DType::Iq2Xxs => iq::iq2_xxs(bytes, out),
        DType::Iq2Xs => iq::iq2_xs(bytes, out),
        DType::Iq2S => iq::iq2_s(bytes, out),
        DType::Iq3Xxs => iq::iq3_xxs(bytes, out),
        DType::Iq3S => iq::iq3_s(bytes, out),
        DType::Iq1S => iq::iq1_s(bytes, out),
        DType::Iq1M => iq::iq1_m(bytes, out),
        DType::Iq4Xs => iq::iq4_xs(bytes, out),
        DType::Mxfp4 => fp::mxfp4(bytes, out),
        DType::Nvfp4 => fp::nvfp4(bytes, out),
        DType::Mxfp8 => fp::mxfp8(bytes, out),
        DType::Rocmfp4 => rocmfp::fp4(bytes, out),
        DType::Rocmfp4Fast => rocmfp::fp4_fast(bytes, out),
        DType::Rocmfp6 => rocmfp::fp6(bytes, out),
        DType::Rocmfp8 => rocmfp::fp8(bytes, out),
        DType::Rocmfp3 => rocmfp::fp3(bytes, out),
        DType::Rocmfp2 => rocmfp::fp2(bytes, out),
        DType::Rocmfp3Mix => rocmfp::fp3_mix(bytes, out, MixBook::check(book, dtype, 8)?),
        DType::Rocmfp2Mix => rocmfp::fp2_mix(bytes, out, MixBook::check(book, dtype, 4)?),
        DType::Q8_1 | DType::Q8K | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 => {
            return Err(QuantError::NotWeights(dtype));
        }
    }
    Ok(())
}

/// Calls `decode` with each block of `B` bytes and the `V` values it holds.
#[inline(always)]
pub(super) fn each_block<const B: usize, const V: usize>(
    bytes: &[u8],
    out: &mut [f32],
    mut decode: impl FnMut(&[u8; B], &mut [f32; V]),
) {
    for (block, values) in bytes.as_chunks::<B>().0.iter().zip(out.as_chunks_mut::<V>().0) {
        decode(block, values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codebooks_that_are_not_ascending_or_not_finite_are_refused() {
        let ascending = [0xBF80u16, 0, 0x3F80, 0x4000];
        let build = |values: &[u16]| MixBook::from_bf16(DType::Rocmfp2Mix, 1, values);
        let with = |at: usize, bits: u16| {
            let mut values = [ascending, ascending].concat();
            values[at] = bits;
            build(&values)
        };
        assert_eq!(build(&[ascending, ascending].concat()).unwrap().books()[1][..4], [-1.0, 0.0, 1.0, 2.0]);
        assert_eq!(with(6, 0), Err(QuantError::CodebookOrder { book: 1, level: 2 }));
        for not_finite in [0x7FC0, 0xFFC0, 0x7F80, 0xFF80] {
            assert_eq!(with(0, not_finite), Err(QuantError::CodebookOrder { book: 0, level: 0 }));
            assert!(with(3, not_finite).is_err());
        }
        assert_eq!(build(&ascending), Err(QuantError::CodebookLevels { dtype: DType::Rocmfp2Mix, want: 4, got: 2 }));
        assert_eq!(MixBook::from_bf16(DType::Rocmfp2Mix, 2, &[0; 8]), Err(QuantError::CodebookMode(2)));
        assert_eq!(MixBook::from_bf16(DType::Rocmfp2, 1, &[0; 8]), Err(QuantError::NotWeights(DType::Rocmfp2)));
    }

    #[test]
    fn a_mix_row_without_its_own_codebook_is_refused() {
        let values: Vec<u16> = (0..8).chain(0..8).collect();
        let book = MixBook::from_bf16(DType::Rocmfp3Mix, 1, &values).unwrap();
        let mut out = [0.0; 32];
        assert!(decode_row(DType::Rocmfp3Mix, &[0; 14], &mut out, Some(&book)).is_ok());
        assert_eq!(
            decode_row(DType::Rocmfp3Mix, &[0; 14], &mut out, None),
            Err(QuantError::NoCodebook(DType::Rocmfp3Mix))
        );
        assert_eq!(
            decode_row(DType::Rocmfp2Mix, &[0; 10], &mut out, Some(&book)),
            Err(QuantError::CodebookLevels { dtype: DType::Rocmfp2Mix, want: 4, got: 8 })
        );
    }

    #[test]
    fn the_types_said_to_be_decodable_are_those_that_decode() {
        for &dtype in DType::ALL {
            let mut out = vec![0.0; dtype.block_values()];
            let result = decode_row(dtype, &vec![0; dtype.block_bytes()], &mut out, None);
            let refused = matches!(result, Err(QuantError::NotWeights(_)));
            assert_eq!(refused, !can_decode(dtype), "{dtype}");
        }
    }
}

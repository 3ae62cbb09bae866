//! Tensor element types: every GGUF type that the engine reads, with its block geometry (spec/formats.md section 2).

use std::fmt;

macro_rules! dtypes {
    ($($id:literal $name:ident $text:literal $values:literal $bytes:literal;)*) => {
        /// The type of a tensor's elements. Values come in blocks of [`DType::block_values`] that take
        /// [`DType::block_bytes`] bytes; a row is a whole number of blocks.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum DType { $($name,)* }

        impl DType {
            /// Every type, in the order of their ids.
            pub const ALL: &'static [DType] = &[$(DType::$name,)*];

            /// The type with this GGUF id.
            ///
            /// # Errors
            /// [`UnknownDType`] for ids that are removed, reserved, ambiguous or unknown; its text says which.
            pub fn from_id(id: u32) -> Result<DType, UnknownDType> {
                match id {
                    $($id => Ok(DType::$name),)*
                    _ => Err(UnknownDType(id)),
                }
            }

            /// GGUF id.
            pub const fn id(self) -> u32 {
                match self { $(DType::$name => $id,)* }
            }

            /// Name as in `spec/formats.md`.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$name => $text,)* }
            }

            /// Values in one block.
            pub const fn block_values(self) -> usize {
                match self { $(DType::$name => $values,)* }
            }

            /// Bytes of one block.
            pub const fn block_bytes(self) -> usize {
                match self { $(DType::$name => $bytes,)* }
            }
        }
    };
}

dtypes! {
    0 F32 "F32" 1 4;
    1 F16 "F16" 1 2;
    2 Q4_0 "Q4_0" 32 18;
    3 Q4_1 "Q4_1" 32 20;
    6 Q5_0 "Q5_0" 32 22;
    7 Q5_1 "Q5_1" 32 24;
    8 Q8_0 "Q8_0" 32 34;
    9 Q8_1 "Q8_1" 32 36;
    10 Q2K "Q2_K" 256 84;
    11 Q3K "Q3_K" 256 110;
    12 Q4K "Q4_K" 256 144;
    13 Q5K "Q5_K" 256 176;
    14 Q6K "Q6_K" 256 210;
    15 Q8K "Q8_K" 256 292;
    16 Iq2Xxs "IQ2_XXS" 256 66;
    17 Iq2Xs "IQ2_XS" 256 74;
    18 Iq3Xxs "IQ3_XXS" 256 98;
    19 Iq1S "IQ1_S" 256 50;
    20 Iq4Nl "IQ4_NL" 32 18;
    21 Iq3S "IQ3_S" 256 110;
    22 Iq2S "IQ2_S" 256 82;
    23 Iq4Xs "IQ4_XS" 256 136;
    24 I8 "I8" 1 1;
    25 I16 "I16" 1 2;
    26 I32 "I32" 1 4;
    27 I64 "I64" 1 8;
    28 F64 "F64" 1 8;
    29 Iq1M "IQ1_M" 256 56;
    30 Bf16 "BF16" 1 2;
    39 Mxfp4 "MXFP4" 32 17;
    40 Nvfp4 "NVFP4" 64 36;
    100 Rocmfp4 "Q4_0_ROCMFP4" 32 18;
    101 Rocmfp4Fast "Q4_0_ROCMFP4_FAST" 32 17;
    102 Rocmfp6 "Q6_0_ROCMFPX" 32 26;
    103 Rocmfp8 "Q8_0_ROCMFPX" 32 33;
    104 Rocmfp3 "Q3_0_ROCMFPX" 32 14;
    105 Rocmfp3Mix "Q3_1_ROCMFP3_MIX" 32 14;
    106 Rocmfp2Mix "Q2_1_ROCMFP2_MIX" 32 10;
    107 Rocmfp2 "Q2_0_ROCMFP2" 32 10;
    117 Mxfp8 "MXFP8" 256 264;
}

impl DType {
    /// Bytes of a row of `values` values; `None` when the row is not a whole number of blocks or the size overflows.
    pub fn row_bytes(self, values: u64) -> Option<u64> {
        if !values.is_multiple_of(self.block_values() as u64) {
            return None;
        }
        (values / self.block_values() as u64).checked_mul(self.block_bytes() as u64)
    }

    /// The type with this name as printed by [`DType::name`].
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.iter().copied().find(|d| d.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A GGUF type id that the engine does not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownDType(pub u32);

impl fmt::Display for UnknownDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.0 {
            4 | 5 | 31..=33 | 36..=38 => "was removed from the format",
            34 | 35 | 41 => "(ternary or 1-bit) is not used by DeepSeek models",
            42 | 43 => "means different things in different programs, so it is refused",
            108..=116 => "is a research format that is not supported",
            _ => "is unknown",
        };
        write!(f, "type id {} {why}", self.0)
    }
}

impl std::error::Error for UnknownDType {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_lead_back_to_their_type() {
        for &d in DType::ALL {
            assert_eq!(DType::from_id(d.id()), Ok(d));
            assert_eq!(DType::from_name(d.name()), Some(d));
        }
        assert!(DType::from_id(42).unwrap_err().to_string().contains("different things"));
    }

    #[test]
    fn a_row_that_is_not_whole_blocks_has_no_size() {
        assert_eq!(DType::Q8_0.row_bytes(33), None);
        assert_eq!(DType::Q8_0.row_bytes(64), Some(68));
        assert_eq!(DType::F32.row_bytes(u64::MAX), None);
    }
}

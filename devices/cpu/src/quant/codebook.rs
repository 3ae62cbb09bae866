//! Codebooks and small-float tables (spec/formats.md sections 2.3 to 2.5), computed by the compiler.
//!
//! The six IQ codebooks are embedded packed: one little-endian u16 per entry, whose fields, from the low bits upward,
//! index the codebook's alphabet. Which entries exist is data of the format; there is no formula for it.

macro_rules! grid {
    ($(#[$doc:meta])* $name:ident: $element:ty, $entries:literal x $width:literal, $bits:literal bits of $alphabet:expr, $file:literal) => {
        $(#[$doc])*
        pub(crate) static $name: [[$element; $width]; $entries] = {
            const PACKED: &[u8; 2 * $entries] = include_bytes!(concat!("data/", $file));
            const ALPHABET: &[$element] = &$alphabet;
            let mut grid = [[0; $width]; $entries];
            let mut entry = 0;
            while entry < $entries {
                let packed = u16::from_le_bytes([PACKED[2 * entry], PACKED[2 * entry + 1]]);
                let mut j = 0;
                while j < $width {
                    grid[entry][j] = ALPHABET[((packed >> ($bits * j)) & ((1 << $bits) - 1)) as usize];
                    j += 1;
                }
                entry += 1;
            }
            grid
        };
    };
}

grid!(
    /// Magnitudes of IQ2_XXS, indexed by a byte.
    IQ2XXS_GRID: u8, 256 x 8, 2 bits of [8, 25, 43], "iq2xxs.u16.bin"
);
grid!(
    /// Magnitudes of IQ2_XS, 9-bit index.
    IQ2XS_GRID: u8, 512 x 8, 2 bits of [8, 25, 43], "iq2xs.u16.bin"
);
grid!(
    /// Magnitudes of IQ2_S, 10-bit index.
    IQ2S_GRID: u8, 1024 x 8, 2 bits of [8, 25, 43], "iq2s.u16.bin"
);
grid!(
    /// Magnitudes of IQ3_XXS, indexed by a byte.
    IQ3XXS_GRID: u8, 256 x 4, 4 bits of [4, 12, 20, 28, 36, 44, 52, 62], "iq3xxs.u16.bin"
);
grid!(
    /// Magnitudes of IQ3_S, 9-bit index.
    IQ3S_GRID: u8, 512 x 4, 4 bits of [1, 3, 5, 7, 9, 11, 13, 15], "iq3s.u16.bin"
);
grid!(
    /// Values of IQ1_S and IQ1_M, 11-bit index.
    IQ1S_GRID: i8, 2048 x 8, 2 bits of [-1, 0, 1], "iq1s.u16.bin"
);

/// Sign byte of a 7-bit sign index: bit k set means that value k is negative. The eighth bit makes the number of minus
/// signs even. Bits of `s` above the seventh are ignored.
#[inline]
pub(crate) const fn ksigns(s: u32) -> u8 {
    let s = s & 127;
    (s | (s.count_ones() & 1) << 7) as u8
}

/// Levels of IQ4_NL and IQ4_XS.
pub(crate) static KV: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Doubled E2M1 values: levels of MXFP4 and NVFP4, whose scales are halved. Code 8 is +0 here, -0 in E2M1.
pub(crate) static KM: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Levels of ROCMFP4. The largest is 10, not 12: it is not MXFP4 with another scale.
pub(crate) static ROCMFP4_LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 10, 0, -1, -2, -3, -4, -6, -8, -10];

/// Levels of ROCMFP3, also of the fixed mode of its MIX form.
pub(crate) static ROCMFP3_LEVELS: [i8; 8] = [0, 1, 2, 4, 0, -1, -2, -4];

/// Levels of ROCMFP2, also of the fixed mode of its MIX form.
pub(crate) static ROCMFP2_LEVELS: [i8; 4] = [-1, 0, 1, 2];

/// Levels of ROCMFP6: sign in bit 5, magnitude 0..=31.
pub(crate) static ROCMFP6_LEVELS: [i8; 64] = {
    let mut levels = [0; 64];
    let mut code = 0;
    while code < 32 {
        levels[code] = code as i8;
        levels[code + 32] = -(code as i8);
        code += 1;
    }
    levels
};

/// Values of the E2M1 codes.
pub(crate) static E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// 2^exponent as f32, for normal results.
const fn pow2(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Magnitude of a 4-bit exponent and 3-bit mantissa (`code` below 128) with bias 7, NaN code not treated.
const fn e4m3_magnitude(code: u32) -> f32 {
    let mantissa = code & 7;
    if code < 8 { mantissa as f32 * pow2(-9) } else { (8 + mantissa) as f32 * pow2((code >> 3) as i32 - 10) }
}

/// Values of the FP8 E4M3 (finite) codes; 0x7F and 0xFF are NaN.
pub(crate) static E4M3: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 128 {
        let value = if code == 127 { f32::NAN } else { e4m3_magnitude(code) };
        table[code as usize] = value;
        table[code as usize + 128] = -value;
        code += 1;
    }
    table
};

/// Scales H(e) of the ROCMFP types: half of the unsigned E4M3 value, 0 for bytes above 0x7E. NVFP4 and signed scales
/// index it with bit 7 masked off.
pub(crate) static UE4M3_HALF: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code <= 0x7E {
        table[code as usize] = e4m3_magnitude(code) * 0.5;
        code += 1;
    }
    table
};

/// 2^(e - 127), the E8M0 scale; e = 0 is the subnormal 2^-127, 255 is NaN.
#[inline]
pub(crate) const fn e8m0(e: u8) -> f32 {
    match e {
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        _ => f32::from_bits((e as u32) << 23),
    }
}

/// 2^(e - 128), half of the E8M0 scale, which goes with the doubled levels [`KM`]; 255 is NaN.
#[inline]
pub(crate) const fn e8m0_half(e: u8) -> f32 {
    match e {
        0 => f32::from_bits(0x0020_0000),
        1 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        _ => f32::from_bits((e as u32 - 1) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        let path = format!("{}/../../tests/fixtures/quants/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    fn fixture_i8(name: &str) -> Vec<i8> {
        fixture(name).into_iter().map(|b| b as i8).collect()
    }

    #[test]
    fn expanded_codebooks_equal_the_published_tables() {
        assert_eq!(IQ2XXS_GRID.as_flattened(), fixture("codebook.iq2xxs_grid.bin"));
        assert_eq!(IQ2XS_GRID.as_flattened(), fixture("codebook.iq2xs_grid.bin"));
        assert_eq!(IQ2S_GRID.as_flattened(), fixture("codebook.iq2s_grid.bin"));
        assert_eq!(IQ3XXS_GRID.as_flattened(), fixture("codebook.iq3xxs_grid.bin"));
        assert_eq!(IQ3S_GRID.as_flattened(), fixture("codebook.iq3s_grid.bin"));
        assert_eq!(IQ1S_GRID.as_flattened(), fixture_i8("codebook.iq1s_grid.bin"));
        assert_eq!((0..128).map(ksigns).collect::<Vec<_>>(), fixture("codebook.ksigns.bin"));
    }

    #[test]
    fn level_tables_equal_the_published_ones() {
        assert_eq!(KV.as_slice(), fixture_i8("codebook.kvalues_iq4nl.bin"));
        assert_eq!(KM.as_slice(), fixture_i8("codebook.kvalues_mxfp4.bin"));
        assert_eq!(ROCMFP4_LEVELS.as_slice(), fixture_i8("codebook.rocmfp4.bin"));
        assert_eq!(ROCMFP3_LEVELS.as_slice(), fixture_i8("codebook.rocmfp3.bin"));
        assert_eq!(ROCMFP2_LEVELS.as_slice(), fixture_i8("codebook.rocmfp2.bin"));
        assert_eq!(ROCMFP6_LEVELS.as_slice(), fixture_i8("codebook.rocmfp6.bin"));
    }

    #[test]
    fn small_float_tables_equal_the_published_ones_bit_for_bit() {
        let compare = |name: &str, got: &[f32]| {
            let bytes = fixture(name);
            let (want, rest) = bytes.as_chunks::<4>();
            assert!(rest.is_empty() && want.len() == got.len(), "{name}: length");
            for (code, (want, got)) in want.iter().zip(got).enumerate() {
                let want = f32::from_le_bytes(*want);
                assert!(
                    want.to_bits() == got.to_bits() || want.is_nan() && got.is_nan(),
                    "{name} code {code}: {got} instead of {want}"
                );
            }
        };
        compare("table.e4m3fn.f32.bin", &E4M3);
        compare("table.ue4m3_half.f32.bin", &UE4M3_HALF);
        compare("table.e2m1.f32.bin", &E2M1);
        let scales: Vec<f32> = (0..=255).map(e8m0).collect();
        compare("table.e8m0.f32.bin", &scales);
    }

    #[test]
    fn half_scale_is_half_the_scale_down_to_the_smallest_byte() {
        for e in 0..255u8 {
            assert_eq!(f64::from(e8m0_half(e)) * 2.0, f64::from(e8m0(e)), "scale byte {e}");
        }
        assert!(e8m0_half(255).is_nan());
    }
}

//! How blocks lie in memory for the kernels: activation blocks (spec/formats.md 3.1), unpacked weights, and tables of
//! levels and scales.

use luce_core::DType;

use crate::quant::codebook;

/// True for the 256-value types that have a minimum per group.
pub(super) const fn has_mins(weights: DType) -> bool {
    matches!(weights, DType::Q2K | DType::Q4K | DType::Q5K)
}

/// Values of a unit: the run whose lanes are summed as integers.
pub(super) const UNIT: usize = 32;
/// Values of a super-block.
pub(super) const SUPER: usize = 256;

/// Where a unit's 8-bit codes lie in an activation row: bytes from unit to unit, and bytes before the codes. The f16
/// scale is at the start.
#[derive(Clone, Copy)]
pub(super) struct UnitActs {
    pub(super) stride: usize,
    pub(super) codes_at: usize,
}

impl UnitActs {
    pub(super) const Q8_0: UnitActs = UnitActs { stride: 34, codes_at: 2 };
    pub(super) const Q8_1: UnitActs = UnitActs { stride: 36, codes_at: 4 };
}

/// Q8_K: f32 scale, 256 codes, 16 sums of 16.
pub(super) const Q8K_CODES: usize = 4;
pub(super) const Q8K_SUMS: usize = 260;
pub(super) const Q8K_BYTES: usize = 292;

/// Integer scales and minimums of a 256-value block, per group of 16, and their factors.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct Head {
    pub(super) scales: [i16; 16],
    pub(super) mins: [i16; 16],
    pub(super) d: f32,
    pub(super) dmin: f32,
}

/// f16 to f32; exact, NaN stays NaN.
#[inline(always)]
pub(super) fn half(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // Multiplying by 2^112 moves the exponent's bias, for subnormals as well; exponent 31 is set by hand.
    let value = if magnitude >= 0x0f80_0000 {
        magnitude | 0x7f80_0000
    } else {
        (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits()
    };
    f32::from_bits(sign | value)
}

/// bf16 to f32.
#[inline(always)]
pub(super) fn brain(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// 2^(e - 128): MXFP4's scale over doubled E2M1 levels. 255 is NaN.
pub(super) static E8M0_HALF: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut e = 0;
    while e < 256 {
        table[e] = codebook::e8m0_half(e as u8);
        e += 1;
    }
    table
};

/// The scale of NVFP4: bit 7 is ignored, 0x7F is 0.
pub(super) static NVFP4_SCALE: [f32; 256] = {
    let mut table = codebook::UE4M3_HALF;
    let mut e = 0x80;
    while e < 0xff {
        table[e] = table[e - 0x80];
        e += 1;
    }
    table
};

/// The scale of ROCMFP2: bit 7 negates.
pub(super) static ROCMFP2_SCALE: [f32; 256] = {
    let mut table = codebook::UE4M3_HALF;
    let mut e = 0x80;
    while e < 0x100 {
        table[e] = -table[e - 0x80];
        e += 1;
    }
    table
};

/// Levels of Q4_0.
pub(super) static Q4_LEVELS: [i8; 16] = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7];

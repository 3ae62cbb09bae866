//! MXFP4, NVFP4 and MXFP8 (spec/formats.md section 2.4).

use super::codebook::{E4M3, KM, UE4M3_HALF, e8m0, e8m0_half};
use super::decode::each_block;

pub(super) fn mxfp4(bytes: &[u8], out: &mut [f32]) {
    each_block::<17, 32>(bytes, out, |b, out| {
        let d = e8m0_half(b[0]);
        for j in 0..16 {
            out[j] = f32::from(KM[usize::from(b[1 + j] & 15)]) * d;
            out[j + 16] = f32::from(KM[usize::from(b[1 + j] >> 4)]) * d;
        }
    });
}

pub(super) fn nvfp4(bytes: &[u8], out: &mut [f32]) {
    each_block::<36, 64>(bytes, out, |b, out| {
        let (groups, _) = out.as_chunks_mut::<16>();
        for (s, out) in groups.iter_mut().enumerate() {
            let d = UE4M3_HALF[usize::from(b[s] & 127)];
            for j in 0..8 {
                let codes = b[4 + 8 * s + j];
                out[j] = f32::from(KM[usize::from(codes & 15)]) * d;
                out[j + 8] = f32::from(KM[usize::from(codes >> 4)]) * d;
            }
        }
    });
}

pub(super) fn mxfp8(bytes: &[u8], out: &mut [f32]) {
    each_block::<264, 256>(bytes, out, |b, out| {
        let (scales, codes) = b.split_at(8);
        scaled_e4m3(codes, scales, out);
    });
}

/// E4M3 codes times one E8M0 scale per 32 of them.
#[inline]
pub(super) fn scaled_e4m3(codes: &[u8], scales: &[u8], out: &mut [f32]) {
    for ((codes, &scale), out) in codes.as_chunks::<32>().0.iter().zip(scales).zip(out.as_chunks_mut::<32>().0) {
        let d = e8m0(scale);
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = E4M3[usize::from(code)] * d;
        }
    }
}

//! AVX2 and AVX-512 forms.
//!
//! Kernels are written once, as functions that are always inlined, and compiled into one wrapper per instruction set
//! ([`wrap`]). The AVX-512 form has 512-bit float dots; its quantised kernels keep 256 bits, since that is the lane layout,
//! and gain the dot-product instruction of VNNI and the additional registers.

mod float;
mod int;

use luce_core::DType;

use super::isa::{Direct, Kernels};
use super::layout::{Head, UnitActs};
use super::math;
use super::plain::{Bf16, F16, F32, axpy_steps, scale_steps};
use super::unpack::{Unpacked, unpack_steps};
use int::{Madd, Vnni};

/// Defines functions that do what their inlined bodies do, with the instructions of one set.
macro_rules! wrap {
    ($features:literal: $(fn $name:ident $([$($g:tt)*])? ($($arg:ident: $t:ty),*) $(-> $r:ty)? = $body:expr;)*) => {
        $(
            /// # Safety
            /// The processor has the instructions; pointers lead to as much data as the kernel's type says.
            #[target_feature(enable = $features)]
            unsafe fn $name $(<$($g)*>)? ($($arg: $t),*) $(-> $r)? {
                // SAFETY: passed on to the caller.
                #[allow(unused_unsafe, reason = "some bodies are safe")]
                unsafe { $body }
            }
        )*
    };
}

/// The table of one instruction set.
macro_rules! kernels {
    ($table:ident, $module:ident, $name:literal, $features:literal, $dot4:ty, $dot:ident) => {
        mod $module {
            use super::*;

            wrap! { $features:
                fn dot_f32(a: *const u8, b: *const u8, n: usize) -> f32 = float::$dot::<F32, F32>(a, b, n);
                fn dot_f16(a: *const u8, b: *const u8, n: usize) -> f32 = float::$dot::<F16, F16>(a, b, n);
                fn dot_bf16(a: *const u8, b: *const u8, n: usize) -> f32 = float::$dot::<Bf16, Bf16>(a, b, n);
                fn axpy(alpha: f32, x: &[f32], y: &mut [f32]) = axpy_steps(alpha, x, y);
                fn scale(factor: f32, x: &mut [f32]) = scale_steps(factor, x);
                fn exp(x: &mut [f32]) = math::exp_all(x);
                fn sigmoid(x: &mut [f32]) = math::sigmoid_all(x);
                fn silu(x: &mut [f32]) = math::silu_all(x);
                fn unpack(dtype: DType, row: &[u8], out: &mut Unpacked<'_>) = match dtype {
                    DType::Q4_0 => int::unpack_nibbles::<int::Q4_0>(row, out),
                    DType::Iq4Nl => int::unpack_nibbles::<int::Iq4Nl>(row, out),
                    DType::Mxfp4 => int::unpack_nibbles::<int::Mxfp4>(row, out),
                    DType::Rocmfp4 => int::unpack_nibbles::<int::Rocmfp4>(row, out),
                    DType::Rocmfp4Fast => int::unpack_nibbles::<int::Rocmfp4Fast>(row, out),
                    _ => unpack_steps(dtype, row, out),
                };
                fn units[const B: usize](
                    codes: *const i8, scales: *const [f32; 2], units: usize, acts: [*const u8; B], at: UnitActs
                ) -> [f32; B] = int::units::<$dot4, B>(codes, scales, units, acts, at);
                fn supers[const B: usize, const MINS: bool](
                    codes: *const i8, heads: *const Head, blocks: usize, acts: [*const u8; B]
                ) -> [f32; B] = int::supers::<B, MINS>(codes, heads, blocks, acts);
                fn rows[T: int::Unit, const R: usize](
                    w: *const u8, stride: usize, act: *const u8, n: usize
                ) -> [f32; R] = int::rows::<T, $dot4, R>(w, stride, act, n);
                fn super_rows[T: int::Super, const R: usize](
                    w: *const u8, stride: usize, act: *const u8, n: usize
                ) -> [f32; R] = int::super_rows::<T, R>(w, stride, act, n);
            }

            fn direct(dtype: DType) -> Option<Direct> {
                fn unit<T: int::Unit>() -> Option<Direct> {
                    Some(Direct { four: rows::<T, 4>, one: rows::<T, 1> })
                }
                fn block<T: int::Super>() -> Option<Direct> {
                    Some(Direct { four: super_rows::<T, 4>, one: super_rows::<T, 1> })
                }
                match dtype {
                    DType::Q8_0 => unit::<int::Q8_0>(),
                    DType::Rocmfp8 => unit::<int::Rocmfp8>(),
                    DType::Q4_0 => unit::<int::Q4_0>(),
                    DType::Iq4Nl => unit::<int::Iq4Nl>(),
                    DType::Mxfp4 => unit::<int::Mxfp4>(),
                    DType::Rocmfp4 => unit::<int::Rocmfp4>(),
                    DType::Rocmfp4Fast => unit::<int::Rocmfp4Fast>(),
                    DType::Q2K => block::<int::Q2K>(),
                    DType::Q4K => block::<int::Q4K>(),
                    DType::Q5K => block::<int::Q5K>(),
                    DType::Q6K => block::<int::Q6K>(),
                    _ => None,
                }
            }

            pub(in crate::simd) static TABLE: Kernels = Kernels {
                name: $name,
                dot_f32,
                dot_f16,
                dot_bf16,
                axpy,
                scale,
                exp,
                sigmoid,
                silu,
                unpack,
                units1: units::<1>,
                units4: units::<4>,
                supers1: [supers::<1, false>, supers::<1, true>],
                supers4: [supers::<4, false>, supers::<4, true>],
                direct,
            };
        }
        pub(super) use $module::TABLE as $table;
    };
}

kernels!(AVX2, avx2, "AVX2", "avx2,fma,f16c", Madd, dot);
kernels!(AVX512, avx512, "AVX-512", "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni", Vnni, dot_512);

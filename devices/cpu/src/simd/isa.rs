//! Which instruction sets there are, and the table of kernels of each.

use std::fmt;

use luce_core::DType;

use super::layout::{Head, UnitActs};
use super::math;
use super::plain::{self, Bf16, F16, F32};
use super::unpack::{Unpacked, unpack_steps};

/// A set of instructions that this machine has. Values come from [`Isa::detect`], [`Isa::portable`] and
/// [`Isa::available`] only, which is what makes calling its kernels sound.
#[derive(Clone, Copy)]
pub struct Isa(&'static Kernels);

/// Dot product of two rows of so many values.
pub(super) type DotFn = unsafe fn(*const u8, *const u8, usize) -> f32;
/// Weight rows, each so many bytes after the one before, times an activation row of so many values.
pub(super) type RowsFn<const R: usize> = unsafe fn(*const u8, usize, *const u8, usize) -> [f32; R];
/// Unpacked codes, scales and number of units times activation rows.
pub(super) type UnitsFn<const B: usize> =
    unsafe fn(*const i8, *const [f32; 2], usize, [*const u8; B], UnitActs) -> [f32; B];
/// Unpacked codes, heads and number of blocks times activation rows.
pub(super) type SupersFn<const B: usize> = unsafe fn(*const i8, *const Head, usize, [*const u8; B]) -> [f32; B];

/// A kernel that reads a type's blocks without unpacking them first, for four weight rows and for one.
#[derive(Clone, Copy)]
pub(super) struct Direct {
    pub(super) four: RowsFn<4>,
    pub(super) one: RowsFn<1>,
}

/// One form of every kernel. The functions may be called where the processor has the form's instructions, with
/// pointers to as many values as the counts say.
pub(super) struct Kernels {
    pub(super) name: &'static str,
    pub(super) dot_f32: DotFn,
    pub(super) dot_f16: DotFn,
    pub(super) dot_bf16: DotFn,
    pub(super) axpy: unsafe fn(f32, &[f32], &mut [f32]),
    pub(super) scale: unsafe fn(f32, &mut [f32]),
    pub(super) exp: unsafe fn(&mut [f32]),
    pub(super) sigmoid: unsafe fn(&mut [f32]),
    pub(super) silu: unsafe fn(&mut [f32]),
    pub(super) unpack: unsafe fn(DType, &[u8], &mut Unpacked<'_>),
    pub(super) units1: UnitsFn<1>,
    pub(super) units4: UnitsFn<4>,
    /// Without and with minimums.
    pub(super) supers1: [SupersFn<1>; 2],
    pub(super) supers4: [SupersFn<4>; 2],
    pub(super) direct: fn(DType) -> Option<Direct>,
}

pub(super) const PLAIN: Kernels = Kernels {
    name: "portable",
    dot_f32: plain::dot::<F32, F32>,
    dot_f16: plain::dot::<F16, F16>,
    dot_bf16: plain::dot::<Bf16, Bf16>,
    axpy: plain::axpy_steps,
    scale: plain::scale_steps,
    exp: math::exp_all,
    sigmoid: math::sigmoid_all,
    silu: math::silu_all,
    unpack: unpack_steps,
    units1: plain::units::<1>,
    units4: plain::units::<4>,
    supers1: [plain::supers::<1, false>, plain::supers::<1, true>],
    supers4: [plain::supers::<4, false>, plain::supers::<4, true>],
    direct: |_| None,
};

static PORTABLE: Kernels = PLAIN;

impl Isa {
    /// The best set that this machine has.
    pub fn detect() -> Isa {
        Isa::available().pop().unwrap_or(Isa::portable())
    }

    /// Plain Rust, without vector instructions beyond those of the build's target.
    pub const fn portable() -> Isa {
        Isa(&PORTABLE)
    }

    /// Every set that this machine has, the best one last.
    pub fn available() -> Vec<Isa> {
        #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), expect(unused_mut))]
        let mut all = vec![Isa::portable()];
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("fma") && has!("f16c") {
                all.push(Isa(&super::x86::AVX2));
                if has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vnni") {
                    all.push(Isa(&super::x86::AVX512));
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            all.push(Isa(&super::neon::NEON));
        }
        all
    }

    /// `portable`, `AVX2`, `AVX-512` or `NEON`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    pub(super) fn kernels(self) -> &'static Kernels {
        self.0
    }

    /// [`super::dot_f32`] in this form.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn dot_f32(self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len(), "lengths of a dot product");
        // SAFETY: the machine has the instructions (see `Isa`); both slices have `a.len()` values.
        unsafe { (self.0.dot_f32)(a.as_ptr().cast(), b.as_ptr().cast(), a.len()) }
    }

    /// [`super::axpy`] in this form.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn axpy(self, alpha: f32, x: &[f32], y: &mut [f32]) {
        assert_eq!(x.len(), y.len(), "lengths of axpy");
        // SAFETY: the machine has the instructions (see `Isa`).
        unsafe { (self.0.axpy)(alpha, x, y) }
    }

    /// [`super::scale`] in this form.
    #[inline]
    pub fn scale(self, factor: f32, x: &mut [f32]) {
        // SAFETY: the machine has the instructions (see `Isa`).
        unsafe { (self.0.scale)(factor, x) }
    }

    /// [`super::exp_slice`] in this form.
    #[inline]
    pub fn exp_slice(self, x: &mut [f32]) {
        // SAFETY: the machine has the instructions (see `Isa`).
        unsafe { (self.0.exp)(x) }
    }

    /// [`super::sigmoid_slice`] in this form.
    #[inline]
    pub fn sigmoid_slice(self, x: &mut [f32]) {
        // SAFETY: the machine has the instructions (see `Isa`).
        unsafe { (self.0.sigmoid)(x) }
    }

    /// [`super::silu_slice`] in this form.
    #[inline]
    pub fn silu_slice(self, x: &mut [f32]) {
        // SAFETY: the machine has the instructions (see `Isa`).
        unsafe { (self.0.silu)(x) }
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

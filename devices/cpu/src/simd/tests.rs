//! Every form against the plain one, the plain one against the formulas, and results against batch and range.
#![allow(clippy::unwrap_used)]

use luce_core::DType;
use proptest::prelude::*;

use super::*;
use crate::quant::{ActFormat, MixBook, act_bytes, decode_row, partner, quantize};

/// A stream of pseudo-random bytes.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = self.0;
        (x >> 29) ^ x.rotate_left(17)
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 16) as u8).collect()
    }

    /// Values of many magnitudes and both signs.
    fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n)
            .map(|_| {
                let x = self.next();
                (x as u32 as f32 / 2f32.powi(31) - 1.0) * 2f32.powi((x >> 40) as i32 % 6 - 3)
            })
            .collect()
    }
}

fn weights() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|d| partner(*d).is_some())
}

fn book(dtype: DType) -> Option<MixBook> {
    let levels = MixBook::levels_of(dtype)?;
    let values: Vec<u16> = (0..2 * levels)
        .map(|i| ((i % levels) as f32 - 1.5 + (i / levels) as f32).to_bits() >> 16)
        .map(|b| b as u16)
        .collect();
    Some(MixBook::from_bf16(dtype, 1, &values).unwrap())
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn store(format: ActFormat, x: &[f32], width: usize) -> Vec<u8> {
    let mut out = vec![0; act_bytes(format, x.len())];
    for (x, out) in x.chunks(width).zip(out.chunks_mut(act_bytes(format, width))) {
        quantize(format, x, out);
    }
    out
}

/// All products, [activation rows][weight rows].
fn product(
    isa: Isa,
    w: WeightRows<'_>,
    format: ActFormat,
    acts: &[u8],
    rows: usize,
    range: std::ops::Range<usize>,
) -> Vec<f32> {
    let stride = act_bytes(format, w.width);
    let mut scratch = vec![f32::NAN; w.width];
    let (first, count) = (range.start, range.len());
    let mut out = vec![f32::NAN; rows * count];
    let mut calls = 0;
    let acts = ActRows { format, rows, stride, bytes: acts };
    matmul_rows(isa, w, acts, range, &mut scratch, |r, a, value| {
        out[a * count + r - first] = value;
        calls += 1;
    })
    .unwrap();
    assert_eq!(calls, rows * count, "each pair once");
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_form_gives_the_bits_of_the_plain_one(seed: u64, blocks in 1usize..4, rows in 1usize..11, batch in 0usize..10) {
        let mut noise = Noise(seed);
        for dtype in weights() {
            let width = blocks * dtype.block_values().max(32) + if dtype.block_values() == 1 { blocks % 3 } else { 0 };
            let row_bytes = dtype.row_bytes(width as u64).unwrap() as usize;
            let bytes = noise.bytes(rows * row_bytes);
            let x = noise.values(batch * width);
            let book = book(dtype);
            let w = WeightRows { dtype, width, bytes: &bytes, book: book.as_ref() };
            for format in [ActFormat::F32, partner(dtype).unwrap()] {
                let acts = store(format, &x, width);
                let plain = product(Isa::portable(), w, format, &acts, batch, 0..rows);
                for isa in Isa::available() {
                    let got = product(isa, w, format, &acts, batch, 0..rows);
                    for (i, (&got, &plain)) in got.iter().zip(&plain).enumerate() {
                        prop_assert!(same(got, plain), "{dtype} {format:?} {isa:?} result {i}: {got:e} instead of {plain:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn results_do_not_depend_on_the_batch_or_on_the_range_of_rows(seed: u64, batch in 2usize..10, cut in 0usize..9) {
        let mut noise = Noise(seed);
        let (width, rows, isa) = (512, 9, Isa::detect());
        for dtype in weights() {
            let bytes = noise.bytes(rows * dtype.row_bytes(width as u64).unwrap() as usize);
            let x = noise.values(batch * width);
            let book = book(dtype);
            let w = WeightRows { dtype, width, bytes: &bytes, book: book.as_ref() };
            for format in [ActFormat::F32, partner(dtype).unwrap()] {
                let acts = store(format, &x, width);
                let whole = product(isa, w, format, &acts, batch, 0..rows);
                let (left, right) =
                    (product(isa, w, format, &acts, batch, 0..cut), product(isa, w, format, &acts, batch, cut..rows));
                for a in 0..batch {
                    let alone = product(isa, w, format, &acts[a * act_bytes(format, width)..], 1, 0..rows);
                    for r in 0..rows {
                        let part = if r < cut { left[a * cut + r] } else { right[a * (rows - cut) + r - cut] };
                        prop_assert!(same(whole[a * rows + r], alone[r]), "{dtype} {format:?} batch {batch} row {r}");
                        prop_assert!(same(whole[a * rows + r], part), "{dtype} {format:?} cut {cut} row {r}");
                    }
                }
            }
        }
    }

    #[test]
    fn float_kernels_of_every_form_give_the_same_bits_at_any_length(seed: u64, n in 0usize..200) {
        let mut noise = Noise(seed);
        let (a, b) = (noise.values(n), noise.values(n));
        let plain = Isa::portable();
        for isa in Isa::available() {
            prop_assert!(same(isa.dot_f32(&a, &b), plain.dot_f32(&a, &b)), "{isa:?}");
            type Op = fn(Isa, &[f32], &mut [f32]);
            let ops: [(&str, Op); 5] = [
                ("axpy", |isa, a, y| isa.axpy(0.37, a, y)),
                ("scale", |isa, _, y| isa.scale(0.37, y)),
                ("exp", |isa, _, y| { isa.scale(20.0, y); isa.exp_slice(y) }),
                ("sigmoid", |isa, _, y| { isa.scale(20.0, y); isa.sigmoid_slice(y) }),
                ("silu", |isa, _, y| { isa.scale(20.0, y); isa.silu_slice(y) }),
            ];
            for (name, op) in ops {
                let (mut want, mut got) = (b.clone(), b.clone());
                op(plain, &a, &mut want);
                op(isa, &a, &mut got);
                prop_assert!(want.iter().zip(&got).all(|(w, g)| same(*w, *g)), "{name} {isa:?}");
            }
        }
    }
}

/// Holds the integer forms of all types, also of those without an entry in `dots.json`, to the f32 decoder.
#[test]
fn a_quantised_dot_is_the_product_of_the_decoded_rows() {
    let mut noise = Noise(7);
    let width = 2048;
    for dtype in weights() {
        let fixture = format!(
            "{}/../../tests/fixtures/quants/{}.blocks.bin",
            env!("CARGO_MANIFEST_DIR"),
            dtype.name().to_lowercase()
        );
        let bytes = std::fs::read(&fixture).unwrap_or_else(|e| panic!("{fixture}: {e}"));
        let book = book(dtype);
        let w = WeightRows { dtype, width, bytes: &bytes, book: book.as_ref() };
        let mut values = vec![0.0; width];
        decode_row(dtype, &bytes[..dtype.row_bytes(width as u64).unwrap() as usize], &mut values, w.book).unwrap();
        let format = partner(dtype).unwrap();
        let acts = store(format, &noise.values(width), width);
        let x: Vec<f64> = match format {
            ActFormat::F32 => acts.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            ActFormat::F16 => acts.as_chunks().0.iter().map(|b| f64::from(half::f16::from_le_bytes(*b))).collect(),
            ActFormat::Bf16 => acts.as_chunks().0.iter().map(|b| f64::from(half::bf16::from_le_bytes(*b))).collect(),
            ActFormat::Q8_0 | ActFormat::Q8_1 => {
                let skip = format.block_bytes() - 32;
                let blocks = acts.chunks_exact(format.block_bytes());
                blocks
                    .flat_map(|b| {
                        let d = f64::from(half::f16::from_le_bytes([b[0], b[1]]));
                        b[skip..].iter().map(move |&q| d * f64::from(q as i8))
                    })
                    .collect()
            }
            ActFormat::Q8K => acts
                .chunks_exact(292)
                .flat_map(|b| {
                    let d = f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                    b[4..260].iter().map(move |&q| d * f64::from(q as i8))
                })
                .collect(),
        };
        let terms = values.iter().zip(&x).map(|(w, x)| f64::from(*w) * x);
        let (want, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
        // The minimums of Q4_1 and Q5_1 meet a sum that is stored as f16, rounded by up to 2^-11.
        let limit = if format == ActFormat::Q8_1 { 2e-4 } else { 2e-6 } * size;
        for isa in Isa::available() {
            let got = vec_dot(isa, w, &acts, &mut vec![0.0; width]).unwrap();
            assert!((f64::from(got) - want).abs() <= limit, "{dtype} {isa:?}: {got} instead of {want}, size {size}");
        }
    }
}

#[test]
fn exp_errs_by_less_than_1_1_ulp_over_its_whole_range() {
    let mut worst = (0.0f64, 0.0f32);
    let mut check = |x: f32| {
        let (got, want) = (exp(x), f64::from(x).exp());
        let rounded = want as f32;
        if rounded.is_infinite() || rounded == 0.0 {
            // At the very borders of overflow and underflow the neighbour is allowed.
            assert!(
                got == rounded || (x.abs() - 88.7228).abs() < 1e-3 || (x + 103.972).abs() < 1e-2,
                "exp({x}) = {got:e}"
            );
            return;
        }
        let ulp = f64::from(f32::from_bits(rounded.to_bits() + 1)) - f64::from(rounded);
        let error = (f64::from(got) - want).abs() / ulp;
        if error > worst.0 {
            worst = (error, x);
        }
    };
    let mut x = -105.0f32;
    while x < 90.0 {
        check(x);
        x += 0.00037;
    }
    for e in -40..0 {
        check(2f32.powi(e));
        check(-2f32.powi(e));
    }
    assert!(worst.0 <= 1.1, "{} ulp at {}", worst.0, worst.1);
}

#[test]
fn exp_and_its_relatives_treat_the_ends_of_the_line() {
    assert_eq!((exp(f32::INFINITY), exp(f32::NEG_INFINITY), exp(0.0), exp(-0.0)), (f32::INFINITY, 0.0, 1.0, 1.0));
    assert_eq!((exp(1e30), exp(-1e30)), (f32::INFINITY, 0.0));
    assert!(
        exp(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan() && silu(f32::NAN).is_nan() && softplus(f32::NAN).is_nan()
    );
    assert_eq!((sigmoid(f32::INFINITY), sigmoid(f32::NEG_INFINITY), sigmoid(0.0)), (1.0, 0.0, 0.5));
    assert_eq!((softplus(f32::INFINITY), softplus(f32::NEG_INFINITY), softplus(100.0)), (f32::INFINITY, 0.0, 100.0));
    assert!((softplus(-20.0) - (-20f64).exp().ln_1p() as f32).abs() < 1e-15);
    assert!(silu(f32::INFINITY) == f32::INFINITY && silu(-200.0) == 0.0);
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 88.73, -103.0, -87.4, 1e-40];
    for isa in Isa::available() {
        let mut x: Vec<f32> = special.iter().cycle().take(27).copied().collect();
        isa.exp_slice(&mut x);
        for (x, got) in special.iter().cycle().zip(x) {
            assert!(same(got, exp(*x)), "exp({x}) by {isa:?}: {got:e}");
        }
    }
}

#[test]
#[should_panic(expected = "activations for Q8_0 weights")]
fn activations_of_another_form_are_refused() {
    let w = WeightRows { dtype: DType::Q8_0, width: 256, bytes: &[0; 272], book: None };
    product(Isa::portable(), w, ActFormat::Q8K, &[0; 292], 1, 0..1);
}

#[test]
#[should_panic(expected = "weight rows 0..2")]
fn rows_past_the_end_are_refused() {
    let w = WeightRows { dtype: DType::Q8_0, width: 32, bytes: &[0; 34], book: None };
    product(Isa::portable(), w, ActFormat::Q8_0, &[0; 34], 1, 0..2);
}

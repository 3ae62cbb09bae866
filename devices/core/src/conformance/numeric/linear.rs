//! Linear and Grouped, over weights whose decoded values the suite knows.

use luce_core::{DType, Domain, Op, Precision};

use super::dot;
use crate::View;
use crate::conformance::lab::{Band, Lab, Numbers};

/// Weights of the suite are codes -127..=127 times 2^-6: exact in every type that it writes.
pub(super) const STEP: f32 = 1.0 / 64.0;

/// Codes of `n` weights.
pub(super) fn codes(numbers: &mut Numbers, n: usize) -> Vec<i8> {
    (0..n).map(|_| (numbers.below(255) as i32 - 127) as i8).collect()
}

/// Weights as f32.
pub(super) fn decoded(codes: &[i8]) -> Vec<f32> {
    codes.iter().map(|&c| f32::from(c) * STEP).collect()
}

/// Weights as the bytes of a type.
pub(super) fn encoded(dtype: DType, codes: &[i8]) -> Vec<u8> {
    match dtype {
        DType::F32 => bytemuck::cast_slice(&decoded(codes)).to_vec(),
        DType::F16 => codes.iter().flat_map(|&c| half(f32::from(c) * STEP).to_le_bytes()).collect(),
        DType::Q8_0 => codes
            .as_chunks::<32>()
            .0
            .iter()
            .flat_map(|block| half(STEP).to_le_bytes().into_iter().chain(block.iter().map(|&c| c as u8)))
            .collect(),
        _ => panic!("the suite writes no {dtype}"),
    }
}

/// f16 bits of a value that is exact and normal (or 0) in f16.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    if value == 0.0 {
        return 0;
    }
    let (sign, exponent, mantissa) = ((bits >> 16) & 0x8000, ((bits >> 23) & 0xff) as i32 - 127 + 15, bits & 0x7f_ffff);
    assert!((1..31).contains(&exponent) && mantissa.trailing_zeros() >= 13, "{value} is not exact in f16");
    (sign | (exponent as u32) << 10 | mantissa >> 13) as u16
}

/// Largest error that the form of the activations may bring into a dot product of these rows. An int8 block is off by at
/// most half a step of amax / 127 per value plus the rounding of its scale (2^-11 of the value); f16 by 2^-11 of the
/// value.
pub(super) fn partner_error(dtype: DType, x: &[f32], w: &[f32]) -> f64 {
    let each = |x: f32, amax: f32| match dtype {
        DType::F32 => 0.0,
        DType::F16 => f64::from(x.abs()) / 2048.0,
        _ => f64::from(amax) * (0.5 / 127.0 + 1.1 / 2048.0),
    };
    x.chunks(32)
        .zip(w.chunks(32))
        .map(|(x, w)| {
            let amax = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            x.iter().zip(w).map(|(&x, &w)| each(x, amax) * f64::from(w.abs())).sum::<f64>()
        })
        .sum()
}

/// A band of nine rows with five picks and some groups.
fn band() -> Band {
    Band::new(&[(0, 6, &[1, 2, 3]), (1, 0, &[4, 5]), (2, 9, &[6]), (3, 3, &[7]), (4, 1, &[8, 9])], [2, 0, 0])
}

pub(super) fn run(lab: &mut Lab) {
    // 9 x 70 x 256: large enough to be shared out, and no multiple of any tile.
    let (band, inner, outer) = (band(), 256, 70);
    let n = band.rows.len();
    let mut numbers = Numbers::new(1);
    let x = numbers.values(n * inner);
    let codes = codes(&mut numbers, outer * inner);
    let w = decoded(&codes);
    let x_view = lab.rows(inner, &x);
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        let weight = lab.tensor(dtype, [1, outer as u32, inner as u32], &encoded(dtype, &codes));
        for precision in [Precision::F32, Precision::Partner] {
            for domain in [Domain::Rows, Domain::Picks, Domain::Groups(0)] {
                let name = format!("Linear {dtype} {precision:?} {domain:?}");
                let count = match domain {
                    Domain::Rows => n,
                    Domain::Picks => band.picks.len(),
                    Domain::Groups(class) => band.groups[class as usize].len(),
                };
                let out = lab.out(DType::F32, outer);
                lab.run(&band, &[Op::Linear { x: x_view, weight, out, domain, precision }]);
                let got = lab.floats(&out, count);
                check(&name, &x[..count * inner], &w, inner, &got, dtype, precision);
                lab.case(&name);
                if domain == Domain::Rows {
                    rows_alone(lab, &name, &x, inner, &got, |x, out| Op::Linear { x, weight, out, domain, precision });
                }
            }
            grouped(lab, &band, &x, weight, &w, precision);
        }
        lab.free(&[weight]);
    }
    lab.free(&[x_view]);
    nothing_is_written_behind_the_rows(lab);
}

fn check(name: &str, x: &[f32], w: &[f32], inner: usize, got: &[f32], dtype: DType, precision: Precision) {
    let pairs: Vec<_> = x.chunks_exact(inner).flat_map(|x| w.chunks_exact(inner).map(move |w| (x, w))).collect();
    let wanted: Vec<f64> = pairs.iter().map(|(x, w)| dot(x, w)).collect();
    assert_eq!(got.len(), wanted.len());
    for (i, ((x, w), (&got, &wanted))) in pairs.iter().zip(got.iter().zip(&wanted)).enumerate() {
        // f32 accumulation: 2e-6 of the sum of magnitudes (spec/formats.md 3.2).
        let rounding = 2e-6 * x.iter().zip(*w).map(|(x, w)| f64::from((x * w).abs())).sum::<f64>();
        let form = if precision == Precision::Partner { partner_error(dtype, x, w) } else { 0.0 };
        let distance = (f64::from(got) - wanted).abs();
        assert!(distance <= rounding + form, "{name}: value {i} is {got}, {wanted} wanted, bound {}", rounding + form);
    }
}

/// Batch invariance: each row alone has the bits that it has among the others.
pub(super) fn rows_alone(
    lab: &mut Lab,
    name: &str,
    x: &[f32],
    width: usize,
    among_others: &[f32],
    op: impl Fn(View, View) -> Op<View>,
) {
    let one = Band::decode(&[0]);
    let outer = among_others.len() / (x.len() / width);
    for (row, (x, expected)) in x.chunks_exact(width).zip(among_others.chunks_exact(outer)).enumerate() {
        let (x, out) = (lab.rows(width, x), lab.out(DType::F32, outer));
        lab.run(&one, &[op(x, out)]);
        let got = lab.floats(&out, 1);
        let same = got.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{name}: row {row} alone has other bits than among {}", among_others.len() / outer);
        lab.free(&[x, out]);
    }
    lab.case(&format!("{name}, rows alone"));
}

/// Two groups of 64 inputs and 35 outputs each, from the first 64 values of each weight row's 128.
fn grouped(lab: &mut Lab, band: &Band, x: &[f32], weight: View, w: &[f32], precision: Precision) {
    let (n, inner) = (band.rows.len(), 256);
    let name = format!("Grouped {} {precision:?}", weight.dtype);
    // Each row of x twice: group 0 sees the row, group 1 the row before it.
    let wide: Vec<f32> =
        (0..n).flat_map(|r| [r, (r + n - 1) % n]).flat_map(|r| &x[r * inner..][..inner]).copied().collect();
    let (x_view, out) = (lab.rows(2 * inner, &wide), lab.out(DType::F32, 70));
    lab.run(band, &[Op::Grouped { x: x_view, weight, out, groups: 2, precision }]);
    let got = lab.floats(&out, n);
    for (row, got) in got.chunks_exact(70).enumerate() {
        for group in 0..2 {
            let x = &wide[(2 * row + group) * inner..][..inner];
            let w = &w[group * 35 * inner..][..35 * inner];
            check(&name, x, w, inner, &got[group * 35..][..35], weight.dtype, precision);
        }
    }
    lab.case(&name);
    lab.free(&[x_view, out]);
}

fn nothing_is_written_behind_the_rows(lab: &mut Lab) {
    let weight = lab.matrix(3, 2, &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let (x, out) = (lab.rows(2, &[5.0, 7.0]), lab.out(DType::F32, 3));
    lab.run(&Band::decode(&[0]), &[Op::Linear { x, weight, out, domain: Domain::Rows, precision: Precision::F32 }]);
    let got = lab.floats(&out, 2);
    assert_eq!(got[..3], [5.0, 7.0, 12.0]);
    assert!(got[3..].iter().all(|v| v.to_bits() == u32::MAX), "a row behind the band was written");
    lab.case("Linear, one row");
}

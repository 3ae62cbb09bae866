//! Operations that look at one row and nothing else.

use luce_core::{DType, Domain, Op, QuantKind, Reduce};

use super::linear::{codes, decoded, encoded, rows_alone};
use super::silu;
use crate::conformance::lab::{Band, Lab, Numbers, close};

pub(super) fn run(lab: &mut Lab) {
    embedding(lab);
    angles_and_rope(lab);
    norms(lab);
    sums(lab);
    fake_quantisation(lab);
    hadamard(lab);
    swiglu(lab);
    engram_rows(lab);
    arg_max_and_one_hot(lab);
}

fn band() -> Band {
    Band::new(&[(1, 5, &[3, 0, 6]), (0, 0, &[2, 2]), (3, 900, &[5])], [2, 3, 0])
}

fn embedding(lab: &mut Lab) {
    let band = band();
    let codes = codes(&mut Numbers::new(20), 7 * 64);
    for dtype in [DType::F32, DType::F16, DType::Q8_0] {
        let table = lab.tensor(dtype, [1, 7, 64], &encoded(dtype, &codes));
        let streams = lab.out(DType::F32, 192);
        lab.run(&band, &[Op::Embed { table, streams, copies: 3 }]);
        let got = lab.floats(&streams, band.rows.len());
        let wanted: Vec<f32> =
            band.rows.iter().flat_map(|f| decoded(&codes[f.token as usize * 64..][..64]).repeat(3)).collect();
        assert_eq!(got, wanted, "Embed {dtype}");
        lab.case(&format!("Embed {dtype}"));
    }
}

fn angles_and_rope(lab: &mut Lab) {
    let band = band();
    let n = band.rows.len();
    let freqs = [1.0, 0.37, 1.0 / 1024.0];
    let freqs_view = lab.tensor(DType::F64, [1, 1, 3], bytemuck::cast_slice(&freqs));
    let angles = |position: u32| freqs.iter().map(move |f| f64::from(position) * f);
    let domains =
        [(Domain::Rows, 1, (0..n as u32).collect::<Vec<_>>()), (Domain::Groups(1), 3, band.groups[1].clone())];
    for (domain, ratio, rows) in domains {
        let position = |row: u32| band.rows[row as usize].position + 1 - ratio;
        let out = lab.out(DType::F32, 6);
        // Three heads of ten values: the last six are rotated.
        let x = Numbers::new(21).values(rows.len() * 30);
        let (turned, back) = (lab.rows(30, &x), lab.rows(30, &x));
        lab.run(
            &band,
            &[
                Op::Angles { freqs: freqs_view, out, domain, ratio },
                Op::Rope { angles: out, x: turned, width: 10, inverse: false, domain },
                Op::Rope { angles: out, x: back, width: 10, inverse: true, domain },
            ],
        );
        let wanted: Vec<f64> =
            rows.iter().flat_map(|&r| angles(position(r)).flat_map(|a| [a.cos(), a.sin()])).collect();
        close("Angles", &lab.floats(&out, rows.len()), &wanted, 1e-7);
        for (view, sign) in [(turned, 1.0), (back, -1.0)] {
            let mut wanted: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
            for (row, x) in rows.iter().zip(wanted.chunks_exact_mut(30)) {
                for head in x.chunks_exact_mut(10) {
                    for (a, pair) in angles(position(*row)).zip(head[4..].chunks_exact_mut(2)) {
                        let ((sin, cos), [p, q]) = ((a * sign).sin_cos(), [pair[0], pair[1]]);
                        pair.copy_from_slice(&[p * cos - q * sin, p * sin + q * cos]);
                    }
                }
            }
            close("Rope", &lab.floats(&view, rows.len()), &wanted, 5e-7);
        }
        lab.case(&format!("Angles and Rope {domain:?}"));
    }
}

fn norms(lab: &mut Lab) {
    let band = band();
    let n = band.rows.len();
    let mut numbers = Numbers::new(22);
    let mut x = numbers.values(n * 80);
    x[80..160].fill(0.0);
    let weight = numbers.values(40);
    let weight_view = lab.matrix(1, 40, &weight);
    for weighted in [true, false] {
        let wanted: Vec<f64> = x
            .chunks_exact(40)
            .flat_map(|x| {
                let mean = super::dot(x, x) / 40.0;
                let factor = 1.0 / (mean + f64::from(1e-20f32)).sqrt();
                x.iter()
                    .zip(&weight)
                    .map(move |(x, w)| f64::from(*x) * factor * if weighted { f64::from(*w) } else { 1.0 })
            })
            .collect();
        let op = |x, out| Op::RmsNorm {
            x,
            weight: weighted.then_some(weight_view),
            out,
            width: 40,
            eps: 1e-20,
            domain: Domain::Rows,
        };
        let (source, out, place) = (lab.rows(80, &x), lab.out(DType::F32, 80), lab.rows(80, &x));
        lab.run(&band, &[op(source, out), op(place, place)]);
        let (apart, in_place) = (lab.floats(&out, n), lab.floats(&place, n));
        close("RmsNorm", &apart, &wanted, 1e-6);
        assert_eq!(apart, in_place, "RmsNorm in place gives other bits");
        lab.case("RmsNorm");
        rows_alone(lab, "RmsNorm", &x, 80, &apart, op);
    }
}

fn sums(lab: &mut Lab) {
    let band = band();
    let n = band.rows.len();
    let mut numbers = Numbers::new(23);
    let floats: Vec<Vec<f32>> = (0..3).map(|_| numbers.values(n * 20)).collect();
    let views: Vec<_> = floats.iter().map(|v| lab.rows(20, v)).collect();
    let fixed: Vec<Vec<i64>> =
        (0..2).map(|_| numbers.values(n * 20).iter().map(|&v| Reduce::to_fixed(v)).collect()).collect();
    let mut exact = |mut values: Vec<i64>| {
        values.resize(16 * 20, 0);
        lab.tensor(DType::I64, [1, 16, 20], bytemuck::cast_slice(&values))
    };
    let mut poisoned = fixed[1].clone();
    poisoned[3] = Reduce::POISON;
    let (one, two) = (exact(fixed[0].clone()), exact(poisoned));
    let out = lab.out(DType::F32, 20);
    lab.run(&band, &[Op::Sum { a: views[0], b: Some(views[1]), c: Some(views[2]), d: None, out }]);
    let wanted: Vec<f32> = (0..n * 20).map(|i| floats[0][i] + floats[1][i] + floats[2][i]).collect();
    assert_eq!(lab.floats(&out, n), wanted, "Sum of F32: the order is a, b, c");
    lab.run(&band, &[Op::Sum { a: one, b: Some(views[0]), c: Some(two), d: None, out }]);
    let got = lab.floats(&out, n);
    for (i, got) in got.iter().enumerate() {
        let whole =
            Reduce::from_fixed(Reduce::add_fixed(fixed[0][i], if i == 3 { Reduce::POISON } else { fixed[1][i] }));
        let wanted = whole + floats[0][i];
        assert!(*got == wanted || (i == 3 && got.is_nan()), "Sum of I64: value {i} is {got}, {wanted} wanted");
    }
    lab.run(&band, &[Op::Sum { a: views[2], b: None, c: None, d: None, out }]);
    assert_eq!(lab.floats(&out, n), floats[2], "Sum of one");
    lab.case("Sum");
}

/// Rounds to the nearest of a small float's values, ties to the even code.
fn small_float(x: f64, values: &[f64]) -> f64 {
    let code = (0..values.len())
        .min_by(|&a, &b| {
            let (da, db) = ((x.abs() - values[a]).abs(), (x.abs() - values[b]).abs());
            da.total_cmp(&db).then((a % 2).cmp(&(b % 2)))
        })
        .expect("a small float has values");
    values[code].copysign(x)
}

/// Values of the positive codes of a float with these bits, up to a largest one.
fn small_values(exponent_bits: u32, mantissa_bits: u32, bias: i32, count: usize) -> Vec<f64> {
    (0..1usize << (exponent_bits + mantissa_bits))
        .take(count)
        .map(|code| {
            let (e, m) = ((code >> mantissa_bits) as i32, (code & ((1 << mantissa_bits) - 1)) as f64);
            let m = m / f64::from(1u32 << mantissa_bits);
            if e == 0 { m * 2f64.powi(1 - bias) } else { (1.0 + m) * 2f64.powi(e - bias) }
        })
        .collect()
}

fn fake_quantisation(lab: &mut Lab) {
    let band = band();
    let n = band.rows.len();
    let (e4m3, e2m1) = (small_values(4, 3, 7, 127), small_values(2, 1, 1, 8));
    // Two runs of 40 values, columns 4..36 of each in blocks of 16.
    let x: Vec<f32> = Numbers::new(24).values(n * 80).iter().enumerate().map(|(i, v)| v * (i % 7) as f32).collect();
    for kind in [QuantKind::Fp8, QuantKind::Fp4, QuantKind::Fp4Scaled] {
        let view = lab.rows(80, &x);
        lab.run(&band, &[Op::FakeQuant { x: view, kind, block: 16, width: 40, from: 4, to: 36, domain: Domain::Rows }]);
        let mut wanted = x.clone();
        for block in wanted.chunks_exact_mut(40).flat_map(|run| run[4..36].chunks_exact_mut(16)) {
            let amax = block.iter().fold(0.0f64, |m, v| m.max(f64::from(v.abs())));
            let power = |x: f64| 2f64.powf(x.log2().ceil());
            let (scale, levels, most) = match kind {
                QuantKind::Fp8 => (power(amax.max(1e-4) / 448.0), &e4m3, 448.0),
                QuantKind::Fp4 => (power(amax.max(6.0 * 2f64.powi(-126)) / 6.0), &e2m1, 6.0),
                QuantKind::Fp4Scaled => (small_float((amax / 6.0).clamp(2f64.powi(-9), 448.0), &e4m3), &e2m1, 6.0),
            };
            for v in block {
                *v = (scale * small_float((f64::from(*v) / scale).clamp(-most, most), levels)) as f32;
            }
        }
        assert_eq!(lab.floats(&view, n), wanted, "FakeQuant {kind:?}");
        lab.case(&format!("FakeQuant {kind:?}"));
    }
}

fn hadamard(lab: &mut Lab) {
    let band = band();
    let n = band.rows.len();
    let x = Numbers::new(25).values(n * 64);
    let view = lab.rows(64, &x);
    lab.run(&band, &[Op::Hadamard { x: view, width: 32, domain: Domain::Rows }]);
    let wanted: Vec<f64> = x
        .chunks_exact(32)
        .flat_map(|x| {
            (0..32u32).map(move |i| {
                let sign = |j: u32| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                x.iter().zip(0..).map(|(&v, j)| f64::from(v) * sign(j)).sum::<f64>() / 32f64.sqrt()
            })
        })
        .collect();
    close("Hadamard", &lab.floats(&view, n), &wanted, 1e-6);
    lab.case("Hadamard");
}

fn swiglu(lab: &mut Lab) {
    let band = band();
    let n = band.rows.len();
    let mut numbers = Numbers::new(26);
    let (gate, up): (Vec<f32>, Vec<f32>) =
        (0..n * 48).map(|_| (numbers.value() * 12.0, numbers.value() * 12.0)).unzip();
    let (gate_view, up_view, out) = (lab.rows(48, &gate), lab.rows(48, &up), lab.out(DType::F32, 48));
    lab.run(&band, &[Op::SwiGlu { gate: gate_view, up: up_view, out, limit: 7.0 }]);
    let wanted: Vec<f64> =
        gate.iter().zip(&up).map(|(&g, &u)| silu(f64::from(g).min(7.0)) * f64::from(u).clamp(-7.0, 7.0)).collect();
    close("SwiGlu", &lab.floats(&out, n), &wanted, 1e-6);
    lab.case("SwiGlu");
}

fn engram_rows(lab: &mut Lab) {
    let band = band();
    let n = band.rows.len();
    let mut numbers = Numbers::new(27);
    let e4m3 = small_values(4, 3, 7, 127);
    // Two table rows per band row, of 64 codes and two scales each.
    let mut raw = Vec::new();
    let mut wanted = Vec::new();
    for _ in 0..n * 2 {
        let codes: Vec<u8> = (0..64).map(|_| (numbers.below(127) | numbers.below(2) << 7) as u8).collect();
        let scales = [120 + numbers.below(8) as u8, 127];
        for (i, &code) in codes.iter().enumerate() {
            let sign = if code >> 7 == 1 { -1.0 } else { 1.0 };
            wanted.push(sign * (e4m3[usize::from(code & 127)] * 2f64.powi(i32::from(scales[i / 32]) - 127)) as f32);
        }
        raw.extend(codes);
        raw.extend(scales);
    }
    raw.resize(16 * 132, 0);
    let raw = lab.tensor(DType::I8, [1, 16, 132], &raw);
    let out = lab.out(DType::F32, 128);
    lab.run(&band, &[Op::DecodeRows { raw, out, columns: 2, width: 64 }]);
    assert_eq!(lab.floats(&out, n), wanted, "DecodeRows of packed rows");
    let codes = codes(&mut numbers, 16 * 128);
    for dtype in [DType::F32, DType::Q8_0] {
        let raw = lab.tensor(dtype, [1, 16, 128], &encoded(dtype, &codes));
        lab.run(&band, &[Op::DecodeRows { raw, out, columns: 2, width: 64 }]);
        assert_eq!(lab.floats(&out, n), decoded(&codes[..n * 128]), "DecodeRows of {dtype}");
    }
    lab.case("DecodeRows");
}

fn arg_max_and_one_hot(lab: &mut Lab) {
    let band = band();
    let picks = band.picks.len();
    let mut logits = Numbers::new(28).values(picks * 37);
    logits[11] = 5.0;
    logits[30] = 5.0;
    logits[12] = f32::NAN;
    logits[37..74].fill(f32::NAN);
    logits[74..111].fill(f32::NEG_INFINITY);
    logits[75] = f32::NAN;
    let (view, out, hot) = (lab.rows(37, &logits), lab.out(DType::I32, 1), lab.out(DType::F32, 3));
    lab.run(&band, &[Op::ArgMax { logits: view, out }, Op::OneHot { out: hot }]);
    assert_eq!(lab.values::<i32>(&out, picks), [11, -1, 0], "ArgMax: ties, NaN, -inf");
    assert_eq!(lab.floats(&hot, band.rows.len()), [1.0, 0.0, 0.0].repeat(band.rows.len()), "OneHot");
    lab.case("ArgMax and OneHot");
}

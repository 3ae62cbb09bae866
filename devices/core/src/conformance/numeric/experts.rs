//! Route and Experts.

use luce_core::{DType, Op, Precision, Reduce};

use super::linear::{codes, decoded, encoded, partner_error, rows_alone};
use super::{dot, silu};
use crate::conformance::lab::{Band, Lab, Numbers, close};

pub(super) fn run(lab: &mut Lab) {
    route(lab);
    for dtype in [DType::F32, DType::Q8_0] {
        for precision in [Precision::F32, Precision::Partner] {
            experts(lab, dtype, precision);
        }
    }
    a_launch_twice_has_equal_bits(lab);
}

fn route(lab: &mut Lab) {
    let (experts, top, d) = (24, 3, 96);
    let band = Band::new(&[(0, 0, &[1, 4, 2]), (1, 7, &[0, 4])], [0; 3]);
    let n = band.rows.len();
    let mut numbers = Numbers::new(100);
    let x = numbers.values(n * d);
    let mut gate = numbers.values(experts * d);
    // Experts 5 and 9 are twins; so are 2 and 20.
    gate.copy_within(5 * d..6 * d, 9 * d);
    gate.copy_within(2 * d..3 * d, 20 * d);
    let mut bias = numbers.values(experts);
    (bias[9], bias[20]) = (bias[5], bias[2]);
    let table: Vec<i32> = vec![3, 0, 23, 7, 8, 9, 11, 2, 5, 1, 0, 2, 20, 4, 6];
    let (x_view, gate_view) = (lab.rows(d, &x), lab.matrix(experts, d, &gate));
    let bias_view = lab.matrix(1, experts, &bias);
    let table_view = lab.tensor(DType::I32, [1, 5, 3], bytemuck::cast_slice(&table));
    for (biased, fixed, normalise) in
        [(false, false, true), (true, false, true), (false, true, true), (true, false, false)]
    {
        let (ids, weights) = (lab.out(DType::I32, top), lab.out(DType::F32, top));
        lab.run(
            &band,
            &[Op::Route {
                x: x_view,
                gate: gate_view,
                bias: biased.then_some(bias_view),
                table: fixed.then_some(table_view),
                ids,
                weights,
                top: top as u32,
                scale: 1.5,
                normalise,
            }],
        );
        let (mut wanted_ids, mut wanted) = (Vec::new(), Vec::new());
        for (f, x) in band.rows.iter().zip(x.chunks_exact(d)) {
            let s: Vec<f64> = gate.chunks_exact(d).map(|g| dot(g, x).exp().ln_1p().sqrt()).collect();
            let key = |e: usize| s[e] + if biased { f64::from(bias[e]) } else { 0.0 };
            let mut chosen: Vec<usize> = (0..experts).collect();
            chosen.sort_by(|&a, &b| key(b).total_cmp(&key(a)).then(a.cmp(&b)));
            chosen.truncate(top);
            if fixed {
                chosen = table[f.token as usize * top..][..top].iter().map(|&e| e as usize).collect();
            }
            chosen.sort_unstable();
            let sum: f64 = if normalise { chosen.iter().map(|&e| s[e]).sum::<f64>() + 1e-20 } else { 1.0 };
            wanted.extend(chosen.iter().map(|&e| s[e] / sum * 1.5));
            wanted_ids.extend(chosen.iter().map(|&e| e as i32));
        }
        assert_eq!(lab.values::<i32>(&ids, n), wanted_ids, "Route: experts (bias {biased}, table {fixed})");
        close("Route: weights", &lab.floats(&weights, n), &wanted, 3e-6);
        lab.case(&format!("Route, bias {biased}, table {fixed}, normalise {normalise}"));
    }
}

fn experts(lab: &mut Lab, dtype: DType, precision: Precision) {
    let name = format!("Experts {dtype} {precision:?}");
    let (count, local, top, d, f, limit) = (7usize, 4usize, 3usize, 96usize, 64usize, 3.0f32);
    let band = Band::decode(&[0, 5, 9, 2, 2, 40, 7, 1, 3]);
    let n = band.rows.len();
    let mut numbers = Numbers::new(101);
    let x = numbers.values(n * d);
    // Places in the stacks do not follow the ids, and three experts lie elsewhere.
    let owned: [i32; 7] = [2, -1, 3, -1, 0, 1, -1];
    let mut ids: Vec<i32> = (0..n)
        .flat_map(|_| {
            let mut all: Vec<i32> = (0..count as i32).collect();
            while all.len() > top {
                let at = numbers.below(all.len() as u32) as usize;
                all.remove(at);
            }
            all
        })
        .collect();
    // Row 4 has no expert of this device.
    ids[4 * top..5 * top].copy_from_slice(&[1, 3, 6]);
    let weights: Vec<f32> = numbers.values(n * top).iter().map(|w| w.abs()).collect();
    let stacks: Vec<Vec<i8>> = (0..3).map(|_| codes(&mut numbers, local * f * d)).collect();
    let [gate, up, down]: [Vec<f32>; 3] = std::array::from_fn(|i| decoded(&stacks[i]));
    let shape = |rows: usize, width: usize| [local as u32, rows as u32, width as u32];
    let gate_view = lab.tensor(dtype, shape(f, d), &encoded(dtype, &stacks[0]));
    let up_view = lab.tensor(dtype, shape(f, d), &encoded(dtype, &stacks[1]));
    let down_view = lab.tensor(dtype, shape(d, f), &encoded(dtype, &stacks[2]));
    let owned_view = lab.tensor(DType::I32, [1, 1, count as u32], bytemuck::cast_slice(&owned));
    let (x_view, ids_view, w_view) = (lab.rows(d, &x), lab.int_rows(top, &ids), lab.rows(top, &weights));
    let op = |x, ids, weights, out, reduce| Op::Experts {
        x,
        ids,
        weights,
        gate: gate_view,
        up: up_view,
        down: down_view,
        owned: owned_view,
        out,
        limit,
        precision,
        reduce,
    };
    let (plain, exact) = (lab.out(DType::F32, d), lab.out(DType::I64, d));
    let ops = [op(x_view, ids_view, w_view, plain, Reduce::F32), op(x_view, ids_view, w_view, exact, Reduce::Exact)];
    lab.run(&band, &ops);
    let got = lab.floats(&plain, n);
    let fixed: Vec<f32> = lab.values::<i64>(&exact, n).into_iter().map(Reduce::from_fixed).collect();
    lab.case(&name);

    // (wanted, bound of the error) of every value.
    let mut wanted = vec![(0.0f64, 0.0f64); n * d];
    for row in 0..n {
        let x = &x[row * d..][..d];
        for k in 0..top {
            let Ok(place) = usize::try_from(owned[ids[row * top + k] as usize]) else { continue };
            let weight = f64::from(weights[row * top + k]);
            let product = |w: &[f32], i: usize| {
                let w = &w[(place * f + i) * d..][..d];
                let form = if precision == Precision::Partner { partner_error(dtype, x, w) } else { 0.0 };
                let magnitude: f64 = w.iter().zip(x).map(|(w, x)| f64::from((w * x).abs())).sum();
                (dot(w, x), form + 2e-6 * magnitude)
            };
            let limit = f64::from(limit);
            let (h, errors): (Vec<f64>, Vec<f64>) = (0..f)
                .map(|i| {
                    let ((g, g_error), (u, u_error)) = (product(&gate, i), product(&up, i));
                    let (g, u) = (g.min(limit), u.clamp(-limit, limit));
                    // The slope of silu stays below 1.1, and |silu(g)| below limit.
                    (weight * silu(g) * u, weight * (1.1 * g_error * limit + limit * u_error + 1e-6))
                })
                .unzip();
            let amax = h.iter().zip(&errors).fold(0.0f64, |m, (h, e)| m.max(h.abs() + e));
            let quantised = precision == Precision::Partner && dtype == DType::Q8_0;
            let step = if quantised { amax * (0.5 / 127.0 + 1.1 / 2048.0) } else { 0.0 };
            for i in 0..d {
                let w = &down[(place * d + i) * f..][..f];
                let (sum, bound) = &mut wanted[row * d + i];
                for ((w, h), e) in w.iter().zip(&h).zip(&errors) {
                    *sum += f64::from(*w) * h;
                    *bound += f64::from(w.abs()) * (e + step + 2e-6 * h.abs());
                }
            }
        }
    }
    for (i, (wanted, bound)) in wanted.iter().enumerate() {
        for (kind, got) in [("f32", got[i]), ("exact", fixed[i])] {
            let distance = (f64::from(got) - wanted).abs();
            assert!(distance <= bound + 1e-6, "{name} {kind}: value {i} is {got}, {wanted} wanted, bound {bound}");
        }
    }
    assert!(got[4 * d..5 * d].iter().all(|v| v.to_bits() == 0), "{name}: a row without experts is not 0");

    let (row, one) = (std::cell::Cell::new(0), n);
    let (ids_alone, weights_alone): (Vec<_>, Vec<_>) = (0..one)
        .map(|r| (lab.int_rows(top, &ids[r * top..][..top]), lab.rows(top, &weights[r * top..][..top])))
        .unzip();
    rows_alone(lab, &name, &x, d, &got, |x, out| {
        let r = row.replace(row.get() + 1);
        op(x, ids_alone[r], weights_alone[r], out, Reduce::F32)
    });
}

fn a_launch_twice_has_equal_bits(lab: &mut Lab) {
    let band = Band::decode(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let mut numbers = Numbers::new(102);
    let (x, w) = (numbers.values(9 * 256), codes(&mut numbers, 80 * 256));
    let weight = lab.tensor(DType::Q8_0, [1, 80, 256], &encoded(DType::Q8_0, &w));
    let (x, out) = (lab.rows(256, &x), lab.out(DType::F32, 80));
    let segment =
        lab.prepare(&[Op::Linear { x, weight, out, domain: luce_core::Domain::Rows, precision: Precision::Partner }]);
    lab.launch(&band, segment);
    let first = lab.bytes(&out);
    for _ in 0..10 {
        lab.launch(&band, segment);
        assert!(lab.bytes(&out) == first, "the same launch gave other bits");
    }
}

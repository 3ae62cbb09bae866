//! Hyper-connections and the Engram gate.

use luce_core::{DType, Op};

use super::{dot, sigmoid};
use crate::conformance::lab::{Band, Lab, Numbers, close};

const S: usize = 4;
const D: usize = 96;

pub(super) fn run(lab: &mut Lab) {
    let band = Band::decode(&[4, 0, 77, 3, 5]);
    let n = band.rows.len();
    let mut numbers = Numbers::new(40);
    let x = numbers.values(n * S * D);
    mix(lab, &band, &mut numbers, &x);
    head(lab, &band, &mut numbers, &x);
    collapse_and_expand(lab, &band, &mut numbers, &x);
    engram(lab, &band, &mut numbers, &x);
}

/// `u` of spec/model.md 3.2.
fn products(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let r = 1.0 / (dot(x, x) / x.len() as f64 + f64::from(eps)).sqrt();
    weight.chunks_exact(x.len()).map(|w| dot(x, w) * r).collect()
}

fn mix(lab: &mut Lab, band: &Band, numbers: &mut Numbers, x: &[f32]) {
    let (n, k, eps) = (band.rows.len(), 2 * S + S * S, 1e-6f32);
    let (weight, base, scale) = (numbers.values(k * S * D), numbers.values(k), [0.3f32, 0.2, 0.1]);
    let streams = lab.rows(S * D, x);
    let (w, b, s) = (lab.matrix(k, S * D, &weight), lab.matrix(1, k, &base), lab.matrix(1, 3, &scale));
    let coef = lab.out(DType::F32, k);
    lab.run(
        band,
        &[Op::HyperMix {
            streams,
            weight: w,
            base: b,
            scale: s,
            coef,
            streams_count: S as u32,
            rms_eps: eps,
            hc_eps: eps,
            iterations: 20,
        }],
    );
    let e = f64::from(eps);
    let mut wanted = Vec::new();
    for x in x.chunks_exact(S * D) {
        let u = products(x, &weight, eps);
        let z = |i: usize, part: usize| u[i] * f64::from(scale[part]) + f64::from(base[i]);
        wanted.extend((0..S).map(|i| sigmoid(z(i, 0)) + e));
        wanted.extend((S..2 * S).map(|i| 2.0 * sigmoid(z(i, 1))));
        let mut c: Vec<Vec<f64>> = (0..S).map(|j| (0..S).map(|k| z(2 * S + j * S + k, 2).exp()).collect()).collect();
        for row in &mut c {
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|v| *v = *v / sum + e);
        }
        let columns = |c: &mut Vec<Vec<f64>>| {
            for k in 0..S {
                let sum: f64 = c.iter().map(|row| row[k]).sum::<f64>() + e;
                c.iter_mut().for_each(|row| row[k] /= sum);
            }
        };
        columns(&mut c);
        for _ in 1..20 {
            for row in &mut c {
                let sum = row.iter().sum::<f64>() + e;
                row.iter_mut().for_each(|v| *v /= sum);
            }
            columns(&mut c);
        }
        wanted.extend(c.iter().flatten());
    }
    close("HyperMix", &lab.floats(&coef, n), &wanted, 5e-6);
    lab.case("HyperMix");
}

fn head(lab: &mut Lab, band: &Band, numbers: &mut Numbers, x: &[f32]) {
    let n = band.rows.len();
    let (weight, base, scale) = (numbers.values(S * S * D), numbers.values(S), [0.4f32]);
    let streams = lab.rows(S * D, x);
    let (w, b, s) = (lab.matrix(S, S * D, &weight), lab.matrix(1, S, &base), lab.matrix(1, 1, &scale));
    let pre = lab.out(DType::F32, S);
    lab.run(
        band,
        &[Op::HyperHead {
            streams,
            weight: w,
            base: b,
            scale: s,
            pre,
            streams_count: S as u32,
            rms_eps: 1e-20,
            hc_eps: 1e-6,
        }],
    );
    let wanted: Vec<f64> = x
        .chunks_exact(S * D)
        .flat_map(|x| {
            let u = products(x, &weight, 1e-20);
            (0..S).map(|i| sigmoid(u[i] * f64::from(scale[0]) + f64::from(base[i])) + 1e-6).collect::<Vec<_>>()
        })
        .collect();
    close("HyperHead", &lab.floats(&pre, n), &wanted, 5e-6);
    lab.case("HyperHead");
}

fn collapse_and_expand(lab: &mut Lab, band: &Band, numbers: &mut Numbers, x: &[f32]) {
    let (n, k) = (band.rows.len(), 2 * S + S * S);
    let (coef, y) = (numbers.values(n * k), numbers.values(n * D));
    let (streams, coef_view, y_view) = (lab.rows(S * D, x), lab.rows(k, &coef), lab.rows(D, &y));
    let out = lab.out(DType::F32, D);
    lab.run(
        band,
        &[
            Op::Collapse { streams, pre: coef_view, out, streams_count: S as u32 },
            Op::Expand { y: y_view, coef: coef_view, streams, streams_count: S as u32 },
        ],
    );
    let (mut collapsed, mut expanded) = (Vec::new(), Vec::new());
    for ((x, coef), y) in x.chunks_exact(S * D).zip(coef.chunks_exact(k)).zip(y.chunks_exact(D)) {
        let at = |s: usize, i: usize| f64::from(x[s * D + i]);
        let c = |i: usize| f64::from(coef[i]);
        collapsed.extend((0..D).map(|i| (0..S).map(|s| c(s) * at(s, i)).sum::<f64>()));
        for k in 0..S {
            expanded
                .extend((0..D).map(|i| {
                    c(S + k) * f64::from(y[i]) + (0..S).map(|j| c(2 * S + j * S + k) * at(j, i)).sum::<f64>()
                }));
        }
    }
    close("Collapse", &lab.floats(&out, n), &collapsed, 1e-6);
    close("Expand", &lab.floats(&streams, n), &expanded, 1e-6);
    lab.case("Collapse and Expand");
}

fn engram(lab: &mut Lab, band: &Band, numbers: &mut Numbers, x: &[f32]) {
    let n = band.rows.len();
    let mut kv = numbers.values(n * (S + 1) * D);
    // A key of zeros: its dot is 0, which gives sigmoid(0.001).
    kv[..D].fill(0.0);
    let (q, k) = (numbers.values(S * D), numbers.values(S * D));
    let (kv_view, streams) = (lab.rows((S + 1) * D, &kv), lab.rows(S * D, x));
    let (q_view, k_view) = (lab.matrix(S, D, &q), lab.matrix(S, D, &k));
    lab.run(
        band,
        &[Op::EngramGate {
            kv: kv_view,
            q_weight: q_view,
            k_weight: k_view,
            streams,
            streams_count: S as u32,
            eps: 1e-6,
        }],
    );
    let mut wanted = Vec::new();
    for (x, kv) in x.chunks_exact(S * D).zip(kv.chunks_exact((S + 1) * D)) {
        for s in 0..S {
            let (x, key) = (&x[s * D..][..D], &kv[s * D..][..D]);
            let norm = |v: &[f32]| 1.0 / (dot(v, v) / D as f64 + f64::from(1e-6f32)).sqrt();
            let sum: f64 =
                (0..D).map(|i| [x[i], q[s * D + i], k[s * D + i], key[i]].map(f64::from).iter().product::<f64>()).sum();
            let z = sum * norm(x) * norm(key) / (D as f64).sqrt();
            let gate = sigmoid(z.abs().max(1e-6).sqrt().copysign(z));
            wanted.extend(x.iter().zip(&kv[S * D..]).map(|(&x, &v)| f64::from(x) + gate * f64::from(v)));
        }
    }
    close("EngramGate", &lab.floats(&streams, n), &wanted, 5e-6);
    lab.case("EngramGate");
}

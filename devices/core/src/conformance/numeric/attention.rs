//! IndexSelect and Attention.

use luce_core::{DType, Op};

use super::dot;
use crate::View;
use crate::conformance::lab::{Band, Lab, Numbers, close};

pub(super) fn run(lab: &mut Lab) {
    select(lab);
    select_in_a_long_context(lab);
    attention(lab);
}

/// Scores of rows 0..n of a plane for one query, as pairs (score, row).
fn scores(queries: &[f32], weights: &[f32], keys: &[f32], n: usize, scale: f32) -> Vec<f64> {
    let w = queries.len() / weights.len();
    keys.chunks_exact(w)
        .take(n)
        .map(|key| {
            let sum: f64 =
                queries.chunks_exact(w).zip(weights).map(|(q, &weight)| f64::from(weight) * dot(q, key).max(0.0)).sum();
            sum * f64::from(scale)
        })
        .collect()
}

/// The `k` best of (number, score), lowest number first on ties; ascending.
fn best(mut all: Vec<(usize, f64)>, k: usize) -> Vec<i32> {
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(k);
    let mut rows: Vec<i32> = all.iter().map(|&(row, _)| row as i32).collect();
    rows.sort_unstable();
    rows
}

fn listed(list: &[i32]) -> &[i32] {
    &list[1..=list[0] as usize]
}

/// A list in the operand's form.
fn list(entries: &[i32], width: usize) -> Vec<i32> {
    let mut list = vec![entries.len() as i32];
    list.extend(entries);
    list.resize(width, -1);
    list
}

/// Best blocks by their largest score, the newest always.
fn blocks(scores: &[(usize, f64)], visible: usize, block: usize, k: usize) -> Vec<i32> {
    if visible == 0 {
        return Vec::new();
    }
    let last = (visible - 1) / block;
    let all = (0..=last)
        .map(|b| {
            let score =
                scores.iter().filter(|(row, _)| row / block == b).map(|s| s.1).fold(f64::NEG_INFINITY, f64::max);
            (b, if b == last { f64::INFINITY } else { score })
        })
        .collect();
    best(all, k)
}

fn select(lab: &mut Lab) {
    let (heads, w, ratio, top, block, keep_blocks) = (2, 16, 2, 5, 3, 4);
    let band = Band::new(&[(1, 0, &[0; 4]), (0, 11, &[0; 3]), (2, 40, &[0; 2]), (3, 61, &[0; 1])], [0; 3]);
    let (n, rows) = (band.rows.len(), 32);
    let mut numbers = Numbers::new(80);
    let (q, weights) = (numbers.values(n * heads * w), numbers.values(n * heads));
    let mut keys = numbers.values(4 * rows * w);
    // Equal keys have equal scores: the lowest row wins.
    let copy = keys[2 * rows * w + 3 * w..][..w].to_vec();
    for row in [7, 12, 18] {
        keys[(2 * rows + row) * w..][..w].copy_from_slice(&copy);
    }
    let (q_view, w_view) = (lab.rows(heads * w, &q), lab.rows(heads, &weights));
    let keys_view = lab.state(4, rows, w, &keys);
    let (selected, keep) = (lab.out(DType::I32, 1 + top), lab.out(DType::I32, 1 + keep_blocks));
    let again = lab.out(DType::I32, 1 + top);
    let op = |within, selected, keep| Op::IndexSelect {
        queries: q_view,
        weights: w_view,
        keys: keys_view,
        within,
        selected,
        keep,
        heads: heads as u32,
        ratio,
        top: top as u32,
        scale: 0.3,
        block: block as u32,
    };
    lab.run(&band, &[op(None, selected, Some(keep)), op(Some(keep), again, None)]);
    let (got, kept) = (lab.values::<i32>(&selected, n), lab.values::<i32>(&keep, n));
    let within = lab.values::<i32>(&again, n);
    for (row, f) in band.rows.iter().enumerate() {
        let visible = (f.position as usize + 1) / ratio as usize;
        let plane = &keys[f.slot as usize * rows * w..][..rows * w];
        let scores = scores(&q[row * heads * w..][..heads * w], &weights[row * heads..][..heads], plane, visible, 0.3);
        let all: Vec<(usize, f64)> = scores.into_iter().enumerate().collect();
        let case = format!("IndexSelect of {visible} rows");
        assert_eq!(listed(&got[row * (1 + top)..]), best(all.clone(), top), "{case}");
        let blocks = blocks(&all, visible, block, keep_blocks);
        assert_eq!(listed(&kept[row * (1 + keep_blocks)..]), blocks, "{case}: candidate blocks");
        let inside: Vec<_> = all.into_iter().filter(|(row, _)| blocks.contains(&((row / block) as i32))).collect();
        assert_eq!(listed(&within[row * (1 + top)..]), best(inside, top), "{case}: within blocks");
    }
    lab.case("IndexSelect");
}

/// Few queries over many rows: a device with several threads cuts the rows.
fn select_in_a_long_context(lab: &mut Lab) {
    let (heads, w, rows, top) = (2, 16, 4096, 100);
    let band = Band::decode(&[4000, 2500]);
    let mut numbers = Numbers::new(81);
    let (q, weights) = (numbers.values(2 * heads * w), numbers.values(2 * heads));
    let keys = numbers.values(2 * rows * w);
    let (queries, w_view) = (lab.rows(heads * w, &q), lab.rows(heads, &weights));
    let (keys_view, selected) = (lab.state(2, rows, w, &keys), lab.out(DType::I32, 1 + top));
    lab.run(
        &band,
        &[Op::IndexSelect {
            queries,
            weights: w_view,
            keys: keys_view,
            within: None,
            selected,
            keep: None,
            heads: heads as u32,
            ratio: 1,
            top: top as u32,
            scale: 1.0,
            block: 0,
        }],
    );
    let got = lab.values::<i32>(&selected, 2);
    for (row, f) in band.rows.iter().enumerate() {
        let visible = f.position as usize + 1;
        let plane = &keys[row * rows * w..][..rows * w];
        let scores = scores(&q[row * heads * w..][..heads * w], &weights[row * heads..][..heads], plane, visible, 1.0);
        let chosen = listed(&got[row * (1 + top)..]);
        assert_eq!(chosen.len(), top);
        assert!(chosen.windows(2).all(|w| w[0] < w[1]), "chosen rows ascend");
        // In so many rows two scores may be closer than f32 can tell: no row left out may be clearly better.
        let worst = chosen.iter().map(|&r| scores[r as usize]).fold(f64::INFINITY, f64::min);
        let left = (0..visible).filter(|&r| !chosen.contains(&(r as i32))).map(|r| scores[r]);
        assert!(left.fold(f64::NEG_INFINITY, f64::max) <= worst + 1e-5, "a better row was left out");
    }
    lab.case("IndexSelect in a long context");
}

/// Sequences of 30 tokens in three bands; raw rows cross the bands through the ring.
fn attention(lab: &mut Lab) {
    let (heads, d, window, ratio, tokens) = (10, 24, 6, 4, 30);
    let mut numbers = Numbers::new(82);
    let raw: Vec<Vec<f32>> = (0..2).map(|_| numbers.values(tokens * d)).collect();
    let slots = [1u32, 2];
    let compressed = numbers.values(3 * 8 * d);
    let sinks = numbers.values(heads);
    let ring = lab.state(3, window, d, &vec![f32::NAN; 3 * window * d]);
    let (state, sinks_view) = (lab.state(3, 8, d, &compressed), lab.matrix(1, heads, &sinks));
    let cuts: [[usize; 4]; 2] = [[0, 9, 20, 30], [0, 1, 4, 9]];
    for step in 0..3 {
        let part = |s: usize| cuts[s][step]..cuts[s][step + 1];
        let ids: Vec<Vec<u32>> = (0..2).map(|s| vec![0; part(s).len()]).collect();
        let sequences: Vec<_> = (0..2).map(|s| (slots[s], cuts[s][step] as u32, &ids[s][..])).collect();
        let band = Band::new(&sequences, [0; 3]);
        let n = band.rows.len();
        let fresh: Vec<f32> = (0..2).flat_map(|s| &raw[s][part(s).start * d..part(s).end * d]).copied().collect();
        let q: Vec<f32> = numbers.values(n * heads * d).iter().map(|v| v * 3.0).collect();
        // Every second visible row.
        let chosen: Vec<Vec<i32>> =
            band.rows.iter().map(|f| (0..(f.position as i32 + 1) / ratio).filter(|j| j % 2 == 1).collect()).collect();
        let lists: Vec<i32> = chosen.iter().flat_map(|c| list(c, 6)).collect();
        let (q_view, fresh_view) = (lab.rows(heads * d, &q), lab.rows(d, &fresh));
        let selected = lab.int_rows(6, &lists);
        let outs: Vec<View> = (0..3).map(|_| lab.out(DType::F32, heads * d)).collect();
        let op = |compressed, selected, out| Op::Attention {
            q: q_view,
            fresh: fresh_view,
            ring,
            sinks: sinks_view,
            compressed,
            selected,
            out,
            heads: heads as u32,
            window: window as u32,
            ratio: ratio as u32,
            scale: 0.2,
        };
        lab.run(
            &band,
            &[
                op(None, None, outs[0]),
                op(Some(state), None, outs[1]),
                op(Some(state), Some(selected), outs[2]),
                Op::RingWrite { x: fresh_view, ring },
            ],
        );
        for (kind, out) in outs.iter().enumerate() {
            let mut wanted = Vec::new();
            for (row, f) in band.rows.iter().enumerate() {
                let sequence = slots.iter().position(|&s| s == f.slot).expect("a slot of the case");
                let t = f.position as usize;
                let mut keys: Vec<&[f32]> =
                    ((t + 1).saturating_sub(window)..=t).map(|p| &raw[sequence][p * d..][..d]).collect();
                let visible: Vec<i32> = match kind {
                    0 => Vec::new(),
                    1 => (0..(t as i32 + 1) / ratio).collect(),
                    _ => chosen[row].clone(),
                };
                keys.extend(visible.iter().map(|&j| &compressed[(f.slot as usize * 8 + j as usize) * d..][..d]));
                for (q, &sink) in q[row * heads * d..][..heads * d].chunks_exact(d).zip(&sinks) {
                    let weights: Vec<f64> = keys.iter().map(|k| (dot(q, k) * f64::from(0.2f32)).exp()).collect();
                    let sum = weights.iter().sum::<f64>() + f64::from(sink).exp();
                    wanted.extend(
                        (0..d).map(|i| weights.iter().zip(&keys).map(|(w, k)| w * f64::from(k[i])).sum::<f64>() / sum),
                    );
                }
            }
            let got = lab.floats(out, n);
            close(&format!("Attention kind {kind}, band {step}"), &got, &wanted, 3e-6);
        }
        lab.case(&format!("Attention, band {step}"));
    }
    prompt_in_one_band_equals_steps(lab, &raw[0], ring, sinks_view, state);
}

/// Batch invariance: the rows of a prompt have the bits that they have one by one.
fn prompt_in_one_band_equals_steps(lab: &mut Lab, raw: &[f32], ring: View, sinks: View, state: View) {
    let (heads, d, n) = (10, 24, 12);
    let q = Numbers::new(83).values(n * heads * d);
    let op = |q, fresh, out| Op::Attention {
        q,
        fresh,
        ring,
        sinks,
        compressed: Some(state),
        selected: None,
        out,
        heads: heads as u32,
        window: 6,
        ratio: 4,
        scale: 0.2,
    };
    let (q_view, fresh, out) = (lab.rows(heads * d, &q), lab.rows(d, &raw[..n * d]), lab.out(DType::F32, heads * d));
    lab.run(&Band::new(&[(0, 0, &[0; 12])], [0; 3]), &[op(q_view, fresh, out)]);
    let whole = lab.floats(&out, n);
    for (t, expected) in whole.chunks_exact(heads * d).enumerate() {
        let (q, fresh) = (lab.rows(heads * d, &q[t * heads * d..][..heads * d]), lab.rows(d, &raw[t * d..][..d]));
        lab.run(&Band::new(&[(0, t as u32, &[0])], [0; 3]), &[op(q, fresh, out), Op::RingWrite { x: fresh, ring }]);
        let got = lab.floats(&out, 1);
        let same = got.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "Attention: position {t} alone has other bits than in a band of {n}");
        lab.free(&[q, fresh]);
    }
    lab.case("Attention step by step");
}

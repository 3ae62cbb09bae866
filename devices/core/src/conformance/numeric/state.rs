//! What goes into the states of sequences: rings, compressed rows, pooling over bands.

use luce_core::{DType, Op};

use crate::View;
use crate::conformance::lab::{Band, Lab, Numbers, close};

pub(super) fn run(lab: &mut Lab) {
    rings_and_rows(lab);
    for (ratio, overlap, with_ape) in [(4, true, true), (2, false, false), (8, false, true), (1, false, false)] {
        pool(lab, ratio, overlap, with_ape);
    }
}

fn rings_and_rows(lab: &mut Lab) {
    let width = 3;
    // Slot 2 writes six rows into a ring of four: only the last four may land.
    let band = Band::new(&[(2, 5, &[0; 6]), (0, 0, &[0; 1]), (1, 3, &[0; 2])], [2, 0, 3]);
    let n = band.rows.len();
    let x = Numbers::new(60).values(n * width);
    let before = Numbers::new(61).values(3 * 8 * width);
    let (view, ring) = (lab.rows(width, &x), lab.state(3, 4, width, &before[..3 * 4 * width]));
    let (groups, picks) = (lab.out(DType::F32, width), lab.out(DType::F32, width));
    let rows = lab.state(3, 8, width, &before);
    lab.run(
        &band,
        &[
            Op::RingWrite { x: view, ring },
            Op::GroupGather { x: view, out: groups, class: 0 },
            Op::RowsWrite { x: groups, state: rows, ratio: 2, class: 0 },
            Op::Gather { x: view, out: picks },
        ],
    );
    let mut wanted_ring = before[..3 * 4 * width].to_vec();
    let mut wanted_rows = before.clone();
    for (f, x) in band.rows.iter().zip(x.chunks_exact(width)) {
        // In order of position, so the last of a place wins.
        let at = (f.slot * 4 + f.position % 4) as usize * width;
        wanted_ring[at..at + width].copy_from_slice(x);
        if f.position % 2 == 1 {
            let at = (f.slot * 8 + f.position / 2) as usize * width;
            wanted_rows[at..at + width].copy_from_slice(x);
        }
    }
    let of = |rows: &[u32]| rows.iter().flat_map(|&r| &x[r as usize * width..][..width]).copied().collect::<Vec<_>>();
    assert_eq!(lab.floats(&ring, 12), wanted_ring, "RingWrite");
    assert_eq!(lab.floats(&groups, band.groups[0].len()), of(&band.groups[0]), "GroupGather");
    assert_eq!(lab.floats(&rows, 24), wanted_rows, "RowsWrite");
    assert_eq!(lab.floats(&picks, band.picks.len()), of(&band.picks), "Gather");
    lab.case("RingWrite, GroupGather, RowsWrite, Gather");
}

/// Two sequences over three bands, the groups crossing them, against pooling over the whole sequences.
fn pool(lab: &mut Lab, ratio: usize, overlap: bool, with_ape: bool) {
    let name = format!("Pool ratio {ratio} overlap {overlap}");
    let (w, coff, tokens) = (70, if overlap { 2 } else { 1 }, 20);
    let width = w * coff;
    let mut numbers = Numbers::new(62 + ratio as u64);
    // [sequence][token][width]
    let values: Vec<Vec<f32>> = (0..2).map(|_| numbers.values(tokens * width)).collect();
    let scores: Vec<Vec<f32>> =
        (0..2).map(|_| numbers.values(tokens * width).iter().map(|v| v * 4.0).collect()).collect();
    let ape = numbers.values(ratio * width);
    let ape_view = with_ape.then(|| lab.matrix(ratio, width, &ape));
    let len = 9.max(2 * ratio);
    let nothing = vec![f32::NAN; 3 * len * width];
    let rings: Vec<View> = (0..2).map(|_| lab.state(3, len, width, &nothing)).collect();
    let cuts: [[usize; 4]; 2] = [[0, 3, 9, 20], [0, 5, 13, 17]];
    let slots = [2, 0];
    for step in 0..3 {
        let part = |s: usize| cuts[s][step]..cuts[s][step + 1];
        let ids: Vec<Vec<u32>> = (0..2).map(|s| vec![0; part(s).len()]).collect();
        let sequences: Vec<_> = (0..2).map(|s| (slots[s], cuts[s][step] as u32, &ids[s][..])).collect();
        let band = Band::new(&sequences, [0, ratio as u32, 0]);
        let rows = |of: &[Vec<f32>]| -> Vec<f32> {
            (0..2).flat_map(|s| &of[s][part(s).start * width..part(s).end * width]).copied().collect()
        };
        let (v, s) = (lab.rows(width, &rows(&values)), lab.rows(width, &rows(&scores)));
        let out = lab.out(DType::F32, w);
        lab.run(
            &band,
            &[
                Op::Pool {
                    values: v,
                    scores: s,
                    value_ring: rings[0],
                    score_ring: rings[1],
                    ape: ape_view,
                    out,
                    ratio: ratio as u32,
                    class: 1,
                    overlap,
                },
                Op::RingWrite { x: v, ring: rings[0] },
                Op::RingWrite { x: s, ring: rings[1] },
            ],
        );
        let mut wanted = Vec::new();
        for &row in &band.groups[1] {
            let f = &band.rows[row as usize];
            let sequence = slots.iter().position(|&s| s == f.slot).expect("a slot of the case");
            let last = f.position as usize;
            let first = last + 1 - ratio;
            // (position, first column)
            let mut places: Vec<(usize, usize)> = Vec::new();
            if overlap {
                places.extend((first.saturating_sub(ratio)..first).map(|p| (p, 0)));
                places.extend((first..=last).map(|p| (p, w)));
            } else {
                places.extend((first..=last).map(|p| (p, 0)));
            }
            for i in 0..w {
                let weight = |&(p, column): &(usize, usize)| {
                    let bias = if with_ape { ape[p % ratio * width + column + i] } else { 0.0 };
                    (f64::from(scores[sequence][p * width + column + i]) + f64::from(bias)).exp()
                };
                let sum: f64 = places.iter().map(weight).sum();
                let value = |&(p, column): &(usize, usize)| f64::from(values[sequence][p * width + column + i]);
                wanted.push(places.iter().map(|at| weight(at) / sum * value(at)).sum());
            }
        }
        close(&name, &lab.floats(&out, band.groups[1].len()), &wanted, 3e-6);
        lab.case(&format!("{name}, band {step}"));
    }
}

//! Operations that compute one row (or group, or pick) after the other.

use std::ops::Range;

use luce_core::{DType, Domain, Op, Reduce};

use super::{Context, Need, Work, area};
use crate::memory::Tensor;
use crate::ops::history::History;
use crate::ops::route::{Choice, route};
use crate::ops::{argmax, engram, hyper, norm, pool, rope, swiglu};
use crate::quant;

/// Rows of the operation and about what one costs, in multiply-adds.
pub(super) fn work(op: &Op<Tensor>, c: &Context<'_>) -> Work {
    use Domain::{Groups, Picks, Rows};
    let (domain, each) = match op {
        Op::Embed { streams, .. } => (Rows, streams.width * 2),
        Op::OneHot { out } => (Rows, out.width),
        Op::Angles { out, domain, .. } => (*domain, out.width * 40),
        Op::RmsNorm { x, domain, .. } => (*domain, x.width * 2),
        Op::Rope { angles, x, width, domain, .. } => (*domain, x.width / *width as usize * angles.width * 4),
        Op::HyperMix { streams, coef, iterations, .. } => (Rows, streams.width + coef.width * *iterations as usize * 8),
        Op::HyperHead { streams, .. } => (Rows, streams.width),
        Op::Collapse { streams, .. } => (Rows, streams.width),
        Op::Expand { streams, streams_count, .. } => (Rows, streams.width * (*streams_count as usize + 1)),
        Op::Sum { out, .. } => (Rows, out.width * 3),
        Op::Pool { values, ratio, class, .. } => (Groups(*class), values.width * *ratio as usize * 12),
        Op::RingWrite { x, .. } => (Rows, x.width),
        Op::RowsWrite { x, class, .. } => (Groups(*class), x.width),
        Op::GroupGather { x, class, .. } => (Groups(*class), x.width),
        Op::FakeQuant { x, domain, .. } => (*domain, x.width * 12),
        Op::Hadamard { x, width, domain } => (*domain, x.width * (width.ilog2() as usize + 1)),
        Op::Route { gate, top, .. } => (Rows, gate.rows * (24 + *top as usize)),
        Op::SwiGlu { out, .. } => (Rows, out.width * 12),
        Op::DecodeRows { out, .. } => (Rows, out.width * 2),
        Op::EngramGate { kv, .. } => (Rows, kv.width * 3),
        Op::Gather { x, .. } => (Picks, x.width),
        Op::ArgMax { logits, .. } => (Picks, logits.width),
        Op::Linear { .. } | Op::Grouped { .. } | Op::Experts { .. } | Op::IndexSelect { .. } | Op::Attention { .. } => {
            unreachable!("{} has a file of its own", op.name())
        }
    };
    Work::new(c.count(domain), each.max(1))
}

/// Scratch that rows need.
pub(super) fn scratch(op: &Op<Tensor>) -> Need {
    match op {
        Op::Route { gate, .. } => Need { shared: 0, worker: area(gate.rows * 2 * 4) },
        Op::Sum { out, .. } => Need { shared: 0, worker: area(out.width * 8) },
        _ => Need::default(),
    }
}

/// Computes some rows.
pub(super) fn compute(op: &Op<Tensor>, rows: Range<usize>, c: &Context<'_>) -> Result<(), String> {
    rows.into_iter().try_for_each(|row| one(op, row, c))
}

fn one(op: &Op<Tensor>, i: usize, c: &Context<'_>) -> Result<(), String> {
    match op {
        Op::Embed { table, streams, .. } => {
            let out = streams.write::<f32>(i, 1);
            let (first, rest) = out.split_at_mut(table.width);
            decode(table.dtype, table.bytes(c.facts()[i].token as usize, 1), first)?;
            rest.chunks_exact_mut(table.width).for_each(|copy| copy.copy_from_slice(first));
        }
        Op::OneHot { out } => norm::one_hot(out.write(i, 1)),
        Op::Angles { freqs, out, domain, ratio } => {
            let position = c.facts()[c.band_row(*domain, i)].position;
            let first = if matches!(domain, Domain::Groups(_)) { position + 1 - ratio } else { position };
            rope::angles(first, freqs.all(), out.write(i, 1));
        }
        Op::RmsNorm { x, weight, out, width, eps, .. } => {
            let weight = weight.as_ref().map(Tensor::all);
            if x.same(out) {
                norm::rms_norm_in_place(out.write(i, 1), weight, *width as usize, *eps);
            } else {
                norm::rms_norm(x.read(i, 1), weight, *width as usize, *eps, out.write(i, 1));
            }
        }
        Op::Rope { angles, x, width, inverse, .. } => {
            rope::rotate(x.write(i, 1), *width as usize, angles.read(i, 1), *inverse);
        }
        Op::HyperMix { streams, base, scale, coef, streams_count, rms_eps, hc_eps, iterations, .. } => hyper::mix(
            coef.write(i, 1),
            streams.read(i, 1),
            base.all(),
            scale.all(),
            *streams_count as usize,
            *rms_eps,
            *hc_eps,
            *iterations,
        ),
        Op::HyperHead { streams, base, scale, pre, rms_eps, hc_eps, .. } => {
            hyper::head(pre.write(i, 1), streams.read(i, 1), base.all(), scale.all(), *rms_eps, *hc_eps);
        }
        Op::Collapse { streams, pre, out, .. } => hyper::collapse(streams.read(i, 1), pre.read(i, 1), out.write(i, 1)),
        Op::Expand { y, coef, streams, streams_count } => {
            hyper::expand(y.read(i, 1), coef.read(i, 1), streams.write(i, 1), *streams_count as usize);
        }
        Op::Sum { a, b, c: third, d, out } => {
            let operands = [Some(a), b.as_ref(), third.as_ref(), d.as_ref()];
            sum(operands, i, out.write(i, 1), c.scratch.own(c.worker, 0, out.width));
        }
        Op::Pool { values, scores, value_ring, score_ring, ape, out, ratio, class, overlap } => {
            let f = &c.facts()[c.band_row(Domain::Groups(*class), i)];
            let n = c.rows();
            let slot = f.slot as usize;
            let width = values.width;
            let values =
                History::new(value_ring.read(slot * value_ring.rows, value_ring.rows), values.read(0, n), width, f);
            let scores =
                History::new(score_ring.read(slot * score_ring.rows, score_ring.rows), scores.read(0, n), width, f);
            let first = (f.position + 1 - ratio) as usize;
            let ape = ape.as_ref().map(Tensor::all);
            pool::pool(&values, &scores, ape, first, *ratio as usize, *overlap, out.write(i, 1));
        }
        Op::RingWrite { x, ring } => {
            let f = &c.facts()[i];
            // Rows that a later one of the band would overwrite are not stored, so parts write disjoint rows.
            if i + ring.rows >= f.end_row as usize {
                let at = f.slot as usize * ring.rows + f.position as usize % ring.rows;
                ring.bytes_mut(at, 1).copy_from_slice(x.bytes(i, 1));
            }
        }
        Op::RowsWrite { x, state, ratio, class } => {
            let f = &c.facts()[c.band_row(Domain::Groups(*class), i)];
            let group = (f.position + 1) / ratio - 1;
            state.bytes_mut(f.slot as usize * state.rows + group as usize, 1).copy_from_slice(x.bytes(i, 1));
        }
        Op::GroupGather { x, out, class } => {
            out.bytes_mut(i, 1).copy_from_slice(x.bytes(c.band_row(Domain::Groups(*class), i), 1));
        }
        Op::Gather { x, out } => out.bytes_mut(i, 1).copy_from_slice(x.bytes(c.band_row(Domain::Picks, i), 1)),
        Op::FakeQuant { x, kind, block, width, from, to, .. } => {
            for run in x.write::<f32>(i, 1).chunks_exact_mut(*width as usize) {
                for block in run[*from as usize..*to as usize].chunks_exact_mut(*block as usize) {
                    quant::fake_quant(*kind, block);
                }
            }
        }
        Op::Hadamard { x, width, .. } => {
            x.write(i, 1).chunks_exact_mut(*width as usize).for_each(quant::hadamard);
        }
        Op::Route { gate, bias, table, ids, weights, scale, normalise, .. } => {
            let logits = c.scratch.shared_mut(i * gate.rows * 4, gate.rows);
            let choice = match table {
                Some(table) => Choice::Fixed(table.read(c.facts()[i].token as usize, 1)),
                None => Choice::Learned(bias.as_ref().map(Tensor::all)),
            };
            let own = c.scratch.own(c.worker, 0, 2 * gate.rows);
            route(logits, choice, *scale, *normalise, own, ids.write(i, 1), weights.write(i, 1))
                .map_err(|e| e.to_string())?;
        }
        Op::SwiGlu { gate, up, out, limit } => {
            swiglu::swiglu(gate.read(i, 1), up.read(i, 1), *limit, out.write(i, 1));
        }
        Op::DecodeRows { raw, out, columns, width } => {
            let row_bytes = raw.row_bytes / *columns as usize;
            let rows = raw.bytes(i, 1).chunks_exact(row_bytes);
            for (row, out) in rows.zip(out.write::<f32>(i, 1).chunks_exact_mut(*width as usize)) {
                if raw.dtype == DType::I8 {
                    quant::checkpoint::engram_row(row, *width as usize, out);
                } else {
                    decode(raw.dtype, row, out)?;
                }
            }
        }
        Op::EngramGate { kv, q_weight, k_weight, streams, streams_count, eps } => engram::gate(
            kv.read(i, 1),
            q_weight.all(),
            k_weight.all(),
            streams.write(i, 1),
            *streams_count as usize,
            *eps,
        ),
        Op::ArgMax { logits, out } => out.write::<i32>(i, 1)[0] = argmax::argmax(logits.read(i, 1)),
        Op::Linear { .. } | Op::Grouped { .. } | Op::Experts { .. } | Op::IndexSelect { .. } | Op::Attention { .. } => {
            unreachable!("{} has a file of its own", op.name())
        }
    }
    Ok(())
}

fn decode(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), String> {
    quant::decode_row(dtype, bytes, out, None).map_err(|e| e.to_string())
}

/// One row of Sum. All I64 operands are added as integers, and stand in the order of the operands where the first of
/// them stands.
fn sum(operands: [Option<&Tensor>; 4], row: usize, out: &mut [f32], fixed: &mut [i64]) {
    let mut exact = operands.iter().flatten().filter(|v| v.dtype == DType::I64);
    if let Some(first) = exact.next() {
        fixed.copy_from_slice(first.read(row, 1));
        for v in exact {
            fixed.iter_mut().zip(v.read::<i64>(row, 1)).for_each(|(to, v)| *to = Reduce::add_fixed(*to, *v));
        }
    }
    let (mut first, mut placed) = (true, false);
    for v in operands.into_iter().flatten() {
        if v.dtype == DType::I64 {
            if !std::mem::replace(&mut placed, true) {
                add(out, fixed.iter().map(|&v| Reduce::from_fixed(v)), first);
            }
        } else {
            add(out, v.read::<f32>(row, 1).iter().copied(), first);
        }
        first = false;
    }
}

fn add(out: &mut [f32], values: impl Iterator<Item = f32>, first: bool) {
    if first {
        out.iter_mut().zip(values).for_each(|(out, v)| *out = v);
    } else {
        out.iter_mut().zip(values).for_each(|(out, v)| *out += v);
    }
}

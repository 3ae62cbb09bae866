//! Products of a matrix with every row of a band: Linear and Grouped, and the f32 products that HyperMix, HyperHead and
//! Route begin with. Phase 0 stores the activations in the form that the weights want, once per operation; phase 1
//! multiplies, cut by weight rows.

use std::ops::Range;

use luce_core::{Domain, Op, Precision};

use super::kernel::{Form, TILE, To, multiply};
use super::{Context, Need, Work, area};
use crate::memory::Tensor;

/// Where results go.
enum Target<'a> {
    Tensor(&'a Tensor),
    /// [rows, weight rows] f32 at the start of the shared scratch.
    Scratch,
}

/// One product, whatever operation it belongs to.
struct Product<'a> {
    x: &'a Tensor,
    weight: &'a Tensor,
    to: Target<'a>,
    groups: usize,
    domain: Domain,
    form: Form,
}

impl<'a> Product<'a> {
    fn of(op: &'a Op<Tensor>) -> Product<'a> {
        let new = |x, weight: &'a Tensor, to, groups: u32, domain, precision| Product {
            x,
            weight,
            to,
            groups: groups as usize,
            domain,
            form: Form::new(weight.dtype, precision, weight.width),
        };
        match op {
            Op::Linear { x, weight, out, domain, precision } => {
                new(x, weight, Target::Tensor(out), 1, *domain, *precision)
            }
            Op::Grouped { x, weight, out, groups, precision } => {
                new(x, weight, Target::Tensor(out), *groups, Domain::Rows, *precision)
            }
            Op::HyperMix { streams, weight, coef, .. } => {
                new(streams, weight, Target::Tensor(coef), 1, Domain::Rows, Precision::F32)
            }
            Op::HyperHead { streams, weight, pre, .. } => {
                new(streams, weight, Target::Tensor(pre), 1, Domain::Rows, Precision::F32)
            }
            Op::Route { x, gate, .. } => new(x, gate, Target::Scratch, 1, Domain::Rows, Precision::F32),
            _ => unreachable!("{} is no product", op.name()),
        }
    }

    /// True where the rows of `x` are multiplied as they lie.
    fn direct(&self) -> bool {
        self.groups == 1 && self.form.is_plain()
    }

    /// Weight rows of a group, and items that they make.
    fn group_rows(&self) -> (usize, usize) {
        let rows = self.weight.rows / self.groups;
        (rows, rows.div_ceil(TILE))
    }
}

pub(super) fn scratch(op: &Op<Tensor>, max_rows: usize) -> Need {
    let p = Product::of(op);
    let rows = match p.domain {
        Domain::Rows => max_rows,
        Domain::Groups(_) | Domain::Picks => p.x.rows.min(max_rows),
    };
    let shared = match p.to {
        Target::Scratch => area(rows * p.weight.rows * 4),
        Target::Tensor(_) if p.direct() => 0,
        Target::Tensor(_) => area(rows * p.groups * p.form.row_bytes()),
    };
    Need { shared, worker: area(p.form.scratch() * 4) }
}

pub(super) fn work(op: &Op<Tensor>, phase: usize, c: &Context<'_>) -> Option<Work> {
    let p = Product::of(op);
    let rows = c.count(p.domain);
    match phase {
        0 if p.direct() => Some(Work::new(0, 0)),
        0 => Some(Work::new(rows * p.groups, p.weight.width * 4)),
        1 if rows == 0 => Some(Work::new(0, 0)),
        1 => Some(Work::new(p.groups * p.group_rows().1, TILE * p.weight.width * (rows + 1))),
        _ => None,
    }
}

pub(super) fn compute(op: &Op<Tensor>, phase: usize, items: Range<usize>, c: &Context<'_>) -> Result<(), String> {
    let p = Product::of(op);
    let (rows, row_bytes) = (c.count(p.domain), p.form.row_bytes());
    if phase == 0 {
        for item in items {
            // Rows of one group lie together: [groups, rows, width].
            let (group, row) = (item / rows, item % rows);
            let x = &p.x.read::<f32>(row, 1)[group * p.weight.width..][..p.weight.width];
            p.form.store(x, c.scratch.shared_mut(item * row_bytes, row_bytes));
        }
        return Ok(());
    }
    let own = c.scratch.own(c.worker, 0, p.form.scratch());
    let grid = match p.to {
        Target::Tensor(out) => out.grid(rows),
        Target::Scratch => c.scratch.grid(0, rows, p.weight.rows),
    };
    let (group_rows, tiles) = p.group_rows();
    for group in items.start / tiles..items.end.div_ceil(tiles) {
        // The tiles of this group that are among the items, as one range of weight rows.
        let tile = |item: usize| (item.clamp(group * tiles, (group + 1) * tiles) - group * tiles) * TILE;
        let range = group * group_rows + tile(items.start)..group * group_rows + tile(items.end).min(group_rows);
        let acts =
            if p.direct() { p.x.bytes(0, rows) } else { c.scratch.shared(group * rows * row_bytes, rows * row_bytes) };
        let to = To { grid, first_row: 0, first_column: range.start };
        multiply(p.weight, range, p.form, rows, acts, own, &to)?;
    }
    Ok(())
}

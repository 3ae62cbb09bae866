//! The routed experts that this device owns.
//!
//! The (row, expert) pairs of a band are its *entries*. They are sorted by expert id, so that an expert's weights are read
//! once for all of its rows, and worked off in waves of whole experts whose entries fit the scratch. A decode band is one
//! wave. Per wave: store the entries' activations, multiply with gate and up, activate and store, multiply with down, add
//! to the rows. Waves go by ascending expert id, and so do the entries of a row, so f32 sums have the order that
//! [`Reduce::F32`] asks for; nothing an entry computes depends on its neighbours.

use std::ops::Range;

use luce_core::{Op, Precision, Reduce};

use super::kernel::{Form, TILE, To, multiply};
use super::{Context, Need, Work, area};
use crate::memory::Tensor;
use crate::ops::swiglu::swiglu_weighted;

/// Entries of a wave, where the band's rows are fewer: all of a decode band's.
const WAVE_MIN: usize = 512;
/// Phases of a wave.
const STEPS: usize = 5;
/// Marks an entry whose expert lies elsewhere.
const ABSENT: u32 = u32::MAX;

/// The operands by name, and where things lie in the shared scratch.
struct Experts<'a> {
    x: &'a Tensor,
    ids: &'a Tensor,
    weights: &'a Tensor,
    gate: &'a Tensor,
    up: &'a Tensor,
    down: &'a Tensor,
    owned: &'a Tensor,
    out: &'a Tensor,
    limit: f32,
    reduce: Reduce,
    /// Entries of a row.
    top: usize,
    /// Experts of the model.
    count: usize,
    form_gate: Form,
    form_up: Form,
    form_down: Form,
    at: Places,
}

/// Byte offsets in the shared scratch.
#[derive(Clone, Copy)]
struct Places {
    wave_entries: usize,
    /// Entries in all, active experts, waves.
    head: usize,
    /// Per expert: how many entries; then where its next one goes.
    counts: usize,
    /// Ids of the experts that have entries, ascending.
    active: usize,
    /// First entry of each active expert, and behind the last.
    begin: usize,
    /// First active expert of each wave, and behind the last.
    waves: usize,
    /// Per (row, place in `ids`): its entry.
    entry_of: usize,
    /// Per entry: row * top + place in `ids`.
    source: usize,
    acts_gate: usize,
    acts_up: usize,
    gate: usize,
    up: usize,
    acts_down: usize,
    y: usize,
    end: usize,
}

/// A part of the bookkeeping that the first phase leaves in the scratch.
struct Plan<'a> {
    active: &'a [u32],
    begin: &'a [u32],
    waves: &'a [u32],
}

impl<'a> Experts<'a> {
    /// The capacity is that of the band's layout: places must be the same in every launch.
    fn of(op: &'a Op<Tensor>, max_rows: usize) -> Experts<'a> {
        let Op::Experts { x, ids, weights, gate, up, down, owned, out, limit, precision, reduce } = op else {
            unreachable!("{} is not Experts", op.name())
        };
        let form = |w: &Tensor, precision: Precision| Form::new(w.dtype, precision, w.width);
        let (form_gate, form_up, form_down) = (form(gate, *precision), form(up, *precision), form(down, *precision));
        let (top, count) = (ids.width, owned.width * owned.rows * owned.planes);
        let entries = max_rows * top;
        let wave_entries = entries.min(max_rows.max(WAVE_MIN));
        let active = entries.min(count);
        let mut end = 0;
        let mut place = |bytes: usize| {
            let at = end;
            end += area(bytes);
            at
        };
        let at = Places {
            wave_entries,
            head: place(3 * 4),
            counts: place(count * 4),
            active: place(active * 4),
            begin: place((active + 1) * 4),
            waves: place((active + 1) * 4),
            entry_of: place(entries * 4),
            source: place(entries * 4),
            acts_gate: place(wave_entries * form_gate.row_bytes()),
            acts_up: place(if form_up == form_gate { 0 } else { wave_entries * form_up.row_bytes() }),
            gate: place(wave_entries * gate.rows * 4),
            up: place(wave_entries * gate.rows * 4),
            acts_down: place(wave_entries * form_down.row_bytes()),
            y: place(wave_entries * down.rows * 4),
            end: 0,
        };
        let at = Places { end, ..at };
        let (limit, reduce) = (*limit, *reduce);
        Experts {
            x,
            ids,
            weights,
            gate,
            up,
            down,
            owned,
            out,
            limit,
            reduce,
            top,
            count,
            form_gate,
            form_up,
            form_down,
            at,
        }
    }

    fn plan<'s>(&self, c: &'s Context<'_>) -> Plan<'s> {
        let head: &[u32] = c.scratch.shared(self.at.head, 3);
        let (active, waves) = (head[1] as usize, head[2] as usize);
        Plan {
            active: c.scratch.shared(self.at.active, active),
            begin: c.scratch.shared(self.at.begin, active + 1),
            waves: c.scratch.shared(self.at.waves, waves + 1),
        }
    }

    /// Place of an expert in the stacks; `None` where it lies elsewhere.
    fn local(&self, id: i32) -> Result<Option<usize>, String> {
        let Some(&local) = usize::try_from(id).ok().and_then(|id| self.owned.all::<i32>().get(id)) else {
            return Err(format!("expert {id} of {}", self.count));
        };
        match usize::try_from(local) {
            Err(_) => Ok(None),
            Ok(local) if local < self.gate.planes => Ok(Some(local)),
            Ok(local) => Err(format!("owned[{id}] = {local}, but the stacks hold {}", self.gate.planes)),
        }
    }

    /// Sorts the entries by expert and cuts them into waves.
    fn group(&self, c: &Context<'_>) -> Result<(), String> {
        let (rows, s, at) = (c.rows(), c.scratch, &self.at);
        let ids: &[i32] = self.ids.read(0, rows);
        let counts: &mut [u32] = s.shared_mut(at.counts, self.count);
        let entry_of: &mut [u32] = s.shared_mut(at.entry_of, ids.len());
        counts.fill(0);
        for (&id, entry) in ids.iter().zip(entry_of.iter_mut()) {
            *entry = ABSENT;
            if self.local(id)?.is_some() {
                *entry = 0;
                counts[id as usize] += 1;
            }
        }
        let actives = counts.iter().filter(|&&n| n > 0).count();
        let active: &mut [u32] = s.shared_mut(at.active, actives);
        let begin: &mut [u32] = s.shared_mut(at.begin, actives + 1);
        let waves: &mut [u32] = s.shared_mut(at.waves, actives + 1);
        let (mut a, mut entries, mut wave_count, mut wave_start) = (0, 0u32, 0, 0u32);
        for (id, n) in counts.iter_mut().enumerate().filter(|(_, n)| **n > 0) {
            if a == 0 || entries + *n - wave_start > at.wave_entries as u32 {
                waves[wave_count] = a as u32;
                wave_count += 1;
                wave_start = entries;
            }
            active[a] = id as u32;
            begin[a] = entries;
            a += 1;
            entries += std::mem::replace(n, entries);
        }
        begin[a] = entries;
        waves[wave_count] = a as u32;
        let source: &mut [u32] = s.shared_mut(at.source, entries as usize);
        for (i, (&id, entry)) in ids.iter().zip(entry_of).enumerate().filter(|(_, (_, e))| **e != ABSENT) {
            let next = &mut counts[id as usize];
            *entry = *next;
            source[*next as usize] = i as u32;
            *next += 1;
        }
        s.shared_mut::<u32>(at.head, 3).copy_from_slice(&[entries, a as u32, wave_count as u32]);
        Ok(())
    }

    /// Wave and step of a phase behind the first; `None` behind the last. A band without entries has one empty wave,
    /// so that its rows become 0.
    fn step(phase: usize, plan: &Plan<'_>) -> Option<(Wave, usize)> {
        let (wave, step) = ((phase - 1) / STEPS, (phase - 1) % STEPS);
        let waves = plan.waves.len() - 1;
        if wave >= waves.max(1) {
            return None;
        }
        let experts = if waves == 0 { 0..0 } else { plan.waves[wave] as usize..plan.waves[wave + 1] as usize };
        let entries = plan.begin[experts.start] as usize..plan.begin[experts.end] as usize;
        Some((Wave { first: wave == 0, experts, entries }, step))
    }

    /// Products of the tile `item` of one of a wave's matrices with the entries of its expert.
    fn tile(
        &self,
        matrices: &[(&Tensor, Form, usize, usize)],
        wave: &Wave,
        item: usize,
        plan: &Plan<'_>,
        c: &Context<'_>,
    ) -> Result<(), String> {
        for &(weight, form, acts_at, to) in matrices {
            let tiles = weight.rows.div_ceil(TILE);
            let a = wave.experts.start + item / tiles;
            let first = item % tiles * TILE;
            let count = TILE.min(weight.rows - first);
            let local = self.local(plan.active[a] as i32)?.ok_or("an active expert lies elsewhere")?;
            let from = plan.begin[a] as usize - wave.entries.start;
            let rows = (plan.begin[a + 1] - plan.begin[a]) as usize;
            let acts: &[u8] = c.scratch.shared(acts_at + from * form.row_bytes(), rows * form.row_bytes());
            let own = c.scratch.own(c.worker, 0, form.scratch());
            let grid = c.scratch.grid(to, wave.entries.len(), weight.rows);
            let to = To { grid, first_row: from, first_column: first };
            let range = local * weight.rows + first..local * weight.rows + first + count;
            multiply(weight, range, form, rows, acts, own, &to)?;
        }
        Ok(())
    }

    /// Adds a wave's results to one row.
    fn reduce(&self, row: usize, wave: &Wave, c: &Context<'_>) {
        let d = self.down.rows;
        let entries: &[u32] = c.scratch.shared(self.at.entry_of + row * self.top * 4, self.top);
        let results = entries.iter().map(|&e| e as usize).filter(|e| wave.entries.contains(e));
        let results = results.map(|e| c.scratch.shared::<f32>(self.at.y + (e - wave.entries.start) * d * 4, d));
        match self.reduce {
            Reduce::F32 => {
                let out: &mut [f32] = self.out.write(row, 1);
                if wave.first {
                    out.fill(0.0);
                }
                for y in results {
                    out.iter_mut().zip(y).for_each(|(out, y)| *out += y);
                }
            }
            Reduce::Exact => {
                let out: &mut [i64] = self.out.write(row, 1);
                if wave.first {
                    out.fill(0);
                }
                for y in results {
                    out.iter_mut().zip(y).for_each(|(out, y)| *out = Reduce::add_fixed(*out, Reduce::to_fixed(*y)));
                }
            }
        }
    }
}

/// Experts (places in the list of active ones) and entries of a wave.
struct Wave {
    first: bool,
    experts: Range<usize>,
    entries: Range<usize>,
}

pub(super) fn scratch(op: &Op<Tensor>, max_rows: usize) -> Need {
    let e = Experts::of(op, max_rows);
    let worker = e.form_gate.scratch().max(e.form_up.scratch()).max(e.form_down.scratch());
    Need { shared: e.at.end, worker: area(worker * 4) }
}

pub(super) fn work(op: &Op<Tensor>, phase: usize, c: &Context<'_>) -> Option<Work> {
    let e = Experts::of(op, c.band.layout.max_rows as usize);
    if phase == 0 {
        return Some(Work { items: 1, units: 0 });
    }
    let plan = e.plan(c);
    let (wave, step) = Experts::step(phase, &plan)?;
    let (entries, experts) = (wave.entries.len(), wave.experts.len());
    let product = |weight: &Tensor, matrices: usize| Work {
        items: experts * weight.rows.div_ceil(TILE),
        units: matrices * (entries + experts) * weight.rows * weight.width,
    };
    Some(match step {
        0 => Work::new(entries, e.x.width * 4),
        1 => product(e.gate, 2),
        2 => Work::new(entries, e.gate.rows * 16),
        3 => product(e.down, 1),
        _ => Work::new(c.rows(), e.down.rows * (e.top + 1)),
    })
}

pub(super) fn compute(op: &Op<Tensor>, phase: usize, items: Range<usize>, c: &Context<'_>) -> Result<(), String> {
    let e = Experts::of(op, c.band.layout.max_rows as usize);
    if phase == 0 {
        return e.group(c);
    }
    let (plan, at, s) = (e.plan(c), &e.at, c.scratch);
    let Some((wave, step)) = Experts::step(phase, &plan) else { return Ok(()) };
    let up_acts = if e.form_up == e.form_gate { at.acts_gate } else { at.acts_up };
    let store = |form: Form, at: usize, x: &[f32], i: usize| {
        form.store(x, s.shared_mut(at + i * form.row_bytes(), form.row_bytes()));
    };
    for i in items {
        let source = || s.shared::<u32>(at.source, wave.entries.end)[wave.entries.start + i] as usize;
        match step {
            0 => {
                let x = e.x.read(source() / e.top, 1);
                store(e.form_gate, at.acts_gate, x, i);
                if e.form_up != e.form_gate {
                    store(e.form_up, at.acts_up, x, i);
                }
            }
            1 => {
                let matrices = [(e.gate, e.form_gate, at.acts_gate, at.gate), (e.up, e.form_up, up_acts, at.up)];
                e.tile(&matrices, &wave, i, &plan, c)?;
            }
            2 => {
                let f = e.gate.rows;
                let (row, place) = (source() / e.top, source() % e.top);
                let gate: &mut [f32] = s.shared_mut(at.gate + i * f * 4, f);
                swiglu_weighted(gate, s.shared(at.up + i * f * 4, f), e.limit, e.weights.read::<f32>(row, 1)[place]);
                store(e.form_down, at.acts_down, gate, i);
            }
            3 => e.tile(&[(e.down, e.form_down, at.acts_down, at.y)], &wave, i, &plan, c)?,
            _ => e.reduce(i, &wave, c),
        }
    }
    Ok(())
}

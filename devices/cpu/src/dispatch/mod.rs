//! Running a segment: operations one after the other, each in phases, each phase cut into parts for the pool.
//!
//! An operation is three functions of (operation, phase): how much work there is ([`work`]), what one part computes
//! ([`compute`]), and, at `prepare`, how much scratch it needs ([`scratch`]). A phase is a number of independent items;
//! a part is a range of them. Every item computes the same bits in any part, so results do not depend on the number of
//! threads. The items of a phase see all results of the phases and operations before it.
//!
//! | file | operations |
//! |---|---|
//! | `rowwise` | everything that computes row by row |
//! | `attention` | IndexSelect, Attention |
//! | `product` | Linear, Grouped, and the products of HyperMix, HyperHead and Route |
//! | `experts` | Experts |
//! | `kernel` | (matrix rows times activation rows, for the two above) |

mod attention;
mod experts;
mod kernel;
mod product;
mod rowwise;

use std::ops::Range;
use std::sync::Arc;

use luce_core::{Domain, Op};
use luce_device::{BandLayout, BufferId, DeviceError, Launch, RowFacts, View};

use crate::check::{self, Limits};
use crate::memory::{Band, Buffers, Scratch, Tensor};
use crate::pool::{Job, Pool, share};

/// Work below which a phase stays on the queue thread, in units of about one multiply-add: 8 us of scalar code, several
/// times what it costs to share it out.
const INLINE_UNITS: usize = 32_768;
/// Parts per thread of a large phase: enough that an unlucky thread does not hold up the others for long.
const PARTS_PER_THREAD: usize = 4;

/// A prepared list of operations.
pub(crate) struct Segment {
    ops: Vec<Op<Tensor>>,
    band: Band,
    limits: Limits,
    buffers: Vec<BufferId>,
    need: Need,
}

/// Bytes of scratch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Need {
    /// Of the area that all workers share.
    pub(crate) shared: usize,
    /// Of each worker's own area.
    pub(crate) worker: usize,
}

impl Need {
    /// Enough for either.
    pub(crate) fn max(self, other: Need) -> Need {
        Need { shared: self.shared.max(other.shared), worker: self.worker.max(other.worker) }
    }
}

/// Bytes of an array in scratch, rounded up so that the next one is aligned.
fn area(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}

/// Independent items of a phase.
struct Work {
    items: usize,
    /// Cost of all of them, in units of about one multiply-add.
    units: usize,
}

impl Work {
    fn new(items: usize, each: usize) -> Work {
        Work { items, units: items.saturating_mul(each) }
    }
}

/// What the parts of an operation see beside their operands.
struct Context<'a> {
    band: &'a Band,
    launch: &'a Launch,
    scratch: &'a Scratch,
    threads: usize,
    worker: usize,
}

impl Context<'_> {
    fn count(&self, domain: Domain) -> usize {
        (match domain {
            Domain::Rows => self.launch.rows,
            Domain::Groups(class) => self.launch.groups[class as usize],
            Domain::Picks => self.launch.picks,
        }) as usize
    }

    fn rows(&self) -> usize {
        self.launch.rows as usize
    }

    fn facts(&self) -> &[RowFacts] {
        self.band.rows(self.rows())
    }

    /// The band row of item `i` of a domain.
    fn band_row(&self, domain: Domain, i: usize) -> usize {
        match domain {
            Domain::Rows => i,
            Domain::Groups(class) => self.band.groups(class, i + 1)[i] as usize,
            Domain::Picks => self.band.picks(i + 1)[i] as usize,
        }
    }
}

impl Segment {
    /// Checks operations and finds their memory.
    ///
    /// # Errors
    /// As `Device::prepare`.
    pub(crate) fn new(
        ops: &[Op<View>],
        band: BufferId,
        layout: BandLayout,
        buffers: &Buffers,
        threads: usize,
    ) -> Result<Segment, DeviceError> {
        let host = buffers.shared(band)?.clone();
        if layout.max_rows == 0 || layout.bytes() > host.len() {
            return Err(DeviceError::Invalid(format!(
                "a band description of {} rows takes {} bytes; buffer {} has {}",
                layout.max_rows,
                layout.bytes(),
                band.0,
                host.len()
            )));
        }
        let mut limits = Limits::new(layout);
        let mut named = vec![band];
        let mut prepared = Vec::with_capacity(ops.len());
        let mut need = Need::default();
        for (index, op) in ops.iter().enumerate() {
            check::check(op, index, layout, buffers, &mut limits)?;
            let op = op.try_map(|view, _| {
                if !named.contains(&view.buffer) {
                    named.push(view.buffer);
                }
                buffers.tensor(view)
            })?;
            need = need.max(scratch(&op, layout.max_rows as usize, threads));
            prepared.push(op);
        }
        Ok(Segment { ops: prepared, band: Band { host, layout }, limits, buffers: named, need })
    }

    pub(crate) fn uses(&self, buffer: BufferId) -> bool {
        self.buffers.contains(&buffer)
    }

    pub(crate) fn need(&self) -> Need {
        self.need
    }

    /// Refuses counts that do not fit.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] naming the count and the limit.
    pub(crate) fn check_counts(&self, launch: &Launch) -> Result<(), DeviceError> {
        let max_rows = self.band.layout.max_rows;
        let refuse = |what: &str, have: u32, limit: u32| {
            Err(DeviceError::Invalid(format!("launch of {have} {what}; the segment has room for {limit}")))
        };
        if launch.rows > max_rows {
            return refuse("rows", launch.rows, max_rows);
        }
        if launch.picks > self.limits.picks {
            return refuse("picks", launch.picks, self.limits.picks);
        }
        for (class, (&have, &limit)) in launch.groups.iter().zip(&self.limits.groups).enumerate() {
            if have > limit {
                return refuse(&format!("groups of class {class}"), have, limit);
            }
        }
        Ok(())
    }

    /// Runs all operations.
    ///
    /// # Errors
    /// What is wrong with the band description, or why an operation failed.
    pub(crate) fn execute(
        self: Arc<Segment>,
        launch: Launch,
        scratch: Scratch,
        pool: &mut Pool<Run>,
    ) -> Result<(), String> {
        self.check_band(&launch)?;
        let run = Run { segment: self, launch, scratch, threads: pool.threads() };
        for (index, op) in run.segment.ops.iter().enumerate() {
            let mut phase = 0;
            while let Some(work) = work(op, phase, &run.context(0)) {
                let most = (work.units / (INLINE_UNITS / 2)).min(run.threads * PARTS_PER_THREAD).min(work.items);
                let parts = if work.units < INLINE_UNITS { work.items.min(1) } else { most };
                pool.run(&run, step(index, phase, parts), parts).map_err(|e| format!("{}: {e}", op.name()))?;
                phase += 1;
            }
        }
        Ok(())
    }

    /// The band description is what the host wrote: nothing in it may lead outside a buffer.
    fn check_band(&self, launch: &Launch) -> Result<(), String> {
        let limits = &self.limits;
        let facts = self.band.rows(launch.rows as usize);
        for (i, f) in facts.iter().enumerate() {
            let row = i as u32;
            let wrong = |what: String| Err(format!("band row {i}: {what}"));
            if f.token >= limits.vocabulary {
                return wrong(format!("token {} is outside the vocabulary of {}", f.token, limits.vocabulary));
            }
            if f.slot >= limits.slots {
                return wrong(format!("slot {} of {}", f.slot, limits.slots));
            }
            if u64::from(f.position) >= limits.positions {
                return wrong(format!("position {} is behind the last of {}", f.position, limits.positions));
            }
            if f.first_row > row || f.end_row <= row || f.end_row > launch.rows {
                return wrong(format!("its sequence has rows {}..{} of {}", f.first_row, f.end_row, launch.rows));
            }
            if u64::from(f.first_position) + u64::from(row - f.first_row) != u64::from(f.position) {
                return wrong(format!("position {}, but its sequence begins at {}", f.position, f.first_position));
            }
        }
        if let Some(p) = self.band.picks(launch.picks as usize).iter().find(|&&p| p >= launch.rows) {
            return Err(format!("pick {p} of a band of {} rows", launch.rows));
        }
        for (class, &count) in launch.groups.iter().enumerate() {
            for &row in self.band.groups(class as u8, count as usize) {
                let Some(f) = facts.get(row as usize) else {
                    return Err(format!("a group of class {class} ends in row {row} of {}", launch.rows));
                };
                if let Some(ratio) = limits.ratios[class]
                    && !(u64::from(f.position) + 1).is_multiple_of(u64::from(ratio))
                {
                    return Err(format!("row {row} at position {} ends no group of {ratio}", f.position));
                }
            }
        }
        Ok(())
    }
}

/// A launched segment.
#[derive(Clone)]
pub(crate) struct Run {
    segment: Arc<Segment>,
    launch: Launch,
    scratch: Scratch,
    threads: usize,
}

impl Run {
    fn context(&self, worker: usize) -> Context<'_> {
        Context {
            band: &self.segment.band,
            launch: &self.launch,
            scratch: &self.scratch,
            threads: self.threads,
            worker,
        }
    }
}

impl Job for Run {
    fn part(&self, step: u64, part: usize, worker: usize) -> Result<(), String> {
        let (index, phase, parts) =
            ((step >> 44) as usize, (step >> 20) as usize & 0xff_ffff, step as usize & 0xf_ffff);
        let (op, context) = (&self.segment.ops[index], self.context(worker));
        let Some(work) = work(op, phase, &context) else { return Ok(()) };
        compute(op, phase, share(work.items, parts, part), &context)
    }
}

/// Operation, phase and number of parts in one word: 20, 24 and 20 bits.
fn step(index: usize, phase: usize, parts: usize) -> u64 {
    debug_assert!(index < 1 << 20 && phase < 1 << 24 && parts < 1 << 20);
    ((index as u64) << 44) | ((phase as u64) << 20) | parts as u64
}

/// Items of a phase; `None` behind the last phase.
fn work(op: &Op<Tensor>, phase: usize, c: &Context<'_>) -> Option<Work> {
    match op {
        Op::Linear { .. } | Op::Grouped { .. } => product::work(op, phase, c),
        Op::HyperMix { .. } | Op::HyperHead { .. } | Op::Route { .. } => match phase {
            0 => product::work(op, 1, c),
            1 => Some(rowwise::work(op, c)),
            _ => None,
        },
        Op::Experts { .. } => experts::work(op, phase, c),
        Op::IndexSelect { .. } | Op::Attention { .. } => attention::work(op, phase, c),
        _ => (phase == 0).then(|| rowwise::work(op, c)),
    }
}

/// Some items of a phase.
fn compute(op: &Op<Tensor>, phase: usize, items: Range<usize>, c: &Context<'_>) -> Result<(), String> {
    match op {
        Op::Linear { .. } | Op::Grouped { .. } => product::compute(op, phase, items, c),
        Op::HyperMix { .. } | Op::HyperHead { .. } | Op::Route { .. } if phase == 0 => {
            product::compute(op, 1, items, c)
        }
        Op::Experts { .. } => experts::compute(op, phase, items, c),
        Op::IndexSelect { .. } | Op::Attention { .. } => attention::compute(op, phase, items, c),
        _ => rowwise::compute(op, items, c),
    }
}

/// Scratch of an operation on a device with `threads` threads.
fn scratch(op: &Op<Tensor>, max_rows: usize, threads: usize) -> Need {
    match op {
        Op::Linear { .. } | Op::Grouped { .. } | Op::HyperMix { .. } | Op::HyperHead { .. } => {
            product::scratch(op, max_rows)
        }
        Op::Route { .. } => product::scratch(op, max_rows).max(rowwise::scratch(op)),
        Op::Experts { .. } => experts::scratch(op, max_rows),
        Op::IndexSelect { .. } | Op::Attention { .. } => attention::scratch(op, threads),
        _ => rowwise::scratch(op),
    }
}

//! What `prepare` refuses: operands whose dtype, shape or place does not fit the operation. Every error names the
//! operation, its number in the list, and the operand.

use luce_core::{DType, Domain, Op, Operand, Precision, Reduce};
use luce_device::{BandLayout, DeviceError, MAX_RATIO_CLASSES, View};

use crate::memory::Buffers;
use crate::ops::hyper::STREAMS_MAX;
use crate::quant;

/// What the operations of a segment allow a band to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Groups per class: the smallest capacity of their operands.
    pub(crate) groups: [u32; MAX_RATIO_CLASSES],
    /// Ratio of each class that an operation names.
    pub(crate) ratios: [Option<u32>; MAX_RATIO_CLASSES],
    /// Rows that need logits: the smallest capacity.
    pub(crate) picks: u32,
    /// Sequence slots: the smallest number of planes of a state.
    pub(crate) slots: u32,
    /// Rows of the smallest table that tokens index.
    pub(crate) vocabulary: u32,
    /// Positions from this one on need more compressed rows than a state holds.
    pub(crate) positions: u64,
}

impl Limits {
    pub(crate) fn new(layout: BandLayout) -> Limits {
        Limits {
            groups: [layout.max_rows; MAX_RATIO_CLASSES],
            ratios: [None; MAX_RATIO_CLASSES],
            picks: layout.max_rows,
            slots: u32::MAX,
            vocabulary: u32::MAX,
            positions: u64::from(u32::MAX),
        }
    }
}

/// True for the types that weights may have.
pub(crate) fn is_weight(dtype: DType) -> bool {
    !matches!(
        dtype,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F64 | DType::Q8_1 | DType::Q8K
            // Their codebooks travel outside the blocks, and no operand carries them.
            | DType::Rocmfp3Mix | DType::Rocmfp2Mix
    )
}

type Checked = Result<(), DeviceError>;

struct Check<'a> {
    buffers: &'a Buffers,
    max_rows: u32,
    limits: &'a mut Limits,
    name: &'static str,
    index: usize,
    seen: Vec<(&'static str, View, Operand)>,
}

/// Checks one operation and narrows the segment's limits.
///
/// # Errors
/// [`DeviceError::Unsupported`] for dtypes, [`DeviceError::Invalid`] for the rest.
pub(crate) fn check(
    op: &Op<View>,
    index: usize,
    layout: BandLayout,
    buffers: &Buffers,
    limits: &mut Limits,
) -> Result<(), DeviceError> {
    let mut c =
        Check { buffers, max_rows: layout.max_rows, limits, name: op.name(), index, seen: Vec::with_capacity(12) };
    c.op(op)?;
    c.overlaps()
}

impl Check<'_> {
    fn op(&mut self, op: &Op<View>) -> Checked {
        use Domain::Rows;
        use Operand::{Read, Update, Write};
        match op {
            Op::Embed { table, streams, copies } => {
                self.matrix("table", table)?;
                self.limits.vocabulary = self.limits.vocabulary.min(table.rows);
                self.rows("streams", streams, Write, Rows)?;
                self.positive("copies", *copies)?;
                self.width("streams", streams, "copies * table width", table.width, *copies)
            }
            Op::OneHot { out } => self.rows("out", out, Write, Rows),
            Op::Angles { freqs, out, domain, ratio } => {
                self.place("freqs", freqs, Read)?;
                self.dtype("freqs", freqs, &[DType::F64])?;
                self.rows("out", out, Write, *domain)?;
                if let Domain::Groups(class) = *domain {
                    self.ratio(class, *ratio)?;
                }
                self.width("out", out, "2 * the number of freqs", 2, freqs.width)
            }
            Op::RmsNorm { x, weight, out, width, eps, domain } => {
                self.rows("x", x, Read, *domain)?;
                self.rows("out", out, Write, *domain)?;
                self.runs("x", x, *width)?;
                self.width("out", out, "the width of x", x.width, 1)?;
                if eps.is_nan() || *eps < 0.0 {
                    return self.invalid(&format!("eps = {eps}"));
                }
                weight.as_ref().map_or(Ok(()), |w| self.vector("weight", w, *width, 1))
            }
            Op::Linear { x, weight, out, domain, precision } => {
                self.rows("x", x, Read, *domain)?;
                self.rows("out", out, Write, *domain)?;
                self.matrix("weight", weight)?;
                self.width("weight", weight, "the width of x", x.width, 1)?;
                self.width("out", out, "the rows of weight", weight.rows, 1)?;
                self.product("weight", weight, *precision)
            }
            Op::Grouped { x, weight, out, groups, precision } => {
                self.rows("x", x, Read, Rows)?;
                self.rows("out", out, Write, Rows)?;
                self.matrix("weight", weight)?;
                self.positive("groups", *groups)?;
                self.width("x", x, "groups * the width of weight", weight.width, *groups)?;
                self.width("out", out, "the rows of weight", weight.rows, 1)?;
                if !weight.rows.is_multiple_of(*groups) {
                    return self
                        .invalid(&format!("weight has {} rows, not a multiple of groups {groups}", weight.rows));
                }
                self.product("weight", weight, *precision)
            }
            Op::Rope { angles, x, width, inverse: _, domain } => {
                self.rows("angles", angles, Read, *domain)?;
                self.rows("x", x, Update, *domain)?;
                self.runs("x", x, *width)?;
                if !angles.width.is_multiple_of(2) || angles.width > *width {
                    return self.invalid(&format!("angles have width {}; even, up to {width} wanted", angles.width));
                }
                Ok(())
            }
            Op::HyperMix {
                streams,
                weight,
                base,
                scale,
                coef,
                streams_count: s,
                rms_eps: _,
                hc_eps: _,
                iterations,
            } => {
                self.streams(streams, Read, *s)?;
                self.matrix("weight", weight)?;
                self.rows("coef", coef, Write, Rows)?;
                self.positive("iterations", *iterations)?;
                self.width("weight", weight, "the width of streams", streams.width, 1)?;
                self.height("weight", weight, "2 S + S * S", 2 * s + s * s)?;
                self.width("coef", coef, "2 S + S * S", 2 * s + s * s, 1)?;
                self.vector("base", base, 2 * s + s * s, 1)?;
                self.vector("scale", scale, 3, 1)
            }
            Op::HyperHead { streams, weight, base, scale, pre, streams_count: s, rms_eps: _, hc_eps: _ } => {
                self.streams(streams, Read, *s)?;
                self.matrix("weight", weight)?;
                self.rows("pre", pre, Write, Rows)?;
                self.width("weight", weight, "the width of streams", streams.width, 1)?;
                self.height("weight", weight, "S", *s)?;
                self.width("pre", pre, "S", *s, 1)?;
                self.vector("base", base, *s, 1)?;
                self.vector("scale", scale, 1, 1)
            }
            Op::Collapse { streams, pre, out, streams_count: s } => {
                self.streams(streams, Read, *s)?;
                self.rows("pre", pre, Read, Rows)?;
                self.rows("out", out, Write, Rows)?;
                self.at_least("pre", "width", pre.width, *s)?;
                self.width("streams", streams, "S * the width of out", out.width, *s)
            }
            Op::Expand { y, coef, streams, streams_count: s } => {
                self.rows("y", y, Read, Rows)?;
                self.rows("coef", coef, Read, Rows)?;
                self.streams(streams, Update, *s)?;
                self.width("coef", coef, "2 S + S * S", 2 * s + s * s, 1)?;
                self.width("streams", streams, "S * the width of y", y.width, *s)
            }
            Op::Sum { a, b, c, d, out } => {
                self.rows("out", out, Write, Rows)?;
                for (name, v) in [("a", Some(a)), ("b", b.as_ref()), ("c", c.as_ref()), ("d", d.as_ref())] {
                    if let Some(v) = v {
                        self.typed_rows(name, v, Read, Rows, &[DType::F32, DType::I64])?;
                        self.width(name, v, "the width of out", out.width, 1)?;
                    }
                }
                Ok(())
            }
            Op::Pool { values, scores, value_ring, score_ring, ape, out, ratio, class, overlap } => {
                let (coff, slots) = if *overlap { (2, 2 * u64::from(*ratio)) } else { (1, u64::from(*ratio)) };
                self.ratio(*class, *ratio)?;
                self.rows("out", out, Write, Domain::Groups(*class))?;
                for (name, v) in [("values", values), ("scores", scores)] {
                    self.rows(name, v, Read, Rows)?;
                    self.width(name, v, "coff * the width of out", out.width, coff)?;
                }
                for (name, v) in [("value_ring", value_ring), ("score_ring", score_ring)] {
                    self.state(name, v, Read, values.width)?;
                    if u64::from(v.rows) + 1 < slots {
                        return self.invalid(&format!(
                            "{name} holds {} rows; a group reaches {} back",
                            v.rows,
                            slots - 1
                        ));
                    }
                }
                ape.as_ref().map_or(Ok(()), |ape| self.vector("ape", ape, values.width, *ratio))
            }
            Op::RingWrite { x, ring } => {
                self.rows("x", x, Read, Rows)?;
                self.state("ring", ring, Update, x.width)
            }
            Op::RowsWrite { x, state, ratio, class } => {
                self.ratio(*class, *ratio)?;
                self.rows("x", x, Read, Domain::Groups(*class))?;
                self.state("state", state, Update, x.width)?;
                self.compressed(state, *ratio)
            }
            Op::GroupGather { x, out, class } => {
                self.rows("x", x, Read, Rows)?;
                self.rows("out", out, Write, Domain::Groups(*class))?;
                self.width("out", out, "the width of x", x.width, 1)
            }
            Op::FakeQuant { x, kind: _, block, width, from, to, domain } => {
                self.rows("x", x, Update, *domain)?;
                self.runs("x", x, *width)?;
                self.positive("block", *block)?;
                if from > to || to > width || !(to - from).is_multiple_of(*block) {
                    return self.invalid(&format!("columns {from}..{to} of {width} are no whole blocks of {block}"));
                }
                Ok(())
            }
            Op::Hadamard { x, width, domain } => {
                self.rows("x", x, Update, *domain)?;
                self.runs("x", x, *width)?;
                if !width.is_power_of_two() {
                    return self.invalid(&format!("width {width} is not a power of two"));
                }
                Ok(())
            }
            Op::IndexSelect { queries, weights, keys, within, selected, keep, heads, ratio, top, scale: _, block } => {
                self.positive("heads", *heads)?;
                self.positive("ratio", *ratio)?;
                self.positive("top", *top)?;
                self.rows("queries", queries, Read, Rows)?;
                self.rows("weights", weights, Read, Rows)?;
                self.width("queries", queries, "heads * the width of keys", keys.width, *heads)?;
                self.width("weights", weights, "heads", *heads, 1)?;
                self.state("keys", keys, Read, keys.width)?;
                self.compressed(keys, *ratio)?;
                self.typed_rows("selected", selected, Write, Rows, &[DType::I32])?;
                self.width("selected", selected, "1 + top", 1, top.saturating_add(1))?;
                if let Some(within) = within {
                    self.positive("block", *block)?;
                    self.typed_rows("within", within, Read, Rows, &[DType::I32])?;
                    self.at_least("within", "width", within.width, 2)?;
                }
                if let Some(keep) = keep {
                    self.positive("block", *block)?;
                    self.typed_rows("keep", keep, Write, Rows, &[DType::I32])?;
                    self.at_least("keep", "width", keep.width, 2)?;
                }
                Ok(())
            }
            Op::Attention { q, fresh, ring, sinks, compressed, selected, out, heads, window, ratio, scale: _ } => {
                self.positive("heads", *heads)?;
                self.positive("window", *window)?;
                self.rows("q", q, Read, Rows)?;
                self.rows("fresh", fresh, Read, Rows)?;
                self.rows("out", out, Write, Rows)?;
                self.width("q", q, "heads * the width of fresh", fresh.width, *heads)?;
                self.width("out", out, "the width of q", q.width, 1)?;
                self.state("ring", ring, Read, fresh.width)?;
                self.at_least("ring", "rows", ring.rows, window - 1)?;
                self.vector("sinks", sinks, *heads, 1)?;
                if let Some(compressed) = compressed {
                    self.positive("ratio", *ratio)?;
                    self.state("compressed", compressed, Read, fresh.width)?;
                    self.compressed(compressed, *ratio)?;
                }
                if let Some(selected) = selected {
                    if compressed.is_none() {
                        return self.invalid("selected is given without compressed");
                    }
                    self.typed_rows("selected", selected, Read, Rows, &[DType::I32])?;
                }
                Ok(())
            }
            Op::Route { x, gate, bias, table, ids, weights, top, scale: _, normalise: _ } => {
                self.rows("x", x, Read, Rows)?;
                self.matrix("gate", gate)?;
                self.width("gate", gate, "the width of x", x.width, 1)?;
                self.positive("top", *top)?;
                self.typed_rows("ids", ids, Write, Rows, &[DType::I32])?;
                self.rows("weights", weights, Write, Rows)?;
                self.width("ids", ids, "top", *top, 1)?;
                self.width("weights", weights, "top", *top, 1)?;
                self.at_least("gate", "rows", gate.rows, *top)?;
                if let Some(bias) = bias {
                    self.vector("bias", bias, gate.rows, 1)?;
                }
                if let Some(table) = table {
                    self.place("table", table, Read)?;
                    self.dtype("table", table, &[DType::I32])?;
                    self.width("table", table, "top", *top, 1)?;
                    self.limits.vocabulary = self.limits.vocabulary.min(table.rows);
                }
                Ok(())
            }
            Op::Experts { x, ids, weights, gate, up, down, owned, out, limit: _, precision, reduce } => {
                self.rows("x", x, Read, Rows)?;
                self.typed_rows("ids", ids, Read, Rows, &[DType::I32])?;
                self.rows("weights", weights, Read, Rows)?;
                self.width("weights", weights, "the width of ids", ids.width, 1)?;
                for (name, v) in [("gate", gate), ("up", up), ("down", down)] {
                    self.place(name, v, Read)?;
                    self.weight(name, v)?;
                    self.product(name, v, *precision)?;
                    if v.planes != gate.planes {
                        return self.invalid(&format!("{name} holds {} experts, gate {}", v.planes, gate.planes));
                    }
                }
                self.width("gate", gate, "the width of x", x.width, 1)?;
                self.width("up", up, "the width of x", x.width, 1)?;
                self.height("up", up, "the rows of gate", gate.rows)?;
                self.width("down", down, "the rows of gate", gate.rows, 1)?;
                self.place("owned", owned, Read)?;
                self.dtype("owned", owned, &[DType::I32])?;
                let wanted = match reduce {
                    Reduce::F32 => DType::F32,
                    Reduce::Exact => DType::I64,
                };
                self.typed_rows("out", out, Write, Rows, &[wanted])?;
                self.width("out", out, "the rows of down", down.rows, 1)
            }
            Op::SwiGlu { gate, up, out, limit: _ } => {
                for (name, v, role) in [("gate", gate, Read), ("up", up, Read), ("out", out, Write)] {
                    self.rows(name, v, role, Rows)?;
                    self.width(name, v, "the width of gate", gate.width, 1)?;
                }
                Ok(())
            }
            Op::DecodeRows { raw, out, columns, width } => {
                self.positive("columns", *columns)?;
                self.positive("width", *width)?;
                self.place("raw", raw, Read)?;
                self.at_least("raw", "rows", raw.rows, self.max_rows)?;
                self.rows("out", out, Write, Rows)?;
                self.width("out", out, "columns * width", *width, *columns)?;
                if raw.dtype == DType::I8 {
                    if !width.is_multiple_of(32) {
                        return self.invalid(&format!("packed rows of width {width}; a multiple of 32 wanted"));
                    }
                    self.width("raw", raw, "columns * (width + width / 32)", width + width / 32, *columns)
                } else {
                    self.weight("raw", raw)?;
                    if !(*width as usize).is_multiple_of(raw.dtype.block_values()) {
                        return self.invalid(&format!("width {width} is not a whole number of {} blocks", raw.dtype));
                    }
                    self.width("raw", raw, "columns * width", *width, *columns)
                }
            }
            Op::EngramGate { kv, q_weight, k_weight, streams, streams_count: s, eps: _ } => {
                self.streams(streams, Update, *s)?;
                self.rows("kv", kv, Read, Rows)?;
                self.width("kv", kv, "(S + 1) * D", streams.width / s, s + 1)?;
                self.vector("q_weight", q_weight, streams.width, 1)?;
                self.vector("k_weight", k_weight, streams.width, 1)
            }
            Op::Gather { x, out } => {
                self.rows("x", x, Read, Rows)?;
                self.rows("out", out, Write, Domain::Picks)?;
                self.width("out", out, "the width of x", x.width, 1)
            }
            Op::ArgMax { logits, out } => {
                self.rows("logits", logits, Read, Domain::Picks)?;
                self.typed_rows("out", out, Write, Domain::Picks, &[DType::I32])?;
                self.width("out", out, "1", 1, 1)
            }
        }
    }

    fn text(&self, text: &str) -> String {
        format!("{} (operation {}): {text}", self.name, self.index)
    }

    fn invalid(&self, text: &str) -> Checked {
        Err(DeviceError::Invalid(self.text(text)))
    }

    /// The view lies inside its buffer, aligned, and has values.
    fn place(&mut self, name: &'static str, v: &View, role: Operand) -> Checked {
        let host = self.buffers.get(v.buffer).map_err(|e| DeviceError::Invalid(self.text(&format!("{name}: {e}"))))?;
        if !v.offset.is_multiple_of(64) {
            return self.invalid(&format!("{name} begins at byte {}, not a multiple of 64", v.offset));
        }
        if v.width == 0 || v.rows == 0 || v.planes == 0 {
            return self.invalid(&format!("{name} is empty: [{}, {}, {}]", v.planes, v.rows, v.width));
        }
        let Some(row_bytes) = v.dtype.row_bytes(u64::from(v.width)) else {
            let block = v.dtype.block_values();
            return self.invalid(&format!("{name} has rows of {} values; {} has blocks of {block}", v.width, v.dtype));
        };
        let end = u128::from(v.offset) + u128::from(row_bytes) * u128::from(v.rows) * u128::from(v.planes);
        if end > host.len() as u128 {
            let all = host.len();
            return self.invalid(&format!("{name} ends at byte {end} of buffer {}, which has {all}", v.buffer.0));
        }
        self.seen.push((name, *v, role));
        Ok(())
    }

    fn dtype(&self, name: &str, v: &View, allowed: &[DType]) -> Checked {
        if allowed.contains(&v.dtype) {
            return Ok(());
        }
        let wanted: Vec<&str> = allowed.iter().map(|d| d.name()).collect();
        let text = self.text(&format!("{name} is {}; {} wanted", v.dtype, wanted.join(" or ")));
        Err(DeviceError::Unsupported(text))
    }

    fn weight(&self, name: &str, v: &View) -> Checked {
        if is_weight(v.dtype) {
            return Ok(());
        }
        Err(DeviceError::Unsupported(
            self.text(&format!("{name} is {}, which this device does not multiply or decode", v.dtype)),
        ))
    }

    /// A weight [rows, width] of one plane.
    fn matrix(&mut self, name: &'static str, v: &View) -> Checked {
        self.place(name, v, Operand::Read)?;
        self.weight(name, v)?;
        if v.planes != 1 {
            return self.invalid(&format!("{name} has {} planes; a matrix wanted", v.planes));
        }
        Ok(())
    }

    /// A weight that meets activations at this precision.
    fn product(&self, name: &str, v: &View, precision: Precision) -> Checked {
        self.weight(name, v)?;
        let blocks = match (precision, quant::partner(v.dtype)) {
            (Precision::Partner, Some(format)) => format.block_values() as u32,
            _ => 1,
        };
        if !v.width.is_multiple_of(blocks) {
            return self
                .invalid(&format!("{name} has rows of {} values, no whole activation blocks of {blocks}", v.width));
        }
        Ok(())
    }

    /// An f32 vector or small matrix of `values * times` values.
    fn vector(&mut self, name: &'static str, v: &View, values: u32, times: u32) -> Checked {
        self.place(name, v, Operand::Read)?;
        self.dtype(name, v, &[DType::F32])?;
        let have = u64::from(v.width) * u64::from(v.rows) * u64::from(v.planes);
        let wanted = u64::from(values) * u64::from(times);
        if have != wanted {
            return self.invalid(&format!("{name} has {have} values; {wanted} wanted"));
        }
        Ok(())
    }

    /// An f32 activation.
    fn rows(&mut self, name: &'static str, v: &View, role: Operand, domain: Domain) -> Checked {
        self.typed_rows(name, v, role, domain, &[DType::F32])
    }

    fn typed_rows(&mut self, name: &'static str, v: &View, role: Operand, domain: Domain, types: &[DType]) -> Checked {
        self.place(name, v, role)?;
        self.dtype(name, v, types)?;
        if v.planes != 1 {
            return self.invalid(&format!("{name} has {} planes; a matrix wanted", v.planes));
        }
        match domain {
            Domain::Rows => self.at_least(name, "rows", v.rows, self.max_rows)?,
            Domain::Groups(class) => {
                let Some(limit) = self.limits.groups.get_mut(class as usize) else {
                    return self.invalid(&format!("class {class}; there are {MAX_RATIO_CLASSES}"));
                };
                *limit = v.rows.min(*limit);
            }
            Domain::Picks => self.limits.picks = v.rows.min(self.limits.picks),
        }
        Ok(())
    }

    fn streams(&mut self, v: &View, role: Operand, s: u32) -> Checked {
        self.rows("streams", v, role, Domain::Rows)?;
        if !(1..=STREAMS_MAX as u32).contains(&s) {
            return self.invalid(&format!("{s} streams; 1 to {STREAMS_MAX} wanted"));
        }
        self.runs("streams", v, v.width / s)
    }

    /// A state [slots, rows, width].
    fn state(&mut self, name: &'static str, v: &View, role: Operand, width: u32) -> Checked {
        self.place(name, v, role)?;
        self.dtype(name, v, &[DType::F32])?;
        self.width(name, v, "the width of its rows", width, 1)?;
        self.limits.slots = v.planes.min(self.limits.slots);
        Ok(())
    }

    /// A state that holds one row per group of `ratio` tokens.
    fn compressed(&mut self, v: &View, ratio: u32) -> Checked {
        let positions = (u64::from(v.rows) + 1) * u64::from(ratio) - 1;
        self.limits.positions = positions.min(self.limits.positions);
        Ok(())
    }

    fn ratio(&mut self, class: u8, ratio: u32) -> Checked {
        self.positive("ratio", ratio)?;
        let Some(known) = self.limits.ratios.get_mut(class as usize) else {
            return self.invalid(&format!("class {class}; there are {MAX_RATIO_CLASSES}"));
        };
        let first = *known.get_or_insert(ratio);
        if first != ratio {
            return self.invalid(&format!("ratio {ratio} for class {class}, which has {first} in this segment"));
        }
        Ok(())
    }

    fn runs(&self, name: &str, v: &View, width: u32) -> Checked {
        if width == 0 || !v.width.is_multiple_of(width) {
            return self.invalid(&format!("{name} has rows of {} values, no whole runs of {width}", v.width));
        }
        Ok(())
    }

    fn width(&self, name: &str, v: &View, of: &str, one: u32, times: u32) -> Checked {
        let wanted = u64::from(one) * u64::from(times);
        if u64::from(v.width) != wanted {
            return self.invalid(&format!("{name} has width {}; {wanted} ({of}) wanted", v.width));
        }
        Ok(())
    }

    fn height(&self, name: &str, v: &View, of: &str, wanted: u32) -> Checked {
        if v.rows != wanted {
            return self.invalid(&format!("{name} has {} rows; {wanted} ({of}) wanted", v.rows));
        }
        Ok(())
    }

    fn at_least(&self, name: &str, what: &str, have: u32, wanted: u32) -> Checked {
        if have < wanted {
            return self.invalid(&format!("{name} has {what} {have}; at least {wanted} wanted"));
        }
        Ok(())
    }

    fn positive(&self, name: &str, value: u32) -> Checked {
        if value == 0 { self.invalid(&format!("{name} = 0")) } else { Ok(()) }
    }

    /// No operand may overlap one that is written; only RmsNorm works in place.
    fn overlaps(&self) -> Checked {
        for (i, (name, v, role)) in self.seen.iter().enumerate() {
            for (other_name, other, other_role) in &self.seen[..i] {
                if *role == Operand::Read && *other_role == Operand::Read {
                    continue;
                }
                let same = self.buffers.get(v.buffer)?.same(self.buffers.get(other.buffer)?);
                let apart = v.offset >= other.offset + other.bytes() || other.offset >= v.offset + v.bytes();
                let in_place =
                    self.name == "RmsNorm" && v.offset == other.offset && *name == "out" && *other_name == "x";
                if same && !apart && !in_place {
                    return self.invalid(&format!("{name} overlaps {other_name}"));
                }
            }
        }
        Ok(())
    }
}

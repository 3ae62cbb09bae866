//! The operations that devices compute: one vocabulary, generic over the operand. The layer program (`luce-model`)
//! writes them over symbolic values, the wiring compiler maps these to slots, and a device gets them over views of its
//! memory.
//!
//! Conventions. An activation operand is a row-major f32 matrix [rows, width] of which an operation touches the first
//! `n` rows, `n` being the launch's count for the operation's [`Domain`]. A weight is a matrix [out, in] of any dtype,
//! one row of `in` values after the other; an expert stack has a third dimension. A *state* operand is
//! [slots, rows, width] f32: the part of a sequence lies in plane `slot`. Per-row facts (token, position, slot, where the
//! sequence's rows begin) come from the launch's band description, never through operands. Every result depends on its
//! own row and that row's sequence only, and every sum has one fixed order: see design.md section 6.
#![allow(rustdoc::broken_intra_doc_links, reason = "shapes are written in brackets")]

/// How many rows an operation runs over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Domain {
    /// Every row of the band.
    Rows,
    /// One per compressed group that a row of the band completes, for this class of compress ratios. Group `g` is
    /// completed by the band row that the band description lists, at position `p`; it is number `(p + 1) / ratio - 1`
    /// of its sequence and covers positions `p + 1 - ratio ..= p`.
    Groups(u8),
    /// One per row that needs logits.
    Picks,
}

/// What activations become before they meet a quantised weight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Precision {
    /// They stay f32, and weights are decoded to f32 (`activations = "f32"`).
    F32,
    /// The weight type's partner of spec/formats.md section 3.1, mostly 8-bit blocks (`activations = "int8"`).
    Partner,
}

/// How expert outputs are added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reduce {
    /// In f32, in ascending order of the expert's id.
    F32,
    /// As 64-bit fixed point with [`Reduce::FRACTION_BITS`] bits behind the point: any order gives equal bits.
    Exact,
}

impl Reduce {
    /// Bits behind the binary point of an exact sum. Each addend is rounded to the nearest multiple of 2^-32 (ties to
    /// even), so the error per addend is below 1.2e-10.
    pub const FRACTION_BITS: u32 = 32;
    /// Addends of this magnitude and above, and those that are not finite, count as NaN: 512 smaller ones cannot
    /// overflow 64 bits.
    pub const LIMIT: f32 = 1048576.0;
    /// Stands for NaN in an exact sum; poison plus anything is poison.
    pub const POISON: i64 = i64::MIN;

    /// An addend of an exact sum.
    #[inline]
    pub fn to_fixed(value: f32) -> i64 {
        if value.abs() < Reduce::LIMIT {
            // f64 holds 53 bits: 20 before the point and 32 behind it are exact before the rounding.
            (f64::from(value) * (1u64 << Reduce::FRACTION_BITS) as f64).round_ties_even() as i64
        } else {
            Reduce::POISON
        }
    }

    /// Sum of two exact values.
    #[inline]
    pub fn add_fixed(a: i64, b: i64) -> i64 {
        if a == Reduce::POISON || b == Reduce::POISON { Reduce::POISON } else { a + b }
    }

    /// The value of an exact sum, rounded once to f32.
    #[inline]
    pub fn from_fixed(sum: i64) -> f32 {
        if sum == Reduce::POISON { f32::NAN } else { (sum as f64 / (1u64 << Reduce::FRACTION_BITS) as f64) as f32 }
    }
}

/// Fake quantisation steps of the reference (spec/model.md section 3.9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QuantKind {
    /// fp8 e4m3 values with an e8m0 scale per block.
    Fp8,
    /// fp4 e2m1 values with an e8m0 scale per block.
    Fp4,
    /// fp4 e2m1 values with an e4m3 scale per block.
    Fp4Scaled,
}

/// What an operation does with an operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// Only reads it.
    Read,
    /// Overwrites it without reading.
    Write,
    /// Reads and changes it.
    Update,
}

macro_rules! ops {
    ($(
        $(#[$doc:meta])*
        $name:ident {
            $(read $($r:ident),+;)?
            $(maybe $($m:ident),+;)?
            $(update $($u:ident),+;)?
            $(write $($w:ident),+;)?
            $(maybe_write $($mw:ident),+;)?
            $(with $($p:ident: $t:ty),+;)?
        }
    )*) => {
        /// One operation over operands of type `V`.
        #[derive(Clone, PartialEq, Debug)]
        #[allow(missing_docs, reason = "each variant documents its fields")]
        pub enum Op<V> {
            $(
                $(#[$doc])*
                $name {
                    $($($r: V,)+)?
                    $($($m: Option<V>,)+)?
                    $($($u: V,)+)?
                    $($($w: V,)+)?
                    $($($mw: Option<V>,)+)?
                    $($($p: $t,)+)?
                },
            )*
        }

        impl<V> Op<V> {
            /// Name of the operation.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$name { .. } => stringify!($name),)* }
            }

            /// The same operation over other operands.
            ///
            /// # Errors
            /// The first error of `f`.
            pub fn try_map<W, E>(&self, mut f: impl FnMut(&V, Operand) -> Result<W, E>) -> Result<Op<W>, E> {
                Ok(match self {
                    $(Op::$name { $($($r,)+)? $($($m,)+)? $($($u,)+)? $($($w,)+)? $($($mw,)+)? $($($p,)+)? } => Op::$name {
                        $($($r: f($r, Operand::Read)?,)+)?
                        $($($m: $m.as_ref().map(|v| f(v, Operand::Read)).transpose()?,)+)?
                        $($($u: f($u, Operand::Update)?,)+)?
                        $($($w: f($w, Operand::Write)?,)+)?
                        $($($mw: $mw.as_ref().map(|v| f(v, Operand::Write)).transpose()?,)+)?
                        $($($p: *$p,)+)?
                    },)*
                })
            }
        }
    };
}

ops! {
    /// Row `token` of `table` [vocabulary, D] (any dtype), decoded and written `copies` times side by side into
    /// `streams` [rows, copies * D]. Domain: rows.
    Embed { read table; write streams; with copies: u32; }

    /// `out` [rows, width] = (1, 0, 0, ...): the mix that the first attention of V4.1 uses (spec/model.md 3.1).
    OneHot { write out; }

    /// Rotation angles: `out` [n, 2 * k] = (cos, sin) pairs of `position * freqs[i]`, computed in f64 and rounded to
    /// f32. `freqs` is [k] F64. The position of a row is its own; that of a group is its first covered position.
    Angles { read freqs; write out; with domain: Domain, ratio: u32; }

    /// `out = weight * x / sqrt(mean(x^2) + eps)` over each run of `width` values; statistics in f32. Without `weight`
    /// the factor is 1. `x` and `out` may be the same operand.
    RmsNorm { read x; maybe weight; write out; with width: u32, eps: f32, domain: Domain; }

    /// `out` [n, out] = `weight` [out, in] times each row of `x` [n, in].
    Linear { read x, weight; write out; with domain: Domain, precision: Precision; }

    /// Block-diagonal product: with G = `groups`, `x` [rows, G * in] and `weight` [G * R, in],
    /// `out`[g * R + i] = weight[g * R + i] . x[g * in ..][..in]. Domain: rows.
    Grouped { read x, weight; write out; with groups: u32, precision: Precision; }

    /// Rotates interleaved pairs of the last `2 * k` values of each of the `x.width / width` heads of a row by the
    /// row's `angles` [n, 2 * k] (from [`Op::Angles`]); `inverse` negates the angle (spec/model.md 3.4).
    Rope { read angles; update x; with width: u32, inverse: bool, domain: Domain; }

    /// Hyper-connection coefficients (spec/model.md 3.2) from `streams` [rows, S * D]: `coef` [rows, 2S + S*S] =
    /// pre [S], post [S], C [S*S] row-major (C[j][k] at j * S + k). `weight` [2S + S*S, S * D] is multiplied by f32
    /// activations whatever the precision. `base` [2S + S*S], `scale` [3]. Domain: rows.
    HyperMix { read streams, weight, base, scale; write coef; with streams_count: u32, rms_eps: f32, hc_eps: f32, iterations: u32; }

    /// V4's final mix: `pre` [rows, S] = sigmoid(u * scale + base) + hc_eps (spec/model.md 3.2). Domain: rows.
    HyperHead { read streams, weight, base, scale; write pre; with streams_count: u32, rms_eps: f32, hc_eps: f32; }

    /// `out` [rows, D] = sum over s of p[s] * streams[s], p being the first S values of the row of `pre`. Domain: rows.
    Collapse { read streams, pre; write out; with streams_count: u32; }

    /// `streams`[k] = post[k] * y + sum over j of C[j][k] * streams[j], in place, with `coef` of [`Op::HyperMix`] and
    /// `y` [rows, D]. Domain: rows.
    Expand { read y, coef; update streams; with streams_count: u32; }

    /// `out` [rows, D] (f32) = a + b + c + d, in this order, of those that are given. An operand is F32, or I64: an
    /// exact partial sum. All I64 operands are added first, as integers. Domain: rows.
    Sum { read a; maybe b, c, d; write out; }

    /// Compressor pooling (spec/model.md 3.6, 3.7). Per token a value row and a score row, [rows, coff * W] each; group
    /// `j` of `ratio` tokens gives latent [W]: softmax over the group's slots of (score + ape), per channel, times value.
    /// With `overlap` (coff = 2) there are 2 * ratio slots: first the A halves (first W) of the tokens of group j - 1
    /// (weight 0 where j = 0), then the B halves of group j. `ape` [ratio, coff * W] is added by place in the group.
    /// Tokens before the band come from the state rings `value_ring` and `score_ring` [slots, len, coff * W], at position
    /// modulo len; tokens of the band from `values` and `scores`. Slots are added oldest first. `out` [groups, W].
    Pool { read values, scores, value_ring, score_ring; maybe ape; write out; with ratio: u32, class: u8, overlap: bool; }

    /// Stores row of position p at `ring` [slots, len, W], plane of the row's slot, row p modulo len; of a sequence's
    /// rows in the band only the last len are stored. Domain: rows.
    RingWrite { read x; update ring; }

    /// Stores group j at row j of `state` [slots, rows, W], plane of the sequence's slot. Domain: groups of `class`.
    RowsWrite { read x; update state; with ratio: u32, class: u8; }

    /// Copies rows of `x` into `out`, the band row that completes each group. Domain: groups of `class`.
    GroupGather { read x; write out; with class: u8; }

    /// Fake quantisation in place of columns `from..to` of each run of `width` values, in blocks of `block`
    /// (spec/model.md 3.9).
    FakeQuant { update x; with kind: QuantKind, block: u32, width: u32, from: u32, to: u32, domain: Domain; }

    /// Orthonormal Walsh-Hadamard transform, natural order, in place of each run of `width` values (a power of two).
    Hadamard { update x; with width: u32, domain: Domain; }

    /// Chooses compressed rows (spec/model.md 3.6, 3.7). With n_c = (position + 1) / ratio visible rows,
    /// score_j = scale * sum over h of weights[h] * relu(queries[h] . keys[j]); `selected` [rows, 1 + top] I32 gets the
    /// number of chosen rows and then these, ascending: the `top` best (lowest index first on ties, -0 equals +0), all
    /// when n_c <= top. `within` [rows, 1 + blocks] I32: candidate blocks of `block` rows (count, then ascending
    /// numbers): only rows inside them are scored. `keep` [rows, 1 + blocks]: gets the candidate blocks of this row's own
    /// scores: the best `blocks` by largest score, the block of the newest visible row always first, lowest on ties.
    /// `queries` [rows, heads * w], `weights` [rows, heads], `keys` state [slots, rows, w]. Domain: rows.
    IndexSelect {
        read queries, weights, keys; maybe within; write selected; maybe_write keep;
        with heads: u32, ratio: u32, top: u32, scale: f32, block: u32;
    }

    /// Multi-query attention with one latent as key and value and a sink per head (spec/model.md 3.5).
    /// `q` [rows, heads * d]; raw rows of positions max(0, t - window + 1) ..= t: those before the band from `ring`
    /// [slots, len, d] at position modulo len, those of the band from `fresh` [rows, d]; then compressed rows of
    /// `compressed` [slots, rows, d]: those of `selected` (see [`Op::IndexSelect`]) or, without it, all
    /// j < (t + 1) / ratio. Keys are taken in this order, positions and rows ascending. `sinks` [heads] f32.
    /// `out` [rows, heads * d]. Domain: rows.
    Attention {
        read q, fresh, ring, sinks; maybe compressed, selected; write out;
        with heads: u32, window: u32, ratio: u32, scale: f32;
    }

    /// Router (spec/model.md 3.10): s = sqrt(softplus(gate x)) in f32, chosen experts = the `top` largest s + bias
    /// (lowest id first on ties), or row `token` of `table` [vocabulary, top] I32 where given. `ids` [rows, top] I32
    /// ascending; `weights` [rows, top] = s / (sum of s over the chosen + 1e-20) * scale (not divided unless
    /// `normalise`). `gate` [experts, D] is multiplied by f32 activations. Domain: rows.
    Route { read x, gate; maybe bias, table; write ids, weights; with top: u32, scale: f32, normalise: bool; }

    /// The routed experts that this device owns. `gate`, `up` [local, F, D] and `down` [local, D, F] are stacks;
    /// `owned` [experts] I32 says at which place of the stacks an expert lies, -1: elsewhere. For every row
    /// y = sum over its owned experts of down (w * silu(min(gate x, limit)) * clamp(up x, -limit, limit)); `out`
    /// [rows, D] is F32 or I64 as `reduce` says; 0 where a row has no owned expert. Domain: rows.
    Experts {
        read x, ids, weights, gate, up, down, owned; write out;
        with limit: f32, precision: Precision, reduce: Reduce;
    }

    /// `out` = silu(min(gate, limit)) * clamp(up, -limit, limit), all [rows, F]. Domain: rows.
    SwiGlu { read gate, up; write out; with limit: f32; }

    /// Decodes Engram rows as read from the table: `raw` holds per band row `columns` table rows one after the other,
    /// of the operand's dtype; `out` [rows, columns * width] f32. I8 means packed rows: `width` E4M3 codes, then
    /// width / 32 E8M0 scales (spec/formats.md 2.6); every other dtype is decoded as itself. Domain: rows.
    DecodeRows { read raw; write out; with columns: u32, width: u32; }

    /// Adds the Engram value to the streams (spec/model.md 3.8, "Apply"): `kv` [rows, (S + 1) * D], weights [S, D].
    /// Domain: rows.
    EngramGate { read kv, q_weight, k_weight; update streams; with streams_count: u32, eps: f32; }

    /// Rows that need logits, one after the other: `out` [picks, W]. Domain: picks.
    Gather { read x; write out; }

    /// Index of the largest value of each row, lowest index on ties, NaN never: `out` [picks, 1] I32; -1 where every
    /// value is NaN. Domain: picks.
    ArgMax { read logits; write out; }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_keeps_parameters_and_says_what_happens_to_each_operand() {
        let op = Op::RmsNorm { x: 1, weight: None, out: 2, width: 8, eps: 1e-6, domain: Domain::Rows };
        let mut seen = Vec::new();
        let mapped = op.try_map(|&v, how| {
            seen.push((v, how));
            Ok::<_, ()>(v * 10)
        });
        assert_eq!(mapped, Ok(Op::RmsNorm { x: 10, weight: None, out: 20, width: 8, eps: 1e-6, domain: Domain::Rows }));
        assert_eq!(seen, [(1, Operand::Read), (2, Operand::Write)]);
    }
    #[test]
    fn exact_sums_do_not_depend_on_order_and_nan_poisons_them() {
        let v = [1e-7f32, -3.25, 1e5, 0.1, -1e5];
        let sum = |order: &[usize]| order.iter().fold(0, |a, &i| Reduce::add_fixed(a, Reduce::to_fixed(v[i])));
        assert_eq!(sum(&[0, 1, 2, 3, 4]), sum(&[4, 2, 0, 3, 1]));
        assert!((Reduce::from_fixed(sum(&[0, 1, 2, 3, 4])) + 3.1499999).abs() < 1e-6);
        assert!(Reduce::from_fixed(Reduce::add_fixed(Reduce::to_fixed(f32::NAN), 5)).is_nan());
    }
}

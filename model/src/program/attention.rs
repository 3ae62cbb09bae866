//! The attention sub-layer of the program: query, raw rows, compressor, indexer, attention, grouped output
//! (spec/model.md 3.5 to 3.7).

use luce_core::{DType, Domain, Op, QuantKind};

use super::ValueId;
use super::build::Builder;
use crate::{Family, Role};

type Ops = Vec<Op<ValueId>>;

impl Builder<'_> {
    pub(super) fn attention(&mut self, l: u16) -> Ops {
        let (layer, c) = (usize::from(l), self.c);
        let ratio = c.ratio(layer);
        let (d, heads) = (c.head_dim, c.heads);
        let x = self.lane("attn.x", c.hidden);
        let qr = self.lane("attn.qr", c.q_rank);
        let q = self.lane("attn.q", heads * d);
        let kv = self.lane("attn.kv", d);
        let angles = self.angles(ratio > 0, None);
        let pre = if c.family == Family::V4 { "coef.attn" } else { "coef.ffn" };
        let rope = |x, width, inverse| Op::Rope { angles, x, width, inverse, domain: Domain::Rows };

        let mut ops = vec![
            self.mix("coef.attn", [Role::HyperAttnFn(l), Role::HyperAttnBase(l), Role::HyperAttnScale(l)]),
            Op::Collapse { streams: self.streams(), pre: self.coef(pre), out: x, streams_count: c.streams },
            self.norm(x, Some(Role::AttnNorm(l)), c.hidden, Domain::Rows),
            self.linear(x, Role::QueryA(l), qr, Domain::Rows),
            self.norm(qr, Some(Role::QueryNorm(l)), c.q_rank, Domain::Rows),
            self.linear(qr, Role::QueryB(l), q, Domain::Rows),
        ];
        if c.family == Family::V4 {
            ops.push(self.norm(q, None, d, Domain::Rows));
        }
        ops.extend([
            rope(q, d, false),
            self.linear(x, Role::Latent(l), kv, Domain::Rows),
            self.norm(kv, Some(Role::LatentNorm(l)), d, Domain::Rows),
            rope(kv, d, false),
        ]);
        self.quantise_raw(kv, Domain::Rows, &mut ops);
        if c.is_kv_source(layer) {
            self.compress(l, x, &mut ops);
        }
        if c.is_index_source(layer) {
            self.choose(l, x, qr, &mut ops);
        }

        let ring = self.state(format!("window.{l}"), d, c.window);
        let out = self.lane("attn.o", heads * d);
        let compressed = c.kv_source(layer).map(|s| self.rows_state(s));
        let selected = c.index_source(layer).map(|_| self.selected());
        let group_out = self.lane("attn.z", c.o_groups * c.o_rank);
        let y = self.lane("attn.y", c.hidden);
        ops.extend([
            Op::Attention {
                q,
                fresh: kv,
                ring,
                sinks: self.weight(Role::Sinks(l)),
                compressed,
                selected,
                out,
                heads,
                window: c.window,
                ratio,
                scale: (f64::from(d)).sqrt().recip() as f32,
            },
            rope(out, d, true),
            Op::RingWrite { x: kv, ring },
            Op::Grouped {
                x: out,
                weight: self.weight(Role::OutputA(l)),
                out: group_out,
                groups: c.o_groups,
                precision: self.o.precision,
            },
            self.linear(group_out, Role::OutputB(l), y, Domain::Rows),
            Op::Expand { y, coef: self.coef("coef.attn"), streams: self.streams(), streams_count: c.streams },
        ]);
        ops
    }

    /// Compressed rows of a layer, [slots, context / ratio, d].
    fn rows_state(&mut self, source: usize) -> ValueId {
        let rows = self.c.compressed_rows(source, self.o.context);
        self.state(format!("rows.{source}"), self.c.head_dim, rows)
    }

    fn keys_state(&mut self, source: usize) -> ValueId {
        let rows = self.c.compressed_rows(source, self.o.context);
        self.state(format!("keys.{source}"), self.c.index.head_dim, rows)
    }

    fn selected(&mut self) -> ValueId {
        self.typed_lane("selected", DType::I32, 1 + self.c.index.top)
    }

    /// Compressed rows and index keys of the groups that the band completes.
    fn compress(&mut self, l: u16, x: ValueId, ops: &mut Ops) {
        let (layer, c) = (usize::from(l), self.c);
        let (d, w, ratio) = (c.head_dim, c.index.head_dim, c.ratio(layer));
        let class = self.class(ratio);
        let groups = Domain::Groups(class);
        let angles = self.angles(true, Some(class));
        let latent = self.lane("latent", d);
        let roles = [Role::CompressorValue(l), Role::CompressorGate(l), Role::CompressorApe(l)];
        self.pool(l, "pool", roles, x, latent, ops);
        ops.push(self.norm(latent, Some(Role::CompressorNorm(l)), d, groups));
        if c.has_index_keys(layer) {
            let key = self.lane("index.key", w);
            if c.family == Family::V41 {
                ops.push(self.linear(latent, Role::IndexKey(l), key, groups));
                ops.push(self.norm(key, Some(Role::IndexKeyNorm(l)), w, groups));
            } else {
                let roles = [Role::IndexCompressorValue(l), Role::IndexCompressorGate(l), Role::IndexCompressorApe(l)];
                self.pool(l, "index.pool", roles, x, key, ops);
                ops.push(self.norm(key, Some(Role::IndexCompressorNorm(l)), w, groups));
            }
            ops.push(Op::Rope { angles, x: key, width: w, inverse: false, domain: groups });
            self.quantise_index(key, groups, ops);
            ops.push(Op::RowsWrite { x: key, state: self.keys_state(layer), ratio, class });
        }
        ops.push(Op::Rope { angles, x: latent, width: d, inverse: false, domain: groups });
        self.quantise_row(latent, groups, ops);
        ops.push(Op::RowsWrite { x: latent, state: self.rows_state(layer), ratio, class });
    }

    /// Pools `x` into `out`, one row per completed group (before the norm).
    fn pool(&mut self, l: u16, name: &str, roles: [Role; 3], x: ValueId, out: ValueId, ops: &mut Ops) {
        let (layer, c) = (usize::from(l), self.c);
        let ratio = c.ratio(layer);
        let class = self.class(ratio);
        let [value, gate, ape] = roles;
        let value = self.weight(value);
        let width = self.p.value(value).rows;
        let values = self.lane(&format!("{name}.values.{width}"), width);
        let precision = self.o.precision;
        ops.push(Op::Linear { x, weight: value, out: values, domain: Domain::Rows, precision });
        if !c.has_compressor_gate(layer) {
            ops.push(Op::GroupGather { x: values, out, class });
            return;
        }
        let scores = self.lane(&format!("{name}.scores.{width}"), width);
        ops.push(self.linear(x, gate, scores, Domain::Rows));
        let ring = c.pool_ring(layer);
        let value_ring = self.state(format!("{name}.values.{l}"), width, ring);
        let score_ring = self.state(format!("{name}.scores.{l}"), width, ring);
        let ape = (c.family == Family::V4).then(|| self.weight(ape));
        ops.extend([
            Op::Pool { values, scores, value_ring, score_ring, ape, out, ratio, class, overlap: c.overlaps(layer) },
            Op::RingWrite { x: values, ring: value_ring },
            Op::RingWrite { x: scores, ring: score_ring },
        ]);
    }

    /// Index query and the choice of compressed rows.
    fn choose(&mut self, l: u16, x: ValueId, qr: ValueId, ops: &mut Ops) {
        let (layer, c) = (usize::from(l), self.c);
        let (n, w) = (c.index.heads, c.index.head_dim);
        let queries = self.lane("index.q", n * w);
        let weights = self.lane("index.weights", n);
        let angles = self.angles(true, None);
        ops.push(self.linear(qr, Role::IndexQuery(l), queries, Domain::Rows));
        ops.push(Op::Rope { angles, x: queries, width: w, inverse: false, domain: Domain::Rows });
        self.quantise_index(queries, Domain::Rows, ops);
        ops.push(self.linear(x, Role::IndexWeights(l), weights, Domain::Rows));
        let source = c.kv_source(layer).expect("an index source has rows to choose from");
        let blocks = c.candidates.map(|k| (self.typed_lane("candidates", DType::I32, 1 + k.blocks), k.block_size));
        ops.push(Op::IndexSelect {
            queries,
            weights,
            keys: self.keys_state(source),
            within: blocks.filter(|_| c.uses_candidates(layer)).map(|b| b.0),
            selected: self.selected(),
            keep: blocks.filter(|_| c.is_candidate_source(layer)).map(|b| b.0),
            heads: n,
            ratio: c.ratio(layer),
            top: c.index.top,
            scale: (f64::from(n) * f64::from(w)).sqrt().recip() as f32,
            block: blocks.map_or(1, |b| b.1),
        });
    }

    fn fake(&self, x: ValueId, kind: QuantKind, block: u32, width: u32, to: u32, domain: Domain) -> Op<ValueId> {
        Op::FakeQuant { x, kind, block, width, from: 0, to, domain }
    }

    fn quantise_raw(&mut self, x: ValueId, domain: Domain, ops: &mut Ops) {
        let d = self.c.head_dim;
        if self.o.qat {
            ops.push(match self.c.family {
                Family::V4 => self.fake(x, QuantKind::Fp8, 64, d, d - self.c.rope_dims, domain),
                Family::V41 => self.fake(x, QuantKind::Fp8, 32, d, d, domain),
            });
        }
    }

    fn quantise_row(&mut self, x: ValueId, domain: Domain, ops: &mut Ops) {
        let d = self.c.head_dim;
        match self.c.family {
            Family::V4 => self.quantise_raw(x, domain, ops),
            Family::V41 if self.o.qat => ops.push(self.fake(x, QuantKind::Fp4Scaled, 16, d, d, domain)),
            Family::V41 => {}
        }
    }

    fn quantise_index(&mut self, x: ValueId, domain: Domain, ops: &mut Ops) {
        let w = self.c.index.head_dim;
        if self.o.qat {
            if self.c.family == Family::V4 {
                ops.push(Op::Hadamard { x, width: w, domain });
            }
            ops.push(self.fake(x, QuantKind::Fp4, 32, w, w, domain));
        }
    }
}

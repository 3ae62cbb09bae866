//! Builds the program of a model: everything but the attention sub-layer.

use std::collections::BTreeMap;

use luce_core::{DType, Domain, Op, Reduce};

use super::{Program, ProgramOptions, Stage, StageKind, Value, ValueId, ValueKind};
use crate::{Family, ModelConfig, Role, WeightMap};

impl Program {
    /// The program of a model whose tensors are known.
    ///
    /// # Panics
    /// If `options.owners` is 0 or above [`ProgramOptions::MAX_OWNERS`]: the wiring compiler checks it.
    pub fn build(config: &ModelConfig, weights: &WeightMap, options: ProgramOptions) -> Program {
        assert!((1..=ProgramOptions::MAX_OWNERS).contains(&options.owners), "owners are 1 to 3");
        let mut classes: Vec<u32> = config.ratios.iter().copied().filter(|&r| r > 0).collect();
        classes.sort_unstable();
        classes.dedup();
        let mut b = Builder {
            c: config,
            w: weights,
            o: options,
            p: Program { values: Vec::new(), stages: Vec::new(), classes, ids: BTreeMap::new() },
        };
        b.begin();
        for l in 0..config.layers {
            b.layer(l);
        }
        b.head();
        b.p
    }
}

pub(super) struct Builder<'a> {
    pub(super) c: &'a ModelConfig,
    w: &'a WeightMap,
    pub(super) o: ProgramOptions,
    pub(super) p: Program,
}

impl Builder<'_> {
    fn value(&mut self, kind: ValueKind, dtype: DType, shape: [u32; 3]) -> ValueId {
        let [width, rows, planes] = shape;
        if let Some(&id) = self.p.ids.get(&kind) {
            let v = &self.p.values[id.0 as usize];
            assert!(v.width == width && v.dtype == dtype, "{kind:?} has one shape");
            return id;
        }
        let id = ValueId(self.p.values.len() as u32);
        self.p.values.push(Value { kind: kind.clone(), dtype, width, rows, planes });
        self.p.ids.insert(kind, id);
        id
    }

    /// An f32 activation of a lane.
    pub(super) fn lane(&mut self, name: &str, width: u32) -> ValueId {
        self.typed_lane(name, DType::F32, width)
    }

    pub(super) fn typed_lane(&mut self, name: &str, dtype: DType, width: u32) -> ValueId {
        let rows = self.o.max_rows;
        self.value(ValueKind::Lane(name.to_owned()), dtype, [width, rows, 1])
    }

    pub(super) fn state(&mut self, name: String, width: u32, rows: u32) -> ValueId {
        let slots = self.o.slots;
        self.value(ValueKind::State(name), DType::F32, [width, rows, slots])
    }

    /// A weight as [planes, out, in]; a vector is one row.
    pub(super) fn weight(&mut self, role: Role) -> ValueId {
        let tensor = self.w.get(role).expect("the map was resolved for this configuration");
        let dim = |i| u32::try_from(tensor.dim(i)).expect("the configuration bounds every width to 32 bits");
        let shape = [dim(0), dim(1), dim(2)];
        self.value(ValueKind::Weight(role), role.stored_as(tensor.dtype), shape)
    }

    pub(super) fn frequencies(&mut self, compressed: bool) -> ValueId {
        let n = self.c.rope_dims / 2;
        self.value(ValueKind::Frequencies(compressed), DType::F64, [n, 1, 1])
    }

    /// Rotation angles of rows (`class` none) or of the groups of a class.
    pub(super) fn angles(&mut self, compressed: bool, class: Option<u8>) -> ValueId {
        let name = match class {
            None if compressed => "angles.compressed".to_owned(),
            None => "angles.plain".to_owned(),
            Some(class) => format!("angles.groups.{class}"),
        };
        let width = self.c.rope_dims;
        self.lane(&name, width)
    }

    pub(super) fn class(&self, ratio: u32) -> u8 {
        self.p.classes.iter().position(|&r| r == ratio).expect("every ratio of a layer has a class") as u8
    }

    pub(super) fn streams(&mut self) -> ValueId {
        self.lane("streams", self.c.streams * self.c.hidden)
    }

    pub(super) fn coef(&mut self, name: &str) -> ValueId {
        let s = self.c.streams;
        self.lane(name, 2 * s + s * s)
    }

    fn push(&mut self, kind: StageKind, layer: u16, ops: Vec<Op<ValueId>>) {
        self.p.stages.push(Stage { kind, layer, ops });
    }

    fn begin(&mut self) {
        let (table, streams) = (self.weight(Role::TokenEmbedding), self.streams());
        let mut ops = vec![Op::Embed { table, streams, copies: self.c.streams }];
        if self.c.family == Family::V41 {
            ops.push(Op::OneHot { out: self.coef("coef.ffn") });
        }
        let (freqs, out) = (self.frequencies(false), self.angles(false, None));
        ops.push(Op::Angles { freqs, out, domain: Domain::Rows, ratio: 1 });
        if !self.p.classes.is_empty() {
            let (freqs, out) = (self.frequencies(true), self.angles(true, None));
            ops.push(Op::Angles { freqs, out, domain: Domain::Rows, ratio: 1 });
            for (class, ratio) in self.p.classes.clone().into_iter().enumerate() {
                let out = self.angles(true, Some(class as u8));
                ops.push(Op::Angles { freqs, out, domain: Domain::Groups(class as u8), ratio });
            }
        }
        self.push(StageKind::Begin, 0, ops);
    }

    fn layer(&mut self, l: u16) {
        if let Some(e) = self.c.engram_index(l.into()) {
            let ops = self.engram(l, e as u16);
            self.push(StageKind::Engram, l, ops);
        }
        let ops = self.attention(l);
        self.push(StageKind::Attention, l, ops);
        let ops = self.route(l);
        self.push(StageKind::Route, l, ops);
        for owner in 0..self.o.owners {
            let ops = self.experts(l, owner);
            self.push(StageKind::Experts { owner }, l, ops);
        }
        let ops = self.shared(l);
        self.push(StageKind::Shared, l, ops);
        let ops = self.join();
        self.push(StageKind::Join, l, ops);
    }

    fn engram(&mut self, l: u16, e: u16) -> Vec<Op<ValueId>> {
        let config = self.c.engram.as_ref().expect("an Engram layer has a configuration");
        let (columns, width) = (config.columns(), config.width);
        let table = self.w.get(Role::EngramTable(l)).expect("the map was resolved");
        let stored = if table.dtype == DType::I8 { width + width / 32 } else { width };
        let rows = self.o.max_rows;
        let raw = self.value(ValueKind::EngramRows(e), table.dtype, [columns * stored, rows, 1]);
        let out = self.lane("engram.rows", columns * width);
        let kv = self.lane("engram.kv", (self.c.streams + 1) * self.c.hidden);
        let weight = self.weight(Role::EngramProjection(l));
        let (q_weight, k_weight) = (self.weight(Role::EngramQuery(l)), self.weight(Role::EngramKey(l)));
        vec![
            Op::DecodeRows { raw, out, columns, width },
            Op::Linear { x: out, weight, out: kv, domain: Domain::Rows, precision: self.o.precision },
            Op::EngramGate {
                kv,
                q_weight,
                k_weight,
                streams: self.streams(),
                streams_count: self.c.streams,
                eps: self.c.rms_eps,
            },
        ]
    }

    /// Coefficients of a sub-layer from the streams.
    pub(super) fn mix(&mut self, name: &str, roles: [Role; 3]) -> Op<ValueId> {
        let [weight, base, scale] = roles.map(|r| self.weight(r));
        Op::HyperMix {
            streams: self.streams(),
            weight,
            base,
            scale,
            coef: self.coef(name),
            streams_count: self.c.streams,
            rms_eps: self.c.rms_eps,
            hc_eps: self.c.hyper_eps,
            iterations: self.c.sinkhorn_iterations,
        }
    }

    pub(super) fn norm(&mut self, x: ValueId, role: Option<Role>, width: u32, domain: Domain) -> Op<ValueId> {
        let weight = role.map(|r| self.weight(r));
        Op::RmsNorm { x, weight, out: x, width, eps: self.c.rms_eps, domain }
    }

    pub(super) fn linear(&mut self, x: ValueId, role: Role, out: ValueId, domain: Domain) -> Op<ValueId> {
        Op::Linear { x, weight: self.weight(role), out, domain, precision: self.o.precision }
    }

    fn route(&mut self, l: u16) -> Vec<Op<ValueId>> {
        let x = self.lane("ffn.x", self.c.hidden);
        let pre = if self.c.family == Family::V4 { "coef.ffn" } else { "coef.attn" };
        let table = self.c.hash_routed(l.into());
        vec![
            self.mix("coef.ffn", [Role::HyperFfnFn(l), Role::HyperFfnBase(l), Role::HyperFfnScale(l)]),
            Op::Collapse { streams: self.streams(), pre: self.coef(pre), out: x, streams_count: self.c.streams },
            self.norm(x, Some(Role::FfnNorm(l)), self.c.hidden, Domain::Rows),
            Op::Route {
                x,
                gate: self.weight(Role::Router(l)),
                bias: (!table).then(|| self.weight(Role::RouterBias(l))),
                table: table.then(|| self.weight(Role::RouterTable(l))),
                ids: self.typed_lane("ffn.ids", DType::I32, self.c.experts_used),
                weights: self.lane("ffn.weights", self.c.experts_used),
                top: self.c.experts_used,
                scale: self.c.expert_scale,
                normalise: self.c.expert_normalise,
            },
        ]
    }

    fn partial(&mut self, owner: u8) -> ValueId {
        let dtype = if self.o.reduce == Reduce::Exact { DType::I64 } else { DType::F32 };
        self.typed_lane(&format!("ffn.partial.{owner}"), dtype, self.c.hidden)
    }

    fn experts(&mut self, l: u16, owner: u8) -> Vec<Op<ValueId>> {
        let owned = self.value(ValueKind::Owned(l), DType::I32, [self.c.experts, 1, 1]);
        vec![Op::Experts {
            x: self.lane("ffn.x", self.c.hidden),
            ids: self.typed_lane("ffn.ids", DType::I32, self.c.experts_used),
            weights: self.lane("ffn.weights", self.c.experts_used),
            gate: self.weight(Role::ExpertGate(l)),
            up: self.weight(Role::ExpertUp(l)),
            down: self.weight(Role::ExpertDown(l)),
            owned,
            out: self.partial(owner),
            limit: self.c.swiglu_limits[usize::from(l)],
            precision: self.o.precision,
            reduce: self.o.reduce,
        }]
    }

    fn shared(&mut self, l: u16) -> Vec<Op<ValueId>> {
        let x = self.lane("ffn.x", self.c.hidden);
        let (gate, up) = (self.lane("shared.gate", self.c.expert_width), self.lane("shared.up", self.c.expert_width));
        let (act, out) = (self.lane("shared.act", self.c.expert_width), self.lane("shared.out", self.c.hidden));
        vec![
            self.linear(x, Role::SharedGate(l), gate, Domain::Rows),
            self.linear(x, Role::SharedUp(l), up, Domain::Rows),
            Op::SwiGlu { gate, up, out: act, limit: self.c.shared_swiglu_limits[usize::from(l)] },
            self.linear(act, Role::SharedDown(l), out, Domain::Rows),
        ]
    }

    fn join(&mut self) -> Vec<Op<ValueId>> {
        let mut parts: Vec<ValueId> = (0..self.o.owners).map(|k| self.partial(k)).collect();
        parts.push(self.lane("shared.out", self.c.hidden));
        let out = self.lane("ffn.y", self.c.hidden);
        let part = |i: usize| parts.get(i).copied();
        let sum = Op::Sum { a: parts[0], b: part(1), c: part(2), d: part(3), out };
        let (coef, streams) = (self.coef("coef.ffn"), self.streams());
        vec![sum, Op::Expand { y: out, coef, streams, streams_count: self.c.streams }]
    }

    fn head(&mut self) {
        let (streams, hidden) = (self.streams(), self.lane("hidden", self.c.hidden));
        let mut ops = Vec::new();
        let pre = if self.c.family == Family::V4 {
            let pre = self.lane("head.pre", self.c.streams);
            let roles = [Role::OutputHyperFn, Role::OutputHyperBase, Role::OutputHyperScale];
            let [weight, base, scale] = roles.map(|r| self.weight(r));
            ops.push(Op::HyperHead {
                streams,
                weight,
                base,
                scale,
                pre,
                streams_count: self.c.streams,
                rms_eps: self.c.rms_eps,
                hc_eps: self.c.hyper_eps,
            });
            pre
        } else {
            self.coef("coef.ffn")
        };
        let (picks, hidden_width, vocab) = (self.o.max_picks, self.c.hidden, self.c.vocab);
        let mut pick =
            |name: &str, dtype, width| self.value(ValueKind::Lane(name.to_owned()), dtype, [width, picks, 1]);
        let picked = pick("head.x", DType::F32, hidden_width);
        let logits = pick("logits", DType::F32, vocab);
        let best = pick("best", DType::I32, 1);
        ops.extend([
            Op::Collapse { streams, pre, out: hidden, streams_count: self.c.streams },
            Op::Gather { x: hidden, out: picked },
            self.norm(picked, Some(Role::OutputNorm), self.c.hidden, Domain::Picks),
            self.linear(picked, Role::Output, logits, Domain::Picks),
            Op::ArgMax { logits, out: best },
        ]);
        self.push(StageKind::Head, self.c.layers, ops);
    }
}

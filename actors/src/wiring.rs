//! The wiring compiler: places the stages of the layer program on actors, fuses neighbours into nodes and finds the edges
//! between them, release edges included.
//!
//! **Invariant:** a node that writes a value comes, along edges, after every node that read or wrote it before. So a slot
//! is rewritten only after its readers are done, and lanes need one set of slots each.

use std::collections::BTreeMap;
use std::fmt::Write;

use luce_core::{ActorId, NodeId, Operand};
use luce_model::{Program, StageKind, ValueId, ValueKind};

/// Which actor has which role; indices into the box's actors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Names of the actors.
    pub names: Vec<String>,
    /// Everything but routed experts.
    pub dense: ActorId,
    /// Owners of routed experts, in order.
    pub experts: Vec<ActorId>,
}

impl Placement {
    /// One actor that has every role.
    pub fn single(name: &str) -> Placement {
        Placement { names: vec![name.to_owned()], dense: ActorId(0), experts: vec![ActorId(0)] }
    }

    fn actor_of(&self, kind: StageKind) -> ActorId {
        match kind {
            StageKind::Experts { owner } => self.experts[usize::from(owner)],
            _ => self.dense,
        }
    }
}

/// Which stages become one node. The bits of the result are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fuse {
    /// Neighbours of one layer on one actor, so that fewer tokens travel.
    Neighbours,
    /// None: what each stage wrote can be seen before the next one runs.
    Off,
}

/// Stages of one layer that run as one segment on one actor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Where it runs.
    pub actor: ActorId,
    /// Layer of its stages.
    pub layer: u16,
    /// Indices of its stages in the program.
    pub stages: Vec<usize>,
    /// Nodes whose tokens it needs.
    pub inputs: Vec<NodeId>,
    /// Nodes that get its token.
    pub outputs: Vec<NodeId>,
    /// Whether it must fire in position order per sequence.
    pub state: bool,
    /// The Engram table whose rows it needs from the reader.
    pub engram: Option<u16>,
}

/// The compiled graph.
#[derive(Clone, PartialEq, Debug)]
pub struct Wiring {
    /// The nodes, in an order that computes the program.
    pub nodes: Vec<Node>,
    /// Actors that use each value, ascending, writer first for lane values.
    pub users: Vec<Vec<ActorId>>,
    /// Where everything is.
    pub placement: Placement,
}

impl Wiring {
    /// Compiles a program for a placement.
    pub fn compile(program: &Program, placement: &Placement, fuse: Fuse) -> Wiring {
        let fusing = fuse == Fuse::Neighbours;
        let mut nodes: Vec<Node> = Vec::new();
        for (i, stage) in program.stages.iter().enumerate() {
            let actor = placement.actor_of(stage.kind);
            let joins = nodes.last().is_some_and(|n| {
                fusing && n.actor == actor && n.layer == stage.layer && !matches!(stage.kind, StageKind::Engram)
            });
            if !joins {
                nodes.push(Node {
                    actor,
                    layer: stage.layer,
                    stages: Vec::new(),
                    inputs: Vec::new(),
                    outputs: Vec::new(),
                    state: false,
                    engram: None,
                });
            }
            let node = nodes.last_mut().expect("just pushed");
            node.stages.push(i);
            node.state |= stage.kind.has_state();
        }
        let mut users: Vec<Vec<ActorId>> = vec![Vec::new(); program.values.len()];
        let mut writer: BTreeMap<ValueId, usize> = BTreeMap::new();
        let mut readers: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        let mut ancestors: Vec<Vec<bool>> = Vec::new();
        for n in 0..nodes.len() {
            let mut before = vec![false; n];
            let mut inputs: Vec<usize> = Vec::new();
            let mut need = |m: usize| {
                if m != n && !inputs.contains(&m) {
                    inputs.push(m);
                }
            };
            let (stages, actor) = (nodes[n].stages.clone(), nodes[n].actor);
            for s in stages {
                for op in &program.stages[s].ops {
                    let _ = op.try_map(|&v, how| {
                        let kind = &program.value(v).kind;
                        if !users[v.0 as usize].contains(&actor) {
                            users[v.0 as usize].push(actor);
                        }
                        if let ValueKind::EngramRows(e) = *kind {
                            nodes[n].engram = Some(e);
                        }
                        if matches!(kind, ValueKind::Lane(_) | ValueKind::State(_)) {
                            if let Some(&w) = writer.get(&v) {
                                need(w);
                            }
                            if how != Operand::Read {
                                readers.remove(&v).unwrap_or_default().into_iter().for_each(&mut need);
                                writer.insert(v, n);
                            } else {
                                readers.entry(v).or_default().push(n);
                            }
                        }
                        Ok::<_, std::convert::Infallible>(())
                    });
                }
            }
            // Only edges that no other edge implies.
            inputs.sort_unstable_by(|a, b| b.cmp(a));
            let mut kept = Vec::new();
            for m in inputs {
                if !before[m] {
                    kept.push(NodeId(m as u32));
                    before[m] = true;
                    for (a, set) in ancestors[m].iter().enumerate() {
                        before[a] |= set;
                    }
                }
            }
            for &m in &kept {
                nodes[m.index()].outputs.push(NodeId(n as u32));
            }
            nodes[n].inputs = kept;
            ancestors.push(before);
        }
        Wiring { nodes, users, placement: placement.clone() }
    }

    fn label(&self, program: &Program, n: usize) -> String {
        let node = &self.nodes[n];
        let stages: Vec<String> = node.stages.iter().map(|&s| format!("{:?}", program.stages[s].kind)).collect();
        format!("{}: layer {}: {}", self.placement.names[node.actor.index()], node.layer, stages.join(" + "))
    }

    /// The graph as text, one node per line with the nodes that it feeds.
    pub fn text(&self, program: &Program) -> String {
        let mut out = String::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let to: Vec<String> = node.outputs.iter().map(ToString::to_string).collect();
            let _ = writeln!(out, "{n:4}  {}  -> {}", self.label(program, n), to.join(" "));
        }
        out
    }

    /// The graph for Graphviz.
    pub fn dot(&self, program: &Program) -> String {
        let mut out = String::from("digraph wiring {\n  rankdir=LR;\n  node [shape=box];\n");
        for (n, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(out, "  n{n} [label={:?}];", self.label(program, n));
            for to in &node.outputs {
                let _ = writeln!(out, "  n{n} -> n{to};");
            }
        }
        out.push_str("}\n");
        out
    }
}

//! The actors' machines under random delays and faults, without threads or devices: every order in which messages may
//! arrive, refused launches, lost rows. Names of tests are those of the rules of the execution model that they hold.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use luce_core::{
    ActorId, BandId, BandKind, BandSpec, Fence, LaneId, Precision, Reduce, RowSpan, SequenceId, SlotId, TimelineId,
    Token, TokenId, TokenPos,
};
use luce_device::Launch;
use luce_model::{Program, ProgramOptions};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::machine::{Effects, Machine};
use super::{Announced, BandEnd, Message, token};
use crate::{Fuse, Model, Placement, Wiring};

/// Splitmix64: the schedule is a function of the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// What fired, and what is on its way.
struct World {
    wiring: Arc<Wiring>,
    /// Between each pair of senders and actors, in order; the leader and the reader come after the actors.
    channels: BTreeMap<(usize, usize), VecDeque<Message>>,
    random: Random,
    /// Launches of each (band, node), in order.
    fired: Vec<(BandId, usize)>,
    /// Bands of which a launch was refused or a row lost.
    harmed: Vec<BandId>,
    ends: Vec<BandEnd>,
    specs: BTreeMap<BandId, Arc<BandSpec>>,
    in_lane: Vec<Option<BandId>>,
    wrong: Option<String>,
    faults: bool,
}

/// The world as one actor reaches it.
struct Hand<'a> {
    world: &'a mut World,
    me: usize,
}

impl World {
    fn blame(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let lanes = self.in_lane.len();
        let channel = self.channels.entry((from, to)).or_default();
        channel.push_back(message);
        let (waiting, room) = (channel.len(), (self.wiring.nodes.len() + 2) * lanes + 1);
        if waiting > room {
            self.blame(format!("{waiting} messages wait where a mailbox has room for {room}"));
        }
    }
}

impl Effects for Hand<'_> {
    fn launch(&mut self, lane: usize, node: usize, _: &[(TimelineId, u64)], _: Launch) -> Result<Fence, String> {
        let world = &mut *self.world;
        let band = world.in_lane[lane].expect("a band is in the lane of a launch");
        let wiring = world.wiring.clone();
        for input in &wiring.nodes[node].inputs {
            if !world.fired.contains(&(band, input.index())) {
                world.blame(format!("node {node} of {band:?} ran before its input {input}"));
            }
        }
        if wiring.nodes[node].state {
            let spec = world.specs[&band].clone();
            let earlier = world.specs.range(..band).map(|(id, s)| (*id, s.clone())).collect::<Vec<_>>();
            for (id, other) in earlier {
                let shares = other.spans.iter().any(|s| spec.spans.iter().any(|t| t.sequence == s.sequence));
                if shares && !world.harmed.contains(&id) && !world.fired.contains(&(id, node)) {
                    world.blame(format!("state of node {node}: {band:?} ran before {id:?}"));
                }
            }
        }
        if world.fired.contains(&(band, node)) {
            world.blame(format!("node {node} of {band:?} ran twice"));
        }
        if world.faults && world.random.below(60) == 0 {
            world.harmed.push(band);
            return Err("refused".into());
        }
        world.fired.push((band, node));
        Ok(Fence::Reached { timeline: TimelineId(self.me as u16), value: world.fired.len() as u64 })
    }

    fn send(&mut self, to: ActorId, token: Token) {
        self.world.send(self.me, to.index(), Message::Token(token));
    }

    fn end(&mut self, end: BandEnd) {
        if self.world.ends.iter().any(|e| e.spec.id == end.spec.id) {
            self.world.blame(format!("{:?} ended twice", end.spec.id));
        }
        let lane = end.spec.lane.index();
        self.world.in_lane[lane] = None;
        self.world.ends.push(end);
    }
}

/// A run: prompts of two sequences in chunks beside decode bands of both, until all have ended.
fn run(owners: u8, fuse: Fuse, seed: u64, faults: bool) -> Result<World, TestCaseError> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models/tiny-v41-q.gguf");
    let model = Model::open(&file).unwrap();
    let options = ProgramOptions {
        precision: Precision::F32,
        reduce: Reduce::Exact,
        qat: false,
        owners,
        max_rows: 8,
        max_picks: 2,
        slots: 2,
        context: 64,
    };
    let program = Program::build(&model.config, &model.weights, options);
    let names = (0..=owners).map(|a| format!("a{a}")).collect();
    let experts = (1..=u16::from(owners)).map(ActorId).collect();
    let wiring = Arc::new(Wiring::compile(&program, &Placement { names, dense: ActorId(0), experts }, fuse));
    let (actors, lanes) = (usize::from(owners) + 1, 3);
    let (leader, reader) = (actors, actors + 1);
    let mut machines: Vec<Machine> =
        (0..actors).map(|a| Machine::new(ActorId(a as u16), wiring.clone(), lanes)).collect();
    let mut world = World {
        wiring: wiring.clone(),
        channels: BTreeMap::new(),
        random: Random(seed),
        fired: Vec::new(),
        harmed: Vec::new(),
        ends: Vec::new(),
        specs: BTreeMap::new(),
        in_lane: vec![None; lanes],
        wrong: None,
        faults,
    };
    let mut positions = [0u32; 2];
    let mut bands = 0u64;
    while world.ends.len() < 24 {
        prop_assert!(world.wrong.is_none(), "{}", world.wrong.unwrap());
        let waiting: Vec<(usize, usize)> =
            world.channels.iter().filter(|(_, c)| !c.is_empty()).map(|(&k, _)| k).collect();
        let free: Vec<usize> = (0..lanes).filter(|&l| world.in_lane[l].is_none()).collect();
        let announce = bands < 24 && !free.is_empty() && (waiting.is_empty() || world.random.below(8) == 0);
        prop_assert!(announce || !waiting.is_empty(), "deadlock after {} of {bands} bands", world.ends.len());
        if announce {
            let lane = free[world.random.below(free.len())];
            let mut spans = Vec::new();
            let both = 1 + world.random.below(3);
            for sequence in (0..2usize).filter(|s| both >> s & 1 == 1) {
                let rows = if lane == 0 { 1 } else { 1 + world.random.below(3) };
                spans.push(RowSpan {
                    sequence: SequenceId(sequence as u64),
                    slot: SlotId(sequence as u16),
                    first: TokenPos(positions[sequence]),
                    tokens: vec![TokenId(3); rows],
                    picks: 1,
                });
                positions[sequence] += rows as u32;
            }
            let kind = if lane == 0 { BandKind::Decode } else { BandKind::Prefill };
            let spec = Arc::new(BandSpec { id: BandId(bands), lane: LaneId(lane as u16), kind, spans });
            bands += 1;
            world.in_lane[lane] = Some(spec.id);
            world.specs.insert(spec.id, spec.clone());
            for actor in 0..actors {
                let (launch, history) = (Launch::default(), Arc::new(Vec::new()));
                world.send(leader, actor, Message::Announce(Announced { spec: spec.clone(), launch, history }));
            }
            for (n, node) in wiring.nodes.iter().enumerate().filter(|(_, n)| n.engram.is_some()) {
                let lost = faults && world.random.below(60) == 0;
                if lost {
                    world.harmed.push(spec.id);
                }
                let fence = if lost { Fence::Failed } else { Fence::Ready };
                let token = token(luce_core::NodeId(n as u32), node.layer, &spec, ActorId(reader as u16), fence);
                world.send(reader, 0, Message::Token(token));
            }
            continue;
        }
        // An actor drains its mailbox before it chooses what to fire: several nodes may be ready at once.
        let (_, to) = waiting[world.random.below(waiting.len())];
        for _ in 0..1 + world.random.below(12) {
            let senders: Vec<usize> =
                world.channels.iter().filter(|((_, t), c)| *t == to && !c.is_empty()).map(|(&(f, _), _)| f).collect();
            if senders.is_empty() {
                break;
            }
            let from = senders[world.random.below(senders.len())];
            match world.channels.get_mut(&(from, to)).and_then(VecDeque::pop_front) {
                Some(Message::Announce(band)) => machines[to].on_announce(band),
                Some(Message::Token(token)) => machines[to].on_token(&token),
                Some(Message::Stop) | None => unreachable!("nobody stops here"),
            }
        }
        machines[to].run(&mut Hand { world: &mut world, me: to });
    }
    prop_assert!(world.wrong.is_none(), "{}", world.wrong.unwrap());
    prop_assert!(world.channels.values().all(VecDeque::is_empty), "messages are left");
    prop_assert!(machines.iter().all(|m| !m.busy()), "a lane is not free at the end");
    Ok(world)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn state_unordered_global_state_order_and_lane_reuse_hold_in_every_schedule(
        owners in 1u8..=3, fused: bool, seed: u64,
    ) {
        let fuse = if fused { Fuse::Neighbours } else { Fuse::Off };
        let world = run(owners, fuse, seed, false)?;
        prop_assert_eq!(world.fired.len(), 24 * world.wiring.nodes.len());
        prop_assert!(world.ends.iter().all(|e| e.failure.is_none() && e.fence != Fence::Failed));
    }

    #[test]
    fn withdraw_and_empty_skips_fences_a_failed_band_fires_empty_in_order_and_ends_once(
        owners in 1u8..=3, fused: bool, seed: u64,
    ) {
        let fuse = if fused { Fuse::Neighbours } else { Fuse::Off };
        let world = run(owners, fuse, seed, true)?;
        for end in &world.ends {
            let harmed = world.harmed.contains(&end.spec.id);
            prop_assert_eq!(end.fence == Fence::Failed, harmed, "{:?}", end);
        }
    }
}

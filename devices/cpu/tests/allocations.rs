//! The steady state allocates nothing: neither the call of `launch` nor what the queue's threads do.
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use luce_core::{DType, Domain, HostBuffer, Op, Precision, Reduce};
use luce_device::conformance::write;
use luce_device::{BandLayout, BufferId, Device, Launch, Memory, QueueId, RowFacts, Span, View, Wait};
use luce_device_cpu::{CpuConfig, CpuDevice};

struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn note() {
    if ON.load(Ordering::Relaxed) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes on to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const QUEUE: QueueId = QueueId(0);
const ROWS: u32 = 12;

/// Views in one buffer, one behind the other.
struct Shelf(BufferId, u64);

impl Shelf {
    fn view(&mut self, dtype: DType, planes: u32, rows: u32, width: u32) -> View {
        let view = View { buffer: self.0, offset: self.1, dtype, width, rows, planes };
        self.1 += view.bytes().next_multiple_of(64);
        view
    }

    fn rows(&mut self, width: u32) -> View {
        self.view(DType::F32, 1, ROWS, width)
    }
}

/// A layer in small: a norm, products of both precisions, attention with its ring, selection, routing, experts, a sum.
fn layer(s: &mut Shelf, owned: View) -> Vec<Op<View>> {
    let (d, heads, head) = (256, 4, 64);
    let (x, normed, q, kv) = (s.rows(d), s.rows(d), s.rows(heads * head), s.rows(head));
    let (attended, y, sum) = (s.rows(heads * head), s.rows(d), s.rows(d));
    let (wq, wkv) = (s.view(DType::Q8_0, 1, heads * head, d), s.view(DType::Q4K, 1, head, d));
    let wo = s.view(DType::F16, 1, d, heads * head);
    let (ring, keys) = (s.view(DType::F32, 2, 16, head), s.view(DType::F32, 2, 64, head));
    let (sinks, gate) = (s.view(DType::F32, 1, 1, heads), s.view(DType::F32, 1, 8, d));
    let (head_weights, selected) = (s.rows(heads), s.view(DType::I32, 1, ROWS, 9));
    let (ids, weights) = (s.view(DType::I32, 1, ROWS, 2), s.rows(2));
    let (eg, eu) = (s.view(DType::Q8_0, 8, 64, d), s.view(DType::Q8_0, 8, 64, d));
    let (ed, routed) = (s.view(DType::Q8_0, 8, d, 64), s.view(DType::I64, 1, ROWS, d));
    let (domain, limit) = (Domain::Rows, 10.0);
    let linear = |x, weight, out, precision| Op::Linear { x, weight, out, domain, precision };
    vec![
        Op::RmsNorm { x, weight: None, out: normed, width: d, eps: 1e-6, domain },
        linear(normed, wq, q, Precision::Partner),
        linear(normed, wkv, kv, Precision::Partner),
        Op::IndexSelect {
            queries: q,
            weights: head_weights,
            keys,
            within: None,
            selected,
            keep: None,
            heads,
            ratio: 1,
            top: 8,
            scale: 1.0,
            block: 0,
        },
        Op::Attention {
            q,
            fresh: kv,
            ring,
            sinks,
            compressed: Some(keys),
            selected: Some(selected),
            out: attended,
            heads,
            window: 16,
            ratio: 1,
            scale: 0.1,
        },
        Op::RingWrite { x: kv, ring },
        linear(attended, wo, y, Precision::F32),
        Op::Route { x: y, gate, bias: None, table: None, ids, weights, top: 2, scale: 1.5, normalise: true },
        Op::Experts {
            x: y,
            ids,
            weights,
            gate: eg,
            up: eu,
            down: ed,
            owned,
            out: routed,
            limit,
            precision: Precision::Partner,
            reduce: Reduce::Exact,
        },
        Op::Sum { a: y, b: Some(routed), c: None, d: None, out: sum },
    ]
}

#[test]
fn launching_and_running_a_prepared_segment_allocates_nothing() {
    for threads in [1, 3] {
        let config = CpuConfig { threads, memory: Some(64 << 20), ..CpuConfig::default() };
        let mut device = CpuDevice::new(&config).expect("the device starts");
        let buffer = device.alloc(8 << 20, Memory::Device).expect("8 of 64 MiB");
        let layout = BandLayout { max_rows: ROWS };
        let band = device.alloc(layout.bytes() as u64, Memory::Shared).expect("a small buffer");
        let mut shelf = Shelf(buffer, 0);
        let owned = shelf.view(DType::I32, 1, 1, 8);
        let places = HostBuffer::new(32).expect("a small buffer");
        write(&places, 0, bytemuck::cast_slice(&[0i32, 1, 2, 3, 4, 5, 6, 7]));
        device.copy_in(QUEUE, &places, 0, Span { bytes: 32, ..owned.span() }).expect("copy_in");
        let ops = layer(&mut shelf, owned);
        let segment = device.prepare(&ops, band, layout).expect("right operations");
        let facts: Vec<RowFacts> = (0..ROWS)
            .map(|i| RowFacts { token: 0, position: i, slot: 1, end_row: ROWS, ..RowFacts::default() })
            .collect();
        write(&device.export(band).expect("a shared buffer"), 0, bytemuck::cast_slice(&facts));
        let timeline = device.timeline(QUEUE);
        let mut launch = |rows: u32| {
            let value = device.launch(QUEUE, segment, Launch { rows, ..Launch::default() }).expect("launch");
            let end = timeline.wait(value, Duration::from_micros(50), Duration::from_secs(20));
            assert_eq!(end, Wait::Reached, "{:?}", timeline.failure());
        };
        launch(ROWS);
        launch(ROWS);
        COUNT.store(0, Ordering::SeqCst);
        ON.store(true, Ordering::SeqCst);
        (0..50).for_each(|_| launch(ROWS));
        ON.store(false, Ordering::SeqCst);
        assert_eq!(COUNT.load(Ordering::SeqCst), 0, "allocations and frees in 50 launches on {threads} threads");
    }
}

//! Bands so large that an operation cuts them: experts into waves, products into blocks of activation rows.

use std::time::Duration;

use luce_core::{DType, Domain, HostBuffer, Op, Precision, Reduce};
use luce_device::conformance::{read, write};
use luce_device::{BandLayout, BufferId, Device, Launch, Memory, QueueId, RowFacts, View, Wait};
use luce_device_cpu::{CpuConfig, CpuDevice};

const QUEUE: QueueId = QueueId(0);
const ROWS: u32 = 250;
const TOP: u32 = 4;
const EXPERTS: u32 = 9;
const D: u32 = 32;
const F: u32 = 32;

struct Bench {
    device: CpuDevice,
    band: BufferId,
}

impl Bench {
    fn new(threads: usize) -> Bench {
        let config = CpuConfig { threads, memory: Some(64 << 20), ..CpuConfig::default() };
        let mut device = CpuDevice::new(&config).expect("the device starts");
        let layout = BandLayout { max_rows: ROWS };
        let band = device.alloc(layout.bytes() as u64, Memory::Shared).expect("a small buffer");
        let facts: Vec<RowFacts> =
            (0..ROWS).map(|i| RowFacts { first_row: i, end_row: i + 1, ..RowFacts::default() }).collect();
        write(&device.export(band).expect("a shared buffer"), 0, bytemuck::cast_slice(&facts));
        Bench { device, band }
    }

    /// A tensor that the host reaches too.
    fn tensor<T: bytemuck::Pod>(&mut self, dtype: DType, shape: [u32; 3], values: &[T]) -> (View, HostBuffer) {
        let [planes, rows, width] = shape;
        let view = View { buffer: BufferId(0), offset: 0, dtype, width, rows, planes };
        let buffer = self.device.alloc(view.bytes(), Memory::Shared).expect("a small buffer");
        let host = self.device.export(buffer).expect("a shared buffer");
        write(&host, 0, bytemuck::cast_slice(values));
        (View { buffer, ..view }, host)
    }

    fn run(&mut self, max_rows: u32, ops: &[Op<View>]) {
        let segment = self.device.prepare(ops, self.band, BandLayout { max_rows }).expect("right operations");
        let launch = Launch { rows: max_rows, ..Launch::default() };
        let value = self.device.launch(QUEUE, segment, launch).expect("launch");
        let timeline = self.device.timeline(QUEUE);
        let end = timeline.wait(value, Duration::from_micros(50), Duration::from_secs(30));
        assert_eq!(end, Wait::Reached, "{:?}", timeline.failure());
    }
}

/// Values without a pattern in -1..1.
fn values(seed: u32, n: u32) -> Vec<f32> {
    (0..n).map(|i| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
}

#[test]
fn rows_of_a_band_of_several_waves_have_the_bits_that_they_have_alone() {
    for threads in [1, 2] {
        let mut b = Bench::new(threads);
        let x = values(1, ROWS * D);
        // Neighbouring rows choose different experts; expert 4 lies elsewhere.
        let ids: Vec<i32> = (0..ROWS as i32).flat_map(|r| [r % 2, 2 + r % 3, 5 + r % 2, 7 + r % 2]).collect();
        let weights = values(2, ROWS * TOP);
        let (gate, _) = b.tensor(DType::F32, [EXPERTS, F, D], &values(3, EXPERTS * F * D));
        let (up, _) = b.tensor(DType::F32, [EXPERTS, F, D], &values(4, EXPERTS * F * D));
        let (down, _) = b.tensor(DType::F32, [EXPERTS, D, F], &values(5, EXPERTS * F * D));
        let (owned, _) = b.tensor(DType::I32, [1, 1, EXPERTS], &[0, 1, 2, 3, -1, 8, 6, 7, 5]);
        let op = |x, ids, weights, out, reduce| Op::Experts {
            x,
            ids,
            weights,
            gate,
            up,
            down,
            owned,
            out,
            limit: 2.0,
            precision: Precision::F32,
            reduce,
        };
        let (x_all, _) = b.tensor(DType::F32, [1, ROWS, D], &x);
        let (ids_all, _) = b.tensor(DType::I32, [1, ROWS, TOP], &ids);
        let (w_all, _) = b.tensor(DType::F32, [1, ROWS, TOP], &weights);
        let (sums, sums_host) = b.tensor(DType::F32, [1, ROWS, D], &vec![f32::NAN; (ROWS * D) as usize]);
        let (exact, exact_host) = b.tensor(DType::I64, [1, ROWS, D], &vec![-1i64; (ROWS * D) as usize]);
        b.run(ROWS, &[op(x_all, ids_all, w_all, sums, Reduce::F32), op(x_all, ids_all, w_all, exact, Reduce::Exact)]);
        let whole = read(&sums_host, 0, (ROWS * D * 4) as usize);
        let whole_exact = read(&exact_host, 0, (ROWS * D * 8) as usize);

        let (x_one, x_host) = b.tensor(DType::F32, [1, 1, D], &x[..D as usize]);
        let (ids_one, ids_host) = b.tensor(DType::I32, [1, 1, TOP], &ids[..TOP as usize]);
        let (w_one, w_host) = b.tensor(DType::F32, [1, 1, TOP], &weights[..TOP as usize]);
        let (sum, sum_host) = b.tensor(DType::F32, [1, 1, D], &[0f32; D as usize]);
        let (fixed, fixed_host) = b.tensor(DType::I64, [1, 1, D], &[0i64; D as usize]);
        let ops = [op(x_one, ids_one, w_one, sum, Reduce::F32), op(x_one, ids_one, w_one, fixed, Reduce::Exact)];
        for row in 0..ROWS as usize {
            let (d, top) = (D as usize, TOP as usize);
            write(&x_host, 0, bytemuck::cast_slice(&x[row * d..][..d]));
            write(&ids_host, 0, bytemuck::cast_slice(&ids[row * top..][..top]));
            write(&w_host, 0, bytemuck::cast_slice(&weights[row * top..][..top]));
            b.run(1, &ops);
            assert!(read(&sum_host, 0, d * 4) == whole[row * d * 4..][..d * 4], "row {row}, {threads} threads");
            assert!(read(&fixed_host, 0, d * 8) == whole_exact[row * d * 8..][..d * 8], "row {row}, exact");
        }
    }
}

#[test]
fn products_of_more_rows_than_fit_a_cache_have_the_bits_of_single_rows() {
    // 8 rows of 32 KiB are one block of activations; 21 rows are three, the last one short.
    let (rows, inner, outer) = (21, 8192, 37);
    for threads in [1, 2] {
        let mut b = Bench::new(threads);
        let x = values(6, rows * inner);
        let (weight, _) = b.tensor(DType::F32, [1, outer, inner], &values(7, outer * inner));
        let (x_all, _) = b.tensor(DType::F32, [1, rows, inner], &x);
        let (out_all, all) = b.tensor(DType::F32, [1, rows, outer], &vec![f32::NAN; (rows * outer) as usize]);
        let op = |x, out| Op::Linear { x, weight, out, domain: Domain::Rows, precision: Precision::F32 };
        b.run(rows, &[op(x_all, out_all)]);
        let whole = read(&all, 0, (rows * outer * 4) as usize);
        let (x_one, x_host) = b.tensor(DType::F32, [1, 1, inner], &x[..inner as usize]);
        let (out_one, one) = b.tensor(DType::F32, [1, 1, outer], &[0f32; 37]);
        for row in 0..rows as usize {
            write(&x_host, 0, bytemuck::cast_slice(&x[row * inner as usize..][..inner as usize]));
            b.run(1, &[op(x_one, out_one)]);
            let bytes = outer as usize * 4;
            assert!(read(&one, 0, bytes) == whole[row * bytes..][..bytes], "row {row}, {threads} threads");
        }
    }
}

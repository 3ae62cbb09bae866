//! Products of a weight matrix: with one activation row, where reading the weights is what takes time, and with many,
//! where multiplying is.

use luce_core::DType;
use luce_device_cpu::quant::{ActFormat, act_bytes, partner, quantize};
use luce_device_cpu::simd::{ActRows, Isa, WeightRows, matmul_rows};

use crate::machine::{best, read_rate, threads, together};
use crate::report::{Report, Row};

/// Values of a weight row: the width of V4.1's layers.
const WIDTH: usize = 5120;
/// Weights of a product with one row: many times the last-level cache.
const BIG: usize = 256 << 20;
/// Activation rows that stand for a prompt, and weight rows that they meet.
const MANY: usize = 32;
const MANY_WEIGHTS: usize = 1024;
/// Turns of a measurement. Slow products get one.
const TURNS: usize = 7;

/// A product of one type: random weights, and activations as the type wants them.
struct Product<'a> {
    dtype: DType,
    format: ActFormat,
    weights: &'a [u8],
    rows: usize,
    acts: Vec<u8>,
    act_rows: usize,
}

impl<'a> Product<'a> {
    fn new(dtype: DType, format: ActFormat, memory: &'a [u8], most: usize, act_rows: usize) -> Product<'a> {
        let row_bytes = dtype.row_bytes(WIDTH as u64).expect("whole blocks") as usize;
        let rows = (memory.len() / row_bytes).min(most);
        let stride = act_bytes(format, WIDTH);
        let mut acts = vec![0; act_rows * stride];
        for (row, out) in acts.chunks_mut(stride).enumerate() {
            let x: Vec<f32> = (0..WIDTH).map(|i| ((row + i * 37) % 101) as f32 / 50.0 - 1.0).collect();
            quantize(format, &x, out);
        }
        Product { dtype, format, weights: &memory[..rows * row_bytes], rows, acts, act_rows }
    }

    /// Multiplies once on all threads: seconds.
    fn run(&self) -> f64 {
        let stride = act_bytes(self.format, WIDTH);
        let weights = WeightRows { dtype: self.dtype, width: WIDTH, bytes: self.weights, book: None };
        let acts = ActRows { format: self.format, rows: self.act_rows, stride, bytes: &self.acts };
        let part = self.rows.div_ceil(threads());
        let time = together(threads(), |t| {
            let mut scratch = vec![0.0; WIDTH];
            let mut sum = 0.0;
            let range = (t * part).min(self.rows)..self.rows.min((t + 1) * part);
            matmul_rows(Isa::detect(), weights, acts, range, &mut scratch, |_, _, value| sum += value)
                .expect("a weight type");
            std::hint::black_box(sum);
        });
        time.as_secs_f64()
    }
}

/// Pseudo-random bytes.
pub(crate) fn memory() -> Vec<u8> {
    let mut x = 1u64;
    let words = (0..BIG / 8).flat_map(|_| {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x ^ x >> 31).to_le_bytes()
    });
    words.collect()
}

/// Gives E8M0 scales the exponents that weights have, and floats a small exponent: random ones lead to subnormal
/// products and to NaN, which some processors handle a hundred times slower.
fn tame(dtype: DType, bytes: &mut [u8]) {
    match dtype {
        DType::Mxfp4 | DType::Mxfp8 => {
            let scales = if dtype == DType::Mxfp4 { 1 } else { 8 };
            for block in bytes.chunks_mut(dtype.block_bytes()) {
                for scale in block.iter_mut().take(scales) {
                    *scale = 116 + (*scale & 7);
                }
            }
        }
        DType::F32 | DType::Bf16 | DType::F16 => {
            let mask = if dtype == DType::F16 { 0x3b } else { 0x3f };
            for value in bytes.chunks_exact_mut(dtype.block_bytes()) {
                let top = value.len() - 1;
                value[top] = value[top] & 0x80 | 0x30 | value[top] & mask;
            }
        }
        _ => {}
    }
}

/// The types that the device multiplies; the codebooks of the MIX types travel outside the blocks.
fn weight_types() -> impl Iterator<Item = (DType, ActFormat)> {
    let types = DType::ALL.iter().filter(|d| !d.name().ends_with("MIX"));
    types.filter_map(|&d| Some((d, partner(d)?)))
}

/// One row of the table for each type and number of activation rows.
pub(crate) fn measure(report: &mut Report, memory: &mut [u8]) {
    for (dtype, format) in weight_types() {
        let what = format!("{dtype} x 1 row");
        if report.wants(&what) {
            tame(dtype, memory);
            let product = Product::new(dtype, format, memory, usize::MAX, 1);
            let bytes = product.weights.len() as f64;
            let turns = if bytes / product.run() < 2e9 { 1 } else { TURNS };
            let (mut reads, mut rates) = (Vec::new(), Vec::new());
            // In turns, so that a busy machine slows both.
            for _ in 0..turns {
                reads.push(read_rate(product.weights));
                rates.push(bytes / product.run());
            }
            let (read, rate) = (best(reads), best(rates));
            report.row(&Row { what, moved: bytes, rate, estimate: read, scale: 1e9, unit: "GB/s" });
        }
    }
    let plain = [DType::Q8_0, DType::Mxfp4, DType::F16, DType::Bf16].map(|d| (d, ActFormat::F32));
    for (dtype, format) in weight_types().chain(plain) {
        let what = format!("{dtype} x {MANY} rows{}", if partner(dtype) == Some(format) { "" } else { " of f32" });
        if report.wants(&what) {
            tame(dtype, memory);
            // What the same weights would do if each activation row were multiplied alone.
            let one = Product::new(dtype, format, memory, MANY_WEIGHTS, 1);
            let many = Product::new(dtype, format, memory, MANY_WEIGHTS, MANY);
            let products = |p: &Product<'_>| (p.rows * p.act_rows * WIDTH) as f64 / p.run();
            let (mut ones, mut rates) = (Vec::new(), Vec::new());
            for _ in 0..TURNS {
                ones.push(products(&one));
                rates.push(products(&many));
            }
            let moved = (many.weights.len() + many.acts.len()) as f64;
            let (rate, estimate) = (best(rates), best(ones));
            report.row(&Row { what, moved, rate, estimate, scale: 1e9, unit: "G products/s" });
        }
    }
}

/// Products per second of a type with many activation rows, on all threads.
pub(crate) fn products_per_second(dtype: DType, format: ActFormat, memory: &mut [u8]) -> f64 {
    tame(dtype, memory);
    let product = Product::new(dtype, format, memory, MANY_WEIGHTS, MANY);
    let values = (product.rows * MANY * WIDTH) as f64;
    best((0..TURNS).map(|_| values / product.run()))
}

//! How fast one weight type is multiplied, beside how fast the memory can be read: `matvec [MiB] [threads] [batch] [types...]`.
//!
//! Rates are taken in turns, so that a busy machine slows both. Each line ends with the share of the read bandwidth that
//! the weights reached. Weights are random bytes.
#![allow(clippy::disallowed_methods, reason = "any activations will do")]

use std::time::{Duration, Instant};

use luce_core::DType;
use luce_device_cpu::quant::{ActFormat, act_bytes, partner, quantize};
use luce_device_cpu::simd::{ActRows, Isa, WeightRows, matmul_rows};

const WIDTH: usize = 5120;

/// Runs `work(thread)` on every thread at the same time; the time until the last is done.
fn together(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
    begin.elapsed()
}

fn gigabytes(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

/// Gives E8M0 scales the exponents that weights have: random ones lead to subnormal products, which some processors
/// handle a hundred times slower.
fn tame(dtype: DType, bytes: &mut [u8]) {
    let scales = match dtype {
        DType::Mxfp4 => 1,
        DType::Mxfp8 => 8,
        _ => return,
    };
    for block in bytes.chunks_mut(dtype.block_bytes()) {
        for scale in block.iter_mut().take(scales) {
            *scale = 116 + (*scale & 7);
        }
    }
}

/// Median of an odd number of rates.
fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default| args.get(i).map_or(default, |a| a.parse::<usize>().expect("a whole number"));
    let (mib, threads, batch) = (number(0, 256), number(1, 2), number(2, 1));
    let wanted = |dtype: DType| args.len() < 4 || args[3..].iter().any(|name| name == dtype.name());
    let mut words = vec![0u64; mib * (1 << 20) / 8];
    let mut x = 1u64;
    for word in &mut words {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *word = x ^ x >> 31;
    }
    let values: Vec<f32> = (0..batch * WIDTH).map(|i| (i as f32 * 0.7).sin()).collect();
    let read = |words: &[u64]| {
        let part = words.len().div_ceil(threads);
        let time = together(threads, |t| {
            let mut sums = [0u64; 16];
            for chunk in words[t * part..words.len().min((t + 1) * part)].as_chunks::<16>().0 {
                for (sum, word) in sums.iter_mut().zip(chunk) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            std::hint::black_box(sums);
        });
        gigabytes(words.len() * 8, time)
    };
    println!("{mib} MiB of weights, {threads} threads, batch {batch}");
    for isa in Isa::available() {
        // The plain form is a definition, not something to wait for.
        if isa.name() == "portable" {
            continue;
        }
        for &dtype in DType::ALL {
            let Some(format) = partner(dtype).filter(|_| wanted(dtype) && !dtype.name().ends_with("MIX")) else {
                continue;
            };
            tame(dtype, bytemuck::cast_slice_mut(&mut words));
            let words = &words;
            let bytes: &[u8] = bytemuck::cast_slice(words);
            let row_bytes = dtype.row_bytes(WIDTH as u64).expect("whole blocks") as usize;
            let rows = bytes.len() / row_bytes;
            let stride = act_bytes(format, WIDTH);
            let mut stored = vec![0; batch * stride];
            for (x, out) in values.chunks(WIDTH).zip(stored.chunks_mut(stride)) {
                quantize(format, x, out);
            }
            let weights = WeightRows { dtype, width: WIDTH, bytes, book: None };
            let acts = ActRows { format, rows: batch, stride, bytes: &stored };
            let multiply = || {
                let time = together(threads, |t| {
                    let mut scratch = vec![0.0; WIDTH];
                    let mut sum = 0.0;
                    let part = rows.div_ceil(threads);
                    let range = t * part..rows.min((t + 1) * part);
                    matmul_rows(isa, weights, acts, range, &mut scratch, |_, _, value| sum += value)
                        .expect("a weight type");
                    std::hint::black_box(sum);
                });
                gigabytes(rows * row_bytes, time)
            };
            // Types without a kernel of their own take long: fewer turns.
            let turns = if multiply() < 2.0 { 1 } else { 7 };
            let (mut reads, mut products) = (Vec::new(), Vec::new());
            for _ in 0..turns {
                reads.push(read(words));
                products.push(multiply());
            }
            let (read, product) = (median(reads), median(products));
            let name = if format == ActFormat::F32 { "F32" } else { "partner" };
            println!(
                "{:9} {:18} {name:8} {product:6.2} GB/s of {read:6.2} GB/s: {:3.0} %  {:7.2} G products/s",
                isa.name(),
                dtype.name(),
                100.0 * product / read,
                product / row_bytes as f64 * (WIDTH * batch) as f64,
            );
        }
    }
}

//! The machine: what it is, how busy it is, and how fast its memory can be read.

use std::time::{Duration, Instant};

use luce_device_cpu::simd::Isa;

/// Threads of every measurement: as many as the engine takes by default.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One line about processor and memory.
pub(crate) fn description() -> String {
    let field = |file: &str, key: &str| {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find(|l| l.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown memory".to_owned());
    format!("{processor}, {} cores, {memory}, {} kernels", threads(), Isa::detect().name())
}

/// The load averages of the system: 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    if averages.is_empty() { "unknown".to_owned() } else { averages.join(" ") }
}

/// Runs `work(thread)` on `threads` threads at the same time; the time until the last is done.
pub(crate) fn together(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
    begin.elapsed()
}

/// Reads all of `bytes` once, shared out over the threads: bytes per second.
pub(crate) fn read_rate(bytes: &[u8]) -> f64 {
    let threads = threads();
    let part = bytes.len().div_ceil(threads).next_multiple_of(128);
    let time = together(threads, |t| {
        let mut sums = [0u64; 16];
        for chunk in bytes[(t * part).min(bytes.len())..bytes.len().min((t + 1) * part)].as_chunks::<128>().0 {
            for (sum, word) in sums.iter_mut().zip(chunk.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_le_bytes(*word));
            }
        }
        std::hint::black_box(sums);
    });
    bytes.len() as f64 / time.as_secs_f64()
}

/// The highest of several rates: other programs can only make a turn slower.
pub(crate) fn best(rates: impl IntoIterator<Item = f64>) -> f64 {
    rates.into_iter().fold(0.0, f64::max)
}

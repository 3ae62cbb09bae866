//! How fast the engine is on this machine: `cargo bench [-- PART OF A ROW'S NAME...]`. One table; docs/performance.md says
//! how to read it.
//!
//! | rows | measured | estimate |
//! |---|---|---|
//! | `decode` | tokens per second of luce-nano, all sequences together, behind a prompt of so many tokens | the weights of a step once through the memory |
//! | `prefill` | tokens per second of a prompt of so many tokens | each matrix at the rate of its type's products with many rows |
//! | `TYPE x 1 row` | weight bytes per second | plain reading of the same bytes, in turns with the product |
//! | `TYPE x 32 rows` | products per second | the same weights with one row |

#[path = "../../src/linked.rs"]
mod linked;
#[path = "../../src/start.rs"]
#[expect(dead_code, reason = "the command line needs more of it")]
mod start;

mod engine;
mod kernels;
mod machine;
mod report;

fn main() -> anyhow::Result<()> {
    // cargo itself passes `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let profile = if cfg!(debug_assertions) { "with debug assertions: not a build to measure" } else { "release" };
    println!("machine: {}", machine::description());
    println!("build: luce-actors {}, {profile}, {}", env!("CARGO_PKG_VERSION"), std::env::consts::OS);
    println!("config: configs/cpu.toml with luce-nano; kernels on {} threads", machine::threads());
    println!("load: {} (1, 5 and 15 minutes)", machine::load());
    let mut memory = kernels::memory();
    println!("reading {} MiB: {:.2} GB/s\n", memory.len() >> 20, machine::read_rate(&memory) / 1e9);
    let mut report = report::Report::new(wanted);
    engine::measure(&mut report, &mut memory)?;
    kernels::measure(&mut report, &mut memory);
    println!("\nload at the end: {}", machine::load());
    Ok(())
}

//! The command line: parses arguments, links the device kinds, builds, waits, stops.

mod linked;
mod progress;
mod run;
mod serve;
mod start;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use luce_runtime::config::ConfigError;

/// Serves DeepSeek V4 and V4.1 Flash on the devices of your desk, over OpenAI's HTTP API.
///
/// Without a command it serves the model that the configuration names.
#[derive(Parser)]
#[command(name = "luce-actors", version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    from: Option<From>,
}

/// Where the configuration comes from.
#[derive(Args, Clone)]
pub(crate) struct From {
    /// Configuration file, such as configs/cpu.toml.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Which box of the file this machine is; needed where the file lists several.
    #[arg(long = "box", value_name = "NAME")]
    pub(crate) box_name: Option<String>,
    /// Overrides one value, such as --set schedule.max_queue=8. May be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Streams one answer to standard output; everything else goes to standard error.
    Run(run::RunArgs),
    /// Prints what a model file holds: architecture, sizes by class and dtype, what is missing.
    Inspect {
        /// A GGUF file, or any shard of a split one.
        file: PathBuf,
    },
    /// Prints the effective configuration: every value with its default and origin.
    Config(From),
    /// Prints the wiring: which stages run where, and what feeds what.
    Wiring {
        #[command(flatten)]
        from: From,
        /// For Graphviz: luce-actors wiring --config FILE --dot | dot -Tsvg > wiring.svg
        #[arg(long)]
        dot: bool,
    },
    /// Prints a shell completion script.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the output has seen enough, as in `luce-actors wiring ... | head`.
        Err(e) if e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) => {
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e:#}");
            let place = e.downcast_ref::<ConfigError>().and_then(ConfigError::excerpt);
            if let Some(place) = place.filter(|_| std::io::stderr().is_terminal()) {
                eprintln!("{place}");
            }
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<()> {
    match (cli.command, cli.from) {
        (Some(Command::Run(args)), _) => run::run(&args),
        (Some(Command::Inspect { file }), _) => inspect(&file),
        (Some(Command::Config(from)), _) => print(&start::load(&from.config, &from.sets)?.print()),
        (Some(Command::Wiring { from, dot }), _) => {
            let config = start::load(&from.config, &from.sets)?.config;
            print(&start::Plan::new(config, from.box_name)?.wiring(dot))
        }
        (Some(Command::Completions { shell }), _) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "luce-actors", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
        (None, from) => serve::serve(&from.expect("without a command --config is required")),
    }
}

/// Writes to standard output; unlike `print!` it does not panic when nobody reads.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn inspect(file: &Path) -> anyhow::Result<()> {
    let gguf = luce_storage::Gguf::open(file)?;
    print(&format!("{}\n", luce_storage::summarize(&gguf)))?;
    let config = luce_model::ModelConfig::read(gguf.catalog())?;
    print(&format!(
        "{:?}: {} layers of {}, {} experts of which {} are used, context {}, vocabulary {}\n",
        config.family, config.layers, config.hidden, config.experts, config.experts_used, config.context, config.vocab
    ))?;
    if let Some(engram) = &config.engram {
        print(&format!("Engram at layers {:?}, rows {:?}\n", engram.layers, engram.rows))?;
    }
    print(&match luce_model::tokenizer::Tokenizer::from_catalog(gguf.catalog()) {
        Ok(tokenizer) => format!("tokenizer: {} entries\n", tokenizer.vocabulary()),
        Err(e) => format!("tokenizer: {e}\n"),
    })?;
    let weights = luce_model::WeightMap::resolve(&config, gguf.catalog())?;
    let unknown: Vec<&str> = weights.unknown().collect();
    let colon = if unknown.is_empty() { "" } else { ":" };
    print(&format!("no tensor is missing; {} are not used{colon}\n", weights.ignored().len()))?;
    unknown.iter().try_for_each(|name| print(&format!("  {name}\n")))
}

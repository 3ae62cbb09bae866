//! The command line: parses arguments, links the device kinds, builds, waits, stops.

mod linked;
mod run;
mod serve;
mod start;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

/// Serves DeepSeek V4 and V4.1 Flash on the devices of your desk, over OpenAI's HTTP API.
///
/// Without a command it serves the model that the configuration names.
#[derive(Parser)]
#[command(name = "luce-actors", version, args_conflicts_with_subcommands = true)]
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
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<()> {
    match (cli.command, cli.from) {
        (Some(Command::Run(args)), _) => run::run(&args),
        (Some(Command::Inspect { file }), _) => inspect(&file),
        (Some(Command::Config(from)), _) => {
            print!("{}", start::load(&from.config, &from.sets)?.print());
            Ok(())
        }
        (Some(Command::Wiring { from, dot }), _) => {
            let loaded = start::load(&from.config, &from.sets)?;
            print!("{}", start::Plan::new(loaded.config, from.box_name)?.wiring(dot));
            Ok(())
        }
        (Some(Command::Completions { shell }), _) => {
            clap_complete::generate(shell, &mut Cli::command(), "luce-actors", &mut std::io::stdout());
            Ok(())
        }
        (None, Some(from)) => serve::serve(&from),
        (None, None) => anyhow::bail!("name a configuration: luce-actors --config configs/cpu.toml (or see --help)"),
    }
}

fn inspect(file: &std::path::Path) -> anyhow::Result<()> {
    let gguf = luce_storage::Gguf::open(file)?;
    println!("{}", luce_storage::summarize(&gguf));
    let config = luce_model::ModelConfig::read(gguf.catalog())?;
    println!(
        "{:?}: {} layers of {}, {} experts of which {} are used, context {}, vocabulary {}",
        config.family, config.layers, config.hidden, config.experts, config.experts_used, config.context, config.vocab
    );
    if let Some(engram) = &config.engram {
        println!("Engram at layers {:?}, rows {:?}", engram.layers, engram.rows);
    }
    match luce_model::tokenizer::Tokenizer::from_catalog(gguf.catalog()) {
        Ok(tokenizer) => println!("tokenizer: {} entries", tokenizer.vocabulary()),
        Err(e) => println!("tokenizer: {e}"),
    }
    let weights = luce_model::WeightMap::resolve(&config, gguf.catalog())?;
    let unknown: Vec<&str> = weights.unknown().collect();
    println!(
        "no tensor is missing; {} are not used{}",
        weights.ignored().len(),
        if unknown.is_empty() { "" } else { ":" }
    );
    unknown.iter().for_each(|name| println!("  {name}"));
    Ok(())
}

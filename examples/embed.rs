//! An embedder's program: opens a model, starts an engine on one CPU device, asks one question and prints the answer. No
//! configuration file and no HTTP.
//!
//! From the repository's root: `cargo run --release --example embed -- "What is 3 + 4?"`

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::Context;
use luce_core::{Event, Generate, GenerateRequest, Precision, Reduce, SinkClosed};
use luce_device::Device;
use luce_device_cpu::{CpuConfig, CpuDevice};
use luce_model::ProgramOptions;
use luce_model::chat::{ChatFormat, Conversation, EffortProfile, Message, Part};
use luce_model::tokenizer::{Markers, Tokenizer};
use luce_runtime::{Engine, EngineOptions, Model, Placement, WaitPolicy};

/// The longest answer, in tokens.
const MOST_TOKENS: u32 = 200;

fn answer(model: &Path, question: &str) -> anyhow::Result<String> {
    let model = Model::open(model)?;
    let catalog = model.gguf.catalog();
    let tokenizer = Tokenizer::from_catalog(catalog)?;
    let format = ChatFormat::new(model.config.family, EffortProfile::guess(catalog));
    format.check(&tokenizer)?;

    // One device has all roles, and one sequence is alive at a time.
    let placement = Placement::single("cpu");
    let program = ProgramOptions {
        precision: Precision::Partner,
        reduce: Reduce::Exact,
        qat: false,
        owners: 1,
        max_rows: 128,
        max_picks: 1,
        slots: 1,
        context: 1024,
    };
    let options = EngineOptions {
        program,
        bands_in_flight: 2,
        max_queue: 1,
        wait: WaitPolicy { spin: Duration::from_micros(50) },
        name: "embedded".into(),
        actors: Vec::new(),
    };
    let devices = Arc::new(|| {
        let device = CpuDevice::new(&CpuConfig::default()).map_err(|e| e.to_string())?;
        Ok(vec![Box::new(device) as Box<dyn Device>])
    });
    let engine = Engine::start(model, placement, devices, options)?;
    engine.wait_ready(|_| ()).map_err(anyhow::Error::msg)?;

    let messages = vec![Message::User(vec![Part::Text(question.to_owned())])];
    let prompt = format.render(&tokenizer, &Conversation { messages, ..Conversation::default() }).tokens;
    let request = GenerateRequest::greedy(prompt, MOST_TOKENS, format.stop_ids(&tokenizer));
    // Room for every event, so that the engine's thread never waits for this one.
    let (send, events) = sync_channel(MOST_TOKENS as usize + 2);
    engine.submit(request, Box::new(move |event| send.try_send(event).map_err(|_| SinkClosed)))?;
    let mut tokens = Vec::new();
    loop {
        match events.recv_timeout(Duration::from_secs(60)).context("no token for 60 s")? {
            Event::Admitted => {}
            Event::Token(chosen) if chosen.stop => {}
            Event::Token(chosen) => tokens.push(chosen.token),
            Event::Finished { .. } => return Ok(tokenizer.decode(&tokens, Markers::Show)),
            Event::Failed(why) => anyhow::bail!(why),
        }
    }
}

fn main() -> anyhow::Result<()> {
    let question = std::env::args().nth(1).unwrap_or_else(|| "What is 3 + 4?".into());
    println!("{}", answer(Path::new("models/luce-nano/luce-nano.gguf"), &question)?);
    Ok(())
}

#[test]
fn the_bundled_model_answers() -> anyhow::Result<()> {
    let answer = answer(Path::new("models/luce-nano/luce-nano.gguf"), "What is 3 + 4?")?;
    assert!(answer.contains('7'), "{answer}");
    Ok(())
}

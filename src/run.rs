//! `luce-actors run`: one answer to standard output.

use std::io::Write;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, ValueEnum};
use luce_core::{Event, Generate, GenerateRequest, Sampling, SinkClosed};
use luce_model::chat::openai::{self, Defaults};
use luce_model::tokenizer::{Markers, StreamDecoder};

use crate::{From, progress, start};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Think {
    On,
    Off,
}

/// Arguments of `run`.
#[derive(Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    from: From,
    /// 0 is greedy.
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f32,
    /// Key of the random draws: equal seeds give equal text.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The most tokens to generate.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Whether the model thinks aloud first.
    #[arg(long, value_enum, default_value = "off")]
    think: Think,
    /// What to ask.
    prompt: String,
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.temperature.is_finite() && args.temperature >= 0.0,
        "--temperature {} cannot be used; give 0 (greedy) or more",
        args.temperature
    );
    let began = Instant::now();
    let loaded = start::load(&args.from.config, &args.from.sets)?;
    let plan = start::Plan::new(loaded.config, args.from.box_name.clone())?;
    let (tokenizer, format) = plan.chat()?;
    let engine = plan.engine()?;
    #[expect(clippy::disallowed_methods, reason = "nothing else can happen meanwhile")]
    let pause = |time| {
        std::thread::sleep(time);
        false
    };
    progress::wait(&engine, began, pause)?;

    let body = serde_json::json!({ "messages": [{ "role": "user", "content": args.prompt }] });
    let defaults = Defaults { family: plan.model.config.family, thinking: args.think == Think::On };
    let conversation = openai::conversation(body.as_object().expect("an object"), defaults)
        .map_err(|e| anyhow::anyhow!("{}", e.message))?;
    let prompt = format.render(&tokenizer, &conversation).tokens;
    let room = engine.served().context.saturating_sub(prompt.len() as u32);
    let mut request = GenerateRequest::greedy(prompt, args.max_tokens.min(room).max(1), format.stop_ids(&tokenizer));
    request.sampling = Sampling { temperature: args.temperature, seed: args.seed, ..Sampling::default() };
    // Room for all that can come, so that the engine never waits for the terminal.
    let (send, events) = std::sync::mpsc::sync_channel(request.max_tokens as usize + 2);
    engine.submit(request, Box::new(move |e| send.send(e).map_err(|_| SinkClosed)))?;
    let mut decoder = StreamDecoder::new(Markers::Show);
    let mut out = std::io::stdout().lock();
    loop {
        match events.recv().context("the engine stopped without an answer")? {
            Event::Admitted => {}
            Event::Token(chosen) if chosen.stop => {}
            Event::Token(chosen) => {
                let mut text = String::new();
                decoder.push(&tokenizer, chosen.token, &mut text);
                out.write_all(text.as_bytes())?;
                out.flush()?;
            }
            Event::Finished { usage, timings, .. } => {
                writeln!(out)?;
                let rate = f64::from(usage.generated.saturating_sub(1)) * 1e6 / timings.decode_us.max(1) as f64;
                eprintln!(
                    "{} prompt tokens in {:.0} ms, {} generated, {rate:.1} tokens/s",
                    usage.prompt,
                    timings.prefill_us as f64 / 1e3,
                    usage.generated
                );
                return Ok(());
            }
            Event::Failed(why) => anyhow::bail!(why),
        }
    }
}

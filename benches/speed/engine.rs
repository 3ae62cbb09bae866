//! Tokens per second of the bundled model through the engine that the command line builds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use luce_core::{DType, Event, Generate, GenerateRequest, SinkClosed, TokenId};
use luce_device_cpu::quant::{ActFormat, partner};
use luce_model::WeightClass;
use luce_runtime::Engine;

use crate::kernels::products_per_second;
use crate::machine::{best, read_rate};
use crate::report::{Report, Row};
use crate::start::{self, Plan};

const CONFIG: &str = "configs/cpu.toml";
/// Lengths of prompts.
const PROMPTS: [usize; 3] = [64, 1024, 3840];
/// Tokens that are written after a prompt.
const ANSWER: u32 = 128;
const TURNS: usize = 3;
/// Longest wait for one event.
const PATIENCE: Duration = Duration::from_secs(120);

/// What one request took.
struct Answer {
    prefill: f64,
    /// When each token came.
    tokens: Vec<Instant>,
}

/// The same prompt `sequences` times, written on at the same time.
fn generate(engine: &Engine, prompt: &[TokenId], sequences: usize) -> anyhow::Result<Vec<Answer>> {
    let submit = |_| {
        let request = GenerateRequest::greedy(prompt.to_vec(), ANSWER, Vec::new());
        let (send, events) = mpsc::sync_channel(ANSWER as usize + 2);
        let sink = move |e| send.try_send((Instant::now(), e)).map_err(|_| SinkClosed);
        engine.submit(request, Box::new(sink)).map_err(|e| anyhow::anyhow!("{e}"))?;
        Ok(events)
    };
    let streams: Vec<_> = (0..sequences).map(submit).collect::<anyhow::Result<_>>()?;
    let answer = |events: mpsc::Receiver<(Instant, Event)>| {
        let mut tokens = Vec::new();
        loop {
            match events.recv_timeout(PATIENCE).context("the engine says nothing")? {
                (_, Event::Admitted) => {}
                (at, Event::Token(_)) => tokens.push(at),
                (_, Event::Finished { timings, .. }) => {
                    return Ok(Answer { prefill: timings.prefill_us as f64 / 1e6, tokens });
                }
                (_, Event::Failed(why)) => anyhow::bail!(why),
            }
        }
    };
    streams.into_iter().map(answer).collect()
}

/// Tokens per second while all sequences were being written.
fn decode_rate(answers: &[Answer]) -> Option<f64> {
    let begin = answers.iter().filter_map(|a| a.tokens.first()).max()?;
    let end = answers.iter().filter_map(|a| a.tokens.last()).min()?;
    let tokens = answers.iter().flat_map(|a| &a.tokens).filter(|t| *t > begin && *t <= end).count();
    Some(tokens as f64 / end.checked_duration_since(*begin)?.as_secs_f64())
}

/// Weights that a step of so many rows reads at most, by type: values and bytes. An expert is read once a step.
fn weights(plan: &Plan, rows: usize) -> BTreeMap<DType, (f64, f64)> {
    let c = &plan.model.config;
    let experts = (c.experts_used as usize * rows).min(c.experts as usize) as f64 / f64::from(c.experts);
    let mut all = BTreeMap::new();
    for (role, tensor) in plan.model.weights.iter() {
        let share = match role.class() {
            WeightClass::Embedding | WeightClass::EngramTable => continue,
            WeightClass::Experts => experts,
            _ => 1.0,
        };
        let (values, bytes) = all.entry(tensor.dtype).or_insert((0.0, 0.0));
        *values += tensor.values() as f64 * share;
        *bytes += tensor.bytes as f64 * share;
    }
    all
}

/// Real text as token ids: the prompts of the model's evaluation, one after the other.
fn text(root: &Path) -> anyhow::Result<Vec<TokenId>> {
    let file = root.join("models/luce-nano/eval/chat_eval.jsonl");
    let lines = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut ids = Vec::new();
    for line in lines.lines() {
        let value: serde_json::Value = serde_json::from_str(line)?;
        let prompt = value["prompt_ids"].as_array().context("a line without prompt_ids")?;
        ids.extend(prompt.iter().filter_map(|id| Some(TokenId(u32::try_from(id.as_u64()?).ok()?))));
    }
    Ok(ids)
}

/// One row of the table for each precision, prompt and number of sequences.
pub(crate) fn measure(report: &mut Report, memory: &mut [u8]) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = text(root)?;
    for activations in ["int8", "f32"] {
        let name = |what: &str, prompt: usize| format!("{what}, {activations}, at {prompt}");
        let most = 4;
        let (one, four) = ("decode 1 sequence", format!("decode {most} sequences"));
        let rows = PROMPTS.iter().flat_map(|&p| [one, &four, "prefill"].map(|what| name(what, p)));
        if !rows.into_iter().any(|what| report.wants(&what)) {
            continue;
        }
        let model = root.join("models/luce-nano/luce-nano.gguf");
        let sets = [
            format!("numerics.activations={activations}"),
            format!("schedule.decode.max_sequences={most}"),
            format!("model.path={}", model.display()),
        ];
        let plan = Plan::new(start::load(&root.join(CONFIG), &sets)?.config, None)?;
        let engine = plan.engine()?;
        engine.wait_ready(|_| ()).map_err(anyhow::Error::msg)?;
        let read = read_rate(memory);
        let (step, big_step) = (weights(&plan, 1), weights(&plan, most));
        let bytes = |step: &BTreeMap<DType, (f64, f64)>| step.values().map(|(_, bytes)| bytes).sum::<f64>();
        // A prompt token at the rate at which each type's matrices are multiplied alone.
        let token: f64 = step
            .iter()
            .filter_map(|(&dtype, (values, _))| {
                let format = if activations == "f32" { ActFormat::F32 } else { partner(dtype)? };
                Some(values / products_per_second(dtype, format, memory))
            })
            .sum();
        for prompt in PROMPTS {
            let (mut prefill, mut ones, mut fours) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..TURNS {
                let alone = generate(&engine, &text[..prompt], 1)?;
                prefill.push(prompt as f64 / alone[0].prefill);
                ones.push(decode_rate(&alone).context("no token")?);
                fours.push(decode_rate(&generate(&engine, &text[..prompt], most)?).context("no token")?);
            }
            let rates = [
                (name(one, prompt), bytes(&step), best(ones), read / bytes(&step)),
                (name(&four, prompt), bytes(&big_step), best(fours), most as f64 * read / bytes(&big_step)),
                (name("prefill", prompt), bytes(&weights(&plan, prompt)), best(prefill), 1.0 / token),
            ];
            for (what, moved, rate, estimate) in rates {
                if report.wants(&what) {
                    report.row(&Row { what, moved, rate, estimate, scale: 1.0, unit: "tokens/s" });
                }
            }
        }
    }
    Ok(())
}

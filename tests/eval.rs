//! luce-nano against the PyTorch reference's greedy answers (models/luce-nano/README.md): token by token with f32
//! activations, and by the share of exact answers with the default int8 kernels.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use luce_core::{Event, Generate, GenerateRequest, Precision, Reduce, SinkClosed, TokenId};
use luce_device::Device;
use luce_device_cpu::{CpuConfig, CpuDevice};
use luce_model::ProgramOptions;
use luce_runtime::{Engine, EngineOptions, Model, Placement, WaitPolicy};
use serde_json::Value;

/// Requests in flight.
const TOGETHER: usize = 8;
/// Ends an answer.
const END: u32 = 1;
/// Below this gap between the two best logits another order of additions may choose another token.
const GAP: f64 = 1e-3;
const PATIENCE: Duration = Duration::from_secs(120);

struct Case {
    id: u64,
    prompt: Vec<TokenId>,
    right: Vec<u32>,
    /// The reference's answer.
    reference: Vec<u32>,
    /// Whether that is the right one.
    ok: bool,
    gap: f64,
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Every `step`-th prompt.
fn cases(step: usize) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/luce-nano/eval");
    let prompts = std::fs::read_to_string(folder.join("chat_eval.jsonl")).unwrap();
    let reference = std::fs::read_to_string(folder.join("reference.json")).unwrap();
    let reference: Vec<Value> = serde_json::from_str(&reference).unwrap();
    let prompts: Vec<Value> = prompts.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((prompts.len(), reference.len()), (300, 300));
    let case = |(prompt, reference): (&Value, &Value)| {
        assert_eq!(prompt["id"], reference["id"]);
        Case {
            id: prompt["id"].as_u64().unwrap(),
            prompt: ids(&prompt["prompt_ids"]).into_iter().map(TokenId).collect(),
            right: ids(&prompt["answer_ids"]),
            reference: ids(&reference["ids"]),
            ok: reference["ok"].as_bool().unwrap(),
            gap: reference["gap"].as_f64().unwrap(),
        }
    };
    prompts.iter().zip(&reference).step_by(step).map(case).collect()
}

fn engine(precision: Precision) -> Engine {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/luce-nano/luce-nano.gguf");
    let model = Model::open(&file).unwrap();
    let placement = Placement::single("cpu");
    let program = ProgramOptions {
        precision,
        reduce: Reduce::Exact,
        qat: false,
        owners: 1,
        max_rows: 512,
        max_picks: TOGETHER as u32,
        slots: TOGETHER as u32,
        context: 2048,
    };
    let options = EngineOptions {
        program,
        bands_in_flight: 2,
        max_queue: 300,
        wait: WaitPolicy { spin: Duration::from_micros(50) },
        name: "luce-nano".into(),
        actors: Vec::new(),
    };
    let devices = Arc::new(|| {
        let device = CpuDevice::new(&CpuConfig::default()).map_err(|e| e.to_string())?;
        Ok(vec![Box::new(device) as Box<dyn Device>])
    });
    let engine = Engine::start(model, placement, devices, options).unwrap();
    engine.wait_ready(|_| ()).unwrap();
    engine
}

/// Greedy answers, each up to the end token or 8 tokens past the right answer's length.
fn answers(engine: &Engine, cases: &[Case]) -> Vec<Vec<u32>> {
    let most = |case: &Case| case.right.len() + 8;
    // Room for every event: the engine must not be kept waiting.
    let (send, events) = mpsc::sync_channel(cases.iter().map(|case| most(case) + 2).sum());
    for (i, case) in cases.iter().enumerate() {
        let send = send.clone();
        let request = GenerateRequest::greedy(case.prompt.clone(), most(case) as u32, vec![TokenId(END)]);
        engine.submit(request, Box::new(move |event| send.send((i, event)).map_err(|_| SinkClosed))).unwrap();
    }
    let mut answers = vec![Vec::new(); cases.len()];
    let mut left = cases.len();
    while left > 0 {
        match events.recv_timeout(PATIENCE).expect("the engine goes on") {
            (i, Event::Token(chosen)) => answers[i].push(chosen.token.0),
            (_, Event::Finished { .. }) => left -= 1,
            (_, Event::Admitted) => {}
            (i, Event::Failed(why)) => panic!("prompt {}: {why}", cases[i].id),
        }
    }
    answers
}

/// Every token of every answer with a clear choice.
fn f32_follows_the_reference(step: usize) {
    let cases = cases(step);
    let begun = Instant::now();
    let answers = answers(&engine(Precision::F32), &cases);
    let mut compared = 0;
    let mut wrong = Vec::new();
    for (case, answer) in cases.iter().zip(&answers).filter(|(case, _)| case.gap > GAP) {
        compared += 1;
        if *answer != case.reference {
            wrong.push(format!("{} (gap {}): {answer:?}, not {:?}", case.id, case.gap, case.reference));
        }
    }
    println!("f32: {} of {compared} answers equal, {:.1} s", compared - wrong.len(), begun.elapsed().as_secs_f64());
    assert!(compared * 10 >= cases.len() * 9, "{compared} of {} have a clear choice", cases.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Right answers of the int8 kernels and of the reference, and prompts.
fn int8_score(step: usize) -> (usize, usize, usize) {
    let cases = cases(step);
    let begun = Instant::now();
    let answers = answers(&engine(Precision::Partner), &cases);
    let right = cases.iter().zip(&answers).filter(|(case, answer)| case.right == **answer).count();
    let reference = cases.iter().filter(|case| case.ok).count();
    let same = cases.iter().zip(&answers).filter(|(case, answer)| case.reference == **answer).count();
    println!(
        "int8: {right} of {} right, the reference {reference}; {same} equal to it; {:.1} s",
        cases.len(),
        begun.elapsed().as_secs_f64()
    );
    (right, reference, cases.len())
}

#[test]
fn f32_gives_the_tokens_of_the_reference_on_a_sample() {
    f32_follows_the_reference(20);
}

#[test]
fn int8_answers_about_as_well_as_the_reference_on_a_sample() {
    let (right, reference, of) = int8_score(12);
    // Two of 25 are eight points: a sample is coarse.
    assert!(right + 2 >= reference && right <= reference + 2, "{right} and {reference} of {of}");
}

#[test]
#[ignore = "minutes; run with: cargo test --release --test eval -- --ignored --nocapture"]
fn f32_gives_the_tokens_of_the_reference_on_the_whole_set() {
    f32_follows_the_reference(1);
}

#[test]
#[ignore = "minutes; run with: cargo test --release --test eval -- --ignored --nocapture"]
fn int8_answers_within_two_points_of_the_reference_on_the_whole_set() {
    let (right, reference, of) = int8_score(1);
    assert_eq!((reference, of), (230, 300));
    assert!(right.abs_diff(reference) * 100 <= 2 * of, "{right} and {reference} of {of}");
}

//! What the server counts, and `GET /metrics`: Prometheus' text format. No text of a prompt or an answer is in it.

mod histogram;

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use luce_core::{Lifecycle, Status, Timings};

use crate::parser::Reason;
use crate::run::Counts;
use histogram::Histogram;

/// Waits, in seconds.
const WAITS: &[f64] = &[0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Times between two tokens, in seconds.
const GAPS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0];
/// Tokens per second.
const RATES: &[f64] = &[1.0, 2.5, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2500.0, 5000.0];

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// By endpoint and status.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// By the reason of their end.
    answers: Mutex<BTreeMap<&'static str, u64>>,
    /// By reason.
    rejected: Mutex<BTreeMap<&'static str, u64>>,
    cached_tokens: Counter,
    reasoning_tokens: Counter,
    pub(crate) tool_calls: Counter,
    pub(crate) unreadable_calls: Counter,
    pub(crate) disconnects: Counter,
    queue_wait: Histogram,
    first_token: Histogram,
    between_tokens: Histogram,
    duration: Histogram,
    prefill_rate: Histogram,
    decode_rate: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        Metrics {
            requests: Mutex::default(),
            answers: Mutex::default(),
            rejected: Mutex::default(),
            cached_tokens: Counter::default(),
            reasoning_tokens: Counter::default(),
            tool_calls: Counter::default(),
            unreadable_calls: Counter::default(),
            disconnects: Counter::default(),
            queue_wait: Histogram::new(WAITS),
            first_token: Histogram::new(WAITS),
            between_tokens: Histogram::new(GAPS),
            duration: Histogram::new(WAITS),
            prefill_rate: Histogram::new(RATES),
            decode_rate: Histogram::new(RATES),
        }
    }

    /// A request was answered, or its stream begun.
    pub(crate) fn answered(&self, endpoint: &'static str, status: u16) {
        count(&self.requests, (endpoint, status));
        match status {
            429 => self.rejected("queue_full"),
            503 | 529 => self.rejected("unavailable"),
            _ => {}
        }
    }

    /// A request was turned away.
    pub(crate) fn rejected(&self, reason: &'static str) {
        count(&self.rejected, reason);
    }

    /// A request left the queue.
    pub(crate) fn admitted(&self, waited: Duration) {
        self.queue_wait.observe(waited.as_secs_f64());
    }

    /// A token came: the first after this time, or another after the one before.
    pub(crate) fn token(&self, first: bool, after: Duration) {
        let histogram = if first { &self.first_token } else { &self.between_tokens };
        histogram.observe(after.as_secs_f64());
    }

    /// An answer is complete.
    pub(crate) fn finished(&self, reason: Reason, counts: Counts, timings: Timings) {
        count(&self.answers, reason.name());
        self.cached_tokens.add(counts.cached.into());
        self.reasoning_tokens.add(counts.reasoning.into());
        let total = timings.queue_us + timings.prefill_us + timings.decode_us;
        self.duration.observe(total as f64 / 1e6);
        for (histogram, tokens, us) in [
            (&self.prefill_rate, counts.prompt.saturating_sub(counts.cached), timings.prefill_us),
            (&self.decode_rate, counts.completion.saturating_sub(1), timings.decode_us),
        ] {
            if tokens > 0 && us > 0 {
                histogram.observe(f64::from(tokens) * 1e6 / us as f64);
            }
        }
    }

    /// An answer could not be completed.
    pub(crate) fn failed(&self) {
        count(&self.answers, "error");
    }

    /// The text of `/metrics`.
    pub(crate) fn text(&self, lifecycle: &Lifecycle, status: &Status) -> String {
        let mut out = Text(String::new());
        out.head("requests_total", "counter", "Requests by endpoint and status.");
        for ((endpoint, status), count) in lock(&self.requests).iter() {
            out.line("requests_total", &[("endpoint", endpoint), ("status", status)], count);
        }
        out.head("answers_total", "counter", "Answers by the reason of their end.");
        for (finish, count) in lock(&self.answers).iter() {
            out.line("answers_total", &[("finish", finish)], count);
        }
        out.head("rejected_total", "counter", "Requests turned away, by reason.");
        for (reason, count) in lock(&self.rejected).iter() {
            out.line("rejected_total", &[("reason", reason)], count);
        }
        for (name, help, value) in [
            ("prompt_tokens_total", "Prompt tokens read, counted as they are read.", status.prompt_tokens),
            ("cached_tokens_total", "Prompt tokens whose state was reused.", self.cached_tokens.get()),
            ("generated_tokens_total", "Tokens generated.", status.generated_tokens),
            ("reasoning_tokens_total", "Of the generated tokens, those of reasoning.", self.reasoning_tokens.get()),
            ("tool_calls_total", "Tool calls in answers.", self.tool_calls.get()),
            ("tool_calls_failed_total", "Calls of which nothing could be used.", self.unreadable_calls.get()),
            ("disconnects_total", "Answers whose client went away.", self.disconnects.get()),
        ] {
            out.single(name, "counter", help, value);
        }
        let used: u64 = status.live.iter().map(|slot| u64::from(slot.read) + u64::from(slot.generated)).sum();
        for (name, help, value) in [
            ("ready", "Whether requests are taken.", u64::from(*lifecycle == Lifecycle::Ready)),
            ("running", "Live sequences.", status.live.len() as u64),
            ("queued", "Requests that wait.", status.queued.into()),
            ("slots", "The most sequences at a time.", status.slots.into()),
            ("context_used_tokens", "Positions that live sequences hold.", used),
        ] {
            out.single(name, "gauge", help, value);
        }
        let progress = match lifecycle {
            Lifecycle::Loading(done) => *done,
            _ => 1.0,
        };
        out.single("loading_progress", "gauge", "Share of the weights that is read.", progress);
        out.actors(status);
        for (name, help, histogram) in [
            ("queue_wait_seconds", "From submission to a place.", &self.queue_wait),
            ("first_token_seconds", "From submission to the first token.", &self.first_token),
            ("inter_token_seconds", "Between two tokens of an answer.", &self.between_tokens),
            ("request_seconds", "From submission to the end of an answer.", &self.duration),
            ("prefill_tokens_per_second", "Prompt tokens per second of an answer.", &self.prefill_rate),
            ("decode_tokens_per_second", "Generated tokens per second of an answer.", &self.decode_rate),
        ] {
            out.head(name, "histogram", help);
            histogram.write(&format!("{PREFIX}{name}"), &mut out.0);
        }
        out.0
    }
}

const PREFIX: &str = "luce_";

/// Prometheus' text, being written.
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.0.push_str(PREFIX);
        self.0.push_str(name);
        for (i, (key, label)) in labels.iter().enumerate() {
            let label = label.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{key}=\"{label}\"", if i == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn actors(&mut self, status: &Status) {
        type Read = fn(&luce_core::ActorStatus) -> Option<f64>;
        let families: [(&str, &str, &str, Read); 4] = [
            ("actor_memory_bytes", "gauge", "Buffers of an actor.", |actor| Some(actor.memory as f64)),
            ("actor_memory_budget_bytes", "gauge", "The most that it may hold.", |actor| {
                actor.budget.map(|bytes| bytes as f64)
            }),
            ("actor_busy_seconds_total", "counter", "Time that an actor worked.", |actor| {
                Some(actor.busy_us as f64 / 1e6)
            }),
            ("actor_mailbox", "gauge", "Messages that wait for an actor.", |actor| Some(actor.mailbox.into())),
        ];
        for (name, kind, help, read) in families {
            self.head(name, kind, help);
            for actor in &status.actors {
                if let Some(value) = read(actor) {
                    self.line(name, &[("actor", &actor.name), ("kind", &actor.kind)], value);
                }
            }
        }
    }
}

fn count<K: Ord>(map: &Mutex<BTreeMap<K, u64>>, key: K) {
    *lock(map).entry(key).or_default() += 1;
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Numbers are whole after every statement, so a panic elsewhere does not spoil them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The trait [`Generate`]: a request of token ids in, a stream of events out. Actors implement it, `luce-api` and the
//! command line call it; neither knows the other.

use std::fmt;

use crate::TokenId;

/// A request since start, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// How a token is chosen from the logits. The order of the steps is: repetition, presence and frequency penalties, then
/// temperature, top-k, top-p, min-p, then one draw from a generator keyed by (seed, position).
#[derive(Clone, PartialEq, Debug)]
pub struct Sampling {
    /// 0 = greedy (largest logit, lowest id on ties); otherwise logits are divided by it.
    pub temperature: f32,
    /// Keep the k most probable tokens; 0 = all.
    pub top_k: u32,
    /// Keep the smallest set of most probable tokens whose probabilities sum to at least this; 1 = all.
    pub top_p: f32,
    /// Drop tokens below this share of the largest probability; 0 = none.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that occurred (prompt and answer); 1 = off.
    pub repetition_penalty: f32,
    /// Subtracted once from logits of tokens that occurred in the answer; 0 = off.
    pub presence_penalty: f32,
    /// Subtracted per occurrence in the answer; 0 = off.
    pub frequency_penalty: f32,
    /// Key of the random draws; equal seeds give equal text. `None`: chosen when the request is admitted.
    pub seed: Option<u64>,
    /// Added to the logits of these tokens before everything else; minus infinity forbids one.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Stop tokens are forbidden until this many tokens have been generated.
    pub min_tokens: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: None,
            logit_bias: Vec::new(),
            min_tokens: 0,
        }
    }
}

/// A set of token ids, one bit each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenSet {
    words: Vec<u32>,
    vocabulary: u32,
}

impl TokenSet {
    /// All ids below `vocabulary`.
    pub fn full(vocabulary: u32) -> TokenSet {
        let mut set = TokenSet { words: vec![0; vocabulary.div_ceil(32) as usize], vocabulary };
        set.fill();
        set
    }

    /// Makes every id a member.
    pub fn fill(&mut self) {
        self.words.fill(u32::MAX);
        let spare = self.words.len() as u32 * 32 - self.vocabulary;
        if let Some(last) = self.words.last_mut() {
            *last >>= spare;
        }
    }

    /// Removes every id.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds `token`; ids outside the vocabulary are ignored.
    pub fn insert(&mut self, token: TokenId) {
        if token.0 < self.vocabulary {
            self.words[token.index() / 32] |= 1 << (token.0 % 32);
        }
    }

    /// Removes `token`.
    pub fn remove(&mut self, token: TokenId) {
        if token.0 < self.vocabulary {
            self.words[token.index() / 32] &= !(1 << (token.0 % 32));
        }
    }

    /// Whether `token` is a member.
    pub fn contains(&self, token: TokenId) -> bool {
        token.0 < self.vocabulary && self.words[token.index() / 32] >> (token.0 % 32) & 1 == 1
    }

    /// Keeps the ids whose bits are set in `mask` too: bit `t % 32` of word `t / 32`, missing words are zero.
    pub fn intersect(&mut self, mask: &[u32]) {
        for (i, word) in self.words.iter_mut().enumerate() {
            *word &= mask.get(i).copied().unwrap_or(0);
        }
    }

    /// Whether no id is a member.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }
}

/// What the next token may be, as a state machine that follows the chosen tokens: a grammar, a budget of thinking.
/// Called from a control thread between two steps, so both calls have to be fast.
pub trait Constraint: Send + fmt::Debug {
    /// Removes the tokens that may not come next from `allowed`. Where nothing is restricted it returns false and leaves
    /// `allowed` alone.
    ///
    /// # Errors
    /// Why no token can come next; the request then fails with this text.
    fn restrict(&mut self, allowed: &mut TokenSet) -> Result<bool, String>;

    /// Takes note of the token that was chosen.
    ///
    /// # Errors
    /// Why it does not fit; the request then fails with this text.
    fn accept(&mut self, token: TokenId) -> Result<(), String>;
}

/// What to generate.
#[derive(Debug)]
pub struct GenerateRequest {
    /// The whole prompt; at least one token, each inside the vocabulary.
    pub prompt: Vec<TokenId>,
    /// The most tokens to generate, at least 1. Prompt plus this must fit the context.
    pub max_tokens: u32,
    /// Tokens that end the answer. The one that did is the last token event's id and counts as generated.
    pub stop_tokens: Vec<TokenId>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Report the log-probability of each token and of this many most probable ones.
    pub logprobs: Option<u32>,
    /// Limits which tokens may come.
    pub constraint: Option<Box<dyn Constraint>>,
}

impl GenerateRequest {
    /// Greedy and unconstrained.
    pub fn greedy(prompt: Vec<TokenId>, max_tokens: u32, stop_tokens: Vec<TokenId>) -> GenerateRequest {
        let sampling = Sampling::default();
        GenerateRequest { prompt, max_tokens, stop_tokens, sampling, logprobs: None, constraint: None }
    }
}

/// Natural logarithms of the model's own probabilities: before bias, penalties, constraint and temperature.
#[derive(Clone, PartialEq, Debug)]
pub struct Logprobs {
    /// Of the chosen token.
    pub chosen: f32,
    /// The most probable tokens, best first, lowest id first on ties.
    pub top: Vec<(TokenId, f32)>,
}

/// One generated token.
#[derive(Clone, PartialEq, Debug)]
pub struct Chosen {
    /// Its id.
    pub token: TokenId,
    /// True when it is one of the request's stop tokens: it is not part of the text.
    pub stop: bool,
    /// Where the request asked for them.
    pub logprobs: Option<Box<Logprobs>>,
}

/// Why an answer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// One of the stop tokens was chosen.
    Stop,
    /// `max_tokens` or the context was reached.
    Length,
    /// [`Generate::cancel`] was called or the sink closed.
    Cancelled,
}

/// Token counts of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Of these, tokens whose state was reused instead of computed.
    pub cached: u32,
    /// Generated tokens, the stop token included.
    pub generated: u32,
}

/// Times of a request, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timings {
    /// From submission to admission.
    pub queue_us: u64,
    /// From admission to the first token.
    pub prefill_us: u64,
    /// From the first token to the last.
    pub decode_us: u64,
}

/// What happens to a request, in order: `Admitted`, then `Token`s, then exactly one of `Finished` and `Failed`.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// It left the queue and has a place.
    Admitted,
    /// The next token.
    Token(Chosen),
    /// The answer is complete.
    Finished {
        /// Why it ended.
        finish: Finish,
        /// Token counts.
        usage: Usage,
        /// Times.
        timings: Timings,
    },
    /// A device, disk or peer failed; the text says which and what may help.
    Failed(String),
}

/// The receiver of events has gone away; the request is then cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SinkClosed;

/// Where a request's events go. Called from a control thread; must not block.
pub trait EventSink: Send {
    /// Takes the next event.
    ///
    /// # Errors
    /// [`SinkClosed`] when nobody listens any more.
    fn send(&mut self, event: Event) -> Result<(), SinkClosed>;
}

impl<F: FnMut(Event) -> Result<(), SinkClosed> + Send> EventSink for F {
    fn send(&mut self, event: Event) -> Result<(), SinkClosed> {
        self(event)
    }
}

/// Why a request was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The model is still loading.
    Loading,
    /// The server is shutting down.
    Draining,
    /// A device or peer is lost; the text says which.
    Broken(String),
    /// The queue is full.
    Busy {
        /// Requests waiting.
        queued: u32,
    },
    /// Prompt plus `max_tokens` do not fit the context.
    TooLong {
        /// Tokens of the prompt.
        prompt: u32,
        /// `max_tokens` of the request.
        max_tokens: u32,
        /// The context, in tokens.
        context: u32,
    },
    /// The request makes no sense; the text says why.
    Invalid(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Loading => f.write_str("the model is still loading"),
            Refusal::Draining => f.write_str("the server is shutting down"),
            Refusal::Broken(why) => write!(f, "the engine cannot serve: {why}"),
            Refusal::Busy { queued } => write!(f, "the queue is full ({queued} requests are waiting)"),
            Refusal::TooLong { prompt, max_tokens, context } => {
                write!(f, "{prompt} prompt tokens and {max_tokens} to generate exceed the context of {context}")
            }
            Refusal::Invalid(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}

/// State of the engine as `/health` shows it.
#[derive(Clone, PartialEq, Debug)]
pub enum Lifecycle {
    /// Weights are being read; the share that is done, 0 to 1.
    Loading(f32),
    /// Requests are taken.
    Ready,
    /// No new requests; live ones finish.
    Draining,
    /// A device or peer is lost.
    Broken(String),
}

/// What is being served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Served {
    /// The name clients see.
    pub name: String,
    /// The most tokens of prompt and answer together.
    pub context: u32,
    /// Entries of the vocabulary; valid token ids are below it.
    pub vocabulary: u32,
}

/// A live sequence, for `/slots`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotStatus {
    /// Its place, from 0.
    pub slot: u32,
    /// Its request.
    pub request: RequestId,
    /// Tokens of its prompt.
    pub prompt: u32,
    /// Prompt tokens read so far.
    pub read: u32,
    /// Generated tokens.
    pub generated: u32,
}

/// One actor, for `/status` and the dashboard.
#[derive(Clone, PartialEq, Debug)]
pub struct ActorStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Its kind, such as `cpu`.
    pub kind: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// `starting`, `running`, `draining`, `stopped` or `failed: why`.
    pub state: String,
    /// Bytes of its buffers.
    pub memory: u64,
    /// The most bytes that it may hold, where it has a budget.
    pub budget: Option<u64>,
    /// Microseconds of work since start, for busy shares.
    pub busy_us: u64,
    /// Messages in its mailbox.
    pub mailbox: u32,
}

/// A snapshot of the engine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Status {
    /// Requests that wait.
    pub queued: u32,
    /// The most sequences at a time.
    pub slots: u32,
    /// Live sequences.
    pub live: Vec<SlotStatus>,
    /// Actors in the order of the configuration.
    pub actors: Vec<ActorStatus>,
    /// Prompt tokens read since start.
    pub prompt_tokens: u64,
    /// Tokens generated since start.
    pub generated_tokens: u64,
}

/// An engine that generates tokens.
pub trait Generate: Send + Sync {
    /// What is being served.
    fn served(&self) -> &Served;

    /// Whether requests are taken, and if not, why.
    fn lifecycle(&self) -> Lifecycle;

    /// A snapshot for status pages; cheap, taken without stopping anything.
    fn status(&self) -> Status;

    /// Takes a request. Its events go to `sink`, in order, ending with `Finished` or `Failed`.
    ///
    /// # Errors
    /// A [`Refusal`]; then `sink` is never called.
    fn submit(&self, request: GenerateRequest, sink: Box<dyn EventSink>) -> Result<RequestId, Refusal>;

    /// Ends a request within one step. Unknown or finished ids are ignored.
    fn cancel(&self, id: RequestId);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_set_holds_exactly_the_vocabulary_and_what_is_added() {
        let mut set = TokenSet::full(33);
        assert!(set.contains(TokenId(32)) && !set.contains(TokenId(33)));
        set.intersect(&[1 << 5]);
        assert!(set.contains(TokenId(5)) && !set.contains(TokenId(32)));
        set.remove(TokenId(5));
        assert!(set.is_empty());
        set.insert(TokenId(40));
        assert!(set.is_empty(), "ids outside the vocabulary are ignored");
    }
}

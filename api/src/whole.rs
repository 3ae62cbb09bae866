//! The parts of an answer, put together.

use crate::parser::{Delta, Deltas};
use crate::scores::Scores;

/// All that came of an answer.
#[derive(Debug, Default)]
pub(crate) struct Whole {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    pub(crate) calls: Vec<WholeCall>,
    pub(crate) scores: Scores,
}

/// A tool call of an answer.
#[derive(Debug)]
pub(crate) struct WholeCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON, unless the output was cut inside it.
    pub(crate) arguments: String,
}

impl Whole {
    /// Adds what came.
    pub(crate) fn add(&mut self, deltas: Deltas, scores: Scores) {
        self.scores.append(scores);
        for delta in deltas {
            match delta {
                Delta::Reasoning(text) => self.reasoning.push_str(&text),
                Delta::Content(text) => self.content.push_str(&text),
                Delta::Call { id, name, .. } => self.calls.push(WholeCall { id, name, arguments: String::new() }),
                Delta::Arguments { json, .. } => {
                    if let Some(call) = self.calls.last_mut() {
                        call.arguments.push_str(&json);
                    }
                }
            }
        }
    }
}

//! The constraint of one answer.
//!
//! ```text
//! Thinking --</think>--> Bound(answer), or Free without one
//! Thinking, Free --marker of a tool call--> Bound(block)
//! Bound --complete--> only the end of the turn
//! ```

use std::sync::Arc;

use llguidance::Matcher;
use luce_core::{Constraint, TokenId, TokenSet};

use super::Grammars;

/// Follows one answer.
pub(crate) struct Guide {
    grammars: Arc<Grammars>,
    phase: Phase,
    /// What the answer must be once the thinking is over.
    answer: Option<Matcher>,
    /// What a tool call must be from its marker on, wherever it begins.
    block: Option<Matcher>,
}

#[expect(clippy::large_enum_variant, reason = "there is one per answer, and it is bound for most of its life")]
enum Phase {
    /// Tokens that may still be thought.
    Thinking(Option<u32>),
    Free,
    Bound(Matcher),
}

impl std::fmt::Debug for Guide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phase = match self.phase {
            Phase::Thinking(_) => "thinking",
            Phase::Free => "free",
            Phase::Bound(_) => "bound",
        };
        f.debug_struct("Guide").field("phase", &phase).finish_non_exhaustive()
    }
}

impl Guide {
    /// `thinking`: the answer begins with it; inside, its budget.
    pub(super) fn new(
        grammars: Arc<Grammars>,
        thinking: Option<Option<u32>>,
        mut answer: Option<Matcher>,
        block: Option<Matcher>,
    ) -> Guide {
        let phase = match thinking {
            Some(budget) => Phase::Thinking(budget),
            None => answer.take().map_or(Phase::Free, Phase::Bound),
        };
        Guide { grammars, phase, answer, block }
    }
}

impl Constraint for Guide {
    fn restrict(&mut self, allowed: &mut TokenSet) -> Result<bool, String> {
        match &mut self.phase {
            Phase::Free => Ok(false),
            Phase::Thinking(left) => {
                if *left == Some(0)
                    && let Some(end) = self.grammars.end_think
                {
                    allowed.clear();
                    allowed.insert(end);
                    return Ok(true);
                }
                if self.answer.is_none() {
                    return Ok(false);
                }
                // The answer is still owed.
                self.grammars.stops.iter().for_each(|&stop| allowed.remove(stop));
                if self.block.is_none()
                    && let Some(marker) = self.grammars.dsml
                {
                    allowed.remove(marker);
                }
                Ok(true)
            }
            Phase::Bound(matcher) => {
                let mask = matcher.compute_mask_or_eos().map_err(|error| format!("the grammar gave up: {error}"))?;
                allowed.intersect(mask.as_slice());
                Ok(true)
            }
        }
    }

    fn accept(&mut self, token: TokenId) -> Result<(), String> {
        match &mut self.phase {
            Phase::Bound(matcher) => {
                if self.grammars.stops.contains(&token) || matcher.is_stopped() {
                    return Ok(());
                }
                return matcher.consume_token(token.0).map_err(|error| format!("the grammar gave up: {error}"));
            }
            Phase::Thinking(_) if Some(token) == self.grammars.end_think => {
                self.phase = self.answer.take().map_or(Phase::Free, Phase::Bound);
            }
            Phase::Thinking(Some(left)) => *left = left.saturating_sub(1),
            Phase::Thinking(None) | Phase::Free => {}
        }
        if Some(token) == self.grammars.dsml
            && let Some(block) = self.block.take()
        {
            self.phase = Phase::Bound(block);
        }
        Ok(())
    }
}

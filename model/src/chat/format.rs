//! How one model's prompts look: what is served, and the settings that bear on prompts.

use luce_core::{Catalog, MetaValue, TokenId};

use super::conversation::{Conversation, Effort};
use super::prompt::{self, Builder, Opening, Prompt, Segment};
use super::{encode, markup};
use crate::Family;
use crate::tokenizer::{Spelling, Tokenizer, TokenizerError};

/// Which words for effort a set of V4 weights was trained on. A model file does not say; V4.1 has one set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EffortProfile {
    /// The weights of April: only the highest effort has a text.
    Preview,
    /// Release 0731 and later: high and max have texts.
    Official,
}

impl EffortProfile {
    /// A guess for when the configuration says nothing: official if the file's `general.*` texts name release 0731 or
    /// DSpark, else preview. Log what was guessed.
    pub fn guess(catalog: &Catalog) -> EffortProfile {
        let official = catalog.metadata.iter().filter(|(key, _)| key.starts_with("general.")).any(|(_, value)| {
            let text = match value {
                MetaValue::String(text) => text.to_ascii_lowercase(),
                _ => return false,
            };
            text.contains("0731") || text.contains("dspark")
        });
        if official { EffortProfile::Official } else { EffortProfile::Preview }
    }
}

/// How prompts are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChatFormat {
    /// The model's family.
    pub family: Family,
    /// Words for effort (V4).
    pub effort_profile: EffortProfile,
    /// Pictures become the placeholder token (V4.1); else, and always in V4, a text says that they cannot be seen.
    pub images: bool,
    /// V4 puts every system message into the head, as DeepSeek's own service does. Off by default: a system message that
    /// comes later would then change the beginning of the prompt, and all of it would be computed again.
    pub hoist_system: bool,
}

/// A conversation ready for the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rendered {
    /// The prompt.
    pub tokens: Vec<TokenId>,
    /// Where the answer begins.
    pub opening: Opening,
    /// See [`Prompt::must_call`].
    pub must_call: bool,
}

/// Values for what a client left unset.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SamplingDefaults {
    /// Temperature.
    pub temperature: f32,
    /// Probability mass of nucleus sampling.
    pub top_p: f32,
}

impl ChatFormat {
    /// Without pictures, and with later system messages in their place.
    pub fn new(family: Family, effort_profile: EffortProfile) -> ChatFormat {
        ChatFormat { family, effort_profile, images: false, hoist_system: false }
    }

    /// Checks that a vocabulary has what prompts of this family need beyond what every [`Tokenizer`] has.
    ///
    /// # Errors
    /// [`TokenizerError::MissingSpecial`].
    pub fn check(&self, tokenizer: &Tokenizer) -> Result<(), TokenizerError> {
        if self.family == Family::V41 && tokenizer.specials().system.is_none() {
            return Err(TokenizerError::MissingSpecial { spelling: Spelling::System.text() });
        }
        Ok(())
    }

    /// The prompt of a conversation.
    pub fn encode(&self, conversation: &Conversation) -> Prompt {
        encode::encode(self, conversation)
    }

    /// The prompt of a conversation as token ids, and where it leaves the model.
    pub fn render(&self, tokenizer: &Tokenizer, conversation: &Conversation) -> Rendered {
        let prompt = self.encode(conversation);
        Rendered { tokens: prompt.tokens(tokenizer), opening: prompt.opening, must_call: prompt.must_call }
    }

    /// Tokens that end a turn: end of sequence, and what no turn contains. None of them is ever shown.
    pub fn stop_ids(&self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let ids = tokenizer.specials();
        let mut stops = vec![ids.eos, ids.bos, ids.user, ids.assistant, ids.latest_reminder];
        stops.extend(ids.system.filter(|_| self.family == Family::V41));
        stops.extend(tokenizer.stated_eos().filter(|id| !stops.contains(id)));
        stops
    }

    /// Tokens that open a block of tool calls, for answers that must be one (see [`Prompt::must_call`]).
    pub fn call_opening(&self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let mut out = Builder::default();
        markup::open_calls(&mut out, self.family);
        let segments: Vec<Segment> = out.finish();
        prompt::tokens(&segments, tokenizer)
    }

    /// What DeepSeek's service uses in this mode, for values that a client leaves unset.
    pub fn sampling_defaults(&self, conversation: &Conversation) -> SamplingDefaults {
        let narrow = self.family == Family::V4 && conversation.thinking.is_some() && conversation.has_tools();
        SamplingDefaults { temperature: 1.0, top_p: if narrow { 0.95 } else { 1.0 } }
    }

    /// Whether answers get the largest limit: the effort is the highest there is.
    pub fn is_max_effort(&self, conversation: &Conversation) -> bool {
        conversation.thinking.is_some_and(|effort| effort.level() == Effort::Max.level())
    }
}

//! The tokens that prompts and answers are structured by, and their ids in one vocabulary, looked up by spelling.
//!
//! The bars are full-width (U+FF5C), the low lines inside names are U+2581.

use luce_core::TokenId;

use super::TokenizerError;
use super::added::AddedTokens;

/// Tokens that mark places in pictures; they occur in answers of models that see.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Grounding {
    /// What is referred to.
    Ref,
    /// End of it.
    RefEnd,
    /// A box.
    Box,
    /// End of it.
    BoxEnd,
    /// A point.
    Point,
    /// End of it.
    PointEnd,
    /// A polygon.
    Polygon,
    /// End of it.
    PolygonEnd,
}

/// A structural token, apart from its id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Spelling {
    /// Begin of sequence.
    Bos,
    /// End of sequence, and of a turn.
    Eos,
    /// System turn (V4.1).
    System,
    /// User turn.
    User,
    /// Assistant turn.
    Assistant,
    /// A reminder of the newest state of things.
    LatestReminder,
    /// Begin of reasoning.
    Think,
    /// End of reasoning.
    EndThink,
    /// The marker inside tool markup.
    Dsml,
    /// Stands for a picture.
    Image,
    /// See [`Grounding`].
    Grounding(Grounding),
}

impl Spelling {
    /// Those that may stand in the text of an assistant's turn.
    pub const GROUNDING: [Spelling; 8] = [
        Spelling::Grounding(Grounding::Ref),
        Spelling::Grounding(Grounding::RefEnd),
        Spelling::Grounding(Grounding::Box),
        Spelling::Grounding(Grounding::BoxEnd),
        Spelling::Grounding(Grounding::Point),
        Spelling::Grounding(Grounding::PointEnd),
        Spelling::Grounding(Grounding::Polygon),
        Spelling::Grounding(Grounding::PolygonEnd),
    ];

    /// How it is spelled.
    pub const fn text(self) -> &'static str {
        match self {
            Spelling::Bos => "<｜begin▁of▁sentence｜>",
            Spelling::Eos => "<｜end▁of▁sentence｜>",
            Spelling::System => "<｜System｜>",
            Spelling::User => "<｜User｜>",
            Spelling::Assistant => "<｜Assistant｜>",
            Spelling::LatestReminder => "<｜latest_reminder｜>",
            Spelling::Think => "<think>",
            Spelling::EndThink => "</think>",
            Spelling::Dsml => "｜DSML｜",
            Spelling::Image => "<｜deepseek_image｜>",
            Spelling::Grounding(Grounding::Ref) => "<｜ref｜>",
            Spelling::Grounding(Grounding::RefEnd) => "<｜/ref｜>",
            Spelling::Grounding(Grounding::Box) => "<｜box｜>",
            Spelling::Grounding(Grounding::BoxEnd) => "<｜/box｜>",
            Spelling::Grounding(Grounding::Point) => "<｜point｜>",
            Spelling::Grounding(Grounding::PointEnd) => "<｜/point｜>",
            Spelling::Grounding(Grounding::Polygon) => "<｜polygon｜>",
            Spelling::Grounding(Grounding::PolygonEnd) => "<｜/polygon｜>",
        }
    }
}

/// Ids of the structural tokens of one vocabulary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpecialIds {
    /// Begin of sequence.
    pub bos: TokenId,
    /// End of sequence, and of a turn.
    pub eos: TokenId,
    /// System turn; required by V4.1.
    pub system: Option<TokenId>,
    /// User turn.
    pub user: TokenId,
    /// Assistant turn.
    pub assistant: TokenId,
    /// Reminder turn.
    pub latest_reminder: TokenId,
    /// Begin of reasoning.
    pub think: TokenId,
    /// End of reasoning.
    pub end_think: TokenId,
    /// The marker inside tool markup.
    pub dsml: TokenId,
    /// Stands for a picture, under either spelling.
    pub image: Option<TokenId>,
    /// Fill-in-the-middle: begin, hole, end.
    pub fim: Option<[TokenId; 3]>,
    /// In the order of [`Spelling::GROUNDING`].
    pub grounding: [Option<TokenId>; 8],
}

impl SpecialIds {
    pub(super) fn find(added: &AddedTokens) -> Result<SpecialIds, TokenizerError> {
        let need = |s: Spelling| added.get(s.text()).ok_or(TokenizerError::MissingSpecial { spelling: s.text() });
        let fim = || Some([added.get("<｜fim▁begin｜>")?, added.get("<｜fim▁hole｜>")?, added.get("<｜fim▁end｜>")?]);
        Ok(SpecialIds {
            bos: need(Spelling::Bos)?,
            eos: need(Spelling::Eos)?,
            system: added.get(Spelling::System.text()),
            user: need(Spelling::User)?,
            assistant: need(Spelling::Assistant)?,
            latest_reminder: need(Spelling::LatestReminder)?,
            think: need(Spelling::Think)?,
            end_think: need(Spelling::EndThink)?,
            dsml: need(Spelling::Dsml)?,
            image: added.get(Spelling::Image.text()).or_else(|| added.get("<｜image｜>")),
            fim: fim(),
            grounding: Spelling::GROUNDING.map(|s| added.get(s.text())),
        })
    }

    /// The id of `spelling` in this vocabulary, if it has one.
    pub fn get(&self, spelling: Spelling) -> Option<TokenId> {
        match spelling {
            Spelling::Bos => Some(self.bos),
            Spelling::Eos => Some(self.eos),
            Spelling::System => self.system,
            Spelling::User => Some(self.user),
            Spelling::Assistant => Some(self.assistant),
            Spelling::LatestReminder => Some(self.latest_reminder),
            Spelling::Think => Some(self.think),
            Spelling::EndThink => Some(self.end_think),
            Spelling::Dsml => Some(self.dsml),
            Spelling::Image => self.image,
            Spelling::Grounding(g) => self.grounding[g as usize],
        }
    }
}

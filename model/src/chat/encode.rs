//! The prompt of a conversation.
//!
//! ```text
//! V4     BOS               effort system tools format   turns   header
//! V4.1   BOS <｜System｜>   effort system tools format   turns   header
//! ```
//!
//! V4.1's first system marker is left out when nothing would follow it. Turns have no blanks or newlines around their
//! markers.

use super::conversation::{AnswerFormat, Assistant, Conversation, Message, Part, Tool, ToolChoice};
use super::format::ChatFormat;
use super::json::write_json;
use super::markup;
use super::prompt::{Builder, Opening, Prompt};
use super::texts;
use crate::Family;
use crate::tokenizer::Spelling;

pub(super) fn encode(format: &ChatFormat, conversation: &Conversation) -> Prompt {
    let (system, messages) = split_system(format, &conversation.messages);
    let mut encoder = Encoder {
        format,
        out: Builder::default(),
        thinking: conversation.thinking.is_some(),
        keep_reasoning: conversation.thinking.is_some() && conversation.has_tools(),
        last: Last::Nothing,
    };
    encoder.head(conversation, system.as_deref());
    let continued = encoder.turns(&messages);
    let must_call = conversation.must_call();
    let opening = match continued {
        Some(opening) => opening,
        None => encoder.header(),
    };
    let opening = if must_call && opening == Opening::Content {
        markup::open_calls(&mut encoder.out, format.family);
        Opening::ToolCalls
    } else {
        opening
    };
    Prompt { segments: encoder.out.finish(), opening, must_call }
}

/// The system text of the head, and the messages that are turns.
///
/// V4 joins the leading system messages (with [`ChatFormat::hoist_system`] all of them), V4.1 takes the first only.
fn split_system<'m>(format: &ChatFormat, messages: &'m [Message]) -> (Option<String>, Vec<&'m Message>) {
    if format.family == Family::V41 {
        return match messages.split_first() {
            Some((Message::System(text), rest)) => (Some(text.clone()), rest.iter().collect()),
            _ => (None, messages.iter().collect()),
        };
    }
    let (mut texts, mut turns) = (Vec::new(), Vec::new());
    for message in messages {
        match message {
            Message::System(text) if text.is_empty() => {}
            Message::System(text) if turns.is_empty() || format.hoist_system => texts.push(text.as_str()),
            _ => turns.push(message),
        }
    }
    ((!texts.is_empty()).then(|| texts.join("\n\n")), turns)
}

/// What the prompt ends with so far, as far as the next message cares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    /// A user turn without text so far.
    EmptyUser,
    UserText,
    ToolResult,
    Reminder,
}

struct Encoder<'f> {
    format: &'f ChatFormat,
    out: Builder,
    thinking: bool,
    keep_reasoning: bool,
    last: Last,
}

impl Encoder<'_> {
    fn head(&mut self, conversation: &Conversation, system: Option<&str>) {
        let family = self.format.family;
        let tools = listed(conversation);
        let plain = system.is_none() && tools.is_empty() && conversation.format == AnswerFormat::Text;
        self.out.special(Spelling::Bos);
        if family == Family::V41 && (self.thinking || !plain) {
            self.out.special(Spelling::System);
        }
        if let Some(effort) = conversation.thinking {
            self.out.plain(&texts::effort(family, self.format.effort_profile, effort));
        }
        self.out.plain(system.unwrap_or_default());
        if !tools.is_empty() {
            markup::describe(&mut self.out, family, tools.into_iter());
        }
        match (&conversation.format, family) {
            (AnswerFormat::Text, _) => {}
            (AnswerFormat::JsonObject, Family::V4) => self.out.plain(texts::JSON_OBJECT_V4),
            (AnswerFormat::JsonObject, Family::V41) => {
                self.out.plain(texts::SCHEMA_HEAD);
                self.out.plain(texts::ANY_OBJECT);
            }
            (AnswerFormat::JsonSchema(schema), _) => {
                let mut text = texts::SCHEMA_HEAD.to_owned();
                write_json(schema, family, &mut text);
                self.out.plain(&text);
            }
        }
    }

    /// Appends all turns. `Some` when the last one is unfinished: where it leaves the model.
    fn turns(&mut self, messages: &[&Message]) -> Option<Opening> {
        let mut called: &[_] = &[];
        let mut rest = messages;
        while let Some((&message, later)) = rest.split_first() {
            rest = later;
            match message {
                Message::System(text) if self.format.family == Family::V41 => {
                    self.out.special(Spelling::System);
                    self.out.plain(text);
                    self.last = Last::Nothing;
                }
                Message::System(text) => {
                    self.user(&[Part::Text(texts::reminder(text))]);
                }
                Message::User(parts) => self.user(parts),
                Message::LatestReminder(text) => self.reminder(text),
                Message::Assistant(turn) => {
                    let last = later.is_empty();
                    if last && turn.prefix && turn.calls.is_empty() {
                        return Some(self.unfinished(turn));
                    }
                    if !(last && *turn == Assistant { prefix: turn.prefix, ..Assistant::default() }) {
                        self.assistant(turn);
                    }
                    called = &turn.calls;
                }
                Message::ToolResult { .. } => {
                    let count = rest.iter().take_while(|m| matches!(m, Message::ToolResult { .. })).count();
                    let mut run: Vec<_> = std::iter::once(message)
                        .chain(rest[..count].iter().copied())
                        .filter_map(|m| match m {
                            Message::ToolResult { call, parts } => Some((call, parts)),
                            _ => None,
                        })
                        .collect();
                    // In the order of the calls; what matches none keeps its place behind.
                    run.sort_by_key(|(id, _)| {
                        called.iter().position(|c| c.id.is_some() && c.id == **id).unwrap_or(usize::MAX)
                    });
                    for (_, parts) in run {
                        self.tool_result(parts);
                    }
                    rest = &rest[count..];
                }
            }
        }
        None
    }

    /// User text joins what the same side said before it. V4 passes over empty messages, V4.1 joins them too.
    fn user(&mut self, parts: &[Part]) {
        let empty = self.format.family == Family::V4
            && match parts {
                [] => true,
                [Part::Text(text)] => text.is_empty(),
                _ => false,
            };
        match self.last {
            Last::UserText | Last::EmptyUser if empty => return,
            Last::UserText | Last::ToolResult => self.out.plain("\n\n"),
            Last::EmptyUser => {}
            Last::Nothing | Last::Reminder => self.out.special(Spelling::User),
        }
        self.parts(parts);
        self.last = if empty { Last::EmptyUser } else { Last::UserText };
    }

    fn tool_result(&mut self, parts: &[Part]) {
        let joins = match self.last {
            Last::ToolResult => true,
            Last::UserText => self.format.family == Family::V41,
            Last::Nothing | Last::EmptyUser | Last::Reminder => false,
        };
        if joins {
            self.out.plain("\n\n");
        } else {
            self.out.special(Spelling::User);
        }
        self.out.plain("<tool_result>");
        self.parts(parts);
        self.out.plain("</tool_result>");
        self.last = Last::ToolResult;
    }

    /// V4.1 keeps the first of several in a row.
    fn reminder(&mut self, text: &str) {
        if self.format.family == Family::V41 && self.last == Last::Reminder {
            return;
        }
        self.out.special(Spelling::LatestReminder);
        self.out.plain(text);
        self.last = Last::Reminder;
    }

    fn assistant(&mut self, turn: &Assistant) {
        self.out.special(Spelling::Assistant);
        if self.written(turn) {
            self.out.special(Spelling::Eos);
            self.last = Last::Nothing;
            return;
        }
        if self.keep_reasoning {
            self.out.special(Spelling::Think);
            self.model_text(turn.reasoning.as_deref().unwrap_or_default());
        }
        self.out.special(Spelling::EndThink);
        self.model_text(&turn.content);
        if !turn.calls.is_empty() {
            markup::calls(&mut self.out, self.format.family, &turn.calls);
        }
        self.out.special(Spelling::Eos);
        self.last = Last::Nothing;
    }

    /// A turn as the model wrote it, if that is known and fits: one without thoughts, or whose thoughts are not to be seen,
    /// gets the marker that ends them.
    fn written(&mut self, turn: &Assistant) -> bool {
        let Some(written) = &turn.written else { return false };
        match (&written.thoughts, &written.rest) {
            (Some(thoughts), rest) if self.keep_reasoning => {
                self.out.special(Spelling::Think);
                self.out.written(thoughts);
                self.out.written(rest.as_deref().unwrap_or_default());
            }
            (_, Some(rest)) => {
                if self.keep_reasoning {
                    self.out.special(Spelling::Think);
                }
                self.out.special(Spelling::EndThink);
                self.out.written(rest);
            }
            (_, None) => return false,
        }
        true
    }

    /// A turn that the model goes on with: always with its reasoning, and still in it when nothing was said yet.
    fn unfinished(&mut self, turn: &Assistant) -> Opening {
        self.out.special(Spelling::Assistant);
        if self.thinking {
            self.out.special(Spelling::Think);
            self.model_text(turn.reasoning.as_deref().unwrap_or_default());
            if turn.content.is_empty() {
                return Opening::Reasoning;
            }
        }
        self.out.special(Spelling::EndThink);
        self.model_text(&turn.content);
        Opening::Content
    }

    fn header(&mut self) -> Opening {
        self.out.special(Spelling::Assistant);
        if self.thinking {
            self.out.special(Spelling::Think);
            Opening::Reasoning
        } else {
            self.out.special(Spelling::EndThink);
            Opening::Content
        }
    }

    /// Text that the model wrote: grounding tokens in it are tokens.
    fn model_text(&mut self, text: &str) {
        self.out.marked(text, &Spelling::GROUNDING);
    }

    fn parts(&mut self, parts: &[Part]) {
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                self.out.plain("\n\n");
            }
            match part {
                Part::Text(text) => self.out.plain(text),
                Part::Image if self.format.images && self.format.family == Family::V41 => {
                    self.out.special(Spelling::Image);
                }
                Part::Image => self.out.plain(texts::NO_IMAGE),
            }
        }
    }
}

/// The tools that the head describes.
fn listed(conversation: &Conversation) -> Vec<&Tool> {
    let tools = conversation.tools.iter();
    match &conversation.choice {
        ToolChoice::None => Vec::new(),
        ToolChoice::Named(name) => tools.filter(|t| t.name == *name).collect(),
        ToolChoice::Auto | ToolChoice::Required => tools.filter(|t| !t.deferred).collect(),
    }
}

//! An answer's tokens into reasoning, content and tool calls.
//!
//! A state machine over characters and marker tokens: Reasoning -> Content -> Calls -> Finished. Markers count only as
//! the real special tokens, so a model that writes *about* `</think>` is not ending its reasoning. The result does not
//! depend on how the text is cut into pieces.

mod calls;
mod schema;
mod stops;
mod tag;

use std::sync::Arc;

use luce_model::chat::Opening;
pub(crate) use schema::{ToolSchema, ToolSchemas};

use calls::CallParser;
use stops::StopMatcher;

/// What the model's output is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Symbol<'a> {
    /// Ordinary text; whole characters.
    Text(&'a str),
    /// The token `<think>`.
    ThinkOpen,
    /// The token `</think>`.
    ThinkClose,
    /// The token `｜DSML｜`.
    Dsml,
}

/// The next bit of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Delta {
    /// More reasoning.
    Reasoning(String),
    /// More of the visible answer.
    Content(String),
    /// A tool call begins. Calls are counted from 0 in an answer; the id is never used again.
    Call { index: usize, id: String, name: String },
    /// More of the JSON text of a call's arguments.
    Arguments { index: usize, json: String },
}

/// Deltas in order; neighbours of one kind are joined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Deltas(Vec<Delta>);

impl Deltas {
    pub(crate) fn push(&mut self, delta: Delta) {
        match (self.0.last_mut(), delta) {
            (Some(Delta::Reasoning(text)), Delta::Reasoning(more))
            | (Some(Delta::Content(text)), Delta::Content(more)) => {
                text.push_str(&more);
            }
            (Some(Delta::Arguments { index, json }), Delta::Arguments { index: same, json: more })
                if *index == same =>
            {
                json.push_str(&more);
            }
            (_, delta) => self.0.push(delta),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some of the visible answer is in it.
    pub(crate) fn has_content(&self) -> bool {
        self.0.iter().any(|delta| matches!(delta, Delta::Content(_)))
    }
}

impl IntoIterator for Deltas {
    type Item = Delta;
    type IntoIter = std::vec::IntoIter<Delta>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// What a tool-call block in the output means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ToolMode {
    /// No conversation: everything is content, markers too.
    Raw,
    /// The request has no tools: the text is shown as it is.
    Verbatim,
    /// The request has tools.
    Parse {
        /// Stop after the first call.
        first_only: bool,
    },
    /// The request has tools but wants none called: a block is taken out.
    Remove,
}

impl ToolMode {
    /// Whether a marker begins a block of calls.
    fn has_blocks(self) -> bool {
        matches!(self, ToolMode::Parse { .. } | ToolMode::Remove)
    }
}

/// Why the output ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// The model ended its turn, or the parser did.
    Stop,
    /// A limit cut it.
    Length,
}

/// `finish_reason` of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Stop,
    Length,
    ToolCalls,
}

/// What an answer says when the model began a call of which nothing can be used.
const UNREADABLE_CALL: &str = "I tried to call a tool, but the call came out unreadable. Please ask again.";
const DSML: &str = "｜DSML｜";
const THINK: &str = "<think>";
const END_THINK: &str = "</think>";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Reasoning,
    Content,
    /// A closing tag without a block: dropped up to its `>`, then back.
    StrayTag {
        in_reasoning: bool,
    },
    Calls,
    Finished,
}

/// Splits one answer.
#[derive(Debug)]
pub(crate) struct OutputParser {
    state: State,
    mode: ToolMode,
    /// Text that may turn out not to belong to the section: newlines, then perhaps `<` or `</`.
    held: String,
    /// Nothing of the section was shown yet, so newlines are dropped.
    at_start: bool,
    stops: StopMatcher,
    calls: CallParser,
    shown_content: bool,
    /// The stop string that ended the output.
    stopped_by: Option<String>,
    /// A call began, and nothing of it could be used.
    unreadable: bool,
}

impl OutputParser {
    /// `stops` are the request's stop strings, none empty.
    pub(crate) fn new(opening: Opening, mode: ToolMode, schemas: Arc<ToolSchemas>, stops: Vec<String>) -> OutputParser {
        let (emit, first_only) = match mode {
            ToolMode::Parse { first_only } => (true, first_only),
            ToolMode::Raw | ToolMode::Verbatim | ToolMode::Remove => (false, false),
        };
        OutputParser {
            state: match opening {
                Opening::Reasoning => State::Reasoning,
                Opening::Content => State::Content,
                Opening::ToolCalls => State::Calls,
            },
            mode,
            held: String::new(),
            at_start: mode != ToolMode::Raw,
            stops: StopMatcher::new(stops),
            calls: CallParser::new(schemas, emit, first_only),
            shown_content: false,
            stopped_by: None,
            unreadable: false,
        }
    }

    /// Whether the next token counts as reasoning, unless it ends it.
    pub(crate) fn in_reasoning(&self) -> bool {
        matches!(self.state, State::Reasoning | State::StrayTag { in_reasoning: true })
    }

    /// Whether the next token belongs to the visible answer, unless it is a marker.
    pub(crate) fn in_content(&self) -> bool {
        matches!(self.state, State::Content | State::StrayTag { in_reasoning: false })
    }

    /// A stop string was found or the tool calls are complete: nothing more can come of the output.
    pub(crate) fn finished(&self) -> bool {
        self.state == State::Finished
    }

    /// Calls that began, and whether there was one of which nothing could be used.
    pub(crate) fn called(&self) -> (usize, bool) {
        (self.calls.calls(), self.unreadable)
    }

    /// The stop string that ended the output, if one did.
    pub(crate) fn stopped_by(&mut self) -> Option<String> {
        self.stopped_by.take()
    }

    /// Takes the next symbol and appends what it brings to `out`.
    pub(crate) fn push(&mut self, symbol: Symbol<'_>, out: &mut Deltas) {
        match (self.state, symbol) {
            (State::Finished, _) => {}
            (_, Symbol::ThinkOpen) if self.mode == ToolMode::Raw => self.section(THINK, out),
            (_, Symbol::ThinkClose) if self.mode == ToolMode::Raw => self.section(END_THINK, out),
            (State::Calls, Symbol::Text(text)) => {
                self.calls.text(text, out);
                self.check_calls();
            }
            (State::Calls, Symbol::Dsml) => self.calls.marker(),
            (State::Calls, Symbol::ThinkOpen | Symbol::ThinkClose) => {}
            (State::Reasoning, Symbol::ThinkClose) => {
                self.leave_reasoning(out);
                self.state = State::Content;
                self.at_start = true;
            }
            // A second `</think>`, or a `<think>` anywhere in the output, means nothing.
            (_, Symbol::ThinkClose | Symbol::ThinkOpen) => {}
            (State::Reasoning, Symbol::Text(text)) => self.section(text, out),
            (State::Content, Symbol::Text(text)) => self.section(text, out),
            (State::StrayTag { in_reasoning }, Symbol::Text(text)) => {
                if let Some((_, rest)) = text.split_once('>') {
                    self.state = if in_reasoning { State::Reasoning } else { State::Content };
                    self.push(Symbol::Text(rest), out);
                }
            }
            (State::StrayTag { .. }, Symbol::Dsml) => {}
            (State::Reasoning | State::Content, Symbol::Dsml) if !self.mode.has_blocks() => self.section(DSML, out),
            (State::Reasoning | State::Content, Symbol::Dsml) => self.marker(out),
        }
    }

    /// The output has ended. Returns why the answer finished; `out` takes what was still held.
    pub(crate) fn end(&mut self, cause: Cause, out: &mut Deltas) -> Reason {
        match self.state {
            State::Reasoning => self.leave_reasoning(out),
            State::Content => {
                let held = std::mem::take(&mut self.held);
                self.show(&held, out);
                let mut rest = String::new();
                self.stops.release(&mut rest);
                self.emit_content(rest, out);
            }
            State::Calls => self.calls.end(cause, out),
            State::StrayTag { .. } | State::Finished => {}
        }
        let began_block = self.state == State::Calls || (self.state == State::Finished && self.calls.finished());
        // Once finished, the parser itself ended the output, whatever the engine says.
        let cause = if self.finished() { Cause::Stop } else { cause };
        self.state = State::Finished;
        let parse = matches!(self.mode, ToolMode::Parse { .. });
        match cause {
            Cause::Length => Reason::Length,
            Cause::Stop if parse && self.calls.calls() > 0 => Reason::ToolCalls,
            Cause::Stop => {
                self.unreadable = parse && began_block;
                if self.unreadable && !self.shown_content {
                    self.emit_content(UNREADABLE_CALL.to_owned(), out);
                }
                Reason::Stop
            }
        }
    }

    /// Text of reasoning or content: shows all but what must be held.
    fn section(&mut self, text: &str, out: &mut Deltas) {
        self.held.push_str(text);
        let tools = self.mode.has_blocks();
        let mut keep = self.held.as_str();
        if tools {
            keep = keep.strip_suffix("</").or_else(|| keep.strip_suffix('<')).unwrap_or(keep);
        }
        if tools || self.state == State::Reasoning {
            keep = keep.trim_end_matches('\n');
        }
        let shown: String = self.held.drain(..keep.len()).collect();
        self.show(&shown, out);
    }

    /// Shows text of the current section, less newlines at its start.
    fn show(&mut self, text: &str, out: &mut Deltas) {
        let text = if self.at_start { text.trim_start_matches('\n') } else { text };
        if text.is_empty() {
            return;
        }
        self.at_start = false;
        if self.state == State::Reasoning {
            out.push(Delta::Reasoning(text.to_owned()));
            return;
        }
        let mut content = String::new();
        if let Some(stop) = self.stops.push(text, &mut content) {
            self.stopped_by = Some(self.stops.string(stop).to_owned());
            self.state = State::Finished;
        }
        self.emit_content(content, out);
    }

    fn emit_content(&mut self, text: String, out: &mut Deltas) {
        if !text.is_empty() {
            self.shown_content = true;
            out.push(Delta::Content(text));
        }
    }

    /// Reasoning ends: the newlines before its end are not part of it, a held `<` is.
    fn leave_reasoning(&mut self, out: &mut Deltas) {
        let held = std::mem::take(&mut self.held);
        if held.ends_with(['<', '/']) {
            self.show(&held, out);
        }
    }

    /// The DSML marker in reasoning or content, with tools.
    fn marker(&mut self, out: &mut Deltas) {
        if let Some(before) = self.held.strip_suffix("</") {
            self.held.truncate(before.len());
            self.state = State::StrayTag { in_reasoning: self.state == State::Reasoning };
            return;
        }
        self.held.clear();
        if self.state == State::Content {
            let mut rest = String::new();
            self.stops.release(&mut rest);
            self.emit_content(rest, out);
        }
        self.state = State::Calls;
        self.calls.marker();
    }

    fn check_calls(&mut self) {
        if self.calls.finished() {
            self.state = State::Finished;
        }
    }
}

#[cfg(test)]
mod tests;

//! The tool-call block of an answer: DSML tags in, calls with JSON arguments out.
//!
//! Both dialects (`<｜DSML｜tool_calls>` of V4, `<｜DSML｜ calls>` of V4.1) are understood in both models, as are a missing
//! outer tag, the self-closing `<...invoke name="x"/>`, and a JSON object in place of parameter tags. Strings stream as
//! they come; what may need a conversion is held until its closing tag. Nothing of a tag ever reaches an argument.

use std::collections::HashSet;
use std::sync::Arc;

use super::schema::{ExactType, ToolSchema, ToolSchemas};
use super::tag::Tag;
use super::{Cause, Delta, Deltas};
use crate::ids;

/// Reads one tool-call block.
#[derive(Debug)]
pub(crate) struct CallParser {
    schemas: Arc<ToolSchemas>,
    /// False: read the block, but say nothing (the client chose `none`).
    emit: bool,
    /// True: the block ends with its first call.
    first_only: bool,
    tag: Option<Tag>,
    /// Text not used yet: empty, `<` or `</`, which belong to the marker if it follows.
    held: String,
    call: Option<Call>,
    calls: usize,
    finished: bool,
}

/// The call being read.
#[derive(Debug)]
struct Call {
    index: usize,
    schema: ToolSchema,
    names: HashSet<String>,
    place: Place,
    /// `{` and at least one parameter were sent.
    opened: bool,
    /// The only parameter so far, if it may hold all the arguments.
    wrapper: Option<Wrapper>,
}

/// A parameter `arguments` or `input` that the tool does not have.
#[derive(Debug)]
struct Wrapper {
    name: String,
    /// As it was written.
    text: String,
    /// As the value of a parameter.
    value: String,
}

/// Where in a call the text stands.
#[derive(Debug)]
enum Place {
    /// Between tags. Before the first parameter this may be a JSON object with all arguments.
    Body(String),
    /// In a string value that streams.
    Stream,
    /// In a value that is held until its end.
    Hold { name: String, text: String, rule: Rule, wraps: bool },
    /// In a value that is dropped: the name came before.
    Drop,
}

/// How a held value becomes JSON.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// It is JSON; if not, a string.
    Json,
    /// It is a string; if it parses as this type, that.
    Typed(ExactType),
    /// It is a string.
    Text,
}

impl Rule {
    fn new(attribute: Option<&str>, exact: Option<ExactType>) -> Rule {
        match (attribute, exact) {
            (Some("false"), _) => Rule::Json,
            (_, Some(exact)) => Rule::Typed(exact),
            _ => Rule::Text,
        }
    }

    fn settle(self, text: &str) -> String {
        let trimmed = text.trim();
        let as_json = match self {
            Rule::Json => serde_json::from_str::<serde::de::IgnoredAny>(trimmed).is_ok(),
            Rule::Typed(exact) => exact.accepts(trimmed),
            Rule::Text => false,
        };
        if as_json { trimmed.to_owned() } else { quoted(text) }
    }
}

impl CallParser {
    /// A parser for the inside of a block. `emit` false reads without saying anything; `first_only` ends after one call.
    pub(crate) fn new(schemas: Arc<ToolSchemas>, emit: bool, first_only: bool) -> CallParser {
        CallParser { schemas, emit, first_only, tag: None, held: String::new(), call: None, calls: 0, finished: false }
    }

    /// Calls begun so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// The block has ended; whatever follows is dropped.
    pub(crate) fn finished(&self) -> bool {
        self.finished
    }

    /// The marker token: a tag begins, a closing one if `</` stands before it.
    pub(crate) fn marker(&mut self) {
        let closing = match self.tag.take() {
            Some(tag) => tag.runs_into_closing(),
            None => self.held == "</",
        };
        self.held.clear();
        self.tag = Some(Tag::new(closing));
    }

    /// Text between markers.
    pub(crate) fn text(&mut self, mut text: &str, out: &mut Deltas) {
        while !self.finished && !text.is_empty() {
            if let Some(tag) = &mut self.tag {
                let Some(rest) = tag.read(text) else { return };
                text = rest;
                let tag = self.tag.take().expect("it was just read");
                self.tag_complete(&tag, out);
            } else {
                self.held.push_str(text);
                let hold = ["</", "<"].into_iter().find(|suffix| self.held.ends_with(suffix)).map_or(0, str::len);
                let plain: String = self.held.drain(..self.held.len() - hold).collect();
                self.plain(&plain, out);
                return;
            }
        }
    }

    /// The output ends inside the block or after it.
    pub(crate) fn end(&mut self, cause: Cause, out: &mut Deltas) {
        if self.finished {
            return;
        }
        let held = std::mem::take(&mut self.held);
        self.plain(&held, out);
        let tag = self.tag.take();
        match cause {
            Cause::Stop => {
                if let Some(tag) = tag.filter(|tag| !tag.closing && tag.name() == "invoke") {
                    self.invoke(&tag, out);
                }
                self.finish_call(out);
            }
            Cause::Length => self.cut(tag.as_ref(), out),
        }
        self.finished = true;
    }

    fn tag_complete(&mut self, tag: &Tag, out: &mut Deltas) {
        match (tag.name(), tag.closing) {
            ("tool_calls" | "calls", true) => {
                self.finish_call(out);
                self.finished = true;
            }
            ("tool_calls" | "calls", false) => {}
            ("invoke", true) => self.finish_call(out),
            ("invoke", false) => {
                self.invoke(tag, out);
                if tag.self_closing() {
                    self.finish_call(out);
                }
            }
            ("parameter", true) => self.finish_value(out),
            ("parameter", false) => {
                self.parameter(tag, out);
                if tag.self_closing() {
                    self.finish_value(out);
                }
            }
            // Not a tag of the block: dropped, and a value around it goes on.
            _ => {}
        }
    }

    fn invoke(&mut self, tag: &Tag, out: &mut Deltas) {
        self.finish_call(out);
        if self.finished {
            return;
        }
        let Some(name) = tag.attribute("name").filter(|name| !name.is_empty()) else { return };
        let index = self.calls;
        self.calls += 1;
        if self.emit {
            out.push(Delta::Call { index, id: ids::call(index), name: name.to_owned() });
        }
        self.call = Some(Call {
            index,
            schema: self.schemas.get(name).cloned().unwrap_or_default(),
            names: HashSet::new(),
            place: Place::Body(String::new()),
            opened: false,
            wrapper: None,
        });
    }

    fn parameter(&mut self, tag: &Tag, out: &mut Deltas) {
        self.finish_value(out);
        let Some(call) = &mut self.call else { return };
        let Some(name) = tag.attribute("name") else {
            call.place = Place::Drop;
            return;
        };
        let mut json = call.unwrapped();
        let first = call.names.is_empty();
        call.place = if call.names.insert(name.to_owned()) {
            let wraps = first && call.schema.may_wrap(name);
            let rule = Rule::new(tag.attribute("string"), call.schema.exact_type(name));
            if matches!(rule, Rule::Text) && !wraps {
                call.key(name, &mut json);
                json.push('"');
                Place::Stream
            } else {
                Place::Hold { name: name.to_owned(), text: String::new(), rule, wraps }
            }
        } else {
            Place::Drop
        };
        let index = call.index;
        self.arguments(index, json, out);
    }

    /// Text outside tags.
    fn plain(&mut self, text: &str, out: &mut Deltas) {
        let Some(call) = &mut self.call else { return };
        match &mut call.place {
            Place::Body(body) => body.push_str(text),
            Place::Hold { text: value, .. } => value.push_str(text),
            Place::Drop => {}
            Place::Stream => {
                let (index, json) = (call.index, escaped(text));
                self.arguments(index, json, out);
            }
        }
    }

    fn finish_value(&mut self, out: &mut Deltas) {
        let Some(call) = &mut self.call else { return };
        let mut json = String::new();
        match std::mem::replace(&mut call.place, Place::Body(String::new())) {
            // A body before the first parameter is kept: a stray closing tag does not take it away.
            Place::Body(body) => call.place = Place::Body(body),
            Place::Drop => {}
            Place::Stream => json.push('"'),
            Place::Hold { name, text, rule, wraps } => {
                let value = rule.settle(&text);
                if wraps {
                    call.wrapper = Some(Wrapper { name, text, value });
                } else {
                    call.key(&name, &mut json);
                    json.push_str(&value);
                }
            }
        }
        let index = call.index;
        self.arguments(index, json, out);
    }

    fn finish_call(&mut self, out: &mut Deltas) {
        self.finish_value(out);
        let Some(mut call) = self.call.take() else { return };
        let json = call.closing();
        self.arguments(call.index, json, out);
        self.finished |= self.first_only;
    }

    /// The output was cut: sends what there is, without closing anything.
    fn cut(&mut self, tag: Option<&Tag>, out: &mut Deltas) {
        match tag {
            Some(tag) if !tag.closing && tag.name() == "invoke" => return self.invoke(tag, out),
            Some(tag) if !tag.closing && tag.name() == "parameter" && tag.attribute("name").is_some() => {
                self.finish_value(out);
            }
            _ => {}
        }
        let Some(call) = &mut self.call else { return };
        let mut json = call.unwrapped();
        if let Some(name) =
            tag.filter(|tag| !tag.closing && tag.name() == "parameter").and_then(|t| t.attribute("name"))
        {
            if !call.names.contains(name) {
                call.key(name, &mut json);
            }
        } else {
            match std::mem::replace(&mut call.place, Place::Drop) {
                Place::Hold { name, text, rule, .. } => {
                    call.key(&name, &mut json);
                    match rule {
                        Rule::Json => json.push_str(&text),
                        Rule::Typed(_) | Rule::Text => {
                            json.push('"');
                            json.push_str(&escaped(&text));
                        }
                    }
                }
                Place::Body(body) if call.names.is_empty() && body.trim_start().starts_with('{') => {
                    json.push_str(body.trim());
                }
                Place::Body(_) | Place::Stream | Place::Drop => {}
            }
        }
        let index = call.index;
        self.arguments(index, json, out);
    }

    fn arguments(&self, index: usize, json: String, out: &mut Deltas) {
        if self.emit && !json.is_empty() {
            out.push(Delta::Arguments { index, json });
        }
    }
}

impl Call {
    /// Begins a parameter: what comes before its value.
    fn key(&mut self, name: &str, json: &mut String) {
        json.push_str(if self.opened { ", " } else { "{" });
        json.push_str(&quoted(name));
        json.push_str(": ");
        self.opened = true;
    }

    /// The held wrapper as an ordinary parameter: another one follows, so it is none.
    fn unwrapped(&mut self) -> String {
        let mut json = String::new();
        if let Some(wrapper) = self.wrapper.take() {
            self.key(&wrapper.name, &mut json);
            json.push_str(&wrapper.value);
        }
        json
    }

    /// What ends the arguments.
    fn closing(&mut self) -> String {
        if let Some(wrapper) = &self.wrapper
            && self.schema.covers(&wrapper.text)
        {
            return wrapper.text.trim().to_owned();
        }
        let mut json = self.unwrapped();
        if self.opened {
            json.push('}');
            return json;
        }
        match &self.place {
            Place::Body(body) if self.names.is_empty() && is_object(body.trim()) => body.trim().to_owned(),
            _ => "{}".to_owned(),
        }
    }
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok()
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `text` as the inside of a JSON string.
fn escaped(text: &str) -> String {
    let json = quoted(text);
    json[1..json.len() - 1].to_owned()
}

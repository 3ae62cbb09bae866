//! What a request says about the form of its answer, in OpenAI's, vLLM's and llama-server's spellings.

use llguidance::api::GrammarWithLexer;
use serde_json::{Map, Value, json};

use super::calls::quoted;
use super::refused;
use crate::error::ApiError;
use crate::fields::Fields;

/// The form of an answer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Form {
    /// JSON that this schema accepts.
    Json(Value),
    /// A text that this regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A text of this Lark grammar.
    Lark(String),
}

/// A form, and the field that asks for it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Wanted {
    pub(crate) form: Form,
    pub(crate) place: String,
}

/// Longest run of blanks between two tokens of JSON: a model that gets stuck on them comes out again.
const BLANKS: &str = r"[\x20\x0A\x0D\x09]{1,64}";

impl Form {
    /// The form as llguidance takes it.
    pub(super) fn grammar(&self, place: &str) -> Result<GrammarWithLexer, ApiError> {
        Ok(match self {
            Form::Json(schema) => GrammarWithLexer::from_json_schema(enforceable(schema, place)?),
            Form::Regex(pattern) => GrammarWithLexer::from_regex(pattern),
            Form::Choice(texts) => {
                let choices: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
                GrammarWithLexer::from_lark(format!("start: {}\n", choices.join(" | ")))
            }
            Form::Lark(text) => GrammarWithLexer::from_lark(text.clone()),
        })
    }
}

/// A schema with our settings for blanks; a client's own settings for llguidance could switch checks off.
pub(super) fn enforceable(schema: &Value, place: &str) -> Result<Value, ApiError> {
    match schema {
        Value::Object(map) => {
            let mut map = map.clone();
            map.insert("x-guidance".to_owned(), json!({"whitespace_pattern": BLANKS}));
            Ok(map.into())
        }
        Value::Bool(true) => enforceable(&Value::Object(Map::new()), place),
        _ => Err(refused(place, "a JSON schema is an object")),
    }
}

impl Wanted {
    /// Reads all spellings.
    ///
    /// # Errors
    /// 400 for a wrong type, a spelling of what is not supported, or more than one form.
    pub(crate) fn read(fields: Fields<'_, '_>) -> Result<Option<Wanted>, ApiError> {
        let mut found = Vec::new();
        found.extend(response_format(fields)?);
        if let Some(map) = fields.object("structured_outputs")? {
            let inner = Fields::at(map, "structured_outputs");
            found.extend(vllm(inner, ["json", "regex", "choice", "grammar"])?);
            if inner.boolean("json_object")? == Some(true) {
                found.push(any_object(inner.place("json_object")));
            }
            if inner.get("structural_tag").is_some() {
                return Err(ApiError::unsupported(&inner.place("structural_tag")));
            }
        }
        found.extend(vllm(fields, ["guided_json", "guided_regex", "guided_choice", "guided_grammar"])?);
        found.extend(vllm(fields, ["json_schema", "", "", "grammar"])?);
        match found.as_slice() {
            [first, second, ..] => {
                let message =
                    format!("`{}` and `{}` both give the form of the answer; send one", first.place, second.place);
                Err(ApiError::field(second.place.clone(), message))
            }
            _ => Ok(found.pop()),
        }
    }
}

fn any_object(place: String) -> Wanted {
    Wanted { form: Form::Json(json!({"type": "object"})), place }
}

fn response_format(fields: Fields<'_, '_>) -> Result<Option<Wanted>, ApiError> {
    let Some(map) = fields.object("response_format")? else { return Ok(None) };
    let format = Fields::at(map, "response_format");
    let at = |form, key| Ok(Some(Wanted { form, place: format.place(key) }));
    match format.string("type")? {
        Some("json_object") => match format.object("schema")? {
            Some(schema) => at(Form::Json(schema.clone().into()), "schema"),
            None => Ok(Some(any_object("response_format".to_owned()))),
        },
        Some("json_schema") => {
            let outer = format.object("json_schema")?.and_then(|map| map.get("schema"));
            at(Form::Json(outer.cloned().unwrap_or_default()), "json_schema.schema")
        }
        Some("regex") => {
            let key = if format.get("regex").is_some() { "regex" } else { "pattern" };
            match format.string(key)? {
                Some(pattern) => at(Form::Regex(pattern.to_owned()), key),
                None => {
                    let message = "`response_format.pattern` is missing; it must be a regular expression";
                    Err(ApiError::field("response_format.pattern", message))
                }
            }
        }
        // What is no type was refused with the conversation.
        _ => Ok(None),
    }
}

/// The fields for JSON, regular expression, choice and grammar.
fn vllm(fields: Fields<'_, '_>, keys: [&str; 4]) -> Result<Vec<Wanted>, ApiError> {
    let [json, regex, choice, grammar] = keys;
    let mut found = Vec::new();
    let mut add = |form, key| found.push(Wanted { form, place: fields.place(key) });
    match fields.get(json) {
        None => {}
        // vLLM takes a schema as a text, too.
        Some(Value::String(text)) => {
            let schema = serde_json::from_str(text)
                .map_err(|error| refused(&fields.place(json), &format!("it is not valid JSON: {error}")))?;
            add(Form::Json(schema), json);
        }
        Some(schema) => add(Form::Json(schema.clone()), json),
    }
    if let Some(pattern) = fields.string(regex)? {
        add(Form::Regex(pattern.to_owned()), regex);
    }
    if let Some(list) = fields.array(choice)? {
        let texts: Option<Vec<String>> = list.iter().map(|text| text.as_str().map(str::to_owned)).collect();
        match texts.filter(|texts| !texts.is_empty()) {
            Some(texts) => add(Form::Choice(texts), choice),
            None => {
                let place = fields.place(choice);
                let message = format!("`{place}` must be an array of at least one string, and of strings only");
                return Err(ApiError::field(place, message));
            }
        }
    }
    if let Some(text) = fields.string(grammar)?.filter(|text| !text.trim().is_empty()) {
        let place = fields.place(grammar);
        if text.contains("::=") {
            let message = format!("`{place}` is GBNF, which is not supported; write Lark, where a rule is `name: ...`");
            return Err(ApiError::field(place, message));
        }
        add(Form::Lark(text.to_owned()), grammar);
    }
    Ok(found)
}

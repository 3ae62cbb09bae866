//! Texts and conversations as token ids and back: `/tokenize`, `/detokenize`, `/apply-template`. None waits for the
//! engine.

use std::sync::Arc;

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use luce_core::{Served, TokenId};
use luce_model::chat::{Conversation, Defaults, anthropic, openai, responses};
use luce_model::tokenizer::Spelling;
use serde_json::{Map, Value, json};

use crate::body;
use crate::codec::ChatCodec;
use crate::config::ApiConfig;
use crate::error::{ApiError, Dialect};
use crate::fields::Fields;
use crate::state::Shared;

/// One of the three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    Tokenize,
    Detokenize,
    ApplyTemplate,
}

/// Answers a request. `dialect`: whose conversations a body holds that does not show it.
///
/// # Errors
/// 400 for a bad body, 503 while the model is not known.
pub(crate) async fn answer(
    work: Work,
    dialect: Dialect,
    http: &HttpRequest,
    payload: Payload,
    shared: &Arc<Shared>,
) -> Result<HttpResponse, ApiError> {
    let backend = shared.known()?.clone();
    let bytes = body::read(http.headers(), payload, &shared.config).await?;
    let shared = Arc::clone(shared);
    let answer = body::work(move || {
        let body = body::parse(&bytes)?;
        let codec = &*backend.codec;
        match work {
            Work::Tokenize => tokenize(&body, dialect, codec, backend.generate.served(), &shared.config),
            Work::Detokenize => detokenize(&body, codec, backend.generate.served()),
            Work::ApplyTemplate => apply_template(&body, dialect, codec, &shared.config),
        }
    })
    .await?;
    Ok(HttpResponse::Ok().json(answer))
}

/// llama-server's `content`, or vLLM's `prompt` or `messages`.
fn tokenize(
    body: &Map<String, Value>,
    dialect: Dialect,
    codec: &dyn ChatCodec,
    served: &Served,
    config: &ApiConfig,
) -> Result<Value, ApiError> {
    let fields = Fields::new(body);
    let switch = |key, default| Ok::<_, ApiError>(fields.boolean(key)?.unwrap_or(default));
    if let Some(content) = fields.string("content")? {
        let bos = switch("add_special", false)?;
        return Ok(json!({"tokens": plain(codec, content, bos, switch("parse_special", true)?)}));
    }
    let tokens = match fields.string("prompt")? {
        Some(prompt) => plain(codec, prompt, switch("add_special_tokens", true)?, true),
        None if fields.get("messages").is_some() => {
            ids(&codec.encode(&conversation(body, dialect, codec, config)?).prompt)
        }
        None => return Err(ApiError::invalid("send `content` (a text), `prompt` (a text) or `messages`")),
    };
    Ok(json!({"tokens": tokens, "count": tokens.len(), "max_model_len": served.context}))
}

fn plain(codec: &dyn ChatCodec, text: &str, bos: bool, markers: bool) -> Vec<u32> {
    let mut tokens = if bos { codec.tokenize(Spelling::Bos.text(), true) } else { Vec::new() };
    tokens.extend(codec.tokenize(text, markers));
    ids(&tokens)
}

/// The text in both servers' words.
fn detokenize(body: &Map<String, Value>, codec: &dyn ChatCodec, served: &Served) -> Result<Value, ApiError> {
    let list = Fields::new(body).array("tokens")?;
    let list =
        list.ok_or_else(|| ApiError::field("tokens", "`tokens` is missing; it must be an array of token ids"))?;
    let mut bytes = Vec::new();
    for (i, item) in list.iter().enumerate() {
        let id = item.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|&id| id < served.vocabulary);
        let id = id.ok_or_else(|| {
            let message = format!("`tokens[{i}]` is {item}; it must be a token id below {}", served.vocabulary);
            ApiError::field(format!("tokens[{i}]"), message)
        })?;
        bytes.extend_from_slice(&codec.spelling(TokenId(id)));
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(json!({"content": text, "prompt": text}))
}

/// The prompt that a body would become, as text and tokens.
fn apply_template(
    body: &Map<String, Value>,
    dialect: Dialect,
    codec: &dyn ChatCodec,
    config: &ApiConfig,
) -> Result<Value, ApiError> {
    let tokens = codec.encode(&conversation(body, dialect, codec, config)?).prompt;
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| codec.spelling(token).into_owned()).collect();
    Ok(json!({"prompt": String::from_utf8_lossy(&bytes), "tokens": ids(&tokens)}))
}

/// The conversation of a body. The field `api` says of which protocol; without it the body's own fields do.
fn conversation(
    body: &Map<String, Value>,
    dialect: Dialect,
    codec: &dyn ChatCodec,
    config: &ApiConfig,
) -> Result<Conversation, ApiError> {
    let defaults = Defaults { family: codec.family(), thinking: true };
    let protocol = match Fields::new(body).string("api")? {
        Some(named) => named,
        None if body.contains_key("input") => "responses",
        None if dialect == Dialect::Anthropic || is_anthropic(body) => "messages",
        None => "chat",
    };
    Ok(match protocol {
        "chat" => openai::conversation(body, defaults)?,
        "messages" => {
            let thinking = config.anthropic_thinking_default.is_on();
            anthropic::conversation(body, Defaults { thinking, ..defaults })?
        }
        "responses" => responses::request(body, defaults)?.conversation,
        other => {
            let message = format!("`api` is {other:?}; it must be chat, messages or responses");
            return Err(ApiError::field("api", message));
        }
    })
}

/// Whether a body has what only Messages have.
fn is_anthropic(body: &Map<String, Value>) -> bool {
    let list = |key: &str| body.get(key).and_then(Value::as_array).into_iter().flatten();
    let blocks = list("messages").filter_map(|message| message["content"].as_array()).flatten();
    let anthropic = ["tool_use", "tool_result", "thinking"];
    body.contains_key("system")
        || list("tools").any(|tool| tool.get("input_schema").is_some())
        || blocks.filter_map(|block| block["type"].as_str()).any(|kind| anthropic.contains(&kind))
}

fn ids(tokens: &[TokenId]) -> Vec<u32> {
    tokens.iter().map(|token| token.0).collect()
}

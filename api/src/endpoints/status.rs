//! What operators look at: `/metrics`, `/props`, `/slots` and `/status`. None of them waits for the engine.

use actix_web::HttpResponse;
use actix_web::http::header;
use luce_core::{Lifecycle, SlotStatus, Status};
use luce_model::Family;
use luce_model::chat::{Conversation, Effort, EffortProfile};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::state::Shared;

/// `/metrics`, also while the model loads.
pub(crate) fn metrics(shared: &Shared) -> HttpResponse {
    let text = shared.metrics.text(&shared.lifecycle(), &snapshot(shared));
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")).body(text)
}

/// `/props`: what is served, and how.
///
/// # Errors
/// 503 while the model is not known.
pub(crate) fn props(shared: &Shared) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok().json(properties(shared)?))
}

/// `/slots`: one object for each place, also for those that are free.
///
/// # Errors
/// 503 while the model is not known.
pub(crate) fn slots(shared: &Shared) -> Result<HttpResponse, ApiError> {
    let context = shared.known()?.generate.served().context;
    Ok(HttpResponse::Ok().json(places(&snapshot(shared), context)))
}

/// `/status`: all of it, with the actors; before the model is known as much as there is.
pub(crate) fn status(shared: &Shared) -> HttpResponse {
    let status = snapshot(shared);
    let lifecycle = shared.lifecycle();
    let (state, detail) = match &lifecycle {
        Lifecycle::Ready => ("ready", Value::Null),
        Lifecycle::Loading(_) => ("loading", Value::Null),
        Lifecycle::Draining => ("draining", Value::Null),
        Lifecycle::Broken(reason) => ("error", reason.as_str().into()),
    };
    let progress = if let Lifecycle::Loading(done) = lifecycle { rounded(done) } else { 1.0 };
    let context = shared.state.backend().map_or(0, |backend| backend.generate.served().context);
    let actors = status.actors.iter().map(|actor| {
        json!({
            "name": actor.name, "kind": actor.kind, "roles": actor.roles, "state": actor.state,
            "memory": actor.memory, "budget": actor.budget, "busy_us": actor.busy_us, "mailbox": actor.mailbox,
        })
    });
    HttpResponse::Ok().json(json!({
        "status": state,
        "reason": detail,
        "progress": progress,
        "uptime_s": crate::state::unix_seconds().saturating_sub(shared.started),
        "props": properties(shared).ok(),
        "running": status.live.len(),
        "queued": status.queued,
        "slots": places(&status, context),
        "actors": actors.collect::<Value>(),
        "prompt_tokens": status.prompt_tokens,
        "generated_tokens": status.generated_tokens,
    }))
}

fn snapshot(shared: &Shared) -> Status {
    shared.state.backend().map(|backend| backend.generate.status()).unwrap_or_default()
}

fn properties(shared: &Shared) -> Result<Map<String, Value>, ApiError> {
    let backend = shared.known()?;
    let (served, codec) = (backend.generate.served(), &backend.codec);
    let slots = backend.generate.status().slots;
    let defaults = codec.sampling_defaults(&Conversation { thinking: Some(Effort::High), ..Conversation::default() });
    let family = match codec.family() {
        Family::V4 => "v4",
        Family::V41 => "v41",
    };
    let profile = codec.effort_profile().map(|profile| match profile {
        EffortProfile::Preview => "preview",
        EffortProfile::Official => "official",
    });
    let Value::Object(map) = json!({
        "model": served.name,
        "family": family,
        "effort_profile": profile,
        "context": served.context,
        "vocabulary": served.vocabulary,
        "slots": slots,
        // As llama-server calls them.
        "total_slots": slots,
        "default_generation_settings": {"n_ctx": served.context},
        "features": {
            "chat_completions": true, "messages": true, "tools": true, "reasoning": true, "structured_output": true,
            "logprobs": true, "images": false,
        },
        "defaults": {
            "thinking": true,
            "anthropic_thinking": shared.config.anthropic_thinking_default,
            "sampling": shared.config.sampling,
            "temperature": defaults.temperature,
            "top_p": rounded(defaults.top_p),
        },
        "build": {"name": "luce-actors", "version": env!("CARGO_PKG_VERSION")},
    }) else {
        unreachable!("it is written as an object")
    };
    Ok(map)
}

fn places(status: &Status, context: u32) -> Value {
    let live = |slot: u32| status.live.iter().find(move |live| live.slot == slot);
    (0..status.slots).map(|slot| place(slot, live(slot), context)).collect()
}

fn place(slot: u32, live: Option<&SlotStatus>, context: u32) -> Value {
    let Some(live) = live else {
        return json!({"id": slot, "state": "free", "is_processing": false, "n_ctx": context, "position": 0});
    };
    let state = if live.read < live.prompt { "prefill" } else { "decode" };
    json!({
        "id": slot, "state": state, "is_processing": true, "n_ctx": context, "position": live.read + live.generated,
        "id_task": live.request.0, "prompt_tokens": live.prompt, "read_tokens": live.read,
        "generated_tokens": live.generated,
    })
}

/// Three decimals: a share in f32 printed as f64 would show digits that mean nothing.
fn rounded(share: f32) -> f64 {
    (f64::from(share) * 1000.0).round() / 1000.0
}

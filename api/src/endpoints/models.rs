//! `GET /v1/models` and `/v1/models/{id}`: one body that the clients of all protocols understand.

use actix_web::HttpResponse;
use luce_core::Served;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::Shared;

/// The list. While the model's name is not known yet, 503.
pub(crate) fn list(shared: &Shared) -> Result<HttpResponse, ApiError> {
    let served = served(shared)?;
    let data: Vec<Value> = names(shared, served).map(|name| entry(name, served, shared.started)).collect();
    let (first, last) = (&data[0]["id"], &data[data.len() - 1]["id"]);
    let body = json!({
        "object": "list", "first_id": first, "last_id": last, "has_more": false, "data": data,
    });
    Ok(HttpResponse::Ok().json(body))
}

/// One model.
pub(crate) fn one(shared: &Shared, id: &str) -> Result<HttpResponse, ApiError> {
    let served = served(shared)?;
    match names(shared, served).find(|&name| name == id) {
        Some(name) => Ok(HttpResponse::Ok().json(entry(name, served, shared.started))),
        None => Err(ApiError::model(id, &served.name)),
    }
}

/// The name to answer a request with.
///
/// # Errors
/// 404 for a name that is not served, if names are strict.
pub(crate) fn resolve(shared: &Shared, served: &Served, asked: Option<&str>) -> Result<String, ApiError> {
    let Some(asked) = asked else { return Ok(served.name.clone()) };
    if shared.config.strict_model_names && !names(shared, served).any(|name| name == asked) {
        return Err(ApiError::model(asked, &served.name));
    }
    Ok(asked.to_owned())
}

fn served(shared: &Shared) -> Result<&Served, ApiError> {
    Ok(shared.known()?.generate.served())
}

fn names<'a>(shared: &'a Shared, served: &'a Served) -> impl Iterator<Item = &'a str> {
    let aliases = shared.config.model_aliases.iter().map(String::as_str);
    std::iter::once(served.name.as_str()).chain(aliases.filter(|&alias| alias != served.name))
}

fn entry(name: &str, served: &Served, created: u64) -> Value {
    json!({
        "id": name, "object": "model", "created": created, "owned_by": "luce-actors", "type": "model",
        "display_name": name, "created_at": iso(created), "context_length": served.context,
        "max_model_len": served.context, "max_input_tokens": served.context, "max_tokens": served.context,
        "max_output_tokens": served.context, "lifecycle": "active",
    })
}

/// Unix time as `2026-01-31T23:59:59Z`. The date is counted in years that begin in March, so that the leap day comes
/// last; an era has 400 years, 146,097 days.
fn iso(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days_and_new_year() {
        assert_eq!(iso(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(iso(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(iso(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(iso(1_796_083_200), "2026-12-01T00:00:00Z");
    }
}

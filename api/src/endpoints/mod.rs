//! The endpoints, one module each.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod documents;
pub(crate) mod health;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod responses;
pub(crate) mod status;
pub(crate) mod tokens;

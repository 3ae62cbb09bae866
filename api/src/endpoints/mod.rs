//! The endpoints, one module each.

pub(crate) mod chat;
pub(crate) mod health;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod responses;

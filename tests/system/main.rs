//! The whole system from outside: the real binary, real models, real HTTP.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod command_line;
mod drain;
mod refusals;
mod requests;
mod resources;
mod snapshots;

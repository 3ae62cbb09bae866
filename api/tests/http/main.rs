//! The server over real sockets, with an engine that does what no real model does on demand: it waits, fails, is full,
//! or says bytes that are no text.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "unbounded channels hold what one test sends; sleeps are to go")]

mod access;
mod cancel;
mod chat;
mod completions;
mod form;
mod lifecycle;
mod memory;
mod messages;
mod openai_clients;
mod options;
mod refusals;
mod responses;
mod status;
mod stream;
mod support;

//! The server over real sockets, with an engine that does what no real model does on demand: it waits, fails, is full,
//! or says bytes that are no text.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "unbounded channels hold what one test sends; sleeps are to go")]

mod cancel;
mod chat;
mod lifecycle;
mod refusals;
mod stream;
mod support;

//! Wiring compiler, mailboxes, wait policy, scheduler and the actors themselves.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod config;

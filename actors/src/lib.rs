//! Wiring compiler, mailboxes, wait policy, scheduler and the actors themselves.

#![cfg_attr(test, allow(clippy::unwrap_used))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "logits of known probabilities"))]

pub mod config;
mod control;
mod engine;
mod error;
mod exchange;
mod leader;
mod memory;
mod plane;
mod runtime;
mod sampler;
mod wiring;
mod worker;

pub use engine::{ActorInfo, Engine, EngineOptions, MakeDevices};
pub use error::RuntimeError;
pub use memory::Footprint;
pub use plane::tap::{Tap, Tapped};
pub use plane::{BandEnd, WaitPolicy};
pub use runtime::{BandFailure, Model, Plane, PlaneOptions};
pub use sampler::{Choice, SamplerState};
pub use wiring::{Fuse, Node, Placement, Wiring};

//! Configuration: one TOML file for the whole cluster, with overrides from the environment and the command line.
//!
//! [`load`] reads the file, lays `LUCE__A__B=..` and then `--set a.b=..` over it, checks every key, type and range, and
//! checks that the actors of each box can serve the model together. [`Loaded::print`] says where each value came from.
//!
//! Every key is defined once, in `keys`: type, default, range and meaning. The reader, the printed configuration and the
//! tables of `docs/configuration.md` ([`reference()`]) follow from it. Mistakes are [`ConfigError`]s, one line each, and
//! [`ConfigError::excerpt`] marks the place in the file.

mod api;
mod bytes;
mod check;
mod compound;
mod define;
mod error;
mod keys;
mod load;
mod overrides;
mod place;
mod read;
mod reference;
mod section;
mod shape;
#[cfg(test)]
mod tests;
mod tree;

pub use error::{ConfigError, Origin};
pub use keys::{
    Activations, ActorSection, BoxSection, Config, Decode, Kind, ModelSection, Numerics, Prefill, Qat, ReduceMode,
    Role, Schedule, WaitPolicy,
};
pub use load::{Loaded, Setting, load, parse};
pub use place::Place;
pub use reference::{Row, reference, table};

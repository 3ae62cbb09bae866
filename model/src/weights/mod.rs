//! The tensors of a model: which roles it has, under which names, shapes and types a file may hold them, and where each
//! one lies in a given file. `role` is the table, `resolve` applies it to a catalog.

mod resolve;
mod role;

pub use resolve::{Ignored, WeightMap};
pub use role::{Role, Storage, WeightClass};

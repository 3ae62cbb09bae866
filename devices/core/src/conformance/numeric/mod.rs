//! Every operation against plain f64 code.
#![allow(clippy::disallowed_methods, reason = "references in f64, compared with a tolerance")]

mod attention;
mod experts;
mod linear;
mod rows;
mod state;
mod streams;

use super::lab::Lab;
use super::{Make, Record};

pub(super) fn run(make: Make<'_>) -> Record {
    let mut lab = Lab::new(make);
    linear::run(&mut lab);
    rows::run(&mut lab);
    streams::run(&mut lab);
    state::run(&mut lab);
    attention::run(&mut lab);
    experts::run(&mut lab);
    lab.record()
}

/// Dot product in f64.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

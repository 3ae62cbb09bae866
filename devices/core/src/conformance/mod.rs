//! What every device has to hold, written once against the trait [`crate::Device`] alone.
//!
//! A device crate's test calls [`run`] (or [`run_structure`], for a device that computes nothing) with a function that
//! makes fresh devices. A broken rule panics with the case and what was seen. Numerical cases compare with plain f64 code
//! that stands in the case; the tolerance is stated there.
//!
//! [`run`] returns a [`Record`] of all bits that the device produced. Two devices with the same
//! [`crate::DeviceInfo::kernel_set`] (or one device with other settings) must give equal records.

mod host;
mod lab;
mod numeric;
mod refusal;
mod structure;

pub use host::{read, write};

use crate::Device;

/// Makes a fresh device with at least 64 MiB of memory.
pub type Make<'a> = &'a mut dyn FnMut() -> Box<dyn Device>;

/// The bits of every numerical case, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Name of a result and its bytes.
    pub results: Vec<(String, Vec<u8>)>,
}

impl Record {
    /// Panics with the name of the first result that differs.
    ///
    /// # Panics
    /// If the records are not equal.
    pub fn assert_equal(&self, other: &Record, what: &str) {
        assert_eq!(self.results.len(), other.results.len(), "{what}: number of results");
        for ((name, a), (other_name, b)) in self.results.iter().zip(&other.results) {
            assert_eq!(name, other_name, "{what}: order of results");
            assert!(a == b, "{what}: {name} has other bits");
        }
    }
}

/// Everything: structure, copies, refusals and numbers.
///
/// # Panics
/// When the device breaks a rule; the text names the case.
pub fn run(make: Make<'_>) -> Record {
    run_structure(make);
    run_copies(make);
    refusal::run(make);
    numeric::run(make)
}

/// What holds without computing: memory budget, counts, order, timelines, failures.
///
/// # Panics
/// As [`run`].
pub fn run_structure(make: Make<'_>) {
    structure::run(make);
}

/// What holds for a device that keeps bytes, before it computes: copies arrive whole, in order and in their range.
///
/// # Panics
/// As [`run`].
pub fn run_copies(make: Make<'_>) {
    structure::run_copies(make);
}

//! The part of the device suite that needs no arithmetic.

use luce_device::conformance;
use luce_device_noop::{NoopConfig, NoopDevice};

#[test]
fn memory_order_timelines_and_failures_are_those_of_any_device() {
    let config = NoopConfig::default();
    conformance::run_structure(&mut || Box::new(NoopDevice::new(&config).expect("the device starts")));
}

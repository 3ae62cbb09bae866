//! The part of the device suite that needs no arithmetic.

use std::sync::Arc;

use luce_device::{Device, DeviceError, QueueId, Timeline, conformance};
use luce_device_noop::{NoopConfig, NoopDevice};

#[test]
fn memory_order_timelines_and_failures_are_those_of_any_device() {
    let config = NoopConfig::default();
    conformance::run_structure(&mut || Box::new(NoopDevice::new(&config).expect("the device starts")));
}

#[test]
fn a_full_queue_refuses_instead_of_growing() {
    let mut device =
        NoopDevice::new(&NoopConfig { queue_depth: 2, ..NoopConfig::default() }).expect("the device starts");
    let gate = Arc::new(Timeline::new());
    // Two wait, and the thread may have one in hand.
    let refusal = (0..4).find_map(|_| device.wait(QueueId(0), &gate, 1).err());
    assert!(matches!(&refusal, Some(DeviceError::Invalid(text)) if text.contains("the queue holds")), "{refusal:?}");
    gate.signal(1);
}

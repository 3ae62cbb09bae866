//! The device suite on this device, and equal bits for any number of threads.

use luce_device::conformance::{self, Record};
use luce_device_cpu::{CpuConfig, CpuDevice};

fn record(threads: usize) -> Record {
    let config = CpuConfig { threads, memory: Some(256 << 20), ..CpuConfig::default() };
    conformance::run(&mut || Box::new(CpuDevice::new(&config).expect("the device starts")))
}

#[test]
fn the_suite_holds_and_the_number_of_threads_changes_no_bit() {
    let one = record(1);
    for threads in [2, 3] {
        one.assert_equal(&record(threads), &format!("1 and {threads} threads"));
    }
}

//! The one list of device kinds that this binary links.

use luce_device::Device;
use luce_device_cpu::{CpuConfig, CpuDevice};
use luce_runtime::config::{ActorSection, Kind};

/// Makes the device of an actor. `threads` is what the actor gets where its section says 0.
pub(crate) fn device(section: &ActorSection, threads: usize, spin_us: u32) -> anyhow::Result<Box<dyn Device>> {
    match section.kind {
        Kind::Cpu => {
            let config = CpuConfig {
                threads: if section.threads == 0 { threads } else { section.threads },
                memory: section.memory,
                pin: section.pin,
                spin_us: u64::from(spin_us),
                ..CpuConfig::default()
            };
            Ok(Box::new(CpuDevice::new(&config)?))
        }
    }
}

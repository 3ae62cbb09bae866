//! The host's access to shared buffers, for the suite and for tests.
#![expect(unsafe_code, reason = "host buffers are reached through raw accessors; the suite orders access by timelines")]

use luce_core::HostBuffer;

/// Writes bytes. No device may be using them.
///
/// # Panics
/// If the range lies outside the buffer.
pub fn write(host: &HostBuffer, offset: usize, bytes: &[u8]) {
    // SAFETY: the caller has waited for all work that touches these bytes.
    unsafe { host.bytes_mut(offset, bytes.len()) }.copy_from_slice(bytes);
}

/// Reads bytes. No device may be writing them.
///
/// # Panics
/// If the range lies outside the buffer.
pub fn read(host: &HostBuffer, offset: usize, len: usize) -> Vec<u8> {
    // SAFETY: the caller has waited for all work that writes these bytes.
    unsafe { host.bytes(offset, len) }.to_vec()
}

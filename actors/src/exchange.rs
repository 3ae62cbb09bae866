//! Host access to shared buffers: band descriptions, Engram rows and logits. Who may touch a lane's bytes when follows
//! from the lane protocol: the leader writes a lane's band description while no band holds the lane, the reader writes its
//! Engram rows before it raises the fence that the device waits for, the sampler reads logits after the band's last fence.
#![expect(unsafe_code, reason = "host and device share these bytes under fences")]

use luce_core::HostBuffer;

/// Writes `bytes` at `offset`.
pub(crate) fn write(buffer: &HostBuffer, offset: usize, bytes: &[u8]) {
    // SAFETY: the lane protocol (see the module) gives the caller exclusive use of these bytes.
    unsafe { buffer.bytes_mut(offset, bytes.len()) }.copy_from_slice(bytes);
}

/// Reads into `bytes` from `offset`.
pub(crate) fn read(buffer: &HostBuffer, offset: usize, bytes: &mut [u8]) {
    // SAFETY: the lane protocol (see the module) says that nobody writes these bytes now.
    bytes.copy_from_slice(unsafe { buffer.bytes(offset, bytes.len()) });
}

//! Host memory that several threads share by agreement: staging for copies, exchange slots between devices, parameter
//! blocks. Who may touch which bytes when is settled by fences, not by locks; the plain accessors copy, the raw ones are
//! for device crates.
#![expect(unsafe_code, reason = "memory shared between device queues under fences cannot be expressed as references")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a page.
const PAGE: usize = 4096;

/// A zeroed, 4096-byte aligned block of host memory. Clones are further references to the same block.
///
/// Alignment is that of a page, so that the block can be registered with a GPU driver and used for direct disk reads. A
/// large block takes memory only where it has been written.
#[derive(Clone)]
pub struct HostBuffer(Arc<Block>);

struct Block {
    /// What the allocator gave.
    start: NonNull<u8>,
    layout: Layout,
    /// The first page boundary in it.
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the block is plain bytes; every access goes through the `unsafe` accessors of `HostBuffer`, whose callers
// promise that no byte is written while another thread touches it.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `start` was allocated with `layout` in `HostBuffer::new` and this is the last reference.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl HostBuffer {
    /// A block of `len` bytes, all zero. `None` when memory is short or `len` is absurd.
    pub fn new(len: usize) -> Option<HostBuffer> {
        // Aligned here and not by the allocator: that writes the zeroes of an aligned block, but takes an unaligned one
        // (calloc) from pages that the kernel zeroes when they are first touched.
        let layout = Layout::from_size_align(len.max(1).checked_add(PAGE - 1)?, 1).ok()?;
        // SAFETY: the layout has a non-zero size.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let address = start.addr().get();
        // SAFETY: less than a page further, and the block is a page less one byte longer than `len`.
        let base = unsafe { start.add(address.next_multiple_of(PAGE) - address) };
        Some(HostBuffer(Arc::new(Block { start, layout, base, len })))
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a buffer's emptiness is not a question anyone asks")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// True when both refer to the same block.
    pub fn same(&self, other: &HostBuffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Address of the first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.0.len),
            "bytes {offset}..+{len} of a buffer of {}",
            self.0.len
        );
    }

    /// `len` bytes at `offset`.
    ///
    /// # Panics
    /// If the range lies outside the block.
    ///
    /// # Safety
    /// Nobody writes these bytes while the slice lives.
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        self.check(offset, len);
        // SAFETY: inside the block (checked), initialised (zeroed), and not written meanwhile (caller).
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr().add(offset), len) }
    }

    /// `len` bytes at `offset`, for writing.
    ///
    /// # Panics
    /// If the range lies outside the block.
    ///
    /// # Safety
    /// Nobody else reads or writes these bytes while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "exclusive use is the caller's promise")]
    pub unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        self.check(offset, len);
        // SAFETY: inside the block (checked), initialised, and exclusively used (caller).
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr().add(offset), len) }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer({} B)", self.0.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_see_the_same_bytes_and_blocks_are_page_aligned() {
        let a = HostBuffer::new(100).expect("memory");
        let b = a.clone();
        // SAFETY: single thread, no overlapping borrows.
        unsafe {
            a.bytes_mut(10, 2).copy_from_slice(&[1, 2]);
            assert_eq!(b.bytes(9, 4), [0, 1, 2, 0]);
        }
        assert!(a.same(&b));
        assert_eq!(a.base().as_ptr() as usize % PAGE, 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_large_block_takes_memory_only_where_it_is_written() {
        let resident = || -> usize {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
            statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages")
        };
        let before = resident();
        let block = HostBuffer::new(256 << 20).expect("memory");
        // SAFETY: single thread, no overlapping borrows.
        unsafe { block.bytes_mut(100 << 20, 1)[0] = 1 };
        // A quarter of the block: room for other tests' memory and for huge pages.
        let taken = resident().saturating_sub(before) * PAGE;
        assert!(taken < 64 << 20, "{taken} bytes of 256 MiB");
    }

    #[test]
    #[should_panic(expected = "of a buffer of 8")]
    fn a_range_past_the_end_is_refused() {
        let a = HostBuffer::new(8).expect("memory");
        // SAFETY: no other reference exists.
        let _ = unsafe { a.bytes(4, usize::MAX) };
    }
}

//! The trait through which this engine reaches stored bytes.
//!
//! | store | crate | for |
//! |---|---|---|
//! | [`crate::FileStore`] | luce-storage | model files and checkpoints on a file system |
//! | [`crate::MemoryStore`] | luce-storage | tests, and files that were never on disk |
//!
//! **I/O model.** A store is one named run of bytes. Every call names its range and blocks the calling thread until the
//! whole range is done; there is no cursor and no partial result, so any number of threads may share a store. Bytes are
//! copied into the caller's buffer and are never mapped: a file that shrinks gives an error, where a mapping would end
//! the process. Callers pick their own parallelism by calling from several threads; a store keeps no queue. Offsets and
//! lengths are free here; a store over direct I/O (io_uring with `O_DIRECT`) widens a request to its device's sectors
//! itself and is fastest where offset, length and address are multiples of 4096.
//!
//! **Durability.** Bytes written are visible to later reads at once, and survive a power cut after [`BlockStore::sync`].
//! To replace a file: write another name, `sync`, [`BlockStore::rename`]; a reader finds the old or the new one.
//!
//! **Error model.** A failed read leaves the buffer's contents unspecified; a failed write may have written a part.
//! Nothing is retried here, except calls that a signal interrupted.
//!
//! Any implementation must pass [`crate::conformance`].

use std::fmt;
use std::path::PathBuf;

use crate::StorageError;

/// One named run of bytes, read and written by position.
pub trait BlockStore: Send + Sync + fmt::Debug {
    /// Its name as messages show it: for a file the path.
    fn name(&self) -> PathBuf;

    /// Its length in bytes now.
    ///
    /// # Errors
    /// [`StorageError::Io`] when the system does not say.
    fn len(&self) -> Result<u64, StorageError>;

    /// True when it holds no bytes.
    ///
    /// # Errors
    /// As [`BlockStore::len`].
    fn is_empty(&self) -> Result<bool, StorageError> {
        Ok(self.len()? == 0)
    }

    /// Fills `out` with the bytes from `offset` on. An empty `out` succeeds anywhere.
    ///
    /// # Errors
    /// [`StorageError::Short`] when the range does not lie inside the store, [`StorageError::Io`].
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StorageError>;

    /// Writes `bytes` from `offset` on; the store grows as needed, and a gap reads as zeros.
    ///
    /// # Errors
    /// [`StorageError::Io`], also when the store was opened for reading only.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StorageError>;

    /// Returns when everything written so far would survive a power cut.
    ///
    /// # Errors
    /// [`StorageError::Io`]: what was written since the last success may be lost.
    fn sync(&self) -> Result<(), StorageError>;

    /// Gives the store another name in the same folder, in one step and durably, replacing what had that name.
    ///
    /// # Errors
    /// [`StorageError::BadName`] unless `name` is a plain file name, [`StorageError::Io`].
    fn rename(&self, name: &str) -> Result<(), StorageError>;
}

/// True for a name without folders that [`BlockStore::rename`] may use.
pub(crate) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0'])
}

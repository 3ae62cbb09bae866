//! A buffered reader over a block store that knows how many bytes are left, so that every length can be compared with
//! them before memory is taken.

use crate::error::quoted;
use crate::{BlockStore, StorageError};

/// Bytes that one refill asks for. A header of 10 MB takes 160 of them; small files take one.
const BUFFER_BYTES: usize = 64 << 10;

/// Most bytes of metadata and directory together. The largest known headers have about 10 MB; the limit bounds the
/// memory that a crafted file of any size can make a reader take.
pub(super) const HEADER_BYTES_MAX: u64 = 256 << 20;

/// Why a piece of the header cannot be read.
#[derive(Debug)]
pub(super) enum Fault {
    /// The contents are wrong; the caller says where.
    Wrong(String),
    /// The store failed.
    Store(StorageError),
}

impl From<StorageError> for Fault {
    fn from(e: StorageError) -> Fault {
        Fault::Store(e)
    }
}

/// Reads a store from its start to its end or to [`HEADER_BYTES_MAX`].
pub(super) struct Cursor<'a> {
    store: &'a dyn BlockStore,
    length: u64,
    end: u64,
    /// Bytes of the store from `base` on.
    buffer: Vec<u8>,
    base: u64,
    /// Bytes of `buffer` already used.
    used: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(store: &'a dyn BlockStore) -> Result<Cursor<'a>, StorageError> {
        let length = store.len()?;
        Ok(Cursor { store, length, end: length.min(HEADER_BYTES_MAX), buffer: Vec::new(), base: 0, used: 0 })
    }

    /// Bytes of the whole store.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Offset of the next byte.
    pub(super) fn at(&self) -> u64 {
        self.base + self.used as u64
    }

    /// Bytes that may still be read.
    pub(super) fn left(&self) -> u64 {
        self.end - self.at()
    }

    /// Refuses `bytes` more for `what` when there are not so many.
    pub(super) fn need(&self, bytes: Option<u64>, what: &str) -> Result<(), Fault> {
        match bytes {
            Some(n) if n <= self.left() => Ok(()),
            Some(n) if self.end < self.length && n <= self.length - self.at() => Err(Fault::Wrong(format!(
                "{what} would end behind the first {} MiB, where metadata and tensor directory must lie",
                HEADER_BYTES_MAX >> 20
            ))),
            Some(n) => Err(Fault::Wrong(format!(
                "{what} takes {n} bytes but only {} are left: the file is cut off or damaged, fetch it again",
                self.left()
            ))),
            None => Err(Fault::Wrong(format!("the size of {what} does not fit in 64 bits: the file is damaged"))),
        }
    }

    /// Fills `out`; the caller has checked with [`Cursor::need`] or accepts its words.
    pub(super) fn fill(&mut self, mut out: &mut [u8]) -> Result<(), Fault> {
        self.need(Some(out.len() as u64), "the next value")?;
        while !out.is_empty() {
            if self.used == self.buffer.len() {
                self.refill()?;
            }
            let n = out.len().min(self.buffer.len() - self.used);
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&self.buffer[self.used..self.used + n]);
            self.used += n;
            out = later;
        }
        Ok(())
    }

    fn refill(&mut self) -> Result<(), Fault> {
        self.base = self.at();
        self.used = 0;
        let n = (self.end - self.base).min(BUFFER_BYTES as u64) as usize;
        self.buffer.resize(n, 0);
        // On failure the buffer holds nothing usable, and the parse ends.
        Ok(self.store.read_at(self.base, &mut self.buffer)?)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A string of at most `max` bytes.
    pub(super) fn string(&mut self, max: u64, what: &str) -> Result<String, Fault> {
        let length = self.u64()?;
        self.need(Some(length), what)?;
        if length > max {
            return Err(Fault::Wrong(format!("{what} has {length} bytes; at most {max} are allowed")));
        }
        let length = length as usize; // at most HEADER_BYTES_MAX
        let ahead = &self.buffer[self.used..];
        let bytes = if length <= ahead.len() {
            let bytes = ahead[..length].to_vec();
            self.used += length;
            bytes
        } else {
            let mut bytes = vec![0; length];
            self.fill(&mut bytes)?;
            bytes
        };
        String::from_utf8(bytes).map_err(|e| {
            let shown = quoted(&String::from_utf8_lossy(e.as_bytes()));
            Fault::Wrong(format!("{what} {shown} is not UTF-8 text"))
        })
    }
}

//! The promises of [`BlockStore`], written once; every implementation runs them in a test of its own.

use crate::{BlockStore, StorageError};

/// What makes or opens a store by name.
pub type Opener<'a> = &'a dyn Fn(&str) -> Result<Box<dyn BlockStore>, StorageError>;

/// An empty folder of the kind under test.
pub struct Folder<'a> {
    /// Makes an empty store with this name, for reading and writing.
    pub create: Opener<'a>,
    /// Opens the store with this name for reading.
    pub open: Opener<'a>,
    /// Cuts the named store down to so many bytes behind the back of those who have it open.
    pub shrink: &'a dyn Fn(&str, u64),
}

/// Runs every case.
///
/// # Errors
/// The first broken promise, in words.
pub fn check(folder: &Folder<'_>) -> Result<(), String> {
    let say = |e: StorageError| format!("an operation that must succeed failed: {e}");
    let store = (folder.create)("first").map_err(say)?;

    // Length, growth and gaps.
    ensure(store.is_empty().map_err(say)?, "a new store is empty")?;
    store.write_at(3, b"defg").map_err(say)?;
    store.write_at(1, b"bc").map_err(say)?;
    store.write_at(9, b"").map_err(say)?;
    ensure(store.len().map_err(say)? == 7, "a write past the end extends the store, an empty one does not")?;
    let mut all = [0xAA; 7];
    store.read_at(0, &mut all).map_err(say)?;
    ensure(all == *b"\0bcdefg", "a gap reads as zeros and later writes fill it")?;

    // Ranges.
    let mut two = [0; 2];
    store.read_at(4, &mut two).map_err(say)?;
    ensure(two == *b"ef", "a read starts at its offset and fills the buffer")?;
    store.read_at(5, &mut two).map_err(say)?;
    ensure(two == *b"fg", "the last bytes can be read")?;
    for offset in [6, 7, 8, i64::MAX as u64, u64::MAX - 1, u64::MAX] {
        short(&*store, offset, 2, 7)?;
    }
    for offset in [0, 7, u64::MAX] {
        store.read_at(offset, &mut []).map_err(say)?;
    }

    // Sync, and a second opener.
    store.sync().map_err(say)?;
    let reader = (folder.open)("first").map_err(say)?;
    ensure(reader.len().map_err(say)? == 7, "a store opened by name has the bytes that were written")?;
    ensure(reader.name().ends_with("first"), "a store knows its name")?;

    // Rename replaces, keeps open stores alive, and refuses folders.
    let second = (folder.create)("second").map_err(say)?;
    second.write_at(0, b"old").map_err(say)?;
    for bad in ["", ".", "..", "a/b", "/a", "../a", "a\0b"] {
        let refused = matches!(store.rename(bad), Err(StorageError::BadName { .. }));
        ensure(refused, &format!("renaming to {bad:?} is refused as a bad name"))?;
    }
    store.rename("second").map_err(say)?;
    ensure(store.name().ends_with("second"), "a renamed store knows its new name")?;
    ensure((folder.open)("first").is_err(), "the old name is gone")?;
    ensure((folder.open)("second").map_err(say)?.len().map_err(say)? == 7, "the new name leads to the renamed store")?;
    let mut old = [0; 3];
    second.read_at(0, &mut old).map_err(say)?;
    ensure(old == *b"old", "who has the replaced store open can still read it")?;

    // A store that shrinks says so.
    (folder.shrink)("second", 5);
    reader.read_at(3, &mut two).map_err(say)?;
    ensure(two == *b"de", "what a shrunken store still has can be read")?;
    short(&*reader, 4, 2, 5)?;

    // Threads share a store.
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u8)
            .map(|k| {
                let store = &*store;
                scope.spawn(move || {
                    let at = 4096 * u64::from(k);
                    store.write_at(at, &[k; 4096])?;
                    let mut back = [0xFF; 4096];
                    store.read_at(at, &mut back)?;
                    Ok::<bool, StorageError>(back == [k; 4096])
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| {
            let same = w.join().map_err(|_| "a thread panicked".to_owned())?.map_err(say)?;
            ensure(same, "disjoint ranges can be written and read from several threads")
        })
    })
}

fn ensure(holds: bool, promise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("broken promise: {promise}")) }
}

fn short(store: &dyn BlockStore, at: u64, want: usize, has: u64) -> Result<(), String> {
    match store.read_at(at, &mut vec![0; want]) {
        Err(StorageError::Short { path, offset, length, now, .. }) => ensure(
            path == store.name() && (offset, length, now) == (at, want as u64, has),
            &format!("the error of a read at {at} names the store, the offset, the length and the size"),
        ),
        other => Err(format!("broken promise: {want} bytes at {at} of {has} are refused as short, not {other:?}")),
    }
}

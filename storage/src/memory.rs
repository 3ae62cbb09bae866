//! Bytes in memory as a [`BlockStore`], for tests of this and other crates.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::block::is_plain_name;
use crate::{BlockStore, StorageError};

type Contents = Arc<RwLock<Vec<u8>>>;

/// A folder that exists in memory only; clones are the same folder.
#[derive(Clone, Debug, Default)]
pub struct MemoryFolder(Arc<Mutex<BTreeMap<String, Contents>>>);

impl MemoryFolder {
    /// Makes the file `name` with these bytes, in place of what had that name.
    pub fn create(&self, name: &str, bytes: Vec<u8>) -> MemoryStore {
        let contents = Arc::new(RwLock::new(bytes));
        self.files().insert(name.to_owned(), Arc::clone(&contents));
        MemoryStore { folder: self.clone(), name: Mutex::new(name.to_owned()), contents }
    }

    /// Opens the file `name`.
    ///
    /// # Errors
    /// [`StorageError::Io`] with kind `NotFound`.
    pub fn open(&self, name: &str) -> Result<MemoryStore, StorageError> {
        let found = self.files().get(name).cloned();
        let contents = found.ok_or_else(|| StorageError::Io {
            path: PathBuf::from(name),
            action: "open it".to_owned(),
            source: io::Error::new(io::ErrorKind::NotFound, "no such file in this memory folder"),
        })?;
        Ok(MemoryStore { folder: self.clone(), name: Mutex::new(name.to_owned()), contents })
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Contents>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file of a [`MemoryFolder`].
#[derive(Debug)]
pub struct MemoryStore {
    folder: MemoryFolder,
    name: Mutex<String>,
    contents: Contents,
}

impl MemoryStore {
    /// A file in a folder of its own.
    pub fn new(name: &str, bytes: Vec<u8>) -> MemoryStore {
        MemoryFolder::default().create(name, bytes)
    }

    /// Cuts the file down to `len` bytes, as another program could do to a real one.
    pub fn truncate(&self, len: usize) {
        self.contents.write().unwrap_or_else(PoisonError::into_inner).truncate(len);
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl BlockStore for MemoryStore {
    fn name(&self) -> PathBuf {
        PathBuf::from(self.name.lock().unwrap_or_else(PoisonError::into_inner).as_str())
    }

    fn len(&self) -> Result<u64, StorageError> {
        Ok(self.contents.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        if out.is_empty() {
            return Ok(());
        }
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        let found = usize::try_from(offset).ok().and_then(|at| contents.get(at..at.checked_add(out.len())?));
        let found = found.ok_or_else(|| StorageError::Short {
            path: self.name(),
            what: String::new(),
            offset,
            length: out.len() as u64,
            now: contents.len() as u64,
        })?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        let full = || StorageError::Io {
            path: self.name(),
            action: format!("write {} bytes at {offset}", bytes.len()),
            source: io::Error::from(io::ErrorKind::OutOfMemory),
        };
        let at = usize::try_from(offset).map_err(|_| full())?;
        let end = at.checked_add(bytes.len()).ok_or_else(full)?;
        let more = end.saturating_sub(contents.len());
        contents.try_reserve(more).map_err(|_| full())?;
        let len = contents.len() + more;
        contents.resize(len, 0);
        contents[at..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn rename(&self, name: &str) -> Result<(), StorageError> {
        if !is_plain_name(name) {
            return Err(StorageError::BadName { path: self.name(), name: name.to_owned() });
        }
        let mut files = self.folder.files();
        let mut mine = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        files.remove(mine.as_str());
        files.insert(name.to_owned(), Arc::clone(&self.contents));
        name.clone_into(&mut mine);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    #[test]
    fn memory_keeps_every_promise_of_the_trait() {
        let folder = MemoryFolder::default();
        conformance::check(&conformance::Folder {
            create: &|name| Ok(Box::new(folder.create(name, Vec::new()))),
            open: &|name| Ok(Box::new(folder.open(name)?)),
            shrink: &|name, len| folder.open(name).unwrap().truncate(len as usize),
        })
        .unwrap();
    }
}

//! A file of the operating system as a [`BlockStore`]: positioned reads and writes (`pread`, `pwrite`) through the page
//! cache, no mapping.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::block::is_plain_name;
use crate::{BlockStore, StorageError};

/// A file, read and written by position.
#[derive(Debug)]
pub struct FileStore {
    file: File,
    path: Mutex<PathBuf>,
    writable: bool,
}

impl FileStore {
    /// Opens an existing file for reading.
    ///
    /// # Errors
    /// [`StorageError::Io`] when there is no such file, it may not be read, or it is not a regular file (opening a pipe
    /// could wait forever).
    pub fn open(path: impl AsRef<Path>) -> Result<FileStore, StorageError> {
        FileStore::with(path.as_ref(), OpenOptions::new().read(true), false)
    }

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// As [`FileStore::open`].
    pub fn open_writable(path: impl AsRef<Path>) -> Result<FileStore, StorageError> {
        FileStore::with(path.as_ref(), OpenOptions::new().read(true).write(true), true)
    }

    /// Makes an empty file for reading and writing; what was there is emptied.
    ///
    /// # Errors
    /// [`StorageError::Io`] when the folder does not exist or may not be written.
    pub fn create(path: impl AsRef<Path>) -> Result<FileStore, StorageError> {
        let options = &mut OpenOptions::new();
        FileStore::with(path.as_ref(), options.read(true).write(true).create(true).truncate(true), true)
    }

    fn with(path: &Path, options: &OpenOptions, writable: bool) -> Result<FileStore, StorageError> {
        let fail = |action: &str, source| StorageError::Io { path: path.to_owned(), action: action.to_owned(), source };
        match fs::metadata(path) {
            Ok(meta) if !meta.is_file() => {
                let kind = if meta.is_dir() { "it is a folder" } else { "it is not a regular file" };
                return Err(fail("open it", io::Error::new(io::ErrorKind::InvalidInput, kind)));
            }
            _ => {}
        }
        let file = options.open(path).map_err(|e| fail(if writable { "open it for writing" } else { "open it" }, e))?;
        Ok(FileStore { file, path: Mutex::new(path.to_owned()), writable })
    }

    fn fail(&self, action: impl Into<String>, source: io::Error) -> StorageError {
        StorageError::Io { path: self.name(), action: action.into(), source }
    }
}

impl BlockStore for FileStore {
    fn name(&self) -> PathBuf {
        self.path.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn len(&self) -> Result<u64, StorageError> {
        Ok(self.file.metadata().map_err(|e| self.fail("ask for its size", e))?.len())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        let length = out.len() as u64;
        let short = |now| StorageError::Short { path: self.name(), what: String::new(), offset, length, now };
        // The system's offsets are signed, so it would call a range past i64::MAX invalid instead of too far.
        if length > 0 && offset.checked_add(length).is_none_or(|end| end > i64::MAX as u64) {
            return Err(short(self.len()?));
        }
        match self.file.read_exact_at(out, offset) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(short(self.len()?)),
            Err(e) => Err(self.fail(format!("read {length} bytes at {offset}"), e)),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        let action = || format!("write {} bytes at {offset}", bytes.len());
        if !self.writable {
            let why = io::Error::new(io::ErrorKind::PermissionDenied, "it was opened for reading only");
            return Err(self.fail(action(), why));
        }
        self.file.write_all_at(bytes, offset).map_err(|e| self.fail(action(), e))
    }

    fn sync(&self) -> Result<(), StorageError> {
        self.file.sync_all().map_err(|e| self.fail("bring it to disk", e))
    }

    fn rename(&self, name: &str) -> Result<(), StorageError> {
        let mut path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_plain_name(name) {
            return Err(StorageError::BadName { path: path.clone(), name: name.to_owned() });
        }
        let to = path.with_file_name(name);
        let fail = |path: &Path, action: &str, source| {
            let action = format!("{action} {}", to.display());
            StorageError::Io { path: path.to_owned(), action, source }
        };
        fs::rename(&*path, &to).map_err(|e| fail(&path, "rename it to", e))?;
        *path = to.clone();
        // The new name is durable only when the folder is.
        let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)
            .and_then(|f| f.sync_all())
            .map_err(|e| fail(folder, "bring this folder to disk after naming", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    #[test]
    fn a_file_keeps_every_promise_of_the_trait() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        conformance::check(&conformance::Folder {
            create: &|name| Ok(Box::new(FileStore::create(at(name))?)),
            open: &|name| Ok(Box::new(FileStore::open(at(name))?)),
            shrink: &|name, len| OpenOptions::new().write(true).open(at(name)).unwrap().set_len(len).unwrap(),
        })
        .unwrap();
    }

    #[test]
    fn a_folder_or_a_missing_file_is_refused_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let text = |e: StorageError| {
            let source = std::error::Error::source(&e).unwrap().to_string();
            format!("{e}: {source}")
        };
        let folder = text(FileStore::open(dir.path()).unwrap_err());
        assert!(folder.contains("it is a folder") && folder.contains(dir.path().to_str().unwrap()), "{folder}");
        let missing = text(FileStore::open(dir.path().join("none.gguf")).unwrap_err());
        assert!(missing.contains("none.gguf: cannot open it: No such file"), "{missing}");
    }

    #[test]
    fn a_store_opened_for_reading_refuses_to_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, b"abc").unwrap();
        let e = FileStore::open(&path).unwrap().write_at(0, b"x").unwrap_err();
        assert!(
            matches!(&e, StorageError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied),
            "{e}"
        );
        FileStore::open_writable(&path).unwrap().write_at(1, b"x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"axc");
    }
}

//! What can go wrong between a path and a tensor's bytes. Each error names the file; those about its contents also name
//! the header field, metadata key or tensor. Text that comes from a file is quoted and shortened before it is shown.

use std::io;
use std::path::PathBuf;

/// Errors of this crate.
#[derive(thiserror::Error, Debug)]
pub enum StorageError {
    /// The operating system refused an operation.
    #[error("{}: cannot {action}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried, such as `open it` or `read 34 bytes at 1088`.
        action: String,
        /// Its answer.
        #[source]
        source: io::Error,
    },

    /// A read reached past the end: the file is shorter than it should be, or has shrunk since it was opened.
    #[error(
        "{}: {length} bytes at offset {offset}{} lie past the end: the file has {now} bytes; \
         if it had more when it was opened, something cut or replaced it meanwhile: restore it and start again",
        path.display(), if what.is_empty() { String::new() } else { format!(" ({what})") }
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// What was read there, such as `tensor "a.weight"`; empty when only the range is known.
        what: String,
        /// First byte of the read, from the start of the file.
        offset: u64,
        /// Bytes asked for.
        length: u64,
        /// Bytes that the file has now.
        now: u64,
    },

    /// A new name that is not a plain file name.
    #[error("{}: cannot be renamed to {name:?}: give a plain file name in the same folder", path.display())]
    BadName {
        /// The file.
        path: PathBuf,
        /// The refused name.
        name: String,
    },

    /// The contents are not a GGUF file that this engine reads.
    #[error("{}: {place}: {problem}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The header field, metadata key or tensor.
        place: String,
        /// What is wrong there, and what to do where there is something to do.
        problem: String,
    },

    /// The files of a split model do not fit together.
    #[error("{}: {problem}", path.display())]
    Split {
        /// The file at which it was noticed.
        path: PathBuf,
        /// What does not fit, and the way out.
        problem: String,
    },

    /// A range that does not lie inside a tensor.
    #[error("{}: tensor {tensor} has {bytes} bytes, so {length} bytes at {offset} cannot be read", path.display())]
    Range {
        /// The file.
        path: PathBuf,
        /// The tensor, quoted.
        tensor: String,
        /// Its length.
        bytes: u64,
        /// Where the read was to begin, from the start of the tensor.
        offset: u64,
        /// Bytes asked for.
        length: u64,
    },

    /// A tensor description of another file.
    #[error(
        "tensor {tensor} is said to lie in shard {shard}, but this model has {shards}: it belongs to another model"
    )]
    Foreign {
        /// The tensor, quoted.
        tensor: String,
        /// The shard of its description.
        shard: u16,
        /// Shards of this model.
        shards: usize,
    },

    /// A file that was to be written would not be valid.
    #[error("cannot write a GGUF file: {place}: {problem}")]
    Write {
        /// The metadata key, tensor or setting.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl StorageError {
    /// The same error, saying that the bytes were those of `what`.
    pub(crate) fn within(self, what: &str) -> StorageError {
        match self {
            StorageError::Io { path, action, source } => {
                StorageError::Io { path, action: format!("{action} ({what})"), source }
            }
            StorageError::Short { path, offset, length, now, .. } => {
                StorageError::Short { path, what: what.to_owned(), offset, length, now }
            }
            other => other,
        }
    }
}

/// Characters of a foreign text that a message shows.
const SHOWN_CHARS: usize = 80;

/// `text` from a file, quoted for a message: control characters escaped, long texts shortened.
pub(crate) fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() { format!("{shown:?}... ({} bytes)", text.len()) } else { format!("{shown:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_reach_the_terminal_raw_or_at_full_length() {
        assert_eq!(quoted("a\n\u{1b}[31m"), "\"a\\n\\u{1b}[31m\"");
        let long = quoted(&"é".repeat(5000));
        assert!(long.len() < 200, "{long}");
        assert!(long.ends_with("... (10000 bytes)"), "{long}");
    }
}

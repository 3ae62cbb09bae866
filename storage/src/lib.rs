//! GGUF files read by range through a block store.

//! Any bytes as a GGUF file: the reader answers with a model or an error, and every tensor of a model can be read.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use luce_storage::{Gguf, MemoryStore, summarize};

fuzz_target!(|data: &[u8]| {
    let store = Arc::new(MemoryStore::new("fuzz.gguf", data.to_vec()));
    match Gguf::from_stores(vec![store]) {
        Ok(model) => {
            for tensor in model.catalog().tensors.values() {
                let mut bytes = vec![0; tensor.bytes as usize];
                model.read_tensor(tensor, 0, &mut bytes).expect("an accepted file has every byte of every tensor");
            }
            summarize(&model).to_string();
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

//! DeepSeek V4 and V4.1 as data: configuration, tensor roles, layer program, tokenizer, chat encoding.

//! The HTTP API: OpenAI's chat completions over the trait Generate.

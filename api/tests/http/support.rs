//! A scripted engine, a codec of bytes, and a plain HTTP/1.1 client over TCP.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use luce_api::{ApiConfig, ApiState, Backend, ChatCodec, Encoded, Marks, Piece, ServerHandle, serve};
use luce_core::{
    Chosen, Event, EventSink, Finish, Generate, GenerateRequest, Lifecycle, Logprobs, Refusal, RequestId, Served,
    Status, Timings, TokenId, TokenSet, Usage,
};
use luce_model::Family;
use luce_model::chat::{ChatFormat, Conversation, EffortProfile, Message, Opening, Part, SamplingDefaults};
use serde_json::{Value, json};

/// Longest wait for anything; only a failing test takes it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const THINK: u32 = 256;
pub(crate) const END_THINK: u32 = 257;
pub(crate) const DSML: u32 = 258;
pub(crate) const EOS: u32 = 259;
pub(crate) const BOS: u32 = 263;

/// Bytes are tokens, and a few markers follow them. A prompt is the contents of the messages of the user, and those of the
/// model as they were written if that is known.
pub(crate) struct ByteCodec;

impl ChatCodec for ByteCodec {
    fn family(&self) -> Family {
        Family::V4
    }

    fn encode(&self, conversation: &Conversation) -> Encoded {
        let mut prompt = Vec::new();
        for message in &conversation.messages {
            if let Message::Assistant(turn) = message {
                match &turn.written {
                    Some(written) => prompt.extend([&written.thoughts, &written.rest].into_iter().flatten().flatten()),
                    None => prompt.extend(turn.content.bytes().map(|byte| TokenId(byte.into()))),
                }
            }
            if let Message::User(parts) = message {
                for part in parts {
                    let text = if let Part::Text(text) = part { text } else { "[Unsupported Image]" };
                    prompt.extend(text.bytes().map(|byte| TokenId(byte.into())));
                }
            }
        }
        let opening = match conversation.thinking {
            _ if conversation.must_call() => Opening::ToolCalls,
            Some(_) => Opening::Reasoning,
            None => Opening::Content,
        };
        if opening == Opening::ToolCalls {
            prompt.extend(tokens("</think>\n\n<｜DSML｜tool_calls>\n").into_iter().map(TokenId));
        }
        Encoded { prompt, opening }
    }

    fn sampling_defaults(&self, conversation: &Conversation) -> SamplingDefaults {
        ChatFormat::new(Family::V4, EffortProfile::Preview).sampling_defaults(conversation)
    }

    fn piece(&self, token: TokenId) -> Piece<'_> {
        match token.0 {
            THINK => Piece::ThinkOpen,
            END_THINK => Piece::ThinkClose,
            DSML => Piece::Dsml,
            byte => u8::try_from(byte).map_or(Piece::Hidden, |byte| Piece::Text(Cow::Owned(vec![byte]))),
        }
    }

    fn spelling(&self, token: TokenId) -> Cow<'_, [u8]> {
        match self.piece(token) {
            Piece::Text(bytes) => bytes,
            Piece::ThinkOpen => Cow::Borrowed(b"<think>"),
            Piece::ThinkClose => Cow::Borrowed(b"</think>"),
            Piece::Dsml => Cow::Borrowed("｜DSML｜".as_bytes()),
            Piece::Hidden => Cow::Borrowed(b""),
        }
    }

    fn tokenize(&self, text: &str, markers: bool) -> Vec<TokenId> {
        if markers {
            return tokens(text).into_iter().map(TokenId).collect();
        }
        text.bytes().map(|byte| TokenId(byte.into())).collect()
    }

    fn marks(&self) -> Marks {
        Marks { bos: TokenId(BOS), fim: Some([260, 261, 262].map(TokenId)) }
    }

    fn stop_tokens(&self) -> &[TokenId] {
        &[TokenId(EOS)]
    }
}

/// Tokens of a text in which markers are spelled.
pub(crate) fn tokens(text: &str) -> Vec<u32> {
    let mut out = Vec::new();
    let mut rest = text;
    'next: while let Some(first) = rest.bytes().next() {
        for (spelling, id) in [("<think>", THINK), ("</think>", END_THINK), ("｜DSML｜", DSML), ("<bos>", BOS)] {
            if let Some(after) = rest.strip_prefix(spelling) {
                out.push(id);
                rest = after;
                continue 'next;
            }
        }
        let length = rest.chars().next().map_or(1, char::len_utf8);
        out.extend(rest.as_bytes()[..length].iter().map(|&byte| u32::from(byte)));
        assert_eq!(out[out.len() - length], u32::from(first));
        rest = &rest[length..];
    }
    out
}

/// What the test does with a request: it holds the sink and hears of the cancellation.
pub(crate) struct Taken {
    pub(crate) request: GenerateRequest,
    pub(crate) sink: Box<dyn EventSink>,
    pub(crate) cancelled: mpsc::Receiver<()>,
}

impl Taken {
    pub(crate) fn say(&mut self, text: &str) {
        self.send_tokens(&tokens(text));
    }

    pub(crate) fn send_tokens(&mut self, ids: &[u32]) {
        for &id in ids {
            // A closed sink is what some tests are about.
            let _ = self.sink.send(Event::Token(Chosen { token: TokenId(id), stop: id == EOS, logprobs: None }));
        }
    }

    /// Says a text whose tokens have the probability that [`scored`] expects, beside as many others as were asked for.
    pub(crate) fn say_scored(&mut self, text: &str) {
        for id in tokens(text) {
            let logprobs = self.request.logprobs.map(|top| {
                let others = (0..top).map(|i| (TokenId(u32::from(b'a') + i), -1.0 - i as f32)).collect();
                Box::new(Logprobs { chosen: -0.25, top: others })
            });
            let _ = self.sink.send(Event::Token(Chosen { token: TokenId(id), stop: false, logprobs }));
        }
    }

    /// Whether the constraint lets these tokens come, one after the other; the text is said as far as it does.
    pub(crate) fn obey(&mut self, text: &str) -> Result<(), String> {
        for (at, id) in tokens(text).into_iter().enumerate() {
            if !self.allowed().contains(TokenId(id)) {
                return Err(format!("token {id} at {at} of {text:?}"));
            }
            self.accept(id);
        }
        Ok(())
    }

    /// What the constraint lets come next.
    pub(crate) fn allowed(&mut self) -> TokenSet {
        let mut set = TokenSet::full(300);
        if let Some(constraint) = &mut self.request.constraint {
            constraint.restrict(&mut set).unwrap();
        }
        set
    }

    fn accept(&mut self, id: u32) {
        if let Some(constraint) = &mut self.request.constraint {
            constraint.accept(TokenId(id)).unwrap();
        }
        self.send_tokens(&[id]);
    }

    /// An answer drawn from what the constraint allows, as a model without sense would give it, up to the end of the turn.
    /// What closes something is drawn more often, so that it ends.
    pub(crate) fn wander(&mut self, seed: u64) -> bool {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as usize % below
        };
        for _ in 0..3000 {
            let set = self.allowed();
            let all: Vec<u32> = (0..300).filter(|&id| set.contains(TokenId(id))).collect();
            let closing =
                |id: &u32| [EOS, DSML, END_THINK].contains(id) || b"\"}],</>".iter().any(|&b| *id == u32::from(b));
            let closers: Vec<u32> = all.iter().copied().filter(closing).collect();
            let list = if !closers.is_empty() && draw(4) > 0 { &closers } else { &all };
            assert!(!list.is_empty(), "nothing may come");
            let id = list[draw(list.len())];
            self.accept(id);
            if id == EOS {
                return true;
            }
        }
        false
    }

    pub(crate) fn finish(&mut self, finish: Finish) {
        let usage = Usage { prompt: self.request.prompt.len() as u32, cached: 2, generated: 99 };
        let timings = Timings { queue_us: 1500, prefill_us: 20_000, decode_us: 100_000 };
        let _ = self.sink.send(Event::Finished { finish, usage, timings });
    }

    /// A whole answer that ends its turn.
    pub(crate) fn answer(&mut self, text: &str) {
        let _ = self.sink.send(Event::Admitted);
        self.say(text);
        self.send_tokens(&[EOS]);
        self.finish(Finish::Stop);
    }

    /// How long the cancellation took.
    pub(crate) fn wait_cancelled(&self) -> Duration {
        let begun = Instant::now();
        self.cancelled.recv_timeout(PATIENCE).expect("the request is cancelled");
        begun.elapsed()
    }
}

/// An engine that hands each request to the test.
pub(crate) struct Engine {
    served: Served,
    pub(crate) lifecycle: Mutex<Lifecycle>,
    pub(crate) refusal: Mutex<Option<Refusal>>,
    pub(crate) status: Mutex<Status>,
    taken: Mutex<mpsc::Sender<Taken>>,
    cancels: Mutex<Vec<(RequestId, mpsc::Sender<()>)>>,
    next: AtomicU64,
}

impl Generate for Engine {
    fn served(&self) -> &Served {
        &self.served
    }

    fn lifecycle(&self) -> Lifecycle {
        self.lifecycle.lock().unwrap().clone()
    }

    fn status(&self) -> Status {
        self.status.lock().unwrap().clone()
    }

    fn submit(&self, request: GenerateRequest, sink: Box<dyn EventSink>) -> Result<RequestId, Refusal> {
        if let Some(refusal) = self.refusal.lock().unwrap().clone() {
            return Err(refusal);
        }
        let id = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        let (cancel, cancelled) = mpsc::channel();
        self.cancels.lock().unwrap().push((id, cancel));
        self.taken.lock().unwrap().send(Taken { request, sink, cancelled }).unwrap();
        Ok(id)
    }

    fn cancel(&self, id: RequestId) {
        for (known, cancel) in self.cancels.lock().unwrap().iter() {
            if *known == id {
                let _ = cancel.send(());
            }
        }
    }
}

/// A server with a scripted engine.
pub(crate) struct Rig {
    pub(crate) server: Option<ServerHandle>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) address: SocketAddr,
    taken: mpsc::Receiver<Taken>,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        Rig::with(|_| {})
    }

    pub(crate) fn with(configure: impl FnOnce(&mut ApiConfig)) -> Rig {
        let (engine, taken) = engine();
        let backend = Backend { generate: Arc::clone(&engine) as Arc<dyn Generate>, codec: Arc::new(ByteCodec) };
        let server = start(Arc::new(ApiState::new(backend)), configure);
        Rig { address: server.address(), server: Some(server), engine, taken }
    }

    /// The next request that reaches the engine.
    pub(crate) fn take(&self) -> Taken {
        self.taken.recv_timeout(PATIENCE).expect("a request reaches the engine")
    }

    pub(crate) fn nothing_was_taken(&self) -> bool {
        self.taken.try_recv().is_err()
    }

    pub(crate) fn chat(&self, body: &Value) -> Connection {
        let mut connection = Connection::open(self.address);
        connection.post("/v1/chat/completions", &body.to_string());
        connection
    }

    /// A request that the engine answers with `text`.
    pub(crate) fn chat_answered(&self, body: &Value, text: &str) -> Response {
        let mut connection = self.chat(body);
        self.take().answer(text);
        connection.response()
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        let mut connection = Connection::open(self.address);
        connection.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        connection.response()
    }
}

pub(crate) fn engine() -> (Arc<Engine>, mpsc::Receiver<Taken>) {
    let (sender, taken) = mpsc::channel();
    let engine = Engine {
        served: Served { name: "tiny".to_owned(), context: 4096, vocabulary: 300 },
        lifecycle: Mutex::new(Lifecycle::Ready),
        refusal: Mutex::new(None),
        status: Mutex::default(),
        taken: Mutex::new(sender),
        cancels: Mutex::new(Vec::new()),
        next: AtomicU64::new(1),
    };
    (Arc::new(engine), taken)
}

pub(crate) fn start(state: Arc<ApiState>, configure: impl FnOnce(&mut ApiConfig)) -> ServerHandle {
    let mut config = ApiConfig { listen: "127.0.0.1:0".parse().unwrap(), threads: 1, ..ApiConfig::default() };
    configure(&mut config);
    serve(config, state).unwrap()
}

/// A body with one user message and thinking off, and more fields.
pub(crate) fn ask(text: &str, more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": text}], "thinking": {"type": "disabled"}});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// A file of `tests/fixtures`.
pub(crate) fn fixture(name: &str) -> Value {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures")).join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub(crate) fn post(rig: &Rig, path: &str, body: &Value) -> Connection {
    let mut connection = Connection::open(rig.address);
    connection.post(path, &body.to_string());
    connection
}

/// One connection.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

/// Status and headers, then the body.
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {} {:?}", self.status, self.body))
    }

    /// The error's message; checks the form of the body.
    pub(crate) fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        let body = self.json();
        let error = body["error"].as_object().unwrap();
        assert!(["message", "type", "param", "code"].iter().all(|key| error.contains_key(*key)), "{body}");
        assert!(error["type"].is_string());
        error["message"].as_str().unwrap().to_owned()
    }

    /// The events of a stream: their JSON, and whether it ended with `[DONE]`.
    pub(crate) fn events(&self) -> (Vec<Value>, bool) {
        let mut events = Vec::new();
        for line in self.body.split("\n\n").filter(|line| !line.is_empty() && !line.starts_with(':')) {
            let data = line.strip_prefix("data: ").unwrap();
            if data == "[DONE]" {
                return (events, true);
            }
            events.push(serde_json::from_str(data).unwrap());
        }
        (events, false)
    }
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Connection { stream: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) {
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
    }

    /// Ends the writing side only.
    pub(crate) fn half_close(&mut self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Status and headers; the body stays to be read.
    pub(crate) fn head(&mut self) -> Response {
        let status = self.line();
        let status = status.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {status:?}")).parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_owned(), value.to_owned()));
        }
        if status == 100 {
            return self.head();
        }
        Response { status, headers, body: String::new() }
    }

    /// The next chunk of a chunked body, or `None` at its proper end.
    pub(crate) fn chunk(&mut self) -> Option<String> {
        let size = usize::from_str_radix(&self.line(), 16).unwrap();
        let mut bytes = vec![0; size + 2];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes.truncate(size);
        (size > 0).then(|| String::from_utf8(bytes).expect("a chunk holds whole characters"))
    }

    /// The rest of a chunked body whose head was read.
    pub(crate) fn response_body(&mut self) -> String {
        std::iter::from_fn(|| self.chunk()).collect()
    }

    /// The whole answer.
    pub(crate) fn response(&mut self) -> Response {
        let mut response = self.head();
        if let Some(length) = response.header("content-length") {
            let mut bytes = vec![0; length.parse().unwrap()];
            self.stream.read_exact(&mut bytes).unwrap();
            response.body = String::from_utf8(bytes).unwrap();
        } else if response.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                assert!(chunk.ends_with("\n\n"), "a chunk holds whole events: {chunk:?}");
                response.body.push_str(&chunk);
            }
        }
        response
    }
}

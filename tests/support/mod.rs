//! The real binary as a process, and a client for its HTTP interface. Every wait has a deadline; a process that is still
//! there when its test ends is killed.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Longest wait for anything; only a failing test takes it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The repository: the process's current directory.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the repository, as text.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The binary with arguments, without what the caller's environment says to it.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_luce-actors"));
    command.args(args).current_dir(root()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LUCE__") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}

/// A running process whose standard error is read line by line.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    /// Lines of standard error so far.
    pub(crate) stderr: Vec<String>,
}

impl Process {
    pub(crate) fn start(args: &[&str]) -> Process {
        let mut child = command(args).spawn().expect("the binary starts");
        let (send, lines) = sync_channel(64);
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Process { child, lines, stderr: Vec::new() }
    }

    /// The next line of standard error that begins with `start`.
    pub(crate) fn line(&mut self, start: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) else {
                panic!("no line {start:?} within {PATIENCE:?}; standard error: {:#?}", self.stderr)
            };
            self.stderr.push(line.clone());
            if line.starts_with(start) {
                return line;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process is there");
    }

    /// Waits for the end of standard error, which a process keeps open until it ends, and of the process.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.stderr.push(line),
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().expect("a child of ours"),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("no end within {PATIENCE:?}; standard error: {:#?}", self.stderr)
                }
            }
        }
    }

    /// A field of `/proc/PID/FILE`.
    #[cfg(target_os = "linux")]
    pub(crate) fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("the process is there")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process that ends by itself leaves.
pub(crate) struct Ended {
    /// `None`: killed by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the binary to its end.
pub(crate) fn run(args: &[&str]) -> Ended {
    let mut process = Process::start(args);
    let stdout: ChildStdout = process.child.stdout.take().expect("piped");
    let (send, text) = sync_channel(1);
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = BufReader::new(stdout).read_to_end(&mut text);
        let _ = send.send(String::from_utf8_lossy(&text).into_owned());
    });
    let status = process.wait();
    let stdout = text.recv_timeout(PATIENCE).expect("standard output ends with the process");
    Ended { code: status.code(), stdout, stderr: process.stderr.join("\n") }
}

/// A server on a free port.
pub(crate) struct Server {
    pub(crate) process: Process,
    client: Client,
}

impl Server {
    /// Starts one that listens but may still be loading.
    pub(crate) fn launch(config: &str, sets: &[&str]) -> Server {
        let mut args = vec!["--config", config, "--set", "api.listen=127.0.0.1:0"];
        args.extend(sets.iter().flat_map(|set| ["--set", set]));
        let mut process = Process::start(&args);
        let line = process.line("listening on ");
        let url = line.strip_prefix("listening on ").expect("just matched").to_owned();
        Server { process, client: Client::new(url) }
    }

    /// Starts one and waits until it is ready.
    pub(crate) fn start(config: &str, sets: &[&str]) -> Server {
        let mut server = Server::launch(config, sets);
        server.process.line("ready after ");
        server
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Client {
    /// Scheme, host and port.
    pub(crate) url: String,
    agent: ureq::Agent,
}

/// An answer that is not streamed.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// Text of an answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Text {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    pub(crate) finish: String,
}

impl Client {
    fn new(url: String) -> Client {
        let config = ureq::Agent::config_builder();
        let config = config.http_status_as_error(false).proxy(None).timeout_global(Some(PATIENCE)).build();
        Client { url, agent: config.into() }
    }

    /// Sends a text as a chat request.
    pub(crate) fn post_text(&self, text: &str) -> Reply {
        let request = self.agent.post(format!("{}/v1/chat/completions", self.url));
        let mut answer = request.content_type("application/json").send(text).expect("an answer");
        let body = answer.body_mut().read_to_string().expect("a whole body");
        let body = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        Reply { status: answer.status().as_u16(), body }
    }

    pub(crate) fn post(&self, body: &Value) -> Reply {
        self.post_text(&body.to_string())
    }

    /// The text that a request gives, streamed or not.
    pub(crate) fn text(&self, body: &Value) -> Text {
        if body["stream"] == json!(true) {
            return self.stream(body).text();
        }
        let reply = self.post(body);
        assert_eq!(reply.status, 200, "{reply:?}");
        let choice = &reply.body["choices"][0];
        let part = |key: &str| choice["message"][key].as_str().unwrap_or_default().to_owned();
        let finish = choice["finish_reason"].as_str().expect("a finish reason").to_owned();
        Text { reasoning: part("reasoning_content"), content: part("content"), finish }
    }

    /// The events of a streamed request.
    pub(crate) fn stream(&self, body: &Value) -> Events {
        let request = self.agent.post(format!("{}/v1/chat/completions", self.url));
        let answer = request.content_type("application/json").send(body.to_string()).expect("an answer");
        assert_eq!(answer.status().as_u16(), 200);
        Events(BufReader::new(Box::new(answer.into_body().into_reader())))
    }
}

/// Chunks of a stream, up to and without `[DONE]`; a stream without it is an error.
pub(crate) struct Events(BufReader<Box<dyn Read + Send>>);

impl Iterator for Events {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            let read = self.0.read_line(&mut line).expect("the stream goes on");
            assert!(read > 0, "the stream ended without [DONE]");
            match line.trim_end().strip_prefix("data: ") {
                Some("[DONE]") => return None,
                Some(data) => return Some(serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"))),
                // Comments and the lines between events.
                None => {}
            }
        }
    }
}

impl Events {
    /// The text of all that comes.
    pub(crate) fn text(self) -> Text {
        let mut text = Text::default();
        for event in self {
            assert!(event["error"].is_null(), "{event}");
            let choice = &event["choices"][0];
            text.reasoning.push_str(choice["delta"]["reasoning_content"].as_str().unwrap_or_default());
            text.content.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
            if let Some(finish) = choice["finish_reason"].as_str() {
                text.finish.push_str(finish);
            }
        }
        text
    }
}

/// A folder that is removed when it is dropped, and a file name in it.
pub(crate) fn scratch() -> (tempfile::TempDir, impl Fn(&str) -> PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_owned();
    (folder, move |name| path.join(name))
}

//! Bad configurations and model files: one clear error on standard error, exit code 1, and nothing else.

use std::path::Path;

use luce_core::DType;
use luce_storage::{Gguf, GgufWriter};

use crate::support::{read, root, run, scratch};

const CPU: &str = "configs/cpu.toml";

/// Runs the server with overrides; it has to end by itself with one error, which is returned.
fn error(config: &str, sets: &[&str]) -> String {
    let mut args = vec!["--config", config, "--set", "api.listen=127.0.0.1:0"];
    args.extend(sets.iter().flat_map(|set| ["--set", set]));
    let ended = run(&args);
    let (before, error) = ended.stderr.split_once("error: ").unwrap_or_else(|| panic!("no error: {}", ended.stderr));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stdout.is_empty(), "{}", ended.stdout);
    assert!(!ended.stderr.contains("panicked") && !error.contains("error: "), "{}", ended.stderr);
    assert!(before.lines().all(|l| ["listening", "actor ", "loading"].iter().any(|w| l.starts_with(w))), "{before}");
    // An error whose text repeats that of its source would be printed twice.
    let mut parts: Vec<&str> = error.trim().split(": ").collect();
    parts.sort_unstable();
    assert!(parts.windows(2).all(|pair| pair[0] != pair[1]), "said twice: {error}");
    error.to_owned()
}

fn says(error: &str, words: &[&str]) {
    assert!(words.iter().all(|word| error.contains(word)), "{words:?} should be in: {error}");
}

/// The error for a model file.
fn model(file: &Path) -> String {
    let text = error(CPU, &[&format!("model.path={}", file.display())]);
    says(&text, &["model.path", file.file_name().unwrap().to_str().unwrap()]);
    text
}

#[test]
fn mistakes_in_the_configuration_are_named_with_their_line() {
    let (_folder, path) = scratch();
    let changed = |from: &str, to: &str| {
        let text = read(CPU);
        assert!(text.contains(from), "{from}");
        let file = path("bad.toml");
        std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
        error(file.to_str().unwrap(), &[])
    };
    says(
        &changed("max_queue =", "max_qeue ="),
        &["bad.toml:25", "`schedule.max_qeue`", "nearest", "`schedule.max_queue`"],
    );
    says(&changed("[numerics]", "[numeric]"), &["bad.toml:37", "`numeric`", "`numerics`"]);
    says(
        &changed("context = 4096", "context = \"4096\""),
        &["bad.toml:10", "`model.context`", "an integer", "a string"],
    );
    says(&changed("context = 4096", "context = 0"), &["bad.toml:10", "`model.context`", "out of range"]);
    says(&changed("\"int8\"", "\"int4\""), &["bad.toml:38", "`numerics.activations`", "\"int8\"", "\"f32\""]);
    says(&changed("kind = \"cpu\"", "kind = \"gpu\""), &["bad.toml:18", "not in this build", "\"cpu\""]);
    says(&changed("\"experts\", ", ""), &["box `main`", "\"experts\"", "at least one"]);
    says(&changed("[model]", "[model"), &["bad.toml:8", "not TOML"]);
    says(&changed("listen =", "lissten ="), &["bad.toml:43", "`api.lissten`", "nearest", "`api.listen`"]);
    says(&changed("[api]", "[api]\nkeep_alive = \"5\""), &["bad.toml:43", "`api.keep_alive` cannot be used", "\"5\""]);
    says(&error("no/such.toml", &[]), &["cannot read the configuration no/such.toml", "No such file"]);
    says(&error(CPU, &["schedule.max_queue=many"]), &["--set schedule.max_queue=many", "an integer"]);
    says(&error(CPU, &["api.max_body=lots"]), &["--set api.max_body=lots", "`api.max_body`"]);
    says(&error(CPU, &["api.listen=0.0.0.0:0"]), &["api.listen = 0.0.0.0:0", "other machines", "api.allow_remote"]);
    says(&error(CPU, &["box.main.actor.cpu.threads=2000"]), &["threads` = 2000", "out of range", "0 to 1024"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    says(&error(CPU, &[&format!("api.listen={address}")]), &["cannot listen on", &address, "api.listen"]);
    let ended = run(&["--config", CPU, "--box", "other"]);
    says(&ended.stderr, &["error: there is no box `other`", "main", "--box"]);
    assert_eq!(ended.code, Some(1));
}

#[test]
fn model_files_that_are_missing_cut_or_foreign_are_refused_by_name() {
    let (_folder, path) = scratch();
    says(
        &error(CPU, &["model.path=no.gguf"]),
        &["model.path = no.gguf", "cannot open it", "No such file", "starts at"],
    );

    let whole = std::fs::read(root().join("tests/fixtures/models/tiny-v4-q.gguf")).unwrap();
    for bytes in [0, 3, 4000, whole.len() / 2, whole.len() - 64] {
        let file = path("cut.gguf");
        std::fs::write(&file, &whole[..bytes]).unwrap();
        says(&model(&file), &["fetch it again"]);
    }
    std::fs::write(path("text.gguf"), "[model]\n".repeat(99)).unwrap();
    says(&model(&path("text.gguf")), &["GGUF"]);
    says(&model(&root().join("models/luce-nano/luce-nano-dspark.gguf")), &["drafter", "not model.path"]);

    let changed = |change: &dyn Fn(&mut GgufWriter)| {
        let tiny = Gguf::open(root().join("tests/fixtures/models/tiny-v4-q.gguf")).unwrap();
        let mut writer = GgufWriter::from_gguf(&tiny).unwrap();
        change(&mut writer);
        let file = path("changed.gguf");
        let _ = std::fs::remove_file(&file);
        writer.write(&file).unwrap();
        model(&file)
    };
    says(
        &changed(&|w| {
            w.set("general.architecture", "llama");
        }),
        &["\"llama\"", "not supported", "deepseek41"],
    );
    let norm = "blk.0.attn_norm.weight";
    says(
        &changed(&|w| {
            let tensor = w.tensor_mut(norm).unwrap();
            tensor.dtype = DType::I16;
            tensor.data = vec![0; tensor.dims[0] as usize * 2];
        }),
        &[norm, "I16", "F32, F16 or BF16"],
    );
    says(
        &changed(&|w| {
            let tensor = w.tensor_mut("token_embd.weight").unwrap();
            tensor.dtype = DType::I32;
            tensor.data = vec![0; tensor.dims.iter().product::<u64>() as usize * 4];
        }),
        &["token_embd.weight", "I32", "quantised"],
    );
    says(&changed(&|w| w.tensors.retain(|t| t.name != norm)), &["1 tensors are missing", norm]);
    says(&changed(&|w| drop(w.remove("deepseek4.embedding_length"))), &["embedding_length", "missing"]);
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_the_sizes_and_the_key_to_lower() {
    says(&error(CPU, &["model.context=5000"]), &["model.context = 5000", "4096", "lower"]);
    let memory = "box.main.actor.cpu.memory";
    let tight = [&format!("{memory}=150MiB"), "schedule.decode.max_sequences=64"];
    let text = error(CPU, &tight);
    says(&text, &["actor cpu", "weights 19.", "caches 20", "lanes ", "it has 150.00 MiB", "lower model.context"]);
    says(&text, &["schedule.decode.max_sequences", "schedule.prefill.chunk", "raise"]);
    // What the device needs beside that is noticed too.
    let total = text.split("MiB: ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let scratch = error(CPU, &[&format!("{memory}={:.2}MiB", total.parse::<f64>().unwrap() + 0.01), tight[1]]);
    says(&scratch, &["actor cpu is short of memory", "lower model.context", "do not fit", "are free"]);
    // And the way out is one.
    let ended = run(&["run", "--config", CPU, "--set", tight[0], "--set", "schedule.decode.max_sequences=8", "Hello"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

//! From a configuration to an engine.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use luce_api::ApiConfig;
use luce_core::{ActorId, Precision, Reduce};
use luce_device::BandLayout;
use luce_model::chat::{ChatFormat, EffortProfile};
use luce_model::tokenizer::Tokenizer;
use luce_model::{Program, ProgramOptions};
use luce_runtime::config::{self, Activations, ActorSection, Config, Loaded, Qat, ReduceMode, Role};
use luce_runtime::{ActorInfo, Engine, EngineOptions, Footprint, Fuse, Model, Placement, WaitPolicy, Wiring};

use crate::linked;

/// A configuration, the model that it names, and what follows from both.
pub(crate) struct Plan {
    pub(crate) config: Config<ApiConfig>,
    pub(crate) model: Model,
    pub(crate) placement: Placement,
    pub(crate) program: ProgramOptions,
    box_name: Option<String>,
}

/// Reads the configuration, with overrides, and checks all of it.
pub(crate) fn load(file: &Path, sets: &[String]) -> anyhow::Result<Loaded<ApiConfig>> {
    let loaded: Loaded<ApiConfig> = config::load(file, sets)?;
    loaded.config.api.check()?;
    Ok(loaded)
}

impl Plan {
    /// Opens the model and places its roles.
    pub(crate) fn new(config: Config<ApiConfig>, box_name: Option<String>) -> anyhow::Result<Plan> {
        let path = &config.model.path;
        let model = Model::open(path).with_context(|| {
            let start = match std::env::current_dir() {
                Ok(here) if path.is_relative() && !path.exists() => format!(", which starts at {}", here.display()),
                _ => String::new(),
            };
            format!("model.path = {}{start}", path.display())
        })?;
        let actors = &config.this_box(box_name.as_deref())?.actors;
        let with = |role| (0u16..).zip(actors).filter(move |(_, a)| a.roles.contains(&role)).map(|(i, _)| ActorId(i));
        let dense = with(Role::Dense).next().context("no actor has the role dense")?;
        let experts: Vec<ActorId> = with(Role::Experts).collect();
        anyhow::ensure!(
            (1..=usize::from(ProgramOptions::MAX_OWNERS)).contains(&experts.len()),
            "{} actors have the role experts; 1 to {} are possible",
            experts.len(),
            ProgramOptions::MAX_OWNERS
        );
        let numerics = &config.numerics;
        if numerics.qat == Qat::Kv {
            model.config.check_fake_quantisation()?;
        }
        anyhow::ensure!(
            config.model.context <= model.config.context,
            "model.context = {}, but the model was made for {} positions; lower it",
            config.model.context,
            model.config.context
        );
        let slots = config.schedule.decode.max_sequences;
        let program = ProgramOptions {
            precision: match numerics.activations {
                Activations::Int8 => Precision::Partner,
                Activations::F32 => Precision::F32,
            },
            reduce: match numerics.reduce {
                ReduceMode::Exact => Reduce::Exact,
                ReduceMode::F32 => Reduce::F32,
            },
            qat: numerics.qat == Qat::Kv,
            owners: experts.len() as u8,
            max_rows: config.schedule.prefill.chunk.max(slots),
            max_picks: slots,
            slots,
            context: config.model.context,
        };
        let names = actors.iter().map(|a| a.name.clone()).collect();
        Ok(Plan { placement: Placement { names, dense, experts }, config, model, program, box_name })
    }

    fn compile(&self) -> (Program, Wiring) {
        let program = Program::build(&self.model.config, &self.model.weights, self.program);
        let wiring = Wiring::compile(&program, &self.placement, Fuse::Neighbours);
        (program, wiring)
    }

    /// The wiring as text or for Graphviz.
    pub(crate) fn wiring(&self, dot: bool) -> String {
        let (program, wiring) = self.compile();
        if dot { wiring.dot(&program) } else { wiring.text(&program) }
    }

    /// The name that clients see.
    fn name(&self) -> String {
        let from_file = self.model.gguf.catalog().get("general.name").and_then(|v| v.as_str());
        let stem = self.config.model.path.file_stem().and_then(|s| s.to_str());
        self.config.model.name.as_deref().or(from_file).or(stem).unwrap_or("model").to_owned()
    }

    /// Tokenizer and prompt format of the model.
    pub(crate) fn chat(&self) -> anyhow::Result<(Arc<Tokenizer>, ChatFormat)> {
        let catalog = self.model.gguf.catalog();
        let tokenizer = Tokenizer::from_catalog(catalog)?;
        let format = ChatFormat::new(self.model.config.family, EffortProfile::guess(catalog));
        format.check(&tokenizer)?;
        Ok((Arc::new(tokenizer), format))
    }

    /// Starts the devices and the engine, and prints what each actor runs on and allocates; loading goes on in the
    /// background.
    pub(crate) fn engine(&self) -> anyhow::Result<Engine> {
        let actors = &self.config.this_box(self.box_name.as_deref())?.actors;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wait = self.config.schedule.wait.spin_us;
        // Cores that no actor names are shared out among those that say 0.
        let open = actors.iter().filter(|a| a.threads == 0).count().max(1);
        let taken: usize = actors.iter().map(|a| a.threads).sum();
        let share = (cores.saturating_sub(taken) / open).max(1);
        let sections = actors.clone();
        let make = move || {
            let make = |a: &ActorSection| linked::device(a, share, wait).with_context(|| format!("actor {}", a.name));
            sections.iter().map(make).collect::<anyhow::Result<Vec<_>>>()
        };
        let devices = make()?;
        let bands_in_flight = self.config.schedule.prefill.bands_in_flight;
        let (program, wiring) = self.compile();
        let layout = BandLayout { max_rows: self.program.max_rows };
        let lanes = 1 + bands_in_flight as usize;
        let needs = Footprint::of(&wiring, &program, &self.model.config, lanes, layout);
        let mut infos = Vec::new();
        for ((section, device), need) in actors.iter().zip(&devices).zip(needs) {
            eprintln!("actor {}: {}: {need}", section.name, device.info().name);
            infos.push(ActorInfo {
                kind: section.kind.to_string(),
                roles: section.roles.iter().map(ToString::to_string).collect(),
                memory: need.total().0,
                budget: section.memory,
            });
        }
        // The first plane gets the devices that were just shown; one after a failure gets new ones.
        let first = Mutex::new(Some(devices));
        let devices = Arc::new(move || {
            let shown = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            shown.map_or_else(|| make().map_err(|e| format!("{e:#}")), Ok)
        });
        let options = EngineOptions {
            program: self.program,
            bands_in_flight,
            max_queue: self.config.schedule.max_queue,
            wait: WaitPolicy { spin: Duration::from_micros(u64::from(wait)) },
            name: self.name(),
            actors: infos,
        };
        Ok(Engine::start(self.model.clone(), self.placement.clone(), devices, options)?)
    }
}

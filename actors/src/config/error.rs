//! What can be wrong with a configuration, and where a value came from.

use std::fmt;

use super::place::Place;

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A place of the file.
    File(Place),
    /// The environment variable of this name.
    Env(String),
    /// `--set` with this argument.
    Set(String),
    /// Nobody set it.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(place) => write!(f, "{}:{}", place.file(), place.line()),
            Origin::Env(name) => write!(f, "environment {}", plain(name)),
            Origin::Set(argument) => write!(f, "--set {}", plain(argument)),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// What a user wrote, as part of a message: without control characters, so that messages stay one line.
pub(super) fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Why a configuration cannot be used. Each message names the place and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {file}")]
    Read {
        /// The path as it was given.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{at}: not TOML: {message}")]
    Syntax {
        /// The line.
        at: Origin,
        /// What the TOML parser says.
        message: String,
    },
    /// No such key.
    #[error("{at}: unknown key `{key}`; nearest known key: `{nearest}` (known here: {known})")]
    UnknownKey {
        /// The whole key, with dots.
        key: String,
        /// Where it stands.
        at: Origin,
        /// The known key of the same table with the fewest differing letters.
        nearest: String,
        /// All known keys of that table.
        known: String,
    },
    /// A value of another type than the key takes.
    #[error("{at}: `{key}` takes {expected}, but this is {found}")]
    WrongType {
        /// The whole key, with dots.
        key: String,
        /// Where it stands.
        at: Origin,
        /// The type it takes.
        expected: &'static str,
        /// The type it has.
        found: &'static str,
    },
    /// A value of the right type that the key cannot take.
    #[error("{at}: `{key}` {message}")]
    Value {
        /// The whole key, with dots.
        key: String,
        /// Where it stands.
        at: Origin,
        /// What is wrong with it.
        message: String,
    },
    /// A key that has to be there is not.
    #[error("{at}: `{key}` is missing; add {example}")]
    Missing {
        /// The whole key, with dots.
        key: String,
        /// The table it should stand in.
        at: Origin,
        /// A line to add.
        example: &'static str,
    },
    /// Known to the format, but this build cannot do it.
    #[error("{at}: `{key}` = \"{value}\" is not in this build yet; it takes {instead}")]
    NotInBuild {
        /// The whole key, with dots.
        key: String,
        /// Where it stands.
        at: Origin,
        /// The value.
        value: String,
        /// What this build takes.
        instead: String,
    },
    /// The actors of a box cannot serve the model together.
    #[error("{at}: box `{name}`: {message}")]
    Roles {
        /// The box.
        name: String,
        /// Where it begins.
        at: Origin,
        /// What is missing or too much.
        message: String,
    },
    /// An override that names nothing.
    #[error("{at}: {message}")]
    Override {
        /// The override.
        at: Origin,
        /// What is wrong with it.
        message: String,
    },
    /// No box of the file is this machine.
    #[error("{message}; boxes of this configuration: {known}. Name one with --box")]
    NoBox {
        /// What was looked for.
        message: String,
        /// The boxes there are.
        known: String,
    },
}

impl ConfigError {
    /// Where the mistake stands, if it has a place: for pointing at the line of the file.
    pub fn origin(&self) -> Option<&Origin> {
        match self {
            ConfigError::Read { .. } | ConfigError::NoBox { .. } => None,
            ConfigError::Syntax { at, .. }
            | ConfigError::UnknownKey { at, .. }
            | ConfigError::WrongType { at, .. }
            | ConfigError::Value { at, .. }
            | ConfigError::Missing { at, .. }
            | ConfigError::NotInBuild { at, .. }
            | ConfigError::Roles { at, .. }
            | ConfigError::Override { at, .. } => Some(at),
        }
    }

    /// The line of the file with the mistake marked, for people at a terminal; see [`Place::excerpt`].
    pub fn excerpt(&self) -> Option<String> {
        match self.origin()? {
            Origin::File(place) => Some(place.excerpt()),
            Origin::Env(_) | Origin::Set(_) | Origin::Default => None,
        }
    }
}

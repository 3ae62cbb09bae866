//! The macros that define keys. A field's type, doc comment and shape stand once; from them come the struct, what reads it,
//! the defaults that `luce-actors config` prints, and the tables of `docs/configuration.md`.

use super::error::ConfigError;
use super::load::Setting;
use super::section::Section;
use super::shape::Describe;

/// A key of a table.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// The field's doc comment.
    pub(super) meaning: &'static str,
    pub(super) shape: &'static dyn Describe,
}

/// A table that [`settings!`] defined.
pub(super) trait Settings: Sized {
    /// The struct's doc comment.
    const ABOUT: &'static str;
    const KEYS: &'static [Key];

    /// Reads every key of the table and notes its value in `log`.
    fn read(section: &Section<'_>, log: &mut Vec<Setting>) -> Result<Self, ConfigError>;
}

/// A word that a key takes, what it stands for, and its variant's doc comment.
pub(super) type Word<T> = (&'static str, T, &'static str);

/// Defines tables: `field: Type = Shape`, or `field as "key": Type = Shape` where the key has another name.
macro_rules! settings {
    ($(
        $(#[doc = $about:literal])+
        pub struct $table:ident {
            $($(#[doc = $meaning:literal])+ pub $field:ident $(as $key:literal)?: $type:ty = $shape:expr,)+
        }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $table {
            $(
                $(#[doc = $meaning])+
                #[doc = concat!("\n\n`", stringify!($shape), "`")]
                pub $field: $type,
            )+
        }

        impl Settings for $table {
            const ABOUT: &'static str = concat!($($about),+);
            const KEYS: &'static [Key] = &[$(Key {
                name: settings!(@name $field $($key)?),
                meaning: concat!($($meaning),+),
                shape: &$shape,
            }),+];

            fn read(section: &Section<'_>, log: &mut Vec<Setting>) -> Result<Self, ConfigError> {
                Ok($table {
                    $($field: Shape::<$type>::read(&$shape, section, settings!(@name $field $($key)?), log)?,)+
                })
            }
        }
    )+};
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };
}

/// Defines the words of a key: `Variant = "word"`; the first is the default of a key that takes one of them.
macro_rules! words {
    ($(
        $(#[doc = $about:literal])+
        pub enum $name:ident { $($(#[doc = $meaning:literal])+ $variant:ident = $word:literal,)+ }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name { $($(#[doc = $meaning])+ $variant,)+ }

        impl $name {
            pub(super) const WORDS: &'static [Word<$name>] =
                &[$(($word, $name::$variant, concat!($($meaning),+))),+];
        }
    )+};
}

pub(super) use {settings, words};

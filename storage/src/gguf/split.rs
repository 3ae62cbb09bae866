//! File names of split models: `PREFIX-00001-of-00003.gguf` (spec/formats.md section 1.3).

use std::path::{Path, PathBuf};

/// A file name that says which part of how many it is. The digits may be of any number, the extension in any case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SplitName {
    path: PathBuf,
    prefix: String,
    no_digits: usize,
    count_digits: usize,
    extension: String,
    /// Part, from 1 where the name is sound.
    pub(super) no: u64,
    /// Number of parts.
    pub(super) count: u64,
}

impl SplitName {
    /// The parts of a name that looks split, `None` for any other.
    pub(super) fn parse(path: &Path) -> Option<SplitName> {
        let name = path.file_name()?.to_str()?;
        let (stem, extension) = name.rsplit_once('.')?;
        let (left, count) = stem.rsplit_once("-of-")?;
        let (prefix, no) = left.rsplit_once('-')?;
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse::<u64>().ok()).flatten()
        };
        (extension.eq_ignore_ascii_case("gguf") && !prefix.is_empty()).then_some(())?;
        Some(SplitName {
            path: path.to_owned(),
            prefix: prefix.to_owned(),
            no_digits: no.len(),
            count_digits: count.len(),
            extension: extension.to_owned(),
            no: number(no)?,
            count: number(count)?,
        })
    }

    /// Path of part `no` (from 1) of the same model.
    pub(super) fn part(&self, no: u64) -> PathBuf {
        let SplitName { prefix, no_digits, count_digits, extension, count, .. } = self;
        self.path.with_file_name(format!("{prefix}-{no:0no_digits$}-of-{count:0count_digits$}.{extension}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_keep_folder_prefix_digits_and_extension() {
        let name = SplitName::parse(Path::new("/m/a-b.c-00002-of-00012.gguf")).unwrap();
        assert_eq!((name.no, name.count), (2, 12));
        assert_eq!(name.part(11), Path::new("/m/a-b.c-00011-of-00012.gguf"));
        let odd = SplitName::parse(Path::new("x-1-of-002.GGUF")).unwrap();
        assert_eq!((odd.no, odd.count), (1, 2));
        assert_eq!(odd.part(2), Path::new("x-2-of-002.GGUF"));
    }

    #[test]
    fn ordinary_names_do_not_look_split() {
        for name in
            ["a.gguf", "a-1-of-2.bin", "a-1-of-.gguf", "a--of-2.gguf", "1-of-2.gguf", "-1-of-2.gguf", "a-x-of-2.gguf"]
        {
            assert_eq!(SplitName::parse(Path::new(name)), None, "{name}");
        }
        assert_eq!(SplitName::parse(Path::new("a-1-of-99999999999999999999999.gguf")), None);
    }
}

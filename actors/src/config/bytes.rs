//! Sizes in bytes, as people write them: `2GiB`.

/// Units and their powers of two.
const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("B", 0)];

/// Parses `512MiB`, `1.5GiB` or `4096B`. The error says what is wrong with it, as the end of a sentence.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let (digits, shift) = UNITS
        .iter()
        .find_map(|(unit, shift)| text.trim().strip_suffix(unit).map(|digits| (digits.trim_end(), *shift)))
        .ok_or_else(|| {
            format!("= \"{text}\" has no known unit: write B, KiB, MiB, GiB or TiB, for example \"2GiB\"")
        })?;
    let wrong = || format!("= \"{text}\" is no size: write a number and a unit, for example \"2GiB\"");
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    if !plain(whole) || !plain(fraction) || fraction.len() > 6 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let parts: u64 = fraction.parse().map_err(|_| wrong())?;
    let scale = 10u64.pow(u32::try_from(fraction.len()).map_err(|_| wrong())?);
    let bytes = (u128::from(whole) << shift) + (u128::from(parts) << shift) / u128::from(scale);
    match u64::try_from(bytes) {
        Ok(0) => Err(format!("= \"{text}\" is nothing: leave the key out for no limit")),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(format!("= \"{text}\" is more than a machine can have")),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(parse("2GiB"), Ok(2 << 30));
        assert_eq!(parse("1.5 KiB"), Ok(1536));
        assert_eq!(parse("4096B"), Ok(4096));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["2GB", "2", "GiB", "-1GiB", "1.GiB", "0MiB", "99999999999TiB", "1e3B"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

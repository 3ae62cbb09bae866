//! JSON as prompts write it: `", "` and `": "` between, other scripts unescaped, objects in their own order, integers with
//! all their digits, floats with a point or an exponent.
//!
//! Floats have the shortest digits that read back the same. V4.1 writes them as Python does: an exponent of at least two
//! digits below 1e-4 and from 1e16 on. V4 differs for small ones: plain digits down to 1e-5, then an exponent without
//! padding.

use serde_json::Value;

use crate::Family;

/// Appends `value` to `out`.
pub fn write_json(value: &Value, family: Family, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Value::Number(n) => match n.as_f64() {
            Some(x) if n.is_f64() => write_float(x, family, out),
            _ => out.push_str(&n.to_string()),
        },
        Value::String(s) => write_string(s, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_json(item, family, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_string(key, out);
                out.push_str(": ");
                write_json(item, family, out);
            }
            out.push('}');
        }
    }
}

/// Appends `text` in quotes; only quotes, backslashes and control characters are escaped.
pub(super) fn write_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a string is always JSON"));
}

fn write_float(x: f64, family: Family, out: &mut String) {
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is an integer");
    let smallest = if family == Family::V4 { -5 } else { -4 };
    if (smallest..16).contains(&exponent) {
        let plain = x.to_string();
        out.push_str(&plain);
        if !plain.contains('.') {
            out.push_str(".0");
        }
        return;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let width = if family == Family::V4 { 0 } else { 2 };
    out.push_str(&format!("{digits}e{sign}{:0width$}", exponent.abs()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &str, family: Family) -> String {
        let mut out = String::new();
        write_json(&serde_json::from_str(text).unwrap(), family, &mut out);
        out
    }

    /// Each as both reference encoders print it.
    #[test]
    fn numbers_are_printed_as_the_references_do() {
        for (text, v4, v41) in [
            ("1.50", "1.5", "1.5"),
            ("100.0", "100.0", "100.0"),
            ("-0.0", "-0.0", "-0.0"),
            ("1e15", "1000000000000000.0", "1000000000000000.0"),
            ("1e16", "1e+16", "1e+16"),
            ("123456789012345680000.0", "1.2345678901234568e+20", "1.2345678901234568e+20"),
            ("1.5e300", "1.5e+300", "1.5e+300"),
            ("0.00012345", "0.00012345", "0.00012345"),
            ("0.00001", "0.00001", "1e-05"),
            ("-0.000012345", "-0.000012345", "-1.2345e-05"),
            ("1e-6", "1e-6", "1e-06"),
            ("1.5e-7", "1.5e-7", "1.5e-07"),
            ("1e-10", "1e-10", "1e-10"),
            ("5e-324", "5e-324", "5e-324"),
            ("18446744073709551615", "18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "1.8446744073709552e+19", "1.8446744073709552e+19"),
            ("-9223372036854775808", "-9223372036854775808", "-9223372036854775808"),
        ] {
            assert_eq!(write(text, Family::V4), v4, "V4 {text}");
            assert_eq!(write(text, Family::V41), v41, "V4.1 {text}");
        }
    }

    #[test]
    fn structure_keeps_its_order_and_scripts_stay_readable() {
        let text = r#"{"b":[1,{"z":null}],"a":"ü\"\u0007\n中","e":{},"l":[]}"#;
        assert_eq!(write(text, Family::V4), r#"{"b": [1, {"z": null}], "a": "ü\"\u0007\n中", "e": {}, "l": []}"#);
    }
}

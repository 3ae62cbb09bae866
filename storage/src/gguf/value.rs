//! Metadata values: the twelve element types of GGUF and how to read them.

use luce_core::{MetaArray, MetaValue};

use super::cursor::{Cursor, Fault};

macro_rules! value_types {
    ($($id:literal $name:ident $text:literal $size:literal;)*) => {
        /// How wide a metadata value is in the file; for an array, its elements.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum ValueType { $($name,)* }

        impl ValueType {
            /// Every type, in the order of their ids.
            pub const ALL: &'static [ValueType] = &[$(ValueType::$name,)*];

            /// The type with this id; `None` for arrays (9) and unknown ids.
            pub const fn from_id(id: u32) -> Option<ValueType> {
                match id { $($id => Some(ValueType::$name),)* _ => None }
            }

            /// GGUF id.
            pub const fn id(self) -> u32 {
                match self { $(ValueType::$name => $id,)* }
            }

            /// Name for messages.
            pub const fn name(self) -> &'static str {
                match self { $(ValueType::$name => $text,)* }
            }

            /// Bytes of one value; of a string at least.
            pub const fn bytes_min(self) -> u64 {
                match self { $(ValueType::$name => $size,)* }
            }
        }
    };
}

value_types! {
    0 U8 "u8" 1;
    1 I8 "i8" 1;
    2 U16 "u16" 2;
    3 I16 "i16" 2;
    4 U32 "u32" 4;
    5 I32 "i32" 4;
    6 F32 "f32" 4;
    7 Bool "bool" 1;
    8 String "string" 8;
    10 U64 "u64" 8;
    11 I64 "i64" 8;
    12 F64 "f64" 8;
}

/// Type id of an array: u32 element type, u64 count, elements.
pub(crate) const ARRAY_ID: u32 = 9;

/// Reads the type id and the value.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<(MetaValue, ValueType), Fault> {
    let id = cursor.u32()?;
    if id == ARRAY_ID {
        let (array, element) = read_array(cursor)?;
        return Ok((MetaValue::Array(array), element));
    }
    let kind = ValueType::from_id(id)
        .ok_or_else(|| Fault::Wrong(format!("value type {id} is unknown: the file is damaged or too new")))?;
    cursor.need(Some(kind.bytes_min()), "its value")?;
    Ok((read_scalar(cursor, kind)?, kind))
}

fn read_scalar(cursor: &mut Cursor<'_>, kind: ValueType) -> Result<MetaValue, Fault> {
    let mut bytes = [0; 8];
    let bytes = &mut bytes[..kind.bytes_min() as usize];
    Ok(match kind {
        ValueType::String => MetaValue::String(cursor.string(u64::MAX, "its text")?),
        ValueType::Bool => MetaValue::Bool(truth(cursor.u8()?)?),
        ValueType::F32 | ValueType::F64 => {
            cursor.fill(bytes)?;
            MetaValue::Float(float(bytes))
        }
        ValueType::I8 | ValueType::I16 | ValueType::I32 | ValueType::I64 => {
            cursor.fill(bytes)?;
            MetaValue::Signed(signed(bytes))
        }
        ValueType::U8 | ValueType::U16 | ValueType::U32 | ValueType::U64 => {
            cursor.fill(bytes)?;
            MetaValue::Unsigned(unsigned(bytes))
        }
    })
}

fn read_array(cursor: &mut Cursor<'_>) -> Result<(MetaArray, ValueType), Fault> {
    let id = cursor.u32()?;
    if id == ARRAY_ID {
        return Err(Fault::Wrong("arrays of arrays are not supported, and no DeepSeek model has them".to_owned()));
    }
    let kind = ValueType::from_id(id)
        .ok_or_else(|| Fault::Wrong(format!("array element type {id} is unknown: the file is damaged or too new")))?;
    let count = cursor.u64()?;
    let what = format!("an array of {count} {} elements", kind.name());
    cursor.need(count.checked_mul(kind.bytes_min()), &what)?;
    let count = count as usize; // at most HEADER_BYTES_MAX
    let array = match kind {
        ValueType::U8 => {
            let mut bytes = vec![0; count];
            cursor.fill(&mut bytes)?;
            MetaArray::U8(bytes)
        }
        ValueType::U16 | ValueType::U32 | ValueType::U64 => {
            MetaArray::Unsigned(numbers(cursor, kind, count, |b| Ok(unsigned(b)))?)
        }
        ValueType::I8 | ValueType::I16 | ValueType::I32 | ValueType::I64 => {
            MetaArray::Signed(numbers(cursor, kind, count, |b| Ok(signed(b)))?)
        }
        ValueType::F32 | ValueType::F64 => MetaArray::Float(numbers(cursor, kind, count, |b| Ok(float(b)))?),
        ValueType::Bool => MetaArray::Bool(numbers(cursor, kind, count, |b| truth(b[0]))?),
        ValueType::String => {
            let mut texts = Vec::with_capacity(count);
            for i in 0..count {
                texts.push(cursor.string(u64::MAX, "a text").map_err(|e| match e {
                    Fault::Wrong(problem) => Fault::Wrong(format!("element {i} of {count}: {problem}")),
                    other => other,
                })?);
            }
            MetaArray::String(texts)
        }
    };
    Ok((array, kind))
}

/// `count` values of one fixed width; their bytes are known to be there.
fn numbers<T>(
    cursor: &mut Cursor<'_>,
    kind: ValueType,
    count: usize,
    decode: impl Fn(&[u8]) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let size = kind.bytes_min() as usize;
    let mut chunk = [0; 4096];
    let mut out = Vec::with_capacity(count);
    while out.len() < count {
        let bytes = &mut chunk[..(count - out.len()).min(4096 / size) * size];
        cursor.fill(bytes)?;
        for value in bytes.chunks_exact(size) {
            out.push(decode(value)?);
        }
    }
    Ok(out)
}

/// Little-endian bytes, up to 8 of them.
fn unsigned(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |a, &b| a << 8 | u64::from(b))
}

/// Little-endian two's complement bytes, 1 to 8 of them.
fn signed(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len() as u32;
    (unsigned(bytes) << unused) as i64 >> unused
}

/// Four or eight bytes of an IEEE number.
fn float(bytes: &[u8]) -> f64 {
    let bits = unsigned(bytes);
    if bytes.len() == 4 { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) }
}

fn truth(byte: u8) -> Result<bool, Fault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Fault::Wrong(format!("a truth value is stored as {byte}, which is neither 0 nor 1"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_lead_back_to_their_types_and_the_array_id_is_no_element_type() {
        for &t in ValueType::ALL {
            assert_eq!(ValueType::from_id(t.id()), Some(t));
        }
        assert_eq!(ValueType::from_id(ARRAY_ID), None);
        assert_eq!(ValueType::from_id(13), None);
    }

    #[test]
    fn numbers_of_every_width_keep_sign_and_value() {
        assert_eq!(signed(&[0x80]), -128);
        assert_eq!(signed(&(-2i16).to_le_bytes()), -2);
        assert_eq!(signed(&i32::MIN.to_le_bytes()), i64::from(i32::MIN));
        assert_eq!(signed(&i64::MIN.to_le_bytes()), i64::MIN);
        assert_eq!(unsigned(&u64::MAX.to_le_bytes()), u64::MAX);
        assert_eq!(unsigned(&0xFEDCu16.to_le_bytes()), 0xFEDC);
        assert_eq!(float(&1.5f32.to_le_bytes()), 1.5);
        assert_eq!(float(&(-1e300f64).to_le_bytes()), -1e300);
    }
}

//! Decoders and quantisers against golden bytes that were cross-checked with the C originals (spec/formats.md section 5).

#![allow(clippy::unwrap_used)]

use luce_core::DType;
use luce_device_cpu::quant::checkpoint::{engram_row, engram_row_is_valid, fp4_expert, fp4_expert_to_mxfp4, fp8_tiled};
use luce_device_cpu::quant::{ActFormat, MixBook, act_bytes, can_decode, decode_row, partner, quantize};
use proptest::prelude::*;
use serde_json::Value;

fn file(name: &str) -> Vec<u8> {
    let path = format!("{}/../../tests/fixtures/quants/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn floats(name: &str) -> Vec<f32> {
    file(name).as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn index(part: &str) -> Vec<Value> {
    let index: Value = serde_json::from_slice(&file("index.json")).unwrap();
    index[part].as_array().unwrap().clone()
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry[key].as_str().unwrap_or_else(|| panic!("{key} missing in {entry}"))
}

fn number(entry: &Value, key: &str) -> usize {
    entry[key].as_u64().unwrap_or_else(|| panic!("{key} missing in {entry}")) as usize
}

/// Bit for bit, except that +0 may stand for -0.
fn assert_same(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}: number of values");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let same = got.to_bits() == want.to_bits() || got.to_bits() == 0 && *want == 0.0;
        assert!(same, "{what}, value {i}: {got:e} instead of {want:e}");
    }
}

fn book_of(entry: &Value, dtype: DType) -> Option<MixBook> {
    let name = entry.get("codebook_file")?.as_str().unwrap();
    let values: Vec<u16> = file(name).as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b)).collect();
    Some(MixBook::from_bf16(dtype, 1, &values).unwrap())
}

/// Two ascending codebooks with the number of levels that `dtype` has; `None` for types without codebooks.
fn any_book(dtype: DType, mode: u8) -> Option<MixBook> {
    let levels = MixBook::levels_of(dtype)? as u16;
    let values: Vec<u16> = (0..levels).chain(0..levels).map(|i| 0x4000 + i).collect();
    Some(MixBook::from_bf16(dtype, mode, &values).unwrap())
}

#[test]
fn all_72_golden_sets_decode_bit_for_bit() {
    let mut compared = 0;
    let mut types = std::collections::BTreeSet::new();
    for entry in index("types") {
        let dtype = DType::from_id(number(&entry, "type_id") as u32).unwrap();
        let what = format!("{} {}", text(&entry, "type"), text(&entry, "set"));
        let bytes = file(text(&entry, "block_file"));
        let want = floats(text(&entry, "expected_file"));
        assert_eq!(want.len(), number(&entry, "n_values"), "{what}");
        assert_eq!(dtype.block_bytes(), number(&entry, "block_bytes"), "{what}");
        // Poisoned, so that a value that the decoder skips is seen.
        let mut got = vec![f32::NAN; want.len()];
        decode_row(dtype, &bytes, &mut got, book_of(&entry, dtype).as_ref()).unwrap();
        assert_same(&what, &got, &want);
        compared += 1;
        types.insert(dtype);
    }
    assert!(compared >= 72, "only {compared} sets were compared");
    let missing: Vec<_> = DType::ALL.iter().filter(|&&d| can_decode(d) && !types.contains(&d)).collect();
    assert!(missing.is_empty(), "no golden set for {missing:?}");
}

#[test]
fn mix_rows_in_fixed_mode_decode_like_the_types_without_mix() {
    for (mix, plain, blocks) in [
        (DType::Rocmfp3Mix, DType::Rocmfp3, "q3_0_rocmfpx.sweep.blocks.bin"),
        (DType::Rocmfp2Mix, DType::Rocmfp2, "q2_0_rocmfp2.sweep.blocks.bin"),
    ] {
        let fixed = any_book(mix, 0);
        let mut bytes = file(blocks);
        let n = bytes.len() / plain.block_bytes() * 32;
        let (mut got, mut want) = (vec![f32::NAN; n], vec![0.0; n]);
        decode_row(plain, &bytes, &mut want, None).unwrap();
        decode_row(mix, &bytes, &mut got, fixed.as_ref()).unwrap();
        assert_same(mix.name(), &got, &want);
        // A scale byte above 0x7E gives zeros; it is no sign, and it chooses no codebook.
        *bytes.last_mut().unwrap() |= 0x80;
        decode_row(mix, &bytes, &mut got, fixed.as_ref()).unwrap();
        assert_same(mix.name(), &got[..n - 16], &want[..n - 16]);
        assert!(got[n - 16..].iter().all(|&v| v == 0.0), "{mix}");
    }
}

#[test]
fn activation_blocks_equal_ggml_byte_for_byte() {
    let mut compared = 0;
    for entry in index("activations") {
        let format = match text(&entry, "type") {
            "Q8_0" => ActFormat::Q8_0,
            "Q8_1" => ActFormat::Q8_1,
            "Q8_K" => ActFormat::Q8K,
            other => panic!("unknown activation type {other}"),
        };
        assert_eq!(format.block_values(), number(&entry, "block_values"), "{format:?}");
        assert_eq!(format.block_bytes(), number(&entry, "block_bytes"), "{format:?}");
        let x = floats(text(&entry, "input_file"));
        let want = file(text(&entry, "block_file"));
        let mut got = vec![0xAA; act_bytes(format, x.len())];
        quantize(format, &x, &mut got);
        let different = got.iter().zip(&want).position(|(a, b)| a != b);
        assert!(got.len() == want.len() && different.is_none(), "{format:?}: byte {different:?} differs");
        compared += 1;
    }
    assert_eq!(compared, 3);
}

#[test]
fn half_and_bf16_activations_round_to_nearest_even() {
    let mut x = floats("act.f32.bin");
    // Ties at half precision (downwards, upwards), a subnormal half, overflow, and lengths that no vector divides.
    x.extend([1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0, 3.0e-7, 65_520.0, -1e9, f32::INFINITY, -0.0]);
    for n in [0, 1, 63, 64, 65, x.len()] {
        let mut bytes = vec![0; 2 * n];
        quantize(ActFormat::F16, &x[..n], &mut bytes);
        for (x, b) in x.iter().zip(bytes.as_chunks::<2>().0) {
            assert_eq!(u16::from_le_bytes(*b), half::f16::from_f32_const(*x).to_bits(), "{x:e} as f16");
        }
        quantize(ActFormat::Bf16, &x[..n], &mut bytes);
        for (x, b) in x.iter().zip(bytes.as_chunks::<2>().0) {
            assert_eq!(u16::from_le_bytes(*b), half::bf16::from_f32_const(*x).to_bits(), "{x:e} as bf16");
        }
    }
}

#[test]
fn checkpoint_forms_decode_bit_for_bit() {
    let mut compared = Vec::new();
    for entry in index("checkpoint") {
        let name = text(&entry, "name");
        let (rows, cols) = (number(&entry, "rows"), number(&entry, "cols"));
        let want = floats(text(&entry, "expected_file"));
        let mut got = vec![f32::NAN; rows * cols];
        if name == "engram_rows" {
            let bytes = file(text(&entry, "row_file"));
            for (row, out) in bytes.chunks(number(&entry, "row_bytes")).zip(got.chunks_mut(cols)) {
                assert!(engram_row_is_valid(row, cols));
                engram_row(row, cols, out);
            }
        } else {
            let (weights, scales) = (file(text(&entry, "weight_file")), file(text(&entry, "scale_file")));
            match name {
                "fp8_b128" => fp8_tiled(&weights, &scales, rows, cols, 128, &mut got),
                "fp8_b32" | "fp8_b32_ragged" => fp8_tiled(&weights, &scales, rows, cols, 32, &mut got),
                "fp4_expert" => {
                    fp4_expert(&weights, &scales, &mut got);
                    let repacked = file(text(&entry, "mxfp4_repack_file"));
                    let mut blocks = vec![0; repacked.len()];
                    fp4_expert_to_mxfp4(&weights, &scales, &mut blocks);
                    assert_eq!(blocks, repacked, "MXFP4 repack");
                    let mut values = vec![f32::NAN; want.len()];
                    decode_row(DType::Mxfp4, &repacked, &mut values, None).unwrap();
                    assert_same("MXFP4 repack", &values, &want);
                }
                other => panic!("unknown checkpoint set {other}"),
            }
        }
        assert_same(name, &got, &want);
        compared.push(name.to_owned());
    }
    assert_eq!(compared, ["fp8_b128", "fp8_b32", "fp8_b32_ragged", "fp4_expert", "engram_rows"]);
}

#[test]
fn weight_blocks_are_whole_numbers_of_their_partners_blocks() {
    for &dtype in DType::ALL {
        if let Some(format) = partner(dtype) {
            let (weights, activations) = (dtype.block_values(), format.block_values());
            assert!(weights.is_multiple_of(activations), "{dtype} with {format:?}");
        }
    }
    assert_eq!(partner(DType::I32), None);
    assert_eq!(partner(DType::I8), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn random_bytes_of_any_type_decode_without_panic(
        random in proptest::collection::vec(any::<u8>(), 2 * 292),
        blocks in 0usize..=2,
        mode in 0u8..=1,
    ) {
        for &dtype in DType::ALL {
            let bytes = &random[..blocks * dtype.block_bytes()];
            let mut out = vec![0.0; blocks * dtype.block_values()];
            let book = any_book(dtype, mode);
            prop_assert_eq!(decode_row(dtype, bytes, &mut out, book.as_ref()).is_ok(), can_decode(dtype));
        }
    }

    #[test]
    fn random_bits_quantise_without_panic_and_codes_stay_above_minus_128(
        bits in proptest::collection::vec(any::<u32>(), 256),
    ) {
        // As they are, and with the exponents narrowed so that no block is poisoned.
        let wild: Vec<f32> = bits.iter().map(|&b| f32::from_bits(b)).collect();
        let tame: Vec<f32> = bits.iter().map(|&b| f32::from_bits(b & 0x81FF_FFFF | 0x3C00_0000)).collect();
        for x in [wild, tame] {
            for format in [ActFormat::F32, ActFormat::F16, ActFormat::Bf16] {
                quantize(format, &x, &mut vec![0; act_bytes(format, 256)]);
            }
            for (format, first, len) in [(ActFormat::Q8_0, 2, 32), (ActFormat::Q8_1, 4, 32), (ActFormat::Q8K, 4, 256)] {
                let mut out = vec![0; act_bytes(format, 256)];
                quantize(format, &x, &mut out);
                for block in out.chunks(format.block_bytes()) {
                    prop_assert!(block[first..first + len].iter().all(|&q| q as i8 > -128));
                }
            }
        }
    }
}

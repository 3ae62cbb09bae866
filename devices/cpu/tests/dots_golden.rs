//! Quantised dot products against `dots.json`: exact sums over real blocks, made independently of this crate.
#![allow(clippy::unwrap_used)]

use luce_core::DType;
use luce_device_cpu::quant::{act_bytes, partner, quantize};
use luce_device_cpu::simd::{Isa, WeightRows, vec_dot};
use serde_json::Value;

fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../../tests/fixtures/quants/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn every_form_of_every_quantised_dot_is_within_two_millionths_of_the_exact_sum() {
    let golden: Value = serde_json::from_slice(&fixture("dots.json")).unwrap();
    let n = golden["n"].as_u64().unwrap() as usize;
    let x: Vec<f32> = fixture("act.f32.bin").as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let entries = golden["dots"].as_array().unwrap();
    assert_eq!(entries.len(), 25);
    for entry in entries {
        let name = entry["type"].as_str().unwrap();
        // The form of ROCMFP2 with flipped half blocks shares its id.
        let plain = name.strip_suffix('S').and_then(DType::from_name);
        let dtype = DType::from_name(name).or(plain).unwrap_or_else(|| panic!("type {name}"));
        let format = partner(dtype).unwrap();
        let mut act = vec![0; act_bytes(format, n)];
        quantize(format, &x[..n], &mut act);
        let bytes = fixture(entry["weights"].as_str().unwrap());
        let (want, size) = (entry["dot"].as_f64().unwrap(), entry["abs_sum"].as_f64().unwrap());
        for isa in Isa::available() {
            let row = WeightRows { dtype, width: n, bytes: &bytes, book: None };
            let got = f64::from(vec_dot(isa, row, &act, &mut vec![0.0; n]).unwrap());
            assert!((got - want).abs() <= 2e-6 * size, "{name} {isa:?}: {got} instead of {want}, size {size}");
        }
    }
}

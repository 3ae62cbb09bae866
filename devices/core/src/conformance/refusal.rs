//! `prepare` refuses operands that do not fit, and says which.

use luce_core::{DType, Domain, Op, Precision, Reduce};

use super::Make;
use super::lab::{LAYOUT, Lab, MAX_ROWS};
use crate::{BufferId, DeviceError, Memory, View};

pub(super) fn run(make: Make<'_>) {
    let mut lab = Lab::new(make);
    let buffer = lab.device.alloc(1 << 20, Memory::Device).expect("1 MiB");
    let mut next = 0;
    let mut view = |dtype: DType, planes: u32, rows: u32, width: u32| {
        let view = View { buffer, offset: next, dtype, width, rows, planes };
        next += view.bytes().next_multiple_of(64);
        view
    };
    let x = view(DType::F32, 1, MAX_ROWS, 64);
    let out = view(DType::F32, 1, MAX_ROWS, 32);
    let weight = view(DType::Q8_0, 1, 32, 64);
    let narrow = view(DType::F32, 1, MAX_ROWS, 32);
    let ring = view(DType::F32, 2, 8, 64);
    let ids = view(DType::I32, 1, MAX_ROWS, 2);
    let two = view(DType::F32, 1, MAX_ROWS, 2);
    let stack = view(DType::F32, 3, 32, 64);
    let down = view(DType::F32, 3, 64, 32);
    let owned = view(DType::I32, 1, 1, 4);
    let fixed = view(DType::I64, 1, MAX_ROWS, 64);
    let linear = |x: View, weight: View, out: View| Op::Linear {
        x,
        weight,
        out,
        domain: Domain::Rows,
        precision: Precision::F32,
    };
    let experts = |ids: View, up: View, out: View| Op::Experts {
        x,
        ids,
        weights: two,
        gate: stack,
        up,
        down,
        owned,
        out,
        limit: 10.0,
        precision: Precision::F32,
        reduce: Reduce::Exact,
    };
    let rms = |x: View, out: View, width| Op::RmsNorm { x, weight: None, out, width, eps: 1e-6, domain: Domain::Rows };
    let good = [linear(x, weight, out), experts(ids, stack, fixed), rms(x, x, 64)];
    for op in &good {
        lab.device.prepare(std::slice::from_ref(op), lab.band, LAYOUT).expect("a right operation");
    }
    let moved = |v: View, offset: u64| View { offset, ..v };
    let bad = [
        (linear(narrow, weight, out), "weight"),
        (linear(x, weight, x), "out"),
        (linear(x, View { dtype: DType::I32, width: 64, ..weight }, out), "weight"),
        (linear(View { dtype: DType::F16, ..x }, weight, out), "x"),
        (linear(View { rows: MAX_ROWS - 1, ..x }, weight, out), "x"),
        (linear(moved(x, 32), weight, out), "x"),
        (linear(x, moved(weight, (1 << 20) - 64), out), "weight"),
        (linear(x, View { buffer: BufferId(u32::MAX), ..weight }, out), "weight"),
        (linear(x, View { width: 63, ..weight }, out), "weight"),
        (linear(x, weight, moved(out, x.offset + 64)), "out"),
        (experts(two, stack, fixed), "ids"),
        (experts(ids, View { planes: 2, ..stack }, fixed), "up"),
        (experts(ids, stack, narrow), "out"),
        (rms(x, x, 48), "x"),
        (Op::RingWrite { x: narrow, ring }, "ring"),
        (Op::Hadamard { x, width: 24, domain: Domain::Rows }, "x"),
        (Op::Gather { x, out: narrow }, "out"),
    ];
    for (op, operand) in &bad {
        let ops = [good[0].clone(), op.clone()];
        match lab.device.prepare(&ops, lab.band, LAYOUT) {
            Err(DeviceError::Invalid(text) | DeviceError::Unsupported(text)) => {
                assert!(text.contains(op.name()) && text.contains(operand), "{operand} of {op:?}: {text}");
            }
            other => panic!("{op:?} with a wrong {operand} gave {other:?}"),
        }
    }
}

//! Stand-ins for the functions of `simd` until that module is there.

pub(super) fn dot_f32(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 8];
    let mut tail = 0.0;
    let (ca, cb) = (a.chunks_exact(8), b.chunks_exact(8));
    for (x, y) in ca.remainder().iter().zip(cb.remainder()) {
        tail += x * y;
    }
    for (x, y) in ca.zip(cb) {
        for i in 0..8 {
            lanes[i] += x[i] * y[i];
        }
    }
    lanes.iter().sum::<f32>() + tail
}

pub(super) fn sum_squares(a: &[f32]) -> f32 {
    dot_f32(a, a)
}

pub(super) fn axpy(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

pub(super) fn exp(x: f32) -> f32 {
    libm::expf(x)
}

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

pub(super) fn exp_slice(x: &mut [f32]) {
    x.iter_mut().for_each(|v| *v = exp(*v));
}

pub(super) fn silu_slice(x: &mut [f32]) {
    x.iter_mut().for_each(|v| *v /= 1.0 + exp(-*v));
}

pub(super) fn softplus(x: f32) -> f32 {
    x.max(0.0) + libm::log1pf(exp(-x.abs()))
}

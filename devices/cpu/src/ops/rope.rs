//! Rotary embedding (spec/model.md 3.4): angles once per row, rotation of interleaved pairs per head.

/// One row of `Op::Angles`: `out` [2 * k] = (cos, sin) pairs of `position * freqs[i]`. Angle, cosine and sine are f64
/// and rounded once to f32. The position of a compressed group is its first covered position.
pub(crate) fn angles(position: u32, freqs: &[f64], out: &mut [f32]) {
    for (f, out) in freqs.iter().zip(out.chunks_exact_mut(2)) {
        let (sin, cos) = libm::sincos(f64::from(position) * f);
        out[0] = cos as f32;
        out[1] = sin as f32;
    }
}

/// One row of `Op::Rope`: of each head of `width` values in `x` [heads * width] rotates the last `angles.len()` values,
/// pair (a, b) becoming (a cos - b sin, a sin + b cos); `inverse` negates the angle.
pub(crate) fn rotate(x: &mut [f32], width: usize, angles: &[f32], inverse: bool) {
    let sign = if inverse { -1.0 } else { 1.0 };
    for head in x.chunks_exact_mut(width) {
        for (pair, angle) in head[width - angles.len()..].chunks_exact_mut(2).zip(angles.chunks_exact(2)) {
            let (a, b, cos, sin) = (pair[0], pair[1], angle[0], angle[1] * sign);
            pair[0] = a * cos - b * sin;
            pair[1] = a * sin + b * cos;
        }
    }
}

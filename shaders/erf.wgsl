// The error function within 1.5e-7 (Abramowitz and Stegun, 7.1.26). Beyond 6 it is 1, and squares within overflow.
fn error_function(x: f32) -> f32 {
    let size = min(abs(x), 6.0);
    let t = 1.0 / (1.0 + 0.3275911 * size);
    let sum = t * (0.2548296 + t * (-0.28449672 + t * (1.4214138 + t * (-1.4531521 + t * 1.0614054))));
    return sign(x) * (1.0 - sum * exp(-size * size));
}


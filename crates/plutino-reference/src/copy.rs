//! Copies, one element at a time.

/// `dst[d0 + Σ i·ds] = src[s0 + Σ i·ss]` for every index of `shape`; elements of `size` bytes,
/// offsets and strides in elements. Panics where an element lies outside.
pub fn strided(
    size: usize,
    shape: &[usize],
    (s0, ss): (usize, &[isize]),
    src: &[u8],
    (d0, ds): (usize, &[isize]),
    dst: &mut [u8],
) {
    for index in indices(shape) {
        let at = |origin: usize, strides: &[isize]| {
            let steps = index.iter().zip(strides).map(|(&i, &s)| i as isize * s);
            (origin as isize + steps.sum::<isize>()) as usize * size
        };
        let (s, d) = (at(s0, ss), at(d0, ds));
        dst[d..d + size].copy_from_slice(&src[s..s + size]);
    }
}

/// The position that each element of a `gather` or `scatter` index addresses in the indexed tensor.
pub fn along(
    shape: &[usize],
    strides: &[isize],
    dim: usize,
    size: usize,
    index: &[i64],
) -> Vec<usize> {
    let at = |(at, &i): (Vec<usize>, &i64)| {
        let i = if i < 0 { i + size as i64 } else { i };
        let at =
            at.iter().enumerate().map(|(d, &a)| if d == dim { i as isize } else { a as isize });
        at.zip(strides).map(|(i, s)| i * s).sum::<isize>() as usize
    };
    indices(shape).into_iter().zip(index).map(at).collect()
}

/// Every index of a shape, in row-major order.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |all, &len| {
        let grow = |head: Vec<usize>| (0..len).map(move |i| [&head[..], &[i]].concat());
        all.into_iter().flat_map(grow).collect()
    })
}

//! Matrix products: every way to hand the operands over, and matrixmultiply beside them.

use bytemuck::cast_slice_mut;
use plutino_kernels::gemm::{
    Gemm, Operand, PackedMatrix, PostOps, Product, Side, Size, Strided, Target,
};
use plutino_tensor::AlignedBuf;

use crate::suite::Suite;
use crate::yardstick::Work;

/// M, K, N.
const SHAPES: [[usize; 3]; 11] = [
    [1024, 1024, 1024],
    // convolutions of ResNet as products
    [64, 576, 3136],
    [128, 1152, 784],
    [256, 2304, 196],
    [512, 4608, 49],
    // layers of an encoder on 128 tokens, of a ViT on 50, of classifiers
    [128, 384, 384],
    [128, 384, 1536],
    [50, 768, 3072],
    [50, 3072, 768],
    [4, 768, 3072],
    [1, 2048, 1000],
];

pub(crate) fn products(suite: &mut Suite<'_>) {
    for [m, k, n] in SHAPES {
        let setting = format!("gemm {m}x{k}x{n}");
        let work = Work::Flops((2 * m * k * n) as u64);
        let (a, b, mut c) = (vec![0.5f32; m * k], vec![0.25f32; k * n], vec![0.0f32; m * n]);
        let left = Strided::left(&a, (m, k), (k, 1));
        let right = Strided::right(&b, (k, n), (n, 1));
        let (par, target) = (suite.par, Target::this(suite.isa));
        let packed_left = PackedMatrix::of(target, Side::Left, &left, par).expect("memory");
        let packed_right = PackedMatrix::of(target, Side::Right, &right, par).expect("memory");
        let ways = [
            ("nothing packed", Operand::Source(left), Operand::Source(right)),
            ("left packed", Operand::Packed(&packed_left), Operand::Source(right)),
            ("right packed", Operand::Source(left), Operand::Packed(&packed_right)),
        ];
        for (way, a, b) in ways {
            let packed = (matches!(a, Operand::Packed(_)), matches!(b, Operand::Packed(_)));
            let gemm = Gemm::new(target, par.threads(), Size { batch: 1, m, n, k }, packed);
            let bytes = gemm.scratch(par.threads()) * size_of::<f32>();
            let mut scratch = AlignedBuf::zeroed(bytes).expect("memory");
            let product = Product { a, b, post_ops: PostOps::default() };
            suite.bench(&setting, way, work, || {
                gemm.run(par, &product, &mut c, n, cast_slice_mut(scratch.as_mut_bytes()));
            });
        }
        if par.threads() == 1 {
            suite.bench(&setting, "matrixmultiply", work, || baseline([m, k, n], &a, &b, &mut c));
        }
    }
}

/// The product of dense matrices by the crate matrixmultiply, on one thread.
fn baseline([m, k, n]: [usize; 3], a: &[f32], b: &[f32], c: &mut [f32]) {
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n);
    let (row_a, row_b) = (k as isize, n as isize);
    // SAFETY: the matrices are dense and have these sizes, as asserted; c is borrowed mutably.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.as_ptr(),
            row_a,
            1,
            b.as_ptr(),
            row_b,
            1,
            0.0,
            c.as_mut_ptr(),
            row_b,
            1,
        );
    }
}

//! One matrix product and one convolution, on plain slices: sizes, a plan, packed weights, scratch
//! memory, run.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino_kernels::conv::{Axis, ConvArgs, ConvProblem, Request, Window, choose};
use plutino_kernels::gemm::{
    Bias, Gemm, Operand, PackedMatrix, PostOps, Product, Side, Size, Strided, Target,
};
use plutino_kernels::{Activation, Isa, Pool};
use plutino_tensor::AlignedBuf;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let (target, threads) = (Target::this(Isa::best()), 2);
    Pool::new(threads).enter(|par| {
        // A linear layer: y = relu(x w + b), for 3 rows of 4 numbers, with 2 outputs.
        let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let w = [1.0f32, -1.0, 0.5, 2.0, -0.25, 1.0, 0.0, -3.0]; // 4 x 2
        let b = [0.5f32, 1.0];
        let size = Size { batch: 1, m: 3, n: 2, k: 4 };
        // Weights are packed once, for many runs.
        let weights = Strided::right(&w[..], (size.k, size.n), (size.n, 1));
        let packed = PackedMatrix::of(target, Side::Right, &weights, par)?;
        let gemm = Gemm::new(target, threads, size, (false, true));
        let product = Product {
            a: Operand::Source(Strided::left(&x[..], (size.m, size.k), (size.k, 1))),
            b: Operand::Packed(&packed),
            post_ops: PostOps {
                bias: Bias::Cols(&b),
                activation: Some(Activation::Relu),
                ..PostOps::default()
            },
        };
        let mut y = vec![0.0f32; size.m * size.n];
        let mut scratch = vec![0.0f32; gemm.scratch(threads)];
        gemm.run(par, &product, &mut y, size.n, &mut scratch);
        println!("linear: {y:?}");
        assert_eq!(y, [0.5, 0.0, 5.5, 0.0, 10.5, 0.0]);

        // A convolution: one image of 2 channels, 5 x 4 pixels, with 3 windows of 3 x 3.
        let window = Window { kernel: 3, padding: (1, 1), ..Window::default() };
        let axes = [Axis::new(5, window)?, Axis::new(4, window)?];
        let problem = ConvProblem::new(1, 1, 2, 3, &axes)?;
        let conv = choose(&Request { threads, ..Request::plain(problem) })?;
        let weights = conv.pack(&vec![1.0f32; problem.weight_len()][..], par)?;
        let mut workspace = AlignedBuf::zeroed(conv.workspace())?;
        let mut y = vec![0.0f32; conv.output_len()];
        let args = ConvArgs {
            x: &vec![1.0f32; conv.input_len()],
            weights: &weights,
            bias: &conv.bias(None)?,
            factors: None,
            residual: None,
            y: &mut y,
            workspace: workspace.as_mut_bytes(),
        };
        conv.run(args, par)?;
        println!("{}: corner {}, middle {}", conv.name(), y[0], y[5]);
        assert_eq!((y[0], y[5]), (8.0, 18.0)); // 2 channels of 2 x 2 and of 3 x 3 pixels
        Ok(())
    })
}

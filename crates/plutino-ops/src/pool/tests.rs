use crate::testkit::{
    assert_close, check, check_line, error, infer, iota, op, random, specs, tensor, try_op, values,
};
use plutino_kernels::pool::{Divisor, Reduction};
use plutino_reference::pool::{SlidingPool, sliding_pool};
use plutino_tensor::{DType, Shape, Tensor};

#[test]
fn sliding_windows_agree_with_the_reference() {
    for (line, shape, output, kernel, stride, padding, dilation, reduction) in [
        (
            "nn.MaxPool2d p 1 1 0 1 kernel_size=(3,3) stride=(2,2) padding=(1,1) dilation=(1,1) ceil_mode=False return_indices=False",
            [1, 112, 30],
            [1, 56, 15],
            [1, 3, 3],
            [1, 2, 2],
            [0, 1, 1],
            [1, 1, 1],
            Reduction::Max,
        ),
        (
            "F.max_pool2d p 1 1 0 1 kernel_size=(2,3) stride=None padding=(0,1) dilation=(1,2) ceil_mode=True return_indices=False $input=0",
            [1, 9, 14],
            [1, 5, 5],
            [1, 2, 3],
            [1, 2, 3],
            [0, 0, 1],
            [1, 1, 2],
            Reduction::Max,
        ),
        (
            "nn.AvgPool2d p 1 1 0 1 kernel_size=(3,2) stride=(1,2) padding=(1,1) ceil_mode=False count_include_pad=False divisor_override=None",
            [1, 7, 9],
            [1, 7, 5],
            [1, 3, 2],
            [1, 1, 2],
            [0, 1, 1],
            [1, 1, 1],
            Reduction::Average(Divisor::Inputs),
        ),
        (
            "F.avg_pool3d p 1 1 0 1 kernel_size=(2,3,2) stride=(1,2,2) padding=(0,1,1) ceil_mode=True count_include_pad=True divisor_override=None $input=0",
            [4, 7, 9],
            [3, 4, 5],
            [2, 3, 2],
            [1, 2, 2],
            [0, 1, 1],
            [1, 1, 1],
            Reduction::Average(Divisor::Padded),
        ),
        (
            "nn.LPPool1d p 1 1 0 1 ceil_mode=True kernel_size=3 norm_type=1.2 stride=2",
            [1, 1, 20],
            [1, 1, 10],
            [1, 1, 3],
            [1, 1, 2],
            [0, 0, 0],
            [1, 1, 1],
            Reduction::Power { p: 1.2, size: 3 },
        ),
    ] {
        let rank = if line.contains("1d") {
            1
        } else if line.contains("2d") {
            2
        } else {
            3
        };
        let sizes = |s: [usize; 3]| s[3 - rank..].to_vec();
        // Batched and not.
        for leading in [vec![2, 3], vec![5]] {
            let full = |s: [usize; 3]| Shape::from([leading.clone(), sizes(s)].concat());
            let x = random(full(shape), 1);
            let x =
                tensor(full(shape), &values::<f32>(&x).iter().map(|v| v.abs()).collect::<Vec<_>>());
            let reference = SlidingPool { input: shape, output, kernel, stride, padding, dilation };
            let (expected, _) = sliding_pool(&reference, reduction, &values::<f32>(&x));
            let expected: Vec<f32> = expected.iter().map(|&v| v as f32).collect();
            let y = check(&*op(line), &[x]);
            assert_close(&y[0], &tensor(full(output), &expected), 1e-5);
        }
    }
}

#[test]
fn indices_are_a_second_output_or_a_tuple() {
    let x = tensor([1, 1, 2, 4], &[1.0f32, 5.0, 2.0, 2.0, 5.0, 0.0, f32::NAN, 3.0]);
    let two = op(
        "F.max_pool2d p 1 2 0 1 2 kernel_size=(2,2) stride=None padding=(0,0) dilation=(1,1) ceil_mode=False return_indices=True $input=0",
    );
    let y = check(&*two, std::slice::from_ref(&x));
    assert_eq!(values::<i64>(&y[1]), [1, 6]);
    assert!(values::<f32>(&y[0])[0] == 5.0 && values::<f32>(&y[0])[1].is_nan());
    let tuple = op("nn.AdaptiveMaxPool2d p 1 1 0 1 output_size=(1,0) return_indices=True");
    assert_eq!(infer(&*tuple, &specs(std::slice::from_ref(&x))).unwrap()[0].leaf_count(), 2);
    let y = check(&*tuple, &[x]);
    assert_eq!(values::<i64>(&y[1]), [4, 1, 6, 7]);
}

#[test]
fn adaptive_sizes() {
    // PyTorch's examples: (64, 8, 9) to (5, 7), (64, 10, 9) to (7, 7), and (10, 9) to (10, 7) with
    // None.
    for (line, shape, expected) in [
        ("nn.AdaptiveAvgPool2d p 1 1 0 1 output_size=(5,7)", vec![1, 64, 8, 9], vec![1, 64, 5, 7]),
        ("nn.AdaptiveAvgPool2d p 1 1 0 1 output_size=(7,7)", vec![64, 10, 9], vec![64, 7, 7]),
        (
            "F.adaptive_avg_pool2d p 1 1 0 1 output_size=(0,7) $input=0",
            vec![1, 64, 10, 9],
            vec![1, 64, 10, 7],
        ),
        ("F.adaptive_avg_pool1d p 1 1 0 1 output_size=1 $input=0", vec![2, 3, 10], vec![2, 3, 1]),
        (
            "nn.AdaptiveAvgPool3d p 1 1 0 1 output_size=(5,0,0)",
            vec![2, 3, 4, 5, 6],
            vec![2, 3, 5, 5, 6],
        ),
    ] {
        let y = check(&*op(line), &[random(shape, 1)]);
        assert_eq!(y[0].shape(), &Shape::from(expected));
    }
    let global = op("nn.AdaptiveAvgPool2d p 1 1 0 1 output_size=(1,1)");
    assert_eq!(values::<f32>(&check(&*global, &[iota([1, 2, 3, 5])])[0]), [7.0, 22.0]);
}

#[test]
fn other_dtypes() {
    let x = tensor([1, 4], &[3i64, -1, 7, 7]);
    let max = op(
        "nn.MaxPool1d p 1 1 0 1 kernel_size=(2) stride=(2) padding=(0) dilation=(1) ceil_mode=False return_indices=False",
    );
    assert_eq!(values::<i64>(&check(&*max, std::slice::from_ref(&x))[0]), [3, 7]);
    let average = op(
        "nn.AvgPool1d p 1 1 0 1 kernel_size=(2) stride=(2) padding=(0) ceil_mode=False count_include_pad=True",
    );
    assert_eq!(values::<i64>(&check(&*average, &[x])[0]), [1, 7]);
    let x = tensor([1, 4], &[3.0f64, -1.0, 7.0, 7.5]);
    assert_eq!(values::<f64>(&check(&*average, &[x])[0]), [1.0, 7.25]);
    assert!(error(&*average, &[tensor([1, 4], &[1u8; 4])]).to_string().contains("must be a float"));
}

#[test]
fn unpooling() {
    let x = tensor([1, 1, 1, 2], &[6.0f32, 8.0]);
    let indices = tensor([1, 1, 1, 2], &[5i64, 7]);
    let unpool = op("nn.MaxUnpool2d p 2 1 0 1 2 kernel_size=(2,2) stride=(2,2) padding=(0,0)");
    let y = check(&*unpool, &[x.clone(), indices]);
    assert_eq!(values::<f32>(&y[0]), [0.0, 0.0, 0.0, 0.0, 0.0, 6.0, 0.0, 8.0]);
    let outside = tensor([1, 1, 1, 2], &[5i64, 8]);
    assert!(error(&*unpool, &[x, outside]).to_string().contains("index 8 must lie in 0..8"));
}

#[test]
fn what_makes_no_sense_is_an_error() {
    let pool = op(
        "nn.MaxPool2d p 1 1 0 1 kernel_size=(3,3) stride=(2,2) padding=(0,0) dilation=(1,1) ceil_mode=False return_indices=False",
    );
    let text = |x: Tensor| error(&*pool, &[x]).to_string();
    assert!(text(random([3, 3], 1)).contains("3 or 4 dimensions"));
    assert!(
        text(random([1, 2, 2, 9], 1)).contains("dimension 2"),
        "{}",
        text(random([1, 2, 2, 9], 1))
    );
    assert!(text(Tensor::zeros(DType::C64, [1, 3, 3]).unwrap()).contains("must be a float"));
    for line in [
        "nn.MaxPool2d p 1 1 0 1 kernel_size=(3,0) stride=(2,2)",
        "nn.MaxPool2d p 1 1 0 1 kernel_size=(3,3) stride=(2,2,2)",
        "nn.AvgPool1d p 1 1 0 1 kernel_size=(3) divisor_override=0",
        "nn.MaxPool2d p 1 2 0 1 2 kernel_size=(3,3) return_indices=False",
        "nn.AdaptiveAvgPool2d p 1 1 0 1 output_size=(-1,3)",
    ] {
        assert!(try_op(line, &[]).is_err(), "{line}");
    }
    // Padding beyond half the window, found when the shapes are known.
    let pool = op("nn.MaxPool1d p 1 1 0 1 kernel_size=(3) stride=(2) padding=(2)");
    assert!(error(&*pool, &[random([1, 9], 1)]).to_string().contains("padding 2"));
}

#[test]
fn unpooling_by_the_native_function() {
    let given =
        [tensor([1, 1, 2, 2], &[1.0f32, 2.0, 3.0, 4.0]), tensor([1, 1, 2, 2], &[0i64, 3, 8, 14])];
    let line = "aten::max_unpool2d u 3 1 0 1 =[4,4] 2";
    let spelled =
        op("F.max_unpool2d u 2 1 0 1 2 kernel_size=(2,2) stride=(2,2) $input=0 $indices=1");
    assert_eq!(check_line(line, &given), check(&*spelled, &given));
}

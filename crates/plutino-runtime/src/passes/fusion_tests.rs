//! Passes that put one operator in the place of several: what is left of a snippet, what is
//! refused, and results with and without the pass.

use super::tests::{after_of, refusals};
use crate::SessionOptions;
use crate::testkit::{values, weighted};
use plutino_tensor::{Shape, Tensor};

/// Nodes that are left of the lines for an input of this shape, and what `pass` refused. Results
/// with the pass must be those without, within some roundings of numbers below 10.
pub(super) fn left(pass: &str, shape: &[usize], lines: &str) -> (Vec<String>, Vec<String>) {
    let (nodes, reports) = after_of(shape, lines, &[]);
    let model = weighted(lines);
    let run = |options: SessionOptions| {
        let session = model.session(options.with_threads(1)).unwrap();
        let count: usize = shape.iter().product();
        let inputs = (0..model.inputs().len()).map(|input| {
            let x = |i: usize| ((i * 31 + input * 17) % 101) as f32 / 50.0 - 1.0;
            let x: Vec<f32> = (0..count).map(x).collect(); // bounded: the test's own
            Tensor::from_slice(&x, shape.iter().copied().collect::<Shape>()).unwrap()
        });
        session.run(&inputs.collect::<Vec<_>>()).unwrap().iter().map(values).collect::<Vec<_>>()
    };
    let (on, off) =
        (run(SessionOptions::default()), run(SessionOptions::default().without_pass(pass)));
    for (on, off) in on.iter().flatten().zip(off.iter().flatten()) {
        assert!((on - off).abs() <= 10.0 * 16.0 * f32::EPSILON, "{on} instead of {off}");
    }
    (nodes, refusals(&reports, pass))
}

const CONV: &str = "nn.Conv2d conv 1 1 x y bias=True dilation=(1,1) groups=1 in_channels=2 \
    kernel_size=(3,3) out_channels=4 padding=(1,0) padding_mode=zeros stride=(1,1) @bias=(4)f32 \
    @weight=(4,2,3,3)f32";
const NORM: &str = "affine=True eps=0.001 num_features=4 @bias=(4)f32 @running_mean=(4)f32 \
    @running_var=(4)f32 @weight=(4)f32";

#[test]
fn a_batch_norm_becomes_a_part_of_the_layer_in_front() {
    let conv = format!(
        "pnnx.Input in 0 1 x\n{CONV}\nnn.BatchNorm2d norm 1 1 y z {NORM}\nnn.ReLU relu 1 1 z w\n\
         pnnx.Output out 1 0 w"
    );
    let (nodes, _) = left("batch_norm", &[2, 2, 5, 6], &conv);
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    assert!(nodes[0].starts_with("conv+norm+relu x>w~"), "{nodes:?}");
    let linear = format!(
        "pnnx.Input in 0 1 x\nnn.Linear fc 1 1 x y bias=False in_features=3 out_features=4 \
         @weight=(4,3)f32\nnn.BatchNorm1d norm 1 1 y z {NORM}\npnnx.Output out 1 0 z"
    );
    assert_eq!(left("batch_norm", &[5, 3], &linear).0, ["fc+norm x>z"]);
    let function = "pnnx.Input in 0 1 x
        pnnx.Attribute m 0 1 m @data=(4)f32
        pnnx.Attribute v 0 1 v @data=(4)f32
        pnnx.Expression v2 1 1 v v2 expr=square(@0)";
    let function = format!(
        "{function}\n{CONV}\nF.batch_norm norm 3 1 y m v2 z eps=0.5 training=False weight=None bias=None \
         $input=y $running_mean=m $running_var=v2\npnnx.Output out 1 0 z"
    );
    let (nodes, _) = left("batch_norm", &[1, 2, 5, 6], &function);
    assert!(nodes.iter().any(|node| node.starts_with("conv+norm x")), "{nodes:?}");
}

#[test]
fn a_batch_norm_stays_where_others_read_what_it_scales() {
    let both = format!(
        "pnnx.Input in 0 1 x\n{CONV}\nnn.BatchNorm2d norm 1 1 y z {NORM}\n\
         prim::TupleConstruct t 2 1 y z both\npnnx.Output out 1 0 both"
    );
    let (nodes, why) = left("batch_norm", &[2, 2, 5, 6], &both);
    assert!(nodes.iter().any(|node| node.starts_with("norm ")), "{nodes:?}");
    assert_eq!(why, ["norm: the result of conv is fetched"]);
    let late = format!(
        "pnnx.Input in 0 1 x\n{CONV}\nnn.ReLU relu 1 1 y r\nnn.BatchNorm2d norm 1 1 r z {NORM}\n\
         pnnx.Output out 1 0 z"
    );
    let (_, why) = left("batch_norm", &[2, 2, 5, 6], &late);
    assert_eq!(why, ["norm: relu does not take it over"]);
    // Of three dimensions features are not channels.
    let rows = format!(
        "pnnx.Input in 0 1 x\nnn.Linear fc 1 1 x y bias=False in_features=3 out_features=4 \
         @weight=(4,3)f32\nnn.BatchNorm1d norm 1 1 y z {NORM}\npnnx.Output out 1 0 z"
    );
    let (_, why) = left("batch_norm", &[2, 4, 3], &rows);
    assert_eq!(why, ["norm: fc does not take it over"]);
}

#[test]
fn zeros_become_the_padding_of_a_convolution() {
    let conv = CONV.replace("1 1 x y", "1 1 p y");
    let padded = |pad: &str, conv: &str, rest: &str| {
        format!("pnnx.Input in 0 1 x\n{pad}\n{conv}\n{rest}\npnnx.Output out 1 0 y")
    };
    let zeros = "F.pad pad 1 1 x p mode=constant pad=(1,2,0,3) value=0.0";
    let (nodes, _) = left("pad", &[1, 2, 5, 6], &padded(zeros, &conv, ""));
    assert!(nodes[0].starts_with("conv+pad x>y"), "{nodes:?}");
    for (pad, conv) in [
        (zeros.replace("value=0.0", "value=1.0"), conv.clone()),
        (zeros.replace("constant", "reflect").replace("0,3", "0,1"), conv.clone()),
        (zeros.replace("(1,2,0,3)", "(1,2,-1,3)"), conv.clone()),
        (zeros.into(), conv.replace("padding_mode=zeros", "padding_mode=replicate")),
    ] {
        let (nodes, _) = left("pad", &[1, 2, 5, 6], &padded(&pad, &conv, ""));
        assert!(nodes[0].starts_with("pad "), "{nodes:?}");
    }
    let pool = "nn.AvgPool2d y 1 1 p y ceil_mode=False count_include_pad=True divisor_override=None \
                kernel_size=(2,2) padding=(0,0) stride=(2,2)";
    let (nodes, _) = left("pad", &[1, 2, 5, 6], &padded(zeros, pool, ""));
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    // Read twice: the image must be made anyhow.
    let twice = format!(
        "pnnx.Input in 0 1 x\n{zeros}\n{conv}\nnn.ReLU r 1 1 p q\nprim::TupleConstruct t 2 1 y q both\n\
         pnnx.Output out 1 0 both"
    );
    assert_eq!(left("pad", &[1, 2, 5, 6], &twice).1, ["pad: the result of pad is also read by r"]);
}

#[test]
fn what_changes_nothing_goes() {
    let around = |lines: &str| {
        format!(
            "pnnx.Input in 0 1 x\ntest.Scale a 1 1 x a by=2.0\n{lines}\n\
             test.Scale z 1 1 b z by=2.0\npnnx.Output out 1 0 z"
        )
    };
    let gone = |lines: &str| left("identity", &[1, 4, 3, 2], &around(lines)).0;
    for lines in [
        "nn.Dropout d 1 1 a b p=0.5",
        "torch.cat c 1 1 a b dim=1",
        "F.interpolate i 1 1 a b mode=nearest scale_factor=(1.0,1.0)",
        "F.interpolate i 1 1 a b mode=bilinear align_corners=False size=(3,2)",
        "torch.permute p 1 1 a m dims=(0,2,3,1)\ntorch.permute q 1 1 m b dims=(0,3,1,2)",
        "torch.permute p 1 1 a b dims=(0,1,2,3)",
        "Tensor.reshape p 1 1 a m shape=(4,6)\nTensor.reshape q 1 1 m b shape=(1,4,3,2)",
        "F.pad p 1 1 a b mode=constant pad=(0,0) value=0.0",
    ] {
        assert_eq!(gone(lines), ["a x>a", "z a>z"], "{lines}");
    }
    for lines in [
        "F.interpolate i 1 1 a b mode=nearest scale_factor=(2.0,1.0)",
        "F.interpolate i 1 1 a b mode=bilinear align_corners=False scale_factor=(1.2,1.0)",
        "torch.permute p 1 1 a m dims=(0,2,3,1)\ntorch.permute q 1 1 m b dims=(0,2,1,3)",
        "torch.cat c 2 1 a a b dim=1",
    ] {
        assert!(gone(lines).len() > 2, "{lines}");
    }
    // A result has a name of its own.
    let last =
        "pnnx.Input in 0 1 x\nnn.ReLU r 1 1 x y\nnn.Dropout d 1 1 y z p=0.5\npnnx.Output out 1 0 z";
    let (nodes, why) = left("identity", &[1, 2], last);
    assert_eq!(nodes, ["d+r x>z"]);
    assert_eq!(why, ["d: the result of d is fetched"]);
}

const LAYER_NORM: &str = "pnnx.Input in 0 1 x
    pnnx.Attribute w 0 1 w @data=(6)f32
    pnnx.Attribute b 0 1 b @data=(6)f32
    torch.mean mean 1 1 x m dim=(-1) keepdim=True
    pnnx.Expression sub 2 1 x m c expr=sub(@0,@1)
    pnnx.Expression pow 1 1 c s expr=pow(@0,2)
    torch.mean var 1 1 s v dim=(-1) keepdim=True";

#[test]
fn norms_that_are_written_out_are_one_step() {
    let rest = [
        "pnnx.Expression n 4 1 c v w b y expr=add(mul(div(@0,sqrt(add(@1,0.01))),@2),@3)",
        "pnnx.Expression n 4 1 c v w b y expr=add(mul(@2,mul(@0,rsqrt(add(@1,0.01)))),@3)",
        "pnnx.Expression r 1 1 v r expr=rsqrt(add(@0,0.01))
         pnnx.Expression q 2 1 c r q expr=mul(@0,@1)
         pnnx.Expression t 2 1 w q t expr=mul(@0,@1)
         pnnx.Expression n 2 1 t b y expr=add(@0,@1)",
        "pnnx.Expression q 2 1 c v q expr=div(@0,pow(add(@1,0.01),0.5))
         pnnx.Expression n 3 1 q w b y expr=add(mul(@0,@1),@2)",
    ];
    for rest in rest {
        let lines = format!("{LAYER_NORM}\n{rest}\npnnx.Output out 1 0 y");
        let (nodes, _) = left("norm", &[2, 3, 6], &lines);
        let last = nodes.last().unwrap();
        assert!(last.starts_with("n+") && last.ends_with(" x,w,b>y"), "{nodes:?}");
    }
    let plain = "pnnx.Expression n 2 1 c v y expr=div(@0,sqrt(add(@1,0.01)))";
    let lines = format!("{LAYER_NORM}\n{plain}\npnnx.Output out 1 0 y");
    let (nodes, _) = left("norm", &[2, 3, 6], &lines);
    assert_eq!(nodes, ["n+mean+sub+pow+var x>y"]);
    let rms = "pnnx.Input in 0 1 x
        pnnx.Attribute w 0 1 w @data=(6)f32
        pnnx.Expression pow 1 1 x s expr=pow(@0,2)
        torch.mean var 1 1 s v dim=(-1) keepdim=True
        pnnx.Expression n 3 1 x v w y expr=mul(mul(@0,rsqrt(add(@1,0.01))),@2)
        pnnx.Output out 1 0 y";
    let (nodes, _) = left("norm", &[2, 3, 6], rms);
    assert_eq!(nodes.last().unwrap(), "n+pow+var x,w>y");
}

#[test]
fn what_only_looks_like_a_norm_stays() {
    let norm = "pnnx.Expression n 2 1 c v y expr=div(@0,sqrt(add(@1,0.01)))";
    let lines = format!("{LAYER_NORM}\n{norm}\npnnx.Output out 1 0 y");
    for (from, to) in [
        ("var 1 1 s v dim=(-1)", "var 1 1 s v dim=(1)"),
        ("pow(@0,2)", "pow(@0,4)"),
        ("sqrt(add(@1,0.01))", "sqrt(add(@1,-0.01))"),
        ("sqrt(add(@1,0.01))", "add(@1,0.01)"),
        ("n 2 1 c v y", "n 2 1 x v y"),
    ] {
        let (nodes, reports) = after_of(&[2, 6, 6], &lines.replace(from, to), &[]);
        assert!(nodes.len() > 2 && nodes.iter().any(|n| n.contains("var")), "{from}: {nodes:?}");
        assert!(reports.iter().find(|r| r.name == "norm").unwrap().done.is_empty(), "{from}");
    }
    // Somebody reads what lies between.
    let seen = lines.replace("pnnx.Output out 1 0 y", "pnnx.Output out 2 0 y c");
    let (_, why) = left("norm", &[2, 3, 6], &seen);
    assert_eq!(why, ["n: the result of sub is fetched"]);
}

#[test]
fn elementwise_operators_compute_in_one_pass() {
    let lines = "pnnx.Input in 0 1 x
        pnnx.Input in2 0 1 o
        F.silu a 1 1 x a
        torch.mul b 2 1 a o b
        torch.abs c 1 1 b c
        pnnx.Expression d 2 1 o c d expr=sub(@0,mul(@1,0.5))
        pnnx.Output out 1 0 d";
    assert_eq!(left("chain", &[2, 3], lines).0, ["d+c+b+a x,o,o>d"]);
    // The same value twice is one input in between.
    let square = "pnnx.Input in 0 1 x
        F.silu a 1 1 x a
        torch.mul b 2 1 a a b
        pnnx.Output out 1 0 b";
    assert_eq!(left("chain", &[2, 3], square).0, ["b+a x>b"]);
    // What is broadcast would be computed often, and what is read elsewhere must be there.
    let wider = "pnnx.Input in 0 1 x
        torch.mean m 1 1 x m dim=(-1) keepdim=True
        F.silu a 1 1 m a
        torch.mul b 2 1 a x b
        pnnx.Output out 1 0 b";
    assert_eq!(left("chain", &[2, 3], wider).0.len(), 3);
    let read = lines.replace("pnnx.Output out 1 0 d", "pnnx.Output out 2 0 d c");
    assert_eq!(left("chain", &[2, 3], &read).0, ["c+b+a x,o>c", "d o,c>d"]);
}

#[test]
fn activations_that_are_written_out_fuse_into_the_layer_in_front() {
    let formulas = [
        ("F.silu", "nn.Sigmoid s 1 1 y s\npnnx.Expression e 2 1 s y z expr=mul(@0,@1)"),
        ("F.silu", "pnnx.Expression e 1 1 y z expr=div(@0,add(1.0,exp(neg(@0))))"),
        ("F.sigmoid", "pnnx.Expression e 1 1 y z expr=reciprocal(add(exp(mul(@0,-1)),1))"),
        (
            "F.mish",
            "F.softplus s 1 1 y s beta=1.0 threshold=20.0\nF.tanh t 1 1 s t\n\
                    pnnx.Expression e 2 1 y t z expr=mul(@0,@1)",
        ),
        ("F.mish", "pnnx.Expression e 1 1 y z expr=mul(@0,tanh(log(add(exp(@0),1.0))))"),
        (
            "F.gelu approximate=none",
            "pnnx.Expression e 2 1 y y z expr=mul(mul(@0,0.5),add(erf(div(@1,1.414214e+00)),1.0))",
        ),
        (
            "F.gelu approximate=none",
            "pnnx.Expression e 1 1 y z expr=mul(@0,add(0.5,mul(erf(mul(@0,7.071068e-01)),0.5)))",
        ),
        (
            "F.gelu approximate=tanh",
            "pnnx.Expression a 2 1 y y a expr=mul(add(@0,mul(pow(@1,3.0),0.044715)),0.797884583)\n\
          F.tanh t 1 1 a t\n\
          pnnx.Expression e 2 1 y t z expr=mul(mul(@0,0.5),add(@1,1.0))",
        ),
        (
            "F.gelu approximate=tanh",
            "pnnx.Expression e 1 1 y z expr=mul(mul(0.5,@0),add(1,tanh(mul(mul(0.79788456,@0),\
          add(1,mul(mul(0.044715,@0),@0))))))",
        ),
        (
            "F.hardswish",
            "pnnx.Expression a 1 1 y a expr=add(@0,3)\nF.relu6 r 1 1 a r\n\
                         pnnx.Expression e 2 1 y r z expr=div(mul(@0,@1),6)",
        ),
        ("F.hardswish", "nn.Hardsigmoid h 1 1 y h\npnnx.Expression e 2 1 h y z expr=mul(@0,@1)"),
        (
            "F.hardsigmoid",
            "pnnx.Expression a 1 1 y a expr=add(@0,3.0)\n\
                           torch.clamp r 1 1 a r max=6.0 min=0.0\n\
                           pnnx.Expression e 1 1 r z expr=mul(@0,1.666667e-01)",
        ),
    ];
    for (kind, formula) in formulas {
        let lines = format!("pnnx.Input in 0 1 x\n{CONV}\n{formula}\npnnx.Output out 1 0 z");
        let (nodes, why) = left("activation", &[1, 2, 5, 6], &lines);
        assert!(nodes[0].starts_with("conv+e"), "{kind} as {formula}: {nodes:?} {why:?}");
        let (_, reports) = after_of(&[1, 2, 5, 6], &lines, &[]);
        let report = reports.iter().find(|r| r.name == "activation").unwrap();
        assert_eq!(report.done[0].what, format!("is {kind} of y"));
    }
}

#[test]
fn what_only_looks_like_an_activation_stays() {
    for formula in [
        "div(@0,add(exp(mul(@0,-1.702)),1))",
        "div(@0,add(exp(sub(0.0001,@0)),1))",
        "mul(mul(@0,0.5),add(erf(div(@0,1.4143)),1.0))",
        "mul(mul(@0,0.51),add(erf(div(@0,1.414214)),1.0))",
        "mul(@0,div(minimum(maximum(add(@0,3),0),5),6))",
        "mul(@0,tanh(log(add(exp(@0),2.0))))",
    ] {
        let lines = format!(
            "pnnx.Input in 0 1 x\n{CONV}\npnnx.Expression e 1 1 y z expr={formula}\n\
             pnnx.Output out 1 0 z"
        );
        let (nodes, _) = left("activation", &[1, 2, 5, 6], &lines);
        assert!(nodes.iter().any(|node| node.starts_with("e ")), "{formula}: {nodes:?}");
    }
    let gate = |formula: &str, out: &str| {
        let lines = format!("pnnx.Input in 0 1 x\n{CONV}\n{formula}\npnnx.Output out {out}");
        left("activation", &[1, 2, 5, 6], &lines)
    };
    // Of another value, and of one that is broadcast.
    let two =
        "nn.Sigmoid s 1 1 y s\nnn.ReLU r 1 1 y r\npnnx.Expression e 2 1 r s z expr=mul(@0,@1)";
    assert!(gate(two, "1 0 z").0.iter().any(|node| node.starts_with("e")));
    let mean = "torch.mean m 1 1 y m dim=(2,3) keepdim=True\nnn.Sigmoid s 1 1 m s\n\
                pnnx.Expression e 2 1 y s z expr=mul(@0,@1)";
    assert!(gate(mean, "1 0 z").0.iter().any(|node| node.starts_with("e")));
    // Somebody reads the gate.
    let seen = "nn.Sigmoid s 1 1 y s\npnnx.Expression e 2 1 y s z expr=mul(@0,@1)";
    assert_eq!(gate(seen, "2 0 z s").1, ["e: the result of s is fetched"]);
}

#[test]
fn a_number_for_one_channel_is_one_for_all_in_a_padded_block() {
    let conv = |name: &str, from: usize, to: usize, values: &str| {
        format!(
            "nn.Conv2d {name} 1 1 {values} bias=False dilation=(1,1) groups=1 in_channels={from} \
             kernel_size=(3,3) out_channels={to} padding=(1,1) padding_mode=zeros stride=(1,1) \
             @weight=({to},{from},3,3)f32\n"
        )
    };
    let lines = format!(
        "pnnx.Input in 0 1 x\n{}pnnx.Attribute g 0 1 g @data=(1,1,1)f32\n\
         pnnx.Expression e 3 1 a x g b expr=add(mul(@0,@2),maximum(@0,@2))\n{}pnnx.Output out 1 0 z",
        conv("first", 1, 1, "x a"),
        conv("last", 1, 4, "b z"),
    );
    left("layout", &[2, 1, 5, 6], &lines);
}

//! Passes change speed and memory, not results beyond rounding: each off, and all off.

use plutino::ir::Graph;
use plutino::{DType, Isa, Model, Precision, SessionOptions, Sorting, Tensor, TensorSpec, Units};
use plutino_fixtures::OpCase;
use plutino_tests::{fixture, inputs, model, run, specs};

/// Largest difference relative to the largest value.
fn difference(a: &[Tensor], b: &[Tensor]) -> f64 {
    assert_eq!(a.len(), b.len());
    let tolerance = plutino::Tolerance { rtol: 0.0, atol: f64::INFINITY };
    let errors = a.iter().zip(b).map(|(a, b)| a.compare(b, tolerance).unwrap().scaled_error());
    errors.fold(0.0, f64::max)
}

fn agree(name: &str) {
    let fixture = fixture(name);
    let (model, inputs) = (model(&fixture), inputs(&fixture));
    let on = run(&model, &inputs, SessionOptions::default());
    let optional = plutino::runtime::passes().filter(|pass| !pass.required);
    let names: Vec<_> = optional.map(|pass| pass.name).collect();
    let mut variants: Vec<(String, SessionOptions)> = names
        .iter()
        .map(|pass| (format!("without {pass}"), SessionOptions::default().without_pass(*pass)))
        .collect();
    variants.push(("without passes".into(), SessionOptions::default().without_passes()));
    let mut kahn = SessionOptions::default();
    kahn.sorting = Sorting::Kahn;
    variants.push(("in Kahn's order".into(), kahn));
    for (what, options) in variants {
        let off = run(&model, &inputs, options);
        // Sums of up to some thousand products in another order: 1e-5 is what fixtures are held to
        // as well.
        let error = difference(&off, &on);
        assert!(error <= 1e-5, "{name} {what}: {error:.2e}");
    }
}

#[test]
fn digits() {
    agree("digits");
}

#[test]
fn mobilenet_v3_small() {
    agree("mobilenet_v3_small");
}

#[test]
fn shufflenet() {
    agree("shufflenet_v2_x1_0");
}

#[test]
fn squeezenet() {
    agree("squeezenet1_1");
}

#[test]
fn minilm() {
    agree("minilm");
}

#[test]
fn convnext() {
    agree("convnext_tiny"); // permutations at the edges of channel blocks
}

#[test]
fn convolutions_take_over_squeeze_and_excite() {
    let model = model(&fixture("mobilenet_v3_small"));
    for isa in Isa::available() {
        let options = SessionOptions::default().with_isa(isa).with_units(Units::Vectors);
        let session = model.session(options).unwrap();
        // The last three layers have 96 output channels: more than twice their pixels in the
        // smaller image.
        for (size, expected) in [(224, 9), (96, 6)] {
            let image = TensorSpec::new(DType::F32, [2, 3, size, size]);
            let plan = session.plan(&[image]).unwrap();
            let scale = plan.passes().iter().find(|p| p.name == "scale").unwrap();
            let scaled = plan.steps().filter(|s| s.kernel.contains("scaled_pointwise")).count();
            assert_eq!((scale.done.len(), scaled), (expected, expected), "{isa}, {size}");
        }
    }
}

/// MobileNetV2's 17 blocks, of which 16 begin with a 1x1 convolution. The results are the same
/// bits, whatever threads have rows of their own in.
#[test]
fn depthwise_convolutions_compute_with_those_beside_them() {
    let fixture = fixture("mobilenet_v2");
    let (model, inputs) = (model(&fixture), inputs(&fixture));
    for isa in Isa::available() {
        let options = SessionOptions::default().with_isa(isa).with_units(Units::Vectors);
        let fused = |options: SessionOptions| {
            let plan = model.session(options).unwrap().plan(&specs(&inputs)).unwrap();
            let with = |part: &str| plan.steps().filter(|s| s.kernel.contains(part)).count();
            [with("pointwise>depthwise"), with("depthwise>pointwise"), plan.steps().count()]
        };
        let one = options.clone().with_threads(1);
        let [before, after, steps] = fused(one.clone());
        assert_eq!(before, 16, "{isa}");
        // Where a band of rows of all channels does not fit the cache, the last one is apart.
        assert!(after >= 13, "{isa}: {after}");
        let [none, _, apart] = fused(one.clone().without_pass("depthwise"));
        assert_eq!((none, apart), (0, steps + before + after), "{isa}");
        // All have one precision, or are apart.
        let medium = one.clone().with_precision_of("convbn2d_4", Precision::Medium);
        assert_eq!(fused(medium)[0], 15, "{isa}");
        let expected = run(&model, &inputs, one.without_pass("depthwise"));
        for threads in [1, 2, 3, 8] {
            let found = run(&model, &inputs, options.clone().with_threads(threads));
            let same =
                found[0].as_slice::<f32>().unwrap() == expected[0].as_slice::<f32>().unwrap();
            assert!(same, "{isa}, {threads} threads");
        }
    }
}

/// Layers that compute rows together have one setting.
#[test]
fn layers_of_another_precision_stay_apart() {
    let fixture = fixture("swin_t");
    let (model, inputs) = (model(&fixture), inputs(&fixture));
    let joined = |options: SessionOptions| {
        let plan = model.session(options).unwrap().plan(&specs(&inputs)).unwrap();
        let rows = plan.passes().iter().find(|p| p.name == "rows").unwrap();
        rows.done.iter().map(|note| note.operator.clone()).collect::<Vec<_>>()
    };
    let options = SessionOptions::default().with_threads(1);
    let mut expected = joined(options.clone());
    let first = expected.remove(0);
    assert_eq!(joined(options.with_precision_of(first, Precision::Medium)), expected);
}

#[test]
fn shuffled_channels_stay_in_blocks() {
    let model = model(&fixture("shufflenet_v2_x1_0"));
    for isa in Isa::available() {
        let session = model.session(SessionOptions::default().with_isa(isa)).unwrap();
        let plan = session.plan(&[TensorSpec::new(DType::F32, [2, 3, 224, 224])]).unwrap();
        let pass = plan.passes().iter().find(|p| p.name == "channels").unwrap();
        let steps = |kernel: &str| plan.steps().filter(|s| s.kernel.starts_with(kernel)).count();
        assert_eq!((pass.done.len(), steps("channels.c")), (16, 16), "{isa}");
        // The first layer makes blocks, the mean of each channel leaves them.
        assert_eq!((steps("reorder.to_blocked"), steps("copy")), (0, 0), "{isa}");
        assert_eq!((steps("reorder.from_blocked"), steps("pool.average.c")), (0, 1), "{isa}");
    }
}

#[test]
fn every_operator_that_is_others_becomes_nodes() {
    let mut expanded = 0;
    for case in OpCase::all().unwrap() {
        let model = Model::from_graph(case.graph().unwrap()).unwrap();
        let session = model.session(SessionOptions::default().with_threads(1)).unwrap();
        for run in case.runs().unwrap() {
            let inputs: Vec<Tensor> = run.inputs.into_iter().map(|(_, tensor)| tensor).collect();
            let Ok(plan) = session.plan(&specs(&inputs)) else { continue }; // errors are tested elsewhere
            let pass = plan.passes().iter().find(|p| p.name == "expand").unwrap();
            assert!(pass.refused.is_empty(), "{}: {:?}", case.name, pass.refused);
            expanded += pass.done.len();
        }
    }
    assert!(expanded > 100, "{expanded}");
}

/// A learned query that is scaled is a constant when attention is looked for: it is read as it is.
#[test]
fn attention_with_a_query_that_is_known() {
    let text = "7767517\n9 8\n\
        pnnx.Input in 0 1 x #x=(4,16,16)f32\n\
        pnnx.Attribute p 0 1 p @data=(4,1,16)f32\n\
        pnnx.Expression e 1 1 p q expr=mul(@0,0.25)\n\
        torch.transpose t 1 1 x k dim0=-2 dim1=-1 $input=x\n\
        torch.bmm b0 2 1 q k s $input=q $mat2=k\n\
        F.softmax sm 1 1 s w dim=-1 $input=s\n\
        torch.bmm b1 2 1 w x y $input=w $mat2=x\n\
        F.relu r 1 1 y z $input=y\n\
        pnnx.Output out 1 0 z\n";
    let mut graph = Graph::parse(text).unwrap();
    let (query, _) = graph.operators_of("pnnx.Attribute").next().unwrap();
    let numbers: Vec<u8> =
        (0..64).flat_map(|i| ((i * 7 % 13) as f32 - 6.0).to_le_bytes()).collect();
    graph.attrs_mut(query).unwrap().get_mut("data").unwrap().set_data(numbers).unwrap();
    let model = Model::from_graph(graph).unwrap();
    let x: Vec<f32> = (0..1024).map(|i| (i * 31 % 17) as f32 / 8.0 - 1.0).collect();
    let x = [Tensor::from_slice(&x, [4, 16, 16]).unwrap()];
    let plain = SessionOptions::default().without_pass("attention");
    let expected = model.session(plain).unwrap().run(&x).unwrap();
    let session = model.session(SessionOptions::default()).unwrap();
    let found = session.run(&x).unwrap();
    // Scores of 16 terms of up to 1.5 err by 16 x 24 eps at most, the weights by twice that, on
    // either side; the values are 1 at most.
    let off = |(a, b): (&f32, &f32)| f64::from((a - b).abs());
    let numbers = |y: &[Tensor]| y[0].as_slice::<f32>().unwrap().to_vec();
    let (a, b) = (numbers(&found), numbers(&expected));
    let most = a.iter().zip(&b).map(off).fold(0.0, f64::max);
    assert!(most <= 4.0 * 384.0 * f64::from(f32::EPSILON), "{most:.1e}");
    let plan = session.plan(&[x[0].spec()]).unwrap();
    assert!(plan.steps().any(|step| step.kernel.starts_with("attention")), "not fused");
}

/// The greatest and the sum of each channel's pixels, of whole blocks of channels and of others,
/// where a convolution makes them in blocks: with whole numbers, exactly those of plain tensors.
#[test]
fn folds_of_pixels_in_channel_blocks() {
    for (channels, dims, keepdim) in [
        (32, &[5usize, 7][..], "False"),
        (20, &[5, 7], "True"),
        (32, &[300], "False"),
        (19, &[3, 4, 5], "True"),
        (16, &[3, 4, 5], "False"),
    ] {
        let rank = dims.len();
        let each = |n: usize| vec![n.to_string(); rank].join(",");
        let spatial: Vec<String> = (2..2 + rank).map(|d| d.to_string()).collect();
        let spatial = spatial.join(",");
        let text = format!(
            "7767517\n6 6\n\
             pnnx.Input in 0 1 x\n\
             nn.Conv{rank}d conv 1 1 x y bias=False dilation=({}) groups=1 in_channels=4 \
             kernel_size=({}) out_channels={channels} padding=({}) padding_mode=zeros \
             stride=({}) @weight=({channels},4,{})f32\n\
             torch.amax greatest 1 1 y a dim=({spatial}) keepdim={keepdim}\n\
             torch.sum sum 1 1 y b dim=({spatial}) keepdim={keepdim}\n\
             prim::TupleConstruct t 2 1 a b c\n\
             pnnx.Output out 1 0 c\n",
            each(1),
            each(3),
            each(1),
            each(1),
            each(3)
        );
        let mut graph = Graph::parse(&text).unwrap();
        let number = |i: usize| (i * 31 % 11) as f32 - 5.0;
        let shape: Vec<usize> = [channels, 4].into_iter().chain(vec![3; rank]).collect();
        let weight: Vec<f32> = (0..shape.iter().product()).map(number).collect();
        let id = graph.operator_by_name("conv").unwrap();
        let weight = plutino::ir::Attribute::from_elements(shape, &weight).unwrap();
        graph.attrs_mut(id).unwrap().insert("weight".into(), weight);
        let model = Model::from_graph(graph).unwrap();
        let shape: Vec<usize> = [2, 4].into_iter().chain(dims.iter().copied()).collect();
        let x: Vec<f32> = (0..shape.iter().product()).map(number).collect();
        let x = [Tensor::from_slice(&x, shape).unwrap()];
        // Winograd's algorithms round.
        let options = SessionOptions::default().without_winograd();
        let plain = run(&model, &x, options.clone().without_pass("layout"));
        assert_eq!(run(&model, &x, options), plain, "{channels} {dims:?} {keepdim}");
    }
}

//! Products of less than f32: how far results are off, and what they do not depend on.

use plutino::ir::Graph;
use plutino::{
    Isa, Model, Precision, Session, SessionOptions, StepInfo, Tensor, TensorSpec, Units,
};
use plutino_fixtures::{Chain, OpCase};
use plutino_tests::{fixture, inputs};

/// Whether this CPU has instructions for bf16 that go with an instruction set.
fn multiplies_bf16(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = std::is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    let has = false;
    has && isa.name() == "avx512"
}

/// A session at this precision, with a way to compute: the emulation, or an instruction set.
fn session(model: &Model, precision: Precision, isa: Option<Isa>, threads: usize) -> Session {
    let options = SessionOptions::default().with_threads(threads).with_precision(precision);
    let options = match isa {
        Some(isa) => options.with_isa(isa),
        None => options.with_units(Units::EmulatedBf16),
    };
    model.session(options).unwrap()
}

/// Whether a kernel of this name multiplies bf16 (`gemm.avx512_bf16`, `gemm.bf16x1.amx` among
/// others).
fn of_bf16(kernel: &str) -> bool {
    kernel.contains("bf16") || kernel.ends_with(".emulated")
}

fn bits(outputs: &[Tensor]) -> Vec<Vec<u8>> {
    outputs.iter().map(|y| y.as_bytes().to_vec()).collect()
}

/// The largest difference over the largest value, of any output.
fn error(found: &[Tensor], exact: &[Tensor]) -> f64 {
    let of = |(a, b): (&Tensor, &Tensor)| {
        let (a, b) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
        let largest = b.iter().fold(0.0f32, |m, y| m.max(y.abs()));
        let off = a.iter().zip(b).fold(0.0f32, |m, (x, y)| m.max((x - y).abs()));
        f64::from(off / largest)
    };
    found.iter().zip(exact).map(of).fold(0.0, f64::max)
}

/// Each operand of a product is off by 2^-9 of itself at most, and both together by 2^-8; the
/// errors of layers one after the other are independent, so that they grow with the square root of
/// their number.
#[test]
fn errors_are_those_of_bf16() {
    let real = Isa::available().into_iter().filter(|isa| multiplies_bf16(*isa)).map(Some);
    for isa in real.chain([None]) {
        let names: &[&str] = match isa {
            None => &["digits", "mobilenet_v3_small"], // the emulation takes its time
            Some(_) => &["mobilenet_v3_small", "resnet50", "minilm", "squeezenet1_1"],
        };
        for name in names {
            let fixture = fixture(name);
            let model = Model::from_graph(fixture.graph().unwrap()).unwrap();
            let given = inputs(&fixture);
            let exact = session(&model, Precision::Highest, isa, 1).run(&given).unwrap();
            let medium = session(&model, Precision::Medium, isa, 1);
            let found = medium.run(&given).unwrap();

            let specs: Vec<_> = given.iter().map(Tensor::spec).collect();
            let plan = medium.plan(&specs).unwrap();
            let layers = plan.steps().filter(|step| of_bf16(&step.kernel)).count();
            assert!(layers > 0, "{name}: no kernel of bf16");
            let (off, bound) = (error(&found, &exact), (layers as f64).sqrt() / 256.0);
            assert!(off <= bound, "{name}: {off:.1e} with {layers} layers, at most {bound:.1e}");
            assert!(off > 1e-5, "{name}: {off:.1e} is not bf16");

            let three = session(&model, Precision::Medium, isa, 3).run(&given).unwrap();
            assert!(bits(&three) == bits(&found), "{name} depends on threads");
        }
    }
}

/// What convolutions of bf16 hand on is bf16 in memory, unless somebody else reads it.
#[test]
fn values_between_convolutions_are_bf16() {
    let fixture = fixture("squeezenet1_1");
    let model = Model::from_graph(fixture.graph().unwrap()).unwrap();
    let given = inputs(&fixture);
    let specs: Vec<_> = given.iter().map(Tensor::spec).collect();
    let options = SessionOptions::default().with_threads(1).with_units(Units::EmulatedBf16);
    let options = options.with_precision(Precision::Medium);
    let narrow = |options: &SessionOptions| {
        let session = model.session(options.clone()).unwrap();
        let plan = session.plan(&specs).unwrap();
        let bf16 = |step: &StepInfo| step.outputs.iter().any(|y| y.spec.contains("bf16"));
        let names = plan.steps().filter(bf16).map(|step| step.location.name);
        (names.collect::<Vec<_>>(), plan.memory().arena, session.run(&given).unwrap())
    };
    // Without Winograd's algorithms, which else round what they read: only what is rounded anyway.
    let direct = options.clone().without_winograd();
    let (names, arena, found) = narrow(&direct);
    // Eight pairs of layers behind one that makes their input, the concatenations of these and the
    // pools between: all but the first layer, and what the mean reads.
    assert!(names.len() > 20, "{names:?}");
    let (none, whole, expected) = narrow(&direct.clone().without_pass("bf16"));
    assert!(none.is_empty() && arena <= whole, "{none:?}, {arena} of {whole}");
    assert!(bits(&found) == bits(&expected));
    // One that computes with f32 gets f32.
    let (reads, one) = (&names[names.len() - 1], Precision::Highest);
    let (others, ..) = narrow(&direct.clone().with_precision_of("nn.MaxPool2d", one));
    assert_eq!(others, names, "{reads}: pools move numbers");
    let (none, ..) = narrow(&direct.with_precision_of("nn.Conv2d", one));
    assert!(none.is_empty(), "{none:?}");
    // With them the numbers that they read are rounded as well, and shown as they are.
    let (_, _, found) = narrow(&options);
    let off = error(&found, &expected);
    assert!(off > 0.0 && off < 1e-2, "{off:.1e}");
}

/// What linear layers and norms hand on is bf16 in memory where layers of bf16 alone read it, also
/// through what moves rows; between two layers that are computed in chunks as well.
#[test]
fn values_between_layers_of_rows_are_bf16() {
    // Of each of twelve layers the norms before attention and before the two linear layers, and
    // what lies between these; windows that are rolled and permuted; norms that are residuals, too.
    let networks = [("vit_b_32", 36, false), ("swin_t", 36, true), ("minilm", 6, false)];
    for (name, least, moved) in networks {
        let fixture = fixture(name);
        let model = Model::from_graph(fixture.graph().unwrap()).unwrap();
        let given = inputs(&fixture);
        let specs: Vec<_> = given.iter().map(Tensor::spec).collect();
        let options = SessionOptions::default().with_precision(Precision::Medium);
        let options = options.with_units(Units::EmulatedBf16);
        let session = model.session(options.clone().with_threads(1)).unwrap();
        let plan = session.plan(&specs).unwrap();
        let bf16 = |step: &StepInfo| step.outputs.iter().any(|y| y.spec.ends_with("f32:bf16"));
        let kernels: Vec<String> = plan.steps().filter(bf16).map(|step| step.kernel).collect();
        assert!(kernels.len() >= least, "{name}: {kernels:?}");
        assert_eq!(kernels.iter().any(|kernel| kernel.starts_with("copy")), moved, "{name}");
        // (Operators are compared by themselves; emulated, the larger networks take long.)
        if name == "minilm" {
            let found = bits(&session.run(&given).unwrap());
            let options = options.with_threads(2).without_pass("bf16");
            let session = model.session(options).unwrap();
            assert!(bits(&session.run(&given).unwrap()) == found, "{name}");
        }
    }
}

/// Where the CPU has nothing that is faster, a lower precision changes no bit.
#[test]
fn precision_is_a_floor() {
    let fixture = fixture("digits");
    let model = Model::from_graph(fixture.graph().unwrap()).unwrap();
    let given = inputs(&fixture);
    for isa in Isa::available() {
        let run = |precision| session(&model, precision, Some(isa), 1).run(&given).unwrap();
        let exact = bits(&run(Precision::Highest));
        // (Matrix units come with AVX-512; tests of products show what they compute.)
        if isa.lanes() < 16 {
            assert!(bits(&run(Precision::High)) == exact, "{isa}");
        }
        if !multiplies_bf16(isa) {
            assert!(bits(&run(Precision::Medium)) == exact, "{isa}");
        }
    }
}

/// What matrix units compute: six products with the accuracy of f32, three with some 16 bits, one
/// with 8.
#[test]
fn errors_on_matrix_units() {
    let fixture = fixture("squeezenet1_1");
    let model = Model::from_graph(fixture.graph().unwrap()).unwrap();
    let given = inputs(&fixture);
    let exact = session(&model, Precision::Highest, Some(Isa::best()), 1).run(&given).unwrap();
    let on = |precision| {
        let options = SessionOptions::default().with_threads(2).with_precision(precision);
        let session = model.session(options.with_units(Units::EmulatedAmx)).unwrap();
        let specs: Vec<_> = given.iter().map(Tensor::spec).collect();
        let plan = session.plan(&specs).unwrap();
        assert!(plan.steps().any(|step| step.kernel.ends_with("amx-emulated")));
        error(&session.run(&given).unwrap(), &exact)
    };
    let [highest, high, medium] = Precision::ALL.map(on);
    assert!(highest < 1e-6, "{highest:.1e}");
    assert!((1e-7..1e-4).contains(&high), "{high:.1e}");
    assert!((1e-4..1e-2).contains(&medium), "{medium:.1e}");
}

/// Attention and transposed convolutions compute by the units of their precision: named so, and off
/// by what its numbers lose in each of their products, but for what f32 loses.
#[test]
fn every_kind_of_product_follows_the_precision() {
    let units = [
        (Units::EmulatedBf16, Precision::Medium, "emulated", 0.5f64.powi(8)),
        (Units::EmulatedAmx, Precision::Medium, "bf16x1.amx-emulated", 0.5f64.powi(8)),
        (Units::EmulatedAmx, Precision::High, "bf16x2.amx-emulated", 0.5f64.powi(16)),
    ];
    for (name, kernel, layers) in [
        // Of each layer a projection in and out, and both products.
        ("attention", "attention.multihead", 3 * 4),
        ("attention_spelled_out", "attention", 4),
        ("conv_transposed", "conv.phases", 2),
    ] {
        let case = Chain::named(name).unwrap();
        let model = Model::from_graph(case.graph().unwrap()).unwrap();
        let given = case.inputs().unwrap();
        let specs: Vec<_> = given.iter().map(Tensor::spec).collect();
        let exact = session(&model, Precision::Highest, Some(Isa::best()), 1).run(&given).unwrap();
        for (units, precision, unit, lost) in units {
            let options = SessionOptions::default().with_precision(precision).with_threads(2);
            let session = model.session(options.with_units(units)).unwrap();
            let plan = session.plan(&specs).unwrap();
            let kernels: Vec<_> = plan.steps().map(|step| step.kernel).collect();
            let by = |k: &str| k.ends_with(unit) || k.starts_with("conv.phases_bf16");
            let found = kernels.iter().any(|k| k.starts_with(kernel) && by(k));
            assert!(found, "{name}: no {kernel} by {unit} in {kernels:?}");
            let off = error(&session.run(&given).unwrap(), &exact);
            let bound = f64::from(layers).sqrt() * lost + 1e-6;
            assert!(off <= bound && off > lost / 100.0, "{name} {unit}: {off:.1e} of {bound:.1e}");
        }
    }
}

/// What is asked for some operators holds for these alone, whatever the session's precision.
#[test]
fn precisions_of_operators() {
    let fixture = fixture("digits");
    let model = Model::from_graph(fixture.graph().unwrap()).unwrap();
    let given = inputs(&fixture);
    let specs: Vec<_> = given.iter().map(Tensor::spec).collect();
    let with = |precision, asked: &[(&str, Precision)]| {
        let options = SessionOptions::default().with_threads(1).with_units(Units::EmulatedBf16);
        let options = asked
            .iter()
            .fold(options.with_precision(precision), |o, &(what, p)| o.with_precision_of(what, p));
        model.session(options)
    };
    let reduced = |session: &Session| -> Vec<String> {
        let plan = session.plan(&specs).unwrap();
        let steps = plan.steps().filter(|step| of_bf16(&step.kernel));
        steps.map(|step| step.location.name).collect()
    };
    let [highest, medium] = [Precision::Highest, Precision::Medium];
    let exact = with(highest, &[]).unwrap();
    assert!(reduced(&exact).is_empty());
    assert_eq!(reduced(&with(highest, &[("head", medium)]).unwrap()), ["head"]);
    let most = reduced(&with(medium, &[]).unwrap());
    assert!(most.len() > 1 && most.contains(&"head".to_owned()), "{most:?}");
    let convs = reduced(&with(medium, &[("nn.Linear", highest)]).unwrap());
    assert!(!convs.contains(&"head".to_owned()) && convs.len() + 1 == most.len(), "{convs:?}");

    let none = with(medium, &[("head", highest), ("nn.Conv2d", medium), ("nn.Conv2d", highest)]);
    let none = none.unwrap();
    assert!(reduced(&none).is_empty());
    assert!(bits(&none.run(&given).unwrap()) == bits(&exact.run(&given).unwrap()));

    let unknown = with(medium, &[("hea", highest)]).unwrap_err().to_string();
    assert!(unknown.contains("precision_of") && unknown.contains("found 'hea'"), "{unknown}");
}

/// A composite operator is planned as steps with types and names of their own: they follow what is
/// asked for the operator.
#[test]
fn precisions_of_composite_operators() {
    let case = OpCase::named("raw", "encoder_layer_fast_path").unwrap();
    let kind = "aten::_transformer_encoder_layer_fwd";
    let graph = case.graph().unwrap();
    let name = graph.operators_of(kind).next().unwrap().1.name.clone();
    let model = Model::from_graph(graph).unwrap();
    let run = case.runs().unwrap().swap_remove(0);
    let specs: Vec<_> = run.inputs.iter().map(|(_, x)| x.spec()).collect();
    let kernels = |precision, asked: Option<&str>| -> Vec<String> {
        let options = SessionOptions::default().with_threads(1).with_units(Units::EmulatedBf16);
        let options = options.with_precision(precision);
        let options = match asked {
            Some(what) => options.with_precision_of(what, Precision::Medium),
            None => options,
        };
        let plan = model.session(options).unwrap().plan(&specs).unwrap();
        plan.steps().map(|step| step.kernel).collect()
    };
    let medium = kernels(Precision::Medium, None);
    assert!(medium != kernels(Precision::Highest, None), "{medium:?}");
    assert_eq!(kernels(Precision::Highest, Some(kind)), medium);
    assert_eq!(kernels(Precision::Highest, Some(&name)), medium);
}

/// Every small graph with a product, with fewer terms than f32 has: what a kernel reads from a
/// wrong place is off by as much as the values are large. A rounding is 2^-9 of each operand, or
/// 2^-17 of what has two terms, so that a sum of products is off by a fraction of 2^-8 or 2^-16 of
/// the largest value, and by four times that where it is one of few.
#[test]
fn every_operator_keeps_to_its_precision() {
    let all = [
        (Units::EmulatedBf16, Precision::Medium, 2f64.powi(-6)),
        (Units::EmulatedAmx, Precision::Medium, 2f64.powi(-6)),
        (Units::EmulatedAmx, Precision::High, 2f64.powi(-14)),
    ];
    let (mut compared, mut failures) = ([0; 3], Vec::new());
    for case in OpCase::all().unwrap() {
        let model = Model::from_graph(case.graph().unwrap()).unwrap();
        let options = || SessionOptions::default().with_threads(2);
        let exact = model.session(options()).unwrap();
        for (at, (units, precision, bound)) in all.into_iter().enumerate() {
            let options = options().with_precision(precision).with_units(units);
            let session = model.session(options).unwrap();
            for run in case.runs().unwrap() {
                let given: Vec<_> = run.inputs.into_iter().map(|(_, tensor)| tensor).collect();
                let specs: Vec<_> = given.iter().map(Tensor::spec).collect();
                let Ok(plan) = session.plan(&specs) else { continue };
                if !plan.steps().any(|step| of_bf16(&step.kernel)) {
                    continue;
                }
                compared[at] += 1;
                let (found, exact) = (session.run(&given).unwrap(), exact.run(&given).unwrap());
                let off = of_floats(&found, &exact);
                if !off.is_some_and(|off| off <= bound) {
                    failures.push(format!("{} ({units:?}, {precision:?}): {off:?}", case.name));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // Most are too small for tiles.
    assert!(compared[0] > 40 && compared.iter().all(|&n| n > 4), "{compared:?}");
}

/// As [`error`], of outputs of floats; none where one is no number and should be.
fn of_floats(found: &[Tensor], exact: &[Tensor]) -> Option<f64> {
    let mut largest = 0.0;
    for (a, b) in found.iter().zip(exact).filter(|(_, exact)| exact.dtype().is_float()) {
        let [a, b] = [a, b].map(|t| t.cast(plutino::DType::F64).unwrap());
        let (a, b) = (a.as_slice::<f64>().unwrap(), b.as_slice::<f64>().unwrap());
        let scale = b.iter().filter(|y| y.is_finite()).fold(0.0f64, |m, y| m.max(y.abs()));
        for (x, y) in a.iter().zip(b).filter(|(_, y)| y.is_finite()) {
            let off = (x - y).abs() / scale.max(f64::MIN_POSITIVE);
            largest = off.is_finite().then(|| off.max(largest))?;
        }
    }
    Some(largest)
}

/// Pools between two convolutions, as many as a file may have: all hand on bf16, or none, where the
/// last one is read by somebody else. Who knows that tells the one before.
#[test]
fn bf16_goes_through_a_long_chain_or_not_at_all() {
    let n = 3000;
    let conv = |name: &str, from: &str, to: &str| {
        format!(
            "nn.Conv2d {name} 1 1 {from} {to} bias=False dilation=(1,1) groups=1 in_channels=16 \
             kernel_size=(1,1) out_channels=16 padding=(0,0) padding_mode=zeros stride=(1,1) \
             @weight=(16,16,1,1)f32\n"
        )
    };
    let made = |last: &str| {
        let mut text = format!("7767517\n{} {}\n", n + 4, n + 3);
        text += "pnnx.Input in 0 1 x #x=(1,16,3,3)f32\n";
        text += &conv("first", "x", "0");
        for i in 0..n {
            text += &format!(
                "nn.MaxPool2d pool{i} 1 1 {i} {} ceil_mode=False dilation=(1,1) kernel_size=(1,1) \
                 padding=(0,0) return_indices=False stride=(1,1)\n",
                i + 1
            );
        }
        text += last;
        text += "pnnx.Output out 1 0 y\n";
        let mut graph = Graph::parse(&text).unwrap();
        for name in ["first", "last"] {
            let Some(id) = graph.operator_by_name(name) else { continue };
            let attrs = graph.attrs_mut(id).unwrap();
            let Some(weight) = attrs.get_mut("weight") else { continue };
            weight.set_data(vec![0; 16 * 16 * 4]).unwrap();
        }
        let model = Model::from_graph(graph).unwrap();
        let options = SessionOptions::default().with_threads(1).with_units(Units::EmulatedBf16);
        let options = options.with_precision(Precision::Medium);
        let spec = TensorSpec::new(plutino::DType::F32, [1, 16, 3, 3]);
        let plan = model.session(options).unwrap().plan(&[spec]).unwrap();
        let pass = plan.passes().iter().find(|pass| pass.name == "bf16").unwrap();
        pass.done.len()
    };
    assert_eq!(made(&conv("last", &n.to_string(), "y")), n + 1);
    assert_eq!(made(&format!("torch.abs last 1 1 {n} y\n")), 0);
}

/// Where threads decide whether convolutions are computed as one, which reads and makes f32, they
/// decide nothing about what is rounded to bf16.
#[test]
fn threads_round_nothing() {
    let mut lines = vec!["pnnx.Input in 0 1 x".to_owned()];
    let conv = |name: &str, [x, y]: [&str; 2], [inp, out]: [usize; 2], depthwise: bool| {
        let (kernel, pad, groups) = if depthwise { (3, 1, inp) } else { (1, 0, 1) };
        format!(
            "nn.Conv2d {name} 1 1 {x} {y} bias=False dilation=(1,1) groups={groups} \
             in_channels={inp} kernel_size=({kernel},{kernel}) out_channels={out} \
             padding=({pad},{pad}) padding_mode=zeros stride=(1,1) \
             @weight=({out},{},{kernel},{kernel})f32",
            inp / groups
        )
    };
    let mut x = "x".to_owned();
    for i in 0..3 {
        let value = |what: &str| format!("{what}{i}");
        let (wide, deep, narrow, sum) = (value("w"), value("d"), value("n"), value("s"));
        lines.push(conv(&value("expand"), [&x, &wide], [32, 96], false));
        lines.push(conv(&value("depthwise"), [&wide, &deep], [96, 96], true));
        lines.push(conv(&value("project"), [&deep, &narrow], [96, 32], false));
        lines.push(format!("pnnx.Expression sum{i} 2 1 {x} {narrow} {sum} expr=add(@0,@1)"));
        x = sum;
    }
    lines.push(conv("last", [&x, "y"], [32, 32], false));
    lines.push("pnnx.Output out 1 0 y".to_owned());
    let operands = 3 * 4 + 2;
    let text = format!("7767517\n{} {operands}\n{}\n", lines.len(), lines.join("\n"));
    let mut graph = Graph::parse(&text).unwrap();
    let ids: Vec<_> = graph.operators_of("nn.Conv2d").map(|(id, _)| id).collect();
    let number = |i: usize| ((i * 7919 + i * i % 613) % 997) as f32 / 997.0 - 0.5;
    for id in ids {
        let shape = graph.operator(id).unwrap().attrs["weight"].shape().to_vec();
        let data: Vec<f32> = (0..shape.iter().product()).map(number).collect();
        let weight = plutino::ir::Attribute::from_elements(shape, &data).unwrap();
        graph.attrs_mut(id).unwrap().insert("weight".into(), weight);
    }
    let model = Model::from_graph(graph).unwrap();
    for size in [5, 9] {
        let x: Vec<f32> = (0..32 * size * size).map(number).collect();
        let x = Tensor::from_slice(&x, [1, 32, size, size]).unwrap();
        let real = Isa::available().into_iter().filter(|isa| multiplies_bf16(*isa)).map(Some);
        for isa in real.chain([None]) {
            let run = |threads| {
                let session = session(&model, Precision::Medium, isa, threads);
                bits(&session.run(std::slice::from_ref(&x)).unwrap())
            };
            let one = run(1);
            assert!([2, 3, 8].iter().all(|&threads| run(threads) == one), "{size} {isa:?}");
        }
    }
}

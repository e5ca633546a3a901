//! A plan that is bound to another length computes the bits of one made for that length.

use crate::plan::Work;
use crate::testkit::{graph, weighted};
use crate::{Model, Plan, Request, Session, SessionOptions, State};
use plutino_kernels::Isa;
use plutino_ops::Kernel;
use plutino_tensor::{DType, Tensor};
use std::sync::Arc;

/// How attention is written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Sdpa,
    Spelled,
    /// Two heads of queries for each of keys: repeated, or expanded and reshaped.
    Repeated,
    Expanded,
    Grouped,
    /// With a mask that is an input.
    Masked,
    /// With a mask that is made of the length.
    Causal,
    /// The last of the values is looked at as well: a view whose place depends on the length.
    Last,
    /// The sum of the keys is an output too: somebody else reads the cache.
    Summed,
    /// Along the first dimension, without heads.
    Flat,
    /// Only the last eight rows are attended to: of longer lengths, all windows are alike.
    Window,
    /// Rows of zeros are added up to sixteen: to longer lengths none.
    Padded,
}

const ALL: [Kind; 12] = [
    Kind::Sdpa,
    Kind::Spelled,
    Kind::Repeated,
    Kind::Expanded,
    Kind::Grouped,
    Kind::Masked,
    Kind::Causal,
    Kind::Last,
    Kind::Summed,
    Kind::Flat,
    Kind::Window,
    Kind::Padded,
];

/// A step of a decoder of two layers.
fn decoder(kind: Kind) -> String {
    let mut lines = vec!["pnnx.Input in0 0 1 x0 #x0=(1,?,16)f32".to_owned()];
    let heads = match kind {
        Kind::Repeated | Kind::Expanded | Kind::Grouped => 2,
        _ => 4,
    };
    let cache = if kind == Kind::Flat { "(?,16)".to_owned() } else { format!("(1,{heads},?,4)") };
    for l in 0..2 {
        for c in ["k", "v"] {
            lines.push(format!("pnnx.Input in{c}{l} 0 1 p{c}{l} #p{c}{l}={cache}f32"));
        }
    }
    if kind == Kind::Masked {
        lines.push("pnnx.Input mask 0 1 mask #mask=(1,1,1,?)f32".into());
    }
    let mut outputs = Vec::new();
    for l in 0..2 {
        let wide = heads * 4;
        for (c, n, h) in [("q", 16, 4), ("k", wide, heads), ("v", wide, heads)] {
            lines.push(format!(
                "nn.Linear {c}{l} 1 1 x{l} {c}a{l} bias=False in_features=16 out_features={n} \
                 @weight=({n},16)f32"
            ));
            let shape = if kind == Kind::Flat { "(1,16)".into() } else { format!("(1,1,{h},4)") };
            lines.push(format!("Tensor.reshape r{c}{l} 1 1 {c}a{l} {c}b{l} shape={shape}"));
            let order = if kind == Kind::Flat { "dim0=0 dim1=0" } else { "dim0=1 dim1=2" };
            lines.push(format!(
                "torch.transpose t{c}{l} 1 1 {c}b{l} {c}c{l} {order} $input={c}b{l}"
            ));
        }
        let (dim, shape) = if kind == Kind::Flat { (0, "") } else { (2, "") };
        for c in ["k", "v"] {
            lines.push(format!(
                "torch.cat j{c}{l} 2 1 p{c}{l} {c}c{l} {c}{l} dim={dim} #{c}{l}={cache}f32{shape}"
            ));
            outputs.push(format!("{c}{l}"));
        }
        let (mut k, mut v) = (format!("k{l}"), format!("v{l}"));
        for c in [&mut k, &mut v] {
            match kind {
                Kind::Repeated => {
                    lines.push(format!(
                        "torch.repeat_interleave w{c} 1 1 {c} {c}w dim=1 repeats=2 $input={c}"
                    ));
                    *c = format!("{c}w");
                }
                Kind::Expanded => {
                    lines.push(format!("torch.unsqueeze u{c} 1 1 {c} {c}u dim=2 $input={c}"));
                    lines.push(format!(
                        "pnnx.Expression e{c} 1 1 {c} {c}s expr=[1,2,2,size(@0,2),4]"
                    ));
                    lines.push(format!(
                        "Tensor.expand f{c} 2 1 {c}u {c}s {c}e $input={c}u $sizes={c}s"
                    ));
                    lines.push(format!("Tensor.reshape g{c} 1 1 {c}e {c}w shape=(1,4,-1,4)"));
                    *c = format!("{c}w");
                }
                Kind::Window => {
                    lines.push(format!(
                        "Tensor.slice w{c} 1 1 {c} {c}w dim=2 start=-8 end=9223372036854775807 \
                         step=1 $input={c}"
                    ));
                    *c = format!("{c}w");
                }
                Kind::Padded => {
                    lines.push(format!(
                        "pnnx.Expression e{c} 1 1 {c} {c}s expr=[0,0,0,max(sub(16,size(@0,2)),0)]"
                    ));
                    lines.push(format!(
                        "F.pad w{c} 2 1 {c} {c}s {c}w mode=constant value=0.0 $input={c} $pad={c}s"
                    ));
                    *c = format!("{c}w");
                }
                _ => {}
            }
        }
        let flag = if kind == Kind::Grouped { "enable_gqa=True " } else { "" };
        let sdpa = format!("dropout_p=0.0 {flag}is_causal=False $query=qc{l} $key={k} $value={v}");
        match kind {
            Kind::Spelled | Kind::Expanded => {
                lines.push(format!("torch.transpose kt{l} 1 1 {k} kt{l} dim0=-1 dim1=-2 $input={k}"));
                lines.push(format!("torch.matmul s{l} 2 1 qc{l} kt{l} sa{l} $input=qc{l} $other=kt{l}"));
                lines.push(format!("pnnx.Expression m{l} 1 1 sa{l} sb{l} expr=mul(@0,0.5)"));
                lines.push(format!("F.softmax sm{l} 1 1 sb{l} sc{l} dim=-1 $input=sb{l}"));
                lines.push(format!("torch.matmul o{l} 2 1 sc{l} {v} a{l} $input=sc{l} $other={v}"));
            }
            Kind::Masked => lines.push(format!(
                "F.scaled_dot_product_attention a{l} 4 1 qc{l} {k} {v} mask a{l} {sdpa} $attn_mask=mask"
            )),
            Kind::Causal => {
                // Zeros, as many as there are keys.
                lines.push(format!("pnnx.Expression n{l} 1 1 {k} n{l} expr=[1,1,1,size(@0,2)]"));
                lines.push(format!("torch.zeros z{l} 1 1 n{l} z{l} dtype=torch.float $size=n{l}"));
                lines.push(format!(
                    "F.scaled_dot_product_attention a{l} 4 1 qc{l} {k} {v} z{l} a{l} {sdpa} $attn_mask=z{l}"
                ));
            }
            _ => lines.push(format!(
                "F.scaled_dot_product_attention a{l} 3 1 qc{l} {k} {v} a{l} attn_mask=None {sdpa}"
            )),
        }
        let back = if kind == Kind::Flat { "dim0=0 dim1=0" } else { "dim0=1 dim1=2" };
        lines.push(format!("torch.transpose b{l} 1 1 a{l} b{l} {back} $input=a{l}"));
        lines.push(format!("Tensor.reshape c{l} 1 1 b{l} c{l} shape=(1,1,16)"));
        let next = l + 1;
        lines.push(format!(
            "nn.Linear o{l}p 1 1 c{l} d{l} bias=True in_features=16 out_features=16 \
             @bias=(16)f32 @weight=(16,16)f32"
        ));
        match kind {
            Kind::Last => {
                lines.push(format!(
                    "torch.flatten fl{l} 1 1 v{l} fl{l} start_dim=1 end_dim=2 $input=v{l}"
                ));
                lines.push(format!(
                    "Tensor.slice sl{l} 1 1 fl{l} la{l} dim=1 start=-4 end=9223372036854775807 step=1 $input=fl{l}"
                ));
                lines.push(format!("Tensor.reshape rl{l} 1 1 la{l} lb{l} shape=(1,1,16)"));
                lines.push(format!(
                    "pnnx.Expression x{l}e 3 1 x{l} d{l} lb{l} x{next} expr=add(add(@0,@1),@2)"
                ));
            }
            _ => lines.push(format!("pnnx.Expression x{l}e 2 1 x{l} d{l} x{next} expr=add(@0,@1)")),
        }
        if kind == Kind::Summed {
            lines.push(format!(
                "torch.sum sum{l} 1 1 k{l} sum{l} dim=(2) keepdim=False $input=k{l}"
            ));
            outputs.push(format!("sum{l}"));
        }
    }
    outputs.insert(0, "x2".into());
    for (i, output) in outputs.iter().enumerate() {
        lines.push(format!("pnnx.Output out{i} 1 0 {output}"));
    }
    lines.join("\n")
}

fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let n = shape.iter().product::<usize>();
    let number = |i: usize| ((i * 7919 + seed * 104_729) % 997) as f32 / 500.0 - 1.0;
    let numbers: Vec<f32> = (0..n).map(number).collect();
    Tensor::from_slice(&numbers, shape.iter().copied().collect::<plutino_tensor::Shape>()).unwrap()
}

/// The inputs for caches of this length.
fn inputs(model: &Model, length: usize) -> Vec<Tensor> {
    let sized = model.inputs().iter().enumerate().map(|(i, info)| {
        let dims = info.recorded.shape.as_ref().unwrap().iter().map(|dim| match dim {
            plutino_ir::Dim::Known(n) => *n,
            _ if info.name == "mask" => length + 1,
            _ if info.name == "x0" => 1,
            _ => length,
        });
        numbers(&dims.collect::<Vec<_>>(), i + length)
    });
    sized.collect()
}

fn options(isa: Isa) -> SessionOptions {
    SessionOptions::default().with_threads(2).with_isa(isa)
}

/// The plan that the session uses for these inputs.
fn plan(session: &Session, inputs: &[Tensor]) -> Arc<Plan> {
    session.plan(&inputs.iter().map(Tensor::spec).collect::<Vec<_>>()).unwrap()
}

#[test]
fn every_length_has_the_bits_of_a_plan_of_its_own() {
    for kind in ALL {
        let model = weighted(&decoder(kind));
        for isa in Isa::available() {
            let session = model.session(options(isa)).unwrap();
            let fresh = model.session(options(isa)).unwrap();
            let mut bound = 0;
            // Longer, shorter, beyond the capacity, none at all.
            for length in [3, 4, 5, 17, 18, 2, 1, 40, 61, 62, 63, 64, 65, 130, 7, 131] {
                let inputs = inputs(&model, length);
                let found = session.run(&inputs).unwrap();
                fresh.release_memory();
                assert_eq!(found, fresh.run(&inputs).unwrap(), "{kind:?} {isa} {length}");
                bound += usize::from(plan(&session, &inputs).open.is_some());
                assert!(plan(&fresh, &inputs).open.is_none());
            }
            match kind {
                Kind::Window | Kind::Padded => {}
                _ => {
                    assert_eq!(bound, 15, "{kind:?}: all but the first");
                    assert!(session.plan_count() <= 2, "{}", session.plan_count());
                }
            }
        }
    }
}

/// The kernels of the attentions of a step, by layer.
fn attentions(plan: &Plan) -> Vec<&Arc<dyn Kernel>> {
    let kernels = plan.steps.iter().filter_map(|step| match &step.work {
        Work::Kernel(kernel) => Some(kernel),
        _ => None,
    });
    kernels.filter(|kernel| kernel.name().starts_with("attention")).collect()
}

#[test]
fn layers_that_are_alike_are_planned_once_for_a_length() {
    let shared = |text: &str| {
        let model = weighted(text);
        let session = model.session(options(Isa::best())).unwrap();
        let plans: Vec<Arc<Plan>> = [4, 5].map(|l| plan(&session, &inputs(&model, l))).into();
        let plan = plans.last().unwrap();
        assert!(plan.open.is_some());
        let [first, second] = attentions(plan)[..] else { panic!("one a layer") };
        Arc::ptr_eq(first, second)
    };
    assert!(shared(&decoder(Kind::Sdpa)));
    // The second layer computes something else of the same shapes.
    let at = "is_causal=False";
    let (head, tail) =
        decoder(Kind::Sdpa).rsplit_once(at).map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert!(!shared(&format!("{head}{at} scale=0.25{tail}")));
}

#[test]
fn what_does_not_depend_on_the_length_is_shared() {
    let model = weighted(&decoder(Kind::Spelled));
    let session = model.session(options(Isa::best())).unwrap();
    let plans: Vec<Arc<Plan>> = (1..6).map(|l| plan(&session, &inputs(&model, l))).collect();
    assert!(plans[0].open.is_none() && plans[4].open.is_some());
    let differs = |(a, b): (&Arc<_>, &Arc<_>)| !Arc::ptr_eq(a, b);
    let other = plans[3].steps.iter().zip(&plans[4].steps).filter(|(a, b)| differs((a, b)));
    let names: Vec<&str> = other.map(|(step, _)| step.kernel_name()).collect();
    // Two concatenations and an attention for each layer.
    assert_eq!(names.len(), 6, "{names:?}");
    assert_eq!(plans[3].steps.len(), plans[0].steps.len(), "the passes did the same");
    // Among the specs are those of the length at hand.
    let shapes: Vec<String> =
        plans[4].outputs().map(|(_, spec)| spec.unwrap().to_string()).collect();
    assert_eq!(shapes[1], "(1,4,6,4)f32");
    assert_eq!(plans[4].inputs().nth(1).unwrap().1.to_string(), "(1,4,5,4)f32");
}

fn carrying(session: &Session) -> State {
    let mut state = session.state();
    for value in ["k0", "v0", "k1", "v1"] {
        state.carry(value, &format!("p{value}")).unwrap();
    }
    state
}

/// What a caller feeds beside the caches.
fn step_inputs(kind: Kind, step: usize) -> Vec<Tensor> {
    let mut inputs = vec![numbers(&[1, 1, 16], step)];
    if kind == Kind::Masked {
        inputs.push(numbers(&[1, 1, 1, step + 1], step + 1));
    }
    inputs
}

#[test]
fn caches_of_a_state_are_appended_to_where_they_lie() {
    for kind in ALL {
        let model = weighted(&decoder(kind));
        for isa in Isa::available() {
            let session = model.session(options(isa)).unwrap();
            let fresh = model.session(options(isa)).unwrap();
            let mut state = carrying(&session);
            let start = inputs(&model, 0);
            let mut by_hand: Vec<Tensor> = start[1..5].to_vec();
            let mut places = Vec::new();
            for step in 0..70 {
                let fed = step_inputs(kind, step);
                let found = session.run_with_state(&mut state, &fed).unwrap();
                let mut all = vec![fed[0].clone()];
                all.extend(by_hand);
                all.extend(fed.into_iter().skip(1));
                fresh.release_memory();
                let made = fresh.run(&all).unwrap();
                let outputs = model.outputs();
                let is = |name: &str| outputs.iter().position(|o| o.name == name).unwrap();
                let carried = ["k0", "v0", "k1", "v1"].map(is);
                let others = (0..made.len()).filter(|i| !carried.contains(i));
                let others: Vec<_> = others.map(|i| made[i].clone()).collect();
                assert_eq!(found, others, "{kind:?} {isa} {step}");
                by_hand = carried.iter().map(|&i| made[i].clone()).collect();
                for (name, value) in ["pk0", "pv0", "pk1", "pv1"].iter().zip(&by_hand) {
                    assert_eq!(state.get(name).unwrap().as_ref(), Some(value), "{kind:?} {step}");
                }
                places.push(state.address("pk1"));
            }
            // Beyond the first steps (a mask shows by growing that it does) nothing moves until
            // the capacity is reached.
            let moved = places.windows(2).filter(|w| w[0] != w[1]).count();
            match kind {
                Kind::Summed => assert!(moved > 60, "somebody else reads the keys"),
                Kind::Window | Kind::Padded => {}
                _ => assert!(moved <= 3, "{kind:?}: {moved}"),
            }
        }
    }
}

#[test]
fn prompts_and_branches_and_fetched_caches() {
    for kind in [Kind::Sdpa, Kind::Expanded] {
        let model = weighted(&decoder(kind));
        let session = model.session(options(Isa::best())).unwrap();
        let mut state = carrying(&session);
        for step in 0..5 {
            session.run_with_state(&mut state, &step_inputs(kind, step)).unwrap();
        }
        let mut branch = state.clone();
        let saved: Vec<(String, Tensor)> =
            state.values().unwrap().into_iter().map(|(n, t)| (n.to_owned(), t)).collect();
        let a = session.run_with_state(&mut state, &step_inputs(kind, 5)).unwrap();
        let b = session.run_with_state(&mut branch, &step_inputs(kind, 6)).unwrap();
        assert_ne!(a, b);
        // What is fetched is a tensor of its own; the state goes on with it.
        let x = numbers(&[1, 1, 16], 6);
        let request = Request::new().feed("x0", &x).fetch("k1").fetch("x2");
        let fetched = session.run_request_with_state(&mut state, &request).unwrap();
        assert_eq!(state.get("pk1").unwrap().unwrap(), fetched[0]);
        assert_eq!(fetched[0].shape()[2], 7);
        let before = fetched[0].clone();
        session.run_with_state(&mut state, &step_inputs(kind, 7)).unwrap();
        assert_eq!(fetched[0], before);
        // Back to where it branched, and the same again.
        let mut restored = carrying(&session);
        restored.restore(saved).unwrap();
        assert_eq!(session.run_with_state(&mut restored, &step_inputs(kind, 5)).unwrap(), a);
        restored.reset();
        assert_eq!(restored.get("pk0").unwrap().unwrap().shape()[2], 0);
        let again = session.run_with_state(&mut restored, &step_inputs(kind, 0)).unwrap();
        let mut first = carrying(&session);
        assert_eq!(session.run_with_state(&mut first, &step_inputs(kind, 0)).unwrap(), again);
    }
}

#[test]
fn heads_that_queries_share_are_read_where_they_lie() {
    for kind in [Kind::Repeated, Kind::Expanded] {
        let model = weighted(&decoder(kind));
        let inputs = inputs(&model, 9);
        let session = model.session(options(Isa::best())).unwrap();
        let kernels: Vec<String> = plan(&session, &inputs).steps().map(|s| s.kernel).collect();
        let grouped = weighted(&decoder(Kind::Grouped)).session(options(Isa::best())).unwrap();
        let expected: Vec<String> = plan(&grouped, &inputs).steps().map(|s| s.kernel).collect();
        assert_eq!(kernels, expected, "{kind:?}");
        let without = options(Isa::best()).without_pass("heads");
        let without = model.session(without).unwrap();
        assert!(plan(&without, &inputs).steps().len() > kernels.len());
        assert_eq!(session.run(&inputs).unwrap(), without.run(&inputs).unwrap(), "{kind:?}");
    }
}

#[test]
fn a_cache_counts_with_its_spare_capacity() {
    let model = weighted(&decoder(Kind::Sdpa));
    let session = model.session(options(Isa::best())).unwrap();
    let mut state = carrying(&session);
    session.run_with_state(&mut state, &step_inputs(Kind::Sdpa, 0)).unwrap();
    // Four caches of (1, 4, 65, 4): as many rows as the first capacity has, and the new one.
    let bytes = 4 * 4 * 65 * 4 * 4;
    assert_eq!(state.bytes(), bytes);
    let x = numbers(&[1, 1, 16], 1);
    let plan = session.plan_with_state(&state, &Request::new().feed("x0", &x)).unwrap();
    assert_eq!(state.memory(&plan).state, bytes);
    let budget = state.memory(&plan).total();
    // Without room for a plan that is open, each length has a plan of its own.
    let tight = model.session(options(Isa::best()).with_memory_budget(budget - bytes)).unwrap();
    let mut small = carrying(&tight);
    for step in 0..3 {
        tight.run_with_state(&mut small, &step_inputs(Kind::Sdpa, step)).unwrap();
    }
    assert_eq!(small.get("pk0").unwrap().unwrap().shape()[2], 3);
}

#[test]
fn a_prompt_of_several_tokens_and_steps_take_turns() {
    let model = weighted(
        &decoder(Kind::Sdpa).replace("(1,1,16)", "(1,-1,16)").replace("(1,1,4,4)", "(1,-1,4,4)"),
    );
    let session = model.session(options(Isa::best())).unwrap();
    for _ in 0..2 {
        let mut state = carrying(&session);
        session.run_with_state(&mut state, &[numbers(&[1, 7, 16], 1)]).unwrap();
        for step in 0..3 {
            session.run_with_state(&mut state, &step_inputs(Kind::Sdpa, step)).unwrap();
        }
        assert_eq!(state.get("pk0").unwrap().unwrap().shape()[2], 10);
    }
    assert_eq!(session.plan_count(), 2, "one for the prompt, one for all steps");
}

#[test]
fn images_are_not_opened() {
    let lines = "
        pnnx.Input in0 0 1 x #x=(1,3,?,?)f32
        nn.Conv2d c 1 1 x y bias=False dilation=(1,1) groups=1 in_channels=3 kernel_size=(3,3) \
            out_channels=4 padding=(1,1) padding_mode=zeros stride=(1,1) @weight=(4,3,3,3)f32
        pnnx.Output out0 1 0 y";
    let model = weighted(&lines.replace("\\\n", ""));
    let session = model.session(SessionOptions::default()).unwrap();
    for size in [8, 9, 10] {
        let x = Tensor::zeros(DType::F32, [1, 3, size, size]).unwrap();
        assert!(plan(&session, &[x]).open.is_none());
    }
}

#[test]
fn a_table_that_ends_limits_the_capacity() {
    // Sums with 12 rows that there are: no longer length can be planned.
    let lines = "
        pnnx.Input in0 0 1 new #new=(1,4)f32
        pnnx.Input in1 0 1 past #past=(?,4)f32
        torch.cat cat 2 1 past new all dim=0 #all=(?,4)f32
        pnnx.Attribute table 0 1 table @data=(12,4)f32
        pnnx.Expression n 1 1 all n expr=size(@0,0)
        Tensor.slice s 2 1 table n rows dim=0 start=0 step=1 $input=table $end=n
        pnnx.Expression sum 2 1 all rows y expr=add(@0,@1)
        pnnx.Output out0 1 0 y
        pnnx.Output out1 1 0 all";
    let _ = graph(lines);
    let model = weighted(lines);
    let session = model.session(SessionOptions::default()).unwrap();
    let mut state = session.state();
    state.carry("all", "past").unwrap();
    for step in 0..12 {
        let new = numbers(&[1, 4], step);
        let y = session.run_with_state(&mut state, &[new]).unwrap();
        assert_eq!(y[0].shape().dims(), [step + 1, 4]);
    }
    let error = session.run_with_state(&mut state, &[numbers(&[1, 4], 12)]).unwrap_err();
    assert!(error.to_string().contains("broadcast"), "{error}");
    assert_eq!(state.get("past").unwrap().unwrap().shape().dims(), [12, 4]);
}

//! Passes: a snippet of a `.param` file in, the nodes that are left out.

use super::{PassCx, PassReport, run};
use crate::SessionOptions;
use crate::options::Resolved;
use crate::plan::dispatch::Dispatch;
use crate::plan::net::{Net, ValueId, Wanted};
use crate::testkit::{session, values, weighted};
use plutino_kernels::Isa;
use plutino_tensor::{DType, Layout, Shape, TensorSpec};

/// As [`after_of`], for inputs of shape (1,2).
fn after(lines: &str, off: &[&str]) -> (Vec<String>, Vec<PassReport>) {
    after_of(&[1, 2], lines, off)
}

/// As [`after_with`], for inputs of this shape.
pub(super) fn after_of(
    shape: &[usize],
    lines: &str,
    off: &[&str],
) -> (Vec<String>, Vec<PassReport>) {
    after_with(|_| shape, lines, off)
}

/// Runs all passes but those named, for inputs of these shapes, as a session of the portable
/// instruction set does. Returns one line for each node that is left
/// (`name+absorbed inputs>outputs`, values in channel blocks with a `~`) and the reports.
fn after_with<'a>(
    shape: impl Fn(usize) -> &'a [usize],
    lines: &str,
    off: &[&str],
) -> (Vec<String>, Vec<PassReport>) {
    let model = weighted(lines);
    let inner = &model.inner;
    let feeds: Vec<_> = inner.inputs.iter().map(|i| i.id.into()).collect();
    let spec = |input| TensorSpec::new(DType::F32, Shape::from(shape(input)));
    let specs: Vec<_> = (0..feeds.len()).map(spec).collect();
    let mut options = SessionOptions::default();
    options.passes_off.extend(off.iter().map(|s| (*s).to_owned()));
    let resolved = Resolved::new(1, Isa::PORTABLE, Dispatch::InTurn, options);
    let mut net = Net::new(inner, resolved.options.sorting, feeds, &Wanted::Outputs).unwrap();
    let mut cx = PassCx::new(inner, &specs, &resolved.settings);
    let reports = run(&mut net, &mut cx, &resolved).unwrap();
    let name = |&id: &ValueId| {
        let spec = net.types.get(id).and_then(|t| t.as_tensor()).map(|t| t.spec.layout);
        let blocked = spec.is_some_and(|layout| layout != Layout::Plain);
        format!("{}{}", net.name(id), if blocked { "~" } else { "" })
    };
    let names = |ids: &[ValueId]| ids.iter().map(name).collect::<Vec<_>>().join(",");
    let lines = net.nodes.iter().map(|node| {
        let name = [std::slice::from_ref(&node.location.name), &node.absorbed].concat().join("+");
        format!("{name} {}>{}", names(&node.inputs), names(&node.outputs))
    });
    (lines.collect(), reports)
}

pub(super) fn refusals(reports: &[PassReport], pass: &str) -> Vec<String> {
    let report = reports.iter().find(|r| r.name == pass).unwrap();
    report.refused.iter().map(|n| format!("{}: {}", n.operator, n.what)).collect()
}

const RESIDUAL: &str = "
    pnnx.Input in 0 1 0
    test.Scale down 1 1 0 1 by=2.0
    test.Scale a 1 1 0 2 by=2.0
    test.Relu act 1 1 2 3
    test.Scale b 1 1 3 4 by=2.0
    test.Add sum 2 1 1 4 5
    test.Relu last 1 1 5 6
    pnnx.Output out 1 0 6";

#[test]
fn a_residual_block_becomes_three_operators() {
    let (nodes, _) = after(RESIDUAL, &[]);
    assert_eq!(nodes, ["down 0>1", "a+act 0>3", "b+sum+last 3,1>6"]);
}

#[test]
fn fusion_can_be_left_out() {
    let (nodes, reports) = after(RESIDUAL, &["fuse"]);
    assert_eq!(nodes.len(), 6);
    assert!(reports.iter().all(|r| r.done.is_empty()));
}

#[test]
fn what_else_reads_the_value_prevents_fusion_and_is_named() {
    let (nodes, reports) = after(
        "pnnx.Input in 0 1 0
         test.Scale a 1 1 0 1 by=2.0
         test.Relu r 1 1 1 2
         test.Add s 2 1 1 2 3
         pnnx.Output out 1 0 3",
        &[],
    );
    // The sum is made by `r`, computed last, which absorbs nothing; the relu cannot go into `a`.
    assert_eq!(nodes, ["a 0>1", "r 1>2", "s 1,2>3"]);
    assert_eq!(refusals(&reports, "fuse"), ["r: the result of a is also read by s"]);
}

#[test]
fn a_fetched_value_is_kept() {
    let (nodes, reports) = after(
        "pnnx.Input in 0 1 0
         test.Scale a 1 1 0 1 by=2.0
         test.Relu r 1 1 1 2
         prim::TupleConstruct t 2 1 1 2 3
         pnnx.Output out 1 0 3",
        &[],
    );
    assert_eq!(nodes, ["a 0>1", "r 1>2"]);
    assert_eq!(refusals(&reports, "fuse"), ["r: the result of a is fetched"]);
}

#[test]
fn sums_of_different_shapes_and_of_a_value_with_itself_stay() {
    let (nodes, reports) = after(
        "pnnx.Input in 0 1 0
         test.Constant k 0 1 1
         test.Scale a 1 1 0 2 by=2.0
         test.Add s 2 1 2 1 3
         test.Scale b 1 1 3 4 by=2.0
         test.Add d 2 1 4 4 5
         pnnx.Output out 1 0 5",
        &["fold"],
    );
    assert_eq!(nodes.len(), 5);
    assert_eq!(refusals(&reports, "fuse"), ["s: the summands are (1,2)f32 and (2)f32"]);
}

#[test]
fn dead_operators_go_with_what_only_they_read() {
    let lines = "
        pnnx.Input in 0 1 0
        test.Scale dead 1 1 0 1 by=2.0
        test.Relu deader 1 1 1 2
        test.Reverse alive 1 1 0 3
        pnnx.Output out 1 0 3";
    assert_eq!(after(lines, &[]).0, ["alive 0>3"]);
    assert_eq!(after(lines, &["dead", "constants", "fuse"]).0.len(), 3);
}

const ATTENTION: &str = "
    pnnx.Input in 0 1 q
    pnnx.Input in2 0 1 k
    pnnx.Input in3 0 1 v
    Tensor.permute t 1 1 k kt dims=(1,0)
    torch.matmul first 2 1 q kt scores
    pnnx.Expression scale 1 1 scores scaled expr=div(@0,2.0)
    F.softmax soft 1 1 scaled p dim=-1
    torch.matmul second 2 1 p v out
    pnnx.Output o 1 0 out";

#[test]
fn attention_that_is_spelled_out_becomes_one_operator() {
    assert_eq!(after(ATTENTION, &[]).0, ["second+first+scale+soft q,k,v>out"]);
    assert_eq!(after(ATTENTION, &["attention"]).0.len(), 5);
    let bare = ATTENTION.replace("pnnx.Expression scale 1 1 scores scaled expr=div(@0,2.0)", "");
    let bare = bare.replace("1 1 scaled p", "1 1 scores p");
    assert_eq!(after(&bare, &[]).0, ["second+first+soft q,k,v>out"]);
}

#[test]
fn queries_and_keys_that_are_scaled_are_taken_as_they_are() {
    let scaled = "pnnx.Input in 0 1 q
        pnnx.Input in2 0 1 k
        pnnx.Input in3 0 1 v
        pnnx.Expression s 1 1 q r expr=mul(@0,0.25)
        pnnx.Expression u 1 1 k l expr=div(@0,2.0)
        Tensor.permute t 1 1 l kt dims=(1,0)
        torch.matmul first 2 1 r kt scores
        F.softmax soft 1 1 scores p dim=-1
        torch.matmul second 2 1 p v out
        pnnx.Output o 1 0 out";
    assert_eq!(after(scaled, &[]).0, ["second+first+soft q,k,v>out"]);
    // The number before the permutation or behind it.
    let behind = scaled
        .replace("u 1 1 k l expr=div(@0,2.0)", "u 1 1 kt l expr=div(@0,2.0)")
        .replace("t 1 1 l kt", "t 1 1 k kt")
        .replace("2 1 r kt scores", "2 1 r l scores");
    let lines: Vec<&str> = behind.lines().collect();
    let behind = [&lines[..4], &[lines[5], lines[4]], &lines[6..]].concat().join("\n");
    assert_eq!(after(&behind, &[]).0, ["second+first+soft q,k,v>out"]);
    // Somebody else reads the scaled query: it is made for them alone.
    let seen = scaled.replace(
        "pnnx.Output o 1 0 out",
        "torch.abs a 1 1 r b\nprim::TupleConstruct both 2 1 out b c\npnnx.Output o 1 0 c",
    );
    let (nodes, _) = after(&seen, &["chain"]);
    assert_eq!(nodes, ["s q>r", "second+first+soft q,k,v>out", "a r>b"]);
    // Larger numbers could overflow elsewhere than the model does.
    assert_eq!(after(&scaled.replace("0.25", "4.0"), &[]).0[0], "s q>r");
}

/// Attention of windows, as torchvision's Swin Transformer writes it: a bias for each head, a mask
/// for each window, between views.
const WINDOWS: &str = "
    pnnx.Input in 0 1 q
    pnnx.Input in2 0 1 k
    pnnx.Input in3 0 1 v
    pnnx.Input in4 0 1 bias
    pnnx.Input in5 0 1 mask
    torch.transpose t 1 1 k kt dim0=-2 dim1=-1
    torch.matmul first 2 1 q kt scores
    pnnx.Expression add 2 1 scores bias biased expr=add(mul(@0,0.5),@1)
    Tensor.view cut 1 1 biased images shape=(2,3,2,4,4)
    pnnx.Expression hide 2 1 images mask masked expr=add(@0,@1)
    Tensor.view join 1 1 masked windows shape=(-1,2,4,4)
    F.softmax soft 1 1 windows p dim=-1
    torch.matmul second 2 1 p v out
    pnnx.Output o 1 0 out";

/// The nodes that are left of attention in windows.
fn windows(lines: &str) -> Vec<String> {
    let shapes: [&[usize]; 5] =
        [&[6, 2, 4, 8], &[6, 2, 4, 8], &[6, 2, 4, 8], &[1, 2, 4, 4], &[1, 3, 1, 4, 4]];
    after_with(|input| shapes[input], lines, &[]).0
}

#[test]
fn masks_between_views_are_added_where_they_stand() {
    let whole = "second+first+add+cut+hide+join+soft q,k,v,bias,mask>out";
    assert_eq!(windows(WINDOWS), [whole]);
    // The mask first; and both in one expression.
    let turned = WINDOWS.replace("2 1 images mask masked", "2 1 mask images masked");
    assert_eq!(windows(&turned), [whole]);
    let at_once = "
        torch.neg n 1 1 bias other
        torch.matmul first 2 1 q kt scores
        pnnx.Expression add 3 1 scores bias other masked expr=add(add(mul(@0,0.5),@1),@2)
        F.softmax soft 1 1 masked p dim=-1";
    let (start, end) = (WINDOWS.find("torch.matmul").unwrap(), WINDOWS.find("torch.matmul second"));
    let at_once = [&WINDOWS[..start], at_once.trim(), "\n", &WINDOWS[end.unwrap()..]].concat();
    let whole = ["n bias>other", "second+first+add+soft q,k,v,bias,other>out"];
    assert_eq!(windows(&at_once), whole);
}

#[test]
fn scores_that_are_viewed_otherwise_stay() {
    let hide = "2 1 images mask masked expr=add(@0,@1)";
    let cases = [
        // Values that meet other groups; a third mask; a factor after a mask; scores that are read.
        ("windows shape=(-1,2,4,4)", "windows shape=(1,6,2,4,4)"),
        (hide, "3 1 images mask mask2 masked expr=add(add(@0,@1),@2)"),
        (hide, "2 1 images mask masked expr=add(mul(@0,2.0),@1)"),
        (hide, "2 1 images images2 masked expr=add(@0,@1)"),
    ];
    let others = "
        torch.neg n 1 1 mask mask2
        torch.neg n2 1 1 images images2
        pnnx.Expression hide";
    for (is, other) in cases {
        let lines = WINDOWS.replace(is, other).replace("pnnx.Expression hide", others.trim());
        let nodes = windows(&lines);
        assert!(nodes.iter().any(|node| node.starts_with("soft")), "{other}: {nodes:?}");
    }
}

#[test]
fn attention_whose_scores_somebody_reads_stays() {
    for seen in ["scores", "scaled", "p"] {
        let both =
            format!("prim::TupleConstruct pair 2 1 out {seen} both\n pnnx.Output o 1 0 both");
        let lines = ATTENTION.replace("pnnx.Output o 1 0 out", &both);
        assert_eq!(after(&lines, &[]).0.len(), 5, "{seen}");
    }
}

#[test]
fn what_only_looks_like_attention_stays() {
    // A softmax along columns.
    assert_eq!(after(&ATTENTION.replace("dim=-1", "dim=0"), &[]).0.len(), 5);
    // Another expression.
    assert_eq!(after(&ATTENTION.replace("div(@0,2.0)", "exp(@0)"), &[]).0.len(), 5);
    // Keys whose rows are not dense: they would have to be copied.
    let (nodes, reports) = after(
        "pnnx.Input in 0 1 q
         pnnx.Input in2 0 1 v
         Tensor.permute t 1 1 v vt dims=(1,0)
         torch.matmul square 2 1 vt v kt
         torch.matmul first 2 1 q kt scores
         F.softmax soft 1 1 scores p dim=-1
         torch.matmul second 2 1 p kt out
         pnnx.Output o 1 0 out",
        &[],
    );
    assert_eq!(nodes.len(), 5);
    let why = refusals(&reports, "attention");
    assert!(
        matches!(&why[..], [why] if why.starts_with("second: ") && why.contains("not dense")),
        "{why:?}"
    );
}

#[test]
fn a_shuffle_moves_channels_with_what_joins_and_cuts_them() {
    let lines = "
        pnnx.Input in 0 1 0
        torch.cat join 2 1 0 0 1 dim=1
        nn.ChannelShuffle shuffle 1 1 1 2 groups=2
        torch.split cut 1 2 2 3 4 dim=1 split_size_or_sections=(0,32)
        prim::TupleConstruct t 2 1 3 4 5
        pnnx.Output out 1 0 5";
    let (nodes, _) = after_of(&[1, 16, 3, 3], lines, &[]);
    assert_eq!(nodes, ["cut+join+shuffle 0,0>3,4"]);
    // Lines and volumes, too; nothing of more dimensions.
    assert_eq!(after_of(&[1, 16, 3], lines, &[]).0, ["cut+join+shuffle 0,0>3,4"]);
    assert_eq!(after_of(&[1, 16, 1, 3, 3], lines, &[]).0, ["cut+join+shuffle 0,0>3,4"]);
    assert_eq!(after_of(&[1, 16, 1, 1, 3, 3], lines, &[]).0.len(), 3);
}

#[test]
fn a_shuffle_that_is_written_out_moves_channels_as_well() {
    let with = |split: &str, dims: &str, fetched: &str| {
        format!(
            "pnnx.Input in 0 1 0
             torch.cat join 2 1 0 0 1 dim=1
             Tensor.view cut 1 1 1 2 shape={split}
             torch.transpose swap 1 1 2 3 {dims}
             Tensor.view whole 1 1 3 4 shape=(1,12,3,3)
             torch.split halves 1 2 4 5 6 dim=1 split_size_or_sections=(6,6)
             prim::TupleConstruct t 3 1 5 6 {fetched} 7
             pnnx.Output out 1 0 7"
        )
    };
    let shuffle =
        |split, dims, fetched| after_of(&[1, 6, 3, 3], &with(split, dims, fetched), &[]).0;
    let whole = shuffle("(1,3,4,3,3)", "dim0=1 dim1=2", "0");
    assert_eq!(whole, ["halves+cut+swap+join+whole 0,0>5,6"]);
    // Pixels that move, other dimensions that are exchanged, a value in between that is wanted.
    for (split, dims, fetched) in [
        ("(1,12,3,3,1)", "dim0=1 dim1=2", "0"),
        ("(1,3,4,3,3)", "dim0=2 dim1=3", "0"),
        ("(1,3,4,3,3)", "dim0=1 dim1=2", "3"),
    ] {
        let nodes = shuffle(split, dims, fetched);
        assert!(nodes.len() > 1, "{split} {dims} {fetched}: {nodes:?}");
    }
}

#[test]
fn joining_and_cutting_alone_is_left_to_views_and_places() {
    let (nodes, _) = after_of(
        &[1, 4, 3, 3],
        "pnnx.Input in 0 1 0
         nn.ChannelShuffle shuffle 1 1 0 1 groups=2
         torch.cat join 2 1 0 1 2 dim=1
         torch.chunk cut 1 2 2 3 4 chunks=2 dim=1
         prim::TupleConstruct t 2 1 3 4 5
         pnnx.Output out 1 0 5",
        &[],
    );
    assert_eq!(nodes, ["shuffle 0>1", "join 0,1>2", "cut 2>3,4"]);
}

#[test]
fn layers_compute_some_rows_at_a_time() {
    // 32 MB lie between the layers: more than second-level caches hold.
    let text = "7767517\n4 3\n\
         pnnx.Input in 0 1 0\n\
         nn.Linear a 1 1 0 1 bias=True in_features=4 out_features=512 @bias=(512)f32 @weight=(512,4)f32\n\
         nn.Linear b 1 1 1 2 bias=False in_features=512 out_features=3 @weight=(3,512)f32\n\
         pnnx.Output out 1 0 2\n";
    let run = |text: &str, options: SessionOptions| {
        let mut graph = plutino_ir::Graph::parse(text).unwrap();
        for layer in ["a", "b"] {
            let id = graph.operator_by_name(layer).unwrap();
            for attr in graph.attrs_mut(id).unwrap().values_mut() {
                let number = |i: usize| ((i * 7919) % 31) as f32 / 16.0 - 1.0;
                let bytes = |i| number(i).to_le_bytes();
                let data: Vec<u8> = (0..attr.element_count()).flat_map(bytes).collect();
                attr.set_data(data).unwrap();
            }
        }
        let session = crate::Model::from_graph(graph).unwrap().session(options).unwrap();
        let x: Vec<f32> = (0..4 * 16384).map(|i| ((i * 31) % 101) as f32 / 50.0 - 1.0).collect();
        let x = plutino_tensor::Tensor::from_slice(&x, [2, 8192, 4]).unwrap();
        let plan = session.plan(&[x.spec()]).unwrap();
        let joined = plan.passes().iter().any(|p| p.name == "rows" && !p.done.is_empty());
        let y = session.run(&[x]).unwrap().remove(0);
        (joined, y.as_slice::<f32>().unwrap().to_vec())
    };
    let (joined, found) = run(text, SessionOptions::default().with_threads(2));
    let (apart, expected) = run(text, SessionOptions::default().without_pass("rows"));
    assert_eq!((joined, apart), (true, false));
    assert_eq!(found, expected);
    // What is also a result is not left out.
    let fetched = text.replace("out 1 0 2", "out 2 0 1 2");
    assert!(!run(&fetched, SessionOptions::default()).0);
}

const DROPOUT: &str = "
    pnnx.Input in 0 1 x
    pnnx.Expression p 0 1 p expr=0.5
    pnnx.Expression t 0 1 t expr=False
    aten::native_dropout drop 3 2 x p t y mask
    test.Relu r 1 1 y z
    prim::TupleConstruct both 2 1 z mask zm
    pnnx.Output out 1 0 zm";

#[test]
fn operators_that_are_others_are_taken_apart() {
    let (nodes, reports) = after(DROPOUT, &["identity", "chain"]);
    let names: Vec<_> = nodes.iter().map(|node| node.split(' ').next().unwrap()).collect();
    assert!(names.contains(&"drop/0"), "{nodes:?}");
    let notes: Vec<_> =
        reports.iter().filter(|r| r.name == "expand").flat_map(|r| &r.done).collect();
    assert!(notes[0].what.starts_with("becomes "), "{notes:?}");
    let (whole, _) = after(DROPOUT, &["expand"]);
    assert!(whole.iter().any(|node| node.starts_with("drop x,")), "{whole:?}");
    let (whole, reports) = after(DROPOUT, &["expand@drop"]);
    assert!(whole.iter().any(|node| node.starts_with("drop x,")), "{whole:?}");
    assert!(refusals(&reports, "expand").is_empty());
}

#[test]
fn operators_of_lists_are_taken_apart() {
    // Members are those that the list was made of; the list itself goes.
    let made = "
        pnnx.Input in 0 1 x
        test.Scale a 1 1 x a by=2.0
        prim::ListConstruct l 3 1 x a x l
        torch.chain_matmul s 1 1 l y
        pnnx.Output out 1 0 y";
    let (nodes, reports) = after_of(&[2, 2], made, &[]);
    assert!(nodes.iter().all(|node| !node.starts_with("l ")), "{nodes:?}");
    assert_eq!(nodes.iter().filter(|node| node.starts_with("s/")).count(), 2, "{nodes:?}");
    assert_eq!(done(&reports, "expand")[0], "s: becomes 2 operators");
    // Of a list that an operator makes they are taken out.
    let cut = "
        pnnx.Input in 0 1 x
        torch.unbind c 1 1 x l dim=0
        prim::ListConstruct p 1 1 l all
        torch.chain_matmul s 1 1 all y
        pnnx.Output out 1 0 y";
    let (nodes, reports) = after_of(&[3, 2, 2], cut, &[]);
    assert_eq!(nodes.len(), 4, "{nodes:?}");
    assert_eq!(nodes[..2], ["c x>l", "l l>l.0,l.1,l.2"]);
    assert!(refusals(&reports, "expand").is_empty());
    assert!(after_of(&[3, 2, 2], cut, &["expand"]).0[2].starts_with("s "));
    let x = plutino_tensor::Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2]).unwrap();
    let y = session(made).run(std::slice::from_ref(&x)).unwrap().remove(0);
    assert_eq!(values(&y), [74.0, 108.0, 162.0, 236.0]);
    let three = [1.0f32, 2.0, 3.0, 4.0].map(|v| [v, 2.0 * v, v]);
    let three: Vec<f32> = (0..3).flat_map(|i| three.map(|v| v[i])).collect();
    let x = plutino_tensor::Tensor::from_slice(&three, [3, 2, 2]).unwrap();
    assert_eq!(values(&session(cut).run(&[x]).unwrap()[0]), [74.0, 108.0, 162.0, 236.0]);
}

#[test]
fn an_operator_that_makes_a_list_is_taken_apart() {
    let lines = "
        pnnx.Input in 0 1 x
        torch.gradient g 1 1 x l
        prim::ListUnpack u 1 2 l a b
        test.Add s 2 1 a b y
        pnnx.Output out 1 0 y";
    let (nodes, reports) = after_of(&[2, 3], lines, &[]);
    assert!(nodes.iter().any(|node| node.starts_with("g/")), "{nodes:?}");
    assert!(nodes.contains(&"u l>a,b".to_owned()), "{nodes:?}");
    assert!(refusals(&reports, "expand").is_empty());
    let x = plutino_tensor::Tensor::from_slice(&[0.0f32, 1.0, 4.0, 1.0, 4.0, 9.0], [2, 3]).unwrap();
    let whole = SessionOptions::default().without_pass("expand");
    for session in [session(lines), crate::testkit::session_with(lines, whole)] {
        // torch.gradient: rows differ by 1, 3, 5; columns by 1, 2, 3 and 3, 4, 5.
        let y = session.run(std::slice::from_ref(&x)).unwrap().remove(0);
        assert_eq!(values(&y), [2.0, 5.0, 8.0, 4.0, 7.0, 10.0]);
    }
}

#[test]
fn a_pass_can_be_left_out_for_one_operator() {
    let (nodes, reports) = after(RESIDUAL, &["fuse@act"]);
    assert_eq!(nodes, ["down 0>1", "a 0>2", "act 2>3", "b+sum+last 3,1>6"]);
    assert_eq!(refusals(&reports, "fuse"), ["act: the pass is switched off for act"]);
    let (nodes, _) = after(RESIDUAL, &["fuse@a", "fuse@last"]);
    assert_eq!(nodes, ["down 0>1", "a 0>2", "act 2>3", "b+sum 3,1>5", "last 5>6"]);
}

/// What a pass did: operators and what is said of them.
fn done(reports: &[PassReport], pass: &str) -> Vec<String> {
    let report = reports.iter().find(|r| r.name == pass).unwrap();
    report.done.iter().map(|n| format!("{}: {}", n.operator, n.what)).collect()
}

/// A convolution that computes in channel blocks.
const CONV: &str = "nn.Conv2d conv 1 1 x y bias=False dilation=(1,1) groups=1 in_channels=32 \
    kernel_size=(3,3) out_channels=32 padding=(1,1) padding_mode=zeros stride=(1,1) \
    @weight=(32,32,3,3)f32";

#[test]
fn values_lie_in_blocks_between_reorders() {
    let lines = format!(
        "pnnx.Input in 0 1 x\n{CONV}\nnn.ReLU r 1 1 y z\ntorch.cumsum s 1 1 z w dim=2\n\
         torch.cumsum t 1 1 z v dim=3\nprim::TupleConstruct all 3 1 z w v u\npnnx.Output out 1 0 u"
    );
    let (nodes, reports) = after_of(&[1, 32, 6, 6], &lines, &["fuse"]);
    // One reorder before the first reader and one for all that read and fetch plain tensors.
    let expected =
        ["x x>x~", "conv x~>y~", "r y~>z~", "z z~>z", "s z>w", "t z>v"].map(str::to_owned);
    assert_eq!(nodes, expected);
    let did = done(&reports, "layout");
    let [first, second] = &did[..] else { panic!("{did:?}") };
    assert!(first.starts_with("conv: reads x reordered to "), "{first}");
    assert!(second.starts_with("s: reads z reordered to "), "{second}");
    let why = refusals(&reports, "layout");
    let plain = "torch.cumsum takes plain tensors here, the input lies in channel blocks";
    assert_eq!(why, [format!("s: {plain}"), format!("t: {plain}")]);
    // A value that nobody else reads is fetched in the other layout: the reorder comes last.
    let last = format!("pnnx.Input in 0 1 x\n{CONV}\nnn.ReLU r 1 1 y z\npnnx.Output out 1 0 z");
    let (nodes, reports) = after_of(&[1, 32, 6, 6], &last, &["fuse"]);
    assert_eq!(nodes, ["x x>x~", "conv x~>y~", "r y~>z~", "z z~>z"]);
    assert!(done(&reports, "layout")[1].starts_with("z: reads z reordered to "));
}

#[test]
fn the_layout_pass_can_be_left_out_for_one_operator() {
    let lines = format!("pnnx.Input in 0 1 x\n{CONV}\nnn.ReLU r 1 1 y z\npnnx.Output out 1 0 z");
    let (nodes, reports) = after_of(&[1, 32, 6, 6], &lines, &["fuse", "layout@r"]);
    assert_eq!(nodes, ["x x>x~", "conv x~>y~", "y y~>y", "r y>z"]);
    assert_eq!(refusals(&reports, "layout"), ["r: the pass is switched off for r"]);
    let (nodes, _) = after_of(&[1, 32, 6, 6], &lines, &["fuse", "layout@conv"]);
    assert_eq!(nodes, ["conv x>y", "r y>z"]);
}

#[test]
fn the_image_and_the_residual_of_a_first_convolution_may_be_one_value() {
    let conv = "nn.Conv2d conv 1 1 x y bias=False dilation=(1,1) groups=1 in_channels=3 \
        kernel_size=(3,3) out_channels=3 padding=(1,1) padding_mode=zeros stride=(1,1) \
        @weight=(3,3,3,3)f32";
    let lines = format!(
        "pnnx.Input in 0 1 x\n{conv}\npnnx.Expression add 2 1 y x z expr=add(@0,@1)\n\
         pnnx.Output out 1 0 z"
    );
    // Whatever the convolution asks for, inputs of one value are told apart by their numbers.
    let (nodes, _) = after_of(&[1, 3, 16, 16], &lines, &[]);
    let fused = nodes.iter().find(|node| node.starts_with("conv+add ")).unwrap();
    assert!(["conv+add x,x~>z~", "conv+add x~,x~>z~", "conv+add x,x>z"].contains(&fused.as_str()));
}

#[test]
fn a_permutation_that_is_no_reorder_says_why() {
    let lines = |channels: usize| {
        let conv = CONV.replace(" x y ", " p y ").replace("=32", &format!("={channels}"));
        let conv = conv.replace("(32,32,", &format!("({channels},{channels},"));
        format!(
            "pnnx.Input in 0 1 x\ntorch.permute p 1 1 x p dims=(0,3,1,2)\n{conv}\n\
             torch.permute q 1 1 y z dims=(0,2,3,1)\npnnx.Output out 1 0 z"
        )
    };
    let (nodes, reports) = after_of(&[1, 6, 6, 32], &lines(32), &[]);
    assert_eq!(nodes, ["p x>p~", "conv p~>y~", "q y~>z"]);
    assert!(done(&reports, "layout").iter().all(|note| note.contains(" on the way")));
    let (nodes, reports) = after_of(&[1, 6, 6, 33], &lines(33), &[]);
    assert_eq!(nodes.len(), 5, "{nodes:?}");
    let why = refusals(&reports, "layout");
    assert!(why[0].starts_with("p: is no reorder itself: its 33 channels are no whole"), "{why:?}");
}

#[test]
fn ten_thousand_nodes_are_laid_out_quickly() {
    // Each value is read by the next node, in blocks, and by one at the end, plain: ten thousand
    // reorders before a node of ten thousand inputs.
    let mut lines = format!("pnnx.Input in 0 1 x\n{CONV}\n");
    let mut names = vec!["y".to_owned()];
    for i in 0..10_000 {
        lines += &format!("nn.ReLU r{i} 1 1 {} v{i}\n", names[i]);
        names.push(format!("v{i}"));
    }
    lines += &format!("torch.cat cat {} 1 {} all dim=0\n", names.len(), names.join(" "));
    lines += "torch.cumsum last 1 1 all z dim=2\npnnx.Output out 1 0 z\n";
    let started = std::time::Instant::now();
    let (nodes, _) = after_of(&[1, 32, 1, 2], &lines, &["fuse", "chain"]);
    assert_eq!(nodes.len(), 2 * 10_000 + 5);
    // Quadratic would be minutes; the bound leaves room for a busy machine.
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

//! Steps whose results have no elements are neither planned nor run, whatever sizes their other
//! dimensions have. Data that PyTorch refuses all the same are refused.

use plutino::ir::Graph;
use plutino::{DType, Model, Session, SessionError, SessionOptions, Tensor};
use std::collections::HashSet;

/// No list, loop or product is as long as that.
const HUGE: usize = 1 << 40;

/// A session for the lines of a `.param` file.
fn session(lines: &[&str]) -> Session {
    let words = lines.iter().flat_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [inputs, outputs] = [2, 3].map(|at: usize| words[at].parse::<usize>().unwrap());
        words[4..4 + inputs + outputs].to_vec()
    });
    let operands = words.collect::<HashSet<_>>().len();
    let text = format!("7767517\n{} {operands}\n{}\n", lines.len(), lines.join("\n"));
    let model = Model::from_graph(Graph::parse(&text).unwrap()).unwrap();
    let options = SessionOptions::default().with_threads(2).with_memory_budget(1 << 20);
    model.session(options).unwrap()
}

fn zeros<const N: usize>(shape: [usize; N]) -> Tensor {
    Tensor::zeros(DType::F32, shape).unwrap()
}

fn positions(at: &[i64]) -> Tensor {
    Tensor::from_slice(at, [at.len()]).unwrap()
}

fn shapes(outputs: &[Tensor]) -> Vec<String> {
    outputs.iter().map(|output| output.shape().to_string()).collect()
}

#[test]
fn they_are_neither_planned_nor_run() {
    let session = session(&[
        "pnnx.Input a 0 1 x",
        "pnnx.Input b 0 1 y",
        "F.softmax s 1 1 x s dim=0",
        "torch.transpose t 1 1 s t dim0=0 dim1=1",
        "torch.matmul m 2 1 t s m",
        "torch.cumsum c 1 1 m c dim=-1",
        "torch.sort o 1 2 s o p dim=1",
        "torch.sum n 1 1 x n dim=(1) keepdim=False",
        "torch.mul u 2 1 y y u",
        "pnnx.Output out_m 1 0 m",
        "pnnx.Output out_c 1 0 c",
        "pnnx.Output out_o 1 0 o",
        "pnnx.Output out_p 1 0 p",
        "pnnx.Output out_n 1 0 n",
        "pnnx.Output out_u 1 0 u",
    ]);
    let inputs = [zeros([0, 4]), zeros([3])];
    let specs: Vec<_> = inputs.iter().map(Tensor::spec).collect();
    let plan = session.plan(&specs).unwrap();
    let names: Vec<String> = plan.steps().map(|step| step.location.name).collect();
    assert_eq!(names, ["m", "c", "u"], "products and sums of nothing are zeros");
    let outputs = session.run(&inputs).unwrap();
    assert_eq!(shapes(&outputs), ["(4,4)", "(4,4)", "(0,4)", "(0,4)", "(0)", "(3)"]);
    assert!(outputs[1].as_bytes().iter().all(|byte| *byte == 0));
}

#[test]
fn their_other_dimensions_may_be_of_any_size() {
    let session = session(&[
        "pnnx.Input a 0 1 x",
        "F.softmax s 1 1 x s dim=1",
        "torch.transpose t 1 1 s t dim0=0 dim1=1",
        "torch.sort o 1 2 t o p dim=0",
        "torch.flip f 1 1 o f dims=(0,1)",
        "torch.cumsum c 1 1 f c dim=0",
        "pnnx.Output out_c 1 0 c",
        "pnnx.Output out_p 1 0 p",
    ]);
    let inputs = [zeros([0, HUGE])];
    let plan = session.plan(&[inputs[0].spec()]).unwrap();
    assert_eq!(plan.steps().count(), 0);
    let huge = format!("({HUGE},0)");
    assert_eq!(shapes(&session.run(&inputs).unwrap()), [huge.clone(), huge]);
}

#[test]
fn nor_are_late_ones() {
    // Of zeros nothing is taken: how many rows there are is known while running.
    let session = session(&[
        "pnnx.Input a 0 1 x",
        "torch.nonzero z 1 1 x z",
        "Tensor.expand e 1 1 w e sizes=(-1,1099511627776)",
        "Tensor.to w 1 1 z w copy=False dtype=torch.float",
        "F.softmax s 1 1 e s dim=1",
        "torch.sort o 1 2 s o p dim=1",
        "pnnx.Output out 1 0 p",
    ]);
    let outputs = session.run(&[zeros([5])]).unwrap();
    assert_eq!(shapes(&outputs), [format!("(0,{HUGE})")]);
}

/// What PyTorch 2.15 says of each of these: an error.
#[test]
fn data_are_refused_all_the_same() {
    let refused: [(&[&str], Vec<Tensor>); 5] = [
        (&["F.embedding e 2 1 i x y"], vec![zeros([5, 0]), positions(&[1, 9])]),
        (
            &["torch.index_select s 2 1 x i y dim=0 $input=x $index=i"],
            vec![zeros([5, 0]), positions(&[1, 9])],
        ),
        (
            &["torch.scatter s 2 1 x i y dim=0 value=1.0 $input=x $index=i"],
            vec![zeros([0]), positions(&[9])],
        ),
        (&["torch.take t 2 1 x i y $input=x $index=i"], vec![zeros([0]), positions(&[9])]),
        (
            &["torch.linalg.solve s 2 1 x b y $A=x $B=b", "torch.reshape r 1 1 i b shape=(3,0)"],
            vec![zeros([3, 3]), zeros([0, 3])],
        ),
    ];
    for (lines, inputs) in refused {
        let io = ["pnnx.Input a 0 1 x", "pnnx.Input b 0 1 i"];
        let all = [&io[..], lines, &["pnnx.Output out 1 0 y"]].concat();
        let error = session(&all).run(&inputs).unwrap_err();
        let data = matches!(error, SessionError::Run { .. } | SessionError::Shape { .. });
        assert!(data, "{}: {error}", lines[0]);
        assert!(error.to_string().contains(lines[0].split_whitespace().next().unwrap()));
    }
}

//! Weights that several modules share.
//!
//! Where a model ties weights (`lm_head.weight = embedding.weight`), or has one module in two
//! places, `torch.jit.trace` hands them to a module as arguments. pnnx then writes the module twice
//! over: complete, with all of its weights, and with the `pnnx.Attribute`s of the shared ones in
//! front of its inputs:
//!
//! ```text
//! pnnx.Attribute e 0 1 1     @data=(20,8)f32
//! nn.Linear      o 2 1 1 4 5 bias=False in_features=8 out_features=20 @weight=(20,8)f32
//! ```
//! Such inputs say nothing new, and go.

use plutino_ir::{Attribute, Graph, OperandId, Operator, OperatorId};

/// Takes away the leading inputs of modules that repeat their own weights.
pub(crate) fn drop_repeated_weights(graph: &mut Graph) {
    let repeated: Vec<(OperatorId, usize)> = graph
        .operators()
        .map(|(id, op)| (id, repeated_weights(graph, op)))
        .filter(|&(_, count)| count > 0)
        .collect();
    for (id, count) in repeated {
        let _ = graph.remove_inputs(id, 0..count); // which are there: they were counted
    }
}

/// How many inputs, from the first on, are weights that a module has as its own, each for another
/// one of them. What is left is what it computes with: one input at least, and none that the file
/// gives a name.
fn repeated_weights(graph: &Graph, op: &Operator) -> usize {
    if !op.kind.starts_with("nn.") {
        return 0;
    }
    let mut own: Vec<&Attribute> = op.attrs.values().collect();
    let named = op.input_names.iter().position(Option::is_some).unwrap_or(usize::MAX);
    let most = op.inputs.len().saturating_sub(1).min(named);
    let mut is_one = |&input: &OperandId| {
        let same = constant(graph, input)
            .and_then(|weight| own.iter().position(|attr| is_same(attr, weight)));
        same.map(|at| own.swap_remove(at)).is_some()
    };
    op.inputs.iter().take(most).map_while(|input| is_one(input).then_some(())).count()
}

/// The data of the `pnnx.Attribute` that makes an operand.
fn constant(graph: &Graph, operand: OperandId) -> Option<&Attribute> {
    let producer = graph.operator(graph.operand(operand)?.producer?)?;
    producer.attr("data").filter(|_| producer.kind == "pnnx.Attribute")
}

/// Whether two weights are the same numbers; of the same shape, where one was read without them.
pub(crate) fn is_same(a: &Attribute, b: &Attribute) -> bool {
    (a.dtype(), a.shape()) == (b.dtype(), b.shape()) && (!a.is_loaded() || !b.is_loaded() || a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inputs of operator `m` once repeated weights are gone.
    fn inputs_left(lines: &[&str], data: impl Fn(&mut Graph)) -> Vec<String> {
        let body = format!("{}\n", lines.join("\n"));
        let mut names: Vec<&str> = Vec::new();
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (inputs, outputs): (usize, usize) =
                (words[2].parse().unwrap(), words[3].parse().unwrap());
            names.extend(&words[4 + inputs..4 + inputs + outputs]);
        }
        let text = format!("7767517\n{} {}\n{body}", lines.len(), names.len());
        let mut graph = Graph::parse(&text).unwrap();
        data(&mut graph);
        drop_repeated_weights(&mut graph);
        graph.validate().unwrap();
        let op = graph.operator(graph.operator_by_name("m").unwrap()).unwrap();
        op.inputs.iter().map(|&id| graph.operand(id).unwrap().name.clone()).collect()
    }

    #[test]
    fn weights_in_front_of_inputs_go() {
        let input = "pnnx.Input x 0 1 x";
        let bias = "pnnx.Attribute b 0 1 b @data=(3)f32";
        let weight = "pnnx.Attribute w 0 1 w @data=(3,3)f32";
        let linear = "nn.Linear m 3 1 w b x y bias=True @bias=(3)f32 @weight=(3,3)f32";
        assert_eq!(inputs_left(&[input, bias, weight, linear], |_| ()), ["x"]);
        // Two of the same shape are two weights, and states that follow are states.
        let other = "pnnx.Attribute v 0 1 v @data=(3,3)f32";
        let rnn = "nn.RNN m 4 1 w v x h y @weight_hh_l0=(3,3)f32 @weight_ih_l0=(3,3)f32";
        let state = "pnnx.Input h 0 1 h";
        assert_eq!(inputs_left(&[input, state, weight, other, rnn], |_| ()), ["x", "h"]);
    }

    #[test]
    fn inputs_that_are_no_weights_stay() {
        let weight = "pnnx.Attribute w 0 1 w @data=(3,3)f32";
        // The only input, though it is as large as the weight.
        let linear = "nn.Linear m 1 1 w y @weight=(3,3)f32";
        assert_eq!(inputs_left(&[weight, linear], |_| ()), ["w"]);
        let input = "pnnx.Input x 0 1 x";
        // Once for each weight; not behind another input; not where the file says what it is; not
        // of functions.
        let twice = "nn.Linear m 3 1 w w x y @weight=(3,3)f32";
        assert_eq!(inputs_left(&[input, weight, twice], |_| ()), ["w", "x"]);
        let behind = "nn.GRU m 2 1 x w y @weight_hh_l0=(3,3)f32";
        assert_eq!(inputs_left(&[input, weight, behind], |_| ()), ["x", "w"]);
        let named = "nn.MultiheadAttention m 2 1 w x y $query=w @in_proj_weight=(3,3)f32";
        assert_eq!(inputs_left(&[input, weight, named], |_| ()), ["w", "x"]);
        let function = "F.linear m 2 1 w x y @weight=(3,3)f32";
        assert_eq!(inputs_left(&[input, weight, function], |_| ()), ["w", "x"]);
    }

    #[test]
    fn numbers_decide_where_they_are_known() {
        let lines = [
            "pnnx.Input x 0 1 x",
            "pnnx.Attribute w 0 1 w @data=(2)f32",
            "nn.PReLU m 2 1 w x y num_parameters=2 @weight=(2)f32",
        ];
        let fill = |graph: &mut Graph, operator: &str, attr: &str, numbers: [f32; 2]| {
            let id = graph.operator_by_name(operator).unwrap();
            let attr = graph.attrs_mut(id).unwrap().get_mut(attr).unwrap();
            attr.set_data(numbers.map(f32::to_le_bytes).concat()).unwrap();
        };
        for (own, left) in [([1.0, 2.0], &["x"][..]), ([1.0, 3.0], &["w", "x"])] {
            let found = inputs_left(&lines, |graph| {
                fill(graph, "w", "data", [1.0, 2.0]);
                fill(graph, "m", "weight", own);
            });
            assert_eq!(found, left);
        }
    }
}

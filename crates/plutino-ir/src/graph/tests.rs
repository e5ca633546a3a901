use super::{EditError, Graph};

/// in -> relu -> out, and cat of relu with itself -> out2
fn sample() -> Graph {
    Graph::parse(concat!(
        "7767517\n5 3\n",
        "pnnx.Input in 0 1 0\n",
        "nn.ReLU relu 1 1 0 1\n",
        "torch.cat cat 2 1 1 1 2 dim=0\n",
        "pnnx.Output out 1 0 1\n",
        "pnnx.Output out2 1 0 2\n",
    ))
    .unwrap()
}

fn names(graph: &Graph) -> Vec<&str> {
    graph.operators().map(|(_, operator)| operator.name.as_str()).collect()
}

#[test]
fn an_operator_can_be_inserted_before_and_after() {
    let mut graph = sample();
    let relu = graph.operator_by_name("relu").unwrap();
    let (x, y) = (graph[relu].inputs[0], graph[relu].outputs[0]);
    let scaled = graph.new_operand("scaled").unwrap();
    let scale = graph.new_operator_before("pnnx.Expression", "scale", relu).unwrap();
    graph.params_mut(scale).unwrap().insert("expr".into(), "mul(@0,2)".into());
    graph.connect_input(scale, x).unwrap();
    graph.connect_output(scale, scaled).unwrap();
    assert_eq!(graph.replace_input(relu, 0, scaled), Ok(x));
    let clamp = graph.new_operator_after("nn.ReLU6", "clamp", relu).unwrap();
    let clamped = graph.new_operand("clamped").unwrap();
    graph.connect_output(clamp, clamped).unwrap();
    assert_eq!(graph.replace_uses(y, clamped), Ok(3));
    graph.connect_input(clamp, y).unwrap();

    graph.validate().unwrap();
    assert_eq!(names(&graph), ["in", "scale", "relu", "clamp", "cat", "out", "out2"]);
    assert_eq!(graph[x].consumers, [scale]);
    assert_eq!(graph[clamped].consumers.len(), 3);
    assert_eq!(Graph::parse(&graph.to_param_string().unwrap()).unwrap(), graph);
}

#[test]
fn an_operator_in_use_cannot_be_removed() {
    let mut graph = sample();
    let relu = graph.operator_by_name("relu").unwrap();
    let (x, y) = (graph[relu].inputs[0], graph[relu].outputs[0]);
    let before = graph.clone();
    let refused = graph.remove_operator(relu).unwrap_err();
    assert_eq!(refused, EditError::StillRead { operand: "1".into(), consumer: "cat".into() });
    assert_eq!(graph, before);

    graph.replace_uses(y, x).unwrap();
    graph.remove_operator(relu).unwrap();
    graph.validate().unwrap();
    assert_eq!((graph.operator(relu).is_none(), graph.operand(y).is_none()), (true, true));
    assert_eq!((graph.operator_by_name("relu"), graph.operand_by_name("1")), (None, None));
    assert_eq!(graph.remove_operator(relu), Err(EditError::NoSuchOperator(relu)));
    assert_eq!((graph.operator_count(), graph.operand_count()), (4, 2));
}

#[test]
fn uses_are_counted_one_by_one() {
    let mut graph = sample();
    let cat = graph.operator_by_name("cat").unwrap();
    let y = graph[cat].inputs[0];
    assert_eq!(graph.remove_input(cat, 1), Ok(y));
    assert_eq!(graph[y].consumers.iter().filter(|&&consumer| consumer == cat).count(), 1);
    graph.validate().unwrap();
    graph.connect_named_input(cat, "other", y).unwrap();
    graph.validate().unwrap();
    assert_eq!(graph.remove_consumer(y, cat), Ok(2));
    assert_eq!((graph[cat].inputs.len(), graph[cat].input_names.len()), (0, 0));
    graph.validate().unwrap();
    assert_eq!(
        graph.remove_input(cat, 0),
        Err(EditError::NoSuchInput { operator: "cat".into(), index: 0, count: 0 })
    );
}

#[test]
fn names_stay_unique_and_writable() {
    let mut graph = sample();
    let relu = graph.operator_by_name("relu").unwrap();
    assert_eq!(
        graph.new_operator("a", "relu"),
        Err(EditError::DuplicateOperator { name: "relu".into() })
    );
    assert_eq!(graph.new_operand("1"), Err(EditError::DuplicateOperand { name: "1".into() }));
    for name in ["", "a b", "a\u{7}"] {
        assert!(
            matches!(graph.new_operator("k", name), Err(EditError::InvalidName { .. })),
            "{name:?}"
        );
    }
    assert!(matches!(graph.new_operand("a=b"), Err(EditError::InvalidName { .. })));
    graph.rename_operator(relu, "relu").unwrap();
    graph.rename_operator(relu, "act").unwrap();
    assert_eq!((graph.operator_by_name("act"), graph.operator_by_name("relu")), (Some(relu), None));
    assert!(matches!(graph.rename_operator(relu, "cat"), Err(EditError::DuplicateOperator { .. })));
    graph.validate().unwrap();
}

#[test]
fn an_operand_has_one_producer() {
    let mut graph = sample();
    let relu = graph.operator_by_name("relu").unwrap();
    let y = graph[relu].outputs[0];
    let cat = graph.operator_by_name("cat").unwrap();
    assert_eq!(
        graph.connect_output(cat, y),
        Err(EditError::AlreadyProduced { operand: "1".into(), producer: "relu".into() })
    );
    assert_eq!(graph.disconnect_output(y), Ok(Some(relu)));
    assert!(graph.validate().is_err(), "operand 1 has no producer now");
    graph.connect_output(cat, y).unwrap();
    assert!(graph.validate().is_err(), "cat reads what it makes");
}

#[test]
fn order_is_a_permutation() {
    let mut graph = sample();
    let mut order = graph.operator_ids().to_vec();
    order.reverse();
    graph.set_order(order.clone()).unwrap();
    assert_eq!(names(&graph), ["out2", "out", "cat", "relu", "in"]);
    order.pop();
    assert_eq!(graph.set_order(order.clone()), Err(EditError::NotAPermutation { count: 5 }));
    order.push(order[0]);
    assert_eq!(graph.set_order(order), Err(EditError::NotAPermutation { count: 5 }));
    let sorted = crate::topo::kahn(&graph).unwrap();
    graph.set_order(sorted).unwrap();
    assert_eq!(names(&graph), ["in", "relu", "out", "cat", "out2"]);
}

#[test]
fn operators_come_after_others() {
    use super::ControlProblem;
    let mut graph = sample();
    let id = |graph: &Graph, name: &str| graph.operator_by_name(name).unwrap();
    let [input, relu, cat, out] = ["in", "relu", "cat", "out"].map(|name| id(&graph, name));
    let note = graph.new_operator("test.Note", "note").unwrap();
    assert_eq!(graph.sources().map(|(id, _)| id).collect::<Vec<_>>(), [input, note]);
    assert_eq!(graph.sinks().count(), 3);
    graph.add_control(cat, note).unwrap();
    graph.add_control(cat, note).unwrap();
    graph.add_control(note, out).unwrap();
    assert_eq!(graph.controls().collect::<Vec<_>>(), [(note, out), (cat, note)]);
    assert_eq!(graph[note].followers, [out]);
    assert_eq!(graph.sources().count(), 1);
    assert_eq!(graph.sinks().count(), 2);
    let text = graph.to_param_string().unwrap();
    assert!(text.contains(" ^cat=after") && text.contains("#") == text.contains("(1"), "{text}");
    let back = Graph::parse(&text).unwrap();
    assert_eq!(back, graph);
    assert_ne!(back, sample());

    let refused = |graph: &mut Graph, a, b| match graph.add_control(a, b).unwrap_err() {
        EditError::Control { problem, .. } => problem,
        error => panic!("{error}"),
    };
    assert_eq!(refused(&mut graph, cat, cat), ControlProblem::Itself);
    assert_eq!(refused(&mut graph, out, cat), ControlProblem::AfterOutput);
    assert_eq!(refused(&mut graph, cat, input), ControlProblem::Input);
    graph.add_control(note, relu).unwrap();
    assert!(matches!(graph.validate(), Err(super::InvalidGraph::Cycle(_))));
    assert_eq!(graph.remove_control(note, relu), Ok(true));
    assert_eq!(graph.remove_control(note, relu), Ok(false));
    graph.validate().unwrap();

    // What goes hands on the order: what came after it comes after what it waited for.
    graph.remove_operator(note).unwrap();
    assert_eq!(graph.controls().collect::<Vec<_>>(), [(cat, out)]);
    assert_eq!((&graph[cat].followers[..], graph[relu].followers.len()), (&[out][..], 0));
    let out2 = id(&graph, "out2");
    let (value, made) = (graph[out2].inputs[0], graph[relu].outputs[0]);
    graph.replace_uses(value, made).unwrap();
    graph.remove_operator(cat).unwrap();
    assert_eq!(graph.controls().collect::<Vec<_>>(), [(relu, out)]);
    assert_eq!(graph[relu].followers, [out]);
    graph.validate().unwrap();
    graph.set_kind(relu, "pnnx.Output").unwrap();
    assert!(matches!(graph.validate(), Err(super::InvalidGraph::Control { .. })));
}

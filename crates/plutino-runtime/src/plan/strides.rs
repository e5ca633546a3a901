//! `torch.as_strided` reads the storage of its input, whatever view of it the input is: here such
//! operators are given the value that owns the storage. See [`plutino_ops::StrideRule`] for what
//! each operator does to strides.

use crate::SessionError;
use crate::passes::PassCx;
use crate::plan::infer::{self, Types};
use crate::plan::net::{Action, Net, Node, ValueId};
use plutino_ops::{
    Memory, Neighbour, Operator, PlanError, StorageView, StrideRule, ValueSpec, memory_of_outputs,
};

/// Where the leaves of a value lie; none for one whose place is not known.
type Places = Vec<Option<StorageView>>;

/// As [`bind_to`], by what a net knows of its values.
///
/// # Errors
/// As there.
pub(crate) fn bind(net: &mut Net, _: &mut PassCx<'_>) -> Result<(), SessionError> {
    let types = std::mem::take(&mut net.types);
    let done = bind_to(net, &types);
    net.types = types;
    done
}

/// Binds every operator that reads storage to the value that owns it.
///
/// # Errors
/// Where the owner is not known or not row-major, or is smaller than what is read.
pub(crate) fn bind_to(net: &mut Net, types: &Types) -> Result<(), SessionError> {
    if !net.nodes.iter().any(|node| storage_read(node, types).is_some()) {
        return Ok(()); // nobody asks
    }
    let mut places: Vec<Places> = vec![Vec::new(); net.values.len()];
    for &feed in &net.feeds {
        places[feed.0] = own(feed, types, true);
    }
    for node in &mut net.nodes {
        bind_node(node, types, &places)?;
        for (at, made) in outputs(node, types, &places) {
            places[at.0] = made;
        }
    }
    Ok(())
}

/// The input whose storage a node reads, whatever view of it the input is.
fn storage_read<'n>(node: &'n Node, types: &Types) -> Option<(usize, &'n dyn Operator)> {
    let operator = node.operator()?;
    match operator.stride_rule(&types.all(&node.inputs)?) {
        StrideRule::Storage(input) => Some((input, operator)),
        _ => None,
    }
}

/// Gives a node that reads storage the value that owns it.
fn bind_node(node: &mut Node, types: &Types, places: &[Places]) -> Result<(), SessionError> {
    let Some((input, operator)) = storage_read(node, types) else { return Ok(()) };
    let Some(&value) = node.inputs.get(input) else { return Ok(()) };
    let refuse = |why: &str| SessionError::Plan {
        location: Box::new((*node.location).clone()),
        inputs: types.get(value).map(ToString::to_string).unwrap_or_default(),
        error: PlanError::Unsupported(why.into()),
    };
    let [Some(view)] = places[value.0].as_slice() else {
        return Err(refuse(
            "it reads the memory that its input lies in, whose strides are not known",
        ));
    };
    let owner = ValueId(view.owner);
    let Some(ValueSpec::Tensor(memory)) = types.get(owner) else {
        return Err(refuse("it reads the memory of a value that is no tensor of known shape"));
    };
    let row_major = Some(StorageView::contiguous(owner.0, memory.shape()));
    if places[owner.0].first() != Some(&row_major) {
        return Err(refuse("it reads the memory of a value that is not row-major in PyTorch"));
    }
    let shape_error = |error, inputs: &[ValueSpec]| SessionError::Shape {
        location: Box::new((*node.location).clone()),
        inputs: infer::describe(inputs),
        error,
    };
    let mut inputs = node.inputs.clone();
    inputs[input] = owner;
    let Some(specs) = types.all(&inputs) else { return Ok(()) };
    let Some(bound) = operator.absorb(&Neighbour::View(view.clone()), &specs) else {
        return Err(refuse("it does not say how it reads the memory that its input lies in"));
    };
    bound.infer(&specs).map_err(|e| shape_error(e, &specs))?;
    node.inputs = inputs;
    node.action = Action::Operator(bound.into());
    Ok(())
}

/// Where the values that a node makes lie.
fn outputs(node: &Node, types: &Types, places: &[Places]) -> Vec<(ValueId, Places)> {
    let inputs: Places = node.inputs.iter().flat_map(|i| places[i.0].iter().cloned()).collect();
    let (specs, made) = (types.all(&node.inputs), types.all(&node.outputs));
    let all =
        |each: &dyn Fn(ValueId) -> Places| node.outputs.iter().map(|&id| (id, each(id))).collect();
    match (&node.action, specs, made) {
        (Action::Constant(_), ..) => all(&|id| own(id, types, true)),
        (Action::Pack | Action::Unpack, Some(_), Some(made)) => {
            let mut leaves = inputs.into_iter();
            let counts = node.outputs.iter().zip(&made);
            counts.map(|(&id, s)| (id, leaves.by_ref().take(s.leaf_count()).collect())).collect()
        }
        (Action::Operator(operator), Some(specs), Some(made)) => {
            let mut memory =
                memory_of_outputs(operator.as_ref(), &specs, &made, &inputs).into_iter();
            let leaves = node.outputs.iter().zip(&made);
            let place = |(&id, spec): (&ValueId, &ValueSpec)| {
                let single = spec.as_tensor();
                let leaf = |memory: Option<Memory>| match (memory?, single) {
                    (Memory::View(view), _) => Some(view),
                    // Members of a list own memory that no operator can be given.
                    (Memory::Own(strides), Some(t)) => {
                        let mut view = StorageView::contiguous(id.0, t.shape());
                        view.elements.strides = strides;
                        Some(view)
                    }
                    (Memory::Own(_), None) => None,
                };
                (id, (0..spec.leaf_count()).map(|_| leaf(memory.next().flatten())).collect())
            };
            leaves.map(place).collect()
        }
        _ => all(&|id| own(id, types, false)),
    }
}

/// A value in row-major memory of its own, where that is known of it.
fn own(id: ValueId, types: &Types, known: bool) -> Places {
    match types.get(id) {
        Some(ValueSpec::Tensor(t)) if known => {
            vec![Some(StorageView::contiguous(id.0, t.shape()))]
        }
        Some(spec) => vec![None; spec.leaf_count()],
        None => vec![None],
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{session, values};
    use plutino_tensor::Tensor;

    /// What `torch.as_strided` of the last value of these lines reads, from a 4 x 6 tensor of 0 to
    /// 23.
    fn read(lines: &str, parameters: &str) -> Result<Vec<f32>, String> {
        let last = lines.lines().last().and_then(|l| l.split(' ').nth(5)).unwrap_or("0");
        read_of(last, lines, parameters)
    }

    fn read_of(last: &str, lines: &str, parameters: &str) -> Result<Vec<f32>, String> {
        let text = format!(
            "pnnx.Input in 0 1 0\n{lines}\ntorch.as_strided a 1 1 {last} y {parameters}\npnnx.Output out 1 0 y\n"
        );
        let text: String =
            text.lines().filter(|l| !l.is_empty()).map(|l| format!("{l}\n")).collect();
        let x: Vec<f32> = (0..24u8).map(f32::from).collect();
        let x = Tensor::from_slice(&x, [4, 6]).unwrap();
        session(&text).run(&[x]).map(|y| values(&y[0])).map_err(|e| e.to_string())
    }

    #[test]
    fn strides_are_those_of_the_storage() {
        // What PyTorch says for x = torch.arange(24.).view(4, 6).
        let two = "size=(3,2) stride=(1,2)";
        let expected = Ok(vec![0., 2., 1., 3., 2., 4.]);
        assert_eq!(read("torch.t t 1 1 0 1", two), expected);
        assert_eq!(read("Tensor.permute t 1 1 0 1 dims=(1,0)", two), expected);
        assert_eq!(read("", two), expected);
        let select = "Tensor.select s 1 1 0 1 dim=0 index=2";
        assert_eq!(read(select, "size=(2,2) stride=(3,1)"), Ok(vec![12., 13., 15., 16.]));
        let offset = "size=(2,2) stride=(3,1) storage_offset=1";
        assert_eq!(read(select, offset), Ok(vec![1., 2., 4., 5.]));
        let slice = "Tensor.slice s 1 1 0 1 dim=1 start=2 end=6 step=2\ntorch.t t 1 1 1 2";
        assert_eq!(read(slice, "size=(3) stride=(7)"), Ok(vec![2., 9., 16.]));
        let columns = "Tensor.slice s 1 1 0 1 dim=1 start=0 end=3 step=1\nTensor.reshape r 1 1 1 2 shape=(12)";
        // A copy of three columns: its own storage has 12 elements.
        assert_eq!(read(columns, "size=(2) stride=(5)"), Ok(vec![0., 8.]));
        assert!(read(columns, "size=(2) stride=(12)").is_err());
        let turned = "torch.t t 1 1 0 1\nF.pad p 1 1 1 2 pad=(1,0) mode=constant value=-1.0";
        assert_eq!(read(turned, "size=(2,2) stride=(5,1)"), Ok(vec![-1., 0., -1., 1.]));
        let cast = "torch.gt g 1 1 0 1 other=3.0\ntorch.t t 1 1 0 2\nTensor.type_as c 2 1 1 2 3 $input=1 $other=2";
        assert_eq!(read_of("3", cast, "size=(2) stride=(5)"), Ok(vec![0., 1.]));
        let expand = "torch.unsqueeze u 1 1 0 1 dim=0\nTensor.expand e 1 1 1 2 sizes=(3,4,6)";
        assert_eq!(read(expand, "size=(2) stride=(23)"), Ok(vec![0., 23.]));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        let error = read("F.interpolate i 1 1 0 1 size=(4) mode=nearest", "size=(2) stride=(1)");
        assert!(error.is_err());
        let cut = "torch.t t 1 1 0 1\nF.pad p 1 1 1 2 pad=(-1,0) mode=constant value=0.0";
        assert!(read(cut, "size=(2) stride=(1)").is_err());
        let sum = "torch.t t 1 1 0 1\ntorch.neg n 1 1 1 2"; // keeps the order of its input
        let error = read(sum, "size=(2) stride=(1)").unwrap_err();
        assert!(error.contains("torch.as_strided 'a'") && error.contains("row-major"), "{error}");
    }
}

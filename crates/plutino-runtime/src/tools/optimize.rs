//! What passes do to every plan, done once and for all: to a graph that can be written.
//!
//! Constants are computed, what nobody reads is left out, and so are layers that do nothing when a
//! model is run; batch norms go into the weights of the layer before. Operators stay PyTorch's:
//! what a plan fuses beyond that, a file cannot say. What comes after something without reading
//! from it stays as it is, and what others come after so, too, but where these can come after what
//! it reads.

use crate::compare::is_random;
use crate::control::Shared;
use crate::halt;
use crate::load::model::Role;
use crate::passes::{self, PassCx};
use crate::plan::net::{Net, ValueId, Wanted};
use crate::{Model, SessionError, control, lists};
use plutino_ir::{Attribute, Graph, OperandId, Operator, OperatorId, Parameter};
use plutino_ops::ValueSpec;
use plutino_tensor::Tensor;
use std::collections::{BTreeMap, HashMap};

/// What [`Model::optimized`] did to a graph.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Optimized {
    /// The graph.
    pub graph: Graph,
    /// Operators that became constants, by name.
    pub folded: Vec<String>,
    /// Operators that nobody reads.
    pub dead: Vec<String>,
    /// Operators that give back what they are given.
    pub identities: Vec<String>,
    /// Batch norms that went into the layer before.
    pub batch_norms: Vec<String>,
}

/// Layers that do nothing once a model is trained.
const IDENTITIES: [&str; 7] = [
    "nn.Identity",
    "nn.Dropout",
    "nn.Dropout1d",
    "nn.Dropout2d",
    "nn.Dropout3d",
    "nn.AlphaDropout",
    "nn.FeatureAlphaDropout",
];

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

impl Model {
    /// The model's graph with constants computed, without operators that nobody reads or that do
    /// nothing, and with batch norms in the weights of the layers before them. It can be saved, and
    /// computes what the model does, up to rounding in layers that took over a batch norm.
    ///
    /// # Errors
    /// Where a constant cannot be computed.
    pub fn optimized(&self) -> Result<Optimized, SessionError> {
        let mut done = Optimized { graph: self.graph().clone(), ..Optimized::default() };
        let constants = self.constants()?;
        // What was not computed in time is no reason to write it as it was.
        halt::go_on()?;
        let internal = |e: Box<dyn std::error::Error + Send + Sync>| {
            SessionError::internal(format!("an edit of the graph: {e}"))
        };
        fold(&mut done, &constants).map_err(internal)?;
        identities(&mut done).map_err(internal)?;
        batch_norms(&mut done).map_err(internal)?;
        dead(&mut done).map_err(internal)?;
        Ok(done)
    }

    /// The values that depend on no input, computed as planning does.
    fn constants(&self) -> Result<HashMap<usize, Tensor>, SessionError> {
        let inner = &self.inner;
        let shared = Shared::unbound();
        let sorting = shared.resolved.options.sorting;
        let mut ready = lists::filled(inner.graph.operand_slots(), false)?;
        let order = plutino_ir::topo::kahn(&inner.graph);
        let order = order.map_err(|e| SessionError::internal(e.to_string()))?;
        let mut wanted = Vec::new();
        for (id, operator) in order.iter().filter_map(|id| Some((id, inner.graph.operator(*id)?))) {
            // Whoever reads the file draws numbers of its own.
            let effects = |id: &OperatorId| match inner.roles.get(id.index()) {
                Some(Some(Role::Operator(operator))) => operator.has_effects(),
                _ => false,
            };
            let fixed = operator.inputs.iter().all(|i| ready.get(i.index()) == Some(&true))
                && operator.after.is_empty()
                && !effects(id)
                && !is_random(&operator.kind);
            if fixed && !matches!(operator.kind.as_str(), "pnnx.Input" | "pnnx.Output") {
                for output in &operator.outputs {
                    if let Some(ready) = ready.get_mut(output.index()) {
                        *ready = true;
                    }
                    wanted.push(ValueId::from(*output));
                }
            }
        }
        let mut net = Net::new(inner, sorting, Vec::new(), &Wanted::These(wanted))?;
        control::bind(&mut net, &inner.controls, &shared);
        let mut cx = PassCx::new(inner, &[], &shared.resolved.settings);
        passes::types(&mut net, &mut cx)?;
        let mut known = HashMap::new();
        for &id in &net.fetches {
            if let Some(ValueSpec::Tensor(t)) = net.types.get(id)
                && let Some(tensor) = t.known.as_ref().filter(|_| !t.python)
            {
                known.insert(id.0, tensor.clone());
            }
        }
        Ok(known)
    }
}

/// Puts attributes in the place of operators whose results are known and read by others.
fn fold(done: &mut Optimized, known: &HashMap<usize, Tensor>) -> Fallible<()> {
    let graph = &mut done.graph;
    let constant = |graph: &Graph, id: OperatorId| {
        graph.operator(id).is_some_and(|op| {
            op.kind != "pnnx.Output"
                && op.outputs.iter().all(|o| known.contains_key(&o.index()))
                && !op.outputs.is_empty()
        })
    };
    for id in graph.operator_ids().to_vec() {
        let Some(operator) = graph.operator(id) else { continue };
        let [output] = operator.outputs[..] else { continue };
        if operator.kind == "pnnx.Attribute" || !constant(graph, id) {
            continue;
        }
        let readers = graph.operand(output).map(|o| o.consumers.clone()).unwrap_or_default();
        let Some(tensor) = known.get(&output.index()) else { continue };
        let dtype = plutino_ops::recorded_as(tensor.dtype());
        if readers.iter().all(|&reader| constant(graph, reader)) {
            continue; // goes with those
        }
        let shape: Vec<usize> = tensor.shape().iter().copied().collect();
        let data = Attribute::new(dtype, shape, tensor.as_bytes().to_vec())?;
        let name = operator.name.clone();
        graph.set_kind(id, "pnnx.Attribute")?;
        let inputs = graph.operator(id).map_or(0, |op| op.inputs.len());
        graph.remove_inputs(id, 0..inputs)?;
        *graph.params_mut(id)? = BTreeMap::new();
        *graph.attrs_mut(id)? = BTreeMap::from([("data".to_owned(), data)]);
        done.folded.push(name);
    }
    Ok(())
}

fn identities(done: &mut Optimized) -> Fallible<()> {
    let graph = &mut done.graph;
    for id in graph.operator_ids().to_vec() {
        let Some(operator) = graph.operator(id) else { continue };
        let off = operator.kind == "F.dropout"
            && operator.param("training").and_then(Parameter::as_bool) == Some(false);
        if !off && !IDENTITIES.contains(&operator.kind.as_str()) {
            continue;
        }
        // Whoever reads it comes after that, too.
        if !operator.after.is_empty() {
            continue;
        }
        let ([input], [output]) = (&operator.inputs[..], &operator.outputs[..]) else { continue };
        let (input, output, name) = (*input, *output, operator.name.clone());
        graph.replace_uses(output, input)?;
        graph.remove_operator(id)?;
        done.identities.push(name);
    }
    Ok(())
}

/// Removes operators that nobody reads, and those that only these read.
fn dead(done: &mut Optimized) -> Fallible<()> {
    let graph = &mut done.graph;
    let mut left: Vec<OperatorId> = graph.operator_ids().to_vec();
    while let Some(id) = left.pop() {
        let Some(operator) = graph.operator(id) else { continue };
        let read = |output: &OperandId| {
            graph.operand(*output).is_some_and(|operand| !operand.consumers.is_empty())
        };
        let kept = matches!(operator.kind.as_str(), "pnnx.Input" | "pnnx.Output");
        let awaited = !operator.followers.is_empty();
        if kept || operator.outputs.iter().any(read) || awaited {
            continue;
        }
        let producers = operator.inputs.iter().filter_map(|&i| graph.operand(i)?.producer);
        left.extend(producers.chain(operator.after.iter().copied()).collect::<Vec<_>>());
        let name = operator.name.clone();
        graph.remove_operator(id)?;
        done.dead.push(name);
    }
    Ok(())
}

/// What a batch norm does to each channel: `scale * x + shift`.
fn affine(norm: &Operator) -> Option<Vec<(f64, f64)>> {
    let values = |key: &str| {
        let attribute = norm.attr(key)?;
        Some(attribute.elements::<f32>().ok()?.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>())
    };
    let eps = norm.param("eps").and_then(Parameter::as_float)?;
    let (mean, var) = (values("running_mean")?, values("running_var")?);
    let weight = values("weight").unwrap_or_else(|| mean.iter().map(|_| 1.0).collect());
    let bias = values("bias").unwrap_or_else(|| mean.iter().map(|_| 0.0).collect());
    let channels = mean.iter().zip(&var).zip(weight.iter().zip(&bias));
    let affine = channels.map(|((mean, var), (weight, bias))| {
        let scale = weight / (var + eps).sqrt();
        (scale, bias - mean * scale)
    });
    let affine: Vec<(f64, f64)> = affine.collect();
    let whole = [var.len(), weight.len(), bias.len()].iter().all(|&n| n == affine.len());
    whole.then_some(affine)
}

/// Lets weights of convolutions and linear layers take over the batch norm that follows.
fn batch_norms(done: &mut Optimized) -> Fallible<()> {
    let graph = &mut done.graph;
    for id in graph.operator_ids().to_vec() {
        let norm = graph.operator(id).filter(|op| op.after.is_empty());
        let Some(norm) = norm.filter(|op| op.kind.starts_with("nn.BatchNorm")) else {
            continue;
        };
        let ([input], [output]) = (&norm.inputs[..], &norm.outputs[..]) else { continue };
        let (input, output) = (*input, *output);
        let Some(operand) = graph.operand(input).filter(|o| o.consumers.len() == 1) else {
            continue;
        };
        let Some(layer) = operand.producer.and_then(|p| graph.operator(p)) else { continue };
        let takes = match (layer.kind.as_str(), norm.kind.as_str()) {
            ("nn.Conv1d", "nn.BatchNorm1d")
            | ("nn.Conv2d", "nn.BatchNorm2d")
            | ("nn.Conv3d", "nn.BatchNorm3d") => true,
            // Of three dimensions, channels are not the last one.
            ("nn.Linear", "nn.BatchNorm1d") => {
                operand.ty.shape.as_ref().is_some_and(|dims| dims.len() == 2)
            }
            _ => false,
        };
        let Some(affine) = affine(norm).filter(|_| takes && layer.inputs.len() == 1) else {
            continue;
        };
        let Some((weight, bias)) = folded(layer, &affine) else { continue };
        let (layer, name) = (operand.producer, norm.name.clone());
        let Some(layer) = layer else { continue };
        let attrs = graph.attrs_mut(layer)?;
        attrs.insert("weight".to_owned(), weight);
        attrs.insert("bias".to_owned(), bias);
        graph.params_mut(layer)?.insert("bias".to_owned(), Parameter::from(true));
        graph.replace_uses(output, input)?;
        graph.remove_operator(id)?;
        done.batch_norms.push(name);
    }
    Ok(())
}

/// Weight and bias of a layer with a scale and a shift for each of its channels.
fn folded(layer: &Operator, affine: &[(f64, f64)]) -> Option<(Attribute, Attribute)> {
    let weight = layer.attr("weight")?;
    let shape = weight.shape().to_vec();
    if shape.first() != Some(&affine.len()) || affine.is_empty() {
        return None;
    }
    let elements = weight.elements::<f32>().ok()?;
    let bias: Vec<f64> = match layer.attr("bias") {
        Some(bias) => bias.elements::<f32>().ok()?.iter().map(|&x| f64::from(x)).collect(),
        None => affine.iter().map(|_| 0.0).collect(),
    };
    let rows = elements.chunks_exact(elements.len().checked_div(affine.len()).filter(|&n| n > 0)?);
    let scaled: Vec<f32> = rows
        .zip(affine)
        .flat_map(|(row, (scale, _))| row.iter().map(move |&w| (f64::from(w) * scale) as f32))
        .collect();
    let shifted: Vec<f32> =
        bias.iter().zip(affine).map(|(b, (scale, shift))| (b * scale + shift) as f32).collect();
    let bias = Attribute::from_elements([affine.len()], &shifted).ok()?;
    Some((Attribute::from_elements(shape, &scaled).ok()?, bias))
}

#[cfg(test)]
mod tests {
    use crate::testkit::{graph, weighted};
    use crate::{Model, SessionOptions};
    use plutino_ir::Graph;
    use plutino_tensor::{DType, Tensor, Tolerance};

    #[test]
    fn a_model_becomes_smaller_and_computes_the_same() {
        let model = weighted(
            "
            pnnx.Input in 0 1 x
            nn.Conv2d conv 1 1 x 1 bias=False dilation=(1,1) groups=1 in_channels=3 kernel_size=(3,3) \
                out_channels=4 padding=(1,1) padding_mode=zeros stride=(1,1) @weight=(4,3,3,3)f32
            nn.BatchNorm2d bn 1 1 1 2 affine=True eps=1.000000e-5 num_features=4 @bias=(4)f32 \
                @running_mean=(4)f32 @running_var=(4)f32 @weight=(4)f32
            nn.Dropout drop 1 1 2 3
            pnnx.Attribute a 0 1 4 @data=(4,1,1)f32
            pnnx.Attribute b 0 1 5 @data=(1)f32
            pnnx.Expression twice 2 1 4 5 6 expr=mul(@0,@1)
            torch.abs size 1 1 6 7
            pnnx.Expression add 2 1 3 7 8 expr=add(@0,@1)
            nn.ReLU unused 1 1 2 9
            pnnx.Output out 1 0 8",
        );
        let done = model.optimized().unwrap();
        assert_eq!(done.folded, ["size"]);
        assert_eq!(
            (done.identities.len(), done.batch_norms.as_slice()),
            (1, &["bn".to_owned()][..])
        );
        let names: Vec<_> = done.graph.operators().map(|(_, op)| op.name.as_str()).collect();
        assert_eq!(names, ["in", "conv", "size", "add", "out"]);
        let text = done.graph.to_param_string().unwrap();
        let read = Graph::from_bytes(text, done.graph.to_bin_bytes().unwrap()).unwrap();
        let image: Vec<f32> = (0..75).map(|i| (i % 11) as f32 / 5.0 - 1.0).collect();
        let image = Tensor::from_slice(&image, [1, 3, 5, 5]).unwrap();
        let run = |model: &Model| {
            let session = model.session(SessionOptions::default().with_threads(1)).unwrap();
            session.run(std::slice::from_ref(&image)).unwrap().remove(0)
        };
        let (ours, theirs) = (run(&Model::from_graph(read).unwrap()), run(&model));
        // The same 27 products in the same kernel: only the weights are rounded once more.
        let tolerance = Tolerance { rtol: 4.0 * f64::from(f32::EPSILON), atol: 1e-5 };
        let comparison = ours.compare(&theirs, tolerance).unwrap();
        assert!(comparison.is_match(), "{comparison}");
        assert_eq!(ours.dtype(), DType::F32);
    }

    #[test]
    fn what_cannot_be_written_or_is_read_by_others_stays() {
        let lines = "
            pnnx.Input in 0 1 x
            nn.Linear fc 1 1 x 1 bias=False in_features=2 out_features=2 @weight=(2,2)f32
            nn.BatchNorm1d bn 1 1 1 2 affine=True eps=1.000000e-5 num_features=2 @bias=(2)f32 \
                @running_mean=(2)f32 @running_var=(2)f32 @weight=(2)f32
            pnnx.Expression e 0 1 3 expr=3
            torch.rand noise 0 1 4 size=(2)
            pnnx.Expression sum 4 1 2 1 3 4 5 expr=add(add(@0,@1),add(@2,@3))
            pnnx.Output out 1 0 5";
        let done = weighted(lines).optimized().unwrap();
        assert_eq!(done.graph, weighted(lines).graph().clone());
        assert_eq!(done.graph.operator_count(), graph(lines).operator_count());
        assert!(done.folded.is_empty() && done.batch_norms.is_empty() && done.dead.is_empty());
    }
}

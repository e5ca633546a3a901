//! Whether a model would run as its file records: dtypes and shapes of everything, inferred without
//! a run and, but for small constants, without weights.
//!
//! Inputs are as recorded. An open dimension (`?`, `%name`) gets a size that stands in for it:
//! several are tried, and what only some of them meet is no fault of the model. Sizes that leave
//! one element of what may have many (sound that becomes a single frame) show little: larger ones
//! are tried. Where sizes are found that fit, others must fit as well. An operator that
//! cannot be inferred leaves what the file records of its outputs, so that one report names all
//! that is wrong.

use crate::control;
use crate::halt;
use crate::load::model::Inner;
use crate::passes::fold::Allowance;
use crate::passes::{self, PassCx};
use crate::plan::infer::{self, Types, agrees};
use crate::plan::net::{Action, Net, Node, ValueId, Wanted};
use crate::plan::report::Warning;
use crate::plan::strides;
use crate::settings::Settings;
use crate::{Model, SessionError, SessionOptions};
use plutino_ir::{Dim, Interrupted, Limits, TensorType};
use plutino_kernels::Isa;
use plutino_ops::{
    MemoryUse, PackCache, PlanCx, PlanError, Planned, Setting, ShapeError, StrideRule, ValueSpec,
};
use plutino_tensor::Scope;
use plutino_tensor::alloc::{self, Ledger};
use plutino_tensor::{Shape, TensorSpec};
use std::collections::HashMap;

/// Elements up to which a constant's values are looked at and values are computed: sizes and
/// indices, no tables.
const SMALL: usize = 1 << 10;

/// Bytes that lists and computed values may take, and tables of kernels that are given back.
const BUDGET: usize = 256 << 20;

/// Failures and warnings after which the search ends.
const ENOUGH: usize = 100;

/// Sizes tried for open dimensions: for the first one of an input, which mostly is the batch, and
/// for the others. The last ones are for sound: samples by the thousand become frames.
const STAND_INS: [(usize, usize); 10] = [
    (2, 64),
    (1, 64),
    (1, 224),
    (1, 640),
    (2, 16),
    (64, 64),
    (1, 8),
    (6, 12),
    (2, 16_000),
    (1, 24_000),
];

/// What is known of a model without a run. See [`Model::inference`].
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Inference {
    /// What the inputs were taken to be, in order; none for one of which the file records too
    /// little.
    pub inputs: Vec<Option<TensorSpec>>,
    /// Whether some of their sizes are made up, since the file leaves them open. Failures may be
    /// theirs then.
    pub stand_ins: bool,
    /// The inputs of a second attempt with other sizes for all open dimensions, which found no
    /// faults either; none where no sizes are made up, or no others fit.
    pub again: Option<Vec<Option<TensorSpec>>>,
    /// Values that have at most one element along a dimension that the file leaves open, the batch
    /// aside: with made-up sizes, what was found of them says little about others.
    pub flat: usize,
    /// Where a run would fail: an operator refuses what reaches it, or has no kernel for it.
    pub failures: Vec<SessionError>,
    /// Where what is computed differs from what the file records, each at its origin.
    pub warnings: Vec<Warning>,
    /// Operators between inputs and outputs.
    pub operators: usize,
    /// Those of them whose results depend on data, and may have any shape.
    pub open: usize,
}

impl Model {
    /// Infers dtypes and shapes of everything from what the file records of the inputs, and
    /// compares with what it records of the rest. Needs no weights; with them, values of small
    /// constants are known, and more can be inferred.
    ///
    /// A model without failures runs on inputs such as it was exported with, and one without
    /// warnings computes values of the recorded dtypes and shapes.
    pub fn inference(&self) -> Inference {
        self.inference_within(&Limits::default()).unwrap_or_default() // nothing interrupts it
    }

    pub(crate) fn inference_within(&self, limits: &Limits) -> Result<Inference, Interrupted> {
        let _limits = halt::enter(limits);
        let mut best: Option<Inference> = None;
        for inputs in candidates(&self.inner) {
            let others = |best: &Inference| differ(&self.inner, &inputs.specs, &best.inputs);
            let sound = |i: &Inference| faults(i) == (0, 0, 0);
            if best.as_ref().is_some_and(|best| sound(best) && !others(best)) {
                continue;
            }
            let ledger = Ledger::new(Some(BUDGET));
            let found = alloc::charged(&ledger, || Search::run(&self.inner, inputs))?;
            if let Some(why) = halt::seen(&Scope::current()) {
                return Err(why); // what was computed of constants until then is none
            }
            match &mut best {
                Some(best) if sound(best) => {
                    if sound(&found) {
                        best.again = Some(found.inputs);
                        break;
                    }
                }
                Some(best) if faults(&found) >= faults(best) => {}
                best => *best = Some(found),
            }
        }
        Ok(best.unwrap_or_default())
    }
}

/// What is to be said against sizes; the fewer the better.
fn faults(found: &Inference) -> (usize, usize, usize) {
    let flat = if found.stand_ins { found.flat } else { 0 };
    (found.failures.len(), found.warnings.len(), flat)
}

/// Whether two choices of inputs differ in all sizes that the file leaves open.
fn differ(model: &Inner, a: &[Option<TensorSpec>], b: &[Option<TensorSpec>]) -> bool {
    let mut pairs = model.inputs.iter().zip(a.iter().zip(b));
    pairs.all(|(input, (a, b))| {
        let (Some(a), Some(b), Some(dims)) = (a, b, &input.recorded.shape) else { return true };
        let mut sizes = dims.iter().zip(a.shape.iter().zip(b.shape.iter()));
        sizes.all(|(dim, (a, b))| matches!(dim, Dim::Known(_)) || a != b)
    })
}

/// Specs to try for the inputs, with whether they are made up in part.
struct Inputs {
    specs: Vec<Option<TensorSpec>>,
    stand_ins: bool,
}

fn candidates(model: &Inner) -> Vec<Inputs> {
    let open = |ty: &TensorType| ty.shape.iter().flatten().any(|dim| !matches!(dim, Dim::Known(_)));
    let stand_ins = model.inputs.iter().any(|input| open(&input.recorded));
    let sizes = if stand_ins { &STAND_INS[..] } else { &STAND_INS[..1] };
    let all = sizes.iter().map(|&sizes| {
        let mut symbols = HashMap::new();
        let specs = model.inputs.iter().map(|input| spec(&input.recorded, sizes, &mut symbols));
        Inputs { specs: specs.collect(), stand_ins }
    });
    all.collect()
}

/// A spec with these sizes for the first dimension and for others that are open; the same for a
/// symbol wherever it stands.
fn spec<'a>(
    recorded: &'a TensorType,
    (first, other): (usize, usize),
    symbols: &mut HashMap<&'a str, usize>,
) -> Option<TensorSpec> {
    let dtype = recorded.dtype.map(plutino_ops::dtype_of)?;
    let mut shape = Shape::default();
    for (at, dim) in recorded.shape.as_ref()?.iter().enumerate() {
        let size = if at == 0 { first } else { other };
        shape.push(match dim {
            Dim::Known(n) => *n,
            Dim::Unknown => size,
            Dim::Symbol(name) => *symbols.entry(name).or_insert(size),
        });
    }
    Some(TensorSpec::new(dtype, shape)).filter(is_sound)
}

/// Whether a tensor may be so large, and have so many dimensions: nothing is inferred of others.
fn is_sound(spec: &TensorSpec) -> bool {
    infer::check_rank(spec).is_ok() && spec.storage_bytes().is_ok()
}

/// The inference of one net, node by node.
struct Search<'a> {
    model: &'a Inner,
    net: &'a Net,
    types: Types,
    /// Values that differ from the record, by [`ValueId`]: what is made of them is no news.
    differs: Vec<bool>,
    found: Inference,
    allowance: Allowance,
    /// Of this inference alone: nothing of it is kept.
    packs: PackCache,
    /// Of all lists so far.
    lists: infer::Lists,
}

impl Search<'_> {
    fn run(model: &Inner, inputs: Inputs) -> Result<Inference, Interrupted> {
        let found =
            Inference { inputs: inputs.specs, stand_ins: inputs.stand_ins, ..Inference::default() };
        let feeds = model.inputs.iter().map(|input| input.id.into()).collect();
        let options = SessionOptions::default();
        let net = Net::new(model, options.sorting, feeds, &Wanted::Outputs).and_then(|mut net| {
            let settings = Settings::new(Setting::new(Isa::best(), 1), Vec::new());
            let mut cx = PassCx::new(model, &[], &settings);
            passes::dead::dead(&mut net, &mut cx)?;
            Ok(net)
        });
        match net {
            Ok(mut net) => {
                let search = Search {
                    model,
                    net: &net,
                    types: Types::default(),
                    differs: vec![false; net.values.len()],
                    found,
                    allowance: Allowance::default(),
                    packs: PackCache::default(),
                    lists: infer::Lists::default(),
                };
                let (mut found, types) = search.nodes()?;
                found.failures.extend(strides::bind_to(&mut net, &types).err());
                Ok(found)
            }
            Err(error) => Ok(Inference { failures: vec![error], ..found }),
        }
    }

    fn nodes(mut self) -> Result<(Inference, Types), Interrupted> {
        for (&feed, spec) in self.net.feeds.iter().zip(&self.found.inputs) {
            if let Some(spec) = spec {
                let known = self.types.put(feed, spec.clone().into());
                self.found.failures.extend(known.err().map(SessionError::from));
            }
        }
        for node in &self.net.nodes {
            halt::go_on()?;
            self.found.operators += usize::from(node.operator().is_some());
            let made = match self.lists.read(node, &self.types) {
                Ok(()) => self.types.all(&node.inputs).map(|inputs| self.outputs(node, &inputs)),
                Err(error) => Some(Err(error)),
            };
            match made {
                Some(Ok(Some(outputs))) => self.inferred(node, outputs),
                Some(Ok(None)) | None => self.open(node),
                Some(Err(error)) => {
                    self.found.failures.push(error);
                    self.recorded(node);
                }
            }
            if self.found.failures.len() + self.found.warnings.len() >= ENOUGH {
                break;
            }
        }
        Ok((self.found, self.types))
    }

    /// What a node makes of these inputs; none where only data tells.
    fn outputs(
        &mut self,
        node: &Node,
        inputs: &[ValueSpec],
    ) -> Result<Option<Vec<ValueSpec>>, SessionError> {
        if let Action::Constant(weight) = &node.action
            && (weight.spec.shape.checked_numel()? > SMALL || weight.bytes().is_err())
        {
            return Ok(is_sound(&weight.spec).then(|| vec![weight.spec.clone().into()]));
        }
        // What inference and planning take they give back; values and lists stay.
        let outputs = alloc::temporary(|| {
            let Some(mut outputs) = infer::node_outputs(node, inputs, &self.packs)? else {
                return Ok(None);
            };
            let Some(operator) = node.operator() else { return Ok(Some(outputs)) };
            // How long a loop takes is not known before it has run.
            let loops = control::is_control(&node.location.kind);
            if !loops && inputs.iter().chain(&outputs).all(is_small) {
                let (isa, allowance) = (Isa::best(), &mut self.allowance);
                passes::fold::compute(operator, inputs, &mut outputs, isa, allowance);
            }
            self.plan(node, inputs, &outputs)?;
            Ok::<_, SessionError>(Some(outputs))
        })?;
        if let Some(outputs) = &outputs {
            alloc::charge(infer::computed(outputs))?;
            self.lists.make(node, inputs, outputs)?;
        }
        Ok(outputs)
    }

    /// Whether an operator without weights has a kernel for what reaches it. One with weights would
    /// pack them.
    fn plan(
        &self,
        node: &Node,
        inputs: &[ValueSpec],
        outputs: &[ValueSpec],
    ) -> Result<(), SessionError> {
        let (Some(operator), Some(source)) = (node.operator(), node.source) else { return Ok(()) };
        if matches!(operator.stride_rule(inputs), StrideRule::Storage(_)) {
            return Ok(()); // bound to the storage later
        }
        if control::is_control(&node.location.kind) {
            return Ok(()); // its bodies have weights
        }
        let weights = self.model.graph.operator(source).map(|op| op.attrs.len());
        let known = outputs.iter().all(infer::known);
        if weights != Some(0) || known || outputs.iter().any(ValueSpec::is_dynamic) {
            return Ok(());
        }
        let mut setting = Setting::new(Isa::best(), 1);
        setting.memory = MemoryUse::Low;
        let cx = PlanCx { inputs, outputs, setting, packs: &self.packs };
        match Planned::of(operator, &cx, &[]) {
            // The value of a constant that was not looked at.
            Err(PlanError::Shape(ShapeError::NotKnown { .. })) => Ok(()),
            Err(error @ (PlanError::Unsupported(_) | PlanError::Shape(_))) => {
                Err(SessionError::Plan {
                    location: Box::new((*node.location).clone()),
                    inputs: infer::describe(inputs),
                    error,
                })
            }
            _ => Ok(()),
        }
    }

    /// Compares what was inferred with the record.
    fn inferred(&mut self, node: &Node, outputs: Vec<ValueSpec>) {
        let inherited = node.inputs.iter().any(|input| self.differs(*input));
        for (&id, spec) in node.outputs.iter().zip(outputs) {
            if spec.is_dynamic() {
                self.found.open += 1;
                self.keep_recorded(id);
                continue;
            }
            let recorded = self.recorded_type(id).cloned().unwrap_or_default();
            if let ValueSpec::Tensor(t) = &spec {
                self.found.flat += usize::from(is_flat(&t.spec, &recorded));
            }
            if let ValueSpec::Tensor(t) = &spec
                && !self.agrees(&t.spec, &recorded)
            {
                if let Some(differs) = self.differs.get_mut(id.0) {
                    *differs = true;
                }
                if !inherited {
                    self.found.warnings.push(Warning::Recorded {
                        location: (*node.location).clone(),
                        operand: self.net.name(id).to_owned(),
                        recorded: recorded.to_string(),
                        inferred: t.spec.to_string(),
                    });
                }
            }
            self.know(id, spec);
        }
    }

    /// Sizes count only where those of the inputs are recorded.
    fn agrees(&self, spec: &TensorSpec, recorded: &TensorType) -> bool {
        match self.found.stand_ins {
            false => agrees(spec, recorded),
            true => {
                let shape = recorded.shape.as_ref().map(|dims| vec![Dim::Unknown; dims.len()]);
                agrees(spec, &TensorType { shape, dtype: recorded.dtype })
            }
        }
    }

    /// Notes a node that only data tells more about.
    fn open(&mut self, node: &Node) {
        self.found.open += usize::from(node.operator().is_some());
        self.recorded(node);
    }

    /// Goes on with what the file records of a node's outputs.
    fn recorded(&mut self, node: &Node) {
        node.outputs.iter().for_each(|&id| self.keep_recorded(id));
    }

    fn know(&mut self, id: ValueId, spec: ValueSpec) {
        let refused = self.types.put(id, spec).err();
        self.found.failures.extend(refused.map(SessionError::from));
    }

    fn keep_recorded(&mut self, id: ValueId) {
        let Some(recorded) = self.recorded_type(id) else { return };
        let dtype = recorded.dtype.map(plutino_ops::dtype_of);
        if let (Some(dtype), Some(shape)) = (dtype, recorded.known_shape()) {
            let spec = TensorSpec::new(dtype, shape);
            if is_sound(&spec) {
                self.know(id, spec.into());
            }
        }
    }

    fn recorded_type(&self, id: ValueId) -> Option<&TensorType> {
        self.net.values.get(id.0).map(|value| &value.recorded)
    }

    fn differs(&self, id: ValueId) -> bool {
        self.differs.get(id.0).copied().unwrap_or(false)
    }
}

/// Whether a dimension that the file leaves open, the first aside, has one element at most.
fn is_flat(spec: &TensorSpec, recorded: &TensorType) -> bool {
    let dims = recorded.shape.as_deref().filter(|dims| dims.len() == spec.shape.rank());
    let mut sizes = dims.unwrap_or_default().iter().zip(spec.shape.iter()).skip(1);
    sizes.any(|(dim, &size)| !matches!(dim, Dim::Known(_)) && size <= 1)
}

/// Whether a value has few elements.
fn is_small(spec: &ValueSpec) -> bool {
    let mut elements = 0usize;
    for leaf in spec.leaves() {
        let numel = leaf.as_tensor().and_then(|t| t.shape().checked_numel().ok());
        elements = elements.saturating_add(numel.unwrap_or(usize::MAX));
    }
    elements <= SMALL
}

#[cfg(test)]
mod tests {
    use crate::testkit::model;
    use crate::{Inference, Model, Warning};

    fn inference(lines: &str) -> Inference {
        model(lines).inference()
    }

    fn texts<T: ToString>(all: &[T]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_recorded_alike_has_no_faults() {
        let found = inference(
            "pnnx.Input in 0 1 0 #0=(2,3)f32
             torch.transpose t 1 1 0 1 dim0=0 dim1=1 $input=0 #1=(3,2)f32
             torch.matmul m 2 1 0 1 2 $input=0 $other=1 #2=(2,2)f32
             pnnx.Output o 1 0 2",
        );
        assert!(found.failures.is_empty() && found.warnings.is_empty() && !found.stand_ins);
        assert_eq!((found.operators, found.open), (2, 0));
        assert_eq!(found.inputs[0].as_ref().unwrap().to_string(), "(2,3)f32");
    }

    #[test]
    fn a_difference_is_told_at_its_origin_alone() {
        let found = inference(
            "pnnx.Input in 0 1 0 #0=(2,3)f32
             F.relu r 1 1 0 1 $input=0 #1=(2,4)f32
             F.relu s 1 1 1 2 $input=1 #2=(2,4)f32
             torch.neg u 1 1 0 3 $input=0 #3=(2,3)i64
             prim::TupleConstruct t 2 1 2 3 4
             pnnx.Output o 1 0 4",
        );
        assert!(found.failures.is_empty());
        let warnings = texts(&found.warnings);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings[0].ends_with("F.relu 'r': operand 1 is (2,3)f32, the file records (2,4)f32")
        );
        assert!(
            warnings[1]
                .ends_with("torch.neg 'u': operand 3 is (2,3)f32, the file records (2,3)i64")
        );
    }

    #[test]
    fn all_failures_are_told_with_their_places() {
        let found = inference(
            "pnnx.Input in 0 1 0 #0=(2,3)f32
             torch.matmul m 2 1 0 0 1 $input=0 $other=0 #1=(2,3)f32
             Tensor.reshape r 1 1 1 2 shape=(7,-1) $input=1 #2=(7,1)f32
             pnnx.Output o 1 0 2",
        );
        let failures = texts(&found.failures);
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert!(failures[0].contains(":4: torch.matmul 'm'"), "{}", failures[0]);
        assert!(failures[1].contains(":5: Tensor.reshape 'r'"), "{}", failures[1]);
    }

    #[test]
    fn weights_are_not_needed() {
        let lines = |features: usize| {
            format!(
                "pnnx.Input in 0 1 0 #0=(2,3)f32
                 nn.Linear l 1 1 0 1 bias=False in_features={features} out_features=5 @weight=(5,{features})f32 #1=(2,5)f32
                 pnnx.Attribute c 0 1 2 @data=(2,5)f32 #2=(2,5)f32
                 pnnx.Expression e 2 1 1 2 3 expr=add(@0,@1) #3=(2,5)f32
                 pnnx.Output o 1 0 3"
            )
        };
        let found = inference(&lines(3));
        assert!(found.failures.is_empty() && found.warnings.is_empty(), "{found:?}");
        let found = inference(&lines(4));
        assert_eq!(found.failures.len(), 1);
        assert!(found.warnings.is_empty());
    }

    #[test]
    fn open_dimensions_get_sizes_that_fit() {
        // Halved five times, and joined with what was doubled again: a multiple of 32 passes.
        let mut lines = String::from("pnnx.Input in 0 1 0 #0=(?,3,?,?)f32\n");
        for i in 0..5 {
            lines += &format!(
                "F.max_pool2d p{i} 1 1 {i} {} ceil_mode=False dilation=(1,1) kernel_size=(2,2) padding=(0,0) \
                 return_indices=False stride=(2,2) $input={i} #{}=(?,3,?,?)f32\n",
                i + 1,
                i + 1
            );
        }
        lines += "F.interpolate u 1 1 5 6 mode=nearest recompute_scale_factor=False scale_factor=(2.0,2.0) size=None $input=5\n\
                  torch.cat c 2 1 6 4 7 dim=1 #7=(?,6,?,?)f32\npnnx.Output o 1 0 7";
        let found = inference(&lines);
        assert!(found.stand_ins && found.failures.is_empty(), "{found:?}");
        assert!(found.warnings.is_empty() && found.flat == 0);
        // Once more with another batch and other sizes.
        let size = |inputs: &[Option<plutino_tensor::TensorSpec>]| {
            inputs[0].as_ref().unwrap().shape.clone()
        };
        let (first, second) = (size(&found.inputs), size(found.again.as_ref().unwrap()));
        assert!([0, 2, 3].iter().all(|&i| first[i] != second[i]), "{first} {second}");
    }

    /// Convolutions with the strides of a network for speech, 320 in all: of 640 samples a single
    /// frame is left, with which everything broadcasts.
    #[test]
    fn sizes_leave_more_than_one_of_what_is_open() {
        let strides = [(10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)];
        let mut lines = String::from("pnnx.Input in 0 1 0 #0=(?,1,?)f32\n");
        for (i, (kernel, stride)) in strides.iter().enumerate() {
            lines += &format!(
                "F.max_pool1d p{i} 1 1 {i} {} ceil_mode=False dilation=(1) kernel_size=({kernel}) \
                 padding=(0) return_indices=False stride=({stride}) $input={i} #{}=(?,1,?)f32\n",
                i + 1,
                i + 1
            );
        }
        lines += "pnnx.Output o 1 0 7";
        let found = inference(&lines);
        assert!(found.failures.is_empty() && found.flat == 0 && found.again.is_some(), "{found:?}");
        let samples = found.inputs[0].as_ref().unwrap().shape[2];
        assert_eq!(samples, 16_000);
    }

    #[test]
    fn what_fits_one_size_only_is_said() {
        let found = inference(
            "pnnx.Input in 0 1 0 #0=(4,?)f32
             Tensor.reshape r 1 1 0 1 shape=(4,2,32) $input=0 #1=(4,2,32)f32
             pnnx.Output o 1 0 1",
        );
        assert!(found.stand_ins && found.failures.is_empty() && found.again.is_none(), "{found:?}");
        let known = inference("pnnx.Input in 0 1 0 #0=(4,1)f32\npnnx.Output o 1 0 0");
        assert!(!known.stand_ins && known.again.is_none());
    }

    #[test]
    fn sizes_that_were_made_up_are_no_reason_for_a_warning() {
        let lines = |dtype: &str| {
            format!(
                "pnnx.Input a 0 1 0 #0=(%n,4)f32
                 pnnx.Input b 0 1 1 #1=(%n,4)f32
                 pnnx.Expression e 2 1 0 1 2 expr=add(@0,@1) #2=(3,4){dtype}
                 pnnx.Output o 1 0 2"
            )
        };
        assert!(inference(&lines("f32")).warnings.is_empty());
        assert_eq!(inference(&lines("i64")).warnings.len(), 1);
    }

    #[test]
    fn what_depends_on_data_goes_on_as_recorded() {
        let found = inference(
            "pnnx.Input in 0 1 0 #0=(4)f32
             test.Positive p 1 1 0 1 #1=(2)f32
             test.Scale s 1 1 1 2 by=2.0 #2=(3)f32
             pnnx.Output o 1 0 2",
        );
        assert_eq!((found.open, found.warnings.len()), (1, 1), "{found:?}");
        let silent =
            inference("pnnx.Input in 0 1 0\ntest.Scale s 1 1 0 1 by=2.0\npnnx.Output o 1 0 1");
        assert_eq!((silent.inputs[0].as_ref(), silent.open), (None, 1));
    }

    #[test]
    fn an_operator_without_a_kernel_is_a_failure() {
        let found = inference(
            "pnnx.Input in 0 1 0 #0=(4)f32
             test.Unplanned p 1 1 0 1 #1=(4)f32
             pnnx.Output o 1 0 1",
        );
        assert!(texts(&found.failures)[0].contains("not supported: never"), "{found:?}");
    }

    /// A model with a constant of these values, where its file has values.
    fn with_constant(lines: &str, values: Option<&[f32]>) -> Model {
        let mut graph = crate::testkit::graph(lines);
        if let Some(values) = values {
            let id = graph.operator_by_name("pnnx_fold_7").unwrap();
            let data: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            graph.attrs_mut(id).unwrap().get_mut("data").unwrap().set_data(data).unwrap();
        }
        Model::from_graph(graph).unwrap()
    }

    #[test]
    fn assignments_to_parts_of_constants_are_suspicious() {
        let lines = |name: &str| {
            format!(
                "pnnx.Input x 0 1 0 #0=(2,2)f32
                 pnnx.Attribute {name} 0 1 1 @data=(2,1)f32 #1=(2,1)f32
                 Tensor.fill f 1 1 1 2 value=0 $input=1 #2=(2,1)f32
                 pnnx.Expression m 2 1 0 2 3 expr=mul(@0,@1) #3=(2,2)f32
                 pnnx.Output o 1 0 3"
            )
        };
        let warnings = texts(with_constant(&lines("pnnx_fold_7"), Some(&[1.0; 2])).warnings());
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("Tensor.fill 'f'"), "{warnings:?}");
        assert!(with_constant(&lines("weight"), None).warnings().is_empty());
    }

    #[test]
    fn leftovers_in_constants_are_suspicious() {
        let scatter = |op: &str| {
            format!(
                "pnnx.Input x 0 1 0 #0=(2,2)f32
                 pnnx.Input i 0 1 1 #1=(2,2)i64
                 pnnx.Attribute pnnx_fold_7 0 1 2 @data=(2,2)f32 #2=(2,2)f32
                 {op}
                 pnnx.Output o 1 0 3"
            )
        };
        let add =
            scatter("torch.scatter_add s 3 1 2 1 0 3 dim=0 $input=2 $index=1 $src=0 #3=(2,2)f32");
        let said = |values| with_constant(&add, values).warnings().len();
        assert_eq!(said(Some(&[0.0, 60.0, 0.0, 1.0])), 1);
        assert_eq!(said(Some(&[1.0; 4])), 1);
        assert_eq!(said(Some(&[0.0; 4])), 0);
        assert_eq!(said(None), 0); // nobody knows
        let warning = &with_constant(&add, Some(&[1.0; 4])).warnings()[0].to_string();
        for word in ["torch.scatter_add 's'", "'pnnx_fold_7'", "leftovers", "new_zeros"] {
            assert!(warning.contains(word), "{warning}");
        }
        // A mask that is filled where an input says: nothing is left of what was not.
        let fill = "pnnx.Input x 0 1 0 #0=(2,2)bool
             pnnx.Attribute pnnx_fold_7 0 1 2 @data=(2,2)f32 #2=(2,2)f32
             Tensor.masked_fill s 2 1 2 0 3 value=2.0 $input=2 $mask=0 #3=(2,2)f32
             pnnx.Output o 1 0 3";
        let said = |values: &[f32]| with_constant(fill, Some(values)).warnings().len();
        assert_eq!(said(&[2.0; 4]), 1);
        assert_eq!(said(&[0.0; 4]), 0);
        assert_eq!(said(&[0.0, 2.0, 0.0, 2.0]), 0); // a mask of the model's own
    }

    #[test]
    fn constants_as_long_as_data_was_are_suspicious() {
        let expand = |name: &str, index: &str, shape: &str| {
            format!(
                "pnnx.Input x 0 1 0 #0=(2,5)i64
                 pnnx.Input m 0 1 1 #1=(5){index}
                 pnnx.Attribute {name} 0 1 2 @data={shape}f32 #2={shape}f32
                 pnnx.Expression l 1 1 1 3 expr=[None,@0]
                 Tensor.index i 2 1 0 3 4 $input=0 $expr=3 #4=(2,5)i64
                 torch.unbind u 1 2 4 5 6 dim=0 #4=(2,5)i64 #5=(5)i64 #6=(5)i64
                 Tensor.expand_as e 2 1 5 2 7 $input=5 $other=2 #7=(5)i64
                 pnnx.Output o 2 0 7 6"
            )
        };
        let said = |name: &str, index: &str, shape: &str| {
            texts(with_constant(&expand(name, index, shape), None).warnings())
        };
        let warnings = said("pnnx_fold_7", "bool", "(5)");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for word in ["Tensor.expand_as 'e'", "'pnnx_fold_7'", "ones_like"] {
            assert!(warnings[0].contains(word), "{warnings:?}");
        }
        // A weight, an index of a known length, another shape.
        assert!(said("weight", "bool", "(5)").is_empty());
        assert!(said("pnnx_fold_7", "i64", "(5)").is_empty());
        assert!(said("pnnx_fold_7", "bool", "(3,5)").is_empty());
    }

    #[test]
    fn halves_and_masks_that_say_too_little() {
        let half = model(
            "pnnx.Input x 0 1 0 #0=(4,32)f32
             nn.Linear l 1 1 0 1 bias=False in_features=32 out_features=8 @weight=(8,32)bf16 #1=(4,8)f32
             pnnx.Output o 1 0 1",
        );
        let warning = half.warnings()[0].to_string();
        assert!(warning.contains("weights are bf16 and its input is f32"), "{warning}");
        let attention = |rows: usize| {
            model(&format!(
                "pnnx.Input x 0 1 0 #0=(4,4,8)f32
                 pnnx.Input m 0 1 1 #1=({rows},4)bool
                 nn.MultiheadAttention a 2 1 1 0 2 add_bias_kv=False add_zero_attn=False batch_first=True bias=False \
                 embed_dim=8 kdim=8 num_heads=2 vdim=8 @in_proj_weight=(24,8)f32 @out_proj.weight=(8,8)f32 \
                 $attn_mask=0 #1=({rows},4)bool #0=(4,4,8)f32 #2=(4,4,8)f32
                 pnnx.Output o 1 0 2"
            ))
        };
        assert!(attention(4).warnings()[0].to_string().contains("key_padding_mask"));
        assert!(attention(1).warnings().is_empty());
    }

    #[test]
    fn lost_arguments_are_noted_by_sort() {
        let graph = crate::testkit::graph(
            "pnnx.Input x 0 1 0 #0=(2,8)f32
             pnnx.Input i 0 1 1 #1=(2,8)i64
             nn.LayerNorm a 1 1 0 2 elementwise_affine=False eps=1.0e-5 normalized_shape=(8) #2=(2,8)f32
             nn.LayerNorm b 1 1 2 3 elementwise_affine=False eps=1.0e-5 normalized_shape=(8) #3=(2,8)f32
             pnnx.Expression c 2 1 3 1 4 expr=add(round(@0),mul(div(@1,3),0.5)) #4=(2,8)f32
             pnnx.Expression d 1 1 1 5 expr=[floor_divide(size(@0,0),2)]
             F.gelu e 1 1 4 6
             F.gelu f 1 1 4 7 approximate=none
             pnnx.Output o 1 0 4",
        );
        let notes = crate::load::suspects::notes(&graph, "m.param");
        assert_eq!(notes.len(), 4, "{notes:?}");
        assert!(
            notes
                .iter()
                .any(|n| n.contains("layer norms") && n.contains("(2, the first: m.param:5"))
        );
        assert!(notes.iter().any(|n| n.starts_with("GELU") && n.contains("(1, the first")));
        assert!(notes.iter().any(|n| n.contains("decimals")));
        assert!(notes.iter().any(|n| n.contains("divisions of integers")));
    }

    #[test]
    fn slices_along_open_dimensions_may_be_lost() {
        let notes = |shape: &str| {
            let lines =
                format!("pnnx.Input x 0 1 0 #0={shape}f32\nF.relu r 1 1 0 1\npnnx.Output o 1 0 1");
            crate::load::suspects::notes(&crate::testkit::graph(&lines), "m.param")
        };
        assert!(notes("(2,?,8)").iter().any(|note| note.contains("x[:, 1:x.shape[1]]")));
        // A batch; what only plutino.export writes.
        assert!(notes("(?,3,8)").is_empty() && notes("(2,%w,8)").is_empty());
    }

    #[test]
    fn warnings_name_their_operator() {
        let found = inference(
            "pnnx.Input in 0 1 0 #0=(2)f32\nF.relu r 1 1 0 1 $input=0 #1=(3)f32\npnnx.Output o 1 0 1",
        );
        let warning: &Warning = &found.warnings[0];
        assert_eq!((warning.location().name.as_str(), warning.location().line), ("r", Some(4)));
    }
}

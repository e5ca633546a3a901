//! What the operators of the file make, before any pass: how exact each value can be, and what can
//! be fed in its place.

use crate::compare::CompareOptions;
use crate::passes::PassCx;
use crate::plan::infer;
use crate::plan::net::{Action, Net, Wanted};
use crate::{Session, SessionError};
use plutino_kernels::gemm::MatrixUnit;
use plutino_kernels::tiles::Terms;
use plutino_ops::{Location, Setting, ValueSpec};
use plutino_tensor::{DType, TensorSpec};
use std::collections::HashMap;
use std::sync::Arc;

/// Operations behind an element where nothing is known of the cost before the run.
const UNKNOWN: f64 = 1024.0;

/// What is known of a value of the file.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// Who makes it; none for an input.
    pub(crate) location: Option<Arc<Location>>,
    /// The tolerance where its inputs are the reference's.
    pub(crate) own: f64,
    /// The tolerance in a run.
    pub(crate) total: f64,
    /// Whether a tensor can take its place: neither a list nor a Python number.
    pub(crate) feedable: bool,
    /// Whether it is drawn at random, and equal to nothing.
    pub(crate) random: bool,
    pub(crate) dtype: Option<DType>,
}

/// All values of the file that inputs of these specs lead to, by name.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    values: HashMap<String, About>,
}

impl Outline {
    /// Infers what the operators make of the model's inputs.
    ///
    /// # Errors
    /// Where an operator refuses what reaches it.
    pub(crate) fn new(session: &Session, feeds: &[TensorSpec]) -> Result<Self, SessionError> {
        let resolved = session.resolved();
        let model = &session.model().inner;
        let inputs = model.inputs.iter().map(|input| input.id.into()).collect();
        let mut net = Net::new(model, resolved.options.sorting, inputs, &Wanted::Outputs)?;
        let mut cx = PassCx::new(model, feeds, &resolved.settings);
        infer::infer(&mut net, &mut cx)?;
        let mut outline = Self::default();
        for &feed in &net.feeds {
            let dtype = net.types.get(feed).and_then(dtype);
            let about = About {
                location: None,
                own: 0.0,
                total: 0.0,
                feedable: true,
                random: false,
                dtype,
            };
            outline.values.insert(net.name(feed).to_owned(), about);
        }
        for node in &net.nodes {
            let setting = resolved.settings.of(&node.location);
            let inputs = net.types.all(&node.inputs);
            let outputs = net.types.all(&node.outputs);
            let cost = match (node.operator(), &inputs, &outputs) {
                (Some(op), Some(inputs), Some(outputs)) => {
                    operations(op.cost(inputs, outputs).flops, outputs)
                }
                (Some(_), ..) => UNKNOWN,
                (None, ..) => 0.0,
            };
            let inherited = node.inputs.iter().map(|&id| outline.total(net.name(id)));
            let inherited = inherited.fold(0.0, f64::max);
            for &id in &node.outputs {
                let spec = net.types.get(id);
                let dtype = spec.and_then(dtype);
                let own = match &node.action {
                    Action::Operator(_) => own(dtype, cost, rounding(&setting)),
                    _ => 0.0,
                };
                let about = About {
                    location: Some(Arc::clone(&node.location)),
                    own,
                    total: own.hypot(inherited),
                    feedable: spec.is_some_and(feedable),
                    random: is_random(&node.location.kind),
                    dtype,
                };
                outline.values.insert(net.name(id).to_owned(), about);
            }
        }
        Ok(outline)
    }

    /// What is known of a value, or of the list that it is a member of.
    pub(crate) fn get(&self, name: &str) -> Option<&About> {
        self.values.get(name).or_else(|| self.values.get(name.rsplit_once('.')?.0))
    }

    fn total(&self, name: &str) -> f64 {
        self.get(name).map_or(0.0, |about| about.total)
    }

    /// Names of the values that are drawn at random.
    pub(crate) fn random(&self) -> impl Iterator<Item = &str> {
        let random = self.values.iter().filter(|(_, about)| about.random && about.feedable);
        random.map(|(name, _)| name.as_str())
    }

    /// What a value may differ by, relative to its scale.
    pub(crate) fn tolerance(&self, name: &str, alone: bool, options: &CompareOptions) -> f64 {
        let derived = || match self.get(name) {
            Some(about) if alone => about.own,
            Some(about) => about.total,
            None => own(None, UNKNOWN, 0.0),
        };
        options.tolerance.unwrap_or_else(derived)
    }
}

/// Operations behind one element of the outputs.
fn operations(flops: u64, outputs: &[ValueSpec]) -> f64 {
    let mut elements = 0u64;
    for leaf in outputs.iter().flat_map(ValueSpec::leaves) {
        let numel = leaf.as_tensor().and_then(|t| t.shape().checked_numel().ok()).unwrap_or(0);
        elements = elements.saturating_add(numel as u64);
    }
    flops as f64 / elements.max(1) as f64
}

/// What an operator may differ by on equal inputs, relative to its scale: see [`crate::compare`].
/// `rounding` is that of numbers of f32, where these become less while they are multiplied, or in
/// memory.
pub(crate) fn own(dtype: Option<DType>, operations: f64, rounding: f64) -> f64 {
    let sum = |unit: f64| 8.0 * unit * (operations + 16.0).sqrt();
    let single = sum(f64::from(f32::EPSILON) / 2.0);
    match dtype {
        Some(DType::F64 | DType::C128) => sum(f64::EPSILON / 2.0),
        Some(DType::F16 | DType::C32) => 4.0 * 2f64.powi(-11) + single,
        Some(DType::Bf16) => 4.0 * 2f64.powi(-8) + single,
        Some(dtype) if dtype.is_integer() || dtype == DType::Bool => 0.0,
        _ => 4.0 * rounding + single,
    }
}

/// The unit roundoff of what numbers of f32 become at the precision of an operator, if less.
fn rounding(setting: &Setting) -> f64 {
    match setting.unit() {
        Some(MatrixUnit::Pairs(_) | MatrixUnit::Tiles(_, Terms::One)) => 2f64.powi(-8),
        Some(MatrixUnit::Tiles(_, Terms::Two)) => 2f64.powi(-16),
        _ => 0.0,
    }
}

/// The dtype of a value; of a list, that of its first member.
fn dtype(spec: &ValueSpec) -> Option<DType> {
    match *spec.leaves().first()? {
        ValueSpec::Tensor(t) => Some(t.spec.dtype),
        ValueSpec::Dynamic { dtype } => Some(*dtype),
        _ => None,
    }
}

fn feedable(spec: &ValueSpec) -> bool {
    match spec {
        ValueSpec::Tensor(t) => !t.python,
        ValueSpec::Dynamic { .. } => true,
        _ => false,
    }
}

/// Whether operators of this type draw their results at random.
pub(crate) fn is_random(kind: &str) -> bool {
    const DRAWN: &[&str] = &[
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "randint_like",
        "randperm",
        "bernoulli",
        "multinomial",
        "normal",
        "uniform",
        "exponential",
        "random",
        "log_normal",
        "cauchy",
        "geometric",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "FractionalMaxPool2d",
        "FractionalMaxPool3d",
    ];
    let name = kind.rsplit(['.', ':']).next().unwrap_or(kind);
    DRAWN.contains(&name.trim_end_matches('_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_kernels::Isa;
    use plutino_ops::{Precision, Units};

    #[test]
    fn tolerances_follow_from_dtype_and_length() {
        let unit = 2f64.powi(-24);
        assert_eq!(own(Some(DType::F32), 0.0, 0.0), 32.0 * unit);
        assert_eq!(own(Some(DType::F32), 2.0 * 4600.0 - 16.0, 0.0), 8.0 * unit * 9200f64.sqrt());
        assert_eq!(own(Some(DType::I64), 1e9, 0.0), 0.0);
        assert!(own(Some(DType::Bf16), 0.0, 0.0) > 4.0 / 256.0);
        assert!(own(Some(DType::F64), 1e6, 0.0) < 1e-12);
        let of = |precision, units| {
            let mut setting = Setting::new(Isa::PORTABLE, 1);
            (setting.precision, setting.units) = (precision, units);
            rounding(&setting)
        };
        assert_eq!(of(Precision::Highest, Units::EmulatedAmx), 0.0);
        assert_eq!(of(Precision::High, Units::EmulatedAmx), 2f64.powi(-16));
        assert_eq!(of(Precision::Medium, Units::EmulatedBf16), 2f64.powi(-8));
        assert_eq!(of(Precision::Medium, Units::Cpu), 0.0);
        assert!(own(Some(DType::F32), 0.0, 2f64.powi(-8)) > 4.0 / 256.0);
    }

    #[test]
    fn what_is_drawn_at_random_is_known_by_type() {
        assert!(
            ["torch.rand", "Tensor.bernoulli", "aten::normal_", "torch.randn_like"]
                .into_iter()
                .all(is_random)
        );
        assert!(
            !["F.normalize", "nn.Linear", "torch.unique", "aten::add_"].into_iter().any(is_random)
        );
    }
}

//! Two operators on rows in one node of the graph, some rows at a time: the layers of a
//! transformer's feed-forward network.

use crate::support::steps::Planner;
use crate::{Cost, Operator, PlanCx, PlanError, Planned, ShapeError, ValueSpec};
use plutino_tensor::{Layout, TensorSpec};
use std::sync::Arc;

/// `next` of what `first` computes, chunk by chunk of rows, so that what lies between them stays in
/// cache. Both compute rows alone ([`Role::ByRow`](crate::Role)); the result of `first` is input 0 of
/// `next`.
#[derive(Debug)]
pub struct ByRows {
    /// What comes first.
    pub first: Arc<dyn Operator>,
    /// How many inputs it has; the others follow that of `next`.
    pub inputs: usize,
    /// What comes next.
    pub next: Arc<dyn Operator>,
    /// How what lies between them does.
    pub between: Layout,
    /// Chunks of equal size that the rows are cut into.
    pub chunks: usize,
}

impl ByRows {
    /// In how many chunks `rows` rows are best computed that are `[features, hidden, out]` f32 wide
    /// before, between and after two linear layers, with a second-level cache of so many bytes: as
    /// few as let a chunk between the layers fit most of it, with room for weights. Each chunk
    /// reads all weights, so it is not smaller than they are.
    pub fn chunks(rows: usize, [features, hidden, out]: [usize; 3], cache: usize) -> usize {
        let bytes = |elements: usize| elements.saturating_mul(size_of::<f32>());
        let weights = bytes(features.saturating_add(out).saturating_mul(hidden));
        let most = (cache / 4 * 3).max(weights);
        let fits = |&chunks: &usize| {
            rows.is_multiple_of(chunks) && bytes(hidden).saturating_mul(rows / chunks) <= most
        };
        // None where rows have no suitable divisor: chunks would be too small for their tiles.
        (1..=rows / LEAST_ROWS).find(fits).unwrap_or(1)
    }

    /// The inputs of `next`.
    fn of_next(&self, between: ValueSpec, inputs: &[ValueSpec]) -> Vec<ValueSpec> {
        let others = inputs.get(self.inputs..).unwrap_or_default();
        std::iter::once(between).chain(others.iter().cloned()).collect()
    }

    /// What `first` makes.
    fn between(&self, inputs: &[ValueSpec]) -> Result<ValueSpec, ShapeError> {
        let own = inputs.get(..self.inputs).unwrap_or_default();
        match self.first.infer(own)?.into_iter().next() {
            Some(ValueSpec::Tensor(made)) => Ok(made.spec.with_layout(self.between).into()),
            _ => Err(ShapeError::Invalid("a layer that makes no tensor".into())),
        }
    }

    /// One chunk of a tensor of rows, as a matrix.
    fn chunk(&self, value: &ValueSpec) -> Result<TensorSpec, ShapeError> {
        let invalid = || ShapeError::Invalid("rows that cannot be cut into chunks".into());
        let spec = &value.as_tensor().ok_or_else(invalid)?.spec;
        let width = *spec.shape.last().ok_or_else(invalid)?;
        let rows = spec.shape.product(0..spec.shape.rank() - 1);
        match rows.checked_rem(self.chunks) {
            Some(0) => {
                let chunk = TensorSpec::new(spec.dtype, [rows / self.chunks, width]);
                Ok(chunk.with_layout(spec.layout))
            }
            _ => Err(invalid()),
        }
    }
}

/// Rows of a chunk at least: several tiles of every instruction set.
const LEAST_ROWS: usize = 96;

impl Operator for ByRows {
    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        self.next.infer(&self.of_next(self.between(inputs)?, inputs))
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let specs = |values: &[ValueSpec]| -> Result<Vec<TensorSpec>, ShapeError> {
            values.iter().map(|value| self.chunk(value)).collect()
        };
        let values = |specs: &[TensorSpec]| -> Vec<ValueSpec> {
            specs.iter().cloned().map(ValueSpec::from).collect()
        };
        let between = self.between(cx.inputs)?;
        let own = values(&specs(cx.inputs.get(..self.inputs).unwrap_or_default())?);
        let others = values(&specs(&self.of_next(between.clone(), cx.inputs))?);
        let nothing = || PlanError::Unsupported("layers without a result".into());
        let out = self.chunk(cx.outputs.first().ok_or_else(nothing)?)?.into();
        let middle = self.chunk(&between)?.into();
        let plan = |operator: &dyn Operator, inputs: &[ValueSpec], output: &ValueSpec| {
            operator.plan(&PlanCx { inputs, outputs: std::slice::from_ref(output), ..*cx })
        };
        let mut planner = Planner::new();
        let from: Vec<_> = (0..own.len()).map(Ok).collect();
        let first = planner.kernel(plan(&*self.first, &own, &middle)?, &own, &from, &middle)?;
        let later = (1..others.len()).map(|other| Ok(own.len() + other - 1));
        let from: Vec<_> = std::iter::once(Err(first)).chain(later).collect();
        let next = planner.kernel(plan(&*self.next, &others, &out)?, &others, &from, &out)?;
        let names: Vec<&str> = planner.kernels().collect();
        let name = format!("{}/{}", names.join(">"), self.chunks);
        planner.chunks(&name, next, &out, self.chunks)
    }

    fn cost(&self, inputs: &[ValueSpec], outputs: &[ValueSpec]) -> Cost {
        let moved = Cost::moved(inputs, outputs);
        let Ok(between) = self.between(inputs) else { return moved };
        let own = inputs.get(..self.inputs).unwrap_or_default();
        let made = [between.clone()];
        let next = self.next.cost(&self.of_next(between, inputs), outputs);
        let both = self.first.cost(own, &made).plus(next);
        // What lies between is neither read nor written.
        let hidden = Cost::moved(&made, &made).bytes;
        Cost { bytes: both.bytes.saturating_sub(hidden), ..both }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{check, error, op_with, random, values};
    use crate::{Neighbour, PackCache, Precision, Setting, Units, eager};
    use plutino_kernels::{Activation, Isa, Par};

    /// Two layers of 5 to 7 to 3 features; the second one adds its last input.
    fn layers(chunks: usize) -> (Arc<dyn Operator>, Arc<dyn Operator>, ByRows) {
        let layer = |line: &str, features, out, seed| {
            let weights =
                [("weight", random([out, features], seed)), ("bias", random([out], seed + 1))];
            op_with(line, &weights)
        };
        let first = layer("nn.Linear a 1 1 0 1 bias=True in_features=5 out_features=7", 5, 7, 1);
        let first = first.absorb(&Neighbour::Activation(Activation::Relu), &[]).unwrap();
        let next = layer("nn.Linear b 1 1 1 2 bias=True in_features=7 out_features=3", 7, 3, 3);
        let next = next.absorb(&Neighbour::Add, &[]).unwrap();
        let (first, next): (Arc<dyn Operator>, Arc<dyn Operator>) = (first.into(), next.into());
        let both = ByRows {
            first: Arc::clone(&first),
            inputs: 1,
            next: Arc::clone(&next),
            between: Layout::Plain,
            chunks,
        };
        (first, next, both)
    }

    #[test]
    fn chunks_give_what_all_rows_give() {
        let (x, summand) = (random([2, 6, 5], 5), random([2, 6, 3], 6));
        for chunks in [1, 3, 4] {
            let (first, next, both) = layers(chunks);
            let between = check(&*first, std::slice::from_ref(&x)).remove(0);
            let expected = check(&*next, &[between, summand.clone()]);
            let found = check(&both, &[x.clone(), summand.clone()]);
            assert_eq!(found[0].shape(), expected[0].shape());
            assert_eq!(values::<f32>(&found[0]), values::<f32>(&expected[0]));
        }
    }

    #[test]
    fn what_lies_between_may_be_bf16() {
        let layer = |line: &str, weight: [usize; 2], seed| {
            op_with(line, &[("weight", random(weight, seed)), ("bias", random([weight[0]], seed))])
        };
        let first = layer("nn.Linear a 1 1 0 1 bias=True in_features=6 out_features=8", [8, 6], 1);
        let gelu = Neighbour::Activation(Activation::Gelu);
        let first: Arc<dyn Operator> = first.absorb(&gelu, &[]).unwrap().into();
        let next = layer("nn.Linear b 1 1 1 2 bias=True in_features=8 out_features=4", [4, 8], 2);
        let next: Arc<dyn Operator> = next.absorb(&Neighbour::Add, &[]).unwrap().into();
        let setting = Setting { precision: Precision::Medium, ..Setting::new(Isa::PORTABLE, 1) };
        let setting = Setting { units: Units::EmulatedBf16, ..setting };
        let (x, summand) = (random([2, 6, 6], 3), random([2, 6, 4], 4));
        let inputs: Vec<ValueSpec> = [&x, &summand].map(|t| t.spec().into()).into();
        let run = |between, chunks| {
            let (first, next) = (Arc::clone(&first), Arc::clone(&next));
            let both = ByRows { first, inputs: 1, next, between, chunks };
            let (outputs, packs) = (both.infer(&inputs).unwrap(), PackCache::default());
            let cx = PlanCx { inputs: &inputs, outputs: &outputs, setting, packs: &packs };
            let planned = both.plan(&cx).unwrap();
            let data = [x.clone(), summand.clone()];
            let y = eager::execute(&planned, &outputs, &data, &Par::serial()).unwrap();
            values::<f32>(&y[0])
        };
        for chunks in [1, 3] {
            let [narrow, plain] = [Layout::PlainBf16, Layout::Plain].map(|of| run(of, chunks));
            assert_eq!(narrow, plain);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (_, _, both) = layers(5);
        error(&both, &[random([2, 6, 5], 5), random([2, 6, 3], 6)]); // 12 rows in 5 chunks
        let (_, _, both) = layers(1);
        error(&both, &[random([2, 6, 4], 5), random([2, 6, 3], 6)]);
        error(&both, &[random([2, 6, 5], 5), random([2, 6, 4], 6)]);
    }

    #[test]
    fn chunks_fit_the_cache_and_are_not_smaller_than_the_weights() {
        let cache = 1 << 20;
        assert_eq!(ByRows::chunks(3136, [96, 384, 96], cache), 7); // Swin-T's first stage
        assert_eq!(ByRows::chunks(784, [192, 768, 192], cache), 4);
        assert_eq!(ByRows::chunks(196, [384, 1536, 384], cache), 1); // 2.4 MB of weights
        assert_eq!(ByRows::chunks(0, [96, 384, 96], cache), 1);
        assert_eq!(ByRows::chunks(3137, [96, 384, 96], cache), 1); // a prime number
        assert_eq!(ByRows::chunks(usize::MAX, [usize::MAX; 3], cache), 1);
    }
}

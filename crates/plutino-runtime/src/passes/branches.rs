//! Branches: convolutions of one image whose results are added become one convolution.
//!
//! ```text
//! conv3x3(x) + conv1x1(x) + batch_norm(x)     x + scale (conv3x3(x) + conv1x1(x) - batch_norm(x))
//! ```
//! Networks are trained with such branches and were deployed without them (RepVGG, MobileOne,
//! FastViT); a file often has them all the same. Sums, differences and factors of channels may
//! stand in one expression or in several, batch norms before them or behind. Which convolutions are
//! one is theirs to say ([`Conv::with_branches`]); what reads other images stays a summand.

use super::PassCx;
use super::formula::{Term, formula};
use super::patch::{NewNode, Patch};
use crate::SessionError;
use crate::plan::net::{Action, Net, ValueId};
use plutino_ir::expr::{BinaryFn, UnaryFn};
use plutino_ops::{Branch, ChannelAffine, Conv, Operator, Role, sum_of};
use plutino_tensor::{DType, TensorSpec, alloc};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Steps that one sum may be written in.
const MOST_STEPS: usize = 32;

/// Adds up convolutions, the last sum first: it may consist of others.
pub(super) fn branches(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let nodes = (0..net.nodes.len()).rev();
    super::apply_at(nodes, net, cx, |net, cx, at| find(net, cx, at).map(Ok))
}

/// What the sum at `at` is computed by.
fn find(net: &Net, cx: &PassCx<'_>, at: usize) -> Option<Patch> {
    let output = net.only_output(at)?;
    let result = net.computed(output).filter(|spec| spec.dtype == DType::F32)?;
    let channels = *result.shape.get(1).filter(|_| (3..=5).contains(&result.shape.rank()))?;
    let (terms, steps) = (Vec::new(), BTreeSet::new());
    let mut form = Form { net, result, channels, terms, shift: Numbers::All(0.0), steps };
    form.node(at, &Numbers::one())?;
    let layers = form.layers(at);
    let mut sums = Vec::new();
    let mut open: BTreeSet<usize> = (0..layers.len()).filter(|&i| layers[i].is_some()).collect();
    let mut summed = BTreeSet::new();
    // The convolution with the largest window first.
    let taps = |i: &usize| layers[*i].as_ref().map_or(0, |layer| layer.conv.window_taps());
    while let Some(i) = open.iter().copied().max_by_key(|i| (taps(i), usize::MAX - i)) {
        open.remove(&i);
        let left = Left { layers: &layers, open: &open, summed: &summed };
        if let Some(sum) = form.sum(cx, i, &left) {
            summed.extend(sum.terms.iter().copied());
            open.retain(|i| !sum.terms.contains(i));
            sums.push(sum);
        }
    }
    form.patch(at, output, &layers, sums, &summed)
}

/// A number for each channel.
#[derive(Debug, Clone, PartialEq)]
enum Numbers {
    All(f64),
    Each(Arc<[f64]>),
}

impl Numbers {
    fn one() -> Self {
        Self::All(1.0)
    }

    fn of(&self, channel: usize) -> f64 {
        match self {
            Self::All(number) => *number,
            Self::Each(numbers) => numbers.get(channel).copied().unwrap_or(0.0),
        }
    }

    fn with(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        match (self, other) {
            (Self::All(a), Self::All(b)) => Self::All(f(*a, *b)),
            (Self::Each(all), _) | (_, Self::Each(all)) => {
                Self::Each((0..all.len()).map(|c| f(self.of(c), other.of(c))).collect())
            }
        }
    }

    fn times(&self, other: &Self) -> Self {
        self.with(other, |a, b| a * b)
    }

    fn plus(&self, other: &Self) -> Self {
        self.with(other, |a, b| a + b)
    }

    /// One by one.
    fn each(&self, channels: usize) -> Option<Vec<f64>> {
        alloc::collect((0..channels).map(|channel| self.of(channel))).ok()
    }
}

/// A sum of values, each channel of each times a number, and a number for each channel.
struct Form<'a> {
    net: &'a Net,
    result: &'a TensorSpec,
    channels: usize,
    terms: Vec<(ValueId, Numbers)>,
    shift: Numbers,
    /// Nodes that it is written in, but for the last one.
    steps: BTreeSet<usize>,
}

/// A convolution that a term of a form is the result of.
struct Layer<'a> {
    at: usize,
    conv: &'a Conv,
    image: ValueId,
}

/// What no convolution computes so far.
struct Left<'a> {
    /// By term.
    layers: &'a [Option<Layer<'a>>],
    /// Terms that are results of convolutions, without the one that is asked.
    open: &'a BTreeSet<usize>,
    /// Terms that are accounted for.
    summed: &'a BTreeSet<usize>,
}

/// Terms that one convolution computes.
struct Summed {
    /// The node whose window covers the others.
    at: usize,
    conv: Conv,
    image: ValueId,
    terms: Vec<usize>,
}

impl<'a> Form<'a> {
    /// Adds what the node at `at` makes, times numbers; none where that is no such sum.
    fn node(&mut self, at: usize, by: &Numbers) -> Option<()> {
        if let Some(Role::Affine(affine)) = self.net.role(at) {
            let value = *self.net.nodes[at].inputs.first()?;
            self.shift_by(&Numbers::Each(affine.shift), by);
            return self.value(value, &by.times(&Numbers::Each(affine.scale)), at);
        }
        match formula(self.net, at)? {
            Term::Value(_) => None, // nothing to take apart
            term => self.term(&term, by, at),
        }
    }

    /// Adds a term of the node at `at`.
    fn term(&mut self, term: &Term, by: &Numbers, at: usize) -> Option<()> {
        if let Some(numbers) = self.known(term) {
            self.shift_by(&numbers, by);
            return Some(());
        }
        match term {
            Term::Value(value) => self.value(*value, by, at),
            Term::Unary(UnaryFn::Neg, x) => self.term(x, &by.times(&Numbers::All(-1.0)), at),
            Term::Binary(BinaryFn::Add, a, b) => {
                self.term(a, by, at)?;
                self.term(b, by, at)
            }
            Term::Binary(BinaryFn::Sub, a, b) => {
                self.term(a, by, at)?;
                self.term(b, &by.times(&Numbers::All(-1.0)), at)
            }
            Term::Binary(BinaryFn::Mul, a, b) => match (self.known(a), self.known(b)) {
                (_, Some(numbers)) => self.term(a, &by.times(&numbers), at),
                (Some(numbers), _) => self.term(b, &by.times(&numbers), at),
                _ => None,
            },
            Term::Binary(BinaryFn::Div, a, b) => {
                self.term(a, &by.with(&self.known(b)?, |by, x| by / x), at)
            }
            _ => None,
        }
    }

    /// Adds a value that the node at `at` reads: what it is the sum of, where nobody else reads it.
    fn value(&mut self, value: ValueId, by: &Numbers, at: usize) -> Option<()> {
        self.net.computed(value).filter(|spec| *spec == self.result)?;
        if let Some(step) = self.net.maker_for(value, at)
            && self.steps.len() < MOST_STEPS
        {
            let before = (self.terms.clone(), self.shift.clone(), self.steps.clone());
            self.steps.insert(step);
            if self.node(step, by).is_some() {
                return Some(());
            }
            (self.terms, self.shift, self.steps) = before;
        }
        match self.terms.iter_mut().find(|(term, _)| *term == value) {
            Some((_, numbers)) => *numbers = numbers.plus(by),
            None => self.terms.push((value, by.clone())),
        }
        Some(())
    }

    fn shift_by(&mut self, numbers: &Numbers, by: &Numbers) {
        self.shift = self.shift.plus(&numbers.times(by));
    }

    /// Numbers that are known by now, one for each channel or one for all.
    fn known(&self, term: &Term) -> Option<Numbers> {
        let value = match term {
            Term::Number(number) => return number.is_finite().then_some(Numbers::All(*number)),
            Term::Value(value) => self.net.types.get(*value)?.as_tensor()?,
            _ => return None,
        };
        let tensor = value.known.as_ref().filter(|_| value.dtype() == DType::F32)?;
        let (dims, rank) = (value.shape().dims(), self.result.shape.rank());
        let elements = tensor.as_slice::<f32>().ok()?;
        if let &[only] = elements {
            return (dims.len() <= rank).then_some(Numbers::All(only.into()));
        }
        let (channels, rest) = dims.split_at_checked(dims.len().checked_sub(rank - 2)?)?;
        let fits =
            rest.iter().all(|&n| n == 1) && matches!(*channels, [c] | [1, c] if c == self.channels);
        fits.then(|| Numbers::Each(elements.iter().map(|&x| x.into()).collect()))
    }

    /// The convolutions whose results are terms, and nobody else's business.
    fn layers(&self, at: usize) -> Vec<Option<Layer<'a>>> {
        let layer = |value: ValueId| {
            let reader = self.net.only_reader(value)?;
            let maker = self.net.maker_for(value, reader)?;
            let node = self.net.nodes.get(maker)?;
            let inside = reader == at || self.steps.contains(&reader);
            let conv = node.operator()?.convolution().filter(|_| inside)?;
            match node.inputs[..] {
                [image] => Some(Layer { at: maker, conv, image }),
                _ => None,
            }
        };
        self.terms.iter().map(|&(value, _)| layer(value)).collect()
    }

    /// The convolution of term `i` with all terms that it covers of those that are left, and with
    /// the numbers that are added, if it is the first one; none where it would be as it is.
    fn sum(&self, cx: &PassCx<'_>, i: usize, left: &Left<'_>) -> Option<Summed> {
        let layer = left.layers.get(i)?.as_ref()?;
        let node = &self.net.nodes[layer.at];
        let (inputs, setting) = (self.net.types.all(&node.inputs)?, cx.settings.of(&node.location));
        let nothing = Numbers::All(0.0);
        let scaled = |i: usize, conv: &Conv, shift: &Numbers| -> Option<Conv> {
            let numbers = &self.terms.get(i)?.1;
            if (numbers, shift) == (&Numbers::one(), &nothing) {
                return Some(conv.clone());
            }
            let [scale, shift] = [numbers, shift].map(|numbers| numbers.each(self.channels));
            conv.with_affine(&ChannelAffine::unnamed(scale?.into(), shift?.into()))
        };
        // What is added to all is added to the first one.
        let shift = if left.summed.is_empty() { &self.shift } else { &nothing };
        let own = scaled(i, layer.conv, shift)?;
        let mut terms = vec![i];
        let mut convs = Vec::new();
        for &other in left.open {
            let Some(branch) = left.layers[other].as_ref().filter(|l| l.image == layer.image)
            else {
                continue;
            };
            let same = cx.settings.of(&self.net.nodes[branch.at].location) == setting;
            let conv = scaled(other, branch.conv, &nothing).filter(|_| same);
            if let Some(conv) = conv
                && own.covers(&Branch::Conv(&conv), &inputs)
            {
                terms.push(other);
                convs.push(conv);
            }
        }
        let mut all: Vec<Branch<'_>> = convs.iter().map(Branch::Conv).collect();
        // The image alone is added on the way, at no cost.
        let image = self.terms.iter().position(|(value, _)| *value == layer.image);
        let factors: Vec<f64>;
        if let Some(image) = image.filter(|image| !left.summed.contains(image))
            && !(all.is_empty() && self.terms[image].1 == Numbers::one())
        {
            factors = self.terms[image].1.each(self.channels)?;
            let branch = Branch::Image(&factors);
            if own.covers(&branch, &inputs) {
                terms.push(image);
                all.push(branch);
            }
        }
        let plain = (&self.terms[i].1, shift) == (&Numbers::one(), &nothing);
        let conv = match all.is_empty() {
            true if plain => return None,
            true => own,
            false => own.with_branches(&all, &inputs)?,
        };
        Some(Summed { at: layer.at, conv, image: layer.image, terms })
    }

    /// What takes the place of the sum at `at`: these convolutions, and the sum of what is left.
    fn patch(
        &self,
        at: usize,
        output: ValueId,
        layers: &[Option<Layer<'_>>],
        sums: Vec<Summed>,
        summed: &BTreeSet<usize>,
    ) -> Option<Patch> {
        let name = |at: usize| &self.net.nodes[at].location.name;
        let left = || (0..self.terms.len()).filter(|i| !summed.contains(i));
        let mut summands: Vec<ValueId> = left().map(|i| self.terms[i].0).collect();
        let gone: BTreeSet<usize> =
            summed.iter().filter_map(|&i| layers[i].as_ref()).map(|layer| layer.at).collect();
        let cover = name(sums.first()?.at);
        let patch = if let ([_], true) = (&sums[..], summands.is_empty()) {
            let Summed { at: into, conv, image, .. } = sums.into_iter().next()?;
            let patch = Patch::replace(
                into,
                Arc::new(conv) as Arc<dyn Operator>,
                vec![image],
                vec![output],
            );
            let others = gone.iter().copied().filter(|&gone| gone != into);
            patch.without(others.chain(self.steps.iter().copied()).chain([at]))
        } else {
            let plain = left().all(|i| self.terms[i].1 == Numbers::one());
            if !plain {
                return None;
            }
            let mut nodes = Vec::new();
            for Summed { at, conv, image, .. } in sums {
                let node = &self.net.nodes[at];
                let (location, made) = (Arc::clone(&node.location), node.outputs.clone());
                summands.extend(made.iter().copied());
                let action = Action::Operator(Arc::new(conv));
                let inputs = vec![image];
                nodes.push(NewNode { location: Some(location), action, inputs, outputs: made });
            }
            let action = Action::Operator(sum_of(summands.len()).into());
            let outputs = vec![output];
            nodes.push(NewNode { location: None, action, inputs: summands, outputs });
            Patch::with(at, nodes).without(gone.iter().chain(&self.steps).copied())
        };
        Some(patch.note(name(at), format!("the sum is computed by {cover}")))
    }
}

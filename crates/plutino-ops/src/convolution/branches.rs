//! Convolutions of one image whose results are added are one convolution: structural
//! re-parameterisation, as RepVGG's authors do it by hand before they deploy a network
//! (<https://arxiv.org/abs/2101.03697>).
//!
//! A convolution is linear in its weight. Where the window of one of them covers those of the
//! others, their taps are added to its own; the image itself, each channel times a number, is a
//! window of one tap. The sum of the weights is computed when it is packed.

use super::conv::Conv;
use crate::core::MakeWeight;
use crate::support::weights::Source;
use crate::{ChannelAffine, Neighbour, PlanError, TensorValue, ValueSpec, Weight};
use plutino_kernels::conv::{PostOps, Window};
use plutino_tensor::{DType, Tensor, TensorSpec, alloc};
use std::sync::Arc;

/// What is added to the result of a convolution.
#[derive(Debug, Clone, Copy)]
pub enum Branch<'a> {
    /// What another convolution makes of the same image.
    Conv(&'a Conv),
    /// The image, each channel times a number.
    Image(&'a [f64]),
}

/// A weight's part in a sum of weights.
#[derive(Debug)]
struct Part {
    /// What tells its taps from those of others.
    name: Arc<str>,
    taps: Taps,
    /// Channels of a row.
    channels: usize,
    groups: usize,
    /// For each tap of its window, the tap of the sum's window at the same pixel.
    places: Vec<usize>,
}

/// The taps of a part, row-major: (out, channels, window).
#[derive(Debug)]
enum Taps {
    Stored(Weight),
    /// One for each channel of the image.
    Factors(Arc<[f32]>),
}

/// A weight, and what is added to its taps.
#[derive(Debug)]
struct Sum {
    own: Weight,
    parts: Vec<Part>,
    /// The own weight's sizes: outputs, channels of a row.
    rows: usize,
    channels: usize,
    groups: usize,
    /// Taps of the window.
    taps: usize,
}

impl Conv {
    /// The convolution that computes the sum of what this one and `branches` make of an image
    /// (N, C, ...) of f32; none where its window does not cover theirs, or where weights are not
    /// known.
    ///
    /// Whoever asks makes sure that results have the same shape.
    pub fn with_branches(&self, branches: &[Branch<'_>], inputs: &[ValueSpec]) -> Option<Self> {
        let own = self.plain_weight()?;
        let &[rows, channels, ref kernel @ ..] = own.dims() else { return None };
        let mut name = own.name.to_string();
        let mut biases = vec![self.weighted.bias.as_ref()];
        let mut parts = Vec::new();
        for branch in branches {
            let part = self.part(branch, inputs)?;
            name = format!("{name} + {} at {}", part.name, ends(&part.places));
            parts.push(part);
            if let Branch::Conv(other) = branch {
                biases.push(other.weighted.bias.as_ref());
            }
        }
        let (groups, taps) = (self.groups, kernel.iter().product());
        let sum = Sum { own: own.clone(), parts, rows, channels, groups, taps };
        let mut conv = self.clone();
        conv.weighted.bias = sum_of_biases(&name, &biases, rows)?;
        let weight = Weight::made_by(name.into(), own.spec.clone(), Arc::new(sum));
        conv.weighted.weight = Source::Stored(weight);
        Some(conv)
    }

    /// Whether its window covers that of a branch: [`Conv::with_branches`] takes it then, where
    /// biases can be read.
    pub fn covers(&self, branch: &Branch<'_>, inputs: &[ValueSpec]) -> bool {
        self.part(branch, inputs).is_some()
    }

    /// What of this convolution's weight a branch of the image would be.
    fn part(&self, branch: &Branch<'_>, inputs: &[ValueSpec]) -> Option<Part> {
        let x = TensorValue::at(inputs, self.weighted.input).ok()?;
        let &[rows, own, ref kernel @ ..] = self.plain_weight()?.dims() else { return None };
        if x.dtype() != DType::F32 || x.shape().rank() != self.dims + 2 {
            return None;
        }
        let windows = self.windows(kernel)?;
        match *branch {
            Branch::Conv(other) => {
                let weight = other.plain_weight()?;
                let &[out, channels, ref kernel @ ..] = weight.dims() else { return None };
                let theirs = other.windows(kernel)?;
                let image = |channels: usize, groups: usize| channels.checked_mul(groups);
                if out != rows
                    || other.dims != self.dims
                    || other.groups % self.groups != 0
                    || image(channels, other.groups) != image(own, self.groups)
                {
                    return None;
                }
                let (name, places) = (Arc::clone(&weight.name), places(&windows, &theirs)?);
                let (taps, groups) = (Taps::Stored(weight.clone()), other.groups);
                Some(Part { name, taps, channels, groups, places })
            }
            Branch::Image(factors) => {
                let still = self.stride.iter().all(|&stride| stride == 1);
                if factors.len() != rows || x.shape()[1] != rows || !still {
                    return None;
                }
                let one: Vec<Window> = windows.iter().map(|_| Window::default()).collect();
                let places = places(&windows, &one)?;
                let name = ChannelAffine::unnamed(factors.into(), Arc::default()).key;
                let taps = Taps::Factors(factors.iter().map(|&factor| factor as f32).collect());
                Some(Part { name, taps, channels: 1, groups: rows, places })
            }
        }
    }

    /// The convolution with its results times a number for each channel, and with numbers added;
    /// none where weights are not known, or something else comes before that.
    pub fn with_affine(&self, affine: &ChannelAffine) -> Option<Self> {
        let weighted = self.weighted.absorb(&Neighbour::Affine(affine.clone()))?;
        self.transposed.is_none().then(|| Self { weighted, ..self.clone() })
    }

    /// The weight, where it is known and the convolution does nothing else than to multiply and to
    /// add a known bias.
    fn plain_weight(&self) -> Option<&Weight> {
        let plain = self.transposed.is_none()
            && self.weighted.input == 0
            && self.weighted.post_ops == PostOps::default()
            && self.weighted.is_stored();
        let weight = self.weighted.weight.stored().filter(|_| plain)?;
        (weight.spec.dtype == DType::F32 && weight.is_loaded()).then_some(weight)
    }

    fn windows(&self, kernel: &[usize]) -> Option<Vec<Window>> {
        let window = |(i, &taps): (usize, &usize)| self.window(i, taps);
        (kernel.len() == self.dims).then(|| kernel.iter().enumerate().map(window).collect())
    }

    /// Taps of the window.
    pub fn window_taps(&self) -> usize {
        let weight = self.weighted.weight.spec(&[]).ok();
        weight.map_or(0, |w| w.shape.iter().skip(2).fold(1, |all, &n| n.saturating_mul(all)))
    }
}

/// For each tap of `small`, row-major, the tap of `large` that reads the same pixel at the same
/// place of the output; none where there is one without.
fn places(large: &[Window], small: &[Window]) -> Option<Vec<usize>> {
    let mut all = vec![0usize];
    for (large, small) in large.iter().zip(small) {
        // Beyond the image they read the same, or nothing at all.
        let inside = small.padding == (0, 0);
        if large.stride != small.stride || (large.mode != small.mode && !inside) {
            return None;
        }
        let ahead = large.padding.0.checked_sub(small.padding.0)?;
        let place = |tap: usize| {
            let pixel = tap.checked_mul(small.dilation)?.checked_add(ahead)?;
            let found = pixel / large.dilation.max(1);
            (pixel % large.dilation.max(1) == 0 && found < large.kernel).then_some(found)
        };
        let mut line = alloc::filled(small.kernel, 0usize).ok()?;
        for (tap, found) in line.iter_mut().enumerate() {
            *found = place(tap)?;
        }
        let pairs = all.iter().flat_map(|&before| line.iter().map(move |&tap| (before, tap)));
        all = pairs.map(|(before, tap)| before * large.kernel + tap).collect();
    }
    Some(all)
}

/// What tells the places of a window from those of another one with as many taps.
fn ends(places: &[usize]) -> String {
    let [first, last] = [places.first(), places.last()].map(|end| end.copied().unwrap_or(0));
    format!("{first}..={last}")
}

/// The sum of biases of f32; none where one is not known.
fn sum_of_biases(weight: &str, biases: &[Option<&Source>], rows: usize) -> Option<Option<Source>> {
    let known: Vec<&Source> = biases.iter().copied().flatten().collect();
    if known.is_empty() {
        return Some(None);
    }
    let mut sums = alloc::filled(rows, 0.0f64).ok()?;
    for bias in known {
        let bias = bias.stored().filter(|b| b.dims() == [rows] && b.spec.dtype == DType::F32)?;
        let view = bias.view_f32().ok()?;
        let values = view.floats();
        sums.iter_mut().enumerate().for_each(|(i, sum)| *sum += f64::from(values.get(i)));
    }
    let sums: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
    let sums = Tensor::from_slice(&sums, [rows]).ok()?;
    let spec = TensorSpec::new(DType::F32, [rows]);
    let name = format!("{weight} + bias").into();
    Some(Some(Source::Stored(Weight::computed(name, spec, Some(sums)))))
}

impl MakeWeight for Sum {
    fn write_to(&self, elements: &mut [f32]) -> Result<(), PlanError> {
        self.own.view_f32()?.floats().copy_to(elements);
        self.parts.iter().try_for_each(|part| match &part.taps {
            Taps::Factors(factors) => {
                self.add(part, elements, |i| factors.get(i).copied().unwrap_or(0.0));
                Ok(())
            }
            Taps::Stored(weight) => {
                let view = weight.view_f32()?;
                let floats = view.floats();
                self.add(part, elements, |i| floats.get(i));
                Ok(())
            }
        })
    }
}

impl Sum {
    /// Adds the taps of a part, whose element of a number is `tap`.
    fn add(&self, part: &Part, elements: &mut [f32], tap: impl Fn(usize) -> f32) {
        let width = self.channels * self.taps;
        let (rows, theirs) = (self.rows / self.groups.max(1), self.rows / part.groups.max(1));
        if width == 0 || rows == 0 || theirs == 0 {
            return;
        }
        for (row, sums) in elements.chunks_exact_mut(width).enumerate() {
            // Channels of the image where the groups of this row begin.
            let (begin, own) = (row / theirs * part.channels, row / rows * self.channels);
            let first = begin.saturating_sub(own);
            let channels = sums.chunks_exact_mut(self.taps).skip(first).take(part.channels);
            for (channel, sums) in channels.enumerate() {
                let at = (row * part.channels + channel) * part.places.len();
                for (i, &place) in part.places.iter().enumerate() {
                    if let Some(sum) = sums.get_mut(place) {
                        *sum += tap(at + i);
                    }
                }
            }
        }
    }
}

//! Views against naive index arithmetic: a view must hold what the same operation on a plain list
//! of values gives.
#![allow(clippy::unwrap_used)] // helpers of tests

use plutino_tensor::{DType, Element, Shape, Tensor, TensorError, TensorView};
use proptest::prelude::*;

/// The naive model: a value for every index of the shape, row-major.
#[derive(Debug, Clone, PartialEq)]
struct Model {
    shape: Vec<usize>,
    values: Vec<i64>,
}

impl Model {
    fn iota(shape: &[usize]) -> Self {
        let n: usize = shape.iter().product();
        Self { shape: shape.to_vec(), values: (0..n as i64).collect() }
    }

    fn at(&self, index: &[usize]) -> i64 {
        self.values[index.iter().zip(&self.shape).fold(0, |at, (i, d)| at * d + i)]
    }

    /// A model of another shape whose value at each index is this model's at the index that `from`
    /// makes of it.
    fn gather(&self, shape: Vec<usize>, from: impl Fn(&mut Vec<usize>)) -> Self {
        let n: usize = shape.iter().product();
        let values = (0..n).map(|mut k| {
            let mut index = vec![0; shape.len()];
            for (i, d) in index.iter_mut().zip(&shape).rev() {
                *i = k % d;
                k /= d;
            }
            from(&mut index);
            self.at(&index)
        });
        Self { values: values.collect(), shape }
    }

    fn with_shape(&self, edit: impl Fn(&mut Vec<usize>)) -> Vec<usize> {
        let mut shape = self.shape.clone();
        edit(&mut shape);
        shape
    }
}

#[derive(Debug, Clone)]
enum Op {
    Transpose(usize, usize),
    Slice(usize, usize, usize, usize),
    Select(usize, usize),
    Flip(usize),
    Unsqueeze(usize),
    Squeeze(usize),
    Expand(usize),
    Merge(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let n = || 0..8usize;
    prop_oneof![
        (n(), n()).prop_map(|(a, b)| Op::Transpose(a, b)),
        (n(), n(), n(), 1..4usize).prop_map(|(d, a, b, s)| Op::Slice(d, a, b, s)),
        (n(), n()).prop_map(|(d, i)| Op::Select(d, i)),
        n().prop_map(Op::Flip),
        n().prop_map(Op::Unsqueeze),
        n().prop_map(Op::Squeeze),
        n().prop_map(Op::Expand),
        n().prop_map(Op::Merge),
    ]
}

/// Applies one operation to both; arguments are folded into range. `None`: not applicable.
fn apply<'a>(op: &Op, v: &TensorView<'a>, m: &Model) -> Option<(TensorView<'a>, Model)> {
    let rank = m.shape.len();
    if rank == 0 && !matches!(op, Op::Unsqueeze(_) | Op::Expand(_)) {
        return None;
    }
    let dim = |d: usize| d % rank.max(1);
    let same = |shape| Model { shape, values: m.values.clone() };
    Some(match *op {
        Op::Transpose(a, b) => {
            let (a, b) = (dim(a), dim(b));
            let swapped = m.gather(m.with_shape(|s| s.swap(a, b)), |i| i.swap(a, b));
            (v.transpose(a, b).unwrap(), swapped)
        }
        Op::Slice(d, a, b, step) => {
            let d = dim(d);
            let (a, b) = (a.min(m.shape[d]), b.min(m.shape[d]));
            let range = a.min(b)..a.max(b);
            let shape = m.with_shape(|s| s[d] = range.clone().step_by(step).count());
            let cut = m.gather(shape, |i| i[d] = range.start + i[d] * step);
            (v.slice(d, range, step).unwrap(), cut)
        }
        Op::Select(d, i) => {
            let d = dim(d);
            let at = i.checked_rem(m.shape[d])?;
            let shape = m.with_shape(|s| _ = s.remove(d));
            (v.select(d, at).unwrap(), m.gather(shape, |i| i.insert(d, at)))
        }
        Op::Flip(d) => {
            let d = dim(d);
            let flipped = m.gather(m.shape.clone(), |i| i[d] = m.shape[d] - 1 - i[d]);
            (v.flip(d).unwrap(), flipped)
        }
        Op::Unsqueeze(d) => {
            let d = d % (rank + 1);
            (v.unsqueeze(d).unwrap(), same(m.with_shape(|s| s.insert(d, 1))))
        }
        Op::Squeeze(d) => {
            let d = dim(d);
            let squeeze = |s: &mut Vec<usize>| _ = (s[d] == 1).then(|| s.remove(d));
            (v.squeeze(d).unwrap(), same(m.with_shape(squeeze)))
        }
        Op::Expand(n) => {
            let ones = |d: &usize| if *d == 1 { n } else { *d };
            let shape: Vec<usize> = [2].into_iter().chain(m.shape.iter().map(ones)).collect();
            if shape.iter().product::<usize>() > 5000 {
                return None;
            }
            let repeated = m.gather(shape.clone(), |i| {
                i.remove(0);
                i.iter_mut().zip(&m.shape).for_each(|(i, &d)| *i = if d == 1 { 0 } else { *i });
            });
            (v.broadcast_to(shape).unwrap(), repeated)
        }
        Op::Merge(d) => {
            let d = dim(d);
            if d + 1 >= rank {
                return None;
            }
            let shape = m.with_shape(|s| s[d] *= s.remove(d + 1));
            let Ok(merged) = v.reshape(shape.clone()) else {
                // A refusal is right only where the two dimensions do not lie evenly.
                let (outer, inner) = (v.strides()[d], v.strides()[d + 1]);
                assert_ne!(outer, inner * m.shape[d + 1] as isize, "refused an even reshape");
                return None;
            };
            (merged, same(shape))
        }
    })
}

fn iota<T: Element>(shape: &[usize], value: impl Fn(i64) -> T) -> Tensor {
    let values: Vec<T> = Model::iota(shape).values.iter().map(|&v| value(v)).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

/// `value` tells elements apart as far as the dtype allows.
fn check<T: Element>(
    shape: &[usize],
    ops: &[Op],
    value: impl Fn(i64) -> T,
) -> Result<(), TestCaseError> {
    let tensor = iota(shape, &value);
    let (mut view, mut model) = (tensor.view(), Model::iota(shape));
    for op in ops {
        let Some((v, m)) = apply(op, &view, &model) else { continue };
        (view, model) = (v, m);
    }
    let expected: Vec<T> = model.values.iter().map(|&v| value(v)).collect();
    prop_assert_eq!(view.shape(), &Shape::from(&model.shape[..]));
    let copy = view.to_tensor().unwrap();
    prop_assert_eq!(copy.as_slice::<T>().unwrap(), &expected[..]);
    prop_assert_eq!(view.iter::<T>().unwrap().collect::<Vec<_>>(), &expected[..]);
    if view.is_contiguous() {
        prop_assert_eq!(view.as_slice::<T>().unwrap(), &expected[..]);
    } else {
        prop_assert!(view.as_slice::<T>().is_err());
    }
    if let Some(last) = model.shape.iter().map(|d| d.checked_sub(1)).collect::<Option<Vec<_>>>() {
        prop_assert_eq!(view.get::<T>(&last).unwrap(), value(model.at(&last)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn views_agree_with_index_arithmetic(
        shape in prop::collection::vec(0..6usize, 0..5),
        ops in prop::collection::vec(op(), 0..7),
    ) {
        check(&shape, &ops, |v| v)?;
        check(&shape, &ops, |v| v as i32)?;
        check(&shape, &ops, |v| v as i16)?;
        check(&shape, &ops, |v| v as u8)?;
        check(&shape, &ops, |v| plutino_tensor::Complex::new(v as f64, -v as f64))?;
    }

    #[test]
    fn writes_land_where_reads_look(
        shape in prop::collection::vec(1..6usize, 1..5),
        dims in (0..4usize, 0..4usize),
        cut in (0..6usize, 0..6usize, 1..4usize),
    ) {
        let (a, b) = (dims.0 % shape.len(), dims.1 % shape.len());
        let start = cut.0.min(shape[a]);
        let end = cut.1.clamp(start, shape[a]);
        let mut tensor = Tensor::zeros(DType::I64, &shape[..]).unwrap();
        let to = tensor.view_mut().unwrap().slice(a, start..end, cut.2).unwrap();
        let mut to = to.transpose(a, b).unwrap();
        let from = iota(to.shape(), |v| v + 1);
        to.copy_from(&from.view()).unwrap();
        let back = tensor.view().slice(a, start..end, cut.2).unwrap().transpose(a, b).unwrap();
        prop_assert_eq!(back.to_tensor().unwrap(), from.clone());
        let sum: i64 = tensor.as_slice::<i64>().unwrap().iter().sum();
        prop_assert_eq!(sum, from.as_slice::<i64>().unwrap().iter().sum::<i64>());
    }
}

#[test]
fn large_transposes_cross_tiles() {
    for dims in [[3usize, 70, 33], [1, 128, 65], [40, 2, 100]] {
        for order in [[0usize, 2, 1], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let tensor = iota(&dims, |v| v as f32);
            let shape = order.iter().map(|&d| dims[d]).collect();
            let expected = Model::iota(&dims).gather(shape, |i| {
                let to = i.clone();
                order.iter().zip(&to).for_each(|(&d, &at)| i[d] = at);
            });
            let got = tensor.view().permute(&order).unwrap().to_tensor().unwrap();
            let got: Vec<i64> = got.as_slice::<f32>().unwrap().iter().map(|&v| v as i64).collect();
            assert_eq!(got, expected.values, "{dims:?} by {order:?}");
        }
    }
}

#[test]
fn wrong_arguments_are_errors() {
    let t = iota(&[2, 3], |v| v as f32);
    let v = t.view();
    assert!(v.permute(&[0]).is_err());
    assert!(v.permute(&[0, 0]).is_err());
    assert!(v.transpose(0, 2).is_err());
    assert!(v.slice(1, 2..4, 1).is_err());
    assert!(v.slice(1, 0..1, 0).is_err());
    assert!(v.narrow(1, 2, usize::MAX).is_err());
    assert!(v.select(0, 2).is_err());
    assert!(v.select(2, 0).is_err());
    assert!(v.flip(2).is_err());
    assert!(v.unsqueeze(3).is_err());
    assert!(v.squeeze(2).is_err());
    assert!(v.reshape([7]).is_err());
    assert!(v.broadcast_to([2, 4]).is_err());
    assert!(v.broadcast_to([3]).is_err());
    assert!(v.get::<f32>(&[0]).is_err());
    assert!(matches!(v.get::<f32>(&[0, 3]), Err(TensorError::Index { .. })));
    assert!(matches!(v.get::<f64>(&[0, 0]), Err(TensorError::DType { .. })));
    // A broadcast of any size is a view; its copy is refused where memory cannot hold it.
    let huge = v.select(0, 0).unwrap().broadcast_to([1 << 58, 3]).unwrap();
    assert!(huge.to_tensor().is_err());
    assert!(v.broadcast_to([usize::MAX, 2, 3]).is_err());
}

#[test]
fn bool_bytes_are_checked() {
    let mut t = Tensor::from_slice(&[true, false], [2]).unwrap();
    assert_eq!(t.view().iter::<bool>().unwrap().collect::<Vec<_>>(), [true, false]);
    t.as_mut_bytes().unwrap()[1] = 7;
    assert!(t.as_slice::<bool>().is_err());
    assert!(t.view().iter::<bool>().is_err());
    assert!(t.view().get::<bool>(&[1]).is_err());
}

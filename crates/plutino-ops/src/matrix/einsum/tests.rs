use super::equation::Equation;
use crate::ValueSpec;
use crate::testkit::{
    assert_close, check, check_values, error, iota, op, random, specs, tensor, try_op, values,
};
use plutino_tensor::{Complex, DType, Tensor};
use std::collections::BTreeMap;

/// The definition, for equations without `...` and with a result: the sum over all values of all
/// labels.
fn reference(equation: &str, x: &[Tensor]) -> Tensor {
    let (left, right) = equation.split_once("->").unwrap();
    let labels: Vec<Vec<char>> = left.split(',').map(|l| l.chars().collect()).collect();
    let mut sizes = BTreeMap::new();
    for (labels, x) in labels.iter().zip(x) {
        for (&label, &size) in labels.iter().zip(x.shape().iter()) {
            let known = sizes.entry(label).or_insert(1);
            *known = size.max(*known);
        }
    }
    let output: Vec<char> = right.chars().collect();
    let mut sums = vec![0.0f64; output.iter().map(|c| sizes[c]).product()];
    for i in 0..sizes.values().product::<usize>() {
        let mut left = i;
        let mut at = BTreeMap::new();
        for (&label, &size) in &sizes {
            at.insert(label, left % size);
            left /= size;
        }
        let product: f64 = labels
            .iter()
            .zip(x)
            .map(|(labels, x)| {
                let own = labels.iter().zip(x.shape().iter());
                let index: Vec<usize> = own.map(|(l, &n)| if n == 1 { 0 } else { at[l] }).collect();
                f64::from(x.get::<f32>(&index).unwrap())
            })
            .product();
        sums[output.iter().fold(0, |to, c| to * sizes[c] + at[c])] += product;
    }
    let sums: Vec<f32> = sums.iter().map(|&s| s as f32).collect();
    tensor(output.iter().map(|c| sizes[c]).collect::<Vec<_>>(), &sums)
}

fn run(equation: &str, x: &[Tensor]) -> Tensor {
    let inputs: Vec<String> = (1..=x.len()).map(|i| i.to_string()).collect();
    let line = format!("torch.einsum e {} 1 {} 9 equation={equation}", x.len(), inputs.join(" "));
    check(&*op(&line), x).remove(0)
}

#[test]
fn sums_of_nothing_are_zero() {
    let zeros = |shape: &[usize]| tensor(shape.to_vec(), &vec![0.0f32; shape.iter().product()]);
    for (equation, left, right, output) in [
        ("bij,bkj->bik", [2, 3, 0], [2, 4, 0], [2, 3, 4]),
        ("bij,bjk->bik", [2, 3, 0], [2, 0, 4], [2, 3, 4]),
        ("bij,bkj->bik", [2, 0, 5], [2, 4, 5], [2, 0, 4]),
    ] {
        assert_eq!(run(equation, &[zeros(&left), zeros(&right)]), zeros(&output), "{equation}");
    }
}

#[test]
fn agrees_with_the_definition() {
    let cases: [(&str, &[&[usize]]); 24] = [
        ("ij->ji", &[&[3, 4]]),
        ("ij->", &[&[3, 4]]),
        ("ijk->k", &[&[3, 4, 5]]),
        ("ijk->ki", &[&[3, 4, 5]]),
        ("ii->i", &[&[4, 4]]),
        ("ii->", &[&[4, 4]]),
        ("iji->ji", &[&[4, 3, 4]]),
        ("i,i->", &[&[7], &[7]]),
        ("i,j->ij", &[&[3], &[4]]),
        ("ij,jk->ik", &[&[3, 4], &[4, 5]]),
        ("ij,jk->ki", &[&[3, 4], &[4, 5]]),
        ("ij,kj->ik", &[&[3, 4], &[5, 4]]),
        ("bij,bjk->bik", &[&[2, 3, 4], &[2, 4, 5]]),
        ("bhqd,bkhd->bqhk", &[&[2, 3, 4, 5], &[2, 6, 3, 5]]),
        ("nchw,kc->nkhw", &[&[2, 3, 4, 5], &[6, 3]]),
        ("ijk,jil->kl", &[&[3, 4, 5], &[4, 3, 2]]),
        ("ij,ij->ij", &[&[3, 4], &[3, 4]]),
        ("ij,ij->ij", &[&[3, 4], &[1, 4]]),
        ("ij,jk->ik", &[&[3, 4], &[1, 5]]),
        ("ik,jkl,il->ij", &[&[2, 3], &[4, 3, 5], &[2, 5]]),
        ("i,j,k,l->ijkl", &[&[2], &[3], &[4], &[5]]),
        ("ii,ij->j", &[&[3, 3], &[3, 4]]),
        ("ij,kl->jl", &[&[3, 4], &[2, 5]]),
        ("aB,Bc->ca", &[&[3, 4], &[4, 5]]),
    ];
    for (equation, shapes) in cases {
        let x: Vec<Tensor> = (0..).zip(shapes).map(|(i, &s)| random(s, i)).collect();
        // Sums of at most 60 products below 1, in any order.
        assert_close(&run(equation, &x), &reference(equation, &x), 60.0 * 60.0 * f32::EPSILON);
    }
}

#[test]
fn results_and_dimensions_without_names() {
    let (x, y) = (random([2, 3, 4], 1), random([5, 4, 6], 2));
    let explicit = run("abk,ckn->abcn", &[x.clone(), y.clone()]);
    assert_eq!(run("abk,ckn", &[x.clone(), y.clone()]), explicit);
    assert_eq!(run("...k,ckn->...cn", &[x.clone(), y.clone()]), explicit);
    // The unnamed dimensions are broadcast, and come first where nothing else is said.
    let z = random([2, 1, 3, 4], 3);
    let both = run("...i,...i", &[x.clone(), z.clone()]);
    assert_eq!(both.shape().dims(), [2, 2, 3]);
    assert_close(&both, &reference("bci,abci->abc", &[x.clone(), random_expanded(&z)]), 1e-5);
    assert_eq!(run("ba", &[iota([2, 3])]), run("ba->ab", &[iota([2, 3])]));
    assert_eq!(run("i...->...", &[iota([2, 3])]), tensor([3], &[3.0f32, 5.0, 7.0]));
    assert_eq!(run("...ij->...ji", &[iota([2, 1])]), iota([1, 2]));
    assert_eq!(run("i...->i", &[iota([2, 3])]), tensor([2], &[3.0f32, 12.0]));
}

/// (2, 1, 3, 4) to (2, 2, 3, 4)
fn random_expanded(z: &Tensor) -> Tensor {
    z.view().broadcast_to([2, 2, 3, 4]).unwrap().to_tensor().unwrap()
}

#[test]
fn nothing_lists_and_other_dtypes() {
    assert_eq!(run("ij,jk->ik", &[iota([2, 0]), iota([0, 3])]), tensor([2, 3], &[0.0f32; 6]));
    assert_eq!(run("ij,jk->ik", &[iota([0, 2]), iota([2, 3])]), iota([0, 3]));
    assert_eq!(run(",->", &[tensor([], &[3.0f32]), tensor([], &[4.0f32])]), tensor([], &[12.0f32]));
    let x = [tensor([2, 2], &[1i64, 2, 3, 4]), tensor([2], &[5i64, 6])];
    assert_eq!(run("ij,j->i", &x), tensor([2], &[17i64, 39]));
    let list = ValueSpec::List(specs(&x));
    let y = check_values(&*op("torch.einsum e 1 1 1 9 equation=ij,j->i"), &[list], &x);
    assert_eq!(y[0], tensor([2], &[17i64, 39]));
    let z = tensor([2], &[Complex::new(0.0f32, 1.0), Complex::new(2.0, 0.0)]);
    assert_eq!(values::<Complex<f32>>(&run("i,i->", &[z.clone(), z])), [Complex::new(3.0, 0.0)]);
    let half = iota([2, 3]).cast(DType::F16).unwrap();
    assert_eq!(run("ij->j", &[half]).cast(DType::F32).unwrap(), tensor([3], &[3.0f32, 5.0, 7.0]));
}

#[test]
fn what_makes_no_sense_is_an_error() {
    for bad in ["ij->ijj", "ij->k", "i.j->i", "....->...", "i1->i", "ij->i,j", "...i...->i"] {
        assert!(Equation::parse(bad).is_err(), "{bad}");
        assert!(try_op(&format!("torch.einsum e 1 1 1 9 equation={bad}"), &[]).is_err(), "{bad}");
    }
    let refused = |equation: &str, x: &[Tensor]| {
        error(&*op(&format!("torch.einsum e 1 1 1 9 equation={equation}")), x);
    };
    refused("ij,jk->ik", &[iota([2, 2])]);
    refused("ij->ji", &[iota([2])]);
    refused("i->i", &[iota([2, 2])]);
    refused("ii->i", &[iota([2, 3])]);
    refused("ii->i", &[iota([1, 3])]);
    refused("i->i", &[tensor([2], &[true, false])]);
    let pair = op("torch.einsum e 2 1 1 2 9 equation=ij,jk->ik");
    error(&*pair, &[iota([2, 3]), iota([2, 3])]);
    error(&*pair, &[iota([2, 2]), tensor([2, 2], &[1.0f64; 4])]);
}

#[test]
fn dots_that_a_file_lost_are_found_by_recorded_shapes() {
    let x = [random([2, 5, 3, 4], 1), random([2, 5, 6, 4], 2)];
    // What pnnx writes for `...qd,...kd->...qk`.
    let recorded = "#0=(2,5,3,4)f32 #1=(2,5,6,4)f32 #2=(2,5,3,6)f32";
    let line = format!("torch.einsum e 2 1 0 1 2 equation=ik,jk->ij {recorded}");
    assert_eq!(check(&*op(&line), &x), [run("abik,abjk->abij", &x)]);
}

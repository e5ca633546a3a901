//! Factors multiplied again, known solutions, and what cannot be solved.

use crate::testkit::{assert_close, check, error, iota, op, random, tensor, try_op, values};
use plutino_tensor::{DType, Tensor};

fn run(line: &str, inputs: &[Tensor]) -> Vec<Tensor> {
    check(&*op(line), inputs)
}

/// The product of two tensors of matrices.
fn times(a: &Tensor, b: &Tensor) -> Tensor {
    run("torch.matmul m 2 1 0 1 2", &[a.clone(), b.clone()]).remove(0)
}

fn turned(a: &Tensor) -> Tensor {
    run("Tensor.mT t 1 1 0 1", std::slice::from_ref(a)).remove(0)
}

/// A batch of symmetric, positive definite matrices.
fn definite(n: usize) -> Tensor {
    let a = random([2, n, n + 2], 7);
    times(&a, &turned(&a))
}

fn identity(n: usize) -> Tensor {
    run(&format!("torch.eye e 0 1 0 n={n}"), &[]).remove(0)
}

#[test]
fn inverses_and_determinants() {
    let a = tensor([2, 2, 2], &[0.0f32, 2., 1., 0., 1., 2., 3., 4.]);
    for kind in ["torch.linalg.inv", "torch.inverse"] {
        let y = run(&format!("{kind} i 1 1 0 1"), std::slice::from_ref(&a)).remove(0);
        assert_close(&y, &tensor([2, 2, 2], &[0.0f32, 1., 0.5, 0., -2., 1., 1.5, -0.5]), 1e-6);
    }
    let y = run("torch.linalg.det d 1 1 0 1", std::slice::from_ref(&a)).remove(0);
    assert_close(&y, &tensor([2], &[-2.0f32, -2.]), 1e-6);
    let y = run("torch.slogdet d 1 2 0 1 2", std::slice::from_ref(&a));
    assert_close(&y[0], &tensor([2], &[-1.0f32, -1.]), 0.0);
    assert_close(&y[1], &tensor([2], &[2.0f32.ln(); 2]), 1e-6);
    let singular = tensor([2, 2], &[1.0f32, 2., 2., 4.]);
    let y = run("torch.det d 1 1 0 1", std::slice::from_ref(&singular)).remove(0);
    assert_eq!(values::<f32>(&y), [0.0]); // or -0
    let y = run("torch.linalg.slogdet d 1 2 0 1 2", std::slice::from_ref(&singular));
    assert_eq!((values::<f32>(&y[0]), values::<f32>(&y[1])), (vec![0.0], vec![f32::NEG_INFINITY]));
    let e = error(&*op("torch.linalg.inv i 1 1 0 1"), &[singular]).to_string();
    assert!(e.contains("singular"), "{e}");
    // Nothing is the identity.
    let none = iota([2, 0, 0]);
    let y = run("torch.det d 1 1 0 1", std::slice::from_ref(&none)).remove(0);
    assert_eq!(y, tensor([2], &[1.0f32, 1.]));
    assert_eq!(run("torch.inverse i 1 1 0 1", std::slice::from_ref(&none))[0], none);
    error(&*op("torch.det d 1 1 0 1"), &[iota([2, 3])]);
    error(&*op("torch.det d 1 1 0 1"), &[iota([3])]);
    error(&*op("torch.det d 1 1 0 1"), &[tensor([1, 1], &[1i64])]);
}

#[test]
fn systems_of_equations() {
    let (a, x) = (random([2, 4, 4], 1), random([2, 4, 3], 2));
    let b = times(&a, &x);
    let solved = |a: &Tensor, b: &Tensor, line: &str| run(line, &[a.clone(), b.clone()]).remove(0);
    let y = solved(&a, &b, "torch.linalg.solve s 2 1 0 1 2 left=True $A=0 $B=1");
    assert_close(&y, &x, 1e-4);
    let y = solved(&turned(&a), &turned(&b), "torch.linalg.solve s 2 1 0 1 2 left=False");
    assert_close(&y, &turned(&x), 1e-4);
    // A vector for each matrix, and one for all.
    let line = "torch.linalg.solve s 2 1 0 1 2";
    let diagonal = tensor([2, 2, 2], &[2.0f32, 0., 0., 4., 1., 0., 0., 8.]);
    let y = solved(&diagonal, &tensor([2, 2], &[2.0f32, 4., 3., 8.]), line);
    assert_eq!(y, tensor([2, 2], &[1.0f32, 1., 3., 1.]));
    let y = solved(&diagonal, &tensor([2], &[2.0f32, 8.]), line);
    assert_eq!(y, tensor([2, 2], &[1.0f32, 2., 2., 1.]));
    for (upper, a) in [("True", [2.0f32, 1., 9., 4.]), ("False", [2.0, 9., 1., 4.])] {
        let a = tensor([2, 2], &a);
        let line = format!("torch.linalg.solve_triangular s 2 1 0 1 2 upper={upper}");
        let y = solved(&a, &tensor([2, 1], &[4.0f32, 8.]), &line);
        let expected = if upper == "True" { [1.0f32, 2.] } else { [2.0, 1.5] };
        assert_eq!(y, tensor([2, 1], &expected), "{upper}");
        let right = format!("{line} left=False unitriangular=True");
        let y = solved(&a, &tensor([1, 2], &[4.0f32, 8.]), &right);
        let expected = if upper == "True" { [4.0f32, 4.] } else { [-4.0, 8.] };
        assert_eq!(y, tensor([1, 2], &expected), "{upper}");
    }
    let a = definite(3);
    let l = run("torch.linalg.cholesky c 1 1 0 1", std::slice::from_ref(&a)).remove(0);
    let x = random([2, 3, 2], 5);
    let b = times(&a, &x);
    let y = solved(&b, &l, "torch.cholesky_solve c 2 1 0 1 2 upper=False");
    assert_close(&y, &x, 1e-4);
    let y = solved(&b, &turned(&l), "torch.cholesky_solve c 2 1 0 1 2 upper=True");
    assert_close(&y, &x, 1e-4);
    error(&*op(line), &[iota([2, 2]), iota([3])]);
    error(&*op(line), &[tensor([1, 1], &[0.0f32]), iota([1])]);
    error(&*op(line), &[iota([2, 2]), tensor([2], &[1.0f64, 2.])]);
    assert!(try_op("torch.linalg.solve_triangular s 2 1 0 1 2", &[]).is_err());
}

#[test]
fn products_of_factors() {
    let a = definite(4);
    let l = run("torch.linalg.cholesky c 1 1 0 1", std::slice::from_ref(&a)).remove(0);
    assert_close(&times(&l, &turned(&l)), &a, 1e-5);
    let u = run("torch.cholesky c 1 1 0 1 upper=True", std::slice::from_ref(&a)).remove(0);
    assert_close(&u, &turned(&l), 1e-6);
    let e = error(&*op("torch.linalg.cholesky c 1 1 0 1"), &[tensor([1, 1], &[-1.0f32])]);
    assert!(e.to_string().contains("order 1"), "{e}");
    for (n, m) in [(3, 3), (5, 3), (3, 5), (1, 1), (0, 2)] {
        let a = random([2, n, m], (n * 10 + m) as u64);
        for mode in ["reduced", "complete"] {
            let line = format!("torch.linalg.qr q 1 2 0 1 2 mode={mode}");
            let qr = run(&line, std::slice::from_ref(&a));
            assert_close(&times(&qr[0], &qr[1]), &a, 1e-5);
            let k = qr[0].shape()[2];
            let one = run(&format!("Tensor.expand e 1 1 0 1 sizes=(2,{k},{k})"), &[identity(k)]);
            assert_close(&times(&turned(&qr[0]), &qr[0]), &one[0], 1e-5);
        }
        let lu = run("torch.linalg.lu l 1 3 0 1 2 3", std::slice::from_ref(&a));
        assert_close(&times(&times(&lu[0], &lu[1]), &lu[2]), &a, 1e-5);
    }
    // LAPACK's signs.
    let qr = run("torch.qr q 1 2 0 1 2 some=True", &[tensor([2, 2], &[3.0f32, 1., 4., -2.])]);
    assert_close(&qr[1], &tensor([2, 2], &[-5.0f32, 1., 0., -2.]), 1e-6);
    let lu = run("torch.linalg.lu_factor l 1 2 0 1 2", &[tensor([2, 2], &[1.0f32, 2., 4., 6.])]);
    assert_close(&lu[0], &tensor([2, 2], &[4.0f32, 6., 0.25, 0.5]), 1e-6);
    assert_eq!(lu[1], tensor([2], &[2i32, 2]));
}

#[test]
fn singular_values_and_eigenvalues() {
    for (n, m) in [(3, 3), (5, 3), (3, 5), (1, 4), (40, 40), (0, 2)] {
        let a = random([2, n, m], (n * 10 + m) as u64);
        for full in ["True", "False"] {
            let line = format!("torch.linalg.svd s 1 3 0 1 2 3 full_matrices={full}");
            let [u, s, vh] = &run(&line, std::slice::from_ref(&a))[..] else { panic!("{line}") };
            let k = n.min(m);
            let side = |x: usize| if full == "True" { x } else { k };
            assert_eq!(
                (u.shape().dims(), vh.shape().dims()),
                (&[2, n, side(n)][..], &[2, side(m), m][..])
            );
            let cut = |t: &Tensor, dim: usize| {
                let line = format!("torch.narrow n 1 1 0 1 dim={dim} start=0 length={k}");
                run(&line, std::slice::from_ref(t)).remove(0)
            };
            let column = run("torch.unsqueeze u 1 1 0 1 dim=-1", std::slice::from_ref(s));
            let scaled = run("torch.mul m 2 1 0 1 2", &[column[0].clone(), cut(vh, 1)]);
            assert_close(&times(&cut(u, 2), &scaled[0]), &a, 1e-5);
            let one = format!("Tensor.expand e 1 1 0 1 sizes=(2,{0},{0})", side(n));
            let one = run(&one, &[identity(side(n))]);
            assert_close(&times(&turned(u), u), &one[0], 1e-5);
            let only = run("torch.linalg.svdvals s 1 1 0 1", std::slice::from_ref(&a));
            assert_close(&only[0], s, 1e-5);
            assert!(values::<f32>(s).chunks(k.max(1)).all(|s| s.is_sorted_by(|a, b| a >= b)));
        }
    }
    let a = definite(4);
    let wv = run("torch.linalg.eigh e 1 2 0 1 2 UPLO=L", std::slice::from_ref(&a));
    let row = run("torch.unsqueeze u 1 1 0 1 dim=-2", &wv[..1]);
    let scaled = run("torch.mul m 2 1 0 1 2", &[wv[1].clone(), row[0].clone()]);
    assert_close(&times(&scaled[0], &turned(&wv[1])), &a, 1e-4);
    let y = run("torch.linalg.eigvalsh e 1 1 0 1 UPLO=U", &[tensor([2, 2], &[2.0f32, 1., 9., 2.])]);
    assert_close(&y[0], &tensor([2], &[1.0f32, 3.]), 1e-6);
    for kind in ["torch.linalg.svdvals", "torch.linalg.eigvalsh"] {
        error(&*op(&format!("{kind} s 1 1 0 1")), &[tensor([1, 1], &[f32::NAN])]);
    }
}

#[test]
fn ranks_and_pseudo_inverses() {
    let a = tensor([3, 2], &[1.0f32, 2., 2., 4., 3., 6.]);
    assert_eq!(
        run("torch.linalg.matrix_rank r 1 1 0 1", std::slice::from_ref(&a))[0],
        tensor([], &[1i64])
    );
    let absolute = "torch.linalg.matrix_rank r 1 1 0 1 atol=100.0";
    assert_eq!(run(absolute, std::slice::from_ref(&a))[0], tensor([], &[0i64]));
    let y = run("torch.linalg.pinv p 1 1 0 1", std::slice::from_ref(&a)).remove(0);
    // a^T / 70
    let expected: Vec<f32> = [1., 2., 3., 2., 4., 6.].map(|x: f32| x / 70.0).to_vec();
    assert_close(&y, &tensor([2, 3], &expected), 1e-6);
    let b = random([2, 3, 3], 4);
    let inverse = run("torch.linalg.inv i 1 1 0 1", std::slice::from_ref(&b)).remove(0);
    let y = run("torch.linalg.pinv p 1 1 0 1", std::slice::from_ref(&b)).remove(0);
    assert_close(&y, &inverse, 1e-3);
}

#[test]
fn exponentials() {
    let a = tensor([2, 2, 2], &[0.0f64, 1., 0., 0., 1., 0., 0., -2.]);
    let y = run("torch.linalg.matrix_exp m 1 1 0 1", &[a]).remove(0);
    let e = std::f64::consts::E;
    let expected = tensor([2, 2, 2], &[1.0f64, 1., 0., 1., e, 0., 0., (-2.0f64).exp()]);
    let [y, expected] = [y, expected].map(|t| t.view().cast(DType::F32).unwrap());
    assert_close(&y, &expected, 1e-6);
    assert_eq!(run("torch.matrix_exp m 1 1 0 1", &[iota([0, 0])])[0], iota([0, 0]));
}

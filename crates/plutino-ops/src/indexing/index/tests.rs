use crate::ValueSpec;
use crate::testkit::{check, check_values, error, infer, iota, op, specs, tensor, try_op, values};
use plutino_tensor::Tensor;

/// The result for a list of indices, none for a dimension as it is; known before the run, or not.
#[track_caller]
fn indexed(x: &Tensor, indices: &[Option<Tensor>], more: &[Tensor], known: bool) -> Tensor {
    let operator = match more {
        [] => op("Tensor.index i 2 1 0 1 2 $input=0 $expr=1"),
        _ => op("Tensor.index_put i 3 1 0 1 2 3 accumulate=True $input=0 $indices=1 $values=2"),
    };
    let slot = |t: &Option<Tensor>| match t {
        None => ValueSpec::List(Vec::new()),
        Some(t) if known => ValueSpec::from(t.clone()),
        Some(t) => t.spec().into(),
    };
    let mut inputs = vec![x.spec().into(), ValueSpec::List(indices.iter().map(slot).collect())];
    inputs.extend(specs(more));
    let data =
        [x.clone()].into_iter().chain(indices.iter().flatten().cloned()).chain(more.to_vec());
    check_values(&*operator, &inputs, &data.collect::<Vec<_>>()).remove(0)
}

#[test]
fn constants_in_the_parameter() {
    let run = |expr: &str, x: Tensor| {
        check(&*op(&format!("Tensor.index i 1 1 0 1 expr={expr} $input=0")), &[x]).remove(0)
    };
    assert_eq!(run("[[2,1],[0,-1]]", iota([3, 6])), tensor([2], &[12.0f32, 11.0]));
    let y = run("[None,[1,0]]", iota([2, 2, 2]));
    assert_eq!(y, tensor([2, 2, 2], &[2.0f32, 3., 0., 1., 6., 7., 4., 5.]));
    let y = run("[[True,False],[False,False,True]]", iota([2, 3, 2]));
    assert_eq!(y, tensor([1, 2], &[4.0f32, 5.0]));
    assert_eq!(run("[[[0],[1]]]", iota([2])), tensor([2, 1], &[0.0f32, 1.0]));
    assert_eq!(run("[[]]", iota([2, 3])), iota([0, 3]));
    assert_eq!(run("[None]", iota([2, 3])), iota([2, 3]));
    for bad in ["[[1,[2]]]", "[[1,True]]", "[[0.5]]", "3", "[[[1],[]]]"] {
        assert!(
            try_op(&format!("Tensor.index i 1 1 0 1 expr={bad} $input=0"), &[]).is_err(),
            "{bad}"
        );
    }
    error(&*op("Tensor.index i 1 1 0 1 expr=[[2]] $input=0"), &[iota([2])]);
    error(&*op("Tensor.index i 1 1 0 1 expr=[[0],[0]] $input=0"), &[iota([2])]);
    error(&*op("Tensor.index i 1 1 0 1 expr=[[True]] $input=0"), &[iota([2])]);
    error(&*op("Tensor.index i 1 1 0 1 expr=[[0,1],[0,1,0]] $input=0"), &[iota([2, 2])]);
}

#[test]
fn tensors_between_and_around_whole_dimensions() {
    let x = iota([2, 3, 4]);
    let at = |indices: &[usize]| (indices[0] * 3 + indices[1]) as f32 * 4.0 + indices[2] as f32;
    let (rows, columns) = (tensor([2, 1], &[1i64, 0]), tensor([3], &[2i32, 0, 1]));
    for known in [true, false] {
        // Neighbours: their dimensions take their place.
        let y = indexed(&x, &[None, Some(rows.clone()), Some(columns.clone())], &[], known);
        assert_eq!(y.shape().dims(), [2, 2, 3]);
        assert_eq!(y.get::<f32>(&[1, 0, 2]).unwrap(), at(&[1, 1, 1]));
        // Apart: they come first.
        let y = indexed(&x, &[Some(rows.clone()), None, Some(columns.clone())], &[], known);
        assert_eq!(y.shape().dims(), [2, 3, 3]);
        assert_eq!(y.get::<f32>(&[0, 2, 1]).unwrap(), at(&[1, 1, 1]));
        let first = indexed(&x, &[Some(rows.clone())], &[], known);
        assert_eq!((first.shape().dims(), values::<f32>(&first)[0]), (&[2, 1, 3, 4][..], 12.0));
    }
}

#[test]
fn masks() {
    let x = iota([2, 3, 2]);
    let mask = tensor([2, 3], &[false, true, false, true, false, true]);
    for known in [true, false] {
        let y = indexed(&x, &[Some(mask.clone())], &[], known);
        assert_eq!(y, tensor([3, 2], &[2.0f32, 3., 6., 7., 10., 11.]));
        let last = tensor([2], &[1u8, 0]);
        let y = indexed(&x, &[None, None, Some(last)], &[], known);
        assert_eq!(y, tensor([2, 3, 1], &[0.0f32, 2., 4., 6., 8., 10.]));
        let ints = tensor([3], &[0i64, 1, 0]);
        let y = indexed(&x, &[Some(mask.clone()), Some(ints)], &[], known);
        assert_eq!(y, tensor([3], &[2.0f32, 7., 10.]));
    }
    let index = op("Tensor.index i 2 1 0 1 2 $input=0 $expr=1");
    let inputs =
        |mask: &Tensor| vec![x.spec().into(), ValueSpec::List(specs(std::slice::from_ref(mask)))];
    assert!(matches!(infer(&*index, &inputs(&mask)).unwrap()[..], [ValueSpec::Dynamic { .. }]));
    assert!(infer(&*index, &inputs(&tensor([3], &[true; 3]))).is_err());
    assert!(infer(&*index, &inputs(&iota([2]))).is_err());
}

#[test]
fn values_are_added_in_order() {
    for known in [true, false] {
        let index = tensor([3], &[1i64, -1, 1]);
        let y = indexed(&iota([3]), &[Some(index)], &[tensor([3], &[10.0f32, 20., 30.])], known);
        assert_eq!(y, tensor([3], &[0.0f32, 41.0, 22.0]));
        let mask = tensor([3], &[true, false, true]);
        let y = indexed(&iota([2, 3]), &[None, Some(mask)], &[tensor([], &[5.0f32])], known);
        assert_eq!(y, tensor([2, 3], &[5.0f32, 1., 7., 8., 4., 10.]));
        let y = indexed(&iota([2]), &[Some(tensor([0], &[0i64; 0]))], &[iota([0])], known);
        assert_eq!(y, iota([2]));
    }
}

#[test]
fn values_are_replaced() {
    let put = op("Tensor.index_put i 2 1 0 1 2 accumulate=False values=45.0 $input=0 $indices=1");
    let index = tensor([1], &[2i64]);
    let inputs = |index: &Tensor| {
        [iota([4]).spec().into(), ValueSpec::List(specs(std::slice::from_ref(index)))]
    };
    let y = check_values(&*put, &inputs(&index), &[iota([4]), index]);
    assert_eq!(y[0], tensor([4], &[0.0f32, 1., 45., 3.]));
    let tensors =
        op("Tensor.index_put i 3 1 0 1 2 3 accumulate=False $input=0 $indices=1 $values=2");
    let refused = |values: Tensor| {
        let [x, list] = inputs(&tensor([2], &[0i64, 1]));
        infer(&*tensors, &[x, list, values.spec().into()]).unwrap_err();
    };
    refused(iota([3]));
    refused(tensor([2], &[1i64, 2]));
}

#[test]
fn indices_that_the_file_has_lost_are_refused_unless_they_do_not_matter() {
    let lost = op("Tensor.index i 1 1 0 1 expr=[[0],[0]] $input=0 #0=(1,3)f32 #1=(1,1,1,3)f32");
    let x = tensor([1, 3], &[1.0f32, 2.0, 3.0]);
    for spec in [ValueSpec::from(x.clone()), x.spec().into()] {
        let error = lost.infer(&[spec]).unwrap_err().to_string();
        assert!(error.contains("a result of shape (1,1,1,3)"), "{error}");
    }
    let ones = lost.infer(&[tensor([1, 3], &[1.0f32; 3]).into()]).unwrap().remove(0);
    let known = ones.as_tensor().and_then(|t| t.known.clone()).unwrap();
    assert_eq!(known, tensor([1, 1, 1, 3], &[1.0f32; 3]));
    // A mask of two dimensions became one of its first elements.
    let mask = "Tensor.index i 1 1 0 1 expr=[[True,False]] $input=0 #0=(2,3)f32 #1=(3)f32";
    assert!(op(mask).infer(&[iota([2, 3]).into()]).is_err());
    let kept = "Tensor.index i 1 1 0 1 expr=[[1,0]] $input=0 #0=(2,3)f32 #1=(2,3)f32";
    assert!(op(kept).infer(&[iota([2, 3]).into()]).is_ok());
}

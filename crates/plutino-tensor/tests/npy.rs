//! NumPy files: what we write we read, what NumPy writes we read, what nobody should write is an
//! error.
#![cfg(feature = "npy")]
#![allow(clippy::unwrap_used)] // helpers of tests

use plutino_tensor::npy::{self, NpyError, npz};
use plutino_tensor::{Complex, DType, Tensor, f16};
use proptest::prelude::*;
use std::io::Write;

/// A npy file of version 1 with this header and data, as NumPy pads it.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut text = header.to_owned();
    while !(10 + text.len() + 1).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    out.extend(data);
    out
}

fn header(descr: &str, fortran: bool, shape: &str) -> String {
    let fortran = if fortran { "True" } else { "False" };
    format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}")
}

fn one_of_each() -> Vec<Tensor> {
    vec![
        Tensor::from_slice(&[1.5f32, -2.0, f32::INFINITY, 0.0, 1e-40, 7.0], [2, 3]).unwrap(),
        Tensor::from_slice(&[1.5f64, f64::MIN], [2]).unwrap(),
        Tensor::from_slice(&[f16::from_f32(0.1), f16::NEG_INFINITY], [1, 2]).unwrap(),
        Tensor::from_slice(&[i64::MIN, i64::MAX], [2, 1]).unwrap(),
        Tensor::from_slice(&[i32::MIN, 3, 4], [3]).unwrap(),
        Tensor::from_slice(&[-2i16, 3], [2]).unwrap(),
        Tensor::from_slice(&[-2i8, 3], [2]).unwrap(),
        Tensor::from_slice(&[2u8, 255], [2]).unwrap(),
        Tensor::from_slice(&[true, false, true], [3]).unwrap(),
        Tensor::from_slice(&[Complex::new(1.0f32, -2.0)], [1]).unwrap(),
        Tensor::from_slice(&[Complex::new(1.0f64, -2.0)], [1, 1, 1]).unwrap(),
        Tensor::scalar(42.0f32).unwrap(),
        Tensor::zeros(DType::F32, [3, 0, 2]).unwrap(),
    ]
}

/// What is written under a name is read under it; what a fuzzer found was `\` and `:`.
#[test]
fn names_are_kept_or_refused() {
    let x = Tensor::from_slice(&[1.0f32], [1]).unwrap();
    for name in
        ["a", "layer1.0/conv", "in0.np\\", "aten::max", "c:a", "a//b", "./a", "a/", "größe", ""]
    {
        let mut file = Vec::new();
        npz::write(&mut file, [(name, x.view())]).unwrap();
        assert_eq!(npz::read(&file).unwrap(), [(name.to_owned(), x.clone())]);
    }
    for name in ["../a", "/a", "a/../../b", "..\\a", "\\a", "a\0b", "ü:a", "ü\\a", "ü//a"] {
        let error = npz::write(&mut Vec::new(), [(name, x.view())]).unwrap_err();
        assert!(error.to_string().contains("name"), "{name}: {error}");
    }
}

#[test]
fn what_we_write_we_read() {
    for tensor in one_of_each() {
        let mut bytes = Vec::new();
        npy::write(&mut bytes, &tensor.view()).unwrap();
        assert_eq!(npy::read(&bytes).unwrap(), tensor);
    }
    let tensors = one_of_each();
    let names: Vec<String> = (0..tensors.len()).map(|i| format!("in{i}")).collect();
    let mut bytes = Vec::new();
    npz::write(&mut bytes, names.iter().zip(&tensors).map(|(n, t)| (n, t.view()))).unwrap();
    let expected: Vec<(String, Tensor)> = names.into_iter().zip(tensors).collect();
    assert_eq!(npz::read(&bytes).unwrap(), expected);
}

#[test]
fn strided_views_are_written_in_order() {
    let t = Tensor::from_slice(&[1i32, 2, 3, 4, 5, 6], [2, 3]).unwrap();
    let view = t.view().transpose(0, 1).unwrap();
    let mut bytes = Vec::new();
    npy::write(&mut bytes, &view).unwrap();
    assert_eq!(npy::read(&bytes).unwrap(), view.to_tensor().unwrap());
}

#[test]
fn byte_order_and_element_order() {
    let expected = Tensor::from_slice(&[1i16, 2, 3, 4, 5, 6], [2, 3]).unwrap();
    let big: Vec<u8> = [1i16, 2, 3, 4, 5, 6].iter().flat_map(|v| v.to_be_bytes()).collect();
    assert_eq!(npy::read(&file(&header(">i2", false, "(2, 3)"), &big)).unwrap(), expected);
    let columns: Vec<u8> = [1i16, 4, 2, 5, 3, 6].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(npy::read(&file(&header("<i2", true, "(2, 3)"), &columns)).unwrap(), expected);
    let complex: Vec<u8> = [1.0f32, -2.0].iter().flat_map(|v| v.to_be_bytes()).collect();
    let expected = Tensor::from_slice(&[Complex::new(1.0f32, -2.0)], [1]).unwrap();
    assert_eq!(npy::read(&file(&header(">c8", false, "(1,)"), &complex)).unwrap(), expected);
}

#[test]
fn dtypes_without_counterpart() {
    for dtype in [DType::Bf16, DType::C32] {
        let t = Tensor::zeros(dtype, [2]).unwrap();
        let error = npy::write(Vec::new(), &t.view()).unwrap_err();
        assert!(matches!(error, NpyError::NoNumpyDType { dtype: d } if d == dtype));
    }
    for descr in ["<u2", "<u8", "<f16", "|O", "<U3", "|S8", "<M8[ns]", "|V2"] {
        let error = npy::read(&file(&header(descr, false, "(0,)"), &[])).unwrap_err();
        assert!(matches!(error, NpyError::UnsupportedDType { .. }), "{descr}: {error}");
    }
    let fields = "{'descr': [('a', '<f4'), ('b', '<i4')], 'fortran_order': False, 'shape': (1,), }";
    let error = npy::read(&file(fields, &[0; 8])).unwrap_err();
    assert!(matches!(error, NpyError::UnsupportedDType { .. }), "{error}");
}

#[test]
fn sizes_are_checked_before_memory_is_taken() {
    let refused = |shape: &str, data: &[u8]| npy::read(&file(&header("<f8", false, shape), data));
    assert!(matches!(refused("(2,)", &[0; 8]), Err(NpyError::Size { expected: 16, found: 8 })));
    assert!(matches!(refused("(2,)", &[0; 24]), Err(NpyError::Size { expected: 16, found: 24 })));
    assert!(matches!(refused("(1000000000000,)", &[0; 8]), Err(NpyError::Size { .. })));
    assert!(refused("(4294967296, 4294967296, 4294967296)", &[]).is_err());
    assert!(refused("(0, 9223372036854775807, 9223372036854775807)", &[]).is_err());
    assert!(refused("(18446744073709551616,)", &[]).is_err());
    assert!(refused("(-1,)", &[0; 8]).is_err());
    assert!(refused(&"(".repeat(50_000), &[]).is_err());
    assert!(npy::read(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").is_err());
    let bad_bool = file(&header("|b1", false, "(1,)"), &[2]);
    assert!(npy::read(&bad_bool).is_err());
}

/// What `xtask/python/golden.py` writes into each file: -2 .. 3 in 2 rows, complex ones times 1 -
/// 2i.
fn golden(dtype: DType) -> Tensor {
    let x = Tensor::from_slice(&[-2i64, -1, 0, 1, 2, 3], [2, 3]).unwrap();
    if !dtype.is_complex() {
        return x.cast(dtype).unwrap();
    }
    let x = x.as_slice::<i64>().unwrap().iter();
    let x: Vec<_> = x.map(|&x| Complex::new(x as f64, (-2 * x) as f64)).collect();
    Tensor::from_slice(&x, [2, 3]).unwrap().cast(dtype).unwrap()
}

fn golden_file(name: &str) -> Result<Tensor, NpyError> {
    npy::load(format!("{}/tests/golden/{name}.npy", env!("CARGO_MANIFEST_DIR")))
}

#[test]
fn what_numpy_writes_we_read() {
    for (name, dtype) in [
        ("b1", DType::Bool),
        ("u1", DType::U8),
        ("i1", DType::I8),
        ("i2", DType::I16),
        ("i2_fortran", DType::I16),
        ("i4", DType::I32),
        ("i8", DType::I64),
        ("f2", DType::F16),
        ("f4", DType::F32),
        ("f4_big_endian", DType::F32),
        ("f4_version_2", DType::F32),
        ("f4_version_3", DType::F32),
        ("f8", DType::F64),
        ("c8", DType::C64),
        ("c16", DType::C128),
        ("c16_big_endian", DType::C128),
    ] {
        assert_eq!(golden_file(name).unwrap(), golden(dtype), "{name}");
    }
    assert_eq!(golden_file("f8_scalar").unwrap(), Tensor::scalar(-2.0f64).unwrap());
    assert_eq!(golden_file("f4_empty").unwrap(), Tensor::zeros(DType::F32, [3, 0, 2]).unwrap());
    let vector = golden(DType::I64).view().reshape([6]).unwrap().to_tensor().unwrap();
    assert_eq!(golden_file("i8_vector").unwrap(), vector);
}

#[test]
fn dtypes_of_numpy_without_counterpart_are_named() {
    for (name, descr) in [
        ("refused_u2", "<u2"),
        ("refused_text", "<U1"),
        ("refused_date", "<M8[D]"),
        (
            "refused_fields",
            r#"[(\'a\', \'<f4\'), (\'b\', [(\'c\', \'<i4\', (2,)), (\"d]\'\", \'|S3\')])]"#,
        ),
        ("refused_fields_version_3", r"[(\'gr\xc3\xb6\xc3\x9fe\', \'<f4\')]"),
    ] {
        let Err(NpyError::File { error, .. }) = golden_file(name) else { panic!("{name}") };
        let NpyError::UnsupportedDType { descr: found } = *error else { panic!("{error}") };
        assert_eq!(found, descr);
    }
}

#[test]
fn headers_are_read_as_python_would() {
    let read = |header: &str| npy::read(&file(header, &1.5f32.to_le_bytes()));
    for header in [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{\"shape\":(1,),\"fortran_order\":True,\"descr\":\"<f4\"}",
        "{ 'shape' : ( 1 , 1, ) , 'descr' : u'<f4' , 'fortran_order' : False , }  ",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1L,), }", // Python 2
    ] {
        let x = read(header).unwrap();
        assert_eq!(x.as_slice::<f32>().unwrap(), [1.5], "{header}");
    }
    let entries = "'descr': '<f4', 'fortran_order': False, ";
    for (header, error) in [
        ("", "expected '{', but the header ends"),
        ("{}", "no key 'descr'"),
        ("{'descr': '<f4', 'shape': (1,)}", "no key 'fortran_order'"),
        ("{'descr': '<f4' 'shape': (1,)}", "expected '}' at byte 16 of the header, found '\\''"),
        ("{'descr': '<f4', 'descr': '<f4'}", "key 'descr' stands twice, again at byte 17"),
        ("{'name': 1}", "unknown key 'name' at byte 1"),
        ("{'descr': '<f4', 'fortran_order': 0}", "expected True or False at byte 34"),
        ("{'descr': '<f4}", "the string at byte 10 has no end"),
        ("{'descr': '\\x3cf4'}", "or an escape in it"),
        ("{'descr': [('a', '<f4')}", "the bracket at byte 10 is not closed"),
        (&format!("{{{entries}'shape': (1)}}"), "expected ','"),
        (&format!("{{{entries}'shape': [1]}}"), "expected '('"),
        (&format!("{{{entries}'shape': (01,)}}"), "expected a dimension"),
        (&format!("{{{entries}'shape': (1.0,)}}"), "expected ','"),
        (&format!("{{{entries}'shape': (1,)}} 2"), "expected the end of the header"),
        (&format!("{{{entries}'shape': ({})}}", "1,".repeat(1025)), "more than 1024 dimensions"),
        (&format!("{{'descr': {}", "[".repeat(100)), "brackets nested deeper than 64"),
        (&format!("{{'{}': 1}}", "\u{1b}".repeat(300)), "unknown key '\\x1b\\x1b"),
    ] {
        let found = read(header).unwrap_err().to_string();
        assert!(found.contains(error), "{header}: {found}");
        assert!(found.len() < 500, "{found}");
    }
    let mut later = b"\x93NUMPY\x04\x00".to_vec();
    later.extend([0; 100]);
    assert!(npy::read(&later).unwrap_err().to_string().contains("version 4.0"));
}

/// A npz archive as `numpy.savez_compressed` makes it.
fn compressed(name: &str, npy: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut archive = rawzip::ZipArchiveWriter::new(&mut out);
    let file = archive.new_file(name).compression_method(rawzip::CompressionMethod::DEFLATE);
    let (mut entry, config) = file.start().unwrap();
    let level = flate2::Compression::default();
    let mut data = config.wrap(flate2::write::DeflateEncoder::new(&mut entry, level));
    data.write_all(npy).unwrap();
    let (encoder, descriptor) = data.finish().unwrap();
    encoder.finish().unwrap();
    entry.finish(descriptor).unwrap();
    archive.finish().unwrap();
    out
}

#[test]
fn compressed_archives() {
    let t = Tensor::zeros(DType::F32, [1000]).unwrap();
    let mut npy = Vec::new();
    npy::write(&mut npy, &t.view()).unwrap();
    let archive = compressed("x.npy", &npy);
    assert!(archive.len() < 500);
    assert_eq!(npz::read(&archive).unwrap(), [("x".to_owned(), t)]);
}

#[test]
fn damaged_archives_are_errors() {
    let t = Tensor::from_slice(&[1.0f32, 2.0], [2]).unwrap();
    let mut bytes = Vec::new();
    npz::write(&mut bytes, [("x", t.view()), ("x", t.view())]).unwrap();
    assert!(npz::read(&bytes).unwrap_err().to_string().contains("twice"));
    bytes.clear();
    npz::write(&mut bytes, [("x", t.view())]).unwrap();
    // A flipped bit of the data fails the checksum.
    let at = bytes.windows(4).position(|w| w == 2.0f32.to_le_bytes()).unwrap();
    bytes[at + 1] ^= 1;
    assert!(npz::read(&bytes).is_err());
    assert!(npz::read(b"").is_err());
    let missing = std::path::Path::new("no-such-file.npz");
    assert!(npz::load(missing).unwrap_err().to_string().starts_with("no-such-file.npz: "));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_damage_makes_the_reader_panic(
        at in 0..1usize << 20,
        byte in any::<u8>(),
        cut in 0..2000usize,
        packed in any::<bool>(),
    ) {
        let mut npy = Vec::new();
        npy::write(&mut npy, &one_of_each()[0].view()).unwrap();
        let mut npz = if packed { compressed("x.npy", &npy) } else {
            let mut bytes = Vec::new();
            npz::write(&mut bytes, [("x", one_of_each()[0].view())]).unwrap();
            bytes
        };
        for bytes in [&mut npy, &mut npz] {
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(bytes.len().min(cut.max(1)));
        }
        let _ = npy::read(&npy);
        let _ = npz::read(&npz);
    }

    #[test]
    fn any_tensor_comes_back(
        dims in proptest::collection::vec(0..4usize, 0..5),
        dtype in (0..DType::ALL.len()).prop_map(|i| DType::ALL[i]),
        big in any::<bool>(),
        fortran in any::<bool>(),
        version in 1..4u8,
    ) {
        let numel: usize = dims.iter().product();
        let x: Vec<i64> = (0..numel as i64).map(|i| i % 2 + i / 5).collect();
        let x = Tensor::from_slice(&x, dims.as_slice()).unwrap().cast(dtype).unwrap();
        let mut bytes = Vec::new();
        match npy::write(&mut bytes, &x.view()) {
            Err(NpyError::NoNumpyDType { dtype: refused }) => prop_assert_eq!(refused, dtype),
            result => {
                result.unwrap();
                prop_assert_eq!(&npy::read(&bytes).unwrap(), &x);
                // The same header, told otherwise: other orders, another version.
                let end = 10 + bytes[10..].iter().position(|&b| b == b'\n').unwrap();
                let header = std::str::from_utf8(&bytes[10..end]).unwrap();
                let data = bytes.len() - x.as_bytes().len();
                prop_assert_eq!(data % 64, 0);
                let mut header = header.to_owned();
                let mut stored = x.clone();
                if fortran {
                    header = header.replace("False", "True");
                    let reversed: Vec<usize> = (0..dims.len()).rev().collect();
                    stored = x.view().permute(&reversed).unwrap().to_tensor().unwrap();
                }
                let mut stored = stored.as_bytes().to_vec();
                if big && dtype.size_of() > 1 {
                    header = header.replace('<', ">");
                    let number = dtype.size_of() / if dtype.is_complex() { 2 } else { 1 };
                    stored.chunks_exact_mut(number).for_each(<[u8]>::reverse);
                }
                let mut told = b"\x93NUMPY".to_vec();
                told.extend([version, 0]);
                let len = (header.len() as u32).to_le_bytes();
                told.extend(if version == 1 { &len[..2] } else { &len[..] });
                told.extend(header.as_bytes());
                told.extend(stored);
                prop_assert_eq!(npy::read(&told).unwrap(), x);
            }
        }
    }

    #[test]
    fn headers_of_any_text(text in "[\\(\\)\\[\\]\\{\\}0-9a-z<>|':, _-]{0,80}") {
        let _ = npy::read(&file(&text, &[0; 16]));
    }
}

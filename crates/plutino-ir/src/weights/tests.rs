use crate::error::{BinError, LoadError};
use crate::load::LoadOptions;
use crate::{DType, Graph, InvalidGraph};

const PARAM: &str =
    "7767517\n2 2\npnnx.Attribute a 0 1 0 @x=(2)i16\npnnx.Attribute b 0 1 1 @y=(3)u8\n";

/// Where the fields of a header are, in bytes from its beginning: (local, central).
const FLAGS: (usize, usize) = (6, 8);
const METHOD: (usize, usize) = (8, 10);
const CRC: (usize, usize) = (14, 16);
const NAME: (usize, usize) = (30, 46);

/// An archive as another zip tool would write it: 32-bit fields, no extra fields.
fn plain(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut directory = Vec::new();
    for (name, data) in entries {
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        for field in
            [crc32fast::hash(data), data.len() as u32, data.len() as u32, name.len() as u32]
        {
            common.extend(field.to_le_bytes()); // the last one is the name's length and that of no extra field
        }
        directory.extend([b"PK\x01\x02\x14\x00", &common[..]].concat());
        directory.extend([0; 10]); // comment, disk, attributes
        directory.extend((archive.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        archive.extend([b"PK\x03\x04", &common[..], name.as_bytes(), data].concat());
    }
    let start = archive.len() as u32;
    let count = entries.len() as u8;
    archive.extend(&directory);
    archive.extend([b'P', b'K', 5, 6, 0, 0, 0, 0, count, 0, count, 0]);
    archive.extend((directory.len() as u32).to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0, 0]);
    archive
}

fn sample() -> Vec<u8> {
    plain(&[("a.x", &[1, 0, 2, 0]), ("b.y", b"xyz")])
}

/// Where the headers of the entry of this index are.
fn headers(archive: &[u8], index: usize) -> (usize, usize) {
    let find = |signature: &[u8]| {
        let positions = archive.windows(4).enumerate().filter(|(_, window)| *window == signature);
        positions.map(|(at, _)| at).nth(index).unwrap()
    };
    (find(b"PK\x03\x04"), find(b"PK\x01\x02"))
}

fn fault(param: &str, archive: Vec<u8>) -> BinError {
    match Graph::from_bytes(param, archive) {
        Err(LoadError::Bin { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn archives_of_other_tools_are_read() {
    let graph = Graph::from_bytes(PARAM, sample()).unwrap();
    let a = &graph[graph.operator_by_name("a").unwrap()];
    assert_eq!(a.attr("x").unwrap().elements::<i16>().unwrap().as_ref(), &[1, 2]);
    let b = &graph[graph.operator_by_name("b").unwrap()];
    assert_eq!(b.attr("y").unwrap().data().unwrap().as_ref(), b"xyz");
    // Order in the archive does not matter.
    assert_eq!(
        Graph::from_bytes(PARAM, plain(&[("b.y", b"xyz"), ("a.x", &[1, 0, 2, 0])])).unwrap(),
        graph
    );
    // What we write is read alike.
    assert_eq!(Graph::from_bytes(PARAM, graph.to_bin_bytes().unwrap()).unwrap(), graph);
}

#[test]
fn weights_are_slices_not_copies() {
    let archive = bytes::Bytes::from(sample());
    let graph = Graph::from_bytes(PARAM, archive.clone()).unwrap();
    let data =
        graph[graph.operator_by_name("b").unwrap()].attr("y").unwrap().data().unwrap().clone();
    assert!(archive.as_ptr_range().contains(&data.as_ptr()));
}

#[test]
fn entries_and_weights_must_match() {
    assert_eq!(
        fault(PARAM, plain(&[("a.x", &[0; 4])])),
        BinError::MissingEntry {
            entry: "b.y".into(),
            weight: "y".into(),
            operator: "b".into(),
            line: 4
        }
    );
    assert_eq!(
        fault(PARAM, plain(&[("a.x", &[0; 4]), ("b.y", &[0; 3]), ("c.z", &[0; 3])])),
        BinError::UnknownEntry { entry: "c.z".into() }
    );
    assert_eq!(
        fault(PARAM, plain(&[("a.x", &[0; 6]), ("b.y", &[0; 3])])),
        BinError::EntrySize {
            entry: "a.x".into(),
            shape: vec![2],
            dtype: DType::I16,
            expected: 4,
            found: 6
        }
    );
    assert_eq!(
        fault(PARAM, plain(&[("a.x", &[0; 4]), ("b.y", &[0; 3]), ("a.x", &[0; 4])])),
        BinError::DuplicateEntry { entry: "a.x".into() }
    );
    let ambiguous = "7767517\n2 2\nnn.A a 0 1 0 @b.c=(1)u8\nnn.A a.b 0 1 1 @c=(1)u8\n";
    let shared = InvalidGraph::SharedEntry {
        entry: "a.b.c".into(),
        first: "a".into(),
        second: "a.b".into(),
    };
    assert_eq!(fault(ambiguous, plain(&[("a.b.c", &[0])])), BinError::SharedEntry(shared));
}

#[test]
fn entries_must_be_plain() {
    for (field, bit, how) in [
        (METHOD, 8, "compressed"),
        (FLAGS, 1, "encrypted"),
        (FLAGS, 8, "written with a data descriptor"),
    ] {
        let mut archive = sample();
        let (local, central) = headers(&archive, 1);
        archive[local + field.0] = bit;
        archive[central + field.1] = bit;
        assert_eq!(fault(PARAM, archive), BinError::NotStored { entry: "b.y".into(), how });
    }
}

#[test]
fn headers_must_agree() {
    for (field, name) in [(METHOD, "method"), (FLAGS, "flags"), (CRC, "CRC-32"), (NAME, "name")] {
        let mut archive = sample();
        let (local, _) = headers(&archive, 0);
        archive[local + field.0] ^= 2;
        let error = fault(PARAM, archive);
        assert!(
            matches!(&error, BinError::HeadersDisagree { entry, field, .. } if entry == "a.x" && *field == name),
            "{name}: {error}"
        );
    }
    for (offset, name) in [(18, "stored size"), (22, "size")] {
        let mut archive = sample();
        archive[offset] += 1;
        let error = fault(PARAM, archive);
        assert!(
            matches!(&error, BinError::HeadersDisagree { field, .. } if *field == name),
            "{name}: {error}"
        );
    }
}

#[test]
fn corruption_is_noticed_unless_waived() {
    let mut archive = sample();
    archive[33] ^= 1;
    let expected = crc32fast::hash(&[1, 0, 2, 0]);
    let found = crc32fast::hash(&[0, 0, 2, 0]);
    assert_eq!(
        fault(PARAM, archive.clone()),
        BinError::Crc { entry: "a.x".into(), expected, found }
    );
    let mut graph = Graph::parse(PARAM).unwrap();
    let unverified = LoadOptions { verify_crc: false, ..LoadOptions::default() };
    assert_eq!(super::attach(&mut graph, &archive.into(), None, &unverified), Ok(()));
}

#[test]
fn entries_must_not_overlap() {
    // The second entry's directory record points at the first one's bytes under a name of its own.
    let data = &[1, 0, 2, 0];
    let inner = plain(&[("b.y", b"xyz")]);
    let (_, end) = headers(&inner, 0);
    let nested =
        "7767517\n2 2\npnnx.Attribute a 0 1 0 @x=(36)u8\npnnx.Attribute b 0 1 1 @y=(3)u8\n";
    let mut archive = plain(&[("a.x", &inner[..end]), ("b.y", b"xyz")]);
    assert!(Graph::from_bytes(nested, archive.clone()).is_ok());
    let (_, central) = headers(&archive, 1);
    archive[central + 42..central + 46].copy_from_slice(&33u32.to_le_bytes());
    let overlap = BinError::Overlap { first: "a.x".into(), second: "b.y".into() };
    assert_eq!(fault(nested, archive), overlap);

    // An entry that reaches into the directory.
    let mut archive = plain(&[("a.x", data), ("b.y", b"xyz")]);
    let (local, central) = headers(&archive, 1);
    for at in [local + 18, local + 22, central + 20, central + 24] {
        archive[at] = 8;
    }
    let overlap = BinError::Overlap { first: "b.y".into(), second: "the directory".into() };
    assert_eq!(fault(PARAM, archive), overlap);
}

#[test]
fn the_archive_must_be_whole() {
    assert!(matches!(fault(PARAM, vec![]), BinError::Archive { .. }));
    assert!(matches!(fault(PARAM, b"not a zip archive".to_vec()), BinError::Archive { .. }));
    let mut archive = sample();
    archive.extend(b"more");
    assert_eq!(fault(PARAM, archive), BinError::TrailingBytes { bytes: 4 });
    // One entry fewer and one more than there are.
    for declared in [1u8, 3] {
        let mut archive = sample();
        let at = archive.len() - 14;
        archive[at] = declared;
        archive[at + 2] = declared;
        assert_eq!(
            fault(PARAM, archive),
            BinError::EntryCount { declared: declared.into(), found: 2 }
        );
    }
    let mut archive = sample();
    let (_, central) = headers(&archive, 1);
    archive[central] = 0;
    assert!(matches!(fault(PARAM, archive), BinError::Directory { index: 1, .. }));
    let mut archive = sample();
    let (_, central) = headers(&archive, 1);
    archive[central + 42..central + 46].fill(0xf0);
    assert!(matches!(fault(PARAM, archive), BinError::Truncated { .. }));
    let mut archive = sample();
    let (local, central) = headers(&archive, 1);
    archive[local + NAME.0] = 0xff;
    archive[central + NAME.1] = 0xff;
    assert_eq!(fault(PARAM, archive), BinError::EntryName { index: 1 });
}

#[test]
fn zero_bytes_are_an_entry_too() {
    let param = "7767517\n1 1\npnnx.Attribute a 0 1 0 @data=(0)i64\n";
    let graph = Graph::from_bytes(param, plain(&[("a.data", &[])])).unwrap();
    assert!(graph.has_weights());
    assert_eq!(Graph::from_bytes(param, graph.to_bin_bytes().unwrap()).unwrap(), graph);
    assert!(matches!(fault(param, plain(&[])), BinError::MissingEntry { .. }));
}

#[test]
fn names_are_keys_never_paths() {
    let param = "7767517\n1 1\npnnx.Attribute ../../etc/a 0 1 0 @data=(1)u8\n";
    assert!(Graph::from_bytes(param, plain(&[("../../etc/a.data", &[7])])).is_ok());
}

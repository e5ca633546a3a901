use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Source;
use crate::attribute::AttributeError;
use crate::error::{BinError, LoadError};
use crate::in_file::{FilePart, WeightFile};
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

/// A file that is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn with(bytes: &[u8]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("plutino-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The graph with weights that stay in a file.
fn streamed(param: &str, file: &Scratch, options: &LoadOptions) -> Result<Graph, BinError> {
    let mut graph = Graph::parse(param).unwrap();
    let file = Arc::new(WeightFile::open(&file.0).unwrap());
    super::attach(&mut graph, &Source::File(&file), options).map(|()| graph)
}

/// What is wrong with an archive, in memory and in a file.
fn fault(param: &str, archive: Vec<u8>) -> BinError {
    let in_file = streamed(param, &Scratch::with(&archive), &LoadOptions::default());
    match Graph::from_bytes(param, archive) {
        Err(LoadError::Bin { error, .. }) => {
            assert_eq!(in_file.unwrap_err(), error);
            error
        }
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
    let data = graph[graph.operator_by_name("b").unwrap()].attr("y").unwrap().data().unwrap();
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
    let source = Source::Memory(&archive.clone().into(), None);
    assert_eq!(super::attach(&mut graph, &source, &unverified), Ok(()));
    assert_eq!(streamed(PARAM, &Scratch::with(&archive), &unverified), Ok(graph));
}

#[test]
fn large_weights_stay_in_the_file() {
    const LARGE: &str =
        "7767517\n2 2\npnnx.Attribute a 0 1 0 @x=(2)i16\npnnx.Attribute b 0 1 1 @y=(70000)u8\n";
    let data: Vec<u8> = (0..70_000).map(|i| (i % 251) as u8).collect();
    let archive = plain(&[("a.x", &[1, 0, 2, 0]), ("b.y", &data)]);
    let file = Scratch::with(&archive);
    let graph = streamed(LARGE, &file, &LoadOptions::default()).unwrap();
    let attr = |name: &str, key: &str| {
        graph[graph.operator_by_name(name).unwrap()].attr(key).unwrap().clone()
    };
    let (small, large) = (attr("a", "x"), attr("b", "y"));
    assert!(small.in_memory().is_some() && small.in_file().is_none());
    assert!(large.in_memory().is_none() && large.is_loaded() && graph.has_weights());
    assert_eq!(large.data().unwrap(), data);
    assert_eq!(large.elements::<u8>().unwrap().as_ref(), data);
    let part = large.in_file().unwrap();
    assert_eq!(part.read().unwrap()[..], data);
    assert_eq!((part.len(), part.kept()), (data.len(), None));
    assert_eq!(graph, Graph::from_bytes(LARGE, archive.clone()).unwrap());
    assert_eq!(
        Graph::from_bytes(LARGE, graph.to_bin_bytes().unwrap()).unwrap(),
        graph,
        "what is in a file can be saved"
    );

    // What was changed in place is noticed when it is read, unless nobody asked for that.
    let mut changed = archive.clone();
    let at = changed.len() / 2;
    changed[at] ^= 1;
    std::fs::write(&file.0, &changed).unwrap();
    assert!(matches!(large.data(), Err(AttributeError::Checksum { .. })));
    assert!(matches!(part.keep(), Err(AttributeError::Checksum { .. })));
    assert!(graph.to_bin_bytes().is_err());
    let unverified = LoadOptions { verify_crc: false, ..LoadOptions::default() };
    let waived = streamed(LARGE, &file, &unverified).unwrap();
    assert_ne!(waived, graph);
    std::fs::write(&file.0, &archive[..1000]).unwrap();
    assert!(matches!(large.data(), Err(AttributeError::Unreadable { .. })));

    // Bytes that are read in place are there, for all clones, whatever becomes of the file.
    std::fs::write(&file.0, &archive).unwrap();
    assert_eq!(part.keep().unwrap(), data);
    std::fs::write(&file.0, b"").unwrap();
    assert_eq!(attr("b", "y").in_file().unwrap().kept().unwrap(), data);
}

#[test]
fn parts_of_a_weight_in_a_file() {
    const LEN: usize = 3 * (1 << 18) + 5;
    let param = &format!("7767517\n1 1\npnnx.Attribute b 0 1 0 @y=({LEN})u8\n");
    let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
    let archive = plain(&[("b.y", &data)]);
    let file = Scratch::with(&archive);
    let load = |options: &LoadOptions| {
        let graph = streamed(param, &file, options).unwrap();
        let attr = graph[graph.operator_by_name("b").unwrap()].attr("y").unwrap().clone();
        attr.in_file().unwrap().clone()
    };
    let part = load(&LoadOptions::default());
    // From front to back in steps of any length, some of it again, with gaps, or nothing of it.
    let orders: [&[[usize; 2]]; 6] = [
        &[[0, 1000], [1000, 400_000], [400_000, LEN]],
        &[[0, LEN]],
        &[[0, 300_000], [10, 20], [299_990, 300_010], [0, LEN]],
        &[[500_000, 500_001], [LEN - 1, LEN], [0, 7]],
        &[[5, 5]],
        &[],
    ];
    let read = |part: &FilePart, order: &[[usize; 2]]| {
        let mut reader = part.reader();
        for &[start, end] in order {
            assert_eq!(reader.bytes(start..end)?, &data[start..end]);
        }
        reader.finish()
    };
    for order in orders {
        assert_eq!(read(&part, order), Ok(()), "{order:?}");
    }
    for beyond in [LEN..LEN + 1, 0..LEN + 1, usize::MAX - 1..usize::MAX] {
        let found = part.reader().bytes(beyond).map(<[u8]>::len);
        assert!(matches!(found, Err(AttributeError::Unreadable { .. })), "{found:?}");
    }
    // What was changed is noticed wherever it is, also in bytes that nobody asked for.
    for at in [0, LEN / 2, LEN - 1] {
        let mut changed = archive.clone();
        let start = archive.windows(4).position(|w| w == &data[..4]).unwrap();
        changed[start + at] ^= 1;
        std::fs::write(&file.0, &changed).unwrap();
        for order in [&[][..], &[[LEN / 4, LEN / 4 + 9]], &[[LEN - 9, LEN - 8], [1, 2]]] {
            let found = read(&part, order);
            assert!(matches!(found, Err(AttributeError::Checksum { .. })), "{order:?}: {found:?}");
        }
        let unverified = load(&LoadOptions { verify_crc: false, ..LoadOptions::default() });
        assert_eq!(read(&unverified, &[[1, 2]]), Ok(()));
        std::fs::write(&file.0, &archive).unwrap();
    }
    // What is kept is not read again.
    assert_eq!(part.keep().unwrap(), data);
    std::fs::write(&file.0, b"").unwrap();
    assert_eq!(read(&part, &[[3, 5], [1, 2]]), Ok(()));
    assert!(part.reader().bytes(LEN..LEN + 1).is_err());
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

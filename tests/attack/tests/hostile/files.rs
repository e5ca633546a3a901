//! Files that are something else than they say: archives that lie, pipes, devices, links.

use plutino::ir::{Graph, LoadOptions};
use plutino::{Model, npy};
use plutino_attack::trial;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Waiting for a pipe would take for ever.
const PATIENCE: Duration = Duration::from_secs(4);

/// An entry of an archive, with what its headers say of it.
#[derive(Clone)]
struct Entry {
    name: &'static str,
    data: Vec<u8>,
    method: u16,
    /// What the directory claims of the size, stored and expanded.
    stored: u32,
    expanded: u32,
    crc: u32,
    /// Where the directory says that the entry begins, if not where it does.
    at: Option<u32>,
    flags: u16,
}

impl Entry {
    fn new(name: &'static str, data: &[u8]) -> Self {
        let len = data.len() as u32;
        let (crc, data) = (crc32fast::hash(data), data.to_vec());
        Self { name, data, method: 0, stored: len, expanded: len, crc, at: None, flags: 0 }
    }
}

/// An archive of these entries, lies included.
fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut all, mut directory) = (Vec::new(), Vec::new());
    for e in entries {
        let at = e.at.unwrap_or(all.len() as u32);
        let common = |out: &mut Vec<u8>| {
            for half in [20, e.flags, e.method, 0, 0] {
                out.extend(u16::to_le_bytes(half));
            }
            for word in [e.crc, e.stored, e.expanded] {
                out.extend(u32::to_le_bytes(word));
            }
            out.extend(u16::to_le_bytes(e.name.len() as u16));
            out.extend([0, 0]);
        };
        all.extend(b"PK\x03\x04");
        common(&mut all);
        all.extend(e.name.as_bytes());
        all.extend(&e.data);
        directory.extend(b"PK\x01\x02\x14\x00");
        common(&mut directory);
        directory.extend([0; 10]);
        directory.extend(u32::to_le_bytes(at));
        directory.extend(e.name.as_bytes());
    }
    let (start, len, count) = (all.len() as u32, directory.len() as u32, entries.len() as u16);
    all.extend(directory);
    all.extend(b"PK\x05\x06\0\0\0\0");
    all.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    all.extend([len.to_le_bytes(), start.to_le_bytes()].concat());
    all.extend([0, 0]);
    all
}

const TEXT: &str = "7767517\n3 2\npnnx.Input in 0 1 a #a=(2)f32\n\
                    nn.PReLU p 1 1 a y num_parameters=1 @weight=(1)f32\npnnx.Output out 1 0 y\n";

fn weight() -> Entry {
    Entry::new("p.weight", &1f32.to_le_bytes())
}

/// What a `.bin` file of these bytes comes to: nothing where it is right.
fn bin(bytes: Vec<u8>) -> String {
    match Graph::from_bytes(TEXT, bytes) {
        Ok(_) => String::new(),
        Err(error) => {
            trial::fit(&error).unwrap();
            error.to_string()
        }
    }
}

#[test]
fn archives_that_lie_are_refused() {
    let w = weight();
    let changed = |change: &dyn Fn(&mut Entry)| {
        let mut entry = weight();
        change(&mut entry);
        zip(&[entry])
    };
    let many: Vec<Entry> = (0..60_000).map(|_| Entry::new("x", b"")).collect();
    let mut far = zip(std::slice::from_ref(&w));
    let end = far.len() - 6;
    far[end..end + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut crowd = zip(std::slice::from_ref(&w));
    let end = crowd.len() - 14;
    crowd[end..end + 4].fill(0xff);
    let mut commented = zip(std::slice::from_ref(&w));
    let end = commented.len();
    commented[end - 2..].fill(0xff);
    let nested = zip(&[Entry::new("p.weight", &zip(std::slice::from_ref(&w)))]);
    #[rustfmt::skip]
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("right", zip(std::slice::from_ref(&w)), ""),
        ("nothing", Vec::new(), "not a complete zip archive: Missing end"),
        ("no entry", zip(&[]), "there is no entry 'p.weight' for weight"),
        ("another name", changed(&|e| e.name = "../p.weight"), "there is no entry 'p.weight' for weight"),
        ("a path", changed(&|e| e.name = "/p.weight"), "there is no entry 'p.weight' for weight"),
        ("an entry twice", zip(&[w.clone(), w.clone()]), "there are two entries named 'p.weight'"),
        ("one entry, two names", zip(&[w.clone(), Entry { name: "q", at: Some(0), ..w.clone() }]), "entry 'q': its header says name p.weight,"),
        ("sixty thousand entries", zip(&many), "there are two entries named 'x'"),
        ("compressed", changed(&|e| e.method = 8), "entry 'p.weight' is compressed; PNNX"),
        ("encrypted", changed(&|e| e.flags = 1), "entry 'p.weight' is encrypted; PNNX"),
        ("larger than the file", changed(&|e| (e.stored, e.expanded) = (1 << 30, 1 << 30)), "entry 'p.weight' is cut off: its data at 38..1073741862 is outside"),
        ("of another size", changed(&|e| (e.stored, e.expanded) = (3, 3)), "entry 'p.weight' has 3 bytes, but [1] of"),
        ("of two sizes", changed(&|e| e.expanded = 1 << 30), "entry 'p.weight': its header says stored"),
        ("of the size of another format", changed(&|e| (e.stored, e.expanded) = (u32::MAX, u32::MAX)), "entry 'p.weight' is cut off: its data at 38..4294967333 is outside"),
        ("another check sum", changed(&|e| e.crc ^= 1), "entry 'p.weight' is corrupt: its CRC-32"),
        ("beginning behind the end", changed(&|e| e.at = Some(u32::MAX - 1)), "entry 'p.weight' is cut off: its header at 4294967294 is outside"),
        ("beginning in its own directory", changed(&|e| e.at = Some(45)), "entry 'p.weight' is cut off: Invalid"),
        ("a directory behind the end", far, "not a complete zip archive: Invalid end"),
        ("more entries than there are", crowd, "the archive announces 65535 entries, but"),
        ("a comment beyond the end", commented, "not a complete zip archive: Unexpected"),
        ("an archive in an archive", nested, "entry 'p.weight' has 118 bytes, but [1]"),
    ];
    let start = Instant::now();
    let mut faults = Vec::new();
    for (name, bytes, word) in rows {
        let message = bin(bytes);
        if message.is_empty() != word.is_empty() || !message.contains(word) {
            faults.push(format!("{name}: {message:?}, not {word:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}

/// A header that claims so many elements, with so many bytes behind it.
fn array(shape: &str, bytes: usize) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut all = b"\x93NUMPY\x01\x00".to_vec();
    all.extend(u16::to_le_bytes(header.len() as u16));
    all.extend(header.as_bytes());
    all.resize(all.len() + bytes, 0);
    all
}

#[test]
fn arrays_that_lie_are_refused() {
    let entry = |data: Vec<u8>| Entry::new("x.npy", &data);
    // Ten zeros of deflate that claim four gigabytes.
    let bomb = Entry { method: 8, expanded: u32::MAX - 1, ..entry(vec![0x63, 0, 0, 0, 0, 0]) };
    let pickle = String::from_utf8_lossy(&array("(2,)", 8)[10..]).replace("<f4", "|O ");
    let pickle = [&array("(2,)", 8)[..10], pickle.as_bytes()].concat();
    let deep = format!("({}", "(".repeat(100_000));
    #[rustfmt::skip]
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("right", zip(&[entry(array("(2,)", 8))]), ""),
        ("more than there is", zip(&[entry(array("(1000000000000,)", 8))]), "the header describes 4000000000000 bytes"),
        ("a product that overflows", zip(&[entry(array("(4294967296,4294967296)", 8))]), "not a valid npy file: dimensions whose"),
        ("a negative size", zip(&[entry(array("(-1,)", 8))]), "not a valid npy file: expected a"),
        ("a size that is no number", zip(&[entry(array("(x,)", 8))]), "not a valid npy file: expected a"),
        ("a tail", zip(&[entry(array("(1,)", 8))]), "the header describes 4 bytes of data, but"),
        ("a bomb", zip(&[bomb]), "not a valid npz archive: 6 bytes in the"),
        ("a pickle", zip(&[entry(pickle)]), "|O"),
        ("twice", zip(&[entry(array("(2,)", 8)), entry(array("(2,)", 8))]), "not a valid npz archive: array 'x' occurs"),
        ("a header cut off", zip(&[entry(b"\x93NUMPY\x01\x00\xff\xff{".to_vec())]), "not a valid npy file: the header is cut"),
        ("a header of brackets", zip(&[entry(array(&deep[..60_000], 8))]), "not a valid npy file: expected a"),
    ];
    let mut faults = Vec::new();
    for (name, bytes, word) in rows {
        let message = npy::npz::read(&bytes).err().map(|e| {
            trial::fit(&e).unwrap();
            e.to_string()
        });
        let message = message.unwrap_or_default();
        if message.is_empty() != word.is_empty() || !message.contains(word) {
            faults.push(format!("{name}: {message:?}, not {word:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plutino-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The error of a model in this folder, with its weights read or mapped; nothing where it loads.
fn load(folder: &Path, mmap: bool) -> String {
    let start = Instant::now();
    let options = LoadOptions { mmap, ..LoadOptions::default() };
    let message = Model::load_with(folder.join("m.pnnx.param"), options).err().map(|e| {
        trial::fit(&e).unwrap();
        e.to_string()
    });
    assert!(start.elapsed() < PATIENCE);
    message.unwrap_or_default()
}

#[cfg(unix)]
#[test]
fn pipes_devices_and_links_are_no_files() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new("files");
    let path = |name: &str| folder.0.join(name);
    let (param, weights) = (path("m.pnnx.param"), path("m.pnnx.bin"));
    let right = zip(&[weight()]);
    std::fs::write(path("text"), TEXT).unwrap();
    std::fs::write(path("weights"), &right).unwrap();
    let pipe = |at: &Path| {
        let status = std::process::Command::new("mkfifo").arg(at).status().unwrap();
        assert!(status.success());
    };
    let clear = || {
        for file in [&param, &weights] {
            let _ = std::fs::remove_file(file);
            let _ = std::fs::remove_dir(file);
        }
    };
    for mmap in [false, true] {
        // A link to a file is that file.
        symlink(path("text"), &param).unwrap();
        symlink(path("weights"), &weights).unwrap();
        assert_eq!(load(&folder.0, mmap), "");
        for device in ["/dev/zero", "/dev/null"] {
            clear();
            symlink(path("text"), &param).unwrap();
            symlink(device, &weights).unwrap();
            assert!(load(&folder.0, mmap).ends_with("is no regular file"), "{device}");
            clear();
            symlink(device, &param).unwrap();
            assert!(load(&folder.0, mmap).ends_with("is no regular file"), "{device}");
        }
        clear();
        pipe(&param);
        assert!(load(&folder.0, mmap).ends_with("is no regular file"));
        clear();
        std::fs::write(&param, TEXT).unwrap();
        pipe(&weights);
        assert!(load(&folder.0, mmap).ends_with("is no regular file"));
        clear();
        std::fs::write(&param, TEXT).unwrap();
        std::fs::create_dir(&weights).unwrap();
        assert!(load(&folder.0, mmap).ends_with("is no regular file"));
        // Links that lead to each other, or nowhere.
        clear();
        std::fs::write(&param, TEXT).unwrap();
        symlink(&weights, &weights).unwrap();
        assert!(!load(&folder.0, mmap).is_empty());
        clear();
        std::fs::write(&param, TEXT).unwrap();
        symlink(path("nowhere"), &weights).unwrap();
        assert!(!load(&folder.0, mmap).is_empty());
        clear();
        // Another kind of array on the way in: what is read by name is a file as well.
        pipe(&param);
        assert!(npy::load(&param).is_err() && npy::npz::load(&param).is_err());
        clear();
        // A file that is cut while nobody looks is an error when it is read.
        std::fs::write(&param, TEXT).unwrap();
        std::fs::write(&weights, &right[..right.len() - 30]).unwrap();
        assert!(!load(&folder.0, mmap).is_empty());
        clear();
    }
}

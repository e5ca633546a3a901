//! Reading: an index of the archive, every statement of which is checked, then one slice for each
//! weight.

use std::collections::HashMap;

use bytes::Bytes;
use rawzip::{CompressionMethod, ZipLocator, ZipSliceArchive, ZipSliceEntry};

use crate::error::BinError;
use crate::graph::{Graph, entry_name};
use crate::limits::Limits;
use crate::load::LoadOptions;
use crate::mmap::Mapping;

/// Length of the longest end record: 22 bytes and a comment.
const END_RECORD: u64 = 22 + u16::MAX as u64;

/// Bytes between two looks at the limits: a fraction of a millisecond.
const LOOK: usize = 1 << 20;

/// An entry of the archive.
struct Entry {
    name: String,
    /// Where its header begins.
    header: u64,
    /// Where its data begins and ends.
    data: std::ops::Range<usize>,
    crc: u32,
}

/// Gives every weight of the graph its data, as slices of `archive`, which may be a mapped file.
pub(crate) fn attach(
    graph: &mut Graph,
    archive: &Bytes,
    mapping: Option<&Mapping>,
    options: &LoadOptions,
) -> Result<(), BinError> {
    let entries = index(archive, &options.limits)?;
    let mut by_name: HashMap<&str, &Entry> =
        entries.iter().map(|entry| (entry.name.as_str(), entry)).collect();
    graph.entries().map_err(BinError::SharedEntry)?;
    for id in graph.operator_ids().to_vec() {
        let Some(operator) = graph.operator_mut(id) else {
            continue;
        };
        let (name, line) = (operator.name.clone(), operator.line.unwrap_or_default());
        for (weight, attr) in &mut operator.attrs {
            let entry = by_name.remove(entry_name(&name, weight).as_str()).ok_or_else(|| {
                BinError::MissingEntry {
                    entry: entry_name(&name, weight),
                    weight: weight.clone(),
                    operator: name.clone(),
                    line,
                }
            })?;
            options.limits.check()?;
            let data = archive.slice(entry.data.clone());
            let found = data.len() as u64;
            if options.verify_crc && found == attr.byte_len() as u64 {
                check_crc(entry, &data, &options.limits)?;
                // Of a small file all may stay: most of it is packed, and released, before long.
                if let Some(mapping) = mapping.filter(|m| !m.is_small()) {
                    mapping.release(&data);
                }
            }
            attr.set_data(data).map_err(|_| BinError::EntrySize {
                entry: entry.name.clone(),
                shape: attr.shape().to_vec(),
                dtype: attr.dtype(),
                expected: attr.byte_len() as u64,
                found,
            })?;
            attr.set_mapping(mapping.cloned());
        }
    }
    match entries.iter().find(|entry| by_name.contains_key(entry.name.as_str())) {
        None => Ok(()),
        Some(entry) => Err(BinError::UnknownEntry { entry: entry.name.clone() }),
    }
}

fn check_crc(entry: &Entry, data: &[u8], limits: &Limits) -> Result<(), BinError> {
    let mut hasher = crc32fast::Hasher::new();
    for part in data.chunks(LOOK) {
        limits.check()?;
        hasher.update(part);
    }
    let found = hasher.finalize();
    if found == entry.crc {
        return Ok(());
    }
    Err(BinError::Crc { entry: entry.name.clone(), expected: entry.crc, found })
}

/// Reads the directory and compares it with the header of every entry.
fn index(bytes: &Bytes, limits: &Limits) -> Result<Vec<Entry>, BinError> {
    let archive = ZipLocator::new()
        .max_search_space(END_RECORD)
        .locate_in_slice(bytes.as_ref())
        .map_err(|(_, error)| BinError::Archive { reason: error.to_string() })?;
    let size = bytes.len() as u64;
    if archive.end_offset() != size {
        return Err(BinError::TrailingBytes { bytes: size.saturating_sub(archive.end_offset()) });
    }
    let mut entries = Vec::new();
    // An empty archive is its end records alone: there is no directory to walk through.
    if archive.entries_hint() > 0 {
        let mut directory = archive.entries();
        while let Some(record) = directory.next_entry().map_err(|error| BinError::Directory {
            index: entries.len(),
            reason: error.to_string(),
        })? {
            limits.check_at(entries.len())?;
            entries.push(check_entry(&archive, bytes, entries.len(), &record)?);
        }
    }
    let found = entries.len() as u64;
    if archive.entries_hint() != found {
        return Err(BinError::EntryCount { declared: archive.entries_hint(), found });
    }
    check_distinct(&mut entries, archive.directory_offset())?;
    Ok(entries)
}

fn check_entry(
    archive: &ZipSliceArchive<&[u8]>,
    bytes: &Bytes,
    index: usize,
    record: &rawzip::ZipFileHeaderRecord<'_>,
) -> Result<Entry, BinError> {
    let path = record.file_path();
    let name =
        std::str::from_utf8(path.as_ref()).map_err(|_| BinError::EntryName { index })?.to_owned();
    let not_stored = |how| Err(BinError::NotStored { entry: name.clone(), how });
    let flags = record.flags();
    if record.compression_method() != CompressionMethod::STORE {
        return not_stored("compressed");
    }
    if flags.is_encrypted() || flags.has_strong_encryption() || flags.is_masked() {
        return not_stored("encrypted");
    }
    if flags.has_data_descriptor() {
        return not_stored("written with a data descriptor");
    }
    let truncated = |reason: String| BinError::Truncated { entry: name.clone(), reason };
    let entry =
        archive.get_entry(record.wayfinder()).map_err(|error| truncated(error.to_string()))?;
    check_header(record, &entry, &name)?;

    let (start, end) = entry.compressed_data_range();
    let out_of_range = || truncated(format!("its data at {start}..{end} is outside of the file"));
    let data = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    let data = data.map(|(start, end)| start..end).filter(|data| bytes.get(data.clone()).is_some());
    let data = data.ok_or_else(out_of_range)?;
    Ok(Entry { name, header: record.local_header_offset(), data, crc: record.crc32() })
}

/// The entry's own header must say what the directory says.
fn check_header(
    record: &rawzip::ZipFileHeaderRecord<'_>,
    entry: &ZipSliceEntry<'_>,
    name: &str,
) -> Result<(), BinError> {
    let header = entry.local_header();
    let stored = record.uncompressed_size_hint();
    let path = String::from_utf8_lossy(header.file_path().as_ref()).into_owned();
    let fields = [
        ("name", path, name.to_owned()),
        (
            "method",
            header.compression_method().as_u16().to_string(),
            record.compression_method().as_u16().to_string(),
        ),
        ("flags", header.flags().bits().to_string(), record.flags().bits().to_string()),
        ("CRC-32", format!("{:08x}", header.crc32()), format!("{:08x}", record.crc32())),
        ("size", header.uncompressed_size_hint().to_string(), stored.to_string()),
        ("stored size", header.compressed_size_hint().to_string(), stored.to_string()),
        ("stored size", record.compressed_size_hint().to_string(), stored.to_string()),
    ];
    match fields.into_iter().find(|(_, local, central)| local != central) {
        None => Ok(()),
        Some((field, local, central)) => {
            Err(BinError::HeadersDisagree { entry: name.to_owned(), field, local, central })
        }
    }
}

/// No two entries may share a name or a byte, and none may reach into the directory.
fn check_distinct(entries: &mut [Entry], directory: u64) -> Result<(), BinError> {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some([entry, _]) = entries.windows(2).find_map(|pair| match pair {
        [a, b] if a.name == b.name => Some([a, b]),
        _ => None,
    }) {
        return Err(BinError::DuplicateEntry { entry: entry.name.clone() });
    }
    entries.sort_by_key(|entry| entry.header);
    let ends = entries.iter().map(|entry| (entry.data.end as u64, &entry.name));
    let starts = entries.iter().skip(1).map(|entry| (entry.header, entry.name.as_str()));
    for ((end, first), (start, second)) in ends.zip(starts.chain([(directory, "the directory")])) {
        if end > start {
            return Err(BinError::Overlap { first: first.clone(), second: second.to_owned() });
        }
    }
    Ok(())
}

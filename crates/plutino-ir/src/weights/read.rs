//! Reading: an index of the archive, every statement of which is checked, then for each weight a
//! slice of it, or a part of the file.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use rawzip::{CompressionMethod, ReaderAt, ZipArchive, ZipEntry, ZipFileHeaderRecord, ZipLocator};

use crate::attribute::{Attribute, AttributeError};
use crate::error::BinError;
use crate::graph::{Graph, entry_name};
use crate::in_file::{FilePart, WeightFile};
use crate::limits::Limits;
use crate::load::LoadOptions;
use crate::mmap::Mapping;

/// Length of the longest end record: 22 bytes and a comment.
const END_RECORD: u64 = 22 + u16::MAX as u64;

/// Bytes between two looks at the limits: a fraction of a millisecond.
const LOOK: usize = 1 << 20;

/// Weights of less than this are read when the model is loaded.
const WORTH_LEAVING: usize = 64 << 10;

/// Bytes that a record of the directory, or what follows the header of an entry, has at most.
const RECORD: usize = 46 + 3 * u16::MAX as usize;

/// Where the archive is.
pub(crate) enum Source<'a> {
    /// In memory, which may be a mapped file: weights are slices of it.
    Memory(&'a Bytes, Option<&'a Mapping>),
    /// In a file, where weights of some size stay.
    File(&'a Arc<WeightFile>),
}

impl Source<'_> {
    fn index(&self, limits: &Limits) -> Result<Vec<Entry>, BinError> {
        let locator = ZipLocator::new().max_search_space(END_RECORD);
        let none = |error: rawzip::Error| BinError::Archive { reason: error.to_string() };
        match self {
            Self::Memory(bytes, _) => {
                let archive = locator.locate_in_slice(&bytes[..]).map_err(|(_, e)| none(e))?;
                index(&archive.into_reader_archive(), bytes.len() as u64, limits)
            }
            Self::File(file) => {
                let mut buffer = vec![0; RECORD];
                let found = locator.locate_in_reader(&***file, &mut buffer, file.len());
                index(&found.map_err(|(_, e)| none(e))?, file.len(), limits)
            }
        }
    }

    /// Gives a weight its data, whose length is right.
    fn fill(
        &self,
        attr: &mut Attribute,
        entry: &Entry,
        options: &LoadOptions,
    ) -> Result<(), BinError> {
        match self {
            Self::Memory(bytes, mapping) => {
                let data = bytes.slice(entry.data.start as usize..entry.data.end as usize);
                if options.verify_crc {
                    entry.check_crc(&data, &options.limits)?;
                    // Of a small file all may stay: most is packed, and released, before long.
                    if let Some(mapping) = mapping.filter(|m| !m.is_small()) {
                        mapping.release(&data);
                    }
                }
                let _ = attr.set_data(data);
                attr.set_mapping(mapping.cloned());
            }
            Self::File(file) => {
                let crc = options.verify_crc.then_some(entry.crc);
                let part = FilePart::new(file, &entry.name, entry.data.clone(), crc);
                if attr.byte_len() >= WORTH_LEAVING {
                    attr.leave_in(part);
                    return Ok(());
                }
                let read = part.read_whole().map_err(|error| match error {
                    AttributeError::Checksum { entry, expected, found, .. } => {
                        BinError::Crc { entry, expected, found }
                    }
                    error => entry.truncated(error.to_string()),
                })?;
                let _ = attr.set_data(read);
            }
        }
        Ok(())
    }
}

/// An entry of the archive.
struct Entry {
    name: String,
    /// Where its header begins.
    header: u64,
    /// Where its data begins and ends: inside the archive.
    data: Range<u64>,
    crc: u32,
}

impl Entry {
    fn truncated(&self, reason: String) -> BinError {
        BinError::Truncated { entry: self.name.clone(), reason }
    }

    fn check_crc(&self, data: &[u8], limits: &Limits) -> Result<(), BinError> {
        let mut hasher = crc32fast::Hasher::new();
        for part in data.chunks(LOOK) {
            limits.check()?;
            hasher.update(part);
        }
        let found = hasher.finalize();
        if found == self.crc {
            return Ok(());
        }
        Err(BinError::Crc { entry: self.name.clone(), expected: self.crc, found })
    }
}

/// Gives every weight of the graph its data.
pub(crate) fn attach(
    graph: &mut Graph,
    source: &Source<'_>,
    options: &LoadOptions,
) -> Result<(), BinError> {
    let entries = source.index(&options.limits)?;
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
            let (expected, found) = (attr.byte_len() as u64, entry.data.end - entry.data.start);
            if expected != found {
                return Err(BinError::EntrySize {
                    entry: entry.name.clone(),
                    shape: attr.shape().to_vec(),
                    dtype: attr.dtype(),
                    expected,
                    found,
                });
            }
            source.fill(attr, entry, options)?;
        }
    }
    match entries.iter().find(|entry| by_name.contains_key(entry.name.as_str())) {
        None => Ok(()),
        Some(entry) => Err(BinError::UnknownEntry { entry: entry.name.clone() }),
    }
}

/// Reads the directory of an archive of `size` bytes, and compares it with the header of every
/// entry.
fn index<R: ReaderAt>(
    archive: &ZipArchive<R>,
    size: u64,
    limits: &Limits,
) -> Result<Vec<Entry>, BinError> {
    if archive.end_offset() != size {
        return Err(BinError::TrailingBytes { bytes: size.saturating_sub(archive.end_offset()) });
    }
    let mut entries = Vec::new();
    // An empty archive is its end records alone: there is no directory to walk through.
    if archive.entries_hint() > 0 {
        let (mut buffer, mut header) = (vec![0; RECORD], vec![0; RECORD]);
        let mut directory = archive.entries(&mut buffer);
        while let Some(record) = directory.next_entry().map_err(|error| BinError::Directory {
            index: entries.len(),
            reason: error.to_string(),
        })? {
            limits.check_at(entries.len())?;
            entries.push(check_entry((archive, size), entries.len(), &record, &mut header)?);
        }
    }
    let found = entries.len() as u64;
    if archive.entries_hint() != found {
        return Err(BinError::EntryCount { declared: archive.entries_hint(), found });
    }
    check_distinct(&mut entries, archive.directory_offset())?;
    Ok(entries)
}

/// `buffer` is for what follows the header of the entry.
fn check_entry<R: ReaderAt>(
    (archive, size): (&ZipArchive<R>, u64),
    index: usize,
    record: &ZipFileHeaderRecord<'_>,
    buffer: &mut [u8],
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
    let header = record.local_header_offset();
    if header >= size {
        return Err(truncated(format!("its header at {header} is outside of the file")));
    }
    let entry =
        archive.get_entry(record.wayfinder()).map_err(|error| truncated(error.to_string()))?;
    check_header(record, &entry, &name, buffer)?;

    let (start, end) = entry.compressed_data_range();
    if start > end || end > size {
        return Err(truncated(format!("its data at {start}..{end} is outside of the file")));
    }
    Ok(Entry { name, header, data: start..end, crc: record.crc32() })
}

/// The entry's own header must say what the directory says.
fn check_header<R: ReaderAt>(
    record: &ZipFileHeaderRecord<'_>,
    entry: &ZipEntry<'_, R>,
    name: &str,
    buffer: &mut [u8],
) -> Result<(), BinError> {
    let truncated = |error: rawzip::Error| BinError::Truncated {
        entry: name.to_owned(),
        reason: error.to_string(),
    };
    let header = entry.local_header(buffer).map_err(truncated)?;
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
    let ends = entries.iter().map(|entry| (entry.data.end, &entry.name));
    let starts = entries.iter().skip(1).map(|entry| (entry.header, entry.name.as_str()));
    for ((end, first), (start, second)) in ends.zip(starts.chain([(directory, "the directory")])) {
        if end > start {
            return Err(BinError::Overlap { first: first.clone(), second: second.to_owned() });
        }
    }
    Ok(())
}

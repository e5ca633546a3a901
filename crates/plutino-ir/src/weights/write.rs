//! Writing: every entry stored plainly, with ZIP64 sizes, as pnnx does it. Fields are those of
//! APPNOTE 6.3.

use std::io::{self, Write};

use crate::attribute::AttributeError;
use crate::error::SaveError;
use crate::graph::{Graph, entry_name};

const LOCAL_HEADER: u32 = 0x0403_4b50;
const CENTRAL_HEADER: u32 = 0x0201_4b50;
const ZIP64_END: u32 = 0x0606_4b50;
const ZIP64_LOCATOR: u32 = 0x0706_4b50;
const END: u32 = 0x0605_4b50;

/// Version 4.5 of the format introduced ZIP64.
const VERSION: u16 = 45;
/// "The real value is in the ZIP64 record."
const ELSEWHERE: u32 = u32::MAX;
/// Id of the extra field with 64-bit sizes.
const ZIP64_EXTRA: u16 = 1;
/// 1 January 1980, the first day that the format knows: the same graph gives the same bytes.
const DATE: u16 = 0x0021;

impl Graph {
    /// Writes the `.bin` archive. It is never sought in, so that any writer will do.
    ///
    /// # Errors
    /// If a weight has no data, or the writer fails.
    pub fn write_bin(&self, mut out: impl Write) -> Result<(), SaveError> {
        self.entries()?;
        let mut archive = Archive { out: &mut out, written: 0, directory: Vec::new(), entries: 0 };
        for (_, operator) in self.operators() {
            for (weight, attr) in &operator.attrs {
                let data = attr.look().map_err(|error| {
                    let (operator, weight) = (operator.name.clone(), weight.clone());
                    match error {
                        AttributeError::NotLoaded => SaveError::NotLoaded { operator, weight },
                        error => SaveError::Weight { operator, weight, error },
                    }
                })?;
                let name = entry_name(&operator.name, weight);
                let length = u16::try_from(name.len())
                    .map_err(|_| SaveError::EntryName { entry: name.clone() })?;
                archive.entry(&name, length, &data).map_err(SaveError::Write)?;
            }
        }
        archive.finish().map_err(SaveError::Write)?;
        out.flush().map_err(SaveError::Write)
    }

    /// The bytes of the `.bin` archive.
    ///
    /// # Errors
    /// If a weight has no data.
    pub fn to_bin_bytes(&self) -> Result<Vec<u8>, SaveError> {
        let mut bytes = Vec::new();
        self.write_bin(&mut bytes)?;
        Ok(bytes)
    }
}

struct Archive<'a, W> {
    out: &'a mut W,
    written: u64,
    directory: Vec<u8>,
    entries: u64,
}

/// Little-endian fields, one after the other.
#[derive(Default)]
struct Record(Vec<u8>);

impl Record {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }
}

impl<W: Write> Archive<'_, W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn entry(&mut self, name: &str, name_length: u16, data: &[u8]) -> io::Result<()> {
        let (offset, size, crc) = (self.written, data.len() as u64, crc32fast::hash(data));
        // Flags, method, time and date are the same in both headers, and so are checksum and sizes.
        let common = |record: Record| {
            record
                .u16(0)
                .u16(0)
                .u16(0)
                .u16(DATE)
                .u32(crc)
                .u32(ELSEWHERE)
                .u32(ELSEWHERE)
                .u16(name_length)
        };
        let local = common(Record::default().u32(LOCAL_HEADER).u16(VERSION))
            .u16(20) // length of the extra field
            .bytes(name.as_bytes())
            .u16(ZIP64_EXTRA)
            .u16(16)
            .u64(size)
            .u64(size);
        self.put(&local.0)?;
        self.put(data)?;
        let central = common(Record::default().u32(CENTRAL_HEADER).u16(VERSION).u16(VERSION))
            .u16(28) // length of the extra field
            .u16(0) // comment
            .u16(0) // disk
            .u16(0) // internal attributes
            .u32(0) // external attributes
            .u32(ELSEWHERE)
            .bytes(name.as_bytes())
            .u16(ZIP64_EXTRA)
            .u16(24)
            .u64(size)
            .u64(size)
            .u64(offset);
        self.directory.extend(central.0);
        self.entries += 1;
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        let directory = std::mem::take(&mut self.directory);
        let start = self.written;
        self.put(&directory)?;
        let end = Record::default()
            .u32(ZIP64_END)
            .u64(44) // bytes that follow in this record
            .u16(VERSION)
            .u16(VERSION)
            .u32(0) // disk
            .u32(0) // disk of the directory
            .u64(self.entries)
            .u64(self.entries)
            .u64(directory.len() as u64)
            .u64(start)
            .u32(ZIP64_LOCATOR)
            .u32(0) // disk
            .u64(self.written)
            .u32(1) // disks
            .u32(END)
            .u16(0) // disk
            .u16(0) // disk of the directory
            .u16(u16::MAX)
            .u16(u16::MAX)
            .u32(ELSEWHERE)
            .u32(ELSEWHERE)
            .u16(0); // comment
        self.put(&end.0)
    }
}

//! What lies at a rendezvous: a bounded line of values for each key, and what has come to an end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Why nothing more goes through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// Nobody sends under this key any more, and everything that was sent was received.
    Finished,
    /// Somebody gave up, and said why.
    Aborted(String),
}

/// Values on their way. Keys take memory while something lies there, or once they are finished.
#[derive(Debug)]
pub(crate) struct Table<V> {
    lines: BTreeMap<String, VecDeque<V>>,
    /// Values that may lie under one key.
    room: usize,
    finished: BTreeSet<String>,
    /// No key takes values any more.
    closed: bool,
    aborted: Option<String>,
}

impl<V> Table<V> {
    /// With room for so many values under each key, at least one.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            lines: BTreeMap::new(),
            room: room.max(1),
            finished: BTreeSet::new(),
            closed: false,
            aborted: None,
        }
    }

    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Puts the value there and leaves none behind; nothing, where there is no room yet.
    pub(crate) fn put(&mut self, key: &str, value: &mut Option<V>) -> Option<Result<(), End>> {
        if let Some(why) = &self.aborted {
            return Some(Err(End::Aborted(why.clone())));
        }
        if self.closed || self.finished.contains(key) {
            return Some(Err(End::Finished));
        }
        match self.lines.get_mut(key) {
            Some(line) if line.len() >= self.room => return None,
            Some(line) => line.extend(value.take()),
            None => _ = self.lines.insert(key.to_owned(), value.take().into_iter().collect()),
        }
        Some(Ok(()))
    }

    /// Takes the first value under this key; nothing, where there is none yet.
    pub(crate) fn take(&mut self, key: &str) -> Option<Result<V, End>> {
        if let Some(why) = &self.aborted {
            return Some(Err(End::Aborted(why.clone())));
        }
        if let Some(line) = self.lines.get_mut(key) {
            let value = line.pop_front();
            if line.is_empty() {
                self.lines.remove(key);
            }
            if let Some(value) = value {
                return Some(Ok(value));
            }
        }
        (self.closed || self.finished.contains(key)).then_some(Err(End::Finished))
    }

    /// Values that lie under this key.
    pub(crate) fn len(&self, key: &str) -> usize {
        self.lines.get(key).map_or(0, VecDeque::len)
    }

    /// Nothing more is sent under this key.
    pub(crate) fn finish(&mut self, key: &str) {
        self.finished.insert(key.to_owned());
    }

    /// Nothing more is sent under any key.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Ends everything; what still lies there is handed back, to be dropped elsewhere. The first
    /// reason stays.
    pub(crate) fn abort(&mut self, why: String) -> BTreeMap<String, VecDeque<V>> {
        self.aborted.get_or_insert(why);
        std::mem::take(&mut self.lines)
    }

    pub(crate) fn aborted(&self) -> Option<&str> {
        self.aborted.as_deref()
    }
}

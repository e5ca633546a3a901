//! Requests that are run as one: joined along the first dimension, and taken apart again.

use super::job::Job;
use crate::{Plan, Request, Session, SessionError};
use plutino_tensor::{DType, Tensor, TensorError, concat};
use std::sync::{Arc, Mutex, PoisonError};

/// Verdicts that are kept.
const MOST_VERDICTS: usize = 64;

/// What requests must have in common to be run as one: operands, dtypes, all sizes but the first,
/// and what they fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mate {
    feeds: Vec<(String, DType, Vec<usize>)>,
    fetches: Vec<String>,
}

impl Mate {
    /// Of a request whose feeds all have the same first dimension, which is not 0.
    pub(super) fn of(feeds: &[(String, Tensor)], fetches: &[String]) -> Option<Self> {
        rows(feeds)?;
        let of = |(name, tensor): &(String, Tensor)| {
            (name.clone(), tensor.dtype(), tensor.shape().iter().skip(1).copied().collect())
        };
        Some(Self { feeds: feeds.iter().map(of).collect(), fetches: fetches.to_vec() })
    }
}

/// The first dimension of all feeds.
fn rows(feeds: &[(String, Tensor)]) -> Option<usize> {
    let first = feeds.first()?.1.shape().first().copied().filter(|&rows| rows > 0)?;
    feeds.iter().all(|(_, x)| x.shape().first() == Some(&first)).then_some(first)
}

/// Which requests a model computes row by row, as far as shapes tell: those whose results all have
/// as many rows as the feeds, for two different numbers of them.
#[derive(Debug, Default)]
pub(super) struct Verdicts(Mutex<Vec<(Mate, bool)>>);

impl Verdicts {
    fn of(&self, mate: &Mate) -> Option<bool> {
        let verdicts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.iter().find(|(other, _)| other == mate).map(|&(_, open)| open)
    }

    fn note(&self, mate: &Mate, open: bool) {
        let mut verdicts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if verdicts.len() >= MOST_VERDICTS {
            verdicts.remove(0);
        }
        verdicts.push((mate.clone(), open));
    }
}

/// Several requests as one.
pub(super) struct Joined<'a> {
    jobs: &'a [Arc<Job>],
    feeds: Vec<(&'a str, Tensor)>,
    rows: Vec<usize>,
}

impl<'a> Joined<'a> {
    /// Joins what they feed.
    pub(super) fn new(jobs: &'a [Arc<Job>]) -> Result<Self, TensorError> {
        let rows = jobs.iter().map(|job| rows(&job.feeds).unwrap_or(0)).collect();
        let first = jobs.first().map(|job| &job.feeds[..]).unwrap_or_default();
        let mut feeds = Vec::new();
        for (at, (name, _)) in first.iter().enumerate() {
            let parts: Vec<_> =
                jobs.iter().filter_map(|job| Some(job.feeds.get(at)?.1.view())).collect();
            feeds.push((name.as_str(), concat(&parts, 0)?));
        }
        Ok(Self { jobs, feeds, rows })
    }

    /// The request, without limits.
    pub(super) fn request(&self) -> Request<'_> {
        let feeds = self.feeds.iter();
        let request = feeds.fold(Request::new(), |request, (name, x)| request.feed(name, x));
        let fetches = self.jobs.first().map(|job| &job.fetches[..]).unwrap_or_default();
        fetches.iter().fold(request, |request, name| request.fetch(name))
    }

    /// Whether the model computes them row by row, as far as shapes tell. What plans refuse for
    /// lack of memory or time is no verdict: it is tried again with other numbers.
    pub(super) fn is_open(
        &self,
        session: &Session,
        verdicts: &Verdicts,
        request: &Request<'_>,
    ) -> Result<bool, SessionError> {
        let Some(first) = self.jobs.first() else { return Ok(false) };
        let Some(mate) = &first.mate else { return Ok(false) };
        if let Some(open) = verdicts.of(mate) {
            return Ok(open);
        }
        let (one, all) = (self.rows.first().copied().unwrap_or(0), self.rows.iter().sum());
        if !has_rows(&*session.plan_request(&first.request())?, one) {
            verdicts.note(mate, false);
            return Ok(false);
        }
        let open = match session.plan_request(request) {
            Ok(plan) => has_rows(&plan, all),
            Err(error) if error.is_limit() => return Err(error),
            Err(_) => false,
        };
        verdicts.note(mate, open);
        Ok(open)
    }

    /// Takes results apart: for each request its own.
    pub(super) fn split(&self, results: &[Tensor]) -> Result<Vec<Vec<Tensor>>, TensorError> {
        let mut start = 0usize;
        let mut all = Vec::new();
        for &rows in &self.rows {
            let part = |x: &Tensor| x.view().narrow(0, start, rows)?.to_tensor();
            all.push(results.iter().map(part).collect::<Result<Vec<_>, _>>()?);
            start = start.saturating_add(rows);
        }
        Ok(all)
    }
}

/// Whether all results of a plan have so many rows.
fn has_rows(plan: &Plan, rows: usize) -> bool {
    plan.outputs().all(|(_, spec)| spec.is_some_and(|spec| spec.shape.first() == Some(&rows)))
}

//! Which pass is to blame for a difference: bisection over the list of passes, then over the
//! operators that the pass touched.

use crate::compare::{CompareOptions, Reference};
use crate::passes::{Kind, PIPELINE};
use crate::{Session, SessionError, SessionOptions};

/// Which pass makes a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PassBlame {
    /// The run agrees with the reference, with all passes.
    Nothing,
    /// The run differs without any pass: an operator is wrong.
    NoPass,
    /// The run agrees up to the pass before this one, and differs with it.
    Pass {
        /// Name of the pass.
        name: &'static str,
        /// What to leave out, as options call it: the pass for one or several operators
        /// (`fuse@conv1`), or the pass, where no operators of its own could be found.
        disable: Vec<String>,
        /// Whether leaving that out is enough with all other passes on.
        cured: bool,
    },
}

impl Session {
    /// Finds the pass that makes the run differ from the reference, by bisection: runs that stop
    /// after some pass, then runs that leave the pass out for some operators.
    ///
    /// # Errors
    /// As [`Session::compare`].
    pub fn blame_passes(
        &self,
        reference: &Reference,
        options: &CompareOptions,
    ) -> Result<PassBlame, SessionError> {
        let search = Search { session: self, reference, options };
        let given = search.given();
        if !search.differs(&given)? {
            return Ok(PassBlame::Nothing);
        }
        if search.differs(&given.clone().without_passes())? {
            return Ok(PassBlame::NoPass);
        }
        let last = given.stop_after.as_deref();
        let last = last.and_then(|last| PIPELINE.iter().position(|pass| pass.name == last));
        let passes: Vec<&str> = PIPELINE
            .iter()
            .take(last.map_or(PIPELINE.len(), |last| last + 1))
            .filter(|pass| pass.kind == Kind::Optional && !given.passes_off.contains(pass.name))
            .map(|pass| pass.name)
            .collect();
        // Agrees with the first `good` passes, differs with the first `bad`.
        let (mut good, mut bad) = (0, passes.len());
        while good + 1 < bad {
            let middle = good.midpoint(bad);
            match search.differs(&search.first(&passes, middle))? {
                true => bad = middle,
                false => good = middle,
            }
        }
        let Some(&name) = passes.get(good) else { return Ok(PassBlame::NoPass) };
        let name = PIPELINE.iter().find(|pass| pass.name == name).map_or("", |pass| pass.name);
        let disable = search.operators(&search.first(&passes, bad), name)?;
        let mut without = given;
        without.passes_off.extend(disable.iter().cloned());
        let cured = !search.differs(&without)?;
        Ok(PassBlame::Pass { name, disable, cured })
    }
}

struct Search<'a> {
    session: &'a Session,
    reference: &'a Reference,
    options: &'a CompareOptions,
}

impl Search<'_> {
    /// The session's options, with nothing left to the environment.
    fn given(&self) -> SessionOptions {
        let mut options = self.session.resolved().options.clone();
        options.threads = Some(self.session.threads());
        options.isa = Some(self.session.isa());
        options
    }

    /// Options with the first passes of a list alone.
    fn first(&self, passes: &[&str], count: usize) -> SessionOptions {
        let off = passes.iter().skip(count).map(|&pass| pass.to_owned());
        let mut options = self.given();
        options.passes_off.extend(off);
        options
    }

    fn differs(&self, options: &SessionOptions) -> Result<bool, SessionError> {
        let session = self.session.model().session(options.clone())?;
        Ok(session.compare(self.reference, self.options)?.first().is_some())
    }

    /// For which operators the pass has to be left out: one, if that is enough.
    fn operators(&self, options: &SessionOptions, pass: &str) -> Result<Vec<String>, SessionError> {
        let session = self.session.model().session(options.clone())?;
        let inputs = self.reference.inputs(session.model())?;
        let specs: Vec<_> = inputs.iter().map(plutino_tensor::Tensor::spec).collect();
        let plan = session.plan(&specs)?;
        let done = plan.passes().iter().find(|report| report.name == pass);
        let mut touched: Vec<String> = done
            .iter()
            .flat_map(|report| &report.done)
            .filter(|note| session.model().has_operator(&note.operator)) // else it cannot be named
            .map(|note| format!("{pass}@{}", note.operator))
            .collect();
        touched.sort_unstable();
        touched.dedup();
        let cures = |off: &[String]| {
            let mut options = options.clone();
            options.passes_off.extend(off.iter().cloned());
            Ok::<_, SessionError>(!self.differs(&options)?)
        };
        if touched.is_empty() || !cures(&touched)? {
            return Ok(vec![pass.to_owned()]);
        }
        // The smaller half that is enough; where neither is, all that is left is to blame.
        while touched.len() > 1 {
            let (head, tail) = touched.split_at(touched.len() / 2);
            touched = if cures(head)? {
                head.to_vec()
            } else if cures(tail)? {
                tail.to_vec()
            } else {
                break;
            };
        }
        Ok(touched)
    }
}

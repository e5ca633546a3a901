//! What a model's inputs are: tokens, positions, a mask, and caches.

use crate::GenerateError;
use crate::recipe::{InputRole, Recipe};
use crate::rows::{Rows, RowsError};
use plutino_ir::{Dim, Limits, TensorType};
use plutino_runtime::{Model, Request, Session, SessionError, SessionOptions, State, ValueInfo};
use plutino_tensor::{DType, Tensor};

/// One model of a decoder, ready to run.
pub(crate) struct Part {
    pub(crate) session: Session,
    /// What is made for each run.
    controls: Vec<Control>,
    /// Operands of the caches that it takes, in the order of its outputs behind the scores.
    caches: Vec<String>,
    /// Caches that it yields.
    yields: usize,
}

/// An input that is made for each run.
pub(crate) struct Control {
    pub(crate) role: InputRole,
    pub(crate) operand: String,
    pub(crate) dtype: DType,
    /// Dimensions, as the file records them.
    pub(crate) rank: usize,
    recorded: TensorType,
}

impl Part {
    /// Tells the inputs of a model apart.
    pub(crate) fn new(
        model: &Model,
        recipe: &Recipe,
        options: SessionOptions,
    ) -> Result<Self, GenerateError> {
        let wrong =
            |problem: String| GenerateError::NotADecoder { file: model.file().to_owned(), problem };
        let yields = model.outputs().len().checked_sub(1);
        let yields = yields.ok_or_else(|| wrong("the model has no output".into()))?;
        let inputs = model.inputs();
        let takes = match &recipe.inputs {
            Some(roles) => inputs.len().checked_sub(roles.len()).ok_or_else(|| {
                let (found, named) = (inputs.len(), roles.len());
                wrong(format!("the model has {found} inputs, and its recipe names {named}"))
            })?,
            None => caches(inputs, model.outputs()),
        };
        let (of_run, caches) = inputs.split_at(inputs.len() - takes);
        let roles = match &recipe.inputs {
            Some(roles) => roles.clone(),
            None => guessed(of_run).map_err(&wrong)?,
        };
        let is_tokens = |role: &&InputRole| **role == InputRole::Tokens;
        if roles.iter().filter(is_tokens).count() != 1 {
            return Err(wrong("exactly one input must be tokens".into()));
        }
        let control = |(input, role)| Control::new(input, role).map_err(&wrong);
        let controls = of_run.iter().zip(roles).map(control);
        if takes > yields {
            return Err(wrong(format!("the model takes {takes} caches and yields {yields}")));
        }
        Ok(Self {
            controls: controls.collect::<Result<_, GenerateError>>()?,
            caches: caches.iter().map(|input| input.name.clone()).collect(),
            yields,
            session: model.session(options)?,
        })
    }

    /// Whether it takes caches.
    pub(crate) fn takes_caches(&self) -> bool {
        !self.caches.is_empty()
    }

    pub(crate) fn file(&self) -> &str {
        self.session.model().file()
    }

    pub(crate) fn wrong(&self, problem: impl Into<String>) -> GenerateError {
        GenerateError::NotADecoder { file: self.file().to_owned(), problem: problem.into() }
    }

    /// Whether it can hand on what `step` takes.
    pub(crate) fn suits(&self, step: &Self) -> Result<(), GenerateError> {
        if self.yields != step.caches.len() || self.yields != step.yields {
            return Err(step.wrong(format!(
                "the step takes {} caches and yields {}, but {} yields {}",
                step.caches.len(),
                step.yields,
                self.file(),
                self.yields
            )));
        }
        Ok(())
    }

    /// A dimension of the tokens as the file records it: none where it is open.
    fn fixed(&self, dim: usize) -> Option<usize> {
        let tokens = self.controls.iter().find(|c| c.role == InputRole::Tokens)?;
        match tokens.recorded.shape.as_ref()?.get(dim)? {
            Dim::Known(size) => Some(*size),
            Dim::Unknown | Dim::Symbol(_) => None,
        }
    }

    /// Whether rows are run one by one, because the file was exported for one.
    pub(crate) fn one_row(&self) -> bool {
        self.fixed(0) == Some(1)
    }

    /// How many tokens it was exported for, where that is not open.
    pub(crate) fn tokens(&self) -> Option<usize> {
        self.fixed(1)
    }

    /// Whether rows of different lengths can stand beside each other, filled up in front: the
    /// filling must be hidden, and must not count.
    pub(crate) fn fills(&self) -> bool {
        let of_rows = |role, rank: usize| {
            self.controls.iter().any(|c| c.role == role && c.rank >= rank && c.recorded_rows())
        };
        of_rows(InputRole::Positions, 2) && of_rows(InputRole::Mask, 2)
    }

    /// Empty caches: the first dimension is that of rows, and the only other one that the file
    /// leaves open that of tokens.
    pub(crate) fn empty(&self, rows: usize) -> Result<Vec<Tensor>, GenerateError> {
        let inputs = self.session.model().inputs();
        let empty = |name: &String| {
            let input = inputs.iter().find(|input| input.name == *name);
            let shape = input.and_then(|input| input.recorded.shape.as_ref());
            let dtype = input.and_then(|input| input.dtype());
            let mut open = 0;
            let dims = shape.into_iter().flatten().enumerate().map(|(i, dim)| match dim {
                _ if i == 0 => rows,
                Dim::Known(size) => *size,
                Dim::Unknown | Dim::Symbol(_) => {
                    open += 1;
                    0
                }
            });
            let dims: Vec<usize> = dims.collect();
            match dtype.filter(|_| open == 1) {
                Some(dtype) => Ok(Tensor::zeros(dtype, dims)?),
                None => Err(self.wrong(format!(
                    "the shape of an empty cache cannot be told from input '{name}': export it \
                     with its rows and its tokens open, or with a prefill"
                ))),
            }
        };
        self.caches.iter().map(empty).collect()
    }

    /// A state that carries caches from each run to the next one.
    pub(crate) fn state(&self) -> Result<State, GenerateError> {
        let mut state = self.session.state();
        let made = self.session.model().outputs().iter().skip(1);
        for (input, made) in self.caches.iter().zip(made) {
            state.carry(&made.name, input)?;
        }
        Ok(state)
    }

    /// Lets a state begin with these caches.
    pub(crate) fn begin(
        &self,
        state: &mut State,
        caches: impl IntoIterator<Item = Tensor>,
    ) -> Result<(), GenerateError> {
        for (input, cache) in self.caches.iter().zip(caches) {
            state.set(input, cache)?;
        }
        Ok(())
    }

    /// The scores of a run, and what follows them where `all` is asked for.
    pub(crate) fn run(
        &self,
        rows: &Rows<'_>,
        state: Option<&mut State>,
        all: bool,
        limits: &Limits,
    ) -> Result<(Tensor, impl Iterator<Item = Tensor>), GenerateError> {
        let mut made: Vec<(&str, Tensor)> = Vec::new();
        for control in &self.controls {
            made.push((&control.operand, rows.of(control).map_err(|e| self.fault(e))?));
        }
        let mut request = Request::new();
        for (operand, tensor) in &made {
            request = request.feed(operand, tensor);
        }
        if !all && let Some(scores) = self.session.model().outputs().first() {
            request = request.fetch(&scores.name);
        }
        if let Some(deadline) = limits.deadline {
            request = request.deadline(deadline);
        }
        if let Some(token) = &limits.cancel {
            request = request.cancel(token);
        }
        let outputs = match state {
            Some(state) => self.session.run_request_with_state(state, &request)?,
            None => self.session.run_with(&request)?,
        };
        let mut outputs = outputs.into_iter();
        let scores = outputs.next().ok_or_else(|| self.wrong("the model has no output"))?;
        Ok((scores, outputs))
    }

    /// Whether it can be planned for these rows; another error than that of shapes is one.
    pub(crate) fn accepts(&self, rows: &Rows<'_>, limits: &Limits) -> Result<bool, GenerateError> {
        let mut made = Vec::new();
        for control in &self.controls {
            made.push(rows.of(control).map_err(|e| self.fault(e))?.spec());
        }
        match self.session.plan_within(&made, limits) {
            Ok(_) => Ok(true),
            Err(SessionError::Shape { .. } | SessionError::Plan { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn fault(&self, error: RowsError) -> GenerateError {
        match error {
            RowsError::Input(problem) => self.wrong(problem),
            RowsError::Tensor(error) => error.into(),
        }
    }
}

impl Control {
    fn new(input: &ValueInfo, role: InputRole) -> Result<Self, String> {
        let name = &input.name;
        let shape = input.recorded.shape.as_ref();
        let (Some(dtype), Some(shape)) = (input.dtype(), shape) else {
            return Err(format!("the file records neither dtype nor shape of input '{name}'"));
        };
        let rank = shape.len();
        let fits = match role {
            InputRole::Tokens => rank == 2 && is_integer(dtype),
            InputRole::Positions => (1..=2).contains(&rank) && is_integer(dtype),
            InputRole::Mask => (2..=4).contains(&rank),
        };
        if !fits {
            let wanted = match role {
                InputRole::Tokens => "tokens are integers of shape (rows, tokens)",
                InputRole::Positions => {
                    "positions are integers of shape (rows, tokens) or (tokens)"
                }
                InputRole::Mask => "a mask has 2 to 4 dimensions",
            };
            return Err(format!("input '{name}' is {}: {wanted}", input.recorded));
        }
        let (operand, recorded) = (name.clone(), input.recorded.clone());
        Ok(Self { role, operand, dtype, rank, recorded })
    }

    /// Whether its first dimension is that of rows, as far as the file says.
    fn recorded_rows(&self) -> bool {
        let first = self.recorded.shape.as_ref().and_then(|shape| shape.first());
        self.rank > 1 && first != Some(&Dim::Known(1))
    }
}

fn is_integer(dtype: DType) -> bool {
    !dtype.is_float() && !dtype.is_complex() && dtype != DType::Bool
}

/// How many inputs at the end are caches: as many as there are outputs behind the scores, where
/// they look like these.
fn caches(inputs: &[ValueInfo], outputs: &[ValueInfo]) -> usize {
    let yields = outputs.len().saturating_sub(1);
    let Some(last) = inputs.len().checked_sub(yields).and_then(|at| inputs.get(at..)) else {
        return 0;
    };
    let rank = |value: &ValueInfo| value.recorded.shape.as_ref().map(Vec::len);
    let alike = |(a, b): (&ValueInfo, &ValueInfo)| {
        a.recorded.dtype == b.recorded.dtype && rank(a) == rank(b)
    };
    let behind = outputs.get(1..).unwrap_or_default();
    if last.len() < inputs.len() && last.iter().zip(behind).all(alike) { yields } else { 0 }
}

/// Roles by dtype: tokens first, then positions, and a mask of floats or bools.
fn guessed(inputs: &[ValueInfo]) -> Result<Vec<InputRole>, String> {
    let mut roles = Vec::new();
    for input in inputs {
        let dtype = input.dtype();
        let role = match dtype {
            Some(dtype) if is_integer(dtype) && roles.is_empty() => InputRole::Tokens,
            Some(dtype) if is_integer(dtype) => InputRole::Positions,
            _ => InputRole::Mask,
        };
        if roles.contains(&role) {
            return Err(format!(
                "what input '{}' is cannot be told from its dtype: say so in model.generate.json, \
                 as \"inputs\": [\"tokens\", \"mask\", \"positions\"]",
                input.name
            ));
        }
        roles.push(role);
    }
    Ok(roles)
}

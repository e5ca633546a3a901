//! Decoding a node: every parameter is read or reported.

use super::{
    Asked, AskedSort, BuildError, BuildProblem, Location, ShapeError, ValueSpec, Weight, dtype_of,
};
use crate::native::Call;
use plutino_ir::{Dim, Parameter, TensorType};
use plutino_tensor::{DType, TensorSpec};
use std::collections::{BTreeMap, BTreeSet};

/// Reads the parameters, weights and inputs of one node. What nobody read is an error, never
/// silence.
pub struct NodeReader<'a> {
    file: &'a str,
    op: &'a plutino_ir::Operator,
    graph: Option<&'a plutino_ir::Graph>,
    /// What the argument is called that each input stands for, where that is known.
    names: Vec<Option<&'a str>>,
    /// How a raw operator is read, and the constants among its inputs that have a name.
    call: Option<&'a Call>,
    named_constants: BTreeMap<&'a str, &'a Parameter>,
    /// Constants among the inputs of a public type, by name: where they are, for whoever asks for
    /// a parameter; whoever asks for an input gets the input.
    offered: BTreeMap<&'a str, (usize, &'a Parameter)>,
    read_params: BTreeSet<&'a str>,
    read_weights: BTreeSet<&'a str>,
    read_inputs: BTreeSet<usize>,
    /// What was asked for, where somebody wants to know.
    asked: Option<Vec<Asked>>,
}

impl<'a> NodeReader<'a> {
    /// A reader of this node of the file named `file`.
    pub fn new(file: &'a str, op: &'a plutino_ir::Operator) -> Self {
        Self {
            file,
            op,
            graph: None,
            names: op.input_names.iter().map(Option::as_deref).collect(),
            call: None,
            named_constants: BTreeMap::new(),
            offered: BTreeMap::new(),
            read_params: BTreeSet::new(),
            read_weights: BTreeSet::new(),
            read_inputs: BTreeSet::new(),
            asked: None,
        }
    }

    /// For each input the name of the argument that it stands for, where that is known.
    pub(super) fn input_names(&self) -> Vec<Option<&'a str>> {
        let given = self.call.map(|call| &call.names[..]).unwrap_or_default();
        let names = self.names.iter().enumerate();
        names.map(|(i, &name)| name.or_else(|| given.get(i).copied().flatten())).collect()
    }

    /// The parameters, and the constants that count as such.
    pub(super) fn known_params(&self) -> BTreeMap<String, Parameter> {
        let constants = self.named_constants.iter().map(|(key, value)| (*key, *value));
        let offered = self.offered.iter().map(|(key, (_, value))| (*key, *value));
        let all = constants.chain(offered).map(|(key, value)| (key.to_owned(), value.clone()));
        all.chain(self.params().clone()).collect()
    }

    /// Keeps what the builder asks for.
    pub(crate) fn record(&mut self) {
        self.asked = Some(Vec::new());
    }

    /// What the builder asked for, in its order.
    pub(crate) fn into_asked(self) -> Vec<Asked> {
        self.asked.unwrap_or_default()
    }

    fn ask(&mut self, sort: AskedSort, key: &str, expected: &str, default: Option<&str>) {
        if let Some(asked) = &mut self.asked {
            let (key, expected) = (key.to_owned(), expected.to_owned());
            asked.push(Asked { sort, key, expected, default: default.map(str::to_owned) });
        }
    }

    /// As [`NodeReader::new`], with what `graph` records of the node's inputs and outputs, and read
    /// as `call` says.
    pub(crate) fn in_graph(
        file: &'a str,
        graph: &'a plutino_ir::Graph,
        op: &'a plutino_ir::Operator,
        call: &'a Call,
    ) -> Self {
        let mut reader = Self { graph: Some(graph), call: Some(call), ..Self::new(file, op) };
        if call.params.is_some() {
            reader.names.clone_from(&call.names);
        } else if call.names.is_empty() {
            reader.offer(call);
        } else {
            for (i, name) in call.names.iter().enumerate() {
                if let Some(name) = name {
                    reader.name_input(i, name);
                }
            }
        }
        reader.named_constants.extend(call.implied.iter().map(|(name, value)| (*name, value)));
        reader
    }

    /// Names an input; a constant counts as a parameter from now on.
    fn name_input(&mut self, i: usize, name: &'static str) {
        let constant = self.call.and_then(|call| call.constants.get(i)?.as_ref());
        if let Some(constant) = constant {
            self.named_constants.insert(name, constant);
            self.read_inputs.insert(i);
        } else if let Some(slot @ None) = self.names.get_mut(i) {
            *slot = Some(name);
        }
    }

    /// Makes constants parameters to whoever asks for one. What is `None` is no input at all.
    fn offer(&mut self, call: &'a Call) {
        for (i, constant) in call.constants.iter().enumerate() {
            let Some(slot) = self.names.get_mut(i) else { continue };
            *slot = slot.or_else(|| call.places.get(i).copied());
            match (*slot, constant) {
                (Some(name), Some(value)) if value.is_null() => {
                    self.named_constants.insert(name, value);
                    self.read_inputs.insert(i);
                    *slot = None;
                }
                (Some(name), Some(value)) => {
                    self.offered.insert(name, (i, value));
                }
                _ => {}
            }
        }
    }

    /// The constant input of this name that nobody has asked for as an input.
    fn offered(&self, key: &str) -> Option<(&'a str, usize, &'a Parameter)> {
        let (&name, &(at, value)) = self.offered.get_key_value(key)?;
        let free = !self.read_inputs.contains(&at) || self.read_params.contains(name);
        free.then_some((name, at, value))
    }

    /// The dtype that the file records for the first output: a hint, often missing.
    pub fn recorded_dtype(&self) -> Option<DType> {
        self.recorded(self.op.outputs.first())?.dtype.map(dtype_of)
    }

    /// The dtype that the file records for the input at this position: a hint, often missing.
    pub fn recorded_input_dtype(&self, at: usize) -> Option<DType> {
        self.recorded(self.op.inputs.get(at))?.dtype.map(dtype_of)
    }

    /// The shape that the file records for the input at this position: a hint, often missing.
    pub fn recorded_input(&self, at: usize) -> Option<&'a [Dim]> {
        self.recorded(self.op.inputs.get(at))?.shape.as_deref()
    }

    /// The shape that the file records for the output at this position: a hint, often missing.
    pub fn recorded_output(&self, at: usize) -> Option<&'a [Dim]> {
        self.recorded(self.op.outputs.get(at))?.shape.as_deref()
    }

    /// The sizes that the file records for the input at this position, where it records all.
    pub fn known_input(&self, at: usize) -> Option<Vec<usize>> {
        self.recorded(self.op.inputs.get(at))?.known_shape()
    }

    /// The sizes that the file records for the output at this position, where it records all.
    pub fn known_output(&self, at: usize) -> Option<Vec<usize>> {
        self.recorded(self.op.outputs.get(at))?.known_shape()
    }

    fn recorded(&self, operand: Option<&plutino_ir::OperandId>) -> Option<&'a TensorType> {
        Some(&self.graph?.operand(*operand?)?.ty)
    }

    /// The node's type, such as `nn.ReLU`; for a raw operator that of its public form, where it has
    /// one.
    pub fn kind(&self) -> &'a str {
        self.call.and_then(|call| call.kind).unwrap_or(&self.op.kind)
    }

    /// The node's name, such as `layer1.0.conv1`.
    pub fn name(&self) -> &'a str {
        &self.op.name
    }

    /// Number of inputs of the node.
    pub fn input_count(&self) -> usize {
        self.op.inputs.len()
    }

    /// Number of outputs of the node.
    pub fn output_count(&self) -> usize {
        self.op.outputs.len()
    }

    /// An error about this node.
    pub fn error(&self, problem: BuildProblem) -> BuildError {
        BuildError { location: Box::new(Location::of(self.file, self.op)), problem }
    }

    /// An error about the value of parameter `key`.
    pub fn bad(&self, key: &str, expected: impl Into<String>) -> BuildError {
        let found = self.value(key).map_or_else(|| "nothing".into(), ToString::to_string);
        self.error(BuildProblem::BadParameter { key: key.into(), expected: expected.into(), found })
    }

    /// The raw parameter; counts as read.
    pub fn raw(&mut self, key: &str) -> Option<&'a Parameter> {
        self.ask(AskedSort::Parameter, key, "", Some("None"));
        self.look(key)
    }

    /// The parameters, by the names under which builders ask for them.
    fn params(&self) -> &'a BTreeMap<String, Parameter> {
        self.call.and_then(|call| call.params.as_ref()).unwrap_or(&self.op.params)
    }

    fn look(&mut self, key: &str) -> Option<&'a Parameter> {
        if let Some((key, _)) = self.params().get_key_value(key) {
            self.read_params.insert(key);
        } else if let Some((key, _)) = self.named_constants.get_key_value(key) {
            self.read_params.insert(key);
        } else if let Some((key, at, _)) = self.offered(key) {
            self.read_params.insert(key);
            self.read_inputs.insert(at);
        }
        self.value(key)
    }

    fn value(&self, key: &str) -> Option<&'a Parameter> {
        let named = || self.named_constants.get(key).copied();
        let offered = || self.offered(key).map(|(_, _, value)| value);
        self.params().get(key).or_else(named).or_else(offered)
    }

    /// Whether the node has this parameter, be it `None`.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// A parameter that must be there.
    ///
    /// # Errors
    /// Where it is missing or of another kind.
    pub fn required<T: FromParameter>(&mut self, key: &str) -> Result<T, BuildError> {
        self.ask(AskedSort::Parameter, key, T::EXPECTED, None);
        match self.look(key) {
            None => Err(self.error(BuildProblem::MissingParameter {
                key: key.into(),
                expected: T::EXPECTED.into(),
            })),
            Some(value) => T::from_parameter(value).ok_or_else(|| self.bad(key, T::EXPECTED)),
        }
    }

    /// A parameter that may be missing or `None`.
    ///
    /// # Errors
    /// Where it is of another kind.
    pub fn optional<T: FromParameter>(&mut self, key: &str) -> Result<Option<T>, BuildError> {
        self.ask(AskedSort::Parameter, key, T::EXPECTED, Some("None"));
        self.given(key)
    }

    fn given<T: FromParameter>(&mut self, key: &str) -> Result<Option<T>, BuildError> {
        match self.look(key) {
            None | Some(Parameter::Null) => Ok(None),
            Some(value) => match T::from_parameter(value) {
                Some(v) => Ok(Some(v)),
                None => Err(self.bad(key, T::EXPECTED)),
            },
        }
    }

    /// A parameter with a default for where it is missing or `None`.
    ///
    /// # Errors
    /// Where it is of another kind.
    pub fn or<T: FromParameter>(&mut self, key: &str, default: T) -> Result<T, BuildError> {
        self.ask(AskedSort::Parameter, key, T::EXPECTED, Some(&format!("{default:?}")));
        Ok(self.given(key)?.unwrap_or(default))
    }

    /// A word out of a table; `default` for where it is missing or `None`.
    ///
    /// # Errors
    /// Where it is none of the words, or missing without a default.
    pub fn one_of<T: Clone>(
        &mut self,
        key: &str,
        table: &[(&str, T)],
        default: Option<T>,
    ) -> Result<T, BuildError> {
        let words = || {
            let words: Vec<_> = table.iter().map(|(w, _)| *w).collect();
            format!("one of {}", words.join(", "))
        };
        let standing = default.as_ref().map(|_| "None"); // the word is not known, but its meaning
        self.ask(AskedSort::Parameter, key, &words(), standing);
        match (self.look(key), default) {
            (None | Some(Parameter::Null), Some(default)) => Ok(default),
            (None, None) => {
                Err(self
                    .error(BuildProblem::MissingParameter { key: key.into(), expected: words() }))
            }
            (Some(value), _) => value
                .as_str()
                .and_then(|w| table.iter().find(|(word, _)| *word == w))
                .map(|(_, v)| v.clone())
                .ok_or_else(|| self.bad(key, words())),
        }
    }

    /// `rank` integers of at least `least`; a single one stands for all.
    ///
    /// # Errors
    /// Where they are missing without a default, of another number, or too small.
    pub fn sizes(
        &mut self,
        key: &str,
        rank: usize,
        least: usize,
        default: Option<usize>,
    ) -> Result<Vec<usize>, BuildError> {
        let expected = format!("{rank} integers of at least {least}");
        let standing = default.map(|size| size.to_string());
        self.ask(AskedSort::Parameter, key, &expected, standing.as_deref());
        let given = match (self.look(key), default) {
            (None | Some(Parameter::Null), Some(default)) => return Ok(vec![default; rank]),
            (None, None) => {
                return Err(
                    self.error(BuildProblem::MissingParameter { key: key.into(), expected })
                );
            }
            (Some(value), _) => {
                Vec::<i64>::from_parameter(value).ok_or_else(|| self.bad(key, &*expected))?
            }
        };
        let all = if given.len() == 1 { vec![given[0]; rank] } else { given };
        let sizes: Option<Vec<usize>> =
            all.iter().map(|&v| usize::try_from(v).ok().filter(|&v| v >= least)).collect();
        sizes.filter(|s| s.len() == rank).ok_or_else(|| self.bad(key, expected))
    }

    /// [`NodeReader::sizes`] of the two dimensions of an image.
    ///
    /// # Errors
    /// As there.
    pub fn pair(
        &mut self,
        key: &str,
        least: usize,
        default: Option<usize>,
    ) -> Result<[usize; 2], BuildError> {
        let sizes = self.sizes(key, 2, least, default)?;
        sizes[..].try_into().map_err(|_| self.bad(key, "a size, or two"))
    }

    /// A weight of these dimensions.
    ///
    /// # Errors
    /// Where it is missing or of another shape.
    pub fn weight(&mut self, key: &str, dims: &[usize]) -> Result<Weight, BuildError> {
        let weight = self.any_weight(key)?;
        if weight.dims() == dims {
            return Ok(weight);
        }
        Err(self.error(BuildProblem::BadWeight {
            key: key.into(),
            expected: format!("of shape {}", plutino_tensor::Shape::from(dims)),
            found: weight.spec.to_string(),
        }))
    }

    /// A weight of these dimensions where `present` holds.
    ///
    /// # Errors
    /// As [`NodeReader::weight`].
    pub fn weight_if(
        &mut self,
        present: bool,
        key: &str,
        dims: &[usize],
    ) -> Result<Option<Weight>, BuildError> {
        present.then(|| self.weight(key, dims)).transpose()
    }

    /// Whether the node has this weight.
    pub fn has_weight(&self, key: &str) -> bool {
        self.op.attrs.contains_key(key)
    }

    /// A weight of any shape.
    ///
    /// # Errors
    /// Where it is missing.
    pub fn any_weight(&mut self, key: &str) -> Result<Weight, BuildError> {
        self.ask(AskedSort::Weight, key, "", None);
        let Some((key, attr)) = self.op.attrs.get_key_value(key) else {
            return Err(self.error(BuildProblem::MissingWeight { key: key.into() }));
        };
        self.read_weights.insert(key);
        let name = format!("{}.{key}", self.op.name).into();
        Ok(Weight::new(name, TensorSpec::new(dtype_of(attr.dtype()), attr.shape()), attr))
    }

    /// The position of the input that stands for argument `key`: the one that the file names so,
    /// else the first unnamed one that was not asked for yet.
    pub fn input(&mut self, key: &str) -> Option<usize> {
        self.ask(AskedSort::Input, key, "", Some("None"));
        self.find_input(key)
    }

    fn find_input(&mut self, key: &str) -> Option<usize> {
        let names = &self.names;
        let free = |i: &usize| !self.read_inputs.contains(i);
        let named = (0..names.len()).filter(free).find(|&i| names[i] == Some(key));
        let at = named.or_else(|| {
            (0..self.op.inputs.len())
                .filter(free)
                .find(|&i| names.get(i).is_none_or(Option::is_none))
        })?;
        self.read_inputs.insert(at);
        Some(at)
    }

    /// The position of the input that the file names `key`.
    pub fn named_input(&mut self, key: &str) -> Option<usize> {
        self.ask(AskedSort::Input, key, "", Some("None"));
        let at = self.names.iter().position(|&name| name == Some(key))?;
        self.read_inputs.insert(at);
        Some(at)
    }

    /// The position of an input that must be there.
    ///
    /// # Errors
    /// Where it is missing.
    pub fn required_input(&mut self, key: &str) -> Result<usize, BuildError> {
        self.ask(AskedSort::Input, key, "", None);
        let found = self.find_input(key);
        found.ok_or_else(|| self.error(BuildProblem::MissingInput { key: key.into() }))
    }

    /// The first position at which the tensor of input `at` is an input of this node.
    pub fn first_use(&self, at: usize) -> usize {
        let operand = self.op.inputs.get(at);
        self.op.inputs.iter().position(|other| Some(other) == operand).unwrap_or(at)
    }

    /// Whether this input is a constant of the model, as far as that is known.
    pub fn is_constant(&self, at: usize) -> bool {
        let producer = || self.graph?.operand(*self.op.inputs.get(at)?)?.producer;
        let operator = producer().and_then(|id| self.graph?.operator(id));
        operator.is_some_and(|operator| operator.kind == "pnnx.Attribute")
    }

    /// Whether the file names an input so.
    pub fn names_input(&self, key: &str) -> bool {
        self.names.contains(&Some(key))
    }

    /// Whether the file has a reader for this output, as far as that is known.
    pub fn is_read(&self, output: usize) -> bool {
        let operand = self.op.outputs.get(output).and_then(|&id| self.graph?.operand(id));
        operand.is_some_and(|operand| !operand.consumers.is_empty())
    }

    /// The positions of all inputs that were not asked for yet, but for named constants: these are
    /// parameters.
    pub fn rest(&mut self) -> Vec<usize> {
        let constant = |i: &usize| self.offered.values().any(|(at, _)| at == i);
        let free = |i: &usize| !self.read_inputs.contains(i) && !constant(i);
        let rest: Vec<_> = (0..self.op.inputs.len()).filter(free).collect();
        self.read_inputs.extend(&rest);
        rest
    }

    /// An argument that is either a parameter or an input of the same name; none where it is
    /// neither, or `None`.
    ///
    /// # Errors
    /// Where the parameter is of another kind.
    pub fn arg<T: FromParameter>(&mut self, key: &str) -> Result<Option<Arg<T>>, BuildError> {
        if let Some(at) = self.named_input(key) {
            return Ok(Some(Arg::Input(at)));
        }
        Ok(self.optional(key)?.map(Arg::Value))
    }

    /// Checks that nothing was left unread.
    ///
    /// # Errors
    /// Names the first parameter or weight that nobody read, or the number of inputs nobody asked
    /// for.
    pub fn finish(&self) -> Result<(), BuildError> {
        let unread = |key: &str| !self.read_params.contains(key);
        let optional = |key: &str| {
            let none = self.named_constants.get(key).is_some_and(|value| value.is_null());
            none || self.call.is_some_and(|call| call.optional.contains(&key))
        };
        let constants = self.named_constants.iter().map(|(key, value)| (*key, *value));
        // Arguments that the native schema has and the builder does not may have their defaults.
        let named = self.call.is_some_and(|call| call.params.is_some());
        let mut params = self.params().iter().map(|(key, value)| (key.as_str(), value));
        let mut offered = self.offered.iter().filter(|(_, (at, _))| !self.read_inputs.contains(at));
        let idle = offered.clone().filter(|(key, _)| optional(key)).count();
        let unknown = params
            .find(|(key, _)| unread(key) && !(named && optional(key)))
            .or_else(|| constants.clone().find(|(key, _)| unread(key) && !optional(key)))
            .or_else(|| offered.find(|(key, _)| !optional(key)).map(|(key, (_, v))| (*key, *v)));
        if let Some((key, value)) = unknown {
            let (key, value) = (key.to_owned(), value.to_string());
            return Err(self.error(BuildProblem::UnknownParameter { key, value }));
        }
        if let Some(key) = self.op.attrs.keys().find(|k| !self.read_weights.contains(k.as_str())) {
            return Err(self.error(BuildProblem::UnknownWeight { key: key.clone() }));
        }
        let (expected, found) = (self.read_inputs.len() + idle, self.op.inputs.len());
        if expected < found {
            return Err(self.error(BuildProblem::UnknownInputs { expected, found }));
        }
        Ok(())
    }
}

/// An argument that the file gives as a parameter, or as an input of the same name.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg<T> {
    /// A parameter.
    Value(T),
    /// The input at this position.
    Input(usize),
}

impl Arg<Vec<i64>> {
    /// The integers, where they are known before the run.
    ///
    /// # Errors
    /// Where the input depends on data.
    pub fn ints(&self, inputs: &[ValueSpec]) -> Result<Vec<i64>, ShapeError> {
        match self {
            Self::Value(v) => Ok(v.clone()),
            &Self::Input(input) => inputs
                .get(input)
                .and_then(ValueSpec::known_ints)
                .ok_or_else(|| ShapeError::NotKnown { input, what: "integers".into() }),
        }
    }
}

impl Arg<Vec<f64>> {
    /// The floats, where they are known before the run.
    ///
    /// # Errors
    /// Where the input depends on data.
    pub fn floats(&self, inputs: &[ValueSpec]) -> Result<Vec<f64>, ShapeError> {
        match self {
            Self::Value(v) => Ok(v.clone()),
            &Self::Input(input) => inputs
                .get(input)
                .and_then(ValueSpec::known_floats)
                .ok_or_else(|| ShapeError::NotKnown { input, what: "numbers".into() }),
        }
    }
}

impl Arg<i64> {
    /// The integer, where it is known before the run.
    ///
    /// # Errors
    /// Where the input depends on data, or is not one integer.
    pub fn int(&self, inputs: &[ValueSpec]) -> Result<i64, ShapeError> {
        match self {
            Self::Value(v) => Ok(*v),
            &Self::Input(input) => {
                match inputs.get(input).and_then(ValueSpec::known_ints).as_deref() {
                    Some(&[v]) => Ok(v),
                    _ => Err(ShapeError::NotKnown { input, what: "an integer".into() }),
                }
            }
        }
    }
}

/// A Rust type that a parameter can be read as.
pub trait FromParameter: Sized + std::fmt::Debug {
    /// What the parameter must be, for messages.
    const EXPECTED: &'static str;
    /// Reads it, where its kind allows.
    fn from_parameter(value: &Parameter) -> Option<Self>;
}

macro_rules! from_parameter {
    ($($t:ty, $expected:literal => |$v:ident| $read:expr;)*) => {$(
        impl FromParameter for $t {
            const EXPECTED: &'static str = $expected;
            fn from_parameter($v: &Parameter) -> Option<Self> {
                $read
            }
        }
    )*};
}

from_parameter! {
    bool, "True or False" => |v| v.as_bool();
    i64, "an integer" => |v| integer(v);
    usize, "an integer of at least 0" => |v| usize::try_from(integer(v)?).ok();
    f64, "a number" => |v| v.as_float();
    f32, "a number" => |v| v.as_float().map(|x| x as f32);
    String, "a word" => |v| v.as_str().map(str::to_owned);
    // A single number stands for a list of one: PNNX writes both.
    Vec<i64>, "integers" => |v| match v {
        Parameter::Null => Some(Vec::new()),
        Parameter::Strs(all) => all.iter().map(|x| folded(x).or_else(|| x.parse().ok())).collect(),
        _ => v.as_ints().map(<[_]>::to_vec).or_else(|| integer(v).map(|x| vec![x])),
    };
    Vec<f64>, "numbers" => |v| match v {
        Parameter::Null => Some(Vec::new()),
        _ => v.as_floats().map(|x| x.into_owned()).or_else(|| v.as_float().map(|x| vec![x])),
    };
    DType, "a dtype such as torch.float" => |v| torch_dtype(v.as_str()?);
}

/// An integer, also as pnnx writes one that it has folded.
fn integer(value: &Parameter) -> Option<i64> {
    value.as_int().or_else(|| folded(value.as_str()?))
}

/// What pnnx writes for an integer that it has folded: `int(750)`.
fn folded(text: &str) -> Option<i64> {
    text.strip_prefix("int(")?.strip_suffix(')')?.parse().ok()
}

/// PyTorch's name of a dtype.
fn torch_dtype(name: &str) -> Option<DType> {
    Some(match name.strip_prefix("torch.").unwrap_or(name) {
        "float" | "float32" => DType::F32,
        "double" | "float64" => DType::F64,
        "half" | "float16" => DType::F16,
        "bfloat16" => DType::Bf16,
        "long" | "int64" => DType::I64,
        "int" | "int32" => DType::I32,
        "short" | "int16" => DType::I16,
        "int8" => DType::I8,
        "uint8" => DType::U8,
        "bool" => DType::Bool,
        "complex64" | "cfloat" => DType::C64,
        "complex128" | "cdouble" => DType::C128,
        "complex32" | "chalf" => DType::C32,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_node<R>(line: &str, f: impl FnOnce(&mut NodeReader<'_>) -> R) -> R {
        let text = format!("7767517\n3 3\npnnx.Input a 0 1 0\npnnx.Input b 0 1 1\n{line}\n");
        let graph = plutino_ir::Graph::parse(&text).unwrap();
        let (_, op) = graph.operators().last().unwrap();
        f(&mut NodeReader::new("t.param", op))
    }

    /// Calls `f` with a node that reads `a`, `b` and a constant of each text.
    fn with_constants<R>(
        kind: &str,
        texts: &[&str],
        f: impl FnOnce(&mut NodeReader<'_>) -> R,
    ) -> R {
        let mut text = format!("7767517\n{0} {0}\npnnx.Input a 0 1 0\n", texts.len() + 2);
        let mut inputs = "0".to_owned();
        for (i, constant) in texts.iter().enumerate() {
            text += &format!("pnnx.Expression e{i} 0 1 c{i} expr={constant}\n");
            inputs += &format!(" c{i}");
        }
        text += &format!("{kind} x {} 1 {inputs} y\n", texts.len() + 1);
        let graph = plutino_ir::Graph::parse(&text).unwrap();
        let (_, op) = graph.operators().last().unwrap();
        let call = crate::native::call(crate::registry().unwrap(), &graph, op);
        f(&mut NodeReader::in_graph("t.param", &graph, op, &call))
    }

    #[test]
    fn constants_of_raw_operators_are_parameters() {
        // scatter_reduce(self, dim, index, src, reduce, *, include_self=True)
        let texts = ["2", "@0", "@0", "amax", "False"];
        with_constants("aten::scatter_reduce", &texts, |r| {
            assert_eq!(r.required_input("input"), Ok(0));
            assert_eq!(r.input("dim"), None);
            assert!(r.has("dim") && !r.has("not there"));
            assert_eq!(r.required::<i64>("dim"), Ok(2));
            assert_eq!(r.arg("dim"), Ok(Some(Arg::Value(2i64))));
            assert_eq!(r.one_of("reduce", &[("amin", 1), ("amax", 2)], None), Ok(2));
            let error = r.required::<i64>("reduce").unwrap_err().to_string();
            assert!(error.contains("parameter 'reduce' must be an integer, found amax"), "{error}");
            assert_eq!((r.input("index"), r.input("src")), (Some(2), Some(3)));
            assert!(r.finish().is_err(), "include_self is not the default, and was not read");
            assert_eq!(r.or("include_self", true), Ok(false));
            assert!(r.finish().is_ok());
        });
        // Under its public name, in the same order: a parameter to whoever asks for one.
        with_constants("torch.scatter_reduce", &texts, |r| {
            assert_eq!(r.required::<i64>("dim"), Ok(2));
            assert_eq!((r.input("src"), r.input("dim")), (Some(3), None));
            assert_eq!(r.rest(), [0, 2], "constants are no tensors");
            assert!(r.finish().is_err(), "reduce and include_self were not read");
            assert_eq!(r.or("reduce", String::new()), Ok("amax".into()));
            assert_eq!(r.or("include_self", true), Ok(false));
            assert!(r.finish().is_ok());
        });
        // What has no schema has no places.
        with_constants("torch.scatter_reduced", &texts, |r| {
            assert!(!r.has("dim"));
            assert_eq!(r.rest().len(), 6);
        });
        // new_full(self, size, fill_value)
        with_constants("aten::new_full", &["[1,2]", "-inf"], |r| {
            assert_eq!(r.required("size"), Ok(vec![1i64, 2]));
            assert_eq!(r.required("fill_value"), Ok(f64::NEG_INFINITY));
        });
    }

    #[test]
    fn what_is_computed_stays_an_input() {
        with_constants("aten::lerp", &["add(1,2)", "7"], |r| {
            assert_eq!(r.arg("end"), Ok(Some(Arg::<i64>::Input(1))));
            assert_eq!(r.input("input"), Some(0));
            assert_eq!(r.arg("weight"), Ok(Some(Arg::Value(7i64))));
        });
    }

    #[test]
    fn unread_parameters_are_errors() {
        with_node("nn.X x 1 1 0 2 stride=(2,0) bias=True", |r| {
            assert_eq!(r.required::<bool>("bias"), Ok(true));
            let error = r.sizes("stride", 2, 1, None).unwrap_err();
            assert_eq!(
                error.to_string(),
                "t.param:5: nn.X 'x': parameter 'stride' must be 2 integers of at least 1, found (2,0)"
            );
        });
        with_node("nn.X x 1 1 0 2 bias=True", |r| {
            r.input("input").unwrap();
            let error = r.finish().unwrap_err();
            assert!(error.to_string().contains("'bias=True' is not known"), "{error}");
        });
    }

    #[test]
    fn inputs_are_found_by_name_then_by_position() {
        with_node("F.x x 2 1 0 1 2 $other=0 $input=1", |r| {
            assert_eq!(r.input("input"), Some(1));
            assert!(r.finish().is_err());
            assert_eq!(r.input("other"), Some(0));
            assert!(r.finish().is_ok());
        });
        with_node("F.x x 2 1 0 0 2 $input=0 $other=0", |r| {
            assert_eq!((r.input("input"), r.input("other")), (Some(0), Some(1)));
        });
    }
}

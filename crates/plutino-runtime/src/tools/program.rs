//! Programs: graphs of models, made in a few lines.

use crate::control::is_control;
use crate::{Model, ModelError, ModelOptions};
use plutino_ir::{
    Definition, Definitions, EditError, Graph, LoadError, LoadOptions, OperandId, OperatorId,
    Parameter, SaveError, TensorType,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A graph of models: calls of definitions, branches and loops over them, and whatever operators
/// lie between. It is a PNNX graph like others, and is saved as one, beside a folder of its
/// definitions.
///
/// ```
/// # use plutino_ops as _;
/// use plutino_ir::Graph;
/// use plutino_runtime::{Program, SessionOptions};
/// use plutino_tensor::Tensor;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // sqrt(a) by Newton's method: x = (x + a / x) / 2, until x * x is close to a
/// let step = Graph::parse(
///     "7767517\n4 3\n\
///      pnnx.Input       in0  0 1 x\n\
///      pnnx.Input       in1  0 1 a\n\
///      pnnx.Expression  e    2 1 x a y expr=mul(add(@0,div(@1,@0)),0.5)\n\
///      pnnx.Output      out  1 0 y\n",
/// )?;
/// let far = Graph::parse(
///     "7767517\n5 4\n\
///      pnnx.Input       in0  0 1 x\n\
///      pnnx.Input       in1  0 1 a\n\
///      pnnx.Expression  e    2 1 x a d expr=abs(sub(mul(@0,@0),@1))\n\
///      torch.gt         far  1 1 d c other=1e-5\n\
///      pnnx.Output      out  1 0 c\n",
/// )?;
/// let mut program = Program::new();
/// program.define("Step", step).define("Far", far);
/// let (x, a) = (program.input("x")?, program.input("a")?);
/// let root = program.repeat_while("root", "Far", "Step", &[x], &[a])?;
/// program.output(&root)?;
///
/// let session = program.model()?.session(SessionOptions::default())?;
/// let one = |x: f32| Tensor::from_slice(&[x], [1]);
/// let root = session.run(&[one(1.0)?, one(2.0)?])?;
/// assert!((root[0].as_slice::<f32>()?[0] - 2f32.sqrt()).abs() < 1e-5);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Program {
    graph: Graph,
    definitions: Definitions,
    values: usize,
}

/// Name of the operator that has the results.
const RESULTS: &str = "pnnx_output_0";

/// A value of a [`Program`]: an input, or what an operator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value(OperandId);

/// How a scan goes over its inputs; see [`Program::scan`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ScanOptions {
    /// The dimension of each scanned input, counted from the last one where it is negative; empty:
    /// 0 of all.
    pub axes: Vec<i64>,
    /// From the last index to the first. Results are stacked in the order of the indices all the
    /// same.
    pub reverse: bool,
    /// Outputs beyond the state of which only that of the last trip is wanted, by number.
    pub last: Vec<i64>,
}

impl ScanOptions {
    /// Scans these dimensions, one for each scanned input.
    #[must_use]
    pub fn along(mut self, axes: &[i64]) -> Self {
        self.axes = axes.to_vec();
        self
    }

    /// Begins at the last index.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// Keeps only what the last trip makes of these outputs.
    #[must_use]
    pub fn last(mut self, outputs: &[i64]) -> Self {
        self.last = outputs.to_vec();
        self
    }
}

impl Program {
    /// A program without operators.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a model say what operators of this type are: one that is called, or a body.
    pub fn define(
        &mut self,
        kind: impl Into<String>,
        definition: impl Into<Definition>,
    ) -> &mut Self {
        self.definitions.define(kind, definition);
        self
    }

    /// A further input.
    ///
    /// # Errors
    /// Where the name is taken, or cannot be written.
    pub fn input(&mut self, name: &str) -> Result<Value, EditError> {
        let operand = self.graph.new_operand(name)?;
        let operator = self.graph.new_operator("pnnx.Input", &format!("pnnx_input_{name}"))?;
        self.graph.connect_output(operator, operand)?;
        Ok(Value(operand))
    }

    /// Records dtype and shape of a value: for inputs the example that tools go by.
    ///
    /// # Errors
    /// Where the type cannot be written.
    pub fn record(&mut self, value: Value, ty: TensorType) -> Result<(), EditError> {
        self.graph.set_type(value.0, ty)
    }

    /// An operator of any type: a definition that is put in its place, or one that plutino knows.
    /// Returns as many values as it is said to make.
    ///
    /// # Errors
    /// Where the name is taken, or name or parameters cannot be written.
    pub fn call(
        &mut self,
        name: &str,
        kind: &str,
        inputs: &[Value],
        outputs: usize,
    ) -> Result<Vec<Value>, EditError> {
        self.operator(name, kind, inputs, outputs, []).map(|(_, made)| made)
    }

    /// The results of `then` where `condition` (one element) is not zero, of `otherwise` where it
    /// is. Only that one runs. Both take `inputs`.
    ///
    /// # Errors
    /// As [`Program::call`].
    pub fn choose(
        &mut self,
        name: &str,
        condition: Value,
        (then, otherwise): (&str, &str),
        inputs: &[Value],
        outputs: usize,
    ) -> Result<Vec<Value>, EditError> {
        let params = [("then", word(then)), ("else", word(otherwise))];
        let inputs: Vec<Value> = [condition].into_iter().chain(inputs.iter().copied()).collect();
        self.operator(name, "plutino.If", &inputs, outputs, params).map(|(_, made)| made)
    }

    /// `body` again and again, as long as `condition` yields what is not zero. Both take the state
    /// and `others`, which stay as they are; `body` makes the next state. Returns the last one.
    ///
    /// # Errors
    /// As [`Program::call`].
    pub fn repeat_while(
        &mut self,
        name: &str,
        condition: &str,
        body: &str,
        state: &[Value],
        others: &[Value],
    ) -> Result<Vec<Value>, EditError> {
        let params = [("cond", word(condition)), ("body", word(body))];
        let inputs = [state, others].concat();
        self.operator(name, "plutino.While", &inputs, state.len(), params).map(|(_, made)| made)
    }

    /// As [`Program::repeat_while`], at most so many times; without a condition exactly as many.
    ///
    /// # Errors
    /// As [`Program::call`].
    pub fn repeat(
        &mut self,
        name: &str,
        condition: Option<&str>,
        (body, times): (&str, usize),
        state: &[Value],
        others: &[Value],
    ) -> Result<Vec<Value>, EditError> {
        let times = Parameter::Int(i64::try_from(times).unwrap_or(i64::MAX));
        let cond = condition.map(|kind| ("cond", word(kind)));
        let params = [("body", word(body)), ("max", times)].into_iter().chain(cond);
        let inputs = [state, others].concat();
        self.operator(name, "plutino.While", &inputs, state.len(), params).map(|(_, made)| made)
    }

    /// `body` once for each index of a dimension of the inputs `over`: it takes the state, what the
    /// inputs have at the index, and `others`, which stay as they are; it makes the next state and
    /// further results. Returns the last state and, stacked along a new first dimension, the
    /// further results, of which there are `outputs`.
    ///
    /// # Errors
    /// As [`Program::call`].
    pub fn scan(
        &mut self,
        name: &str,
        body: &str,
        (state, over, others): (&[Value], &[Value], &[Value]),
        outputs: usize,
        options: &ScanOptions,
    ) -> Result<(Vec<Value>, Vec<Value>), EditError> {
        let count = |n: usize| Parameter::Int(i64::try_from(n).unwrap_or(i64::MAX));
        let mut params = vec![
            ("body", word(body)),
            ("carried", count(state.len())),
            ("scanned", count(over.len())),
        ];
        if !options.axes.is_empty() {
            params.push(("axis", Parameter::Ints(options.axes.clone())));
        }
        if options.reverse {
            params.push(("reverse", Parameter::from(true)));
        }
        if !options.last.is_empty() {
            params.push(("last", Parameter::Ints(options.last.clone())));
        }
        let inputs = [state, over, others].concat();
        let all = state.len().saturating_add(outputs);
        let (_, mut made) = self.operator(name, "plutino.Scan", &inputs, all, params)?;
        let further = made.split_off(state.len());
        Ok((made, further))
    }

    /// Makes values results, in order.
    ///
    /// # Errors
    /// Where there are results already.
    pub fn output(&mut self, values: &[Value]) -> Result<(), EditError> {
        self.operator(RESULTS, "pnnx.Output", values, 0, []).map(drop)
    }

    /// Lets one operator come after another, by name, whether or not it reads what that makes: for
    /// operators of one's own that do more than make their outputs.
    ///
    /// # Errors
    /// Where there is no such operator, or they are the same.
    pub fn order(&mut self, earlier: &str, later: &str) -> Result<(), EditError> {
        let [first, second] = [earlier, later].map(|name| self.graph.named(name));
        self.graph.add_control(first?, second?)
    }

    /// Makes an operator, by name, a part of every run for the results, whether or not they are
    /// made of it: they come after it. To be called behind [`Program::output`].
    ///
    /// # Errors
    /// Where there is no such operator, or there are no results yet.
    pub fn keep(&mut self, operator: &str) -> Result<(), EditError> {
        self.order(operator, RESULTS)
    }

    /// The graph, to add to or to change.
    pub fn graph_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The definitions.
    pub fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// The program as a model.
    ///
    /// # Errors
    /// As [`Model::from_graph`], and where a definition does not fit.
    pub fn model(&self) -> Result<Model, ModelError> {
        self.model_with(ModelOptions::default())
    }

    /// [`Program::model`] with options: operators of one's own, limits. The definitions are the
    /// program's.
    ///
    /// # Errors
    /// As [`Program::model`].
    pub fn model_with(&self, options: impl Into<ModelOptions>) -> Result<Model, ModelError> {
        let options = options.into().with_definitions(Arc::new(self.definitions.clone()));
        Model::from_graph_with(self.graph.clone(), options)
    }

    /// Writes `STEM.pnnx.param` and `STEM.pnnx.bin`, and a file for each definition in the folder
    /// `STEM.definitions`: what [`Model::load`] and `plutino run STEM` read.
    ///
    /// # Errors
    /// Where something cannot be written, or would be read back differently.
    pub fn save(&self, stem: impl AsRef<Path>) -> Result<(), SaveError> {
        let stem = stem.as_ref();
        let (all, folder) = (self.definitions.iter().collect(), Definitions::folder_beside(stem));
        save_all(&all, &folder)?;
        remove_others(&all, &folder)?;
        save(&self.graph, stem)
    }

    /// Reads what [`Program::save`] wrote.
    ///
    /// # Errors
    /// Where a file cannot be read, or anything in it is wrong.
    pub fn load(stem: impl AsRef<Path>) -> Result<Self, LoadError> {
        Self::load_with(stem, &LoadOptions::default())
    }

    /// [`Program::load`] with options.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn load_with(stem: impl AsRef<Path>, options: &LoadOptions) -> Result<Self, LoadError> {
        let stem = stem.as_ref();
        let graph = Graph::load_with(stem, options)?;
        let mut definitions = Definitions::new();
        definitions.load_folder(Definitions::folder_beside(stem), options)?;
        Ok(Self { values: graph.operand_count(), graph, definitions })
    }

    fn operator<'k>(
        &mut self,
        name: &str,
        kind: &str,
        inputs: &[Value],
        outputs: usize,
        params: impl IntoIterator<Item = (&'k str, Parameter)>,
    ) -> Result<(OperatorId, Vec<Value>), EditError> {
        let operator = self.graph.new_operator(kind, name)?;
        for input in inputs {
            self.graph.connect_input(operator, input.0)?;
        }
        let mut made = Vec::new();
        for _ in 0..outputs {
            let operand = loop {
                let name = format!("v{}", self.values);
                self.values += 1;
                if self.graph.operand_by_name(&name).is_none() {
                    break self.graph.new_operand(&name)?;
                }
            };
            self.graph.connect_output(operator, operand)?;
            made.push(Value(operand));
        }
        let own = params.into_iter().map(|(key, value)| (key.to_owned(), value));
        self.graph.params_mut(operator)?.extend(own);
        Ok((operator, made))
    }
}

fn word(text: &str) -> Parameter {
    Parameter::Str(text.to_owned())
}

/// `net` -> `net.pnnx.param`
fn beside(stem: &Path, what: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}

/// Writes those of `definitions` that `graph` needs, its bodies and what these consist of, to the
/// folder that is its own once it is saved as `stem` ([`Definitions::folder_beside`]). Returns how
/// many there are; without any, there is no folder.
///
/// # Errors
/// Where something cannot be written, or would be read back differently.
pub fn save_definitions(
    graph: &Graph,
    definitions: &Definitions,
    stem: impl AsRef<Path>,
) -> Result<usize, SaveError> {
    let mut needed: BTreeMap<&str, &Definition> = BTreeMap::new();
    let mut left = vec![graph];
    while let Some(graph) = left.pop() {
        for (_, operator) in graph.operators() {
            let bodies = ["then", "else", "cond", "body"].into_iter();
            let bodies = bodies.filter(|_| is_control(&operator.kind));
            let bodies = bodies.filter_map(|part| operator.param(part)?.as_str());
            for kind in bodies.chain([operator.kind.as_str()]) {
                if let Some(definition) = definitions.get(kind)
                    && let Entry::Vacant(entry) = needed.entry(kind)
                {
                    entry.insert(definition);
                    left.push(definition.graph());
                }
            }
        }
    }
    let (count, folder) = (needed.len(), Definitions::folder_beside(stem));
    if count > 0 {
        save_all(&needed, &folder)?;
    }
    remove_others(&needed, &folder)?;
    Ok(count)
}

/// Removes the definitions of a model that was saved here before, but for those of these types:
/// they would be taken for the new one's. Once these are written: they may be read from there.
fn remove_others(kinds: &BTreeMap<&str, &Definition>, folder: &Path) -> Result<(), SaveError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) }; // there is none
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let kind = [".pnnx.param", ".pnnx.bin"].iter().find_map(|end| name.strip_suffix(end));
        if kind.is_some_and(|kind| !kinds.contains_key(kind)) && path.is_file() {
            fs::remove_file(&path).map_err(|error| SaveError::Io { path, error })?;
        }
    }
    Ok(())
}

/// Writes definitions to a folder, each called by its type.
fn save_all(definitions: &BTreeMap<&str, &Definition>, folder: &Path) -> Result<(), SaveError> {
    fs::create_dir_all(folder).map_err(|error| SaveError::Io { path: folder.to_owned(), error })?;
    let mut all = definitions.iter();
    all.try_for_each(|(kind, definition)| save(definition.graph(), &folder.join(kind)))
}

/// Writes `stem.pnnx.param`, and the weights where there are any.
fn save(graph: &Graph, stem: &Path) -> Result<(), SaveError> {
    let param = beside(stem, "pnnx.param");
    if graph.operators().any(|(_, op)| !op.attrs.is_empty()) && graph.has_weights() {
        return graph.save(&param, beside(stem, "pnnx.bin"));
    }
    // Its weights come from the nodes.
    let text = graph.to_param_string()?;
    fs::write(&param, text).map_err(|error| SaveError::Io { path: param, error })?;
    // Weights of a model that was saved here before.
    let path = beside(stem, "pnnx.bin");
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(SaveError::Io { path, error }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionOptions;
    use plutino_ir::Attribute;
    use plutino_tensor::Tensor;

    const SCALE: &str = "7767517\n4 3\npnnx.Input in 0 1 x\npnnx.Attribute k 0 1 k @data=(1)f32\n\
        pnnx.Expression e 2 1 x k y expr=mul(@0,@1)\n\
        pnnx.Output out 1 0 y\n";
    const BELOW: &str = "7767517\n3 2\npnnx.Input in 0 1 x\ntorch.lt e 1 1 x c other=10.0\n\
        pnnx.Output out 1 0 c\n";

    fn scale(by: f32) -> Graph {
        let mut graph = Graph::parse(SCALE).unwrap();
        let id = graph.operator_by_name("k").unwrap();
        let data = Attribute::from_elements([1], &[by]).unwrap();
        graph.attrs_mut(id).unwrap().insert("data".into(), data);
        graph
    }

    #[test]
    fn what_is_saved_replaces_what_was_there() {
        let folder = std::env::temp_dir().join(format!("plutino-saved-{}", std::process::id()));
        let stem = folder.join("m");
        fs::create_dir_all(&folder).unwrap();
        let program = |by: Option<f32>| {
            let mut program = Program::new();
            let body = by.map_or_else(|| Graph::parse(BELOW).unwrap(), scale);
            program.define("Body", body);
            let x = program.input("x").unwrap();
            let y = program.call("call", "Body", &[x], 1).unwrap();
            program.output(&y).unwrap();
            program
        };
        program(Some(2.0)).save(&stem).unwrap();
        let bin = folder.join("m.definitions/Body.pnnx.bin");
        assert!(bin.exists());
        program(None).save(&stem).unwrap(); // has no weights
        assert!(!bin.exists());
        crate::Model::load(folder.join("m.pnnx.param")).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn programs_are_saved_and_read_back() {
        let mut program = Program::new();
        program.define("Twice", scale(2.0)).define("Thrice", scale(3.0));
        program.define("Below", Graph::parse(BELOW).unwrap());
        let x = program.input("x").unwrap();
        let [small] = program.call("test", "Below", &[x], 1).unwrap()[..] else { panic!() };
        let y = program.choose("pick", small, ("Twice", "Thrice"), &[x], 1).unwrap();
        let z = program.repeat_while("grow", "Below", "Thrice", &y, &[]).unwrap();
        let w = program.repeat("more", None, ("Twice", 3), &z, &[]).unwrap();
        let over = program.scan("each", "Twice", (&[], &w, &[]), 1, &ScanOptions::default());
        let (_, each) = over.unwrap();
        program.output(&each).unwrap();

        let folder = std::env::temp_dir().join(format!("plutino-program-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let stem = folder.join("net");
        program.save(&stem).unwrap();
        let again = Program::load(&stem).unwrap();
        let loaded = Model::load(&stem).unwrap();
        // What the caller defines counts before what lies beside the model.
        let options = ModelOptions::default().define("Thrice", scale(2.0));
        let other = Model::load_with(folder.join("net.pnnx.param"), options).unwrap();
        assert!(Model::check(&stem).unwrap().undecoded.is_none());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(again.graph(), program.graph());
        let kinds =
            |p: &Program| p.definitions().iter().map(|(k, _)| k.to_owned()).collect::<Vec<_>>();
        assert_eq!(kinds(&again), ["Below", "Thrice", "Twice"]);
        let run = |model: &Model, x: f32| {
            let session = model.session(SessionOptions::default()).unwrap();
            let outputs = session.run(&[Tensor::from_slice(&[x], [1]).unwrap()]).unwrap();
            outputs[0].as_slice::<f32>().unwrap()[0]
        };
        for model in [program.model().unwrap(), again.model().unwrap(), loaded] {
            assert_eq!(run(&model, 1.0), 2.0 * 3.0 * 3.0 * 8.0 * 2.0);
            assert_eq!(run(&model, 20.0), 60.0 * 8.0 * 2.0);
        }
        assert_eq!(run(&other, 1.0), 2.0 * 2.0 * 2.0 * 2.0 * 8.0 * 2.0);
    }

    #[test]
    fn definitions_that_a_graph_needs_are_saved() {
        let twice = "7767517\n3 2\npnnx.Input in 0 1 x\nnn.ReLU r 1 1 x y\npnnx.Output out 1 0 y\n";
        let parse = |text: &str| Graph::parse(text).unwrap();
        let mut definitions = Definitions::new();
        definitions.define("Inner", scale(2.0));
        definitions.define("Part", parse(&twice.replace("nn.ReLU", "Inner")));
        definitions.define(
            "Body",
            parse(&twice.replace("nn.ReLU r 1 1 x y", "plutino.While w 1 1 x y body=Part max=2")),
        );
        definitions.define("Other", parse(twice));
        let main = twice.replace("nn.ReLU r 1 1 x y", "plutino.While w 1 1 x y body=Body max=2");
        let folder = std::env::temp_dir().join(format!("plutino-needed-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let stem = folder.join("net");
        assert_eq!(save_definitions(&parse(twice), &definitions, &stem).unwrap(), 0);
        assert!(!Definitions::folder_beside(&stem).exists());
        assert_eq!(save_definitions(&parse(&main), &definitions, &stem).unwrap(), 3);
        save(&parse(&main), &stem).unwrap();
        let loaded = Model::load(&stem).unwrap();
        let mut files: Vec<_> = fs::read_dir(Definitions::folder_beside(&stem))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort_unstable();
        fs::remove_dir_all(&folder).unwrap();
        let expected = ["Body.pnnx.param", "Inner.pnnx.bin", "Inner.pnnx.param", "Part.pnnx.param"];
        assert_eq!(files, expected);
        let session = loaded.session(SessionOptions::default()).unwrap();
        let y = session.run(&[Tensor::from_slice(&[1.0f32], [1]).unwrap()]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), [16.0]);
    }
}

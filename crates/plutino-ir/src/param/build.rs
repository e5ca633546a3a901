//! From lines to a graph: names become ids, and whatever does not fit together is refused.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::grammar::{self, Fault, Field, MAGIC, OperatorLine};
use crate::attribute::Attribute;
use crate::dtype::TensorType;
use crate::error::{Lookalike, ParseError, ParseErrorKind};
use crate::graph::{Graph, Operand, Operator, OperatorId};
use crate::limits::Limits;
use crate::parameter::Parameter;
use crate::sizes::{EXPRESSION, SizeLimit, SizeLimits, TooLarge};
use crate::topo;

/// A line of the file, to place faults in it.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: u32,
    text: &'a str,
}

impl Line<'_> {
    /// A fault at `at`, which is a part of this line.
    fn fault(self, at: &str, kind: ParseErrorKind) -> ParseError {
        let offset = (at.as_ptr() as usize).wrapping_sub(self.text.as_ptr() as usize);
        let before = self.text.get(..offset).unwrap_or_default();
        ParseError {
            line: self.number,
            column: u32::try_from(before.chars().count() + 1).unwrap_or(u32::MAX),
            kind,
        }
    }

    fn syntax(self, fault: &Fault<'_>) -> ParseError {
        let at = fault.at.trim_start_matches([' ', '\t']);
        let found = at.split_whitespace().next().unwrap_or_default();
        let found = found.char_indices().nth(40).map_or(found, |(cut, _)| &found[..cut]).to_owned();
        self.fault(
            at,
            ParseErrorKind::Syntax { expected: fault.expected.clone().into_owned(), found },
        )
    }
}

/// Reads the text of a `.param` file; attributes have no data yet.
pub(crate) fn parse_graph(
    bytes: &[u8],
    limits: &Limits,
    sizes: &SizeLimits,
) -> Result<Graph, ParseError> {
    check_size(bytes, sizes)?;
    let text = std::str::from_utf8(bytes).map_err(|error| not_utf8(bytes, error.valid_up_to()))?;
    let mut lines = numbered_lines(text);
    let first = lines.next().unwrap_or(Line { number: 1, text: "" });
    if first.text.trim() != MAGIC {
        let found = first.text.chars().take(40).collect();
        return Err(
            first.fault(first.text, ParseErrorKind::Magic { found, hint: lookalike(bytes) })
        );
    }
    let header = lines.next().unwrap_or(Line { number: 2, text: "" });
    let (operators, operands) =
        grammar::whole_line(header.text, grammar::counts).map_err(|fault| header.syntax(&fault))?;

    let mut parsed = Vec::new();
    let mut blank = None;
    for line in lines {
        if line.text.trim().is_empty() {
            blank.get_or_insert(line);
            continue;
        }
        if let Some(blank) = blank {
            let fault = Fault { at: blank.text, expected: "an operator".into() };
            return Err(blank.syntax(&fault));
        }
        if line.number == u32::MAX {
            return Err(line.fault(line.text, ParseErrorKind::TooLong));
        }
        limits.check_at(parsed.len()).map_err(|why| line.fault(line.text, why.into()))?;
        let operator = grammar::whole_line(line.text, grammar::operator)
            .map_err(|fault| line.syntax(&fault))?;
        check_line(line, &operator, sizes)?;
        parsed.push((line, operator));
        let operators = sizes.check(SizeLimit::Operators, parsed.len());
        operators.map_err(|error| line.fault(line.text, error.into()))?;
    }

    let graph = build(&parsed, limits, sizes)?;
    for (what, declared, found) in [
        ("operators", operators, graph.operator_count()),
        ("operands", operands, graph.operand_count()),
    ] {
        // pnnx 20261020 counts operands that it has merged with others, too.
        let counted = what == "operands" && declared > found;
        if declared != found && !counted {
            return Err(header.fault(header.text, ParseErrorKind::Count { what, declared, found }));
        }
    }
    Ok(graph)
}

/// Refuses text whose graph would take much memory, before it is read.
fn check_size(bytes: &[u8], sizes: &SizeLimits) -> Result<(), ParseError> {
    let at_start = |error: TooLarge| ParseError { line: 1, column: 1, kind: error.into() };
    sizes.check(SizeLimit::TextBytes, bytes.len()).map_err(at_start)?;
    let words = bytes.iter().filter(|b| matches!(b, b' ' | b',' | b'\n' | b'\t')).count();
    sizes.check(SizeLimit::Words, words).map_err(at_start)
}

/// Whether one operator is small enough, before its parameters are read.
fn check_line(
    line: Line<'_>,
    operator: &OperatorLine<'_>,
    sizes: &SizeLimits,
) -> Result<(), ParseError> {
    let too_large = |at: &str, error: TooLarge| line.fault(at, error.into());
    let after = operator.fields.iter().filter(|field| matches!(field, Field::After { .. }));
    let arguments = operator.inputs.len().saturating_add(operator.outputs.len());
    let arguments = arguments.saturating_add(after.count());
    sizes.check(SizeLimit::Arguments, arguments).map_err(|e| too_large(operator.kind, e))?;
    for field in &operator.fields {
        match field {
            Field::Param { key, value } => sizes
                .check_parameter(key, value)
                .map_err(|(at, e)| too_large(value.get(at..).unwrap_or(value), e))?,
            Field::Weight { key, shape, .. } => {
                sizes.check(SizeLimit::Rank, shape.len()).map_err(|e| too_large(key, e))?
            }
            Field::Type { operand, ty } => sizes
                .dims(ty.shape.as_deref().unwrap_or_default())
                .map_err(|e| too_large(operand, e))?,
            Field::Input { .. } | Field::After { .. } => {}
        }
    }
    Ok(())
}

fn not_utf8(bytes: &[u8], valid: usize) -> ParseError {
    let valid = String::from_utf8_lossy(bytes.get(..valid).unwrap_or_default());
    let line = valid.split('\n').count();
    let column = valid.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    let count = |n| u32::try_from(n).unwrap_or(u32::MAX);
    let kind = ParseErrorKind::Encoding { hint: lookalike(bytes) };
    ParseError { line: count(line), column: count(column), kind }
}

fn numbered_lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().zip(1u32..=u32::MAX).map(|(text, number)| Line { number, text })
}

fn lookalike(bytes: &[u8]) -> Option<Lookalike> {
    let starts = |prefix: &[u8]| bytes.starts_with(prefix);
    let first_line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    if starts(b"PK") {
        Some(Lookalike::Zip)
    } else if starts(b"\xef\xbb\xbf") {
        Some(Lookalike::ByteOrderMark)
    } else if starts(b"\xff\xfe") || starts(b"\xfe\xff") {
        Some(Lookalike::Utf16)
    } else if starts(b"#") || starts(b"import ") || starts(b"from ") {
        Some(Lookalike::Python)
    } else if starts(b"\x08") || (starts(b"\x3a") && std::str::from_utf8(bytes).is_err()) {
        // ModelProto begins with ir_version, field 1, a varint; or, from pnnx, with graph, field 7,
        // a message.
        Some(Lookalike::Onnx)
    } else if std::str::from_utf8(first_line).is_ok_and(is_two_counts) {
        Some(Lookalike::OldNcnn)
    } else {
        None
    }
}

fn is_two_counts(line: &str) -> bool {
    grammar::whole_line(line, grammar::counts).is_ok()
}

fn build(
    lines: &[(Line<'_>, OperatorLine<'_>)],
    limits: &Limits,
    sizes: &SizeLimits,
) -> Result<Graph, ParseError> {
    let mut graph = Graph::new();
    // Files are in topological order as a rule but need not be: first everything that is made, then
    // everything that is read.
    for (at, (line, operator)) in lines.iter().enumerate() {
        limits.check_at(at).map_err(|why| line.fault(line.text, why.into()))?;
        refuse_ncnn(*line, operator)?;
        define(&mut graph, *line, operator)?;
        let operands = sizes.check(SizeLimit::Operands, graph.operand_count());
        operands.map_err(|error| line.fault(line.text, error.into()))?;
    }
    for (id, (line, operator)) in lines.iter().enumerate() {
        limits.check_at(id).map_err(|why| line.fault(line.text, why.into()))?;
        connect(&mut graph, *line, operator, OperatorId(id))?;
    }
    topo::kahn(&graph).map_err(|cycle| {
        let member = cycle.members.first().and_then(|id| lines.get(id.index()));
        match member {
            Some((line, operator)) => line.fault(operator.kind, cycle.into()),
            None => ParseError { line: 0, column: 0, kind: cycle.into() },
        }
    })?;
    Ok(graph)
}

/// ncnn's format shares the magic number and most of the grammar, but numbers its parameters.
fn refuse_ncnn(line: Line<'_>, operator: &OperatorLine<'_>) -> Result<(), ParseError> {
    let numbered =
        |field: &Field<'_>| matches!(field, Field::Param { key, .. } if key.parse::<i32>().is_ok());
    let bare = !operator.kind.contains(['.', ':']);
    if bare && (operator.kind == "Input" || operator.fields.iter().any(numbered)) {
        let kind =
            ParseErrorKind::Ncnn { kind: operator.kind.into(), operator: operator.name.into() };
        return Err(line.fault(operator.kind, kind));
    }
    Ok(())
}

/// Makes the operator and what it produces.
fn define(graph: &mut Graph, line: Line<'_>, parsed: &OperatorLine<'_>) -> Result<(), ParseError> {
    if let Some(first) = graph.operator_by_name(parsed.name).and_then(|id| graph.operator(id)) {
        let first = first.line.unwrap_or_default();
        return Err(line.fault(
            parsed.name,
            ParseErrorKind::DuplicateOperator { name: parsed.name.into(), first },
        ));
    }
    let (params, attrs) = fields(line, parsed)?;
    let id = OperatorId(graph.operator_slots());
    let mut outputs = Vec::with_capacity(parsed.outputs.len());
    for &name in &parsed.outputs {
        if let Some(first) =
            graph.operand_by_name(name).and_then(|operand| graph.operand(operand)?.producer)
        {
            let (producer, first) = match graph.operator(first) {
                Some(producer) => (producer.name.clone(), producer.line.unwrap_or_default()),
                None => (parsed.name.to_owned(), line.number),
            };
            let kind = ParseErrorKind::DuplicateOperand { name: name.into(), producer, first };
            return Err(line.fault(name, kind));
        }
        outputs.push(graph.push_operand(Operand {
            name: name.to_owned(),
            ty: TensorType::default(),
            producer: Some(id),
            consumers: Vec::new(),
        }));
    }
    graph.push_operator(Operator {
        kind: parsed.kind.to_owned(),
        name: parsed.name.to_owned(),
        inputs: Vec::new(),
        outputs,
        input_names: vec![None; parsed.inputs.len()],
        after: Vec::new(),
        followers: Vec::new(),
        params,
        attrs,
        line: Some(line.number),
        origin: None,
    });
    Ok(())
}

/// Connects inputs, and records what the line says about its operands.
fn connect(
    graph: &mut Graph,
    line: Line<'_>,
    parsed: &OperatorLine<'_>,
    id: OperatorId,
) -> Result<(), ParseError> {
    let mut inputs = Vec::with_capacity(parsed.inputs.len());
    for &name in &parsed.inputs {
        let operand = graph.operand_by_name(name).ok_or_else(|| {
            line.fault(name, ParseErrorKind::UnknownOperand { name: name.into() })
        })?;
        if let Some(operand) = graph.operand_mut(operand) {
            operand.consumers.push(id);
        }
        inputs.push(operand);
    }
    let input_names = input_names(line, parsed)?;
    for field in &parsed.fields {
        if let Field::Type { operand, ty } = field {
            record_type(graph, line, parsed, id, operand, ty)?;
        }
    }
    let after = after(graph, line, parsed, id)?;
    if let Some(operator) = graph.operator_mut(id) {
        operator.inputs = inputs;
        operator.input_names = input_names;
    }
    after.into_iter().for_each(|earlier| graph.link(earlier, id));
    Ok(())
}

/// The operators that this one is to come after.
fn after(
    graph: &Graph,
    line: Line<'_>,
    parsed: &OperatorLine<'_>,
    id: OperatorId,
) -> Result<Vec<OperatorId>, ParseError> {
    let (mut after, mut taken) = (Vec::new(), HashSet::new());
    for field in &parsed.fields {
        let Field::After { name } = *field else { continue };
        let earlier = graph.operator_by_name(name);
        let problem = match earlier {
            Some(earlier) => graph.control_problem(earlier, id),
            None => Some(graph.no_such_operator(name)),
        };
        if let Some(problem) = problem {
            let (operator, earlier) = (parsed.name.into(), name.into());
            return Err(line.fault(name, ParseErrorKind::Control { operator, earlier, problem }));
        }
        if !taken.insert(name) {
            let (key, operator) = (format!("^{name}"), parsed.name.into());
            return Err(line.fault(name, ParseErrorKind::DuplicateKey { key, operator }));
        }
        after.extend(earlier);
    }
    Ok(after)
}

/// Records the type of an operand of this operator, or compares it with what other lines say.
fn record_type(
    graph: &mut Graph,
    line: Line<'_>,
    parsed: &OperatorLine<'_>,
    id: OperatorId,
    name: &str,
    ty: &TensorType,
) -> Result<(), ParseError> {
    // Operators are connected one after the other, so a reader that was connected just now comes
    // last.
    let own = |operand: &&mut Operand| {
        operand.producer == Some(id) || operand.consumers.last() == Some(&id)
    };
    let operand = graph.operand_by_name(name);
    let operand = operand.and_then(|operand| graph.operand_mut(operand)).filter(own);
    let operand =
        operand.ok_or_else(|| foreign(line, parsed, '#', name, name, "input or output"))?;
    let recorded = &mut operand.ty;
    let agree = (recorded.shape.is_none() || recorded.shape == ty.shape)
        && (recorded.dtype.is_none() || ty.dtype.is_none() || recorded.dtype == ty.dtype);
    if !agree {
        let (found, recorded) = (ty.clone(), recorded.clone());
        let kind = ParseErrorKind::ConflictingType { operand: name.into(), found, recorded };
        return Err(line.fault(name, kind));
    }
    recorded.shape.clone_from(&ty.shape);
    recorded.dtype = ty.dtype.or(recorded.dtype);
    Ok(())
}

fn foreign(
    line: Line<'_>,
    parsed: &OperatorLine<'_>,
    prefix: char,
    key: &str,
    operand: &str,
    expected: &'static str,
) -> ParseError {
    let kind = ParseErrorKind::ForeignOperand {
        key: format!("{prefix}{key}"),
        operand: operand.into(),
        expected,
        operator: parsed.name.into(),
    };
    line.fault(operand, kind)
}

type Fields = (BTreeMap<String, Parameter>, BTreeMap<String, Attribute>);

/// Parameters and weights of a line.
fn fields(line: Line<'_>, parsed: &OperatorLine<'_>) -> Result<Fields, ParseError> {
    let (mut params, mut attrs) = Fields::default();
    for field in &parsed.fields {
        let (prefix, key, repeated) = match *field {
            Field::Param { key, value } => {
                let param = parameter(key, value).map_err(|error| {
                    let at = value.get(error.offset..).unwrap_or(value);
                    let (name, operator) = (key.into(), parsed.name.into());
                    line.fault(at, ParseErrorKind::Parameter { name, operator, error })
                })?;
                ("", key, params.insert(key.to_owned(), param).is_some())
            }
            Field::Weight { key, dtype, ref shape } => {
                let attr = Attribute::without_data(dtype, shape.clone()).map_err(|error| {
                    let (name, operator) = (key.into(), parsed.name.into());
                    line.fault(key, ParseErrorKind::Attribute { name, operator, error })
                })?;
                ("@", key, attrs.insert(key.to_owned(), attr).is_some())
            }
            Field::Type { .. } | Field::Input { .. } | Field::After { .. } => continue,
        };
        if repeated {
            let kind = ParseErrorKind::DuplicateKey {
                key: format!("{prefix}{key}"),
                operator: parsed.name.into(),
            };
            return Err(line.fault(key, kind));
        }
    }
    Ok((params, attrs))
}

/// The value of a parameter. An expression is text, whatever it looks like: `[size(@0,0),-1]` is no
/// list.
pub(super) fn parameter(
    key: &str,
    value: &str,
) -> Result<Parameter, crate::parameter::ParameterError> {
    if key == EXPRESSION { Ok(Parameter::Str(value.to_owned())) } else { Parameter::parse(value) }
}

/// Keys of the inputs. A key names an operand, and one operand may be several inputs (`nn.LSTM 0 2
/// 2 $input=0 $initial_h=2 $initial_c=2`): keys are given in the order of the inputs, so each takes
/// the first input of that operand that has none yet.
fn input_names(
    line: Line<'_>,
    parsed: &OperatorLine<'_>,
) -> Result<Vec<Option<String>>, ParseError> {
    let mut names = vec![None; parsed.inputs.len()];
    let keys = parsed.fields.iter().filter_map(|field| match *field {
        Field::Input { key, operand } => Some((key, operand)),
        _ => None,
    });
    // Positions of each operand among the inputs, to be taken front to back.
    let mut free: HashMap<&str, std::vec::IntoIter<usize>> = HashMap::new();
    let mut taken = HashSet::new();
    for (key, operand) in keys {
        if free.is_empty() {
            let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
            for (at, &input) in parsed.inputs.iter().enumerate() {
                positions.entry(input).or_default().push(at);
            }
            free = positions.into_iter().map(|(input, at)| (input, at.into_iter())).collect();
        }
        if !taken.insert(key) {
            let kind = ParseErrorKind::DuplicateKey {
                key: format!("${key}"),
                operator: parsed.name.into(),
            };
            return Err(line.fault(key, kind));
        }
        let slot = free.get_mut(operand).and_then(Iterator::next).and_then(|at| names.get_mut(at));
        let slot =
            slot.ok_or_else(|| foreign(line, parsed, '$', key, operand, "input without a key"))?;
        *slot = Some(key.to_owned());
    }
    Ok(names)
}

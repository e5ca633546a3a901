//! Elementwise programs: a straight line of steps on tiles, compiled from a graph of values.

use super::ElementwiseError;
use super::op::{Binary, Domain, Unary};
use num_complex::Complex;
use plutino_tensor::DType;
use std::collections::HashMap;

/// A number in the text of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
    /// A complex number.
    Complex(Complex<f64>),
}

/// A scalar in every domain, so that whichever a step needs can be pointed at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constant {
    pub(super) f32: f32,
    pub(super) f64: f64,
    pub(super) i32: i32,
    pub(super) i64: i64,
    pub(super) c128: Complex<f64>,
}

impl Constant {
    fn new(scalar: Scalar) -> Self {
        let (i64, c128) = match scalar {
            Scalar::Bool(b) => (i64::from(b), f64::from(u8::from(b)).into()),
            Scalar::Int(i) => (i, (i as f64).into()),
            Scalar::Float(x) => (x as i64, x.into()),
            Scalar::Complex(z) => (z.re as i64, z),
        };
        Self { f32: c128.re as f32, f64: c128.re, i32: i64 as i32, i64, c128 }
    }
}

/// A value in a program that is being built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Value(usize);

#[derive(Debug, Clone, Copy)]
enum Node {
    Input(usize),
    Constant(Scalar),
    Unary(Unary, Value),
    Binary(Binary, Value, Value),
    Select([Value; 3]),
    Cast(Value),
}

/// Builds a [`Program`]: each call adds a value, made of earlier ones.
///
/// There is no promotion here: the operands of a function have one dtype, and whoever builds the
/// program says where it is converted.
#[derive(Debug, Default)]
pub struct Builder {
    nodes: Vec<(Node, DType)>,
    inputs: Vec<DType>,
}

impl Builder {
    /// A program without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next input.
    pub fn input(&mut self, dtype: DType) -> Value {
        self.inputs.push(dtype);
        self.push(Node::Input(self.inputs.len() - 1), dtype)
    }

    /// A number, converted to `dtype` (in f16 and bf16 it keeps the precision of f32, as in
    /// PyTorch).
    pub fn constant(&mut self, scalar: Scalar, dtype: DType) -> Value {
        self.push(Node::Constant(scalar), dtype)
    }

    /// The dtype of a value.
    pub fn dtype(&self, value: Value) -> DType {
        self.nodes[value.0].1
    }

    /// A function of one value.
    ///
    /// # Errors
    /// Where the function is not defined for the value's dtype.
    pub fn unary(&mut self, op: Unary, x: Value) -> Result<Value, ElementwiseError> {
        let dtype = self.dtype(x);
        let undefined = ElementwiseError::Undefined { function: op.name(), dtype };
        let op = match (op, dtype) {
            (Unary::BitwiseNot, DType::Bool) => Unary::LogicalNot,
            (Unary::Neg, DType::Bool) => return Err(undefined),
            (_, DType::Bool) if op.is_inexact() => return Err(undefined),
            _ => op,
        };
        if !op.is_defined(dtype) {
            return Err(undefined);
        }
        Ok(self.push(Node::Unary(op, x), op.result(dtype)))
    }

    /// A function of two values of one dtype.
    ///
    /// # Errors
    /// Where the dtypes differ, or the function is not defined for them.
    pub fn binary(&mut self, op: Binary, a: Value, b: Value) -> Result<Value, ElementwiseError> {
        let dtype = self.same_dtype(op.name(), a, b)?;
        let undefined = ElementwiseError::Undefined { function: op.name(), dtype };
        let op = match (op, dtype) {
            (Binary::BitwiseAnd, DType::Bool) => Binary::LogicalAnd,
            (Binary::BitwiseOr, DType::Bool) => Binary::LogicalOr,
            (Binary::BitwiseXor, DType::Bool) => Binary::LogicalXor,
            (Binary::Add | Binary::Mul | Binary::Maximum | Binary::Minimum, DType::Bool) => op,
            (_, DType::Bool) if op.result(dtype) != DType::Bool => return Err(undefined),
            (Binary::Sub | Binary::Div | Binary::Pow, DType::Bool) => return Err(undefined),
            _ => op,
        };
        if !op.is_defined(dtype) {
            return Err(undefined);
        }
        Ok(self.push(Node::Binary(op, a, b), op.result(dtype)))
    }

    /// `a` where `condition` (a bool) holds, else `b`.
    ///
    /// # Errors
    /// Where the condition is no bool, or the dtypes of `a` and `b` differ.
    pub fn select(
        &mut self,
        condition: Value,
        a: Value,
        b: Value,
    ) -> Result<Value, ElementwiseError> {
        let dtype = self.same_dtype("where", a, b)?;
        match self.dtype(condition) {
            DType::Bool => Ok(self.push(Node::Select([condition, a, b]), dtype)),
            other => Err(ElementwiseError::Undefined { function: "where", dtype: other }),
        }
    }

    /// The value in another dtype, converted as PyTorch's `to`: floats lose their fraction,
    /// integers wrap, complex numbers lose their imaginary part, and bool is whether the value is
    /// not zero.
    pub fn cast(&mut self, x: Value, dtype: DType) -> Value {
        if self.dtype(x) == dtype { x } else { self.push(Node::Cast(x), dtype) }
    }

    /// The program that computes `result`.
    pub fn finish(self, result: Value) -> Program {
        Compiler::new(&self).compile(result)
    }

    fn push(&mut self, node: Node, dtype: DType) -> Value {
        self.nodes.push((node, dtype));
        Value(self.nodes.len() - 1)
    }

    fn same_dtype(
        &self,
        function: &'static str,
        a: Value,
        b: Value,
    ) -> Result<DType, ElementwiseError> {
        match (self.dtype(a), self.dtype(b)) {
            (a, b) if a == b => Ok(a),
            (left, right) => Err(ElementwiseError::Mixed { function, left, right }),
        }
    }
}

/// Where a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// An input, as it lies in memory.
    Input(usize),
    /// A constant.
    Constant(usize),
    /// A register: a tile in scratch memory.
    Register(usize),
}

/// What a step does with a tile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Action {
    /// Widens the input of this number, which has this dtype, to its domain.
    Load(DType, usize),
    Unary(Domain, Unary),
    Binary(Domain, Binary),
    /// The second operand where the first is not zero, else the third.
    Select(Domain),
    Convert(Domain, Domain),
    /// Rounds or wraps to the values that this dtype has.
    Round(DType),
    /// Narrows to the dtype of the result, from this domain.
    Store(Domain, DType),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Step {
    pub(super) action: Action,
    /// As many as the action has; the rest repeats the first.
    pub(super) operands: [Operand; 3],
    /// A register; none for the result's memory.
    pub(super) target: Option<usize>,
}

/// A compiled elementwise function of any number of broadcast inputs.
///
/// Tile by tile, each step reads inputs, constants and registers (tiles in scratch memory) and
/// writes a register, or the result: memory is read and written once, however many steps there are.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) constants: Vec<Constant>,
    pub(super) inputs: Vec<DType>,
    pub(super) dtype: DType,
    pub(super) registers: usize,
    /// Bytes of an element of a register.
    pub(super) width: usize,
    cost: usize,
}

impl Program {
    /// Dtypes of the inputs.
    pub fn inputs(&self) -> &[DType] {
        &self.inputs
    }

    /// Dtype of the result.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of functions that are applied to each element.
    pub fn functions(&self) -> usize {
        let counts = |s: &&Step| matches!(s.action, Action::Unary(..) | Action::Binary(..));
        self.steps.iter().filter(counts).count()
    }

    /// Rough cost of one element: 1 for an addition.
    pub fn cost(&self) -> usize {
        self.cost
    }
}

struct Compiler<'a> {
    nodes: &'a [(Node, DType)],
    inputs: &'a [DType],
    constants: Vec<Constant>,
    steps: Vec<Step>,
    /// Where each value is held already; registers are numbered by the step that writes them.
    held: HashMap<(Value, Domain), Operand>,
    /// The domain in which each value was computed.
    home: Vec<Domain>,
}

impl<'a> Compiler<'a> {
    fn new(builder: &'a Builder) -> Self {
        let home = builder.nodes.iter().map(|&(_, dtype)| Domain::of(dtype)).collect();
        Self {
            nodes: &builder.nodes,
            inputs: &builder.inputs,
            constants: Vec::new(),
            steps: Vec::new(),
            held: HashMap::new(),
            home,
        }
    }

    fn compile(mut self, result: Value) -> Program {
        let needed = self.needed(result);
        for (i, needed) in needed.into_iter().enumerate() {
            if needed {
                self.value(Value(i));
            }
        }
        let dtype = self.nodes[result.0].1;
        let domain = self.home[result.0];
        let last = self.steps.len().wrapping_sub(1);
        match self.operand(result, domain) {
            // The last step may write the result itself, in place of a register.
            Operand::Register(r) if r == last && domain.dtype() == dtype => {}
            held if domain.dtype() == dtype => {
                self.step(Action::Unary(domain, Unary::Positive), [held; 3]);
            }
            held => {
                // What is stored is rounded anyhow.
                let exact = match self.steps.last() {
                    Some(&Step { action: Action::Round(to), operands: [exact, ..], .. })
                        if held == Operand::Register(last) && to == dtype =>
                    {
                        self.steps.pop();
                        exact
                    }
                    _ => held,
                };
                self.step(Action::Store(domain, dtype), [exact; 3]);
            }
        }
        self.assign_registers(dtype)
    }

    /// Which values the result depends on.
    fn needed(&self, result: Value) -> Vec<bool> {
        let mut needed = vec![false; result.0 + 1]; // bounded: nodes
        needed[result.0] = true;
        for i in (0..needed.len()).rev() {
            if !needed[i] {
                continue;
            }
            let operands: &[Value] = match &self.nodes[i].0 {
                Node::Input(_) | Node::Constant(_) => &[],
                Node::Unary(_, x) | Node::Cast(x) => std::slice::from_ref(x),
                Node::Binary(_, a, b) => &[*a, *b],
                Node::Select(all) => all,
            };
            operands.iter().for_each(|v| needed[v.0] = true);
        }
        needed
    }

    /// Adds the steps that compute a value.
    fn value(&mut self, v: Value) {
        let (node, dtype) = self.nodes[v.0];
        match node {
            Node::Input(i) => {
                let domain = Domain::of(dtype);
                let held = if domain.dtype() == dtype {
                    Operand::Input(i)
                } else {
                    self.step(Action::Load(dtype, i), [Operand::Input(i); 3])
                };
                self.held.insert((v, domain), held);
            }
            Node::Constant(scalar) => {
                self.constants.push(Constant::new(scalar));
                let held = Operand::Constant(self.constants.len() - 1);
                for &domain in Domain::ALL {
                    self.held.insert((v, domain), held);
                }
            }
            Node::Unary(op, x) => {
                let domain = Domain::of(self.nodes[x.0].1);
                let x = self.operand(x, domain);
                let y = self.step(Action::Unary(domain, op), [x; 3]);
                self.settle(v, domain, y);
            }
            Node::Binary(op, a, b) => {
                let domain = match op {
                    Binary::Complex | Binary::Polar => Domain::C128,
                    _ => Domain::of(self.nodes[a.0].1),
                };
                let (a, b) = (self.operand(a, domain), self.operand(b, domain));
                let mut y = self.step(Action::Binary(domain, op), [a, b, a]);
                if op == Binary::Add && dtype == DType::Bool {
                    y = self.step(Action::Unary(domain, Unary::NotZero), [y; 3]); // 1 + 1 is true
                }
                self.settle(v, domain, y);
            }
            Node::Select(parts) => {
                let domain = Domain::of(dtype);
                let parts = parts.map(|p| self.operand(p, domain));
                let y = self.step(Action::Select(domain), parts);
                self.held.insert((v, domain), y); // both were values of this dtype already
            }
            Node::Cast(x) if dtype == DType::Bool => {
                let domain = self.home[x.0];
                let x = self.operand(x, domain);
                let y = self.step(Action::Unary(domain, Unary::NotZero), [x; 3]);
                self.settle(v, domain, y);
            }
            Node::Cast(x) => {
                let domain = Domain::of(dtype);
                let y = self.operand(x, domain);
                match self.nodes[x.0].1 {
                    DType::Bool => drop(self.held.insert((v, domain), y)), // 0 and 1 fit everywhere
                    _ => self.settle(v, domain, y),
                }
            }
        }
    }

    /// Notes where a value was computed, after bringing it to the values that its dtype has. A bool
    /// stays in the domain where it was computed.
    fn settle(&mut self, v: Value, domain: Domain, mut y: Operand) {
        let dtype = self.nodes[v.0].1;
        let mut home = domain;
        if dtype != DType::Bool {
            home = Domain::of(dtype);
            if home != domain {
                y = self.step(Action::Convert(domain, home), [y; 3]);
            }
            if home.dtype() != dtype {
                y = self.step(Action::Round(dtype), [y; 3]);
            }
        }
        self.home[v.0] = home;
        self.held.insert((v, home), y);
    }

    /// Where a value can be read in this domain.
    fn operand(&mut self, v: Value, domain: Domain) -> Operand {
        if let Some(&held) = self.held.get(&(v, domain)) {
            return held;
        }
        // Every value is held in its home once `value` has passed it.
        let home = self.home[v.0];
        let held = self.held.get(&(v, home)).copied().unwrap_or(Operand::Input(0));
        let converted = self.step(Action::Convert(home, domain), [held; 3]);
        self.held.insert((v, domain), converted);
        converted
    }

    /// Adds a step; its result is a register with the step's number.
    fn step(&mut self, action: Action, operands: [Operand; 3]) -> Operand {
        self.steps.push(Step { action, operands, target: None });
        Operand::Register(self.steps.len() - 1)
    }

    /// Gives steps the registers that are free when they run; the last one writes the result.
    fn assign_registers(self, dtype: DType) -> Program {
        let mut steps = self.steps;
        let mut last_use: Vec<usize> = (0..steps.len()).collect();
        for (i, step) in steps.iter().enumerate() {
            for operand in step.operands {
                if let Operand::Register(r) = operand {
                    last_use[r] = i;
                }
            }
        }
        let last = steps.len().saturating_sub(1);
        let mut physical = vec![0; steps.len()];
        let mut free: Vec<usize> = Vec::new();
        let mut registers = 0;
        let mut cost = 0;
        for i in 0..steps.len() {
            let read = steps[i].operands;
            for operand in &mut steps[i].operands {
                if let Operand::Register(r) = operand {
                    *r = physical[*r];
                }
            }
            cost += steps[i].action.cost();
            if i < last {
                // Taken before the operands are freed: a step never writes what it reads, whose
                // elements may be narrower.
                let register = free.pop().unwrap_or_else(|| {
                    registers += 1;
                    registers - 1
                });
                physical[i] = register;
                steps[i].target = Some(register);
            }
            let mut freed = [None; 3];
            for (k, operand) in read.into_iter().enumerate() {
                match operand {
                    Operand::Register(r) if last_use[r] == i && !freed.contains(&Some(r)) => {
                        freed[k] = Some(r);
                        free.push(physical[r]);
                    }
                    _ => {}
                }
            }
        }
        let width = steps.iter().filter(|s| s.target.is_some()).map(|s| s.action.width()).max();
        Program {
            steps,
            constants: self.constants,
            inputs: self.inputs.to_vec(),
            dtype,
            registers,
            width: width.unwrap_or(0),
            cost,
        }
    }
}

impl Action {
    fn cost(self) -> usize {
        match self {
            Self::Unary(Domain::F32, op) => op.cost(),
            Self::Binary(Domain::F32, op) => op.cost(),
            Self::Unary(_, op) => op.cost().max(4),
            Self::Binary(_, op) => op.cost().max(4),
            Self::Select(_) | Self::Load(..) | Self::Convert(..) => 2,
            Self::Round(_) | Self::Store(..) => 2,
        }
    }

    /// Bytes of an element of what the step writes.
    fn width(self) -> usize {
        let domain = match self {
            Self::Load(dtype, _) | Self::Round(dtype) => Domain::of(dtype),
            Self::Unary(domain, _) | Self::Binary(domain, _) => domain,
            Self::Select(domain) | Self::Convert(_, domain) => domain,
            Self::Store(_, dtype) => return dtype.size_of(),
        };
        domain.dtype().size_of()
    }
}

//! PyTorch's native functions, their arguments and overloads: the table `schemas.txt`.
//!
//! `cargo xtask native` writes the table from the PyTorch that is installed; its notation is
//! described there.

use plutino_ir::Parameter;
use std::collections::BTreeMap;
use std::sync::OnceLock;

const TABLE: &str = include_str!("schemas.txt");

/// An overload of a native function.
#[derive(Debug)]
pub(super) struct Signature {
    /// The function and its overload: `sort.stable`.
    pub(super) name: &'static str,
    pub(super) arguments: Vec<Argument>,
}

/// An argument of a native function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Argument {
    /// PyTorch's name; `input` for `self`.
    pub(super) name: &'static str,
    pub(super) sort: Sort,
    pub(super) list: bool,
    pub(super) optional: bool,
    pub(super) default: Option<&'static str>,
}

/// What an argument is, or the members of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Tensor,
    Number,
    Int,
    Float,
    Bool,
    Complex,
    Word,
    DType,
    /// A device, a layout, a memory format, a generator of random numbers.
    Place,
}

/// The overloads of this function, in the order of the table; none for an unknown function.
pub(super) fn overloads(function: &str) -> &'static [Signature] {
    static ALL: OnceLock<BTreeMap<&'static str, Vec<Signature>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all: BTreeMap<&'static str, Vec<Signature>> = BTreeMap::new();
        for signature in TABLE.lines().filter_map(Signature::parse) {
            all.entry(function_of(signature.name)).or_default().push(signature);
        }
        all
    });
    all.get(function).map_or(&[], Vec::as_slice)
}

/// The function of `function.overload`.
pub(super) fn function_of(name: &str) -> &str {
    name.split_once('.').map_or(name, |(function, _)| function)
}

impl Signature {
    fn parse(line: &'static str) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let mut words = line.split(' ');
        let name = words.next()?;
        Some(Self { name, arguments: words.map(Argument::parse).collect::<Option<_>>()? })
    }

    /// How badly these inputs suit, by what is known of them; none where they do not.
    pub(super) fn distance(&self, inputs: &[Given]) -> Option<usize> {
        let missing = self.arguments.get(inputs.len()..)?;
        if missing.iter().any(|a| a.default.is_none()) {
            return None;
        }
        // TorchScript spells out all arguments: a shorter list of them is a better guess than none.
        let pairs = self.arguments.iter().zip(inputs);
        pairs
            .map(|(argument, given)| argument.distance(given))
            .sum::<Option<usize>>()
            .map(|sum| sum + 16 * missing.len())
    }
}

/// What is known of an input of a raw operator when it is decoded.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Given {
    /// A constant.
    Constant(Parameter),
    /// A list that another operator makes.
    List,
    /// Anything that is computed.
    Value,
}

impl Argument {
    fn parse(word: &'static str) -> Option<Self> {
        let (name, rest) = word.split_once(':')?;
        let (kind, default) =
            rest.split_once('=').map_or((rest, None), |(kind, default)| (kind, Some(default)));
        let sort = match kind.chars().next()? {
            'T' => Sort::Tensor,
            's' => Sort::Number,
            'i' => Sort::Int,
            'f' => Sort::Float,
            'b' => Sort::Bool,
            'c' => Sort::Complex,
            'w' => Sort::Word,
            'd' => Sort::DType,
            'x' => Sort::Place,
            _ => return None,
        };
        let (list, optional) = (kind.contains('['), kind.ends_with('?'));
        Some(Self { name, sort, list, optional, default })
    }

    /// How badly an input suits this argument; none where it does not.
    pub(super) fn distance(&self, given: &Given) -> Option<usize> {
        let value = match given {
            Given::List => return self.list.then_some(0),
            // A list may be one value as well: the members of a tuple.
            Given::Value => {
                return Some(match self.sort {
                    Sort::Tensor => usize::from(self.list),
                    Sort::Number | Sort::Int | Sort::Float | Sort::Complex => {
                        1 + usize::from(self.list)
                    }
                    Sort::Bool | Sort::Word | Sort::DType | Sort::Place => 8,
                });
            }
            Given::Constant(value) => value,
        };
        if value.is_null() {
            return (self.optional || self.list).then_some(0);
        }
        let number = value.as_int().is_some() || value.as_float().is_some();
        let whole = value.as_int().is_some();
        let suits = match self.sort {
            // A number stands for a tensor of it, where functions take either.
            Sort::Tensor => return (!self.list && number).then_some(4),
            _ if self.list => match self.sort {
                Sort::Int => value.as_ints().is_some() || whole,
                Sort::Float | Sort::Number => value.as_floats().is_some() || number,
                Sort::Bool => matches!(value, Parameter::Bools(_)),
                _ => matches!(value, Parameter::Strs(_)),
            },
            Sort::Number => number || matches!(value, Parameter::Bool(_) | Parameter::Complex(..)),
            Sort::Int => whole,
            Sort::Float => number,
            Sort::Bool => value.as_bool().is_some() || whole,
            Sort::Complex => number || matches!(value, Parameter::Complex(..)),
            Sort::Word => matches!(value, Parameter::Str(_)),
            Sort::DType => whole || matches!(value, Parameter::Str(_)),
            Sort::Place => self.name != "generator", // which no constant is
        };
        let exact = match self.sort {
            // A single number stands for a list of it.
            _ if self.list => !number,
            Sort::Float => matches!(value, Parameter::Float(_)),
            Sort::Bool => matches!(value, Parameter::Bool(_)),
            Sort::Number => !matches!(value, Parameter::Bool(_)),
            _ => true,
        };
        suits.then_some(usize::from(!exact))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = TABLE.lines().filter(|l| !l.starts_with('#'));
        for line in lines {
            let signature = Signature::parse(line).unwrap_or_else(|| panic!("{line}"));
            let mut names: Vec<_> = signature.arguments.iter().map(|a| a.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{line}");
            let defaults = signature.arguments.iter().filter_map(|a| a.default);
            assert!(defaults.into_iter().all(|d| Parameter::parse(d).is_ok()), "{line}");
        }
        assert!(overloads("sort").len() == 2 && overloads("no_such_function").is_empty());
    }

    fn best(function: &str, inputs: &[Given]) -> Option<&'static str> {
        let fitting =
            overloads(function).iter().filter_map(|s| Some((s.distance(inputs)?, s.name)));
        fitting.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
    }

    #[test]
    fn overloads_are_told_apart_by_number_and_sort_of_inputs() {
        let constant = |text: &str| Given::Constant(Parameter::parse(text).unwrap());
        let x = Given::Value;
        let [dim, no, none] = ["-1", "False", "None"].map(constant);
        let three = [x.clone(), dim.clone(), no.clone()];
        assert_eq!(best("sort", &three), Some("sort"));
        let four = [x.clone(), no.clone(), dim.clone(), no.clone()];
        assert_eq!(best("sort", &four), Some("sort.stable"));
        assert_eq!(best("max", &three), Some("max.dim"));
        assert_eq!(best("max", &[x.clone(), x.clone()]), Some("max.other"));
        assert_eq!(best("var", &[x.clone(), constant("[0]"), none, no]), Some("var.correction"));
        let unbiased = [x.clone(), constant("[0]"), constant("True"), constant("False")];
        assert_eq!(best("var", &unbiased), Some("var.dim"));
        assert_eq!(best("split", &[x.clone(), constant("2"), dim.clone()]), Some("split.Tensor"));
        assert_eq!(best("split", &[x.clone(), Given::List, dim]), Some("split"));
        assert_eq!(best("cat", std::slice::from_ref(&x)), Some("cat"));
        // Not the overload with a generator, which has as many arguments.
        let mut like = vec![x, constant("3"), constant("4")];
        like.extend(vec![constant("None"); 5]);
        assert_eq!(best("randint_like", &like), Some("randint_like.low_dtype"));
    }
}

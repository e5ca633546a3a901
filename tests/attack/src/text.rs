//! Damage to a `.param` text.

use crate::chance::Chance;

/// Values of parameters that mean something else, or nothing.
const VALUES: &[&str] = &[
    "0",
    "-1",
    "1",
    "2",
    "7",
    "64",
    "65537",
    "2147483647",
    "4294967296",
    "-2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1000000000000",
    "(0,0)",
    "(1,1)",
    "(3,1)",
    "(-1,2)",
    "(2147483647,2)",
    "()",
    "(1,2,3,4,5,6,7)",
    "None",
    "True",
    "False",
    "1.5",
    "0.0",
    "-0.0",
    "1e-45",
    "1e38",
    "1e999",
    "nan",
    "inf",
    "-inf",
    "x",
    "zeros",
    "reflect",
    "same",
    "max",
    "torch.long",
    "torch.half",
    "torch.bool",
    "torch.float",
    "",
    "@0",
    "(1,None)",
    "[0]",
    "(2,3",
    "2+3j",
];

/// Numbers that stand where others stood.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "5",
    "8",
    "17",
    "33",
    "64",
    "257",
    "65536",
    "1000003",
    "2147483647",
    "4294967297",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999",
];

const DTYPES: &[&str] = &[
    "f32", "f64", "f16", "i32", "i64", "i16", "i8", "u8", "bool", "c64", "c128", "c32", "bf16",
    "f8",
];

const CHARACTERS: &[u8] = b" 0123456789=@#$(),-.%?\nxf[]\0\xff";

/// The kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// The end is missing.
    Cut,
    /// A byte is another one, is missing, or is there twice.
    Byte,
    /// A line stands at another place as well.
    LineTwice,
    /// Two lines change places.
    LinesSwapped,
    /// A line is missing.
    LineGone,
    /// Two words change places.
    WordsSwapped,
    /// A word is missing.
    WordGone,
    /// A word stands in another line as well.
    WordAdded,
    /// A parameter has another value.
    Value,
    /// A parameter has the value that one of this name has elsewhere.
    Borrowed,
    /// A number is another one.
    Number,
    /// A shape has another dimension, one more or one less.
    Shape,
    /// A type of elements is another one.
    DType,
    /// An operator reads another operand, or its operands change places.
    Operand,
    /// An operator is one of another type.
    Operator,
    /// Operators come after others, without reading of them.
    Order,
}

impl Damage {
    /// Those that the reader of files refuses are few: it has tests of its own.
    const ALL: &'static [(Self, usize)] = &[
        (Self::Cut, 1),
        (Self::Byte, 2),
        (Self::LineTwice, 4),
        (Self::LinesSwapped, 1),
        (Self::LineGone, 1),
        (Self::WordsSwapped, 1),
        (Self::WordGone, 2),
        (Self::WordAdded, 1),
        (Self::Value, 12),
        (Self::Borrowed, 8),
        (Self::Number, 12),
        (Self::Shape, 10),
        (Self::DType, 6),
        (Self::Operand, 8),
        (Self::Operator, 6),
        (Self::Order, 8),
    ];

    fn chosen(chance: &mut Chance) -> Self {
        let mut at = chance.below(Self::ALL.iter().map(|(_, weight)| weight).sum());
        for &(kind, weight) in Self::ALL {
            if at < weight {
                return kind;
            }
            at -= weight;
        }
        Self::Byte
    }
}

/// What damaged words may come from.
pub struct Stock {
    /// Types of operators.
    pub kinds: Vec<String>,
    /// Parameters and attributes, as they stand in files: `dim=1`.
    pub params: Vec<String>,
}

impl Stock {
    /// Of these texts, and with these types of operators.
    pub fn new<'a>(texts: impl Iterator<Item = &'a str>, kinds: Vec<String>) -> Self {
        let words = texts.flat_map(|text| text.lines().skip(2)).flat_map(str::split_whitespace);
        let mut params: Vec<String> = words
            .filter(|word| word.contains('=') && !word.starts_with('#'))
            .map(Into::into)
            .collect();
        params.sort_unstable();
        params.dedup();
        Self { kinds, params }
    }

    /// Where parameters of this name begin and end.
    fn of_name(&self, key: &str) -> &[String] {
        let name = |param: &String| param.split('=').next().unwrap_or("").to_owned();
        let start = self.params.partition_point(|p| name(p).as_str() < key);
        let end = self.params.partition_point(|p| name(p).as_str() <= key);
        self.params.get(start..end.max(start)).unwrap_or_default()
    }
}

type Lines = Vec<Vec<String>>;

/// Damages a text, up to three times; what was done.
pub fn damage(text: &str, stock: &Stock, chance: &mut Chance) -> (Vec<u8>, Vec<Damage>) {
    let mut lines: Lines =
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
    // Types that files record are hints. Where they are there, they must not contradict each other.
    if !chance.once_in(3) {
        let input = |words: &[String]| words.first().is_some_and(|kind| kind == "pnnx.Input");
        let others = lines.iter_mut().skip(2).filter(|words| !input(words));
        others.for_each(|words| words.retain(|word| !word.starts_with('#')));
    }
    let mut done = Vec::new();
    let mut raw = None;
    for _ in 0..1 + chance.below(3) {
        let kind = Damage::chosen(chance);
        done.push(kind);
        match kind {
            Damage::Cut | Damage::Byte => raw = Some(kind),
            _ => words(kind, &mut lines, stock, chance),
        }
    }
    // So that damage reaches beyond the parser: the counts are right again.
    if !chance.once_in(16) && lines.len() > 2 {
        let outputs = lines[2..].iter().filter_map(|l| l.get(3)?.parse::<usize>().ok());
        let outputs = outputs.fold(0, usize::saturating_add);
        lines[1] = vec![(lines.len() - 2).to_string(), outputs.to_string()];
    }
    let text: String = lines.iter().map(|words| words.join(" ") + "\n").collect();
    let mut bytes = text.into_bytes();
    match raw {
        Some(Damage::Cut) => bytes.truncate(chance.below(bytes.len())),
        Some(_) => damage_bytes(&mut bytes, chance),
        None => {}
    }
    (bytes, done)
}

/// Changes, drops, doubles and flips bytes.
pub fn damage_bytes(bytes: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..1 + chance.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = chance.below(bytes.len());
        match chance.below(5) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, bytes[at]),
            3 => {
                let end = (at + 1 + chance.below(8)).min(bytes.len());
                let value = [0, 0xff, 0x7f, 0x80][chance.below(4)];
                bytes[at..end].fill(value);
            }
            _ => bytes[at] = chance.one(CHARACTERS).copied().unwrap_or(0),
        }
    }
}

fn words(kind: Damage, lines: &mut Lines, stock: &Stock, chance: &mut Chance) {
    if lines.len() < 4 {
        return;
    }
    let (line, other) = (2 + chance.below(lines.len() - 2), 2 + chance.below(lines.len() - 2));
    match kind {
        Damage::Cut | Damage::Byte => {}
        Damage::LineTwice => {
            let copy = twin(&lines[line], chance);
            lines.insert(line + 1, copy);
        }
        Damage::LinesSwapped => lines.swap(line, other),
        Damage::LineGone => drop(lines.remove(line)),
        Damage::WordsSwapped => {
            let (a, b) = (chance.below(lines[line].len()), chance.below(lines[other].len()));
            if a < lines[line].len() && b < lines[other].len() {
                let (x, y) = (lines[line][a].clone(), lines[other][b].clone());
                lines[line][a] = y;
                lines[other][b] = x;
            }
        }
        Damage::WordGone => {
            let at = chance.below(lines[line].len());
            if at < lines[line].len() {
                lines[line].remove(at);
            }
        }
        Damage::WordAdded => {
            if let Some(word) = chance.one(&lines[other]).cloned() {
                lines[line].push(word);
            }
        }
        Damage::Value | Damage::Borrowed => {
            let is_param = |word: &&mut String| word.contains('=') && !word.starts_with('#');
            let mut params: Vec<&mut String> =
                lines.iter_mut().skip(2).flatten().filter(is_param).collect();
            let at = chance.below(params.len());
            let Some(word) = params.get_mut(at) else { return };
            let key = word.split('=').next().unwrap_or_default().to_owned();
            if kind == Damage::Borrowed {
                if let Some(param) = chance.one(stock.of_name(&key)) {
                    word.clone_from(param);
                }
            } else if let Some(value) = chance.one(VALUES) {
                **word = format!("{key}={value}");
            }
        }
        Damage::Number => {
            let anywhere = chance.once_in(16);
            let number = |word: &&String| {
                word.contains(|c: char| c.is_ascii_digit())
                    && (anywhere || word.contains('=') && !word.starts_with(['#', '$']))
            };
            let found: Vec<&String> = lines.iter().skip(2).flatten().filter(number).collect();
            let Some(&word) = chance.one(&found) else { return };
            let (old, new) = (word.clone(), renumbered(word, chance));
            // In one place, or wherever it stands.
            let most = if chance.once_in(2) { 1 } else { usize::MAX };
            let places = lines.iter_mut().skip(2).flatten().filter(|word| **word == old);
            places.take(most).for_each(|word| word.clone_from(&new));
        }
        Damage::Shape | Damage::DType => {
            let typed = |word: &&String| word.contains("=(") && word.starts_with(['#', '@']);
            let found: Vec<&String> = lines.iter().skip(2).flatten().filter(typed).collect();
            let Some(&word) = chance.one(&found) else { return };
            let new =
                if kind == Damage::Shape { reshaped(word, chance) } else { retyped(word, chance) };
            let (old, Some(new)) = (word.clone(), new) else { return };
            let places = lines.iter_mut().skip(2).flatten().filter(|word| **word == old);
            places.for_each(|word| word.clone_from(&new));
        }
        Damage::Operand => {
            // Those that are made before.
            let made = lines.iter().take(line).skip(2).flat_map(|words| operands(words).1);
            let made: Vec<String> = made.cloned().collect();
            let inputs = operands(&lines[line]).0.len();
            if inputs == 0 {
                return;
            }
            let (a, b) = (4 + chance.below(inputs), 4 + chance.below(inputs));
            match chance.one(&made) {
                Some(name) if a == b || chance.once_in(2) => reads(&mut lines[line], a, name),
                _ => lines[line].swap(a, b),
            }
        }
        Damage::Operator => {
            if let (Some(word), Some(kind)) = (lines[line].first_mut(), chance.one(&stock.kinds)) {
                word.clone_from(kind);
            }
        }
        Damage::Order => order(lines, chance),
    }
}

/// Adds up to eight orders. Most let an operator come after one that stands before it, which is no
/// input; some make cycles, name what is not there, or say something else than `after`.
fn order(lines: &mut Lines, chance: &mut Chance) {
    for _ in 0..1 + chance.below(8) {
        let later = 2 + chance.below(lines.len() - 2);
        let end = if chance.once_in(16) { lines.len() } else { later };
        let input = |words: &&Vec<String>| words.first().is_some_and(|kind| kind == "pnnx.Input");
        let inputs = chance.once_in(32);
        let before = lines.iter().take(end).skip(2).filter(|words| inputs || !input(words));
        let names: Vec<&String> = before.filter_map(|words| words.get(1)).collect();
        let named = chance.one(&names).map(|name| format!("^{name}=after"));
        let word = match chance.below(128) {
            0 => Some("^nobody=after".to_owned()),
            1 => Some("^=after".to_owned()),
            2 => named.map(|word| word.replace("=after", "=before")),
            _ => named,
        };
        lines[later].extend(word);
    }
}

/// The operator once more, with a name and results of its own; often it reads what the first makes.
fn twin(words: &[String], chance: &mut Chance) -> Vec<String> {
    let mut copy = words.to_vec();
    let suffix = ["_2", "_3", "_4"][chance.below(3)];
    if let Some(name) = copy.get_mut(1).filter(|_| !chance.once_in(16)) {
        name.push_str(suffix);
    }
    let Some((inputs, outputs)) = counts(words) else { return copy };
    copy.retain(|word| !word.starts_with('#'));
    let made = copy.iter_mut().skip(4 + inputs).take(outputs);
    made.for_each(|name| name.push_str(suffix));
    if let Some(first) = operands(words).1.first().filter(|_| inputs > 0 && chance.once_in(2)) {
        reads(&mut copy, 4 + chance.below(inputs), first);
    }
    copy
}

/// Lets an operator read another operand, by whatever name it has for it.
fn reads(words: &mut Vec<String>, at: usize, operand: &str) {
    let Some(old) = words.get(at).cloned() else { return };
    words[at] = operand.to_owned();
    words.retain(|word| !word.starts_with('#'));
    for word in words.iter_mut().filter(|word| word.starts_with('$')) {
        if let Some(key) = word.strip_suffix(&format!("={old}")) {
            *word = format!("{key}={operand}");
        }
    }
}

/// Numbers of inputs and outputs that an operator's line states.
fn counts(words: &[String]) -> Option<(usize, usize)> {
    let number = |at: usize| words.get(at)?.parse::<usize>().ok().filter(|n| *n <= words.len());
    Some((number(2)?, number(3)?))
}

/// Names of the operands that a line reads and makes.
fn operands(words: &[String]) -> (&[String], &[String]) {
    let Some((inputs, outputs)) = counts(words) else { return (&[], &[]) };
    let part = |from: usize, to: usize| words.get(from..to).unwrap_or_default();
    (part(4, 4 + inputs), part(4 + inputs, 4 + inputs + outputs))
}

/// With one of its numbers replaced.
fn renumbered(word: &str, chance: &mut Chance) -> String {
    let digit = |c: char| c.is_ascii_digit();
    let starts: Vec<usize> = word
        .char_indices()
        .filter(|&(at, c)| digit(c) && !word[..at].ends_with(digit))
        .map(|(at, _)| at)
        .collect();
    let Some(&start) = chance.one(&starts) else { return word.to_owned() };
    let end = word[start..].find(|c| !digit(c)).map_or(word.len(), |n| start + n);
    let old: i128 = word[start..end].parse().unwrap_or(0);
    let new = match chance.below(8) {
        0 => (old + 1).to_string(),
        1 => (old - 1).to_string(),
        2 => (old * 2).to_string(),
        3 => (-old).to_string(),
        4 => "0".to_owned(),
        _ => chance.one(NUMBERS).copied().unwrap_or("0").to_owned(),
    };
    format!("{}{new}{}", &word[..start], &word[end..])
}

/// With another dimension, one more or one less.
fn reshaped(word: &str, chance: &mut Chance) -> Option<String> {
    let (head, rest) = word.split_once('(')?;
    let (dims, dtype) = rest.split_once(')')?;
    let mut dims: Vec<String> =
        dims.split(',').filter(|dim| !dim.is_empty()).map(str::to_owned).collect();
    let at = chance.below(dims.len());
    match chance.below(6) {
        0 => drop((at < dims.len()).then(|| dims.remove(at))),
        1 => dims.insert(at, chance.one(&["1", "2", "0", "?"])?.to_string()),
        2 if dims.len() > 1 => {
            let other = chance.below(dims.len());
            dims.swap(at, other);
        }
        _ => {
            let few = ["0", "1", "2", "3", "5", "16", "?", "%w", "-1", "65536", "4294967296"];
            *dims.get_mut(at)? = chance.one(&few)?.to_string();
        }
    }
    Some(format!("{head}({}){dtype}", dims.join(",")))
}

fn retyped(word: &str, chance: &mut Chance) -> Option<String> {
    let (shape, _) = word.rsplit_once(')')?;
    Some(format!("{shape}){}", chance.one(DTYPES)?))
}

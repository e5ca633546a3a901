//! Damaged fixtures, one for each number.

use crate::chance::Chance;
use crate::seeds::{self, Seed};
use crate::text::{self, Damage, Stock};
use crate::trial::{self, Bounds, Outcome, Weights};
use plutino_fixtures::FixtureError;
use std::path::Path;

/// What is damaged, and what damage is made of.
pub struct Nursery {
    operators: Vec<Seed>,
    networks: Vec<Seed>,
    programs: Vec<Seed>,
    stock: Stock,
}

/// One of so many mutants is a whole network.
const NETWORKS: usize = 24;

/// One of so many is a program: control flow, whose bodies are damaged as often as the model.
const PROGRAMS: usize = 16;

impl Nursery {
    /// All fixtures.
    ///
    /// # Errors
    /// Where a fixture is not complete.
    pub fn new() -> Result<Self, FixtureError> {
        let (operators, networks) = (seeds::operators()?, seeds::networks()?);
        let programs = seeds::programs()?;
        let registered =
            plutino::ops::registry().map(|all| all.iter().map(|(kind, _)| kind.to_owned()));
        let kinds = registered.map_or_else(|_| Vec::new(), Iterator::collect);
        let texts = operators.iter().chain(&networks).map(|seed| seed.text.as_str());
        let bodies = programs.iter().flat_map(|seed| &seed.definitions);
        let texts = texts.chain(programs.iter().map(|seed| seed.text.as_str()));
        let texts = texts.chain(bodies.map(|(_, text)| text.as_str()));
        let stock = Stock::new(texts, kinds);
        Ok(Self { operators, networks, programs, stock })
    }

    /// The mutant of this number, the same one always.
    pub fn mutant(&self, seed: u64, number: u64) -> Mutant {
        let mut chance = Chance::of(&format!("mutant {seed} {number}"));
        let among = match (chance.once_in(NETWORKS), chance.once_in(PROGRAMS)) {
            (true, _) => &self.networks,
            (_, true) => &self.programs,
            _ => &self.operators,
        };
        let Some(of) = chance.one(among).cloned() else {
            unreachable!("there are fixtures, or the nursery is not made")
        };
        let bodies = of.definitions.into_iter().map(|(kind, text)| (kind, text.into_bytes()));
        let mut definitions: Vec<(String, Vec<u8>)> = bodies.collect();
        let (mut text, mut damage) = (of.text.clone().into_bytes(), Vec::new());
        if chance.below(24) != 0 {
            // The model or a body.
            let at = chance.below(definitions.len() + 1);
            match definitions.get_mut(at) {
                None => (text, damage) = text::damage(&of.text, &self.stock, &mut chance),
                Some((_, body)) => {
                    let whole = String::from_utf8_lossy(body).into_owned();
                    (*body, damage) = text::damage(&whole, &self.stock, &mut chance);
                }
            }
        }
        let bin = of.bin.unwrap_or_default();
        // Damage to an archive hardly ever gets beyond its check sums; so mostly its bytes are what
        // weights of the damaged text are made of, whatever their shapes.
        let weights = match (damage.is_empty(), chance.below(12)) {
            (true, 0..6) | (false, 0) => Weights::File(damaged_bin(bin, &mut chance)),
            (false, 1..3) => Weights::File(bin),
            _ => Weights::Made(bin),
        };
        let (name, inputs) = (of.name, of.inputs);
        Mutant { number, name, text, damage, weights, inputs, definitions, chance }
    }
}

fn damaged_bin(mut bin: Vec<u8>, chance: &mut Chance) -> Vec<u8> {
    match chance.below(3) {
        0 => bin.truncate(chance.below(bin.len())),
        1 => text::damage_bytes(&mut bin, chance),
        _ => {
            // What stands in the archive's directory: sizes, offsets, numbers of entries.
            let tail = bin.len() - bin.len().min(128 + chance.below(512));
            let mut end = bin.split_off(tail);
            text::damage_bytes(&mut end, chance);
            bin.append(&mut end);
        }
    }
    bin
}

/// A damaged fixture.
pub struct Mutant {
    /// Its number.
    pub number: u64,
    /// The fixture.
    pub name: String,
    /// What was done to the text; nothing where the weights alone are damaged.
    pub damage: Vec<Damage>,
    text: Vec<u8>,
    weights: Weights,
    inputs: Vec<plutino::Tensor>,
    definitions: Vec<(String, Vec<u8>)>,
    chance: Chance,
}

impl Mutant {
    /// Loads, plans and runs it.
    ///
    /// # Errors
    /// What must not be.
    pub fn attempt(&self, bounds: Bounds) -> Result<Outcome, String> {
        let mut chance = self.chance.clone();
        let Self { text, weights, inputs, definitions, .. } = self;
        trial::attempt(text, weights, inputs, definitions, &mut chance, bounds)
    }

    /// Writes it to a folder: `mutant-NUMBER.pnnx.param`, and `.bin` where its weights are a file;
    /// its definitions to `mutant-NUMBER.definitions`.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        let file = |end: &str| folder.join(format!("mutant-{}.pnnx.{end}", self.number));
        std::fs::write(file("param"), &self.text)?;
        let bodies = folder.join(format!("mutant-{}.definitions", self.number));
        if !self.definitions.is_empty() {
            std::fs::create_dir_all(&bodies)?;
        }
        for (kind, body) in &self.definitions {
            std::fs::write(bodies.join(format!("{kind}.pnnx.param")), body)?;
        }
        match &self.weights {
            Weights::File(bin) => std::fs::write(file("bin"), bin),
            Weights::Made(_) => Ok(()),
        }
    }
}

//! What `cargo xtask mutants` and `fuzz/` do for hours, for seconds: the same bodies, always
//! the same damage.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // tests fail by panicking

use plutino_attack::chance::Chance;
use plutino_attack::mutant::Nursery;
use plutino_attack::text::Damage;
use plutino_attack::trial::{Bounds, Outcome};
use plutino_attack::{seeds, target, text};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn mutants_end_in_results_or_typed_errors() {
    let nursery = Nursery::new().unwrap();
    let mut seen: BTreeMap<Outcome, usize> = BTreeMap::new();
    let mut ordered: BTreeMap<Outcome, usize> = BTreeMap::new();
    for number in 0..3000 {
        let mutant = nursery.mutant(0, number);
        let made = mutant.attempt(Bounds::default());
        let outcome = made.unwrap_or_else(|fault| panic!("{number} of {}: {fault}", mutant.name));
        *seen.entry(outcome).or_default() += 1;
        if mutant.damage.contains(&Damage::Order) {
            *ordered.entry(outcome).or_default() += 1;
        }
    }
    // The damage reaches every stage, else this tests the parser alone.
    for outcome in [Outcome::Unread, Outcome::Undecoded, Outcome::NotPlanned, Outcome::Ran] {
        assert!(seen.get(&outcome).is_some_and(|&n| n > 100), "{seen:?}");
    }
    // So do orders without data: some are refused, with many there are results.
    for outcome in [Outcome::Unread, Outcome::Ran] {
        assert!(ordered.get(&outcome).is_some_and(|&n| n > 30), "{ordered:?}");
    }
}

#[test]
fn targets_survive_their_seeds_and_damage_to_them() {
    for (name, body) in target::ALL {
        let mut chance = Chance::of(name);
        let all = seeds::corpus(name).unwrap();
        assert!(all.len() > 1, "{name}");
        all.iter().for_each(|data| body(data));
        for _ in 0..400 {
            let mut data = chance.one(&all).cloned().unwrap();
            text::damage_bytes(&mut data, &mut chance);
            body(&data);
        }
    }
}

#[test]
fn every_target_is_a_file_of_the_fuzzer() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for (name, _) in target::ALL {
        let file = format!("fuzz_targets/{name}.rs");
        let text = std::fs::read_to_string(fuzz.join(&file)).unwrap();
        assert!(text.contains(&format!("target::{name}(")), "{file}");
        assert!(manifest.contains(&file), "{file} is not in Cargo.toml");
    }
    assert_eq!(fuzz.join("fuzz_targets").read_dir().unwrap().count(), target::ALL.len());
}

#[test]
fn damage_is_the_same_always() {
    let (a, b) = (Nursery::new().unwrap(), Nursery::new().unwrap());
    for number in [0, 17, 4711] {
        let (a, b) = (a.mutant(3, number), b.mutant(3, number));
        assert_eq!((a.name.as_str(), &a.damage), (b.name.as_str(), &b.damage));
        let folders = ["a", "b"].map(|end| {
            let folder =
                std::env::temp_dir().join(format!("plutino-same-{}-{end}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            folder
        });
        a.write(&folders[0]).unwrap();
        b.write(&folders[1]).unwrap();
        let file = format!("mutant-{number}.pnnx.param");
        let [x, y] = folders.clone().map(|folder| std::fs::read(folder.join(&file)).unwrap());
        assert_eq!(x, y);
        folders.iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
    }
}

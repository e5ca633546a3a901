//! Names that were perhaps meant.

/// Bytes of a name beyond which no other is looked for.
pub(crate) const LONGEST_NAME: usize = 200;

/// The name that differs least from `what`, in about a third of its letters at most; of several the
/// first.
pub fn most_similar<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if what.len() > LONGEST_NAME {
        return None;
    }
    let names = names.filter(|name| name.len() <= LONGEST_NAME).filter_map(|name| {
        let most = what.len().max(name.len());
        // A name of one letter has nothing in common with another one.
        let allowed = (most / 3).max(1).min(most.saturating_sub(1));
        // What lengths alone rule out is not compared: models have many names.
        let far = what.len().abs_diff(name.len()) > allowed;
        let distance = if far { usize::MAX } else { strsim::osa_distance(name, what) };
        (distance <= allowed).then_some((distance, name))
    });
    names.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_meant_where_few_letters_differ() {
        let names = ["relu", "layer1.conv1", "layer2.conv1", "a"];
        let meant = |what: &str| most_similar(what, names.into_iter());
        assert_eq!(meant("rellu"), Some("relu"));
        assert_eq!(meant("rleu"), Some("relu"));
        assert_eq!(meant("layer1.conf1"), Some("layer1.conv1"));
        assert_eq!(meant("layer3.conv1"), Some("layer1.conv1"), "of several the first");
        assert_eq!(meant("rest"), None, "half of it is another word");
        assert_eq!(meant("x"), None);
        assert_eq!(meant("layer"), None);
        assert_eq!(meant(&"relu".repeat(100)), None);
    }
}

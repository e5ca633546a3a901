//! Identities: operators whose result is a value that is there already.
//!
//! Dropout, the concatenation of one tensor, resizing to the same size, permutations that are none
//! or take each other back, reshapes back to the shape there was.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::halt;
use crate::plan::net::{Net, ValueId};
use plutino_ops::Role;

/// Operators in a row that are looked through.
const MOST_STEPS: usize = 16;

/// Lets those who read the result of an identity read the value itself.
pub(super) fn identity(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    for at in 0..net.nodes.len() {
        halt::go_on_at(at)?;
        let Some(same) = super::searching(|| find(net, at)) else { continue };
        let Some(output) = net.only_output(at) else { continue };
        let name = net.nodes[at].location.name.clone();
        let note = format!("is {} as it is", net.name(same));
        cx.apply(net, Patch::forward(at, output, same).note(&name, note))?;
    }
    Ok(())
}

/// The value that the output of the node at `at` is.
fn find(net: &Net, at: usize) -> Option<ValueId> {
    let output = net.only_output(at)?;
    let result = net.computed(output)?;
    match net.role(at)? {
        Role::Same(input) => net.nodes[at].inputs.get(input).copied(),
        Role::Permute(..) => unpermuted(net, at),
        Role::Reshape(_) => {
            let mut at = at;
            for _ in 0..MOST_STEPS {
                let Role::Reshape(input) = net.role(at)? else { return None };
                let value = *net.nodes[at].inputs.get(input)?;
                if net.computed(value)? == result {
                    return Some(value);
                }
                at = net.producer(value)?;
            }
            None
        }
        _ => None,
    }
}

/// The value that permutations up to the node at `at` leave as it was.
fn unpermuted(net: &Net, mut at: usize) -> Option<ValueId> {
    let mut order: Option<Vec<usize>> = None;
    for _ in 0..MOST_STEPS {
        let Role::Permute(input, inner) = net.role(at)? else { return None };
        let all = match order {
            None => inner,
            Some(outer) => {
                outer.iter().map(|&d| inner.get(d).copied()).collect::<Option<Vec<_>>>()?
            }
        };
        let value = *net.nodes[at].inputs.get(input)?;
        if all.iter().enumerate().all(|(i, &d)| i == d) {
            return Some(value);
        }
        order = Some(all);
        at = net.producer(value)?;
    }
    None
}

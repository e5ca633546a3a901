//! Dead operators: nobody reads what they make, directly or through others.

use super::PassCx;
use crate::SessionError;
use crate::halt;
use crate::order::Alive;
use crate::plan::infer::all_known;
use crate::plan::net::{Net, Node};

/// Leaves out nodes that no fetch depends on.
pub(crate) fn dead(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    leave_out(net, cx, "removed: nobody reads its outputs", |_| true)
}

/// Leaves out nodes that only known values depend on: those are constants of the plan.
pub(super) fn constants(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let types = std::mem::take(&mut net.types);
    let computes = |node: &Node| !types.all(&node.outputs).is_some_and(|o| all_known(&o));
    let done = leave_out(net, cx, "only constants depend on it", computes);
    net.types = types;
    done
}

/// Leaves out the nodes that no result needs; those that `reads` says no to need nothing.
fn leave_out(
    net: &mut Net,
    cx: &mut PassCx<'_>,
    why: &str,
    reads: impl Fn(&Node) -> bool,
) -> Result<(), SessionError> {
    let mut alive = Alive::new(&net.values, &net.fetches, &net.last);
    for (at, node) in net.nodes.iter().enumerate().rev() {
        halt::go_on_at(at)?;
        if alive.is_needed(node) || !cx.allows(&node.location.name) {
            match reads(node) {
                true => alive.needs(node),
                false => alive.waits(node),
            }
        }
    }
    net.nodes.retain_mut(|node| {
        let name = &node.location.name;
        let stays = alive.is_needed(node) || !cx.allows(name);
        if !stays {
            cx.did(name, why);
        }
        node.order.carries.retain(|&token| alive.is_awaited(token));
        stays
    });
    Ok(())
}

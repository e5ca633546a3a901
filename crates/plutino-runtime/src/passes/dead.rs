//! Dead operators: nobody reads what they make, directly or through others.

use super::PassCx;
use crate::SessionError;
use crate::net::{Net, Node};

/// Leaves out nodes that no fetch depends on.
pub(crate) fn dead(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    leave_out(net, cx, "removed: nobody reads its outputs", |_| true)
}

/// Leaves out nodes that only known values depend on: those are constants of the plan.
pub(super) fn constants(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let types = std::mem::take(&mut net.types);
    let computes = |node: &Node| !node.outputs.iter().all(|&o| types.is_known(o));
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
    let mut needed = vec![false; net.values.len()];
    net.fetches.iter().for_each(|f| needed[f.0] = true);
    for (at, node) in net.nodes.iter().enumerate().rev() {
        cx.limits.check_at(at)?;
        let read = node.outputs.iter().any(|o| needed[o.0]) || !cx.allows(&node.location.name);
        if read && reads(node) {
            node.inputs.iter().for_each(|i| needed[i.0] = true);
        }
    }
    net.nodes.retain(|node| {
        let name = &node.location.name;
        let alive = node.outputs.iter().any(|o| needed[o.0]) || !cx.allows(name);
        if !alive {
            cx.did(name, why);
        }
        alive
    });
    Ok(())
}

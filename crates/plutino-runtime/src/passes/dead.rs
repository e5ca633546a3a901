//! Dead operators: nobody reads what they make, directly or through others.

use super::PassReport;
use crate::SessionError;
use crate::infer::Types;
use crate::net::Net;

/// Leaves out nodes that only known values depend on: those are constants of the plan now.
pub(crate) fn sweep(net: &mut Net, types: &Types) {
    let mut needed = vec![false; net.values.len()];
    net.fetches.iter().for_each(|f| needed[f.0] = true);
    for node in net.nodes.iter().rev() {
        let known = node.outputs.iter().all(|&o| types.is_known(o));
        if !known && node.outputs.iter().any(|o| needed[o.0]) {
            node.inputs.iter().for_each(|i| needed[i.0] = true);
        }
    }
    net.nodes.retain(|node| node.outputs.iter().any(|o| needed[o.0]));
}

/// Leaves out nodes that no fetch depends on.
pub(super) fn dead(net: &mut Net, report: &mut PassReport) -> Result<(), SessionError> {
    let mut needed = vec![false; net.values.len()];
    net.fetches.iter().for_each(|f| needed[f.0] = true);
    for node in net.nodes.iter().rev() {
        if node.outputs.iter().any(|o| needed[o.0]) {
            node.inputs.iter().for_each(|i| needed[i.0] = true);
        }
    }
    net.nodes.retain(|node| {
        let alive = node.outputs.iter().any(|o| needed[o.0]);
        if !alive {
            report.did(&node.location.name, "removed: nobody reads its outputs");
        }
        alive
    });
    Ok(())
}

//! Zeros that stand in for weights, so that a model can be planned from its `.param` file alone:
//! shapes, kernels, memory and costs are those of the model, values are not.

use crate::ModelError;
use bytes::Bytes;
use plutino_ir::{Graph, OperatorId};
use plutino_tensor::alloc;

/// Gives every weight that has no data zeros, in one piece of memory that all share. `most` is what
/// all weights together may take: packed for kernels, each takes memory of its own.
///
/// # Errors
/// Where the weights are larger than that, or than memory.
pub(crate) fn fill(graph: &mut Graph, file: &str, most: usize) -> Result<(), ModelError> {
    let missing = || {
        let all = graph.operators().flat_map(|(_, op)| op.attrs.values());
        all.filter(|attribute| !attribute.is_loaded()).map(|attribute| attribute.byte_len())
    };
    let bytes = missing().fold(0, usize::saturating_add);
    let too_large = || ModelError::StandIns { file: file.to_owned(), bytes, most };
    if bytes > most {
        return Err(too_large());
    }
    let largest = missing().max().unwrap_or(0);
    let zeros = Bytes::from(alloc::filled(largest, 0u8).map_err(|_| too_large())?);
    let operators: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
    for id in operators {
        let Ok(attributes) = graph.attrs_mut(id) else { continue };
        for attribute in attributes.values_mut().filter(|attribute| !attribute.is_loaded()) {
            // As long as it must be: nothing can be wrong with it.
            let _ = attribute.set_data(zeros.slice(..attribute.byte_len()));
        }
    }
    Ok(())
}

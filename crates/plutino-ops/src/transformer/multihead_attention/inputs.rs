//! Which input of `nn.MultiheadAttention` is which.
//!
//! pnnx writes inputs in the order in which the traced module reads them: masks of bools come
//! first, since they are turned into floats first; then query, key and value; then masks of floats.
//! The last one it calls `attn_mask` where there are more than it expects, whatever it is:
//!
//! ```text
//! mask query key value   (5,7)bool (5,3,8)f32 (7,3,8)f32 (7,3,8)f32   $attn_mask=value
//! ```
//! Masks of floats that are constants of the module come first as well, as all constants do.
//! Recorded dtypes and shapes tell masks from what is attended to. Where nothing is recorded, names
//! hold.

use crate::{BuildError, BuildProblem, NodeReader};
use plutino_ir::Dim;
use plutino_tensor::DType;

/// Positions of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inputs {
    pub(super) query: usize,
    pub(super) key: usize,
    pub(super) value: usize,
    pub(super) attn_mask: Option<usize>,
    pub(super) key_padding_mask: Option<usize>,
}

/// What the parameters say of the inputs.
pub(super) struct Widths {
    pub(super) embed: usize,
    pub(super) kdim: usize,
    pub(super) vdim: usize,
    pub(super) batch_first: bool,
}

/// Reads all inputs of the node.
pub(super) fn read(r: &mut NodeReader<'_>, widths: &Widths) -> Result<Inputs, BuildError> {
    let attn_name = r.named_input("attn_mask");
    let padding_name = r.named_input("key_padding_mask");
    let [query, key, value, kv] = ["query", "key", "value", "kv"].map(|key| r.named_input(key));
    r.rest();
    let recorded = Recorded::new(r, widths, query);
    let fixed = [query, key, value, kv];
    let (mut states, mut masks) = (Vec::new(), Vec::new());
    for at in (0..r.input_count()).filter(|&at| !fixed.contains(&Some(at))) {
        match recorded.can_be_state(r, at) && padding_name != Some(at) {
            true => states.push(at),
            false => masks.push(at),
        }
    }
    // The name holds where nothing else is a mask, or there are more tensors than can be attended
    // to.
    if let Some(at) = attn_name.filter(|at| states.contains(at))
        && (masks.is_empty() || states.len() + fixed.iter().flatten().count() > 3)
    {
        states.retain(|&state| state != at);
        masks.push(at);
    }
    let (attn_mask, key_padding_mask) = assign(r, &recorded, &masks, [attn_name, padding_name])?;
    // By name, or in order: one input is all three, two are queries and keys with their values.
    let mut states = states.into_iter();
    let query = query.or_else(|| states.next());
    let query = query.ok_or_else(|| r.error(BuildProblem::MissingInput { key: "query".into() }))?;
    let key = key.or(kv).or_else(|| states.next()).unwrap_or(query);
    let value = value.or_else(|| states.next()).unwrap_or(key);
    let attn_mask = attn_mask.or_else(|| states.next());
    if let Some(expected) = states.next() {
        let found = r.input_count();
        return Err(r.error(BuildProblem::UnknownInputs { expected, found }));
    }
    // The same tensor under two names is projected once.
    let [query, key, value] = [query, key, value].map(|input| r.first_use(input));
    Ok(Inputs { query, key, value, attn_mask, key_padding_mask })
}

/// Which of the masks is added to scores, and which hides keys of a sequence.
fn assign(
    r: &NodeReader<'_>,
    recorded: &Recorded<'_>,
    masks: &[usize],
    [attn_name, padding_name]: [Option<usize>; 2],
) -> Result<(Option<usize>, Option<usize>), BuildError> {
    // pnnx calls either mask `attn_mask`; `key_padding_mask` it never says without reason.
    let padding = |at: usize| padding_name == Some(at) || recorded.is_padding(r.recorded_input(at));
    Ok(match *masks {
        [] => (None, None),
        [at] if padding(at) => (None, Some(at)),
        [at] => (Some(at), None),
        [a, b] => match (padding(a), padding(b)) {
            (true, false) => (Some(b), Some(a)),
            (false, true) => (Some(a), Some(b)),
            // Shapes leave it open; of two masks of one sort the order is that of the module's
            // code.
            _ if attn_name == Some(a) => (Some(a), Some(b)),
            _ if r.recorded_input_dtype(b) == Some(DType::Bool) => (Some(b), Some(a)),
            _ if r.recorded_input_dtype(a) == Some(DType::Bool) => (Some(b), Some(a)),
            _ => (Some(a), Some(b)),
        },
        _ => {
            let (expected, found) = (masks.len().saturating_sub(2), r.input_count());
            let expected = found.saturating_sub(expected);
            return Err(r.error(BuildProblem::UnknownInputs { expected, found }));
        }
    })
}

/// What the file records of the query, and what follows for the others.
struct Recorded<'a> {
    query: Option<&'a [Dim]>,
    widths: &'a Widths,
}

impl<'a> Recorded<'a> {
    /// The query is the named one, else the first input that is no mask of bools: of those that are
    /// as wide as a query, and of as many dimensions as any of them.
    fn new(r: &NodeReader<'a>, widths: &'a Widths, query: Option<usize>) -> Self {
        let is_bool = |at: &usize| r.recorded_input_dtype(*at) == Some(DType::Bool);
        let floats = || (0..r.input_count()).filter(|at| !is_bool(at));
        let wide = |dims: &[Dim]| dims.last() == Some(&Dim::Known(widths.embed));
        let rank = |at: usize| r.recorded_input(at).filter(|dims| wide(dims)).map_or(0, <[_]>::len);
        let most = floats().map(rank).max().unwrap_or(0);
        let query = query.or_else(|| floats().find(|&at| rank(at) == most));
        Self { query: query.and_then(|at| r.recorded_input(at)), widths }
    }

    /// Batch and queries, where there is a batch.
    fn batch_and_queries(&self) -> Option<(&'a Dim, &'a Dim)> {
        let Some([first, second, _]) = self.query else { return None };
        Some(if self.widths.batch_first { (first, second) } else { (second, first) })
    }

    /// Whether this input may be a query, key or value.
    fn can_be_state(&self, r: &NodeReader<'_>, at: usize) -> bool {
        if r.recorded_input_dtype(at).is_some_and(|dtype| !dtype.is_float()) {
            return false;
        }
        let (Some(query), Some(dims)) = (self.query, r.recorded_input(at)) else { return true };
        let Widths { embed, kdim, vdim, batch_first } = *self.widths;
        let width = match dims.last() {
            Some(Dim::Known(width)) => [embed, kdim, vdim].contains(width),
            _ => !dims.is_empty(),
        };
        let batch = match (dims, self.batch_and_queries()) {
            ([first, second, _], Some((Dim::Known(batch), _))) => {
                let own = if batch_first { first } else { second };
                !matches!(own, Dim::Known(own) if own != batch)
            }
            _ => true,
        };
        dims.len() == query.len() && width && batch
    }

    /// Whether a mask of this shape, (N, S), hides keys of a sequence, and not those of a query,
    /// (L, S). Where N is L the file leaves it open, and its name holds.
    fn is_padding(&self, mask: Option<&[Dim]>) -> bool {
        match (mask, self.batch_and_queries()) {
            (Some([rows, _]), Some((batch, queries))) => rows == batch && rows != queries,
            // Without a batch, the only sequence's keys.
            (Some([_]), None) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plutino_ir::Graph;

    /// The inputs of a node that reads operands of these types; `None` where it is refused. The
    /// name is that of the operand which the file calls `attn_mask`.
    fn found(types: &[&str], named: usize, batch_first: bool) -> Option<[Option<usize>; 5]> {
        let mut text = format!("7767517\n{0} {0}\n", types.len() + 1);
        let mut operands = String::new();
        for (i, ty) in types.iter().enumerate() {
            text += &format!("pnnx.Input in{i} 0 1 {i} #{i}={ty}\n");
            operands += &format!("{i} ");
        }
        let name = if named < types.len() { format!("$attn_mask={named}") } else { String::new() };
        text += &format!("nn.MultiheadAttention m {} 1 {operands}out {name}\n", types.len());
        let graph = Graph::parse(&text).unwrap();
        let (_, op) = graph.operators().last().unwrap();
        let call = crate::native::Call::default();
        let mut reader = NodeReader::in_graph("t.param", &graph, op, &call);
        let widths = Widths { embed: 8, kdim: 8, vdim: 8, batch_first };
        let i = read(&mut reader, &widths).ok()?;
        reader.finish().unwrap();
        Some([Some(i.query), Some(i.key), Some(i.value), i.attn_mask, i.key_padding_mask])
    }

    /// The same with batch first and last.
    #[track_caller]
    fn check(types: &[&str], named: usize, expected: [Option<usize>; 5]) {
        assert_eq!(found(types, named, false), Some(expected), "{types:?}");
        let batch_first: Vec<String> = types
            .iter()
            .map(|ty| match ty.strip_suffix(",3,8)f32") {
                Some(length) => format!("(3,{},8)f32", &length[1..]),
                None => (*ty).to_owned(),
            })
            .collect();
        let batch_first: Vec<&str> = batch_first.iter().map(String::as_str).collect();
        assert_eq!(found(&batch_first, named, true), Some(expected), "{batch_first:?}");
    }

    const Q: &str = "(5,3,8)f32";
    const K: &str = "(7,3,8)f32";
    const NOT: usize = usize::MAX;

    #[test]
    fn masks_stand_where_the_trace_reads_them() {
        let at = |q, k, v, mask, padding| [Some(q), Some(k), Some(v), mask, padding];
        // One mask: of bools in front, of floats behind.
        check(&["(5,7)bool", Q, K, K], 3, at(1, 2, 3, Some(0), None));
        check(&["(6,5,7)bool", Q, K, K], 3, at(1, 2, 3, Some(0), None));
        check(&["(3,7)bool", Q, K, K], 3, at(1, 2, 3, None, Some(0)));
        check(&[Q, K, K, "(5,7)f32"], 3, at(0, 1, 2, Some(3), None));
        check(&[Q, K, K, "(3,7)f32"], 3, at(0, 1, 2, None, Some(3)));
        // Both.
        check(&["(3,7)bool", "(5,7)bool", Q, K, K], 4, at(2, 3, 4, Some(1), Some(0)));
        check(&["(3,7)bool", Q, K, K, "(5,7)f32"], 4, at(1, 2, 3, Some(4), Some(0)));
        check(&["(5,7)bool", Q, K, K, "(3,7)f32"], 4, at(1, 2, 3, Some(0), Some(4)));
        check(&[Q, K, K, "(5,7)f32", "(3,7)f32"], 4, at(0, 1, 2, Some(3), Some(4)));
        // Attention to itself, and to one other tensor.
        check(&["(5,5)bool", Q], 1, at(1, 1, 1, Some(0), None));
        check(&["(3,5)bool", "(5,5)bool", Q], 2, at(2, 2, 2, Some(1), Some(0)));
        check(&["(3,7)bool", Q, K], 2, at(1, 2, 2, None, Some(0)));
        check(&["(3,7)bool", "(5,7)bool", Q, K], 3, at(2, 3, 3, Some(1), Some(0)));
        // A constant of floats in front, for all heads and for each of two.
        check(&["(5,5)f32", Q], 1, at(1, 1, 1, Some(0), None));
        check(&["(5,7)f32", Q, K], 2, at(1, 2, 2, Some(0), None));
        check(&["(6,5,7)f32", Q, K], 2, at(1, 2, 2, Some(0), None));
        check(&["(5,7)f32", Q, K, K], 3, at(1, 2, 3, Some(0), None));
        // As wide as a query.
        check(&["(5,8)f32", Q, "(8,3,8)f32"], 2, at(1, 2, 2, Some(0), None));
        // As many queries as keys have channels: the batch tells a mask for each head.
        check(&["(3,8)bool", Q, "(8,3,8)f32", "(6,5,8)f32"], 3, at(1, 2, 2, Some(3), Some(0)));
    }

    #[test]
    fn without_a_batch_a_vector_hides_keys() {
        let types = ["(7)bool", "(5,8)f32", "(7,8)f32"];
        assert_eq!(found(&types, 2, false), Some([Some(1), Some(2), Some(2), None, Some(0)]));
        let types = ["(5,7)bool", "(5,8)f32", "(7,8)f32"];
        assert_eq!(found(&types, 2, false), Some([Some(1), Some(2), Some(2), Some(0), None]));
    }

    #[test]
    fn names_hold_where_nothing_is_recorded() {
        let types = ["(?,?,?)null"; 4];
        assert_eq!(found(&types, 3, false), Some([Some(0), Some(1), Some(2), Some(3), None]));
        assert_eq!(found(&types[..2], 1, false), Some([Some(0), Some(0), Some(0), Some(1), None]));
        assert_eq!(found(&types, NOT, false), Some([Some(0), Some(1), Some(2), Some(3), None]));
    }

    #[test]
    fn shapes_that_leave_it_open_go_by_the_order_of_the_code() {
        // Three queries and three sequences.
        let types = ["(3,3)bool", "(3,3)bool", "(3,3,8)f32"];
        assert_eq!(found(&types, 2, false), Some([Some(2), Some(2), Some(2), Some(1), Some(0)]));
        assert_eq!(found(&types[1..], 1, false), Some([Some(1), Some(1), Some(1), Some(0), None]));
    }

    #[test]
    fn too_many_masks_are_refused() {
        assert_eq!(found(&["(5,5)bool", "(5,5)bool", "(5,5)bool", Q], NOT, false), None);
        assert_eq!(found(&["(5,5)bool"], NOT, false), None);
    }
}

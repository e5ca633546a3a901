//! To which module of PyTorch each operator belongs.
//!
//! Operators that are modules carry the module's path (`layer1.0.conv1`). What a module computes
//! with functions has made-up names (`torch.flatten_0`, `pnnx_expr_12`), and so has what the
//! exporter fused (`convbn2d_3`). These are given to the nearest module; where they stand between
//! two operators of a module, to that module, so that it can be folded without a circle.

use plutino::ir::{Graph, Operator, topo};
use std::collections::BTreeSet;

/// Path of a module, outermost first.
pub(crate) type Scope = Vec<String>;

/// Modules in the neighbourhood that are looked at; those of long tuples are many.
const MOST_NEIGHBOURS: usize = 8;

/// Levels of a path that count: a file may nest names as it likes.
const DEEPEST: usize = 16;

/// Beginnings of names that the exporter makes of functions; it may change the type later.
const FUNCTIONS: &[&str] = &["torch.", "Tensor.", "F.", "torchvision.", "aten::", "prim::"];

/// The module of every operator, by [`plutino::ir::OperatorId::index`].
pub(crate) fn scopes(graph: &Graph) -> Vec<Scope> {
    let mut named: Vec<Option<Scope>> = vec![None; graph.operator_slots()];
    for (id, op) in graph.operators() {
        named[id.index()] = own(op);
    }
    let Ok(order) = topo::kahn(graph) else {
        return named.into_iter().map(Option::unwrap_or_default).collect();
    };
    let readers = |op: &Operator| -> Vec<usize> {
        let operands = op.outputs.iter().filter_map(|&id| graph.operand(id));
        operands.flat_map(|o| o.consumers.iter().take(MOST_NEIGHBOURS).map(|c| c.index())).collect()
    };
    let writers = |op: &Operator| -> Vec<usize> {
        let operands = op.inputs.iter().take(MOST_NEIGHBOURS).filter_map(|&id| graph.operand(id));
        operands.filter_map(|o| o.producer.map(|p| p.index())).collect()
    };
    let ops = || order.iter().filter_map(|&id| Some((id.index(), graph.operator(id)?)));
    let mut below = vec![Around::default(); named.len()];
    for (at, op) in ops().rev() {
        below[at] = match &named[at] {
            Some(scope) => Around::at(scope),
            None => Around::behind(readers(op).into_iter().map(|reader| &below[reader])),
        };
    }
    let mut above = vec![Around::default(); named.len()];
    let mut found: Vec<Scope> = vec![Vec::new(); named.len()];
    for (at, op) in ops() {
        let sources = writers(op);
        above[at] = match &named[at] {
            Some(scope) => Around::at(scope),
            None => Around::behind(sources.iter().map(|&source| &above[source])),
        };
        found[at] = match &named[at] {
            Some(scope) => scope.clone(),
            // A constant belongs to whoever reads it.
            None if sources.is_empty() => shared(&below[at].scopes),
            None => {
                let inputs: Vec<&Scope> = sources.iter().map(|&source| &found[source]).collect();
                choose(&above[at], &below[at], &inputs)
            }
        };
    }
    found
}

/// The modules on one side of an operator.
#[derive(Debug, Clone, Default)]
struct Around {
    /// A few of them.
    scopes: BTreeSet<Scope>,
    /// The nearest one, and how many operators away it is.
    nearest: Option<(usize, Scope)>,
}

impl Around {
    fn at(scope: &Scope) -> Self {
        Self { scopes: BTreeSet::from([scope.clone()]), nearest: Some((0, scope.clone())) }
    }

    /// One operator further away from all of these.
    fn behind<'a>(neighbours: impl Iterator<Item = &'a Self>) -> Self {
        let mut around = Self::default();
        for neighbour in neighbours {
            let missing = MOST_NEIGHBOURS.saturating_sub(around.scopes.len());
            around.scopes.extend(neighbour.scopes.iter().take(missing).cloned());
            let further = neighbour.nearest.as_ref().map(|(far, scope)| (far + 1, scope));
            let far = around.nearest.as_ref().map_or(usize::MAX, |(far, _)| *far);
            if let Some((further, scope)) = further.filter(|(further, _)| *further < far) {
                around.nearest = Some((further, scope.clone()));
            }
        }
        around
    }

    fn distance(&self) -> usize {
        self.nearest.as_ref().map_or(usize::MAX, |(far, _)| *far)
    }
}

/// The module of an operator between these that reads from `inputs`.
fn choose(above: &Around, below: &Around, inputs: &[&Scope]) -> Scope {
    let pairs =
        above.scopes.iter().flat_map(|a| below.scopes.iter().map(move |b| &a[..common(a, b)]));
    let between = pairs.max_by_key(|scope| scope.len()).unwrap_or_default();
    let near = match (&below.nearest, inputs.iter().max_by_key(|scope| scope.len())) {
        (Some((far, scope)), _) if *far < above.distance() => scope.clone(),
        // What its inputs lie in, unless they lie in different modules.
        (_, Some(deepest)) => {
            let shared = inputs.iter().map(|scope| match common(scope, deepest) {
                n if n == scope.len() => deepest.len(),
                n => n,
            });
            deepest[..shared.min().unwrap_or(0)].to_vec()
        }
        _ => Scope::new(),
    };
    if near.starts_with(between) { near } else { between.to_vec() }
}

/// The module that an operator's own name tells; none where the name is made up.
fn own(op: &Operator) -> Option<Scope> {
    if matches!(op.kind.as_str(), "pnnx.Input" | "pnnx.Output") {
        return Some(Scope::new());
    }
    let path = |path: &str| path.split('.').take(DEEPEST).map(str::to_owned).collect();
    // What a definition put in the place of a node belongs to that.
    if let Some(origin) = &op.origin {
        let node = &origin.node.name;
        let own = op.name.strip_prefix(node.as_str()).and_then(|own| own.strip_prefix('.'));
        let module = own.filter(|own| !FUNCTIONS.iter().any(|space| own.starts_with(space)));
        let module = module.and_then(|_| op.name.rsplit_once('.'));
        return Some(path(module.map_or(node, |(module, _)| module)));
    }
    let numbered = op.name.rsplit_once('_').is_some_and(|(_, n)| n.parse::<u32>().is_ok());
    let function = FUNCTIONS.iter().any(|space| op.name.starts_with(space)) && numbered;
    match op.name.rsplit_once('.') {
        _ if op.name.starts_with(&op.kind) || op.name.starts_with("pnnx_") || function => None,
        Some((module, _)) => Some(path(module)),
        None if numbered => None,
        None => Some(Scope::new()),
    }
}

/// The innermost module that all of these lie in.
fn shared(all: &BTreeSet<Scope>) -> Scope {
    // They are sorted, so that the first and the last differ most.
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Scope::new() };
    first[..common(first, last)].to_vec()
}

/// Length of the common path.
fn common(a: &[String], b: &[String]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope_of(graph: &Graph, name: &str) -> String {
        let id = graph.operator_by_name(name).unwrap();
        scopes(graph)[id.index()].join(".")
    }

    #[test]
    fn functions_belong_to_the_modules_around_them() {
        let graph = Graph::parse(
            "7767517
             10 9
             pnnx.Input in 0 1 0
             pnnx.Attribute pnnx_fold_c 0 1 c
             nn.Conv2d stem.conv 1 1 0 1
             F.relu F.relu_0 1 1 1 2
             nn.Conv2d layer1.0.conv1 1 1 2 3
             pnnx.Expression pnnx_expr_0 2 1 3 c 4 expr=add(@0,@1)
             nn.Conv2d layer1.0.conv2 1 1 4 5
             torch.flatten torch.flatten_0 1 1 5 6
             nn.Conv2d layer1.1.conv1 1 1 6 7
             pnnx.Output out 1 0 7",
        );
        let graph = graph.unwrap();
        assert_eq!(scope_of(&graph, "stem.conv"), "stem");
        assert_eq!(scope_of(&graph, "layer1.0.conv2"), "layer1.0");
        assert_eq!(scope_of(&graph, "F.relu_0"), "stem"); // it reads nothing else
        assert_eq!(scope_of(&graph, "pnnx_expr_0"), "layer1.0");
        assert_eq!(scope_of(&graph, "pnnx_fold_c"), "layer1.0");
        assert_eq!(scope_of(&graph, "torch.flatten_0"), "layer1.0");
        assert_eq!(scope_of(&graph, "in"), "");
        assert_eq!(scope_of(&graph, "out"), "");
    }

    #[test]
    fn what_a_definition_holds_belongs_to_the_node() {
        let lines = "7767517\n5 4\npnnx.Input in 0 1 0\nnn.ReLU part.act 1 1 0 1\n\
                     F.relu F.relu_0 1 1 1 2\nnn.ReLU relu 1 1 2 3\npnnx.Output out 1 0 3\n";
        let mut definitions = plutino::ir::Definitions::new();
        definitions.define("m.Block", Graph::parse(lines).unwrap());
        let lines =
            "7767517\n3 2\npnnx.Input in 0 1 0\nm.Block stem.b 1 1 0 1\npnnx.Output out 1 0 1\n";
        let mut graph = Graph::parse(lines).unwrap();
        graph.inline("f", &definitions, &Default::default(), &Default::default(), None).unwrap();
        assert_eq!(scope_of(&graph, "stem.b.part.act"), "stem.b.part");
        assert_eq!(scope_of(&graph, "stem.b.F.relu_0"), "stem.b");
        assert_eq!(scope_of(&graph, "stem.b.relu"), "stem.b");
    }

    #[test]
    fn what_was_fused_belongs_to_the_nearest_module() {
        let graph = Graph::parse(
            "7767517
             11 10
             pnnx.Input in 0 1 0
             nn.MaxPool2d maxpool 1 1 0 1
             nn.Conv2d convbn2d_0 1 1 1 2
             nn.ReLU layer1.0.relu 1 1 2 3
             nn.Conv2d convbn2d_1 1 1 3 4
             pnnx.Expression pnnx_expr_0 2 1 4 1 5 expr=add(@0,@1)
             nn.Conv2d convbn2d_2 1 1 5 6
             nn.ReLU layer2.0.relu 1 1 6 7
             nn.Conv2d convbn2d_3 1 1 7 8
             nn.Linear fc 1 1 8 9
             pnnx.Output out 1 0 9",
        );
        let graph = graph.unwrap();
        let wanted = [
            ("maxpool", ""),
            ("convbn2d_0", ""), // as near to the pooling
            ("convbn2d_1", "layer1.0"),
            ("pnnx_expr_0", "layer1.0"),
            ("convbn2d_2", "layer2.0"),
            ("convbn2d_3", "layer2.0"),
            ("fc", ""),
        ];
        for (name, scope) in wanted {
            assert_eq!(scope_of(&graph, name), scope, "{name}");
        }
    }

    #[test]
    fn what_joins_two_modules_belongs_to_the_one_around_both() {
        let graph = Graph::parse(
            "7767517
             7 6
             pnnx.Input in 0 1 0
             nn.Conv2d m.a.x 1 1 0 1
             nn.Conv2d m.b.x 1 1 0 2
             torch.add torch.add_0 2 1 1 2 3
             Tensor.reshape torch.view_3 1 1 3 5
             nn.Conv2d m.c.x 1 1 5 4
             pnnx.Output out 1 0 4",
        );
        let graph = graph.unwrap();
        assert_eq!(scope_of(&graph, "torch.add_0"), "m");
        assert_eq!(scope_of(&graph, "torch.view_3"), "m.c");
    }
}

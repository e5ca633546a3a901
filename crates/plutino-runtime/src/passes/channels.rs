//! Channels: a channel shuffle becomes one operator with the concatenations before it and the
//! splits after it.
//!
//! Each of them moves whole channels of images ([`Role::Channels`]). Together they do so, too: in
//! one pass over memory, and in channel blocks. A shuffle that is written out (channels cut into
//! groups by a view, the two dimensions exchanged, viewed as channels again) is one as well.

use super::PassCx;
use super::patch::Patch;
use crate::SessionError;
use crate::halt;
use crate::plan::net::{Net, ValueId};
use plutino_ops::{ChannelMap, Operator, Role, shuffled_channels};
use plutino_tensor::alloc;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Channels and nodes that are listed for all chains together, at most.
const MOST_LISTED: usize = 1 << 22;

/// What a node does to channels, together with the nodes before it whose results nobody else reads.
struct Chain {
    inputs: Vec<ValueId>,
    map: ChannelMap,
    /// Numbers of those nodes.
    absorbed: Vec<usize>,
}

impl Chain {
    /// Whether channels are shuffled. To join tensors and to cut them takes no copies, or copies of
    /// many channels at once.
    fn pays(&self) -> bool {
        shuffles(&self.map.outputs, self.inputs.len())
    }

    /// What it takes to remember the chain, in numbers.
    fn size(&self) -> usize {
        let channels: usize = self.map.outputs.iter().map(Vec::len).sum();
        channels + self.inputs.len() + self.absorbed.len() + 1
    }
}

/// Whether one of the outputs is more than pieces of the inputs side by side, one of each.
fn shuffles(outputs: &[Vec<(usize, usize)>], inputs: usize) -> bool {
    let follows = |pair: &[(usize, usize)]| pair[1] == (pair[0].0, pair[0].1 + 1);
    let cuts = |taken: &Vec<_>| taken.windows(2).filter(|pair| !follows(pair)).count();
    outputs.iter().any(|taken| cuts(taken) >= inputs)
}

/// Joins nodes that shuffle channels with those around them.
pub(super) fn channels(net: &mut Net, cx: &mut PassCx<'_>) -> Result<(), SessionError> {
    let mut chains: HashMap<usize, Chain> = HashMap::new();
    let mut room = MOST_LISTED;
    for at in 0..net.nodes.len() {
        halt::go_on_at(at)?;
        // The chain that makes a value for one node alone.
        let before = |value: ValueId, reader: usize| {
            let at = net.maker_for(value, reader)?;
            Some((at, chains.get(&at)?))
        };
        if let Some(chain) = super::searching(|| chain(net, at, before))
            && let Some(rest) = room.checked_sub(chain.size())
        {
            room = rest;
            chains.insert(at, chain);
        }
    }
    let mut taken = HashSet::new();
    for at in (0..net.nodes.len()).rev() {
        let Some(chain) = chains.remove(&at).filter(Chain::pays) else { continue };
        if taken.contains(&at) {
            continue;
        }
        let name = |at: usize| net.nodes[at].location.name.clone();
        let inputs = net.types.all(&chain.inputs).unwrap_or_default();
        if let Err(why) = chain.map.infer(&inputs) {
            cx.refuse(&name(at), why.to_string());
            continue;
        }
        let absorbed: Vec<_> = chain.absorbed.iter().map(|&at| name(at)).collect();
        let what = match &absorbed[..] {
            [] => "moves channels as they lie".to_owned(),
            absorbed => format!("absorbed {}", absorbed.join(", ")),
        };
        let (about, outputs) = (name(at), net.nodes[at].outputs.clone());
        let map: Arc<dyn Operator> = Arc::new(chain.map);
        let patch = Patch::replace(at, map, chain.inputs, outputs);
        let patch = patch.without(chain.absorbed.iter().copied()).note(&about, what);
        if cx.apply(net, patch)? {
            taken.extend(chain.absorbed);
        }
    }
    Ok(())
}

/// The chain that ends with the node at `at`, if that moves channels.
fn chain<'c>(
    net: &Net,
    at: usize,
    before: impl Fn(ValueId, usize) -> Option<(usize, &'c Chain)>,
) -> Option<Chain> {
    let node = &net.nodes[at];
    if node.outputs.iter().any(|&output| net.types.is_known(output)) {
        return None; // constants of the plan: nothing runs
    }
    let (taken, of, within) = match net.role(at)? {
        Role::Channels(taken) => (taken, node.inputs.clone(), Vec::new()),
        Role::Reshape(input) => {
            let (image, groups, within) = written_out(net, at, input)?;
            (vec![shuffled(net, image, groups)?], vec![image], within)
        }
        _ => return None,
    };
    let reader = within.first().copied().unwrap_or(at);
    let (mut inputs, mut absorbed) = (Vec::new(), within);
    // Others, such as the sizes of a split, are known: they decided what is taken.
    let images: HashSet<usize> = taken.iter().flatten().map(|&(input, _)| input).collect();
    // A concatenation leaves shuffles alone: its other parts may be written into place.
    let joins = images.len() > 1 && !shuffles(&taken, images.len());
    // For each input of the node: its number among those of the chain, or where its channels come
    // from.
    let mut sources = Vec::with_capacity(of.len());
    for (number, &input) in of.iter().enumerate() {
        let first = inputs.len();
        if !images.contains(&number) {
            sources.push((first, None));
            continue;
        }
        let before = before(input, reader).filter(|(_, chain)| !joins || !chain.pays());
        match before.map(|(at, chain)| (at, chain, &chain.map.outputs[..])) {
            Some((at, chain, [channels])) => {
                inputs.extend(&chain.inputs);
                absorbed.extend(chain.absorbed.iter().copied().chain([at]));
                sources.push((first, Some(channels)));
            }
            _ => {
                inputs.push(input);
                sources.push((first, None));
            }
        }
    }
    let source = |(input, channel): (usize, usize)| {
        let &(first, channels) = sources.get(input)?;
        let Some(channels) = channels else { return Some((first, channel)) };
        let &(input, channel) = channels.get(channel)?;
        Some((first + input, channel))
    };
    let outputs = taken.into_iter().map(|taken| taken.into_iter().map(source).collect());
    let map = ChannelMap { outputs: outputs.collect::<Option<_>>()? };
    Some(Chain { inputs, map, absorbed })
}

/// The image, the number of groups and the two other nodes of a shuffle that the view at `at` of
/// its input ends: (N, g c, ...) viewed as (N, g, c, ...), (N, c, g, ...), viewed as (N, c g, ...).
fn written_out(net: &Net, at: usize, input: usize) -> Option<(ValueId, usize, Vec<usize>)> {
    let exchanged = *net.nodes[at].inputs.get(input)?;
    let exchange = net.maker_for(exchanged, at)?;
    let Role::Permute(input, order) = net.role(exchange)? else { return None };
    let cut = *net.nodes[exchange].inputs.get(input)?;
    let view = net.maker_for(cut, exchange)?;
    let Role::Reshape(input) = net.role(view)? else { return None };
    let image = *net.nodes[view].inputs.get(input)?;

    let shape = |value: ValueId| net.computed(value).map(|spec| &spec.shape[..]);
    let (whole, cut, result) = (shape(image)?, shape(cut)?, shape(net.only_output(at)?)?);
    let (&[batch, channels, ref pixels @ ..], &[n, groups, each, ref rest @ ..]) = (whole, cut)
    else {
        return None;
    };
    let cuts = (n, rest, groups.checked_mul(each)) == (batch, pixels, Some(channels));
    let exchanges = order.iter().enumerate().all(|(i, &d)| match i {
        1 => d == 2,
        2 => d == 1,
        _ => d == i,
    });
    (cuts && exchanges && whole == result).then(|| (image, groups, vec![view, exchange]))
}

/// The channels that a shuffle of an image takes, in their order.
fn shuffled(net: &Net, image: ValueId, groups: usize) -> Option<Vec<(usize, usize)>> {
    let channels = shuffled_channels(*net.computed(image)?.shape.get(1)?, groups)?;
    alloc::collect(channels.into_iter().map(|channel| (0, channel))).ok()
}
